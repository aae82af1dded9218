"""Instances to the series that a person scrolls: order, places, kinds and the reasons for them."""

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.domain.errors import FileRefused, ShapeError
from backend.domain.study import SeriesKind, SpacingSource
from backend.domain.view import VoiLutFunction, Window
from backend.domain.volume import VolumeGeometry, to_patient_mm
from backend.imaging.arrange import SeriesLayout, StoredInstance, arrange
from backend.imaging.header import read_header
from tests.factories.images import (
    AXIAL,
    CORONAL,
    SAGITTAL,
    arrange_files,
    header_of,
    make_dicom,
    make_enhanced,
    make_stack,
)


def only(layouts: list[SeriesLayout]) -> SeriesLayout:
    assert len(layouts) == 1
    return layouts[0]


def order(layout: SeriesLayout) -> list[tuple[str, int]]:
    return [(frame.instance_id, frame.frame_number) for frame in layout.frames]


def letters(file: bytes) -> tuple[str, ...]:
    plane = only(arrange_files([file])).frames[0].plane
    assert plane is not None
    return plane.letters.left, plane.letters.right, plane.letters.top, plane.letters.bottom


def along_z(*heights: float) -> list[tuple[float, float, float]]:
    return [(0.0, 0.0, z) for z in heights]


# ---- order and place


def test_c01_slices_follow_their_position_and_not_their_instance_number() -> None:
    numbers: list[Any] = [7, 2, 9, None, 1, 5, None, 3, 8, 6]
    files = [
        make_dicom(np.full((4, 4), k, np.int16), ImagePositionPatient=[0, 0, 3 * k], InstanceNumber=number)
        for k, number in enumerate(numbers)
    ]
    layout = only(arrange_files(files))
    assert order(layout) == [(str(k), 0) for k in range(10)]
    assert layout.kind is SeriesKind.VOLUME
    assert layout.geometry is not None
    assert layout.geometry.spacing_kji_mm == (3.0, 1.0, 1.0)
    assert [frame.index for frame in layout.frames] == list(range(10))


def test_the_order_of_the_files_does_not_matter() -> None:
    instances = [
        StoredInstance(str(n), header_of(file).facts)
        for n, file in enumerate(
            [
                *make_stack(along_z(9, 3, 0, 6)),
                make_dicom(ImageOrientationPatient=SAGITTAL),
                make_dicom(Rows=2, Columns=8),
            ]
        )
    ]
    first = arrange(instances)
    for seed in range(5):
        shuffled = random.Random(seed).sample(instances, len(instances))
        again = arrange(shuffled)
        assert [(a.part, order(a)) for a in again] == [(a.part, order(a)) for a in first]


def test_slices_without_a_place_follow_their_instance_number() -> None:
    files = [make_dicom(ImagePositionPatient=None, InstanceNumber=n) for n in (3, 1, 2)]
    layout = only(arrange_files(files))
    assert order(layout) == [("1", 0), ("2", 0), ("0", 0)]
    assert (layout.kind, layout.geometry) == (SeriesKind.PICTURES, None)
    assert layout.kind_reason == "the file does not say where each picture lies"


def test_c04_slice_spacing_comes_from_the_positions_and_not_from_a_tag() -> None:
    iop = [1, 0, 0, 0, 0.86603, 0.5]
    files = make_stack(
        [(0, -0.5 * 3 * k, 0.86603 * 3 * k) for k in range(5)],
        ImageOrientationPatient=iop, SliceThickness=5, SpacingBetweenSlices=5,
    )  # fmt: skip
    geometry = only(arrange_files(files)).geometry
    assert geometry is not None
    assert geometry.spacing_kji_mm[0] == pytest.approx(3.0, abs=1e-4)


