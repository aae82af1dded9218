"""The worker process: Celery with its schedule. It looks at the rows that a message or the reaper names.

The schedule (beat) runs as a thread of this process: what it starts is safe to repeat, so a second worker's schedule
does no harm, and no further process has to be watched. Tasks run in threads: a big upload works in batches and lets
the next one in.
"""

import logging
import os
import secrets
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog
from celery import Celery, Task
from celery.beat import EmbeddedService, Scheduler
from celery.platforms import SecurityWarning
from celery.signals import setup_logging, worker_ready

from backend.domain.errors import PlatformError
from backend.queue import INGEST_TASK, REAP_TASK, CeleryQueue, Queue, prepare_broker, prune_broker
from backend.settings import Settings
from backend.telemetry import configure_logging

log = structlog.get_logger(__name__)

CONCURRENCY = 2


class _QuietTask(Task):  # type: ignore[misc]
    """A task that tells of a failure by the kind and the places of the error, not by its text or its arguments.

    The text of an unforeseen error may quote a file's name or a tag's value (casebook C67), so Celery's own lines about
    tasks are off (`serve`).
    """

    def on_failure(self, exc: BaseException, task_id: str, args: Any, kwargs: Any, einfo: Any) -> None:
        places = [
            f"{Path(frame.filename).name}:{frame.lineno} {frame.name}"
            for frame in traceback.extract_tb(exc.__traceback__)
        ]
        code = exc.code if isinstance(exc, PlatformError) else None
        log.error("task_failed", task=self.name, error=type(exc).__name__, code=code, places=places[-8:])


@dataclass(frozen=True, slots=True)
class IngestWork:
    """What the tasks do.

    Attributes:
        ingest: Works on an upload for one batch; True when there is nothing left to do for this worker.
        stalled: The uploads that wait and that nobody holds.
        prune: Clears what the broker has delivered.
    """

    ingest: Callable[[str], bool]
    stalled: Callable[[], list[str]]
    prune: Callable[[], object]


def register_tasks(app: Celery, queue: Queue, work: IngestWork) -> None:
    """Give the application its tasks. Each takes identifiers and may be delivered twice."""

    @app.task(name=INGEST_TASK, base=_QuietTask)  # type: ignore[untyped-decorator]
    def ingest_upload(upload_id: str) -> None:
        with structlog.contextvars.bound_contextvars(upload_id=upload_id):
            if not work.ingest(upload_id):
                queue.wake_ingest(upload_id)

    @app.task(name=REAP_TASK, base=_QuietTask)  # type: ignore[untyped-decorator]
    def reap() -> None:
        work.prune()
        for upload_id in work.stalled():
            log.warning("upload_taken_up_again", upload_id=upload_id)
            queue.wake_ingest(upload_id)


def run_worker(settings: Settings) -> None:
    """Work until SIGTERM or SIGINT; the task in hand is finished first."""
    from backend.services import ingest as ingesting
    from backend.services.context import utc_now
    from backend.store.blobs import DirectoryBlobs
    from backend.store.repository import Store

    setup_logging.connect(lambda **_: configure_logging(as_json=settings.log_json), weak=False)
    settings.make_home()
    prepare_broker(settings)
    store, blobs = Store(settings.database), DirectoryBlobs(settings.blobs)
    owner = f"worker-{os.getpid()}-{secrets.token_hex(4)}"

    def ingest(upload_id: str) -> bool:
        return ingesting.ingest(
            upload_id,
            store=store,
            blobs=blobs,
            settings=settings,
            clock=utc_now,
            owner=owner,
            until_s=settings.ingest_batch_s,
        )

    queue = CeleryQueue(settings)
    work = IngestWork(
        ingest=ingest, stalled=lambda: ingesting.stalled_uploads(store, utc_now), prune=lambda: prune_broker(settings)
    )
    register_tasks(queue.app, queue, work)
    serve(queue.app)
    store.close()


def serve(app: Celery) -> None:
    """Run the worker and its schedule in this process."""
    logging.getLogger("celery").setLevel(logging.WARNING)
    # Celery's own lines may quote arguments and error texts; ours name the task and the place instead.
    for name in ("celery.app.trace", "celery.worker.strategy", "celery.worker.request"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    # It warns of pickled messages, which root should not read; ours are JSON.
    warnings.simplefilter("ignore", category=SecurityWarning)
    beat = EmbeddedService(app, thread=True, scheduler_cls=Scheduler)

    def ready(**_: Any) -> None:
        log.info("worker_ready", concurrency=CONCURRENCY)
        # Uploads that a lost worker left behind are taken up now and not at the schedule's first round.
        app.send_task(REAP_TASK)
        beat.start()

    worker_ready.connect(ready, weak=False)
    worker = app.Worker(
        pool="threads",
        concurrency=CONCURRENCY,
        quiet=True,
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=True,
        loglevel="WARNING",
    )
    worker.start()
    beat.service.stop()  # a daemon thread: it is not waited for, and a round that it starts now would only be early
