"""Waking workers: through both brokers, after the commit and never before, and without words of a patient."""

import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from backend.domain.account import Project
from backend.queue import INGEST_TASK, CeleryQueue, embedded_file, make_celery, prepare_broker, prune_broker
from backend.settings import Settings
from backend.store.repository import Store, new_id
from backend.store.tables import ProjectRow

# A worker process whose work is written to a file. An upload named "slow..." takes as long as the test wants.
WORKER = """
import os, sys, time
from pathlib import Path
from backend.queue import CeleryQueue, prepare_broker
from backend.settings import Settings
from backend.telemetry import configure_logging
from backend.worker import IngestWork, register_tasks, serve

broker, done, held, begun = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), Path(sys.argv[4])

def ingest(upload_id):
    with begun.open("a") as file:
        file.write(upload_id + "\\n")
    while upload_id.startswith("slow") and held.exists():
        time.sleep(0.05)
    if upload_id == "breaks":
        raise ValueError("ZZTEST^CANARY in a header")
    batches = begun.read_text().split().count(upload_id)
    if upload_id.startswith("three") and batches < 3:
        return False
    with done.open("a") as file:
        file.write(upload_id + "\\n")
    return True

def stalled():
    left = done.with_name("stalled")
    names = left.read_text().split() if left.exists() else []
    left.unlink(missing_ok=True)
    return names

settings = Settings(_env_file=None, broker_url=broker, home=done.parent)
configure_logging(as_json=True)
prepare_broker(settings)
queue = CeleryQueue(settings)
register_tasks(queue.app, queue, IngestWork(ingest=ingest, stalled=stalled, prune=lambda: None))
serve(queue.app)
"""


class Worker:
    """A worker process and what it noted."""

    def __init__(self, broker_url: str, folder: Path) -> None:
        self.broker_url = broker_url
        self.done, self.held, self.begun = folder / "done", folder / "held", folder / "begun"
        self.log = folder / "log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-c", WORKER, self.broker_url, str(self.done), str(self.held), str(self.begun)],
                stdout=output,
                stderr=output,
                process_group=0,
            )

    def kill(self, number: signal.Signals) -> None:
        assert self.process is not None
        if self.process.poll() is None:
            os.killpg(self.process.pid, number)
        self.process.wait(30)

    def finished(self) -> list[str]:
        return self.done.read_text().split() if self.done.exists() else []

    def wait_for(self, condition: Callable[[], bool], timeout_s: float = 60) -> None:
        deadline = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.02)


@contextmanager
def worker_on(broker_url: str, folder: Path) -> Iterator[Worker]:
    worker = Worker(broker_url, folder)
    worker.start()
    try:
        yield worker
    finally:
        worker.kill(signal.SIGKILL)


