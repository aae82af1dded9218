"""Wakes a worker. The rows are the truth: a message that is lost costs the time until the reaper's next round.

Messages carry our own identifiers only, never a file, a name or an array.
"""

import sqlite3
from pathlib import Path
from typing import Protocol

import structlog
from celery import Celery
from kombu.exceptions import OperationalError
from kombu.transport import TRANSPORT_ALIASES
from kombu.transport.sqlalchemy import Transport
from sqlalchemy.engine import make_url

from backend.settings import Settings

log = structlog.get_logger(__name__)

QUEUE_NAME = "serpens"
INGEST_TASK = "serpens.ingest_upload"
REAP_TASK = "serpens.reap"
REAP_INTERVAL_S = 10.0

# No task outlives 60 s (DESIGN 4), so a message that is not acknowledged by then belongs to a lost worker.
VISIBILITY_TIMEOUT_S = 120
BUSY_TIMEOUT_S = 30.0


class Queue(Protocol):
    """What services wake workers with; `CeleryQueue` is the real body."""

    def wake_ingest(self, upload_id: str) -> None:
        """Let a worker look at this upload soon."""
        ...


class EmbeddedTransport(Transport):  # type: ignore[misc]
    """kombu's SQLAlchemy transport, asking its table ten times a second and hearing of a stop within half a second.

    The interval cannot be a transport option: kombu hands every one of those to `create_engine`.
    """

    polling_interval = 0.1

    def drain_events(self, connection: object, timeout: float | None = None) -> None:
        """Wait for a message; a worker asks for 2 s and looks at its signals only between two calls."""
        super().drain_events(connection, timeout=0.5 if timeout is None else min(timeout, 0.5))


class CeleryQueue:
    """Wakes the Celery worker through Redis or the embedded broker."""

    def __init__(self, settings: Settings) -> None:
        self.app = make_celery(settings)

    def wake_ingest(self, upload_id: str) -> None:
        """Send the message; a broker that is away is noted and left to the reaper, for the row is already stored."""
        try:
            self.app.send_task(INGEST_TASK, args=[upload_id])
        except OperationalError as error:
            log.warning("wake_failed", upload_id=upload_id, error=type(error).__name__)


def make_celery(settings: Settings) -> Celery:
    """The Celery application, without tasks: `backend.worker` adds them."""
    app = Celery("serpens", broker=settings.broker, set_as_current=False)
    app.conf.update(
        task_default_queue=QUEUE_NAME,
        task_serializer="json",
        accept_content=["json"],
        task_ignore_result=True,
        # A task is acknowledged when it is done: a worker that is killed gives it back (Redis) or the reaper does.
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        worker_prefetch_multiplier=1,
        worker_enable_remote_control=False,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        broker_connection_retry_on_startup=True,
        broker_transport_options=_transport_options(settings.broker),
        task_publish_retry_policy={"max_retries": 2, "interval_start": 0.1, "interval_step": 0.2, "interval_max": 0.5},
        beat_schedule={
            "reap": {"task": REAP_TASK, "schedule": REAP_INTERVAL_S, "options": {"expires": REAP_INTERVAL_S}}
        },
    )
    return app


def _transport_options(broker_url: str) -> dict[str, object]:
    if is_embedded(broker_url):
        TRANSPORT_ALIASES["sqla"] = f"{__name__}:{EmbeddedTransport.__name__}"
        return {"connect_args": {"timeout": BUSY_TIMEOUT_S}}
    # kombu sweeps every unacked_restore_interval x unacked_restore_throttle seconds: 100 s unless both are named here.
    return {
        "visibility_timeout": VISIBILITY_TIMEOUT_S,
        "unacked_restore_interval": 2,
        "unacked_restore_throttle": 1,
        "socket_connect_timeout": 5,
        "socket_timeout": 30,
    }


def is_embedded(broker_url: str) -> bool:
    """Whether the broker is kombu's own on SQLite, in a file of ours."""
    return broker_url.startswith("sqla+sqlite")


def embedded_file(broker_url: str) -> Path:
    """The file of the embedded broker."""
    return Path(make_url(broker_url.removeprefix("sqla+")).database or "")


def prepare_broker(settings: Settings) -> None:
    """Make the embedded broker's file and tables, so that writers need not wait for readers; nothing for a server."""
    if not is_embedded(settings.broker):
        return
    path = embedded_file(settings.broker)
    path.parent.mkdir(parents=True, exist_ok=True)
    with sqlite3.connect(path, timeout=BUSY_TIMEOUT_S) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
    connection.close()
    with make_celery(settings).connection_for_write() as broker:
        broker.SimpleQueue(QUEUE_NAME).close()


def prune_broker(settings: Settings) -> int:
    """Remove delivered messages from the embedded broker; returns how many.

    kombu only marks a message as delivered, never gives it out again and never deletes it, so the file would grow.
    """
    if not is_embedded(settings.broker):
        return 0
    connection = sqlite3.connect(embedded_file(settings.broker), timeout=BUSY_TIMEOUT_S)
    try:
        with connection:
            return connection.execute("DELETE FROM kombu_message WHERE visible = 0").rowcount
    finally:
        connection.close()
