"""Opening a DICOM file: preamble or none, the transfer syntax, deflated data sets. Source: DICOM PS3.10 7, PS3.5 A."""

import io
import zlib
from dataclasses import dataclass, field
from typing import BinaryIO

from backend.domain.errors import FileTooLarge, NoPixels, UnreadableFile, UnsupportedFile
from backend.imaging import tags
from backend.imaging.elements import (
    EXPLICIT_BIG,
    EXPLICIT_LITTLE,
    IMPLICIT_BIG,
    IMPLICIT_LITTLE,
    KNOWN_VRS,
    Elements,
    Encoding,
    Scanner,
)
from backend.imaging.limits import Limits
from backend.imaging.pixel_module import DEFLATED_UID, EXPLICIT_BIG_UID, EXPLICIT_LITTLE_UID, IMPLICIT_LITTLE_UID

OTHER_KIND = "DICOM, NIfTI, PNG, JPEG and TIFF files are read, another kind came"
_STORAGE = "1.2.840.10008.5.1.4.1.1."
_MASKS = "holds masks and no image of its own: masks come in by import, which is not there yet"
# What we meet and do not show, by what it is to a clinician. Source: DICOM PS3.4 B.5.
_NO_IMAGE = {
    "1.2.840.10008.1.3.10": "a DICOMDIR lists other files and holds no image",
    _STORAGE + "66.4": f"a DICOM segmentation {_MASKS}",
    _STORAGE + "66.5": f"a DICOM surface segmentation {_MASKS}",
    _STORAGE + "66.7": f"a DICOM label map {_MASKS}",
    _STORAGE + "481.3": f"an RT structure set {_MASKS}",
    _STORAGE + "481.5": "a radiotherapy plan holds no image",
    _STORAGE + "104.1": "an encapsulated PDF holds no image",
    _STORAGE + "104.2": "an encapsulated document holds no image",
    _STORAGE + "88.59": "a key object selection refers to images and holds none",
    _STORAGE + "66": "raw data hold no image",
    _STORAGE + "67": "a real world value mapping holds no image",
    _STORAGE + "91.1": "annotations of a slide hold no image",
}
_NO_IMAGE_FAMILIES = {
    _STORAGE + "88.": "a structured report holds no image",
    _STORAGE + "11.": "a presentation state refers to images and holds none",
    _STORAGE + "9.": "a waveform holds no image",
}


@dataclass(frozen=True, slots=True)
class DataSet:
    """A data set whose wanted elements are read.

    Attributes:
        file: The file itself, or what a deflated one inflates to; `start` and all offsets count in it.
        deflated_at: Where a deflated data set begins in the file as it came; None for all others.
        syntax: Transfer Syntax UID, the default one where the file names none.
    """

    file: BinaryIO
    size: int
    start: int
    deflated_at: int | None
    encoding: Encoding
    syntax: str
    sop_class: str
    elements: Elements = field(repr=False)


def open_data_set(file: BinaryIO, size: int, limits: Limits) -> DataSet:
    """Read the wanted elements of a DICOM file up to its pixels.

    Raises:
        UnsupportedFile: If it is no DICOM file.
        NoPixels: If it is one of a class that holds no image.
        UnreadableFile: If its lengths contradict its size.
        FileTooLarge: If a deflated data set inflates past the limit.
    """
    scanner = Scanner(file, size, max_value_bytes=limits.max_value_bytes)
    has_preamble = scanner.peek(128, 4) == b"DICM"
    meta, start = scanner.meta(132 if has_preamble else 0, tags.META)
    syntax = meta.text(tags.TRANSFER_SYNTAX_UID)
    data, data_size, deflated_at = file, size, None
    if syntax == DEFLATED_UID:
        deflated_at = start
        data, data_size = inflate(file, start, limits)
        scanner, start = Scanner(data, data_size, max_value_bytes=limits.max_value_bytes), 0
    encoding = _encoding(scanner.peek(start, 8), syntax)
    elements = Elements()
    failure: UnreadableFile | None = None
    try:
        scanner.data_set(start, encoding, tags.HEADER, into=elements)
    except UnreadableFile as error:
        failure = error
    sop_class = elements.text(tags.SOP_CLASS_UID) or meta.text(tags.MEDIA_STORAGE_SOP_CLASS_UID)
    _refuse_no_image(sop_class)
    if not (has_preamble or meta.values or sop_class or (elements.raw(tags.ROWS) and elements.pixels)):
        raise UnsupportedFile(OTHER_KIND)
    if failure is not None:
        raise failure
    return DataSet(
        data, data_size, start, deflated_at, encoding, syntax or _default_syntax(encoding), sop_class, elements
    )


def read_tables(data: BinaryIO, size: int, start: int, encoding: Encoding, limits: Limits) -> Elements:
    """The lookup tables of a data set that was opened before; they are too big to keep among the facts."""
    tables = Elements()
    Scanner(data, size, max_value_bytes=limits.max_value_bytes).data_set(start, encoding, tags.TABLES, into=tables)
    return tables


def inflate(file: BinaryIO, position: int, limits: Limits) -> tuple[BinaryIO, int]:
    """What the deflated data set at `position` unpacks to, counted while it unpacks. Source: DICOM PS3.5 A.5."""
    file.seek(position)
    stream = zlib.decompressobj(wbits=-zlib.MAX_WBITS)
    unpacked = io.BytesIO()
    try:
        while not stream.eof and (chunk := stream.unconsumed_tail or file.read(1 << 20)):
            unpacked.write(stream.decompress(chunk, 1 << 22))
            if unpacked.tell() > limits.max_volume_bytes:
                raise FileTooLarge(f"a deflated file unpacks to more than {limits.max_volume_bytes} bytes")
        unpacked.write(stream.flush())
    except zlib.error as error:
        raise UnreadableFile("the deflated data set does not inflate") from error
    return unpacked, unpacked.tell()


def _encoding(head: bytes, syntax: str) -> Encoding:
    """How the data set is written: as its first element shows, where that contradicts the transfer syntax."""
    explicit = head[4:6] in KNOWN_VRS
    # The first element of a data set is of a low group, so the zero byte of its number tells the byte order.
    big = syntax == EXPLICIT_BIG_UID if syntax else head[:1] == b"\0" and head[1:2] != b"\0"
    if big:
        return EXPLICIT_BIG if explicit else IMPLICIT_BIG
    return EXPLICIT_LITTLE if explicit else IMPLICIT_LITTLE


def _default_syntax(encoding: Encoding) -> str:
    if not encoding.little:
        return EXPLICIT_BIG_UID
    return EXPLICIT_LITTLE_UID if encoding.explicit else IMPLICIT_LITTLE_UID


def _refuse_no_image(sop_class: str) -> None:
    reason = _NO_IMAGE.get(sop_class)
    for family, family_reason in _NO_IMAGE_FAMILIES.items():
        if reason is None and sop_class.startswith(family):
            reason = family_reason
    if reason is not None:
        raise NoPixels(reason)
