"""Things found by name: where they are, where they are not, and what is not known."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from annotation.segmenters.embedded import REFINED_RULES, RULES, EmbeddedSegmenter
from backend.domain.segmenter import CanonicalPicture, ConceptPrompt, Segmentation, ToolError, UnknownConcept
from tests.factories.segmenter import chest_ct, ct_picture, dice


@pytest.fixture(scope="module")
def segmenter() -> EmbeddedSegmenter:
    return EmbeddedSegmenter()


def find(segmenter: EmbeddedSegmenter, picture: CanonicalPicture, concept: str) -> Segmentation:
    return segmenter.segment(picture, ConceptPrompt(concept))


@pytest.mark.parametrize("concept", ["body", "lungs", "bone", "air", "fat"])
def test_a_phantom_chest_is_found_part_by_part(segmenter: EmbeddedSegmenter, concept: str) -> None:
    values, truth = chest_ct()
    answer = find(segmenter, ct_picture(values), concept)
    assert answer.is_present
    assert answer.body == RULES
    assert answer.score is None
    assert dice(answer.mask, truth[concept]) > 0.95


def test_neither_the_table_nor_the_trachea_is_taken_for_what_it_is_like(segmenter: EmbeddedSegmenter) -> None:
    values, _ = chest_ct()
    assert not find(segmenter, ct_picture(values), "bone").mask[236:].any()
    assert not find(segmenter, ct_picture(values), "lungs").mask[72:85, 122:135].any()


def test_c49_a_slice_without_lungs_or_gas_has_none(segmenter: EmbeddedSegmenter) -> None:
    values, truth = chest_ct()
    values[truth["air"]] = 40
    for concept in ("lungs", "air"):
        answer = find(segmenter, ct_picture(values), concept)
        assert not answer.is_present
        assert not answer.mask.any()


def test_c49_a_slice_of_air_has_no_body(segmenter: EmbeddedSegmenter) -> None:
    for concept in segmenter.concepts("CT"):
        assert not find(segmenter, ct_picture(np.full((64, 80), -1000, dtype=np.float32)), concept).is_present


@pytest.mark.parametrize("concept", ["body", "lungs", "bone", "air", "fat"])
def test_c17_padding_around_a_slice_changes_nothing_that_is_found(segmenter: EmbeddedSegmenter, concept: str) -> None:
    values, truth = chest_ct()
    middle = values.shape[0] / 2
    j, i = np.mgrid[: values.shape[0], : values.shape[1]]
    values[np.hypot(i + 0.5 - middle, j + 0.5 - middle) > 120] = np.nan
    answer = find(segmenter, CanonicalPicture(ct_picture(np.nan_to_num(values)).pixels, values, "CT", "HU"), concept)
    assert answer.is_present
    assert dice(answer.mask, truth[concept]) > 0.95


def test_ct_without_hounsfield_units_is_refused_with_the_reason(segmenter: EmbeddedSegmenter) -> None:
    values, _ = chest_ct()
    with pytest.raises(ToolError, match=r"HU.*unit unknown"):
        find(segmenter, ct_picture(values, unit=None), "lungs")
    with pytest.raises(ToolError, match=r"HU.*grey levels only"):
        find(segmenter, CanonicalPicture(ct_picture(values).pixels, modality="CT"), "lungs")


@pytest.mark.parametrize("words", ["lung", "Lungs", "both lungs", "the lungs", " LUNG ", "lung_fields"])
def test_usual_words_mean_the_same(segmenter: EmbeddedSegmenter, words: str) -> None:
    values, truth = chest_ct()
    assert dice(find(segmenter, ct_picture(values), words).mask, truth["lungs"]) > 0.95


@pytest.mark.parametrize("words", ["left lung", "right lung", "liver", "heart", "optic disc", ""])
def test_what_is_not_known_is_not_guessed(segmenter: EmbeddedSegmenter, words: str) -> None:
    values, _ = chest_ct()
    with pytest.raises(UnknownConcept) as refusal:
        find(segmenter, ct_picture(values), words)
    assert refusal.value.details["known"] == ["body", "lungs", "bone", "air", "fat"]


def test_a_modality_without_rules_says_so(segmenter: EmbeddedSegmenter) -> None:
    with pytest.raises(UnknownConcept, match="use a box or points"):
        find(segmenter, CanonicalPicture(np.zeros((8, 8), dtype=np.uint8), modality="MR"), "lungs")


def nuclei_picture() -> tuple[CanonicalPicture, np.ndarray]:
    """White ground, pink tissue and sixteen blue squares of 10 x 10 pixels."""
    pixels = np.full((120, 120, 3), 240, dtype=np.uint8)
    pixels[:, :100] = (230, 180, 210)
    truth = np.zeros((120, 120), dtype=np.bool_)
    for row in range(4):
        for column in range(4):
            truth[10 + 25 * row : 20 + 25 * row, 10 + 22 * column : 20 + 22 * column] = True
    pixels[truth] = (90, 70, 150)
    return CanonicalPicture(pixels), truth


def test_stained_nuclei_are_found_by_their_blue(segmenter: EmbeddedSegmenter) -> None:
    picture, truth = nuclei_picture()
    answer = find(segmenter, picture, "nuclei")
    assert answer.is_present
    # The smoothing before the threshold adds half a pixel all round: 11 x 11 for 10 x 10 gives 0.905, less at corners.
    assert dice(answer.mask, truth) > 0.85


def test_a_grey_picture_has_no_stain_to_go_by(segmenter: EmbeddedSegmenter) -> None:
    with pytest.raises(ToolError, match="colour"):
        find(segmenter, CanonicalPicture(np.zeros((50, 50), dtype=np.uint8)), "stained nuclei")


def test_c49_colour_noise_and_one_colour_hold_no_nuclei(segmenter: EmbeddedSegmenter) -> None:
    noise = np.random.default_rng(0).integers(0, 255, (200, 200, 3), dtype=np.uint8)
    for pixels in (noise, np.full((90, 90, 3), 220, dtype=np.uint8)):
        assert not find(segmenter, CanonicalPicture(pixels), "stained nuclei").is_present


def test_c49_a_retina_holds_no_stained_nuclei_and_a_slide_does(segmenter: EmbeddedSegmenter, shared_data: Path) -> None:
    retina = np.asarray(Image.open(shared_data / "images2d" / "skimage" / "retina.jpg"))
    slide = np.asarray(Image.open(shared_data / "images2d" / "nuclei" / "histo.jpg"))
    assert not find(segmenter, CanonicalPicture(retina, modality="XC"), "stained nuclei").is_present
    assert find(segmenter, CanonicalPicture(slide, modality="GM"), "stained nuclei").is_present


@pytest.mark.parametrize(
    ("path", "has_lungs"),
    [
        ("images2d/lidc/CT_lung_nodule.dcm", True),
        ("dicom/ct_dupe_positions/CT24.dcm", True),
        ("dicom/ct_tilt_variable_28/14.dcm", False),
        ("dicom/ct_axial_28/I140", False),
    ],
)
def test_real_slices_have_lungs_or_not(
    segmenter: EmbeddedSegmenter, shared_data: Path, path: str, has_lungs: bool
) -> None:
    from pydicom import dcmread

    stored = dcmread(shared_data / path)
    slope, intercept = float(stored.RescaleSlope), float(stored.RescaleIntercept)
    picture = ct_picture((stored.pixel_array * slope + intercept).astype(np.float32))
    assert find(segmenter, picture, "lungs").is_present is has_lungs
    assert find(segmenter, picture, "body").is_present


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_lungs_by_name_on_real_films(segmenter: EmbeddedSegmenter, shared_data: Path, number: int) -> None:
    """The mean of the four, 0.90 or more, is what `serpens bench segment` prints."""
    folder = shared_data / "images2d" / "chest_xray"
    picture = CanonicalPicture(np.asarray(Image.open(folder / f"{number}.jpg")), modality="DX")
    answer = find(segmenter, picture, "lungs")
    assert answer.is_present
    assert answer.body == REFINED_RULES
    assert answer.body.is_demonstration
    assert answer.score is not None
    assert dice(answer.mask, np.asarray(Image.open(folder / f"{number}-mask.png")) > 0) > 0.88


def test_c49_half_a_film_has_no_two_lungs(segmenter: EmbeddedSegmenter, shared_data: Path) -> None:
    film = np.asarray(Image.open(shared_data / "images2d" / "chest_xray" / "1.jpg"))
    picture = CanonicalPicture(np.ascontiguousarray(film[:, :250]), modality="CR")
    assert not find(segmenter, picture, "lungs").is_present
