"""The events of a run as a stream to the browser (server-sent events).

Rows first: what is sent as `trace` was read from the database, so a reconnecting page that names its last event gets
exactly what it misses. News from the notifier only shorten the wait; previews go out unsequenced, never replayed.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing

import orjson
from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from backend.domain.trace import Event
from backend.store.notify import News, Notifier

POLL_S = 0.25
KEEP_ALIVE_S = 15.0


class EventHub:
    """Wakes the streams of a run. One for each web process, on its event loop."""

    def __init__(self, notifier: Notifier) -> None:
        self._notifier = notifier
        self._waiting: dict[str, set[asyncio.Queue[str | None]]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: Callable[[], None] | None = None

    def start(self) -> None:
        """Listen; called on the event loop."""
        self._loop = asyncio.get_running_loop()
        self._stop = self._notifier.listen(self._heard)

    def stop(self) -> None:
        """Stop listening."""
        if self._stop:
            self._stop()
            self._stop = None

    def _heard(self, news: News) -> None:
        if self._loop and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake, news)

    def _wake(self, news: News) -> None:
        for queue in self._waiting.get(news.run_id, ()):
            if queue.qsize() < 100:  # a page that reads nothing loses previews, never events
                queue.put_nowait(news.preview)

    def subscribe(self, run_id: str) -> asyncio.Queue[str | None]:
        """A queue of previews (text) and wake-ups (None) of one run."""
        queue: asyncio.Queue[str | None] = asyncio.Queue()
        self._waiting.setdefault(run_id, set()).add(queue)
        return queue

    def unsubscribe(self, run_id: str, queue: asyncio.Queue[str | None]) -> None:
        """Forget a queue."""
        queues = self._waiting.get(run_id, set())
        queues.discard(queue)
        if not queues:
            self._waiting.pop(run_id, None)


def encode_event(event: Event) -> bytes:
    """One stored event on the wire; its id is its place in the run."""
    return b"id: %d\nevent: trace\ndata: %s\n\n" % (event.sequence, orjson.dumps(event.model_dump(mode="json")))


def encode_preview(text: str) -> bytes:
    """Text that is still streaming; without an id, so that it is never taken for an event."""
    return b"event: preview\ndata: %s\n\n" % orjson.dumps({"text": text})


class EventStream(StreamingResponse):
    """Events on their way out, closed by who reads them or cut off by the guard: either way their place is freed.

    Starlette leaves the iterator of an answer that was cut off to the garbage collector.
    """

    def __init__(self, events: AsyncGenerator[bytes, None]) -> None:
        super().__init__(events, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send them."""
        async with aclosing(self._events):
            await super().__call__(scope, receive, send)


async def stream_events(
    run_id: str, *, after: int, hub: EventHub, read: Callable[[int], tuple[list[Event], bool]]
) -> AsyncGenerator[bytes, None]:
    """Stream a run from behind one place until it stopped.

    Args:
        after: The last sequence that the page has; 0 for all.
        read: The events behind a place, from the database, and whether they are the run's last.
    """
    queue = hub.subscribe(run_id)
    quiet_s = 0.0
    try:
        yield b"retry: 1000\n\n"
        while True:
            events, is_over = await run_in_threadpool(read, after)
            for event in events:
                yield encode_event(event)
                after = event.sequence
            if is_over:
                yield b"event: end\ndata: {}\n\n"
                return
            quiet_s = 0.0 if events else quiet_s + POLL_S
            if quiet_s >= KEEP_ALIVE_S:
                quiet_s = 0.0
                yield b": still here\n\n"
            async for preview in _until_news(queue):
                yield encode_preview(preview)
    finally:
        hub.unsubscribe(run_id, queue)


async def _until_news(queue: asyncio.Queue[str | None]) -> AsyncIterator[str]:
    """Previews as they come, until events were stored or it is time to look by ourselves."""
    deadline = asyncio.get_running_loop().time() + POLL_S
    while (left := deadline - asyncio.get_running_loop().time()) > 0:
        try:
            preview = await asyncio.wait_for(queue.get(), left)
        except TimeoutError:
            return
        if preview is None:
            return
        yield preview