def test_c07_row_spacing_comes_first() -> None:
    layout = only(arrange_files(make_stack(along_z(0, 5), PixelSpacing=[1.0, 2.0])))
    assert layout.geometry is not None
    assert layout.geometry.spacing_kji_mm == (5.0, 1.0, 2.0)
    assert layout.frames[0].spacing_row_column_mm == (1.0, 2.0)
    # Ten columns to the right are 20 mm towards the patient's left, ten rows down are 10 mm towards the back.
    moved = to_patient_mm(layout.geometry, np.array([[0.0, 0, 10], [0, 10, 0], [1, 0, 0]]))
    assert moved.tolist() == [[20, 0, 0], [0, 10, 0], [0, 0, 5]]


@pytest.mark.parametrize(("iop", "expected"), [
    (SAGITTAL, ("A", "P", "H", "F")),
    (CORONAL, ("R", "L", "H", "F")),
    ([-1, 0, 0, 0, 1, 0], ("L", "R", "A", "P")),
    (AXIAL, ("R", "L", "A", "P")),
])  # fmt: skip
def test_c09_edge_letters_follow_the_direction_cosines(iop: list[int], expected: tuple[str, ...]) -> None:
    assert letters(make_dicom(ImageOrientationPatient=iop)) == expected


@settings(deadline=None, max_examples=40)
@given(
    angles=st.tuples(*[st.floats(-3.1, 3.1)] * 3),
    origin=st.tuples(*[st.floats(-300, 300)] * 3),
    spacing=st.tuples(*[st.floats(0.3, 5)] * 3),
    seed=st.integers(0, 1000),
)
def test_a_volume_at_any_angle_puts_its_voxels_where_the_files_say(
    angles: tuple[float, ...], origin: tuple[float, ...], spacing: tuple[float, ...], seed: int
) -> None:
    (ca, cb, cc), (sa, sb, sc) = np.cos(angles), np.sin(angles)
    turn = np.array([[ca, -sa, 0], [sa, ca, 0], [0, 0, 1]]) @ np.array([[cb, 0, sb], [0, 1, 0], [-sb, 0, cb]])
    turn = turn @ np.array([[1, 0, 0], [0, cc, -sc], [0, sc, cc]])
    row, column, normal = turn.T
    positions = [np.array(origin) + k * spacing[0] * normal for k in range(6)]
    shuffled = random.Random(seed).sample(range(6), 6)
    files = make_stack(
        [[round(float(x), 4) for x in positions[k]] for k in shuffled],
        ImageOrientationPatient=[round(float(x), 6) for x in (*row, *column)],
        PixelSpacing=[round(spacing[1], 4), round(spacing[2], 4)],
    )
    layout = only(arrange_files(files))
    assert layout.kind is SeriesKind.VOLUME
    assert [shuffled[int(frame.instance_id)] for frame in layout.frames] == list(range(6))
    assert layout.geometry is not None
    assert np.linalg.det(layout.geometry.affine_kji_to_lps_mm) < 0  # k, j, i of a right-handed x, y, z
    corner = to_patient_mm(layout.geometry, np.array([[5.0, 3, 2]]))[0]
    expected = positions[5] + 3 * spacing[1] * column + 2 * spacing[2] * row
    assert np.allclose(corner, expected, atol=0.01)


# ---- what is no volume, and why


def test_c03_a_missing_slice_makes_pictures_and_names_the_gap() -> None:
    heights = [1.6 * k for k in range(20) if k != 9]
    layout = only(arrange_files(make_stack(along_z(*heights))))
    assert (layout.kind, layout.geometry) == (SeriesKind.PICTURES, None)
    assert layout.kind_reason == (
        "one slice is missing: slices 9 and 10 are 3.20 mm apart and their neighbours 1.60 mm"
    )
    positions = [frame.plane.origin_lps_mm[2] for frame in layout.frames if frame.plane is not None]
    assert positions == pytest.approx(heights)


