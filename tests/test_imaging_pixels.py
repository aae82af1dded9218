"""Stored values of a frame: what is served, from where, and what is refused before it is allocated."""

import io
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pydicom
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydicom.pixels import apply_modality_lut
from pydicom.uid import (
    DeflatedExplicitVRLittleEndian,
    ExplicitVRBigEndian,
    ExplicitVRLittleEndian,
    ImplicitVRLittleEndian,
    JPEGBaseline8Bit,
    RLELossless,
)

from backend.domain.errors import (
    FileRefused,
    FileTooLarge,
    TruncatedPixels,
    UndecodableFrame,
    UnreadableFile,
    UnsupportedFile,
)
from backend.imaging.frames import decode_frame, raw_location
from backend.imaging.header import read_header
from backend.imaging.limits import Limits
from tests.factories.images import header_of, make_dataset, make_dicom, make_enhanced, make_picture, write_dicom

RAMP = np.arange(-8, 8, dtype=np.int16).reshape(4, 4)


def decode(file: bytes, frame_number: int = 0) -> np.ndarray:
    return decode_frame(io.BytesIO(file), header_of(file).facts, frame_number)


def raw(file: bytes, frame_number: int = 0) -> bytes | None:
    place = raw_location(header_of(file).facts, frame_number)
    return None if place is None else file[place[0] : place[0] + place[1]]


# ---- encodings


@pytest.mark.parametrize("syntax", [
    ImplicitVRLittleEndian, ExplicitVRLittleEndian, ExplicitVRBigEndian, DeflatedExplicitVRLittleEndian,
])  # fmt: skip
def test_stored_values_are_the_same_in_every_uncompressed_encoding(syntax: str) -> None:
    assert decode(make_dicom(RAMP, syntax=syntax)).tolist() == RAMP.tolist()


@pytest.mark.parametrize("syntax", [ImplicitVRLittleEndian, ExplicitVRLittleEndian])
def test_little_endian_values_of_whole_words_are_served_from_the_original(syntax: str) -> None:
    assert raw(make_dicom(RAMP, syntax=syntax)) == RAMP.tobytes()


@pytest.mark.parametrize("syntax", [ExplicitVRBigEndian, DeflatedExplicitVRLittleEndian])
def test_other_encodings_are_decoded_first(syntax: str) -> None:
    assert raw(make_dicom(RAMP, syntax=syntax)) is None


def test_each_frame_of_a_multi_frame_object_has_its_own_place() -> None:
    frames = np.arange(48, dtype=np.uint16).reshape(3, 4, 4)
    file = make_dicom(frames, NumberOfFrames=3)
    assert [raw(file, n) for n in range(3)] == [frame.tobytes() for frame in frames]
    assert decode(file, 2).tolist() == frames[2].tolist()


def test_c22_empty_values_read_as_absent() -> None:
    file = make_dicom(RAMP, NumberOfFrames="", WindowCenter="", RescaleSlope="", PixelSpacing="", HighBit=None)
    facts = header_of(file).facts
    assert facts["frames"] == 1
    assert facts["shared"]["spacing"] is None
    assert not {"windows", "slope"} & facts["shared"].keys()
    assert decode(file).tolist() == RAMP.tolist()


# ---- bits


def test_c13_unused_bits_are_cleared_and_the_sign_of_twelve_bits_extended() -> None:
    words = np.array([[0x0FFF, 0x0800], [0x07FF, 0xA7FF]], dtype=np.uint16)
    file = make_dicom(words.view(np.int16), BitsStored=12, HighBit=11)
    assert decode(file).tolist() == [[-1, -2048], [2047, 2047]]
    assert raw(file) is None


def test_unused_bits_of_unsigned_values_are_cleared() -> None:
    words = np.array([[0x0FFF, 0xF800], [0x1001, 0xA7FF]], dtype=np.uint16)
    assert decode(make_dicom(words, BitsStored=12, HighBit=11)).tolist() == [[0xFFF, 0x800], [0x001, 0x7FF]]


