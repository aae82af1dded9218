"""How the pixels of a DICOM image are written, and how Serpens serves them. Source: DICOM PS3.3 C.7.6.3."""

from typing import Any, BinaryIO

from pydicom.pixels import get_decoder
from pydicom.uid import UID

from backend.domain.errors import FileTooLarge, NoPixels, TruncatedPixels, UnreadableFile, UnsupportedFile
from backend.domain.study import Photometric
from backend.imaging import tags
from backend.imaging.elements import Elements
from backend.imaging.fragments import frame_fragments
from backend.imaging.limits import Limits

IMPLICIT_LITTLE_UID = "1.2.840.10008.1.2"
EXPLICIT_LITTLE_UID = "1.2.840.10008.1.2.1"
DEFLATED_UID = "1.2.840.10008.1.2.1.99"
EXPLICIT_BIG_UID = "1.2.840.10008.1.2.2"
NATIVE_UIDS = frozenset({IMPLICIT_LITTLE_UID, EXPLICIT_LITTLE_UID, DEFLATED_UID, EXPLICIT_BIG_UID})
RLE_UID = "1.2.840.10008.1.2.5"
_JPEG = "1.2.840.10008.1.2.4."
JPEG_EXTENDED_UID = _JPEG + "51"
COMPRESSED_UIDS = frozenset(
    {_JPEG + n for n in ("50", "51", "57", "70", "80", "81", "90", "91", "201", "202", "203")} | {RLE_UID}
)
_FLOAT_TAG, _DOUBLE_TAG = 0x7FE00008, 0x7FE00009
_COLOURS = frozenset({"RGB", "YBR_FULL", "YBR_FULL_422", "YBR_ICT", "YBR_RCT"})


def describe_pixels(
    elements: Elements, file: BinaryIO, size: int, syntax: str, *, has_modality_lut: bool, limits: Limits
) -> dict[str, Any]:
    """The facts of a header about its pixels.

    Args:
        file: The data set: the file itself, or what a deflated one inflates to.
        size: Of `file` in bytes.

    Returns:
        rows, columns, samples, dtype, photometric: A served frame, as in `PixelFormat`.
        frames: Number of Frames.
        pixel: What decoding needs: the stored form, and `offset` (native) or `fragments` (compressed, per frame).

    Raises:
        NoPixels, UnsupportedFile, UnreadableFile, FileTooLarge, TruncatedPixels: Before anything is allocated.
    """
    place = elements.pixels
    if place is None:
        raise NoPixels("this DICOM object holds no image")
    rows, columns = elements.unsigned(tags.ROWS) or 0, elements.unsigned(tags.COLUMNS) or 0
    if not (rows and columns):
        raise UnreadableFile(f"an image needs Rows and Columns above 0, {rows} and {columns} came")
    frames = _frames(elements)
    stored = _stored_form(elements, place.tag, syntax)
    dtype, photometric, samples = _served_form(elements, stored, has_modality_lut)
    served_bytes = rows * columns * samples * _ITEM_BYTES[dtype]
    if served_bytes > limits.max_frame_bytes or served_bytes * frames > limits.max_unpacked_bytes:
        raise FileTooLarge(
            f"{rows} x {columns} x {samples} x {frames} frames are {served_bytes * frames} bytes, at most "
            f"{limits.max_frame_bytes} a frame and {limits.max_unpacked_bytes} a file are taken"
        )
    if syntax in NATIVE_UIDS:
        needed = native_bytes(rows, columns, frames, stored)
        present = size - place.offset if place.length is None else min(place.length, size - place.offset)
        if place.length is None:
            raise UnreadableFile("uncompressed pixel data need a length, none came")
        if present < needed:
            raise TruncatedPixels(
                f"{rows} x {columns} x {frames} frames of {stored['allocated']} bits need {needed} bytes of pixel "
                f"data, {present} came"
            )
        stored |= {"offset": place.offset, "words": place.vr == b"OW" or place.vr == b""}
    else:
        if place.length is not None:
            raise UnreadableFile("compressed pixel data come in fragments, one plain value came")
        stored |= {"fragments": frame_fragments(file, place.offset, size, frames)}
    return {
        "rows": rows,
        "columns": columns,
        "samples": samples,
        "dtype": dtype,
        "photometric": str(photometric),
        "frames": frames,
        "pixel": stored,
    }