@pytest.fixture(params=["embedded", pytest.param("redis", marks=pytest.mark.needs("redis"))])
def broker_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Each of the two brokers."""
    if request.param == "embedded":
        return f"sqla+sqlite:///{tmp_path / 'queue.db'}"
    return str(request.getfixturevalue("redis_url"))


def queue_on(broker_url: str) -> CeleryQueue:
    settings = Settings(_env_file=None, broker_url=broker_url)
    prepare_broker(settings)
    return CeleryQueue(settings)


def test_a_worker_does_what_it_is_woken_for_soon(broker_url, tmp_path):
    queue = queue_on(broker_url)
    with worker_on(broker_url, tmp_path) as worker:
        queue.wake_ingest("first")
        worker.wait_for(lambda: worker.finished() == ["first"])

        started = time.monotonic()
        queue.wake_ingest("second")
        worker.wait_for(lambda: worker.finished() == ["first", "second"])
        assert time.monotonic() - started < 2.0  # kombu's own polling alone would cost up to a second


def test_unfinished_work_is_taken_up_again_until_it_is_done(broker_url, tmp_path):
    queue = queue_on(broker_url)
    with worker_on(broker_url, tmp_path) as worker:
        queue.wake_ingest("three-batches")
        worker.wait_for(lambda: worker.finished() == ["three-batches"])
        assert worker.begun.read_text().split() == ["three-batches"] * 3


def test_what_waited_unheld_at_the_start_is_taken_up_by_the_reaper(broker_url, tmp_path):
    (tmp_path / "stalled").write_text("left-behind")
    queue_on(broker_url)
    with worker_on(broker_url, tmp_path) as worker:
        worker.wait_for(lambda: worker.finished() == ["left-behind"])


def test_the_schedule_runs_in_the_worker(broker_url, tmp_path):
    queue = queue_on(broker_url)
    with worker_on(broker_url, tmp_path) as worker:
        queue.wake_ingest("first")
        worker.wait_for(lambda: worker.finished() == ["first"])
        (tmp_path / "stalled").write_text("stalled-later")
        worker.wait_for(lambda: "stalled-later" in worker.finished(), timeout_s=30)


def test_a_big_upload_does_not_keep_a_small_one_waiting(broker_url, tmp_path):
    queue = queue_on(broker_url)
    (tmp_path / "held").touch()
    with worker_on(broker_url, tmp_path) as worker:
        queue.wake_ingest("slow-one")
        worker.wait_for(lambda: worker.begun.exists())
        queue.wake_ingest("small")
        worker.wait_for(lambda: worker.finished() == ["small"])


def test_c56_redis_gives_a_killed_workers_message_to_the_next_one(redis_url, tmp_path, monkeypatch):
    monkeypatch.setattr("backend.queue.VISIBILITY_TIMEOUT_S", 3)
    queue = queue_on(redis_url)
    (tmp_path / "held").touch()
    worker = Worker(redis_url, tmp_path)
    short = WORKER.replace("broker, done", "import backend.queue\nbackend.queue.VISIBILITY_TIMEOUT_S = 3\nbroker, done")
    monkeypatch.setattr(f"{__name__}.WORKER", short)
    worker.start()
    queue.wake_ingest("slow-one")
    worker.wait_for(lambda: worker.begun.exists())
    worker.kill(signal.SIGKILL)
    worker.held.unlink()

    worker.start()
    try:
        worker.wait_for(lambda: worker.finished() == ["slow-one"])
    finally:
        worker.kill(signal.SIGKILL)


def test_c67_a_failing_task_is_logged_without_its_text_or_arguments(broker_url, tmp_path):
    queue = queue_on(broker_url)
    with worker_on(broker_url, tmp_path) as worker:
        queue.wake_ingest("breaks")
        queue.wake_ingest("after-it")
        worker.wait_for(lambda: "after-it" in worker.finished())
        worker.wait_for(lambda: "task_failed" in worker.log.read_text())
        log = worker.log.read_text()
        assert "ValueError" in log
        assert "CANARY" not in log
        assert "args" not in log


def test_a_worker_that_is_told_to_stop_ends_within_seconds(broker_url, tmp_path):
    queue = queue_on(broker_url)
    with worker_on(broker_url, tmp_path) as worker:
        queue.wake_ingest("first")
        worker.wait_for(lambda: worker.finished() == ["first"])
        started = time.monotonic()
        worker.kill(signal.SIGTERM)
        assert time.monotonic() - started < 5.0


def test_a_message_carries_the_uploads_id_and_nothing_else(tmp_path):
    queue = queue_on(f"sqla+sqlite:///{tmp_path / 'queue.db'}")
    queue.wake_ingest("0123456789abcdef0123")
    with make_celery(Settings(_env_file=None, broker_url=queue.app.conf.broker_url)).connection() as broker:
        message = broker.SimpleQueue("serpens").get(timeout=5)
        message.ack()
    assert message.payload[:2] == [["0123456789abcdef0123"], {}]
    assert message.headers["task"] == INGEST_TASK


def test_delivered_messages_leave_the_embedded_broker(tmp_path):
    settings = Settings(_env_file=None, home=tmp_path)
    prepare_broker(settings)
    queue = CeleryQueue(settings)
    queue.wake_ingest("delivered")
    queue.wake_ingest("waits")
    with make_celery(settings).connection() as broker:
        broker.SimpleQueue("serpens").get(timeout=5).ack()

    assert prune_broker(settings) == 1
    with sqlite3.connect(embedded_file(settings.broker)) as connection:
        assert connection.execute("SELECT count(*) FROM kombu_message").fetchone() == (1,)


def test_a_broker_that_is_away_fails_no_request():
    queue = CeleryQueue(Settings(_env_file=None, broker_url="redis://127.0.0.1:1/0"))
    started = time.monotonic()
    queue.wake_ingest("0123456789abcdef0123")
    assert time.monotonic() - started < 5.0


def test_c58_a_task_is_never_sent_before_the_commit(store):
    """An eager worker looks for the row in the moment it is woken, half a second after the flush."""
    found: list[int] = []

    def wake(project_id: str) -> None:
        with Session(store.engine) as session:
            found.append(session.scalar(select(func.count()).where(ProjectRow.id == project_id)))

    project_id = new_id()
    with store.transaction() as tx:
        tx.accounts.add_project(Project(project_id, "Chest", False, datetime(2026, 3, 2, tzinfo=UTC)))
        tx.after_commit(lambda: wake(project_id))
        time.sleep(0.5)
        assert found == []
    assert found == [1]


def test_c58_a_rollback_sends_no_task(store):
    woken: list[str] = []

    def fail() -> None:
        with store.transaction() as tx:
            tx.accounts.add_project(Project(new_id(), "Chest", False, datetime(2026, 3, 2, tzinfo=UTC)))
            tx.after_commit(lambda: woken.append("x"))
            raise RuntimeError("after the flush")

    with pytest.raises(RuntimeError, match="after the flush"):
        fail()
    assert woken == []


WRITER = """
import sys, time
from datetime import UTC, datetime
from backend.domain.account import Project
from backend.store.repository import Store, new_id
store, until, written = Store(sys.argv[1]), time.monotonic() + float(sys.argv[2]), 0
while time.monotonic() < until:
    with store.transaction() as tx:
        tx.accounts.add_project(Project(new_id(), f"progress {written}", False, datetime.now(UTC)))
    written += 1
    time.sleep(0.05)
print(written)
"""


def test_c57_twenty_threads_and_a_worker_write_to_sqlite_and_nothing_is_lost(tmp_path):
    url = f"sqlite:///{tmp_path / 'c57.db'}"
    from backend.store.schema import upgrade

    upgrade(url)
    worker = subprocess.Popen([sys.executable, "-c", WRITER, url, "6"], stdout=subprocess.PIPE, text=True)
    store, errors, written = Store(url), [], [0] * 20
    until = time.monotonic() + 6

    def write(number: int) -> None:
        try:
            while time.monotonic() < until:
                # Read first and write later: without BEGIN IMMEDIATE this is what fails at once.
                with store.transaction() as tx:
                    tx.accounts.demo_project()
                    name = f"thread {number} row {written[number]}"
                    tx.accounts.add_project(Project(new_id(), name, False, datetime.now(UTC)))
                written[number] += 1
        except Exception as error:  # noqa: BLE001  (whatever a thread meets is what the test is about)
            errors.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    by_worker = int(worker.communicate(timeout=60)[0].split()[-1])

    assert errors == []
    assert min(written) > 0
    assert by_worker > 0
    with Session(store.engine) as session:
        assert session.scalar(select(func.count()).select_from(ProjectRow)) == sum(written) + by_worker
    store.close()
