"""The reader of DICOM headers against pydicom, which is slower and clear."""

import io
import json
import warnings
from pathlib import Path

import numpy as np
import pydicom
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydicom.dataset import Dataset
from pydicom.sequence import Sequence
from pydicom.uid import (
    DeflatedExplicitVRLittleEndian,
    ExplicitVRBigEndian,
    ExplicitVRLittleEndian,
    ImplicitVRLittleEndian,
)

from backend.domain.errors import FileRefused, NoPixels, UnreadableFile, UnsupportedFile
from backend.imaging import tags
from backend.imaging.data_set import open_data_set
from backend.imaging.header import read_header
from backend.imaging.limits import Limits
from backend.imaging.text import decode_text
from tests.factories.images import header_of, make_dataset, make_dicom, write_dicom

SYNTAXES = [ImplicitVRLittleEndian, ExplicitVRLittleEndian, ExplicitVRBigEndian, DeflatedExplicitVRLittleEndian]
# What both readers give as text or as numbers.
TEXTS = {
    tags.SOP_CLASS_UID: "SOPClassUID", tags.SOP_INSTANCE_UID: "SOPInstanceUID", tags.MODALITY: "Modality",
    tags.STUDY_INSTANCE_UID: "StudyInstanceUID", tags.SERIES_INSTANCE_UID: "SeriesInstanceUID",
    tags.PHOTOMETRIC_INTERPRETATION: "PhotometricInterpretation",
}  # fmt: skip
NUMBERS = {
    tags.IMAGE_POSITION_PATIENT: "ImagePositionPatient", tags.IMAGE_ORIENTATION_PATIENT: "ImageOrientationPatient",
    tags.PIXEL_SPACING: "PixelSpacing", tags.RESCALE_SLOPE: "RescaleSlope", tags.WINDOW_CENTER: "WindowCenter",
    tags.INSTANCE_NUMBER: "InstanceNumber",
}  # fmt: skip
UNSIGNED = {tags.ROWS: "Rows", tags.COLUMNS: "Columns", tags.BITS_STORED: "BitsStored"}


@pytest.mark.parametrize("syntax", SYNTAXES)
def test_a_header_reads_the_same_in_every_encoding(syntax: str) -> None:
    header = header_of(make_dicom(np.arange(16, dtype=np.int16).reshape(4, 4), syntax=syntax, InstanceNumber=7))
    assert header.series_key == "1.2.3.4"
    assert header.identity.patient_name == "Test^Patient"
    assert header.facts["instance_number"] == 7
    assert (header.facts["rows"], header.facts["columns"], header.facts["dtype"]) == (4, 4, "int16")
    assert header.facts["shared"] == {"ipp": [0, 0, 0], "iop": [1, 0, 0, 0, 1, 0], "spacing": [1, 1]}


@pytest.mark.parametrize("syntax", [ImplicitVRLittleEndian, ExplicitVRLittleEndian, ExplicitVRBigEndian])
def test_c19_a_file_without_preamble_opens(syntax: str) -> None:
    assert header_of(make_dicom(syntax=syntax, preamble=False)).facts["rows"] == 4


def test_c19_a_meta_group_without_transfer_syntax_is_read_as_its_first_element_is_written() -> None:
    file = make_dicom(syntax=ImplicitVRLittleEndian)
    at = file.index(b"1.2.840.10008.1.2\0")
    emptied = file[: at - 8] + b"\x02\x00\x99\x00UI\x12\x00" + file[at:]
    assert header_of(emptied).facts["pixel"]["syntax"] == ImplicitVRLittleEndian


def test_c19_a_text_file_is_refused_by_kind() -> None:
    with pytest.raises(UnsupportedFile, match="another kind came"):
        header_of(b"This is a reading list for the department.\n" * 20)


