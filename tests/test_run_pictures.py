"""Pictures for models: the same greys as the viewer's, every crop exactly where it was asked for."""

import io
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from PIL import Image

from backend.domain.crop import View, whole_frame
from backend.domain.errors import NotFound
from backend.domain.mask import pack_plane
from backend.domain.study import Series
from backend.domain.trace import ToolBody
from backend.domain.view import Window
from backend.imaging.render import render
from backend.services import masks, pictures, series
from backend.services.frames import Frames
from backend.services.run_workbench import ClinicWorkbench
from backend.services.studies import OpenedSeries, open_series
from tests.clinic import Clinic
from tests.factories.images import make_dicom, make_nifti, make_picture

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
BODY = ToolBody(name="a tool", version="1")


@pytest.fixture
def clinic(store, blobs, settings, clock, actor) -> Clinic:
    return Clinic(store, blobs, settings, clock, actor)


def opened(clinic: Clinic, one: Series) -> tuple[OpenedSeries, Frames]:
    services = clinic.services
    with clinic.store.transaction(read_only=True) as tx:
        found = open_series(clinic.actor, one.id, tx)
    return found, Frames(store=services.store, blobs=services.blobs, settings=services.settings)


def step_edge(clinic: Clinic) -> Series:
    """8 x 8 pixels of a CT: -1024 HU up to column 4, 1023 HU from there on."""
    pixels = np.zeros((8, 8), np.int16)
    pixels[:, 4:] = 2047
    (found,) = clinic.take_in({"a.dcm": make_dicom(pixels, RescaleSlope=1, RescaleIntercept=-1024, RescaleType="HU")})
    return found


def view_of(one: Series, crop: tuple[str, str, str, str], width: int, height: int) -> View:
    whole = whole_frame(one.id, 0, width=8, height=8, window=Window(0, 2048))
    x0, y0, x1, y1 = (Fraction(edge) for edge in crop)
    return replace(whole, crop=(x0, y0, x1, y1), width=width, height=height)


def test_a_whole_frame_at_its_own_size_is_what_the_viewer_draws(clinic: Clinic) -> None:
    rng = np.random.default_rng(1)
    files = {"a.dcm": make_dicom(rng.integers(-1000, 1000, (7, 9)).astype(np.int16), WindowCenter=40, WindowWidth=400)}
    (one,) = clinic.take_in(files)
    found, frames = opened(clinic, one)
    bench = ClinicWorkbench(clinic.ask(one), services=clinic.services)
    assert (bench.first_view().width, bench.first_view().height) == (9, 7)
    assert bench.first_view().window == Window(40, 400)
    drawn = pictures.view_picture(found, bench.first_view(), frames=frames)
    png = series.picture(
        clinic.actor, one.id, 0, store=clinic.store, blobs=clinic.services.blobs, settings=clinic.services.settings
    )
    assert np.array_equal(drawn, np.asarray(Image.open(io.BytesIO(png))))


def test_a_crop_at_its_own_size_is_those_very_pixels(clinic: Clinic) -> None:
    rng = np.random.default_rng(2)
    (one,) = clinic.take_in({"a.dcm": make_dicom(rng.integers(0, 200, (8, 8)).astype(np.int16))})
    found, frames = opened(clinic, one)
    view = replace(view_of(one, ("2", "1", "7", "5"), 5, 4), window=Window(100, 200))
    whole = render(frames.shown(found, 0), one.frames[0].values, one.pixel.photometric, Window(100, 200))
    assert np.array_equal(pictures.view_picture(found, view, frames=frames), whole[1:5, 2:7])


@pytest.mark.parametrize(
    ("crop", "width", "edge"),
    [
        (("0", "0", "8", "8"), 8, 4),
        (("0", "0", "8", "8"), 80, 40),
        (("2", "2", "6", "6"), 400, 200),
        (("3", "2", "5", "6"), 20, 10),
        (("7/2", "0", "15/2", "8"), 64, 8),
        (("10/3", "0", "22/3", "4"), 60, 10),
        (("0", "0", "8", "8"), 4, 2),
    ],
)
def test_a_step_edge_falls_where_the_view_says(
    clinic: Clinic, crop: tuple[str, str, str, str], width: int, edge: int
) -> None:
    """Half of the way from black to white is at the edge: left of it darker, right of it brighter, and mirrored."""
    one = step_edge(clinic)
    found, frames = opened(clinic, one)
    view = view_of(one, crop, width, 8)
    assert view.from_frame(4, 0)[0] == edge
    row = pictures.view_picture(found, view, frames=frames)[3].astype(int)
    reach = min(edge, width - edge)
    left, right = row[edge - reach : edge][::-1], row[edge : edge + reach]
    assert left[0] < 127 < right[0]
    assert np.abs(left + right - 255).max() <= 1


