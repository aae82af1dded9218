"""NIfTI: scaling, place, the radiological picture, four dimensions, and what is refused."""

import gzip
import io
import itertools
import json
from pathlib import Path

import nibabel
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.domain.errors import FileTooLarge, TruncatedPixels, UndecodableFrame, UnreadableFile, UnsupportedFile
from backend.domain.study import SeriesKind, SpacingSource
from backend.domain.volume import to_patient_mm
from backend.imaging.arrange import SeriesLayout
from backend.imaging.frames import decode_frame, decode_volume, raw_location
from backend.imaging.limits import Limits
from tests.factories.images import arrange_files, header_of, make_dicom, make_nifti

RAMP = np.arange(24, dtype=np.int16).reshape(2, 3, 4)  # k, j, i


def layout_of(file: bytes, *, stated_modality: str = "") -> SeriesLayout:
    return arrange_files([file], stated_modality=stated_modality)[0]


def shown(file: bytes, index: int) -> np.ndarray:
    """The picture at a place of the stack, as it is laid on the screen."""
    layout, facts = layout_of(file), header_of(file).facts
    stored = decode_volume(io.BytesIO(file), facts)[layout.frames[index].frame_number]
    return layout.display.frame_to_picture(stored)


def letters(file: bytes) -> str:
    plane = layout_of(file).frames[0].plane
    assert plane is not None
    return plane.letters.left + plane.letters.right + plane.letters.top + plane.letters.bottom


# ---- values


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("kind", ["u1", "i1", "u2", "i2", "u4", "i4", "f4", "f8"])
def test_voxels_come_back_in_the_files_order(kind: str, order: str, compress: bool) -> None:
    voxels = RAMP.astype(kind)
    file = make_nifti(voxels, order=order, compress=compress)
    facts = header_of(file).facts
    decoded = decode_volume(io.BytesIO(file), facts)
    assert decoded.dtype == np.dtype(kind)
    assert decoded.tolist() == voxels.tolist()
    assert decode_frame(io.BytesIO(file), facts, 1).tolist() == voxels[1].tolist()
    place = raw_location(facts, 1)
    if compress or (order == ">" and voxels.itemsize > 1):
        assert place is None
    else:
        assert place is not None
        assert file[place[0] : place[0] + place[1]] == voxels[1].tobytes()


@pytest.mark.parametrize(("slope", "intercept"), [(0, 5), (float("nan"), 5), (float("inf"), 5), (0, float("nan"))])
def test_c24_a_slope_that_is_none_leaves_the_values_as_they_are(slope: float, intercept: float) -> None:
    values = layout_of(make_nifti(RAMP, slope=slope, intercept=intercept)).frames[0].values
    assert (values.slope, values.intercept) == (1.0, 0.0)


def test_c24_a_slope_with_an_intercept_that_is_none_keeps_the_slope() -> None:
    values = layout_of(make_nifti(RAMP, slope=2, intercept=float("nan"))).frames[0].values
    assert (values.slope, values.intercept) == (2.0, 0.0)


def test_whole_numbers_of_64_bits_are_served_as_exact_doubles_or_not_at_all() -> None:
    exact = make_nifti(np.full((1, 2, 2), 2**53, np.int64))
    assert decode_volume(io.BytesIO(exact), header_of(exact).facts).tolist() == [[[2.0**53] * 2] * 2]
    beyond = make_nifti(np.full((1, 2, 2), 2**53 + 1, np.int64))
    with pytest.raises(UndecodableFrame):
        decode_volume(io.BytesIO(beyond), header_of(beyond).facts)


def test_c27_rgb_voxels_are_colour() -> None:
    pixels = np.arange(24, dtype=np.uint8).reshape(2, 2, 2, 3)
    file = make_nifti(pixels, datatype=128, dim=[2, 2, 2])
    layout = layout_of(file)
    assert (layout.pixel.samples, layout.pixel.photometric) == (3, "RGB")
    assert decode_volume(io.BytesIO(file), header_of(file).facts).tolist() == pixels.tolist()


@pytest.mark.parametrize(
    ("least", "modality", "unit"), [(-1024, "CT", "HU"), (0, "CT", None), (-1024, "MR", None), (-1024, "", None)]
)
def test_a_stated_ct_is_in_hu_if_it_holds_air(least: int, modality: str, unit: str | None) -> None:
    voxels = np.full((2, 4, 4), 40, np.int16)
    voxels[1, 2, 3] = least
    assert layout_of(make_nifti(voxels, compress=True), stated_modality=modality).unit == unit