def test_elements_before_the_pixels_that_we_do_not_want_are_stepped_over() -> None:
    dataset = make_dataset()
    inner = Dataset()
    inner.add_new(0x00091001, "OB", b"\x01" * 70_000)
    inner.add_new(0x00080060, "CS", "MR")
    dataset.add_new(0x00090010, "LO", "SERPENS TEST")
    dataset.add_new(0x00091002, "SQ", Sequence([inner]))
    dataset.add_new(0x00091003, "OB", b"\x02" * 3_000_000)
    dataset["00091002"].is_undefined_length = True
    header = header_of(write_dicom(dataset))
    assert header.modality == "CT"
    assert header.facts["pixel"]["offset"] == len(write_dicom(dataset)) - 32


@pytest.mark.parametrize(("sop_class", "words"), [
    ("1.2.840.10008.1.3.10", "DICOMDIR"),
    ("1.2.840.10008.5.1.4.1.1.66.4", "masks come in by import"),
    ("1.2.840.10008.5.1.4.1.1.481.3", "masks come in by import"),
    ("1.2.840.10008.5.1.4.1.1.88.33", "report"),
    ("1.2.840.10008.5.1.4.1.1.11.1", "presentation state"),
    ("1.2.840.10008.5.1.4.1.1.104.1", "PDF"),
])  # fmt: skip
def test_c23_objects_without_an_image_say_what_they_are(sop_class: str, words: str) -> None:
    with pytest.raises(NoPixels, match=words):
        header_of(make_dicom(SOPClassUID=sop_class))


def test_an_image_header_without_pixels_is_no_image() -> None:
    dataset = make_dataset()
    del dataset.PixelData
    with pytest.raises(NoPixels):
        header_of(write_dicom(dataset))


def test_a_forged_length_is_refused_and_not_allocated() -> None:
    file = make_dicom()
    at = file.index(b"\x10\x00\x10\x00PN") + 4
    forged = file[:at] + b"UT\0\0" + (2**31).to_bytes(4, "little") + file[at + 4 :]
    with pytest.raises(UnreadableFile, match="says 2147483648 bytes"):
        header_of(forged)


def test_sequences_nested_without_end_are_refused() -> None:
    nested = b"\x09\x00\x02\x10SQ\0\0\xff\xff\xff\xff\xfe\xff\x00\xe0\xff\xff\xff\xff" * 400
    file = make_dicom()
    at = file.index(b"\x10\x00\x10\x00PN")
    with pytest.raises(UnreadableFile, match="deep"):
        header_of(file[:at] + nested + file[at:])


