"""The elements of a DICOM data set that we ask for, read without building the rest.

`pydicom` makes objects of every element, some 3 ms for a CT slice. Ingest needs sixty values of each of thousands of
files, so this module walks the encoding itself, keeps the wanted values as bytes and steps over all else, the pixels
included. `tests/test_imaging_elements.py` holds it equal to pydicom on every file of the collection.

Source: DICOM PS3.5 7 (data set), 7.5 (sequences), annex A (transfer syntaxes); PS3.10 7.1 (file meta information).
"""

import math
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import BinaryIO, TypeAlias

from backend.domain.errors import UnreadableFile

UNDEFINED = 0xFFFFFFFF
ITEM, ITEM_END, SEQUENCE_END = 0xFFFEE000, 0xFFFEE00D, 0xFFFEE0DD
PIXEL_TAGS = frozenset({0x7FE00008, 0x7FE00009, 0x7FE00010})  # Float, Double Float and plain Pixel Data

# What to keep: None keeps a value's bytes, a mapping goes into a sequence and keeps that of each of its items.
Wanted: TypeAlias = Mapping[int, "Wanted | None"]

_LONG_VRS = frozenset({b"OB", b"OD", b"OF", b"OL", b"OV", b"OW", b"SQ", b"SV", b"UC", b"UN", b"UR", b"UT", b"UV"})
_SHORT_VRS = frozenset(
    {b"AE", b"AS", b"AT", b"CS", b"DA", b"DS", b"DT", b"FL", b"FD", b"IS", b"LO", b"LT", b"PN", b"SH", b"SL", b"SS"}
    | {b"ST", b"TM", b"UI", b"UL", b"US"}
)
KNOWN_VRS = _LONG_VRS | _SHORT_VRS
_MAX_DEPTH = 24
_CHUNK = 1 << 14  # holds the header of most slices, and little of their pixels
# A Decimal or Integer String of PS3.5 6.2; a value such as "1A" is no number.
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?\Z", re.ASCII)


@dataclass(frozen=True, slots=True)
class Encoding:
    """How elements are written: with their VR or without, and in which byte order."""

    explicit: bool
    little: bool = True


IMPLICIT_LITTLE = Encoding(explicit=False)
EXPLICIT_LITTLE = Encoding(explicit=True)
EXPLICIT_BIG = Encoding(explicit=True, little=False)
IMPLICIT_BIG = Encoding(explicit=False, little=False)


@dataclass(frozen=True, slots=True)
class PixelPlace:
    """Where the value of the pixel data element lies in the data set; `length` is None where it is encapsulated."""

    tag: int
    vr: bytes
    offset: int
    length: int | None


@dataclass(slots=True)
class Elements:
    """The wanted values of one data set or item. A tag without a value reads as absent (PS3.5 7.4, type 2)."""

    little: bool = True
    values: dict[int, bytes] = field(default_factory=dict)
    sequences: dict[int, list["Elements"]] = field(default_factory=dict)
    pixels: PixelPlace | None = None

    def raw(self, tag: int) -> bytes:
        """The value's bytes; empty where absent."""
        return self.values.get(tag, b"")

    def texts(self, tag: int) -> list[str]:
        """The values of a string of the default character set, stripped; an empty list where absent."""
        text = self.values.get(tag, b"").decode("latin-1").strip(" \0")
        if not text:
            return []
        return [part.strip(" \0") for part in text.split("\\")] if "\\" in text else [text]

    def text(self, tag: int) -> str:
        """The first value of a string; "" where absent."""
        texts = self.texts(tag)
        return texts[0] if texts else ""

    def numbers(self, tag: int) -> list[float]:
        """The values of a Decimal or Integer String; NaN stands for one that is no number."""
        return [_number(text) for text in self.texts(tag)]

    def number(self, tag: int) -> float | None:
        """The first value of a Decimal or Integer String, None where absent or no finite number."""
        numbers = self.numbers(tag)
        return numbers[0] if numbers and math.isfinite(numbers[0]) else None

    def unsigned(self, tag: int) -> int | None:
        """The first value of a US element, None where absent."""
        return self._packed(tag, "H")

    def signed(self, tag: int) -> int | None:
        """The first value of a US or SS element read as two's complement, None where absent."""
        return self._packed(tag, "h")

    def items(self, tag: int) -> list["Elements"]:
        """The items of a wanted sequence; an empty list where absent."""
        return self.sequences.get(tag, [])

    def first(self, tag: int) -> "Elements":
        """The first item of a wanted sequence; an empty one where absent."""
        items = self.sequences.get(tag)
        return items[0] if items else Elements(self.little)

    def _packed(self, tag: int, kind: str) -> int | None:
        raw = self.values.get(tag, b"")
        if len(raw) < 2:
            return None
        value: int = struct.unpack(f"{'<' if self.little else '>'}{kind}", raw[:2])[0]
        return value