# ---- place


QUARTER_TURN = np.array([[0.0, -1, 0, 0], [1, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]])


def test_c25_the_sform_holds_where_its_code_is_above_zero() -> None:
    file = make_nifti(RAMP, sform=np.diag([2.0, 3, 4, 1]), sform_code=1, qform_code=0, quaternion=(9, 9, 9))
    assert layout_of(file).geometry is not None
    assert layout_of(file).geometry.spacing_kji_mm == (4, 3, 2)  # type: ignore[union-attr]


def test_c25_the_qform_holds_where_there_is_no_sform() -> None:
    file = make_nifti(RAMP, sform=np.zeros((4, 4)), sform_code=0, qform_code=1, pixdim=(2, 3, 4))
    geometry = layout_of(file).geometry
    assert geometry is not None
    assert geometry.spacing_kji_mm == (4, 3, 2)


def test_c25_the_sform_holds_where_both_contradict_each_other() -> None:
    half = float(np.sqrt(0.5))
    file = make_nifti(RAMP, sform=np.eye(4), sform_code=1, qform_code=1, quaternion=(0, 0, half))
    assert letters(file) == "RLAP"
    assert layout_of(file).display.transpose is False
    turned = make_nifti(RAMP, sform=QUARTER_TURN, sform_code=1, qform_code=1)
    assert layout_of(turned).display.transpose is True


def test_c25_without_either_only_the_distances_are_known() -> None:
    layout = layout_of(make_nifti(RAMP, sform_code=0, qform_code=0, pixdim=(2, 3, 4)))
    assert (layout.kind, layout.geometry) == (SeriesKind.PICTURES, None)
    assert layout.kind_reason == "the file does not say how the patient lies in it"
    assert layout.frames[0].plane is None
    assert layout.frames[0].spacing_row_column_mm == (3, 2)
    assert layout.spacing_source is SpacingSource.PATIENT


def test_ras_becomes_lps() -> None:
    file = make_nifti(RAMP, sform=np.array([[2.0, 0, 0, 10], [0, 3, 0, 20], [0, 0, 4, 30], [0, 0, 0, 1]]))
    geometry = layout_of(file).geometry
    assert geometry is not None
    # Voxel i=1, j=1, k=1 lies at RAS (12, 23, 34), which is LPS (-12, -23, 34).
    assert to_patient_mm(geometry, np.array([[1.0, 1, 1]])).tolist() == [[-12, -23, 34]]


def test_c26_a_sheared_grid_makes_pictures_and_a_rounded_one_a_volume() -> None:
    sheared, rounded = np.diag([1.0, 1, 2, 1]), np.diag([1.0, 1, 2, 1])
    sheared[0, 1], rounded[0, 1] = 0.05, 1e-4
    layout = layout_of(make_nifti(RAMP, sform=sheared))
    assert (layout.kind, layout.geometry) == (SeriesKind.PICTURES, None)
    assert layout.kind_reason == "the grid is sheared, by 2.9 degrees"
    assert layout.frames[0].plane is None
    assert layout_of(make_nifti(RAMP, sform=rounded)).kind is SeriesKind.VOLUME


# ---- the picture


def test_c28_the_patients_right_is_on_the_left_of_the_screen() -> None:
    voxels = np.zeros((3, 64, 64), np.uint8)
    voxels[:, :, 50:60] = 255  # with +x = right these columns are the patient's right
    file = make_nifti(voxels)
    assert letters(file) == "RLAP"
    assert np.flatnonzero(shown(file, 1)[30]).tolist() == list(range(4, 14))
    mirrored = make_nifti(voxels, sform=np.diag([-1.0, 1, 1, 1]))
    assert letters(mirrored) == "RLAP"
    assert np.flatnonzero(shown(mirrored, 1)[30]).tolist() == list(range(50, 60))


def test_c28_the_same_patient_by_dicom_and_by_nifti_is_the_same_picture() -> None:
    dicom = [
        make_dicom(np.arange(12, dtype=np.int16).reshape(3, 4) + 12 * k, ImagePositionPatient=[0, 0, 2 * k])
        for k in range(3)
    ]
    voxels = np.arange(36, dtype=np.int16).reshape(3, 3, 4)
    nifti = make_nifti(voxels, sform=np.diag([-1.0, -1, 2, 1]))
    by_dicom, by_nifti = arrange_files(dicom)[0], layout_of(nifti)
    for index in range(3):
        assert shown(nifti, index).tolist() == voxels[index].tolist()
        one, other = by_dicom.frames[index].plane, by_nifti.frames[index].plane
        assert one is not None
        assert other is not None
        assert one.origin_lps_mm.tolist() == other.origin_lps_mm.tolist()
        assert one.letters == other.letters


