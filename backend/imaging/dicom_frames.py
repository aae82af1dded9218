"""The stored values of a DICOM frame, decoded. Source: DICOM PS3.5 8 and annex A, PS3.3 C.7.6.3."""

import struct
from typing import Any, BinaryIO

import numpy as np
from pydicom.dataset import Dataset
from pydicom.encaps import encapsulate
from pydicom.pixels import apply_color_lut, convert_color_space, get_decoder
from pydicom.uid import UID

from backend.domain.errors import UndecodableFrame, UnreadableFile
from backend.imaging import tags
from backend.imaging.codestream import codestream_size
from backend.imaging.data_set import inflate, read_tables
from backend.imaging.elements import Elements, Encoding
from backend.imaging.jpeg12 import decode_jpeg12
from backend.imaging.limits import Limits
from backend.imaging.pixel_module import (
    DEFLATED_UID,
    EXPLICIT_BIG_UID,
    JPEG_EXTENDED_UID,
    NATIVE_UIDS,
    RLE_UID,
    native_bytes,
)

Array = np.ndarray[Any, np.dtype[Any]]


def raw_frame_location(facts: dict[str, Any], frame_number: int) -> tuple[int, int] | None:
    """Offset and size of a frame whose bytes in the file are already what is served, else None."""
    pixel = facts["pixel"]
    if pixel["syntax"] not in NATIVE_UIDS or pixel["syntax"] in (DEFLATED_UID, EXPLICIT_BIG_UID):
        return None
    is_whole = pixel["stored"] == pixel["allocated"] >= 8
    is_gray = pixel["photometric"].startswith("MONOCHROME") and not facts["modality_lut"]
    is_rgb = pixel["photometric"] == "RGB" and pixel["allocated"] == 8 and pixel["planar"] == 0
    if not (is_whole and (is_gray or is_rgb)):
        return None
    size = native_bytes(facts["rows"], facts["columns"], 1, pixel)
    return pixel["offset"] + frame_number * size, size


def decode_dicom_frame(file: BinaryIO, facts: dict[str, Any], frame_number: int, limits: Limits) -> Array:
    """One frame as it is served: (rows, columns) of `facts["dtype"]`, colour as (rows, columns, 3) RGB of 8 bits.

    Rescale is not applied. A Modality LUT Sequence is: what is served are then the values that the table gives, as a
    slope and an intercept cannot say them.

    Raises:
        UndecodableFrame: If the bytes do not decode, or decode to another size than the header says.
    """
    pixel = facts["pixel"]
    is_deflated = facts["deflated_at"] is not None
    data, size = inflate(file, facts["deflated_at"], limits) if is_deflated else (file, file.seek(0, 2))
    try:
        if pixel["syntax"] in NATIVE_UIDS:
            frame, photometric = _native(data, facts, frame_number), pixel["photometric"]
        else:
            frame, photometric = _compressed(data, facts, frame_number)
        frame = _to_served(data, size, facts, frame, photometric, limits)
    except (ValueError, IndexError, KeyError, struct.error, UnreadableFile) as error:
        raise UndecodableFrame(f"frame {frame_number} of {facts['frames']} does not decode") from error
    shape = (facts["rows"], facts["columns"], 3)[: 3 if facts["samples"] == 3 else 2]
    if frame.shape != shape:
        raise UndecodableFrame(f"frame {frame_number} decodes to {frame.shape}, its header says {shape}")
    return np.ascontiguousarray(frame, dtype=facts["dtype"])


