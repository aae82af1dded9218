"""The pictures that the segmenter process holds, in memory only and the oldest dropped first."""

import threading
from collections import OrderedDict

from backend.domain.segmenter import CanonicalPicture


class PictureCache:
    """Pictures by the SHA-256 of their message, up to a number of bytes. Safe for threads."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._held: OrderedDict[str, tuple[CanonicalPicture, int]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def put(self, sha256: str, picture: CanonicalPicture, size: int) -> None:
        """Keep a picture of `size` bytes; those used longest ago go where there is no room, never this one."""
        with self._lock:
            self._drop(sha256)
            self._held[sha256] = (picture, size)
            self._bytes += size
            while self._bytes > self._max_bytes and len(self._held) > 1:
                self._drop(next(iter(self._held)))

    def get(self, sha256: str) -> CanonicalPicture | None:
        """The picture, or None where it is not held (any more)."""
        with self._lock:
            if sha256 not in self._held:
                return None
            self._held.move_to_end(sha256)
            return self._held[sha256][0]

    def _drop(self, sha256: str) -> None:
        if sha256 in self._held:
            self._bytes -= self._held.pop(sha256)[1]