def test_c02_a_tilted_gantry_makes_pictures() -> None:
    files = make_stack(along_z(*range(0, 100, 5)), ImageOrientationPatient=[1, 0, 0, 0, 0.93969, -0.34202])
    layout = only(arrange_files(files))
    assert (layout.kind, layout.geometry) == (SeriesKind.PICTURES, None)
    assert layout.kind_reason == "the gantry was tilted, by 20.0 degrees"


def test_c05_two_slices_at_one_place_make_pictures() -> None:
    layout = only(arrange_files(make_stack(along_z(0, 1, 2, 2, 3))))
    assert layout.kind is SeriesKind.PICTURES
    assert layout.kind_reason == "several pictures lie at the same place: 5 pictures at 4 places"


def test_c06_a_scout_is_a_picture_of_its_own_beside_its_volume() -> None:
    scout = make_dicom(np.zeros((8, 4), np.int16), ImageOrientationPatient=SAGITTAL)
    volume, picture = arrange_files([*make_stack(along_z(0, 2, 4)), scout])
    assert (volume.kind, len(volume.frames)) == (SeriesKind.VOLUME, 3)
    assert (picture.kind, picture.kind_reason) == (SeriesKind.PICTURE, None)


@pytest.mark.parametrize(("attributes", "reason"), [
    ({"ImageOrientationPatient": [1, 0, 0, 0, 0.98, -0.198997]}, "turned against each other, by up to 11.5 degrees"),
    ({"PixelSpacing": [0.9, 0.9]}, "differ in pixel spacing"),
    ({"FrameOfReferenceUID": "1.2.9"}, "different frames of reference"),
    ({"ImagePositionPatient": [0, 0, 9.2]}, "distance between slices varies from 1.80 to 5.60 mm"),
    ({"ImagePositionPatient": [0.3, 0, 5.4]}, "shifted against each other, by up to 0.20 mm"),
])  # fmt: skip
def test_one_slice_unlike_the_others_makes_pictures(attributes: dict[str, Any], reason: str) -> None:
    odd = make_dicom(**{"ImagePositionPatient": [0, 0, 5.4], **attributes})
    layout = only(arrange_files([*make_stack(along_z(0, 1.8, 3.6)[:2]), odd, *make_stack(along_z(3.6, 9.0)[:1])]))
    assert layout.kind is SeriesKind.PICTURES
    assert layout.kind_reason is not None
    assert reason in layout.kind_reason


def test_positions_rounded_by_the_writer_are_still_a_volume() -> None:
    exact = [0.625 * k for k in range(100)]
    rounded = [round(z, 2) for z in exact]
    layout = only(arrange_files(make_stack(along_z(*rounded))))
    assert layout.kind is SeriesKind.VOLUME
    assert only(arrange_files(make_stack(along_z(*[round(z, 1) for z in exact])))).kind is SeriesKind.PICTURES


def test_frames_of_other_size_or_pixels_are_scrolled_apart() -> None:
    layouts = arrange_files([
        *make_stack(along_z(0, 1)), make_dicom(np.zeros((4, 6), np.int16)), make_dicom(np.zeros((4, 4), np.uint8)),
        make_dicom(PhotometricInterpretation="MONOCHROME1"), make_dicom(np.zeros((4, 4, 3), np.uint8)),
    ])  # fmt: skip
    assert [layout.part for layout in layouts] == [
        "4x4x1-int16-monochrome1-axial", "4x4x1-int16-monochrome2-axial", "4x4x1-uint8-monochrome2-axial",
        "4x4x3-uint8-rgb-axial", "4x6x1-int16-monochrome2-axial",
    ]  # fmt: skip


def test_no_pixel_spacing_gives_no_millimetres_and_keeps_the_order() -> None:
    layout = only(arrange_files(make_stack(along_z(4, 2, 0), PixelSpacing="")))
    assert order(layout) == [("2", 0), ("1", 0), ("0", 0)]
    assert (layout.kind, layout.geometry) == (SeriesKind.PICTURES, None)
    assert layout.kind_reason == "the pixel spacing is missing"
    assert [(f.plane, f.spacing_row_column_mm) for f in layout.frames] == [(None, None)] * 3
    assert layout.spacing_source is SpacingSource.UNKNOWN


