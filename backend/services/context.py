"""What the services work with, put together once by each entry point."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from backend.agent.segmenter_client import HttpSegmenter
from backend.domain.segmenter import Segmenter
from backend.queue import CeleryQueue, Queue
from backend.settings import Settings
from backend.store.blobs import Blobs, DirectoryBlobs
from backend.store.notify import Notifier, open_notifier
from backend.store.repository import Store

Clock = Callable[[], datetime]


def utc_now() -> datetime:
    """The present, in UTC: the clock of every real process."""
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Services:
    """The collaborators of one process, handed to the services as keyword arguments."""

    store: Store
    blobs: Blobs
    settings: Settings
    queue: Queue
    segmenter: Segmenter
    notifier: Notifier
    clock: Clock = utc_now


def open_services(
    settings: Settings, *, queue: Queue | None = None, segmenter: Segmenter | None = None, clock: Clock = utc_now
) -> Services:
    """What a process works with, by its settings; a test hands in what it has instead."""
    settings.make_home()
    return Services(
        store=Store(settings.database),
        blobs=DirectoryBlobs(settings.blobs),
        settings=settings,
        queue=queue or CeleryQueue(settings),
        segmenter=segmenter
        or HttpSegmenter(settings.segmenter, settings.segmenter_secret(), timeout_s=settings.segmenter_timeout_s),
        notifier=open_notifier(settings.database, settings.home),
        clock=clock,
    )
