"""How pictures, prompts and masks travel between a process that asks for masks and the segmenter process.

A message is four bytes of magic, the length of a JSON header (uint32, little endian), the header, then raw arrays in C
order. The same value always encodes to the same bytes, so that a picture's name on the wire is the SHA-256 of its
message. Masks are one bit a pixel. Nothing here is ever unpickled.
"""

import hashlib
import json
import math
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

from backend.domain.errors import InvalidRequest, ShapeError
from backend.domain.segmenter import (
    BoxPrompt,
    CanonicalPicture,
    ConceptPrompt,
    PointsPrompt,
    Prompt,
    Segmentation,
    SegmenterBody,
)

PICTURE_MAGIC = b"SGP1"
MASK_MAGIC = b"SGM1"
MEDIA_TYPE = "application/x-serpens-segmenter"
_MAX_HEADER_BYTES = 16 * 1024
MAX_TEXT = 200


def _pack(magic: bytes, header: Mapping[str, Any], *arrays: bytes) -> bytes:
    text = json.dumps(header, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
    return b"".join((magic, struct.pack("<I", len(text)), text, *arrays))


def _unpack(message: bytes, magic: bytes, what: str) -> tuple[dict[str, Any], memoryview]:
    if len(message) < 8 or message[:4] != magic:
        raise InvalidRequest(f"{what} starts with {magic.decode()} and a header length, got {len(message)} bytes")
    (length,) = struct.unpack_from("<I", message, 4)
    if length > _MAX_HEADER_BYTES or len(message) < 8 + length:
        raise InvalidRequest(f"{what} names a header of {length} bytes and has {len(message) - 8}")
    try:
        header = json.loads(message[8 : 8 + length])
    except ValueError as error:
        raise InvalidRequest(f"the header of {what} is not JSON") from error
    if not isinstance(header, dict):
        raise InvalidRequest(f"the header of {what} is not a JSON object")
    return header, memoryview(message)[8 + length :]


def encode_picture(picture: CanonicalPicture) -> bytes:
    """The message of a picture; equal pictures give equal bytes."""
    header = {
        "shape": list(picture.pixels.shape),
        "has_values": picture.values is not None,
        "modality": picture.modality,
        "unit": picture.unit,
        "spacing_row_column_mm": list(picture.spacing_row_column_mm) if picture.spacing_row_column_mm else None,
    }
    arrays = [np.ascontiguousarray(picture.pixels).tobytes()]
    if picture.values is not None:
        arrays.append(np.ascontiguousarray(picture.values, dtype="<f4").tobytes())
    return _pack(PICTURE_MAGIC, header, *arrays)


def picture_sha256(message: bytes) -> str:
    """The name of a picture on the wire: SHA-256 of its message, 64 hex digits."""
    return hashlib.sha256(message).hexdigest()


def _text(header: Mapping[str, Any], key: str) -> str | None:
    value = header.get(key)
    if value is not None and not (isinstance(value, str) and len(value) <= MAX_TEXT):
        raise InvalidRequest(f"{key} is a text of at most {MAX_TEXT} characters or null")
    return value


def _numbers(value: Any, count: int, what: str) -> tuple[float, ...]:
    is_list = isinstance(value, list | tuple) and len(value) == count
    if not is_list or not all(isinstance(n, int | float) and not isinstance(n, bool) for n in value):
        raise InvalidRequest(f"{what} is a list of {count} numbers")
    numbers = tuple(float(n) for n in value)
    if not all(math.isfinite(n) for n in numbers):
        raise InvalidRequest(f"{what} is a list of {count} finite numbers")
    return numbers


def decode_picture(message: bytes) -> CanonicalPicture:
    """The picture of a message.

    Raises:
        InvalidRequest: If the message is not one that `encode_picture` writes.
    """
    header, arrays = _unpack(message, PICTURE_MAGIC, "a picture")
    shape, has_values = header.get("shape"), header.get("has_values")
    if not (
        isinstance(shape, list)
        and all(type(n) is int and 0 < n <= 65535 for n in shape)
        and isinstance(has_values, bool)
    ):
        raise InvalidRequest("a picture's header names its shape, each side 1 to 65535, and whether values follow")
    pixel_bytes = math.prod(shape)
    value_bytes = 4 * math.prod(shape[:2]) if has_values else 0
    if len(arrays) != pixel_bytes + value_bytes:
        raise InvalidRequest(
            f"a picture of shape {tuple(shape)} is {pixel_bytes + value_bytes} bytes, got {len(arrays)}"
        )
    pixels = np.frombuffer(arrays[:pixel_bytes], dtype=np.uint8).reshape(shape)
    values = np.frombuffer(arrays[pixel_bytes:], dtype="<f4").reshape(shape[:2]) if has_values else None
    spacing = header.get("spacing_row_column_mm")
    row_column: tuple[float, float] | None = None
    if spacing is not None:
        row_mm, column_mm = _numbers(spacing, 2, "spacing_row_column_mm")
        if not (row_mm > 0 and column_mm > 0):
            raise InvalidRequest("spacing_row_column_mm is above 0 or null")
        row_column = row_mm, column_mm
    try:
        return CanonicalPicture(
            pixels=pixels,
            values=values,
            modality=_text(header, "modality") or "",
            unit=_text(header, "unit"),
            spacing_row_column_mm=row_column,
        )
    except ShapeError as error:
        raise InvalidRequest(error.message) from error


def prompt_to_json(prompt: Prompt) -> dict[str, Any]:
    """A prompt as a JSON object with one of the keys `box`, `points` (with `labels`), `concept`."""
    match prompt:
        case BoxPrompt():
            return {"box": list(prompt.box)}
        case PointsPrompt():
            return {"points": [list(point) for point in prompt.points], "labels": list(prompt.labels)}
        case ConceptPrompt():
            return {"concept": prompt.concept}


def prompt_from_json(message: Any) -> Prompt:
    """The prompt of a JSON object.

    Raises:
        InvalidRequest: If it is none that `prompt_to_json` writes.
    """
    if not isinstance(message, dict):
        raise InvalidRequest("a prompt is a JSON object")
    match sorted(message):
        case ["box"]:
            x0, y0, x1, y1 = _numbers(message["box"], 4, "box")
            return BoxPrompt((x0, y0, x1, y1))
        case ["labels", "points"]:
            return _points(message["points"], message["labels"])
        case ["concept"]:
            concept = _text(message, "concept")
            if not concept:
                raise InvalidRequest("concept is a text that is not empty")
            return ConceptPrompt(concept)
        case keys:
            raise InvalidRequest(f"a prompt has box, or points and labels, or concept; got {keys[:5]}")


def _points(points: Any, labels: Any) -> PointsPrompt:
    if not isinstance(points, list) or not isinstance(labels, list):
        raise InvalidRequest("points and labels are lists")
    if not all(type(label) is int and label in (0, 1) for label in labels):
        raise InvalidRequest("each label is 0 or 1")
    pairs = [_numbers(point, 2, "a point") for point in points]
    return PointsPrompt(tuple((x, y) for x, y in pairs), tuple(labels))


def body_to_json(body: SegmenterBody) -> dict[str, Any]:
    """A body as a JSON object."""
    return {
        "name": body.name,
        "version": body.version,
        "sha256": body.sha256,
        "is_demonstration": body.is_demonstration,
    }


def body_from_json(message: Any) -> SegmenterBody:
    """The body of a JSON object that `body_to_json` wrote.

    Raises:
        InvalidRequest: If it is none.
    """
    if not isinstance(message, dict) or not isinstance(message.get("is_demonstration"), bool):
        raise InvalidRequest("a body is an object that says whether it is a demonstration")
    name, version = _text(message, "name"), _text(message, "version")
    if not name or version is None:
        raise InvalidRequest("a body has a name and a version")
    return SegmenterBody(name, version, _text(message, "sha256"), message["is_demonstration"])


def encode_segmentation(segmentation: Segmentation) -> bytes:
    """The message of an answer, its mask one bit a pixel."""
    rows, columns = segmentation.mask.shape
    header = {
        "rows": rows,
        "columns": columns,
        "score": segmentation.score,
        "is_present": segmentation.is_present,
        "body": body_to_json(segmentation.body),
        "seconds": segmentation.seconds,
        "grid": None if segmentation.grid is None else list(segmentation.grid),
    }
    return _pack(MASK_MAGIC, header, np.packbits(segmentation.mask, axis=None).tobytes())


def decode_segmentation(message: bytes) -> Segmentation:
    """The answer of a message.

    Raises:
        InvalidRequest: If the message is not one that `encode_segmentation` writes.
    """
    header, packed = _unpack(message, MASK_MAGIC, "a segmentation")
    rows, columns, is_present = header.get("rows"), header.get("columns"), header.get("is_present")
    if type(rows) is not int or type(columns) is not int or rows < 1 or columns < 1 or not isinstance(is_present, bool):
        raise InvalidRequest("a segmentation's header names its rows, columns and whether its target is present")
    if len(packed) != (rows * columns + 7) // 8:
        raise InvalidRequest(f"a mask of {rows} x {columns} is {(rows * columns + 7) // 8} bytes, got {len(packed)}")
    bits = np.unpackbits(np.frombuffer(packed, dtype=np.uint8), count=rows * columns)
    score = header.get("score")
    return Segmentation(
        mask=bits.astype(np.bool_).reshape(rows, columns),
        score=None if score is None else _numbers([score], 1, "score")[0],
        is_present=is_present,
        body=body_from_json(header.get("body")),
        seconds=_numbers([header.get("seconds")], 1, "seconds")[0],
        grid=_grid(header.get("grid")),
    )


def _grid(value: Any) -> tuple[int, int] | None:
    match value:
        case None:
            return None
        case [rows, columns] if type(rows) is int and type(columns) is int and rows > 0 and columns > 0:
            return rows, columns
    raise InvalidRequest("a grid is two whole numbers above 0, or null")