def _number(text: str) -> float:
    """A number, or NaN for text that is none and for one past the range of a double."""
    value = float(text) if _NUMBER.match(text) else math.nan
    return value if math.isfinite(value) else math.nan


class _Window:
    """A sliding view of a file: a value behind a large one that we skip costs a seek and not a read."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file = file
        self.size = size
        self.base = 0
        self.buffer = b""

    def fill(self, position: int, count: int) -> None:
        """Hold `count` bytes at `position`, or as many as there are."""
        self._file.seek(position)
        self.buffer = self._file.read(max(count, _CHUNK))
        self.base = position

    def hold_header(self, position: int) -> tuple[bytes, int, int]:
        """The buffer with the 12 bytes at `position`, zeros after the file's end, its base, and the place in it."""
        self.fill(position, 12)
        if len(self.buffer) < 12:
            self.buffer += bytes(12 - len(self.buffer))
        return self.buffer, self.base, 0

    def take(self, position: int, count: int, what: str) -> bytes:
        """`count` bytes at `position`.

        Raises:
            UnreadableFile: If the file ends before.
        """
        if position + count > self.size:
            raise UnreadableFile(f"the file ends inside {what}: {count} bytes needed at {position}, {self.size} in all")
        at = position - self.base
        if at < 0 or at + count > len(self.buffer):
            self.fill(position, count)
            at = 0
        return self.buffer[at : at + count]


