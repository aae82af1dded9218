"""Zip archives from strangers: members one by one as streams, and a code for each that must not go in.

Nothing is written by a member's name: its bytes become a blob, named by their hash. Names are refused all the same,
so that a sender learns that their archive is not what they think. Sizes are counted as bytes come out; what the
archive declares is not trusted. Casebook C62 and C63.
"""

import re
import stat
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, BinaryIO

from backend.domain.errors import FileTooLarge, UnreadableFile, UnsafeMember, UnsafePath, UnsupportedFile
from backend.settings import MIB

CHUNK_BYTES = MIB
# A label volume deflates a thousand times and is welcome; a quarter gigabyte made of nothing is not.
MAX_RATIO = 200
RATIO_FROM_BYTES = 256 * MIB
# What the list of members may take for each file that an upload may have; names and extra fields are in it.
_DIRECTORY_BYTES_A_FILE = 256
_ENTRY_MARK = b"PK\x01\x02"
_ARCHIVE_MARKS = (b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08")
_DRIVE = re.compile(r"[A-Za-z]:")
_LITTER_NAMES = frozenset({".ds_store", "thumbs.db", "desktop.ini", "autorun.inf"})
_METHODS = frozenset({zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED})
_ENCRYPTED = 0x1 | 0x40 | 0x2000  # PKWARE APPNOTE 4.4.4: encrypted, strongly encrypted, masked headers
HEAD_BYTES = 132


def is_archive(head: bytes) -> bool:
    """Whether a file with this beginning (132 bytes of it) is a zip. A DICOM preamble may look like one and is none."""
    return head.startswith(_ARCHIVE_MARKS) and head[128:132] != b"DICM"


def is_litter(name: str) -> bool:
    """Whether an operating system left this file there; it says nothing of a patient and holds no image."""
    parts = name.replace("\\", "/").lower().split("/")
    return "__macosx" in parts[:-1] or parts[-1].startswith("._") or parts[-1] in _LITTER_NAMES


@dataclass(frozen=True, slots=True)
class Member:
    """One entry of an archive, in the archive's order."""

    index: int
    name: str
    info: zipfile.ZipInfo


class Archive:
    """An open zip."""

    def __init__(self, file: zipfile.ZipFile) -> None:
        self._file = file

    def members(self) -> Iterator[Member]:
        """Every entry that is no directory."""
        for index, info in enumerate(self._file.infolist()):
            if not info.is_dir():
                yield Member(index, info.orig_filename, info)

    def unpack(self, member: Member, write: Callable[[bytes], object], *, max_bytes: int) -> None:
        """Hand a member's bytes over, chunk by chunk.

        Args:
            write: Called with each chunk; what it got before an exception is to be thrown away.
            max_bytes: What this member may unpack to.

        Raises:
            UnsafePath: If its name points outside the upload.
            UnsafeMember: If it is a link, a device, encrypted or an archive itself.
            UnsupportedFile: If it is packed in a way that we do not unpack.
            FileTooLarge: If more bytes come out than allowed, or far more than went in.
            UnreadableFile: If its bytes do not unpack to what they promise.
        """
        require_safe_path(member.name)
        _require_plain(member.info)
        try:
            with self._file.open(member.info) as stream:
                _copy(stream, write, packed=member.info.compress_size, max_bytes=max_bytes)
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, UnicodeError) as error:
            raise UnreadableFile(f"the packed bytes of the member do not unpack: {type(error).__name__}") from error


@contextmanager
def open_archive(file: BinaryIO, *, max_members: int) -> Iterator[Archive]:
    """Read an archive's list of members.

    Raises:
        FileTooLarge: If it lists more than `max_members`, before they take any memory.
        UnreadableFile: If it is no whole zip.
        UnsupportedFile: If it is an office document, which is a zip as well.
    """
    bounded = _BoundedReads(file, max_members)
    try:
        opened = zipfile.ZipFile(bounded)
    except (zipfile.BadZipFile, NotImplementedError, UnicodeError, OSError, ValueError) as error:
        raise UnreadableFile(f"the archive's list of members cannot be read: {type(error).__name__}") from error
    with opened:
        bounded.is_listing = False
        names = opened.namelist()
        if "[Content_Types].xml" in names or "mimetype" in names[:1]:
            raise UnsupportedFile("an office document holds no image that we show")
        yield Archive(opened)


def require_safe_path(name: str) -> None:
    r"""Raise `UnsafePath` for a member name that is no plain relative path: `..`, `/abs`, `C:\`, backslashes, NUL."""
    if "\x00" in name or "\\" in name:
        raise UnsafePath("the member's name holds a backslash or a NUL")
    if name.startswith("/") or _DRIVE.match(name):
        raise UnsafePath("the member's name is an absolute path")
    if ".." in name.split("/"):
        raise UnsafePath("the member's name climbs out of its folder")


def _require_plain(info: zipfile.ZipInfo) -> None:
    kind = stat.S_IFMT(info.external_attr >> 16)
    if kind not in (0, stat.S_IFREG):
        raise UnsafeMember("the member is a link or a device and no file")
    if info.flag_bits & _ENCRYPTED:
        raise UnsafeMember("the member is encrypted")
    if info.compress_type not in _METHODS:
        raise UnsupportedFile(
            f"the member is packed by method {info.compress_type}; we unpack stored and deflated ones"
        )


def _copy(stream: IO[bytes], write: Callable[[bytes], object], *, packed: int, max_bytes: int) -> None:
    size = 0
    while chunk := stream.read(CHUNK_BYTES):
        if size == 0 and is_archive(chunk[:HEAD_BYTES]):
            raise UnsafeMember("the member is an archive itself; archives in archives are not unpacked")
        size += len(chunk)
        if size > max_bytes:
            raise FileTooLarge(f"the member unpacks to more than the {max_bytes} bytes that are left to it")
        if size > RATIO_FROM_BYTES and size > MAX_RATIO * packed:
            raise FileTooLarge(f"the member unpacks to more than {MAX_RATIO} times its packed size")
        write(chunk)


class _BoundedReads:
    """A file that refuses the one read by which zipfile would take in an endless list of members."""

    def __init__(self, file: BinaryIO, max_members: int) -> None:
        self._file = file
        self._max_members = max_members
        self._max_bytes = max_members * _DIRECTORY_BYTES_A_FILE + MIB
        self.is_listing = True

    def read(self, size: int = -1) -> bytes:
        if not self.is_listing:
            return self._file.read(size)
        data = self._file.read(size if 0 <= size <= self._max_bytes else self._max_bytes + 1)
        if len(data) > self._max_bytes or data.count(_ENTRY_MARK) > self._max_members:
            raise FileTooLarge(f"the archive lists more than {self._max_members} members")
        return data

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        """The file is its opener's."""