def _native(data: BinaryIO, facts: dict[str, Any], frame_number: int) -> Array:
    """An uncompressed frame, samples last, junk bits cleared, YBR with all its samples."""
    pixel, rows, columns = facts["pixel"], facts["rows"], facts["columns"]
    if pixel["allocated"] == 1:
        return _bits(data, pixel["offset"], rows, columns, frame_number)
    size = native_bytes(rows, columns, 1, pixel)
    data.seek(pixel["offset"] + frame_number * size)
    raw = data.read(size)
    if len(raw) != size:
        raise UndecodableFrame(f"frame {frame_number} needs {size} bytes, {len(raw)} came")
    order = ">" if pixel["syntax"] == EXPLICIT_BIG_UID else "<"
    item = pixel["allocated"] // 8
    if order == ">" and item == 1 and pixel["words"]:
        raw = np.frombuffer(raw + b"\0" * (size % 2), dtype=">u2").astype("<u2").tobytes()[:size]
    flat = np.frombuffer(raw, dtype=f"{order}{'f' if pixel['float'] else 'u'}{item}")
    if pixel["photometric"] == "YBR_FULL_422":
        # Two luminances, then the chrominances that both share: PS3.3 C.7.6.3.1.2.
        pairs = flat.reshape(-1, 4)
        luma = pairs[:, :2].reshape(rows, columns)
        chroma = np.repeat(pairs[:, 2:], 2, axis=0).reshape(rows, columns, 2)
        return np.dstack([luma, chroma])
    if pixel["samples"] == 3:
        if pixel["planar"] == 1:
            return np.moveaxis(flat.reshape(3, rows, columns), 0, -1)
        return flat.reshape(rows, columns, 3)
    return _clear_unused_bits(flat.reshape(rows, columns), pixel)


