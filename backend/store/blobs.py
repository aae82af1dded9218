"""Bytes by the hash of their content. A blob is complete or it is not there."""

import hashlib
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import BinaryIO, Protocol

from backend.domain.errors import NotFound

_SHA256 = re.compile(r"[0-9a-f]{64}")


class BlobWriter(Protocol):
    """Takes bytes as they come. `commit` names them; a writer left without it leaves nothing behind."""

    size: int

    def write(self, data: bytes) -> int:
        """Append; returns how many bytes."""
        ...

    def commit(self) -> str:
        """Store what was written; returns its SHA-256 in hex."""
        ...


class Blobs(Protocol):
    """Content-addressed bytes; `DirectoryBlobs` is the embedded body."""

    def writer(self) -> AbstractContextManager[BlobWriter]:
        """Open a writer."""
        ...

    def put(self, data: bytes) -> str:
        """Store bytes; returns their SHA-256 in hex."""
        ...

    def read(self, sha256: str, offset: int = 0, size: int | None = None) -> bytes:
        """`size` bytes from `offset`, or all. Raises `NotFound`."""
        ...

    def open(self, sha256: str) -> BinaryIO:
        """A seekable file over a blob. Raises `NotFound`."""
        ...


class _FileWriter:
    def __init__(self, path: Path, place: "DirectoryBlobs") -> None:
        self.size = 0
        self._path, self._place = path, place
        self._hash = hashlib.sha256()
        self._file = path.open("wb")

    def write(self, data: bytes) -> int:
        self._hash.update(data)
        self.size += len(data)
        return self._file.write(data)

    def commit(self) -> str:
        sha256 = self._hash.hexdigest()
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        target = self._place.path(sha256)
        if not target.parent.exists():
            target.parent.mkdir(exist_ok=True)
            sync_directory(target.parent.parent)
        if not target.exists():
            self._path.replace(target)
        # Also of a blob that was there: who put it there a moment ago may not have come this far.
        sync_directory(target.parent)
        return sha256

    def discard(self) -> None:
        self._file.close()
        self._path.unlink(missing_ok=True)


def sync_directory(directory: Path) -> None:
    """Bring a directory's entries to the disk: only then does a file that was moved into it outlive a power cut."""
    opened = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


class DirectoryBlobs:
    """Blobs as files of one directory, written aside and then moved into place."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._incoming = directory / "incoming"
        self._incoming.mkdir(parents=True, exist_ok=True)

    def path(self, sha256: str) -> Path:
        """Where a blob lies. Raises `NotFound` for what is no hash, so that no name can lead elsewhere."""
        if not _SHA256.fullmatch(sha256):
            raise NotFound("a blob is named by 64 hex digits")
        return self.directory / sha256[:2] / sha256

    @contextmanager
    def writer(self) -> Iterator[BlobWriter]:
        """Open a writer; what is not committed is removed."""
        writing = _FileWriter(self._incoming / secrets.token_hex(12), self)
        try:
            yield writing
        finally:
            writing.discard()

    def put(self, data: bytes) -> str:
        """Store bytes; returns their SHA-256 in hex."""
        with self.writer() as writing:
            writing.write(data)
            return writing.commit()

    def read(self, sha256: str, offset: int = 0, size: int | None = None) -> bytes:
        """`size` bytes from `offset`, or all. Raises `NotFound`."""
        with self.open(sha256) as file:
            file.seek(offset)
            return file.read() if size is None else file.read(size)

    def open(self, sha256: str) -> BinaryIO:
        """A seekable file over a blob. Raises `NotFound`."""
        try:
            return self.path(sha256).open("rb")
        except FileNotFoundError:
            raise NotFound(f"no blob {sha256[:12]}") from None