def test_an_orientation_that_is_none_places_nothing() -> None:
    layout = only(arrange_files([make_dicom(ImageOrientationPatient=[0, 0, 0, 0, 0, 0])]))
    assert layout.frames[0].plane is None


# ---- several frames in one object


def test_c08_enhanced_frames_are_sorted_by_position_with_shared_measures() -> None:
    heights = [7, 2, 11, 0, 5, 9, 1, 10, 3, 8, 6, 4]
    frames = np.stack([np.full((4, 4), z, np.int16) for z in heights])
    layout = only(arrange_files([make_enhanced(frames, along_z(*heights))]))
    assert [heights[frame.frame_number] for frame in layout.frames] == list(range(12))
    assert layout.kind is SeriesKind.VOLUME
    assert layout.geometry is not None
    assert layout.geometry.spacing_kji_mm == (1.0, 0.5, 0.25)
    assert (layout.unit, layout.frames[0].values.intercept) == ("HU", -1024)


def test_a_loop_has_times_and_no_geometry() -> None:
    frames = np.zeros((3, 4, 4), np.uint8)
    layout = only(arrange_files([make_dicom(frames, NumberOfFrames=3, FrameTime=40, Modality="US")]))
    assert (layout.kind, layout.geometry) == (SeriesKind.MULTIFRAME, None)
    assert [frame.time_ms for frame in layout.frames] == [0, 40, 80]
    assert [frame.plane for frame in layout.frames] == [None] * 3


def test_two_loops_of_one_series_are_two() -> None:
    frames = np.zeros((3, 4, 4), np.uint8)
    loops = arrange_files([make_dicom(frames, NumberOfFrames=3, InstanceNumber=n) for n in (1, 2)])
    assert [order(loop)[0] for loop in loops] == [("0", 0), ("1", 0)]


def test_frame_times_of_a_vector_add_up() -> None:
    frames = np.zeros((3, 4, 4), np.uint8)
    layout = only(arrange_files([make_dicom(frames, NumberOfFrames=3, FrameTimeVector=[0, 30, 50])]))
    assert [frame.time_ms for frame in layout.frames] == [0, 30, 80]


# ---- values


def test_c11_rescale_is_kept_for_each_instance() -> None:
    files = [
        make_dicom(np.full((2, 2), 1000, np.int16), ImagePositionPatient=[0, 0, z], RescaleSlope=slope,
                   RescaleIntercept=0, Modality="PT", Units="BQML")
        for z, slope in enumerate((0.5, 1.0, 2.0))
    ]  # fmt: skip
    layout = only(arrange_files(files))
    assert [frame.values.slope for frame in layout.frames] == [0.5, 1.0, 2.0]
    assert layout.unit == "Bq/mL"


@pytest.mark.parametrize("slope", ["0", "", "nonsense"])
def test_c22_a_slope_that_would_erase_the_picture_is_none(slope: str) -> None:
    file = make_dicom(RescaleSlope="9", RescaleIntercept="0")
    at = file.index(b"\x28\x00\x53\x10DS")
    text = slope.encode() + b" " * (len(slope) % 2)
    file = file[: at + 6] + len(text).to_bytes(2, "little") + text + file[at + 10 :]
    assert only(arrange_files([file])).frames[0].values.slope == 1.0


def test_c15_windows_come_in_pairs_and_the_first_is_first() -> None:
    values = only(arrange_files([
        make_dicom(WindowCenter=[40, -600], WindowWidth=[400, 1500], WindowCenterWidthExplanation=["SOFT", "LUNG"])
    ])).frames[0].values  # fmt: skip
    assert values.windows == (Window(40, 400, label="SOFT"), Window(-600, 1500, label="LUNG"))


