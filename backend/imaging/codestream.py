"""The size that a compressed picture claims for itself, read before a decoder believes it."""

import struct

# Start of frame markers of JPEG and JPEG-LS: ITU-T T.81 table B.1, T.87 annex C.
_FRAME_MARKERS = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC} | {0xF7}


def codestream_size(stream: bytes) -> tuple[int, int] | None:
    """Rows and columns of a JPEG, JPEG-LS or JPEG 2000 codestream; None where it is none of them (RLE)."""
    if stream[:2] == b"\xff\xd8":
        return _jpeg(stream)
    start = stream.find(b"\xff\x4f\xff\x51", 0, 4096)
    if start >= 0 and (start == 0 or stream[:4] == b"\x00\x00\x00\x0c"):
        return _jpeg2000(stream, start)
    return None


def _jpeg(stream: bytes) -> tuple[int, int] | None:
    """From the first start of frame. Source: ITU-T T.81 B.2.2."""
    at = 2
    while at + 9 <= len(stream):
        if stream[at] != 0xFF:
            return None
        marker = stream[at + 1]
        if marker == 0xFF:
            at += 1
        elif marker in _FRAME_MARKERS:
            rows, columns = struct.unpack_from(">HH", stream, at + 5)
            return rows, columns
        else:
            at += 2 + struct.unpack_from(">H", stream, at + 2)[0]
    return None


def _jpeg2000(stream: bytes, start: int) -> tuple[int, int] | None:
    """From the SIZ segment: the reference grid without the offset of the image. Source: ITU-T T.800 A.5.1."""
    if len(stream) < start + 24:
        return None
    width, height, left, top = struct.unpack_from(">4L", stream, start + 8)
    return height - top, width - left