@pytest.mark.parametrize(("charset", "raw", "text"), [
    ([], b"Doe^Jane", "Doe^Jane"),
    (["ISO_IR 100"], b"M\xfcller^J\xfcrgen", "Müller^Jürgen"),
    (["ISO_IR 192"], "王^小东".encode(), "王^小东"),
    (["", "ISO 2022 IR 87"], b"Yamada^Tarou=\x1b$B;3ED\x1b(B^\x1b$BB@O:\x1b(B", "Yamada^Tarou=山田^太郎"),
    (["GB18030"], "王".encode("gb18030"), "王"),
    (["Not Supplied"], b"M\xfcller", "M\ufffdller"),
    ([], b"a\x00b\x07c", "a b c"),
])  # fmt: skip
def test_c21_character_sets_are_read_and_a_bad_one_costs_letters_only(
    charset: list[str], raw: bytes, text: str
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert decode_text(raw, charset, at_most=400, person_name=True) == text


def test_facts_hold_no_identifying_attribute() -> None:
    header = header_of(make_dicom(PatientName="ZZTEST^CANARY", PatientID="CANARY-123", AccessionNumber="CANARY-9",
                                  PatientBirthDate="19010203", StudyDate="19020304"))  # fmt: skip
    assert header.identity.patient_name == "ZZTEST^CANARY"
    written = json.dumps(header.facts, allow_nan=False)
    assert not any(canary in written for canary in ("CANARY", "19010203", "19020304"))


def test_a_uid_that_is_none_becomes_a_key_that_files_share() -> None:
    one, other = (header_of(make_dicom(StudyInstanceUID="not a uid", InstanceNumber=n)) for n in (1, 2))
    assert one.study_key == other.study_key
    assert one.study_key.startswith("sha256:")


def test_missing_uids_make_the_file_a_study_of_its_own() -> None:
    file = make_dicom(StudyInstanceUID=None, SeriesInstanceUID=None)
    header = header_of(file)
    assert header.study_key == header.series_key
    assert header.study_key.startswith("sha256:")


@settings(deadline=None)
@given(cut=st.integers(0, 700), put=st.binary(min_size=0, max_size=12), at=st.integers(0, 700))
def test_no_bytes_raise_anything_but_a_refusal(cut: int, put: bytes, at: int) -> None:
    whole = make_dicom(WindowCenter=[40, 50], WindowWidth=[400, 500])
    broken = whole[:at] + put + whole[at + len(put) :]
    broken = broken[: len(broken) - cut] if cut else broken
    try:
        header_of(broken)
    except FileRefused:
        return


@settings(deadline=None)
@given(st.binary(max_size=600))
def test_random_bytes_raise_nothing_but_a_refusal(noise: bytes) -> None:
    for start in (b"", bytes(128) + b"DICM", b"\x1f\x8b", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"II*\0"):
        with pytest.raises(FileRefused):
            header_of(start + noise)


def test_values_are_those_of_pydicom_on_the_whole_collection(shared_data: Path) -> None:
    compared = 0
    for entry in json.loads((shared_data / "MANIFEST.json").read_text())["files"]:
        path = shared_data / entry["path"]
        if entry["expect"] != "ok" or entry["facts"].get("header") is None:
            continue
        with path.open("rb") as file:
            try:
                elements = open_data_set(file, path.stat().st_size, Limits()).elements
            except NoPixels:
                continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            dataset = pydicom.dcmread(path, stop_before_pixels=True, force=True)
            for tag, keyword in TEXTS.items():
                assert elements.text(tag) == _first(dataset.get(keyword)), (entry["path"], keyword)
            for tag, keyword in NUMBERS.items():
                assert elements.numbers(tag) == _numbers(dataset.get(keyword)), (entry["path"], keyword)
            for tag, keyword in UNSIGNED.items():
                assert elements.unsigned(tag) == dataset.get(keyword), (entry["path"], keyword)
        compared += 1
    assert compared > 450


def test_every_file_of_the_collection_is_taken_or_refused_as_expected(shared_data: Path) -> None:
    for entry in json.loads((shared_data / "MANIFEST.json").read_text())["files"]:
        path = shared_data / entry["path"]
        if entry["group"] == "vqa" or path.suffix == ".nrrd":
            continue
        is_taken = True
        with path.open("rb") as file:
            try:
                header = read_header(file, sha256=entry["sha256"], size=entry["size"])
                json.dumps(header.facts, allow_nan=False)
            except FileRefused:
                is_taken = False
        modality = (entry["facts"].get("header") or {}).get("modality")
        if entry["expect"] == "ok" and modality != "SEG" and path.name != "complex.nii.gz":
            assert is_taken, entry["path"]
        if entry["expect"] in ("no_pixels", "dicomdir", "text") or modality == "SEG":
            assert not is_taken, entry["path"]


def _first(value: object) -> str:
    if value is None or value == "":
        return ""
    return str(value[0] if isinstance(value, pydicom.multival.MultiValue) else value).strip()


def _numbers(value: object) -> list[float]:
    if value is None or value == "":
        return []
    return [float(each) for each in (value if isinstance(value, pydicom.multival.MultiValue) else [value])]


def test_read_header_starts_at_the_files_beginning() -> None:
    file = io.BytesIO(make_dicom())
    file.seek(300)
    assert read_header(file, sha256="0" * 64, size=len(file.getvalue())).facts["rows"] == 4