_ITEM_BYTES = {"uint8": 1, "int8": 1, "uint16": 2, "int16": 2, "uint32": 4, "int32": 4, "float32": 4, "float64": 8}


def _frames(elements: Elements) -> int:
    texts = elements.texts(tags.NUMBER_OF_FRAMES)
    if not texts:
        return 1
    number = elements.numbers(tags.NUMBER_OF_FRAMES)[0]
    if not (number >= 1 and number == int(number)):
        raise UnreadableFile("Number of Frames is a whole number from 1, another value came")
    return int(number)


def _stored_form(elements: Elements, pixel_tag: int, syntax: str) -> dict[str, Any]:
    """How the values are written, checked against what we decode."""
    if syntax not in NATIVE_UIDS and (syntax not in COMPRESSED_UIDS or not get_decoder(UID(syntax)).is_available):
        raise UnsupportedFile(f"pixels in transfer syntax {syntax[:64]} ({_syntax_name(syntax)}) are not decoded here")
    photometric = elements.text(tags.PHOTOMETRIC_INTERPRETATION)
    samples = elements.unsigned(tags.SAMPLES_PER_PIXEL) or 1
    allocated = elements.unsigned(tags.BITS_ALLOCATED) or 0
    is_float = pixel_tag in (_FLOAT_TAG, _DOUBLE_TAG)
    wanted_bits = {_FLOAT_TAG: (32,), _DOUBLE_TAG: (64,)}.get(pixel_tag, (1, 8, 16, 32))
    if allocated not in wanted_bits:
        raise UnsupportedFile(
            f"pixels of {' or '.join(map(str, wanted_bits))} allocated bits are read, {allocated} came"
        )
    bits = allocated if is_float else elements.unsigned(tags.BITS_STORED) or allocated
    if bits > allocated:
        raise UnreadableFile(f"Bits Stored is at most Bits Allocated, {bits} of {allocated} came")
    high_bit = elements.unsigned(tags.HIGH_BIT)
    high_bit = bits - 1 if high_bit is None or not bits - 1 <= high_bit < allocated else high_bit
    is_gray = photometric in ("MONOCHROME1", "MONOCHROME2", "PALETTE COLOR")
    if not (is_gray and samples == 1) and not (photometric in _COLOURS and samples == 3 and allocated >= 8):
        raise UnsupportedFile(
            f"grey, palette, RGB and YBR pixels are read, {photometric[:16] or 'no photometric interpretation'} with "
            f"{samples} samples of {allocated} bits came"
        )
    if photometric.startswith("YBR") and allocated != 8:
        raise UnsupportedFile(f"YBR pixels of 8 bits are read, {allocated} came")
    return {
        "syntax": syntax,
        "float": is_float,
        "allocated": allocated,
        "stored": bits,
        "high_bit": high_bit,
        "signed": not is_float and elements.unsigned(tags.PIXEL_REPRESENTATION) == 1,
        "samples": samples,
        "photometric": photometric,
        "planar": elements.unsigned(tags.PLANAR_CONFIGURATION) or 0,
    }


def _served_form(elements: Elements, stored: dict[str, Any], has_modality_lut: bool) -> tuple[str, Photometric, int]:
    """dtype, meaning and samples of a decoded frame: colour is served as RGB of 8 bits."""
    if stored["samples"] == 3 or stored["photometric"] == "PALETTE COLOR":
        return "uint8", Photometric.RGB, 3
    photometric = Photometric(stored["photometric"])
    if stored["float"]:
        return f"float{stored['allocated']}", photometric, 1
    if has_modality_lut:
        return "uint16", photometric, 1
    return f"{'' if stored['signed'] else 'u'}int{max(8, stored['allocated'])}", photometric, 1


def native_bytes(rows: int, columns: int, frames: int, stored: dict[str, Any]) -> int:
    """Bytes that uncompressed pixel data need. Frames of single bits follow each other without a gap: PS3.5 8.1.1."""
    if stored["photometric"] == "YBR_FULL_422":
        return rows * columns * 2 * frames  # two chrominance samples for each two pixels: PS3.3 C.7.6.3.1.2
    bits: int = rows * columns * stored["samples"] * stored["allocated"] * frames
    return (bits + 7) // 8


def _syntax_name(syntax: str) -> str:
    uid = UID(syntax)
    return uid.name if uid.is_valid and uid.name != uid else "unknown"
