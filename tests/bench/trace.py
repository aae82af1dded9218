"""From a stored event to the page: 20 runs at once, each followed by a stream of its own over real HTTP (SQLite).

A process of its own writes the events, as the runner does, and notes when each commit was done. The streams are read
in this process; both clocks are the machine's monotonic one. What a browser does with an event is not counted.
"""

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import httpx

from backend.services.context import utc_now
from tests.bench._web import clinic_with_web
from tests.bench.report import Metric, Spread, percentile
from tests.clinic import Clinic, read_stream
from tests.people import open_session
from tests.services import ROOT

RUNS = 20
EVENTS_PER_RUN = 25
# A run of a fast policy stores an event or two a second.
EVENT_EVERY_S = 0.4

_WRITER = """
import json, sys, threading, time
from backend.domain.trace import ModelSpoke, RunStopped, StopReason
from backend.services.context import utc_now
from backend.services.runs import StoredTrace, claim_run
from backend.settings import Settings
from backend.store.notify import open_notifier
from backend.store.repository import Store
settings, (runs, events, every_s) = Settings(), json.loads(sys.argv[1])
store, notifier = Store(settings.database), open_notifier(settings.database, settings.home)
text, lock = "word " * 100, threading.Lock()
def write(at):
    run = claim_run(owner=f"bench {at}", lease_s=600, store=store, clock=utc_now)
    sink = StoredTrace(run.id, owner=f"bench {at}", store=store, notifier=notifier, clock=utc_now)
    time.sleep(every_s * at / runs)
    for place in range(events):
        is_last = place == events - 1
        payload = RunStopped(reason=StopReason.ANSWERED) if is_last else ModelSpoke(text=text)
        sequence = sink.append(payload, parent=None, sampled=False).sequence
        stored = time.monotonic()
        with lock:
            print(json.dumps([run.id, sequence, stored]), flush=True)
        time.sleep(every_s)
threads = [threading.Thread(target=write, args=(at,)) for at in range(runs)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
"""


def run() -> dict[str, Metric]:
    """Milliseconds from an event's commit to its arrival, 95 of 100."""
    with tempfile.TemporaryDirectory(prefix="serpens-bench-") as folder:
        home = Path(folder)
        with clinic_with_web(home) as (clinic, url):
            delays_ms = _delays_ms(clinic, url)
    spread = Spread("min-max", min(delays_ms), max(delays_ms))
    return {
        "event_to_browser_p95_ms": Metric(percentile(delays_ms, 95), "ms", len(delays_ms), spread, target=100),
        "event_to_browser_p50_ms": Metric(percentile(delays_ms, 50), "ms", len(delays_ms), spread),
    }


def _delays_ms(clinic: Clinic, url: str) -> list[float]:
    series = clinic.ct()
    run_ids = [clinic.ask(series).id for _ in range(RUNS)]
    token, _ = open_session(clinic.store, clinic.actor, utc_now())
    received: dict[tuple[str, int], float] = {}
    ready = threading.Barrier(RUNS + 1)
    followers = [
        threading.Thread(target=_follow, args=(f"{url}/api/runs/{run_id}/events", token, run_id, received, ready))
        for run_id in run_ids
    ]
    for follower in followers:
        follower.start()
    ready.wait(60)
    stored = _written(clinic)
    for follower in followers:
        follower.join(60)
    missing = set(stored) - set(received)
    if missing or len(stored) != RUNS * EVENTS_PER_RUN:
        raise RuntimeError(f"{len(stored)} events were stored and {len(missing)} of them never arrived")
    return [1000 * max(0.0, received[place] - stored[place]) for place in stored]


def _written(clinic: Clinic) -> dict[tuple[str, int], float]:
    """Run and sequence of every event, and when its commit was done."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SERPENS_")}
    environment |= {"SERPENS_HOME": str(clinic.services.settings.home), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", _WRITER, json.dumps([RUNS, EVENTS_PER_RUN, EVENT_EVERY_S])]
    wrote = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    lines = [json.loads(line) for line in wrote.stdout.splitlines() if line.startswith("[")]
    return {(run_id, sequence): at for run_id, sequence, at in lines}


def _follow(
    address: str, token: str, run_id: str, received: dict[tuple[str, int], float], ready: threading.Barrier
) -> None:
    headers = {"Authorization": f"Bearer {token}"}
    with (
        httpx.Client(headers=headers, trust_env=False, timeout=60) as client,
        client.stream("GET", address) as answer,
    ):
        lines = answer.iter_lines()
        next(lines)
        ready.wait(60)
        for sent in read_stream(lines):
            if sent.id is not None:
                received[run_id, sent.id] = time.monotonic()