@pytest.mark.parametrize(("columns", "expected"), [
    ("xyz", "RLAP"), ("yzx", "APHF"), ("xzy", "RLHF"), ("zyx", "APHF"), ("yxz", "RLAP"), ("zxy", "RLHF"),
])  # fmt: skip
def test_slices_stored_along_any_axis_show_the_plane_that_they_are(columns: str, expected: str) -> None:
    affine = np.zeros((4, 4))
    affine[3, 3] = 1
    for index, axis in enumerate(columns):
        affine["xyz".index(axis), index] = 1
    assert letters(make_nifti(RAMP, sform=affine)) == expected


@settings(deadline=None, max_examples=60)
@given(
    axes=st.permutations([0, 1, 2]),
    signs=st.tuples(*[st.sampled_from([-1.0, 1.0])] * 3),
    lean=st.floats(-0.5, 0.5),
    origin=st.tuples(*[st.floats(-200, 200)] * 3),
)
def test_each_shown_pixel_lies_where_its_voxel_lies(
    axes: list[int], signs: tuple[float, ...], lean: float, origin: tuple[float, ...]
) -> None:
    turned = np.array([[1, 0, 0], [0, np.cos(lean), -np.sin(lean)], [0, np.sin(lean), np.cos(lean)]])
    affine = np.eye(4)
    for index in range(3):
        affine[:3, index] = turned[:, axes[index]] * signs[index] * (1.0, 1.5, 2.0)[index]
    affine[:3, 3] = origin
    file = make_nifti(RAMP, sform=affine)
    layout = layout_of(file)
    assert letters(file) in ("RLAP", "RLHF", "APHF")
    planes = [frame.plane for frame in layout.frames]
    for index, plane in enumerate(planes):
        picture = shown(file, index)
        assert plane is not None
        for (row, column), value in np.ndenumerate(picture):
            k, j, i = np.argwhere(value == RAMP)[0]
            ras = affine @ [i, j, k, 1]
            row_mm, column_mm = plane.spacing_row_column_mm
            lps = plane.origin_lps_mm + row * row_mm * plane.column_direction_lps
            lps = lps + column * column_mm * plane.row_direction_lps
            assert np.allclose(lps, [-ras[0], -ras[1], ras[2]], atol=1e-3)
    normal = np.cross(planes[0].row_direction_lps, planes[0].column_direction_lps)  # type: ignore[union-attr]
    assert float(normal @ (planes[1].origin_lps_mm - planes[0].origin_lps_mm)) > 0  # type: ignore[union-attr]


# ---- dimensions


def test_c27_several_volumes_are_pictures_one_after_the_other() -> None:
    voxels = np.arange(5 * 4 * 3 * 2, dtype=np.int16).reshape(5, 4, 3, 2)
    file = make_nifti(voxels)
    layout = layout_of(file)
    assert (layout.kind, layout.geometry, len(layout.frames)) == (SeriesKind.PICTURES, None, 20)
    assert layout.kind_reason == "5 volumes of 4 slices in one file, one after the other"
    stored = decode_volume(io.BytesIO(file), header_of(file).facts)
    assert stored[layout.frames[5].frame_number].tolist() == voxels[1, 1].tolist()


def test_c27_a_last_dimension_of_one_is_none() -> None:
    assert layout_of(make_nifti(RAMP[np.newaxis])).kind is SeriesKind.VOLUME


def test_a_single_slice_is_a_picture() -> None:
    layout = layout_of(make_nifti(RAMP[:1]))
    assert (layout.kind, layout.geometry, layout.frames[0].plane is not None) == (SeriesKind.PICTURE, None, True)


# ---- what is refused


def test_c63_a_forged_size_is_refused_without_unpacking() -> None:
    zeros = gzip.compress(make_nifti(np.zeros((1, 1, 1), np.int16), dim=[32767] * 3) + bytes(10_000_000), 9)
    with pytest.raises(FileTooLarge, match="32767"):
        header_of(zeros)