def test_a_mask_is_drawn_over_its_pixels_and_over_no_others(clinic: Clinic) -> None:
    one = step_edge(clinic)
    found, frames = opened(clinic, one)
    mask = np.zeros((8, 8), bool)
    mask[1:4, 1:4] = True
    view = view_of(one, ("0", "0", "8", "8"), 16, 16)
    plain = pictures.view_picture(found, view, frames=frames)
    drawn = pictures.view_picture(found, view, frames=frames, frame_mask=mask)
    inside = np.zeros((16, 16), bool)
    inside[2:8, 2:8] = True
    assert (drawn[~inside] == plain[~inside][:, None]).all()
    assert drawn[2, 2].tolist() == list(pictures.OVERLAY_RGB)
    assert drawn[4, 4].tolist() == [round(255 * 0.35), round(64 * 0.35), round(64 * 0.35)]


def test_a_segmenter_sees_ct_under_one_window_and_its_values_in_hu(clinic: Clinic) -> None:
    one = step_edge(clinic)
    found, frames = opened(clinic, one)
    seen = pictures.canonical_picture(found, 0, frames=frames)
    assert seen.pixels[0].tolist() == [0] * 4 + [255] * 4
    assert seen.values is not None
    assert seen.values[0].tolist() == [-1024] * 4 + [1023] * 4
    assert (seen.modality, seen.unit, seen.spacing_row_column_mm) == ("CT", "HU", (1, 1))


def test_a_segmenter_sees_colour_without_values_and_a_nifti_as_it_is_shown(clinic: Clinic) -> None:
    colour = np.zeros((4, 5, 3), np.uint8)
    colour[1, 2] = (200, 100, 50)
    (one,) = clinic.take_in({"c.png": make_picture(colour)})
    found, frames = opened(clinic, one)
    seen = pictures.canonical_picture(found, 0, frames=frames)
    assert (seen.values, seen.pixels[1, 2].tolist(), seen.spacing_row_column_mm) == (None, [200, 100, 50], None)
    voxels = np.zeros((2, 3, 4), np.int16)
    voxels[1, 0, 3] = 500
    (turned,) = clinic.take_in({"v.nii": make_nifti(voxels)})
    found, frames = opened(clinic, turned)
    at = next(at for at in range(2) if frames.shown(found, at).any())
    seen = pictures.canonical_picture(found, at, frames=frames)
    assert seen.values is not None
    assert np.array_equal(seen.values, frames.shown(found, at))
    assert seen.pixels[seen.values > 0].tolist() == [255]


def test_a_tools_mask_comes_back_as_it_was_lifted_and_twice_is_once(clinic: Clinic) -> None:
    voxels = np.zeros((3, 4, 5), np.int16)
    (one,) = clinic.take_in({"v.nii": make_nifti(voxels)})
    bench = ClinicWorkbench(clinic.ask(one), services=clinic.services)
    mask = np.zeros((4, 5), bool)
    mask[1, 1:4] = mask[3, 4] = True
    stored = [
        bench.store_mask(
            mask, frame_index=2, label="a\u200b\n structure " + "x" * 90, body=BODY, sequence=5, score=0.5,
            is_present=True, is_resampled=True,
        )
        for _ in range(2)
    ]  # fmt: skip
    assert stored[0] == stored[1]
    made = stored[0].made
    assert (made.area_px, made.area_mm2, made.box, made.score) == (4, 4.0, (1, 1, 5, 4), 0.5)
    assert (stored[0].body, np.array_equal(bench.mask_on_frame(made), mask)) == (BODY, True)
    with clinic.store.transaction(read_only=True) as tx:
        version = tx.masks.get(made.mask_version_id)
    assert version.is_resampled
    assert version.segments[0].label == ("a structure " + "x" * 90)[:64]