@pytest.mark.parametrize(("center", "width", "expected"), [
    ([40, 50], [400], (Window(40, 400),)),
    ([40], [0], ()),
    ([40], [-5], ()),
    ([40, 50], [0, 300], (Window(50, 300),)),
    ([], [400], ()),
])  # fmt: skip
def test_c15_a_window_that_is_no_pair_is_dropped(
    center: list[int], width: list[int], expected: tuple[Window, ...]
) -> None:
    assert (
        only(arrange_files([make_dicom(WindowCenter=center, WindowWidth=width)])).frames[0].values.windows == expected
    )


def test_a_window_keeps_its_function() -> None:
    file = make_dicom(WindowCenter=2653, WindowWidth=900, VOILUTFunction="SIGMOID")
    assert only(arrange_files([file])).frames[0].values.windows == (Window(2653, 900, VoiLutFunction.SIGMOID),)


def test_c17_padding_is_a_range_of_stored_values() -> None:
    one = make_dicom(PixelPaddingValue=-2000)
    pair = make_dicom(PixelPaddingValue=-2000, PixelPaddingRangeLimit=-2047)
    paddings = [only(arrange_files([file])).frames[0].values.padding for file in (one, pair, make_dicom())]
    assert paddings == [(-2000, -2000), (-2047, -2000), None]


@pytest.mark.parametrize(("attributes", "unit"), [
    ({"RescaleIntercept": -1024, "RescaleSlope": 1}, "HU"),
    ({"RescaleIntercept": -1024, "RescaleSlope": 1, "RescaleType": "HU"}, "HU"),
    ({"RescaleIntercept": 0, "RescaleSlope": 1, "RescaleType": "US"}, None),
    ({}, None),
    ({"Modality": "MR", "RescaleIntercept": 0, "RescaleSlope": 2}, None),
])  # fmt: skip
def test_a_unit_is_named_by_the_file_or_not_at_all(attributes: dict[str, Any], unit: str | None) -> None:
    assert only(arrange_files([make_dicom(**attributes)])).unit == unit


@pytest.mark.parametrize(("attributes", "source", "spacing"), [
    ({"Modality": "DX", "PixelSpacing": None, "ImagerPixelSpacing": [0.2, 0.2]}, SpacingSource.IMAGER, (0.2, 0.2)),
    ({"Modality": "DX", "PixelSpacing": [0.2, 0.2], "ImagerPixelSpacing": [0.2, 0.2]},
     SpacingSource.IMAGER, (0.2, 0.2)),
    ({"Modality": "CR", "PixelSpacing": [0.2, 0.2]}, SpacingSource.IMAGER, (0.2, 0.2)),
    ({"Modality": "DX", "PixelSpacing": [0.15, 0.15], "ImagerPixelSpacing": [0.2, 0.2]},
     SpacingSource.PATIENT, (0.15, 0.15)),
    ({"Modality": "CR", "PixelSpacing": [0.2, 0.2], "PixelSpacingCalibrationType": "FIDUCIAL"},
     SpacingSource.PATIENT, (0.2, 0.2)),
    ({"Modality": "CT"}, SpacingSource.PATIENT, (1.0, 1.0)),
    ({"Modality": "OT", "PixelSpacing": None}, SpacingSource.UNKNOWN, None),
    ({"Modality": "OT", "PixelSpacing": [0, 0]}, SpacingSource.UNKNOWN, None),
])  # fmt: skip
def test_a_distance_says_where_it_was_measured(
    attributes: dict[str, Any], source: SpacingSource, spacing: tuple[float, float] | None
) -> None:
    layout = only(arrange_files([make_dicom(**attributes)]))
    assert (layout.spacing_source, layout.frames[0].spacing_row_column_mm) == (source, spacing)


# ---- the collection


