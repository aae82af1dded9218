"""Small files for the tests of ingest, made byte by byte from what the test is about."""

import io
import struct
import zipfile
import zlib
from collections.abc import Callable, Mapping
from typing import Any

from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.uid import CTImageStorage, ExplicitVRLittleEndian

CANARY = "ZZTEST^CANARY"


def dicom(
    uid: str = "1.2.3.1",
    *,
    series: str = "1.2.2",
    study: str = "1.2",
    z: float = 0.0,
    value: int = 7,
    rows: int = 4,
    columns: int = 6,
    **attributes: Any,
) -> bytes:
    """An axial CT slice of `rows` x `columns` 16 bit values that are all `value`."""
    meta = FileMetaDataset()
    meta.MediaStorageSOPClassUID, meta.MediaStorageSOPInstanceUID = CTImageStorage, uid
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    data_set = Dataset()
    data_set.file_meta = meta
    data_set.SOPClassUID, data_set.SOPInstanceUID = CTImageStorage, uid
    data_set.StudyInstanceUID, data_set.SeriesInstanceUID = study, series
    data_set.FrameOfReferenceUID = "1.2.9"
    data_set.Modality, data_set.StudyDescription, data_set.SeriesDescription = "CT", "Chest", "Axial"
    data_set.PatientName, data_set.PatientID, data_set.StudyDate = CANARY, "CANARY-123", "20260102"
    data_set.SeriesNumber = 3
    data_set.ImageOrientationPatient, data_set.ImagePositionPatient = [1, 0, 0, 0, 1, 0], [0, 0, z]
    data_set.PixelSpacing = [1, 1]
    data_set.Rows, data_set.Columns, data_set.SamplesPerPixel = rows, columns, 1
    data_set.PhotometricInterpretation = "MONOCHROME2"
    data_set.BitsAllocated, data_set.BitsStored, data_set.HighBit, data_set.PixelRepresentation = 16, 16, 15, 1
    data_set.RescaleSlope, data_set.RescaleIntercept, data_set.RescaleType = 1, -1024, "HU"
    data_set.PixelData = struct.pack("<h", value) * (rows * columns)
    for name, attribute in attributes.items():
        setattr(data_set, name, attribute)
    written = io.BytesIO()
    data_set.save_as(written, enforce_file_format=True)
    return written.getvalue()


def ct_series(slices: int, *, study: str = "1.2") -> dict[str, bytes]:
    """A uniform CT: slice k lies at 3 k mm and holds k everywhere."""
    return {
        f"ct/{k:04}.dcm": dicom(f"{study}.3.{k + 1}", study=study, series=f"{study}.2", z=3.0 * k, value=k)
        for k in range(slices)
    }


def structured_report() -> bytes:
    """A DICOM object without pixels."""
    return dicom_without_pixels("1.2.840.10008.5.1.4.1.1.88.11", "1.2.3.77")


def dicomdir() -> bytes:
    """A media directory."""
    return dicom_without_pixels("1.2.840.10008.1.3.10", "1.2.3.78")


def dicom_without_pixels(sop_class: str, uid: str) -> bytes:
    """A DICOM object of a class that has no image."""
    meta = FileMetaDataset()
    meta.MediaStorageSOPClassUID, meta.MediaStorageSOPInstanceUID = sop_class, uid
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    data_set = Dataset()
    data_set.file_meta = meta
    data_set.SOPClassUID, data_set.SOPInstanceUID = sop_class, uid
    data_set.StudyInstanceUID, data_set.SeriesInstanceUID = "1.2", "1.2.8"
    written = io.BytesIO()
    data_set.save_as(written, enforce_file_format=True)
    return written.getvalue()


def png() -> bytes:
    """A grey PNG of 2 x 2 pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 2, 2, 8, 0, 0, 0, 0))
    pixels = chunk(b"IDAT", zlib.compress(b"\x00\x10\x20\x00\x30\x40"))
    return b"\x89PNG\r\n\x1a\n" + header + pixels + chunk(b"IEND", b"")


def zipped(members: Mapping[str, bytes], change: Callable[[zipfile.ZipInfo], None] | None = None) -> bytes:
    """A zip of the members, each entry changed by `change` before it is written."""
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            info = zipfile.ZipInfo(name)
            info.filename = name  # ZipInfo would tidy some of the names that tests are about
            info.compress_type = zipfile.ZIP_DEFLATED
            if change is not None:
                change(info)
            archive.writestr(info, data)
    return written.getvalue()
