"""A short line of work for the threads that run models, with an end to waiting."""

import asyncio
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import structlog

from backend.domain.errors import PlatformError
from backend.domain.segmenter import SegmenterBusy, SegmenterTimeout

log = structlog.get_logger(__name__)
_Answer = TypeVar("_Answer")

_RETRY_AFTER_S = 2


class PromptQueue:
    """Runs work on threads. More than `capacity` waiting or running is refused, and nobody waits over `timeout_s`.

    Work that has begun cannot be stopped: it keeps its place in the line until it ends, though its caller was told.
    """

    def __init__(self, *, capacity: int, timeout_s: float, threads: int | None = None) -> None:
        self._capacity = capacity
        self._timeout_s = timeout_s
        self._pool = ThreadPoolExecutor(threads or max(2, (os.cpu_count() or 2) // 2), thread_name_prefix="prompt")
        self._lock = threading.Lock()
        self._held = 0

    def start(self, work: Callable[[], None]) -> None:
        """Do something that nobody waits for; what it raises is logged.

        Raises:
            SegmenterBusy: If the line is full.
        """

        def tell(future: Future[None]) -> None:
            if future.cancelled() or (error := future.exception()) is None:
                return
            if isinstance(error, PlatformError):
                log.warning("preparation_failed", code=error.code)
            else:
                log.error("preparation_failed", kind=type(error).__name__, exc_info=error)

        self._submit(work).add_done_callback(tell)

    async def result(self, work: Callable[[], _Answer]) -> _Answer:
        """The work's own result or error.

        Raises:
            SegmenterBusy: If the line is full.
            SegmenterTimeout: If it takes longer than `timeout_s`, waiting included.
        """
        future = self._submit(work)
        waiting = asyncio.wrap_future(future)
        done, _ = await asyncio.wait({waiting}, timeout=self._timeout_s)
        if not done:
            # Cancels what has not begun; what runs on has nobody left to hear of its error.
            waiting.cancel()
            raise SegmenterTimeout(f"no answer within {self._timeout_s:g} s")
        return waiting.result()

    def close(self) -> None:
        """Take no more, drop what has not begun and do not wait for what has."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _submit(self, work: Callable[[], _Answer]) -> Future[_Answer]:
        with self._lock:
            if self._held >= self._capacity:
                raise SegmenterBusy(
                    f"{self._held} prompts wait or run and {self._capacity} may", retry_after_s=_RETRY_AFTER_S
                )
            self._held += 1
        try:
            future = self._pool.submit(work)
        except RuntimeError as error:
            self._release()
            raise SegmenterBusy("the segmenter is stopping", retry_after_s=_RETRY_AFTER_S) from error
        future.add_done_callback(lambda _: self._release())
        return future

    def _release(self) -> None:
        with self._lock:
            self._held -= 1
