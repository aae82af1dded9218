"""Masks: bit planes on one series' stored grid, in versions that never change. DESIGN 3."""

import zlib
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

import numpy as np

from backend.domain.crop import BoolArray
from backend.domain.errors import Conflict, ShapeError


class MaskConflict(Conflict):
    """The version that an edit began from is not the newest any more; the edit is not lost, the editor still has it."""

    code = "mask_conflict"


class AuthorKind(StrEnum):
    """Who made a version."""

    PERSON = "person"
    TOOL = "tool"


@dataclass(frozen=True, slots=True)
class MaskAuthor:
    """A person, or a model with the tool and the step that made it.

    Attributes:
        name: The person's name as shown, or the body's ("LiteMedSAM 0.1.1").
        run_id, sequence: The `ToolReturned` that reports it; None for a person.
    """

    kind: AuthorKind
    name: str
    user_id: str | None = None
    run_id: str | None = None
    sequence: int | None = None


@dataclass(frozen=True, slots=True)
class Segment:
    """One named bit plane; segments may overlap."""

    number: int
    label: str
    color: str


@dataclass(frozen=True, slots=True)
class MaskVersion:
    """One version of a mask.

    Attributes:
        id: Of this version; `mask_id` is the same for all versions of one mask, `version` counts from 1.
        voxels: For each segment number, how many voxels are set on each stored slice k that has any.
        is_resampled: Some of it was lifted from a view with less than one pixel for each voxel.
    """

    id: str
    mask_id: str
    series_id: str
    version: int
    author: MaskAuthor
    created_at: datetime
    segments: tuple[Segment, ...]
    voxels: dict[int, dict[int, int]]
    is_resampled: bool


def pack_plane(plane: BoolArray) -> bytes:
    """One bit plane (rows, columns), row by row, first pixel in the highest bit, zlib-compressed."""
    return zlib.compress(np.packbits(plane, axis=None).tobytes(), 6)


def unpack_plane(packed: bytes, *, rows: int, columns: int) -> BoolArray:
    """Undo `pack_plane`.

    Raises:
        ShapeError: If the bytes are not exactly a plane of that size; a bomb is cut off at that size.
    """
    expected = (rows * columns + 7) // 8
    unpacker = zlib.decompressobj()
    try:
        bits = unpacker.decompress(packed, expected + 1)
    except zlib.error:
        raise ShapeError("a bit plane is zlib-compressed") from None
    # A plane ends where its stream does: nothing is missing at the end and nothing comes after it.
    if len(bits) != expected or not unpacker.eof or unpacker.unused_data:
        raise ShapeError(
            f"a bit plane of {rows} x {columns} is one stream of {expected} bytes, got {len(bits)} or no end"
        )
    return np.unpackbits(np.frombuffer(bits, np.uint8), count=rows * columns).reshape(rows, columns).astype(bool)
