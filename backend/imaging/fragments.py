"""Where the compressed frames of encapsulated pixel data lie. Source: DICOM PS3.5 A.4."""

import struct
from typing import BinaryIO

from backend.domain.errors import TruncatedPixels, UnreadableFile
from backend.imaging.elements import ITEM, SEQUENCE_END, UNDEFINED

Fragment = tuple[int, int]  # offset in the data set, length
_MAX_FRAGMENTS = 1_000_000
_MARKS = struct.Struct("<HHL")
# What a JPEG, JPEG-LS or JPEG 2000 codestream begins with, and a JP2 box.
_STARTS = (b"\xff\xd8", b"\xff\x4f\xff\x51", b"\x00\x00\x00\x0c\x6a\x50")


def frame_fragments(file: BinaryIO, offset: int, size: int, frames: int) -> list[list[Fragment]]:
    """The fragments of each frame.

    Args:
        offset: Where the value of Pixel Data begins: the item of the Basic Offset Table.
        size: Of the data set in bytes.
        frames: Number of Frames, a claim that is checked and not trusted.

    Raises:
        TruncatedPixels: If a fragment ends past the file or there are fewer fragments than frames.
        UnreadableFile: If the items are none, or if which fragments make up a frame cannot be told.
    """
    items = _items(file, offset, size)
    if not items:
        raise UnreadableFile("encapsulated pixel data begin with a Basic Offset Table, none came")
    (table_at, table_length), fragments = items[0], items[1:]
    if len(fragments) < frames:
        raise TruncatedPixels(f"{frames} frames need {frames} compressed fragments or more, {len(fragments)} came")
    if frames == 1:
        return [fragments]
    if len(fragments) == frames:
        return [[fragment] for fragment in fragments]
    begins = _begins(file, fragments, table_at, table_length, frames)
    bounds = [*begins, len(fragments)]
    return [fragments[bounds[n] : bounds[n + 1]] for n in range(frames)]


def _items(file: BinaryIO, offset: int, size: int) -> list[Fragment]:
    """All items of the encapsulated value, the offset table first. A missing end mark is no loss of pixels."""
    items: list[Fragment] = []
    while offset + 8 <= size:
        file.seek(offset)
        group, element, length = _MARKS.unpack(file.read(8))
        mark, offset = group << 16 | element, offset + 8
        if mark == SEQUENCE_END:
            break
        if mark != ITEM or length == UNDEFINED:
            raise UnreadableFile(f"a compressed fragment was needed at {offset - 8}, ({mark:08x}) of {length} came")
        if offset + length > size:
            raise TruncatedPixels(f"a compressed fragment needs {length} bytes, {size - offset} came")
        items.append((offset, length))
        if len(items) > _MAX_FRAGMENTS:
            raise UnreadableFile(f"more than {_MAX_FRAGMENTS} compressed fragments in one file")
        offset += length
    return items


def _begins(file: BinaryIO, fragments: list[Fragment], table_at: int, table_length: int, frames: int) -> list[int]:
    """The number of the first fragment of each frame: by the offset table, else by the codestreams' first bytes."""
    if table_length == 4 * frames:
        file.seek(table_at)
        # The table counts from the first byte of the item after it.
        places = {at - 8 - (table_at + table_length): number for number, (at, _) in enumerate(fragments)}
        offsets = struct.unpack(f"<{frames}L", file.read(table_length))
        if all(offset in places for offset in offsets) and list(offsets) == sorted(set(offsets)):
            return [places[offset] for offset in offsets]
    begins = []
    for number, (at, _) in enumerate(fragments):
        file.seek(at)
        if file.read(6).startswith(_STARTS):
            begins.append(number)
    if len(begins) != frames or begins[0] != 0:
        raise UnreadableFile(f"{len(fragments)} compressed fragments cannot be told apart into {frames} frames")
    return begins