def test_values_in_the_upper_bits_are_moved_down() -> None:
    words = np.array([[0xFFF7, 0x8005], [0x7FF0, 0x0010]], dtype=np.uint16)
    assert decode(make_dicom(words, BitsStored=12, HighBit=15)).tolist() == [[0xFFF, 0x800], [0x7FF, 0x001]]
    signed = make_dicom(words.view(np.int16), BitsStored=12, HighBit=15)
    assert decode(signed).tolist() == [[-1, -2048], [2047, 1]]


@settings(deadline=None, max_examples=60)
@given(stored=st.integers(2, 16), signed=st.booleans(), seed=st.integers(0, 2**32 - 1))
def test_any_number_of_stored_bits_comes_back(stored: int, signed: bool, seed: int) -> None:
    random = np.random.default_rng(seed)
    low, high = (-(1 << (stored - 1)), 1 << (stored - 1)) if signed else (0, 1 << stored)
    values = random.integers(low, high, (4, 4))
    junk = random.integers(0, 1 << 16, (4, 4)) & ~((1 << stored) - 1) & 0xFFFF
    words = ((values & ((1 << stored) - 1)) | junk).astype(np.uint16)
    file = make_dicom(words.view(np.int16) if signed else words, BitsStored=stored, HighBit=stored - 1)
    assert decode(file).tolist() == values.tolist()


def test_single_bits_follow_each_other_across_frames() -> None:
    # Two frames of 9 x 1: nine bits each, the first pixel is the least bit of the first byte.
    bits = [1, 0, 0, 1, 1, 0, 0, 0, 1, 0, 1, 1, 1, 0, 0, 0, 1, 0]
    dataset = make_dataset(np.zeros((2, 9, 1), np.uint8), NumberOfFrames=2, BitsAllocated=1, BitsStored=1, HighBit=0)
    dataset.PixelData = np.packbits(bits, bitorder="little").tobytes() + b"\0"
    file = write_dicom(dataset)
    assert decode(file, 0).ravel().tolist() == bits[:9]
    assert decode(file, 1).ravel().tolist() == bits[9:]


# ---- colour

RED_BLUE = np.zeros((4, 4, 3), np.uint8)
RED_BLUE[:, :2, 0] = 255
RED_BLUE[:, 2:, 2] = 255


def test_c16_colour_by_plane_and_by_pixel_decode_alike() -> None:
    by_plane = make_dataset(RED_BLUE, PlanarConfiguration=1)
    by_plane.PixelData = np.moveaxis(RED_BLUE, -1, 0).tobytes()
    assert decode(write_dicom(by_plane)).tolist() == RED_BLUE.tolist()
    assert raw(write_dicom(by_plane)) is None
    assert decode(make_dicom(RED_BLUE)).tolist() == RED_BLUE.tolist()
    assert raw(make_dicom(RED_BLUE)) == RED_BLUE.tobytes()


def test_palette_colours_are_looked_up() -> None:
    indices = np.array([[0, 1], [2, 1]], np.uint8)
    file = make_dicom(
        indices, PhotometricInterpretation="PALETTE COLOR",
        RedPaletteColorLookupTableDescriptor=[3, 0, 16], GreenPaletteColorLookupTableDescriptor=[3, 0, 16],
        BluePaletteColorLookupTableDescriptor=[3, 0, 16],
        RedPaletteColorLookupTableData=np.array([0, 0xFFFF, 0x8000], "<u2").tobytes(),
        GreenPaletteColorLookupTableData=np.array([0, 0x1000, 0x8000], "<u2").tobytes(),
        BluePaletteColorLookupTableData=np.array([0x2000, 0, 0x8000], "<u2").tobytes(),
    )  # fmt: skip
    assert decode(file).tolist() == [[[0, 0, 32], [255, 16, 0]], [[128, 128, 128], [255, 16, 0]]]
    assert header_of(file).facts["photometric"] == "RGB"