def test_c63_no_more_is_unpacked_than_the_header_declares() -> None:
    bomb = gzip.compress(make_nifti(RAMP) + bytes(50_000_000), 9)
    facts = header_of(bomb, limits=Limits(max_volume_bytes=1000)).facts
    assert decode_volume(io.BytesIO(bomb), facts).tolist() == RAMP.tolist()


@pytest.mark.parametrize("compress", [False, True])
def test_voxels_cut_short_are_refused_with_the_numbers(compress: bool) -> None:
    cut = make_nifti(RAMP)[:-7]
    with pytest.raises(TruncatedPixels, match="need 48 bytes, 41 came"):
        header_of(gzip.compress(cut) if compress else cut)


def test_a_broken_gzip_stream_is_refused() -> None:
    noise = np.random.default_rng(0).integers(0, 255, (20, 50, 50), dtype=np.uint8)
    packed = make_nifti(noise, compress=True)
    with pytest.raises(TruncatedPixels):
        header_of(packed[: len(packed) // 2])


def test_gzip_of_several_streams_is_read_to_its_end() -> None:
    whole = make_nifti(RAMP)
    assert header_of(gzip.compress(whole[:370]) + gzip.compress(whole[370:])).facts["rows"] == 3


def test_gzip_of_several_streams_longer_than_what_is_read_at_once_loses_no_byte() -> None:
    """Members as bgzip and pigz write them: the first ends in the middle of a piece of 256 KiB that was read."""
    noise = np.random.default_rng(0).integers(0, 255, (8, 600, 600), dtype=np.uint8)
    whole = make_nifti(noise)
    cuts = [0, 1 << 20, (1 << 20) + 60_000, len(whole)]
    packed = b"".join(gzip.compress(whole[a:b]) for a, b in itertools.pairwise(cuts))
    assert len(gzip.compress(whole[: cuts[1]])) % (1 << 18)
    assert decode_volume(io.BytesIO(packed), header_of(packed).facts).tolist() == noise.tolist()


def test_a_grid_in_micrometres_keeps_its_place() -> None:
    sform = np.diag([0.00025, 0.00025, 0.012, 1])
    layout = layout_of(make_nifti(RAMP, sform=sform))
    assert layout.geometry is not None
    assert np.allclose(layout.geometry.spacing_kji_mm, (0.012, 0.00025, 0.00025))


def test_complex_voxels_are_refused_by_kind() -> None:
    with pytest.raises(UnsupportedFile, match="data type 32"):
        header_of(make_nifti(np.zeros((2, 2, 2), np.float64), datatype=32))


@pytest.mark.parametrize("dim", [[4], [4, 0, 2], [4, -3, 2]])
def test_dimensions_that_are_none_are_refused(dim: list[int]) -> None:
    with pytest.raises(UnreadableFile):
        header_of(make_nifti(RAMP, dim=dim))


def test_a_pair_of_files_is_refused() -> None:
    file = bytearray(make_nifti(RAMP))
    file[344:348] = b"ni1\0"
    with pytest.raises(UnsupportedFile, match="second file"):
        header_of(bytes(file))


# ---- the collection


def test_voxels_and_places_are_those_of_nibabel_on_the_whole_collection(shared_data: Path) -> None:
    compared = 0
    for entry in json.loads((shared_data / "MANIFEST.json").read_text())["files"]:
        path = shared_data / entry["path"]
        if not path.name.endswith((".nii", ".nii.gz")) or path.name == "complex.nii.gz" or entry["expect"] != "ok":
            continue
        file = path.read_bytes()
        facts = header_of(file).facts
        truth = nibabel.load(path)
        stored = np.asarray(truth.dataobj.get_unscaled())
        ours = decode_volume(io.BytesIO(file), facts)
        if stored.dtype.fields:
            stored = np.stack([stored[name] for name in ("R", "G", "B")], axis=-1)
            assert np.array_equal(ours, stored.squeeze().transpose(2, 1, 0, 3)), entry["path"]
        else:
            assert np.array_equal(ours, stored.T.reshape(ours.shape), equal_nan=True), entry["path"]
        if facts["affine_kji_to_lps_mm"] is not None and int(truth.header["xyzt_units"]) & 7 in (0, 2):
            affine = np.diag([-1, -1, 1, 1]) @ truth.affine
            assert np.allclose(np.array(facts["affine_kji_to_lps_mm"])[:, [2, 1, 0, 3]], affine, atol=1e-5), entry[
                "path"
            ]
        compared += 1
    assert compared > 40