def _bits(data: BinaryIO, offset: int, rows: int, columns: int, frame_number: int) -> Array:
    """A frame of single bits; the first pixel is the least bit, and frames need not begin at a byte: PS3.5 8.1.1."""
    first = rows * columns * frame_number
    data.seek(offset + first // 8)
    raw = np.frombuffer(data.read((first % 8 + rows * columns + 7) // 8), dtype=np.uint8)
    return np.unpackbits(raw, bitorder="little")[first % 8 :][: rows * columns].reshape(rows, columns)


def _clear_unused_bits(words: Array, pixel: dict[str, Any]) -> Array:
    """The value in bits `high_bit - stored + 1` to `high_bit`, its sign extended; bits around it mean nothing.

    Source: PS3.5 8.1.1.
    """
    if pixel["float"]:
        return words
    native = words.astype(words.dtype.newbyteorder("="), copy=False)
    if pixel["stored"] == pixel["allocated"]:
        whole: Array = native.view(f"i{native.itemsize}") if pixel["signed"] else native
        return whole
    if pixel["signed"]:
        # Shifting up puts the sign bit in place, shifting a signed number down again fills with it.
        up = pixel["allocated"] - 1 - pixel["high_bit"]
        signed: Array = (native << up).view(f"i{native.itemsize}") >> (pixel["allocated"] - pixel["stored"])
        return signed
    down = pixel["high_bit"] + 1 - pixel["stored"]
    unsigned: Array = (native >> down) & native.dtype.type((1 << pixel["stored"]) - 1)
    return unsigned


def _compressed(data: BinaryIO, facts: dict[str, Any], frame_number: int) -> tuple[Array, str]:
    """A compressed frame and the photometric interpretation that it has once decoded."""
    pixel, rows, columns = facts["pixel"], facts["rows"], facts["columns"]
    parts = []
    for offset, length in pixel["fragments"][frame_number]:
        data.seek(offset)
        parts.append(data.read(length))
    stream = b"".join(parts)
    # A decoder allocates what the codestream claims, so the claim is compared with the header first.
    claimed = codestream_size(stream)
    if claimed is not None and claimed != (rows, columns):
        raise UndecodableFrame(f"frame {frame_number} is {claimed} compressed, its header says {(rows, columns)}")
    if pixel["syntax"] == JPEG_EXTENDED_UID and pixel["samples"] == 1 and pixel["allocated"] == 16:
        words = decode_jpeg12(stream, pixel["syntax"], rows, columns, stored=pixel["stored"], signed=pixel["signed"])
        return words, pixel["photometric"]
    options: dict[str, Any] = {
        "rows": rows, "columns": columns, "number_of_frames": 1, "samples_per_pixel": pixel["samples"],
        "bits_allocated": pixel["allocated"], "bits_stored": pixel["stored"],
        "photometric_interpretation": pixel["photometric"], "pixel_representation": int(pixel["signed"]),
        "pixel_keyword": "PixelData",
    }  # fmt: skip
    if pixel["samples"] > 1:
        options["planar_configuration"] = pixel["planar"]
    try:
        frame, properties = get_decoder(UID(pixel["syntax"])).as_array(encapsulate([stream]), index=0, **options)
    except Exception as error:  # the plugins raise whatever their C libraries give them
        raise UndecodableFrame(f"frame {frame_number} of {facts['frames']} does not decode") from error
    if pixel["samples"] == 1 and pixel["syntax"] == RLE_UID and pixel["allocated"] > 1:
        frame = _clear_unused_bits(frame.view(f"u{frame.itemsize}"), pixel)
    return frame, str(properties["photometric_interpretation"])


def _to_served(
    data: BinaryIO, size: int, facts: dict[str, Any], frame: Array, photometric: str, limits: Limits
) -> Array:
    """Colour becomes RGB of 8 bits, tables are looked up."""
    pixel = facts["pixel"]
    if pixel["photometric"] == "PALETTE COLOR" or facts["modality_lut"]:
        encoding = Encoding(explicit=facts["explicit"], little=facts["little"])
        tables = read_tables(data, size, facts["start"], encoding, limits)
        if pixel["photometric"] == "PALETTE COLOR":
            return _look_up_palette(frame, tables)
        return _look_up_modality(frame, tables, facts)
    if facts["samples"] == 1:
        return frame
    if photometric in ("YBR_FULL", "YBR_FULL_422"):
        frame = convert_color_space(frame, "YBR_FULL", "RGB")
    rgb: Array = (frame >> max(0, pixel["stored"] - 8)).astype(np.uint8)
    return rgb


def _look_up_palette(frame: Array, tables: Elements) -> Array:
    """The colours of a palette frame. Source: PS3.3 C.7.9 and C.7.6.3.1.5."""
    colours = Dataset()
    colours.set_original_encoding(is_implicit_vr=False, is_little_endian=True)
    for index, name in enumerate(("Red", "Green", "Blue")):
        raw = tables.raw(tags.PALETTE_DESCRIPTORS[index])
        descriptor = list(struct.unpack(f"{'<' if tables.little else '>'}3H", raw[:6]))
        setattr(colours, f"{name}PaletteColorLookupTableDescriptor", descriptor)
        colours[f"{name}PaletteColorLookupTableDescriptor"].VR = "US"
        if plain := tables.raw(tags.PALETTE_DATA[index]):
            setattr(colours, f"{name}PaletteColorLookupTableData", _little_words(plain, tables))
        elif segmented := tables.raw(tags.SEGMENTED_PALETTE_DATA[index]):
            setattr(colours, f"Segmented{name}PaletteColorLookupTableData", _little_words(segmented, tables))
    looked_up: Array = apply_color_lut(frame, colours)
    # 16 bit entries are scaled to the whole range (PS3.3 C.7.6.3.1.5), so their upper byte is the 8 bit colour.
    rgb: Array = (looked_up >> (8 * (looked_up.itemsize - 1))).astype(np.uint8)[..., :3]
    return rgb


def _look_up_modality(frame: Array, tables: Elements, facts: dict[str, Any]) -> Array:
    """Values through the first table of the Modality LUT Sequence; beyond its ends the end entries hold.

    Source: PS3.3 C.11.1.1.
    """
    item = tables.first(tags.MODALITY_LUT_SEQUENCE)
    order = "<" if tables.little else ">"
    entries, _, bits = struct.unpack(f"{order}3H", item.raw(tags.LUT_DESCRIPTOR)[:6])
    first = struct.unpack(f"{order}{'h' if facts['pixel']['signed'] else 'H'}", item.raw(tags.LUT_DESCRIPTOR)[2:4])[0]
    entries = entries or 1 << 16
    raw = item.raw(tags.LUT_DATA)
    # Tables of 8 bits come packed, or one entry to a word.
    packed = bits <= 8 and len(raw) < 2 * entries
    table = np.frombuffer(raw, dtype=np.uint8 if packed else f"{order}u2")[:entries]
    if len(table) < entries:
        raise UndecodableFrame(f"a Modality LUT of {entries} entries needs as many, {len(table)} came")
    looked_up: Array = table[np.clip(frame.astype(np.int64) - first, 0, entries - 1)].astype(np.uint16)
    return looked_up


def _little_words(raw: bytes, tables: Elements) -> bytes:
    if tables.little:
        return raw
    return np.frombuffer(raw[: len(raw) // 2 * 2], dtype=">u2").astype("<u2").tobytes()