def test_colour_of_sixteen_bits_is_served_in_eight() -> None:
    assert decode(make_dicom(np.full((2, 2, 3), 0x1234, np.uint16))).tolist() == [[[0x12] * 3] * 2] * 2


def test_a_modality_table_takes_the_place_of_the_stored_values() -> None:
    table = pydicom.Dataset()
    table.add_new("LUTDescriptor", "SS", [4, -1, 16])
    table.add_new("LUTData", "OW", np.array([10, 20, 30, 40], "<u2").tobytes())
    dataset = make_dataset(np.array([[-5, -1], [0, 9]], np.int16))
    dataset.ModalityLUTSequence = [table]
    file = write_dicom(dataset)
    assert decode(file).tolist() == [[10, 10], [20, 40]]
    assert (header_of(file).facts["dtype"], raw(file)) == ("uint16", None)


# ---- compressed


def jpeg(pixels: np.ndarray) -> bytes:
    return make_picture(pixels, "JPEG", quality=95)


def test_a_compressed_frame_is_made_of_all_its_fragments() -> None:
    gray = np.full((16, 16), 90, np.uint8)
    stream = jpeg(gray)
    whole = make_dicom(gray, syntax=JPEGBaseline8Bit, fragments=[stream])
    assert np.abs(decode(whole).astype(int) - 90).max() <= 2
    assert raw(whole) is None


def test_a_codestream_of_another_size_than_its_header_is_not_decoded() -> None:
    stream = jpeg(np.zeros((64, 64), np.uint8))
    file = make_dicom(np.zeros((16, 16), np.uint8), syntax=JPEGBaseline8Bit, fragments=[stream])
    with pytest.raises(UndecodableFrame, match=r"\(64, 64\)"):
        decode(file)


def test_a_codestream_of_noise_is_an_undecodable_frame() -> None:
    file = make_dicom(np.zeros((16, 16), np.uint8), syntax=RLELossless, fragments=[b"\x01noise" * 20])
    with pytest.raises(UndecodableFrame):
        decode(file)


def test_video_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedFile, match="MPEG"):
        header_of(make_dicom(syntax="1.2.840.10008.1.2.4.100", fragments=[b"0000"]))


# ---- refused before anything is allocated


def test_c20_a_slice_cut_short_is_refused_with_the_numbers() -> None:
    file = make_dicom(np.zeros((512, 512), np.int16))
    with pytest.raises(TruncatedPixels, match="524288 bytes of pixel data, 395146 came"):
        header_of(file[: len(file) - 524288 + 395146])


def test_a_compressed_frame_cut_short_is_refused() -> None:
    file = make_dicom(
        np.zeros((16, 16), np.uint8), syntax=JPEGBaseline8Bit, fragments=[jpeg(np.zeros((16, 16), np.uint8))]
    )
    with pytest.raises(TruncatedPixels, match="fragment"):
        header_of(file[:-40])


def test_fewer_compressed_frames_than_declared_are_refused() -> None:
    file = make_dicom(
        np.zeros((2, 16, 16), np.uint8), syntax=JPEGBaseline8Bit, NumberOfFrames=7, fragments=[b"ab", b"cd"]
    )
    with pytest.raises(TruncatedPixels, match="7 frames need 7"):
        header_of(file)


@pytest.mark.parametrize(("syntax", "fragments"), [(ExplicitVRLittleEndian, []), (JPEGBaseline8Bit, [b"\0" * 1024])])
def test_c63_a_forged_size_is_refused_before_it_is_allocated(syntax: str, fragments: list[bytes]) -> None:
    file = make_dicom(
        np.zeros((32, 32), np.uint8), syntax=syntax, fragments=fragments, Rows=65535, Columns=65535,
        NumberOfFrames=10_000,
    )  # fmt: skip
    with pytest.raises(FileTooLarge, match="65535 x 65535"):
        header_of(file)


def test_a_frame_over_the_limit_is_too_large() -> None:
    with pytest.raises(FileTooLarge):
        header_of(make_dicom(RAMP), limits=Limits(max_frame_bytes=31))
    assert header_of(make_dicom(RAMP), limits=Limits(max_frame_bytes=32)).facts["rows"] == 4


