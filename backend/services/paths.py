"""Files and folders of this machine into an upload: regular files only, whatever stands in the way is reported."""

import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from backend.domain.errors import FileRefused, UnreadableFile, UnsafeMember
from backend.services.uploads import Receiver
from backend.settings import MIB

CHUNK_BYTES = MIB


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A path to send, and the name it goes by: relative to the folder that was asked for."""

    path: Path
    name: str


def send_paths(paths: Sequence[Path], receiver: Receiver) -> None:
    """Send files, and folders with all that is in them, in the order of their names."""
    for path in paths:
        # A path that a person names may be a link; one that lies in a folder is not followed.
        named = FoundFile(path.resolve(), path.name or path.resolve().name)
        for found in _found(named, receiver):
            try:
                with _open_regular(found.path) as file:
                    _send(found.name, file, receiver)
            except FileRefused as error:
                receiver.refuse(found.name, error)


def _found(named: FoundFile, receiver: Receiver) -> Iterator[FoundFile]:
    if not named.path.is_dir():
        yield named
        return
    waiting = [named]
    while waiting:
        folder = waiting.pop()
        try:
            entries = sorted(os.scandir(folder.path), key=lambda entry: entry.name)
        except OSError as error:
            receiver.refuse(folder.name, UnreadableFile(f"the folder cannot be read: {_reason(error)}"))
            continue
        inside = [(entry, FoundFile(Path(entry.path), f"{folder.name}/{entry.name}")) for entry in entries]
        yield from (found for entry, found in inside if not entry.is_dir(follow_symlinks=False))
        waiting += reversed([found for entry, found in inside if entry.is_dir(follow_symlinks=False)])


def _open_regular(path: Path) -> BinaryIO:
    """Open a file and make sure, after opening it, that it is one.

    Raises:
        UnsafeMember: If it is a link, a device, a pipe or a socket.
        UnreadableFile: If it cannot be opened.
    """
    try:
        if stat.S_ISLNK(path.lstat().st_mode):
            raise UnsafeMember("a link is not followed")
        # Without O_NONBLOCK, opening a pipe waits for somebody to write into it.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise UnreadableFile(f"the file cannot be opened: {_reason(error)}") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise UnsafeMember("a device, a pipe or a socket is no file")
    return os.fdopen(descriptor, "rb")


def _send(name: str, file: BinaryIO, receiver: Receiver) -> None:
    receiver.open_file(name)
    while chunk := file.read(CHUNK_BYTES):
        receiver.write(chunk)
    receiver.close_file()


def _reason(error: OSError) -> str:
    """The system's words without the path."""
    return (os.strerror(error.errno) if error.errno else type(error).__name__).lower()
