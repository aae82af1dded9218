"""Pictures, prompts and masks as bytes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.domain import segmenter_wire as wire
from backend.domain.errors import InvalidRequest
from backend.domain.segmenter import (
    BoxPrompt,
    CanonicalPicture,
    ConceptPrompt,
    PointsPrompt,
    Segmentation,
    SegmenterBody,
)

PICTURE = CanonicalPicture(
    np.arange(15, dtype=np.uint8).reshape(3, 5),
    values=np.linspace(-1000, 1000, 15, dtype=np.float32).reshape(3, 5),
    modality="CT",
    unit="HU",
    spacing_row_column_mm=(0.5, 0.75),
)
BODY = SegmenterBody("LiteMedSAM", "0.1.1", "ab" * 32, is_demonstration=False)


def test_a_picture_comes_back_as_it_went() -> None:
    back = wire.decode_picture(wire.encode_picture(PICTURE))
    assert back.values is not None
    assert np.array_equal(back.pixels, PICTURE.pixels)
    assert np.array_equal(back.values, PICTURE.values)
    assert (back.modality, back.unit, back.spacing_row_column_mm) == ("CT", "HU", (0.5, 0.75))


def test_equal_pictures_have_one_name_however_they_lie_in_memory() -> None:
    turned = CanonicalPicture(np.asfortranarray(PICTURE.pixels), PICTURE.values, "CT", "HU", (0.5, 0.75))
    name = wire.picture_sha256(wire.encode_picture(PICTURE))
    assert wire.picture_sha256(wire.encode_picture(turned)) == name
    assert wire.picture_sha256(wire.encode_picture(CanonicalPicture(PICTURE.pixels))) != name


@pytest.mark.parametrize(
    "prompt",
    [
        BoxPrompt((0.0, 1.5, 20.0, 30.25)),
        PointsPrompt(((1.0, 2.0), (3.5, 4.0)), (1, 0)),
        ConceptPrompt("lungs"),
    ],
)
def test_a_prompt_comes_back_as_it_went(prompt: BoxPrompt | PointsPrompt | ConceptPrompt) -> None:
    assert wire.prompt_from_json(wire.prompt_to_json(prompt)) == prompt


@pytest.mark.parametrize(
    "message",
    [
        None,
        [],
        {},
        {"box": [1, 2, 3]},
        {"box": [1, 2, 3, "4"]},
        {"box": [1, 2, 3, True]},
        {"box": [1, 2, 3, float("nan")]},
        {"box": [1, 2, 3, 4], "concept": "lungs"},
        {"points": [[1, 2]], "labels": [2]},
        {"points": [[1, 2]], "labels": [True]},
        {"points": [[1]], "labels": [1]},
        {"concept": ""},
        {"concept": "x" * 201},
    ],
)
def test_a_prompt_of_another_form_is_refused(message: object) -> None:
    with pytest.raises(InvalidRequest):
        wire.prompt_from_json(message)


@given(st.integers(1, 40), st.integers(1, 40), st.integers(0, 2**32 - 1))
def test_a_mask_comes_back_bit_for_bit(rows: int, columns: int, seed: int) -> None:
    mask = np.random.default_rng(seed).random((rows, columns)) < 0.5
    answer = Segmentation(mask=mask, score=0.875, is_present=True, body=BODY, seconds=0.25)
    message = wire.encode_segmentation(answer)
    back = wire.decode_segmentation(message)
    assert np.array_equal(back.mask, mask)
    assert (back.score, back.is_present, back.body, back.seconds) == (0.875, True, BODY, 0.25)


def test_the_grid_of_an_answer_comes_back() -> None:
    for grid in (None, (256, 180)):
        answer = Segmentation(np.zeros((4, 6), np.bool_), None, is_present=False, body=BODY, seconds=0.0, grid=grid)
        message = wire.encode_segmentation(answer)
        assert wire.decode_segmentation(message).grid == grid
    for wrong in (b'"grid":[256]', b'"grid":[0,-1]', b'"grid":"256"', b'"grid":[2,true]'):
        right = b'"grid":[256,180]'
        with pytest.raises(InvalidRequest, match="grid"):
            wire.decode_segmentation(message.replace(right, wrong.ljust(len(right))))


def test_a_pixel_without_a_value_has_none_on_the_other_side() -> None:
    values = np.array([[np.nan, -1000.5], [40, np.nan]], np.float32)
    message = wire.encode_picture(CanonicalPicture(np.zeros((2, 2), np.uint8), values))
    back = wire.decode_picture(message)
    assert back.values is not None
    assert np.array_equal(back.values, values, equal_nan=True)
    assert wire.encode_picture(back) == message


def test_a_mask_takes_one_bit_a_pixel() -> None:
    answer = Segmentation(np.zeros((1000, 1000), np.bool_), None, is_present=False, body=BODY, seconds=0.0)
    assert len(wire.encode_segmentation(answer)) < 125_000 + 400


@settings(max_examples=200)
@given(st.binary(max_size=120), st.integers(0, 60))
def test_any_bytes_are_a_picture_or_an_invalid_request(noise: bytes, cut: int) -> None:
    message = wire.encode_picture(PICTURE)
    for candidate in (noise, b"SGP1" + noise, message[:cut] + noise, message + noise[:1] + b"x"):
        with pytest.raises(InvalidRequest):
            wire.decode_picture(candidate)
    with pytest.raises(InvalidRequest):
        wire.decode_segmentation(b"SGM1" + noise)