def test_a_deflated_file_is_unpacked_up_to_the_limit_only() -> None:
    file = make_dicom(np.zeros((1024, 1024), np.int16), syntax=DeflatedExplicitVRLittleEndian)
    with pytest.raises(FileTooLarge, match="more than 1000000"):
        header_of(file, limits=Limits(max_volume_bytes=1_000_000))


@pytest.mark.parametrize(("attributes", "error"), [
    ({"BitsStored": 17}, UnreadableFile),
    ({"Rows": 0}, UnreadableFile),
    ({"BitsAllocated": 12, "BitsStored": 12}, UnsupportedFile),
    ({"PhotometricInterpretation": None}, UnsupportedFile),
    ({"PhotometricInterpretation": "HSV"}, UnsupportedFile),
    ({"SamplesPerPixel": 4}, UnsupportedFile),
])  # fmt: skip
def test_pixels_that_are_not_understood_are_refused(attributes: dict[str, Any], error: type[FileRefused]) -> None:
    with pytest.raises(error):
        header_of(make_dicom(RAMP, **attributes))


def test_a_number_of_frames_that_is_no_number_is_refused() -> None:
    file = make_dicom(RAMP, NumberOfFrames="1")
    at = file.index(b"\x28\x00\x08\x00IS")
    with pytest.raises(UnreadableFile, match="Number of Frames"):
        header_of(file[: at + 8] + b"1A" + file[at + 10 :])


def test_enhanced_frames_are_served_from_the_original() -> None:
    frames = np.arange(48, dtype=np.int16).reshape(3, 4, 4)
    file = make_enhanced(frames, [(0, 0, z) for z in range(3)])
    assert raw(file, 1) == frames[1].tobytes()


# ---- the collection


def test_stored_values_are_those_of_dcmtk_on_the_whole_collection(shared_data: Path) -> None:
    """DCMTK decodes to stored values; where it does not (palette and YBR), ITK's RGB is compared."""
    compared = 0
    for entry in json.loads((shared_data / "MANIFEST.json").read_text())["files"]:
        facts = entry["facts"].get("pixels")
        path = shared_data / entry["path"]
        if (
            entry["expect"] != "ok"
            or not isinstance(facts, dict)
            or entry["facts"].get("pixel_evidence") == "decoders disagree"
        ):
            continue
        with path.open("rb") as file:
            try:
                ours = read_header(file, sha256=entry["sha256"], size=entry["size"]).facts
            except FileRefused:
                continue
            if ours["format"] != "dicom" or ours["modality_lut"]:
                continue
            dcmtk = facts.get("dcmtk") if isinstance(facts.get("dcmtk"), dict) else {}
            truth = facts if ours["photometric"] == "RGB" else dcmtk
            prefix = "" if ours["photometric"] == "RGB" else "stored_"
            deep = ours["pixel"]["samples"] == 3 and ours["pixel"]["allocated"] > 8
            if f"{prefix}sum" not in truth or deep or (ours["pixel"]["allocated"] == 16 and prefix == ""):
                continue
            frames = [decode_frame(file, ours, n) for n in range(ours["frames"])]
        total = float(sum(frame.sum(dtype=np.float64) for frame in frames))
        assert total == pytest.approx(truth[f"{prefix}sum"], rel=1e-9), entry["path"]
        for sample in truth[f"{prefix}samples"]:
            frame, row, column = sample["frame_row_col"]
            assert frames[frame][row, column].tolist() == sample["value"], (entry["path"], sample)
        compared += 1
    assert compared > 400


def test_modality_tables_are_looked_up_as_pydicom_does(shared_data: Path) -> None:
    for name in ("dicom/special/mlut_18.dcm", "dicom/projection/CR-ModalitySequenceLUT.dcm"):
        path = shared_data / name
        dataset = pydicom.dcmread(path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = apply_modality_lut(dataset.pixel_array, dataset)
        assert np.array_equal(decode(path.read_bytes()), expected), name