class Scanner:
    """Walks one data set from front to back."""

    def __init__(self, file: BinaryIO, size: int, *, max_value_bytes: int) -> None:
        self._window = _Window(file, size)
        self._size = size
        self._max_value_bytes = max_value_bytes

    def peek(self, position: int, count: int) -> bytes:
        """Up to `count` bytes at `position`."""
        return self._window.take(position, max(0, min(count, self._size - position)), "its header")

    def meta(self, position: int, wanted: Wanted) -> tuple[Elements, int]:
        """The file meta group (0002,xxxx), always explicit little endian, and where the data set begins."""
        meta = Elements()
        while self.peek(position, 2) == b"\x02\x00":
            group, element, vr, length = _LITTLE_HEAD.unpack(self._window.take(position, 8, "its meta information"))
            tag, position = group << 16 | element, position + 8
            if vr in _LONG_VRS:
                length = _LITTLE_LONG.unpack(self._window.take(position, 4, "its meta information"))[0]
                position += 4
            if length == UNDEFINED or vr not in KNOWN_VRS:
                raise UnreadableFile(f"file meta element ({tag:08x}) has no length or no VR")
            if tag in wanted:
                meta.values[tag] = self._value(position, length, tag)
            position += length
        return meta, position

    def data_set(self, position: int, encoding: Encoding, wanted: Wanted, *, into: Elements) -> None:
        """Fill `into` with the wanted elements from `position` up to the pixel data or the end of the file.

        Raises:
            UnreadableFile: If lengths contradict each other or the file ends inside an element before the pixels;
                `into` then holds what was read up to there.
        """
        into.little = encoding.little
        self._walk(position, self._size, encoding, wanted, into, depth=0)

    def _walk(self, position: int, end: int, encoding: Encoding, wanted: Wanted, into: Elements, depth: int) -> int:
        """Elements up to `end`, an item's end or, at depth 0, the pixel data. Gives the place after them."""
        if depth > _MAX_DEPTH:
            raise UnreadableFile(f"sequences are nested more than {_MAX_DEPTH} deep")
        window, values, explicit = self._window, into.values, encoding.explicit
        head = (_LITTLE_HEAD if encoding.little else _BIG_HEAD).unpack_from
        long = (_LITTLE_LONG if encoding.little else _BIG_LONG).unpack_from
        buffer, base = window.buffer, window.base
        # A header has some 150 elements and a study a thousand headers: no call is made for an element that is skipped.
        while position + 8 <= end:
            at = position - base
            if at < 0 or at + 12 > len(buffer):
                buffer, base, at = window.hold_header(position)
            group, element, vr, length = head(buffer, at)
            tag = group << 16 | element
            value_at = position + 8
            # Where no VR stands in an explicit data set, some writers fell back to the implicit form: so do readers.
            if not (explicit and b"AA" <= vr <= b"ZZ" and group != 0xFFFE):
                length = long(buffer, at + 4)[0]
            elif vr in _LONG_VRS:
                length = long(buffer, at + 8)[0]
                value_at += 4
            if length != UNDEFINED and tag < 0x7FE00000:
                position = value_at + length
                if position > end:
                    raise UnreadableFile(
                        f"element ({tag:08x}) says {length} bytes at {value_at} and its data set ends at {end}"
                    )
                if tag not in wanted:
                    continue
                if wanted[tag] is None:
                    values[tag] = self._value(value_at, length, tag)
                else:
                    self._items(value_at, position, vr, encoding, wanted, into, tag, depth, sized=True)
            elif tag in (ITEM_END, SEQUENCE_END):
                return value_at
            elif depth == 0 and tag in PIXEL_TAGS:
                vr = vr if explicit else b""
                into.pixels = PixelPlace(tag, vr, value_at, None if length == UNDEFINED else length)
                return value_at
            elif length == UNDEFINED:
                position = self._items(value_at, end, vr if explicit else b"", encoding, wanted, into, tag, depth)
            else:
                position = value_at + length
            buffer, base = window.buffer, window.base
        return end

    def _items(
        self, position: int, end: int, vr: bytes, encoding: Encoding, wanted: Wanted, into: Elements, tag: int,
        depth: int, *, sized: bool = False,
    ) -> int:  # fmt: skip
        """The items of a sequence, kept where wanted, and of an encapsulated value, which are skipped."""
        # A sequence of VR UN is written implicit little endian whatever the rest is: PS3.5 6.2.2 note 2.
        inner = IMPLICIT_LITTLE if vr == b"UN" else encoding
        inner_wanted = wanted.get(tag)
        kept = into.sequences.setdefault(tag, []) if inner_wanted is not None else None
        pair = struct.Struct("<HHL" if inner.little else ">HHL")
        while position + 8 <= end:
            group, element, length = pair.unpack(self._window.take(position, 8, f"sequence ({tag:08x})"))
            mark, position = group << 16 | element, position + 8
            if mark == SEQUENCE_END:
                return position
            if mark != ITEM:
                raise UnreadableFile(f"sequence ({tag:08x}) holds ({mark:08x}) where an item was needed")
            item = Elements(inner.little)
            if length == UNDEFINED:
                position = self._walk(position, end, inner, inner_wanted or {}, item, depth + 1)
            else:
                if position + length > end:
                    raise UnreadableFile(f"an item of ({tag:08x}) says {length} bytes and its sequence ends at {end}")
                if kept is not None:
                    self._walk(position, position + length, inner, inner_wanted or {}, item, depth + 1)
                position += length
            if kept is not None:
                kept.append(item)
        if not sized:
            raise UnreadableFile(f"sequence ({tag:08x}) has no end")
        return position

    def _value(self, position: int, length: int, tag: int) -> bytes:
        if length > self._max_value_bytes:
            raise UnreadableFile(f"element ({tag:08x}) says {length} bytes, at most {self._max_value_bytes} are read")
        return self._window.take(position, length, f"element ({tag:08x})")


# Group, element, VR and 16 bit length of an explicit element; an implicit one has a 32 bit length in place of both.
_LITTLE_HEAD = struct.Struct("<HH2sH")
_BIG_HEAD = struct.Struct(">HH2sH")
_LITTLE_LONG = struct.Struct("<L")
_BIG_LONG = struct.Struct(">L")
