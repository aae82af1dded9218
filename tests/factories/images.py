"""Image files made to order: DICOM, NIfTI, PNG. Defaults are valid, a test says only what it is about."""

import gzip
import hashlib
import io
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
from PIL import Image
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.encaps import encapsulate
from pydicom.sequence import Sequence as Items
from pydicom.uid import UID, ExplicitVRBigEndian, ExplicitVRLittleEndian, ImplicitVRLittleEndian

from backend.imaging.arrange import SeriesLayout, StoredInstance, arrange
from backend.imaging.header import InstanceHeader, read_header
from backend.imaging.limits import Limits

CT_STORAGE = "1.2.840.10008.5.1.4.1.1.2"
ENHANCED_CT_STORAGE = "1.2.840.10008.5.1.4.1.1.2.1"
AXIAL, SAGITTAL, CORONAL = [1, 0, 0, 0, 1, 0], [0, 1, 0, 0, 0, -1], [1, 0, 0, 0, 0, -1]
PREAMBLE = 128


def uid_of(*parts: object) -> str:
    """A UID that is the same for the same parts."""
    digits = int(hashlib.sha256("/".join(map(str, parts)).encode()).hexdigest()[:30], 16)
    return f"2.25.{digits}"


def make_dataset(pixels: np.ndarray | None = None, **attributes: Any) -> Dataset:
    """A valid CT slice of `pixels` (4 x 4 zeros unless given); a keyword of None takes an attribute away."""
    pixels = np.zeros((4, 4), np.int16) if pixels is None else pixels
    colour = pixels.ndim >= 3 and pixels.shape[-1] == 3
    rows, columns = pixels.shape[-3:-1] if colour else pixels.shape[-2:]
    defaults: dict[str, Any] = {
        "SOPClassUID": CT_STORAGE,
        "SOPInstanceUID": uid_of(pixels.tobytes(), sorted((k, str(v)) for k, v in attributes.items())),
        "StudyInstanceUID": "1.2.3", "SeriesInstanceUID": "1.2.3.4", "FrameOfReferenceUID": "1.2.3.5",
        "Modality": "CT", "PatientName": "Test^Patient", "PatientID": "T1", "StudyDate": "20260301",
        "InstanceNumber": 1, "SeriesNumber": 2, "SeriesDescription": "axial",
        "ImagePositionPatient": [0, 0, 0], "ImageOrientationPatient": AXIAL, "PixelSpacing": [1, 1],
        "Rows": rows, "Columns": columns, "SamplesPerPixel": 3 if colour else 1,
        "PhotometricInterpretation": "RGB" if colour else "MONOCHROME2",
        "BitsAllocated": 8 * pixels.itemsize, "BitsStored": 8 * pixels.itemsize, "HighBit": 8 * pixels.itemsize - 1,
        "PixelRepresentation": int(pixels.dtype.kind == "i"),
    }  # fmt: skip
    if colour:
        defaults["PlanarConfiguration"] = 0
    dataset = Dataset()
    for keyword, value in (defaults | attributes).items():
        if value is not None:
            setattr(dataset, keyword, value)
    raw = pixels.tobytes()
    dataset.PixelData = raw + b"\0" * (len(raw) % 2)
    dataset["PixelData"].VR = "OW" if pixels.itemsize > 1 else "OB"
    return dataset


def write_dicom(dataset: Dataset, *, syntax: str = ExplicitVRLittleEndian, preamble: bool = True) -> bytes:
    """A Part 10 file; without preamble the bare data set, as some scanners wrote."""
    buffer = io.BytesIO()
    if preamble:
        dataset.file_meta = FileMetaDataset()
        dataset.file_meta.TransferSyntaxUID = UID(syntax)
        dataset.save_as(buffer, enforce_file_format=True)
    else:
        dataset.save_as(
            buffer,
            implicit_vr=syntax == ImplicitVRLittleEndian,
            little_endian=syntax != ExplicitVRBigEndian,
            enforce_file_format=False,
        )
    return buffer.getvalue()


def make_dicom(
    pixels: np.ndarray | None = None,
    *,
    syntax: str = ExplicitVRLittleEndian,
    preamble: bool = True,
    fragments: Sequence[bytes] = (),
    **attributes: Any,
) -> bytes:
    """A DICOM file of `pixels`; compressed where its frames are given as `fragments`."""
    if syntax == ExplicitVRBigEndian and pixels is not None:
        attributes.setdefault("PixelRepresentation", int(pixels.dtype.kind == "i"))
        pixels = pixels.astype(pixels.dtype.newbyteorder(">"))
    dataset = make_dataset(pixels, **attributes)
    if fragments:
        dataset.PixelData = encapsulate(list(fragments))
        dataset["PixelData"].VR = "OB"
        dataset["PixelData"].is_undefined_length = True
    return write_dicom(dataset, syntax=syntax, preamble=preamble)