def test_the_series_of_the_collection_lie_where_dcmtk_and_itk_say(shared_data: Path) -> None:
    compared = 0
    for entry in json.loads((shared_data / "MANIFEST.json").read_text())["series"]:
        truth = entry["geometry"]
        instances = []
        for name in entry["files"]:
            path = shared_data / name
            with path.open("rb") as file:
                try:
                    header = read_header(file, sha256="0" * 64, size=path.stat().st_size)
                except FileRefused:
                    continue
            instances.append(StoredInstance(Path(name).name, header.facts))
        if len(instances) != truth["instances"] or len(instances) == 1:
            continue
        layouts = arrange(instances)
        assert (len(layouts) == 1 and layouts[0].kind is SeriesKind.VOLUME) == truth["regular_volume"] or (
            not truth["single_orientation"]
        ), entry["series"]
        if not truth["regular_volume"]:
            continue
        layout, geometry = layouts[0], layouts[0].geometry
        assert geometry is not None
        assert geometry.shape_kji == (truth["instances"], truth["rows"], truth["cols"])
        assert layout.frames[0].instance_id == truth["first_file"], entry["series"]
        assert layout.frames[-1].instance_id == truth["last_file"], entry["series"]
        k_mm, j_mm, i_mm = geometry.spacing_kji_mm
        assert [j_mm, i_mm] == pytest.approx(truth["pixel_spacing"], abs=1e-6)
        assert k_mm == pytest.approx(truth["gap_min"], abs=0.01)
        ends = to_patient_mm(geometry, np.array([[0.0, 0, 0], [truth["instances"] - 1.0, 0, 0]]))
        assert ends[0] == pytest.approx(truth["first_ipp"], abs=1e-6)
        assert ends[1] == pytest.approx(truth["last_ipp"], abs=1e-6)
        compared += 1
    assert compared >= 20


def test_a_microscope_s_grid_of_a_quarter_micrometre_is_a_volume() -> None:
    files = [
        make_dicom(
            np.full((4, 4), k, np.int16), ImagePositionPatient=[0, 0, 0.012 * k], PixelSpacing=[0.00025, 0.00025]
        )
        for k in range(3)
    ]
    layout = only(arrange_files(files))
    # 12 um between slices is little more than what rounding may do (0.01 mm), and still three places.
    assert (layout.kind, layout.kind_reason) == (SeriesKind.VOLUME, None)
    assert layout.geometry is not None
    assert np.allclose(layout.geometry.spacing_kji_mm, (0.012, 0.00025, 0.00025))


@pytest.mark.parametrize(
    "columns",
    [
        [[1, 0, 0], [0, 1, 0], [1, 1, 0]],  # in one plane
        [[1, 0, 0], [0, 1, 0], [1, 1, 1e-9]],  # as good as
        [[1e-3, 0, 0], [0, 1e-3, 0], [1e-3, 1e-3, 0]],  # also where they are short
        [[1, 0, 0], [0, 1, 0], [0, 0, 0]],
        [[1, 0, 0], [0, 1, 0], [0, 0, np.nan]],
    ],
)
def test_axes_that_span_no_space_are_no_grid(columns: list[list[float]]) -> None:
    affine = np.eye(4)
    affine[:3, :3] = np.array(columns).T
    with pytest.raises(ShapeError, match="invertible"):
        VolumeGeometry((2, 2, 2), affine)


def test_a_grid_that_is_not_to_be_made_leaves_pictures_in_their_order() -> None:
    facts = [header_of(file).facts for file in make_stack(along_z(6, 0, 3))]
    (layout,) = arrange([StoredInstance(str(n), each) for n, each in enumerate(facts)], without_grid="for a reason")
    assert (layout.kind, layout.kind_reason, layout.geometry) == (SeriesKind.PICTURES, "for a reason", None)
    assert order(layout) == [("1", 0), ("2", 0), ("0", 0)]