def test_what_a_tool_is_told_after_a_crash_is_what_was_stored_before_it(clinic: Clinic) -> None:
    one = step_edge(clinic)
    bench = ClinicWorkbench(clinic.ask(one), services=clinic.services)
    first, other = np.zeros((8, 8), bool), np.ones((8, 8), bool)
    first[2:4, 1:4] = True
    given = {"frame_index": 0, "label": "a", "sequence": 5, "is_present": True, "is_resampled": False}
    stored = bench.store_mask(first, body=BODY, score=0.5, **given)
    again = bench.store_mask(other, body=ToolBody(name="another", version="2"), score=0.9, **given)
    assert (again.made.mask_version_id, again.made.area_px, again.made.area_mm2) == (stored.made.mask_version_id, 6, 6)
    assert (again.made.box, again.made.score) == ((1, 2, 4, 4), None)
    assert (again.body.name, again.body.version) == (BODY.name, BODY.version)
    assert bench.store_mask(other, body=BODY, score=0.9, **given).made.score is None
    assert bench.store_mask(first, body=BODY, score=0.5, **given) == stored


def test_a_persons_mask_is_given_on_one_frame_and_none_of_another_series(clinic: Clinic) -> None:
    one = clinic.ct()
    bench = ClinicWorkbench(clinic.ask(one), services=clinic.services)
    begun = clinic.begin(one)
    plane = np.zeros((4, 6), bool)
    plane[1, 2:5] = True
    drawn = masks.save_plane(
        clinic.actor, begun.mask_id, 1, 2, pack_plane(plane), base_version=1, request_key="12345678",
        store=clinic.store, clock=clinic.clock,
    )  # fmt: skip
    given = bench.given_mask(drawn.id, frame_index=2)
    assert (given.label, given.made.area_px, given.made.box, given.made.score) == ("Lung", 3, (2, 1, 5, 2), None)
    assert np.array_equal(bench.mask_on_frame(given.made), plane)
    assert bench.given_mask(drawn.id, frame_index=0).made.area_px == 0
    other = ClinicWorkbench(clinic.ask(step_edge(clinic)), services=clinic.services)
    with pytest.raises(NotFound):
        other.given_mask(drawn.id, frame_index=0)


def test_c17_padding_and_what_is_no_number_have_no_value(clinic: Clinic) -> None:
    pixels = np.full((4, 4), 1000, np.int16)
    pixels[0] = -2000
    dicom = make_dicom(pixels, RescaleSlope=1, RescaleIntercept=-1024, RescaleType="HU", PixelPaddingValue=-2000)
    (one,) = clinic.take_in({"a.dcm": dicom})
    found, frames = opened(clinic, one)
    seen = pictures.canonical_picture(found, 0, frames=frames)
    assert seen.values is not None
    assert np.isnan(seen.values[0]).all()
    assert (seen.values[1:] == -24).all()
    voxels = np.full((1, 2, 2), 7, np.float32)
    voxels[0, 0] = np.nan, np.inf
    (floats,) = clinic.take_in({"v.nii": make_nifti(voxels)})
    found, frames = opened(clinic, floats)
    values = pictures.canonical_picture(found, 0, frames=frames).values
    assert values is not None
    assert sorted(values[np.isfinite(values)]) == [7, 7]
    assert np.isnan(values).sum() == 2


def test_a_frame_with_long_pixels_is_shown_in_its_physical_aspect(clinic: Clinic) -> None:
    (one,) = clinic.take_in({"a.dcm": make_dicom(np.zeros((6, 8), np.int16), PixelSpacing=[2.0, 0.5])})
    bench = ClinicWorkbench(clinic.ask(one), services=clinic.services)
    view = bench.first_view()
    assert (view.width, view.height, view.crop) == (8, 24, (0, 0, 8, 6))
    assert view.to_frame(4, 12) == (4, 3)
    assert Image.open(io.BytesIO(bench.render(view).png)).size == (8, 24)


def test_the_same_view_drawn_again_is_the_same_file(clinic: Clinic) -> None:
    one = step_edge(clinic)
    bench = ClinicWorkbench(clinic.ask(one), services=clinic.services)
    view = view_of(one, ("1/3", "0", "7", "8"), 448, 448)
    assert bench.render(view) == bench.render(view)