def make_stack(positions: Sequence[Sequence[float]], **attributes: Any) -> list[bytes]:
    """One slice per position, in that order; every stored value of a slice is its place in `positions`."""
    return [
        make_dicom(np.full((4, 4), number, np.int16), ImagePositionPatient=list(position), **attributes)
        for number, position in enumerate(positions)
    ]


def make_enhanced(
    frames: np.ndarray, positions: Sequence[Sequence[float]], *, iop: Sequence[float] = AXIAL, **attributes: Any
) -> bytes:
    """An enhanced CT: positions per frame; orientation, spacing and rescale shared; nothing at the top level."""

    def item(keyword: str, **values: Any) -> Dataset:
        inner, outer = Dataset(), Dataset()
        for name, value in values.items():
            setattr(inner, name, value)
        setattr(outer, keyword, Items([inner]))
        return outer

    shared = item("PlaneOrientationSequence", ImageOrientationPatient=list(iop))
    shared.update(item("PixelMeasuresSequence", PixelSpacing=[0.5, 0.25]))
    shared.update(item("PixelValueTransformationSequence", RescaleSlope=1, RescaleIntercept=-1024, RescaleType="HU"))
    per_frame = [item("PlanePositionSequence", ImagePositionPatient=list(position)) for position in positions]
    return make_dicom(
        frames,
        SOPClassUID=ENHANCED_CT_STORAGE,
        NumberOfFrames=len(frames),
        ImagePositionPatient=None,
        ImageOrientationPatient=None,
        PixelSpacing=None,
        SharedFunctionalGroupsSequence=Items([shared]),
        PerFrameFunctionalGroupsSequence=Items(per_frame),
        **attributes,
    )


def make_nifti(
    voxels_kji: np.ndarray,
    *,
    sform: np.ndarray | None = None,
    sform_code: int = 1,
    qform_code: int = 0,
    quaternion: tuple[float, float, float] = (0.0, 0.0, 0.0),
    pixdim: tuple[float, float, float] = (1.0, 1.0, 1.0),
    slope: float = 1.0,
    intercept: float = 0.0,
    datatype: int | None = None,
    dim: Sequence[int] | None = None,
    compress: bool = False,
    order: str = "<",
) -> bytes:
    """A NIfTI-1 file written field by field, so that no library mends what a test breaks.

    Args:
        voxels_kji: (k, j, i) or (t, k, j, i).
        sform: (4, 4), `[i, j, k, 1]` to RAS mm as the file holds it; the identity unless given.
    """
    codes = {"u1": 2, "i2": 4, "i4": 8, "f4": 16, "f8": 64, "i1": 256, "u2": 512, "u4": 768, "i8": 1024, "u8": 1280}
    shape = list(voxels_kji.shape[::-1]) if dim is None else list(dim)
    code = codes[f"{voxels_kji.dtype.kind}{voxels_kji.itemsize}"] if datatype is None else datatype
    header = bytearray(352)
    put = lambda place, form, *values: struct.pack_into(order + form, header, place, *values)  # noqa: E731
    put(0, "i", 348)
    put(40, "8h", len(shape), *(shape + [1] * (7 - len(shape))))
    put(70, "2h", code, 8 * voxels_kji.itemsize)
    put(76, "8f", 1.0, *pixdim, 1.0, 1.0, 1.0, 1.0)
    put(108, "3f", 352.0, slope, intercept)
    header[123] = 2  # mm
    put(252, "2h", qform_code, sform_code)
    put(256, "6f", *quaternion, 0.0, 0.0, 0.0)
    put(280, "12f", *np.asarray(np.eye(4) if sform is None else sform, dtype=np.float64)[:3].ravel())
    header[344:348] = b"n+1\0"
    whole = bytes(header) + voxels_kji.astype(voxels_kji.dtype.newbyteorder(order)).tobytes()
    return gzip.compress(whole, 1) if compress else whole


def make_picture(pixels: np.ndarray, kind: str = "PNG", **options: Any) -> bytes:
    """A PNG, JPEG or TIFF."""
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, kind, **options)
    return buffer.getvalue()


def header_of(file: bytes, *, stated_modality: str = "", limits: Limits | None = None) -> InstanceHeader:
    """`read_header` of bytes."""
    sha256 = hashlib.sha256(file).hexdigest()
    return read_header(io.BytesIO(file), sha256=sha256, size=len(file), stated_modality=stated_modality, limits=limits)


def arrange_files(files: Sequence[bytes], *, stated_modality: str = "") -> list[SeriesLayout]:
    """`arrange` of files of one series; the instance ids are "0", "1" and so on."""
    facts = [header_of(file, stated_modality=stated_modality).facts for file in files]
    return arrange([StoredInstance(str(number), each) for number, each in enumerate(facts)])
