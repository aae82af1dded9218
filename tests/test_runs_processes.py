"""kill -9 of the runner, the segmenter and the web process while a run is at work: real processes, real signals.

What must hold: the run goes on or ends in a named state, its events have no gap, and every judgement that was
acknowledged is there.
"""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx
import pytest

from backend.domain.trace import Run, RunState, StopReason
from backend.services.context import utc_now
from backend.settings import Settings
from backend.store.repository import new_id
from backend.supervisor import child_environment
from tests.clinic import Clinic, say
from tests.openai_stub import StubOfOpenAIServer
from tests.openai_stub import served as policy_served
from tests.people import open_session
from tests.services import ROOT, end_with_parent, free_port

LEASE_S = 2.0
# Imports take their time where a machine is busy.
START_S = 150.0
# The policy sees the 6 x 4 pixels of a frame at 14 times their size: x 1 to 4, y 1 to 3 of the frame.
BOX = say("sam2", index=1, bbox_2d=[14, 14, 56, 42], label="nodule")
RUNNER = "from backend.cli import main; import sys; sys.argv = ['serpens', 'runner']; main()"
# The API as the web process has it; the pages take seconds to import and are not what this is about.
WEB = """
import uvicorn
from backend.main import create_app
from backend.settings import Settings
settings = Settings()
uvicorn.run(create_app(settings), port=settings.port, log_config=None, access_log=False)
"""
SLOW_SEGMENTER = """
import time, uvicorn
from annotation.service import create_service
from backend.settings import Settings
from tests.fakes import BoxSegmenter
class Slow(BoxSegmenter):
    def segment(self, picture, prompt):
        time.sleep(60)
settings = Settings()
uvicorn.run(create_service(Slow(), settings), port=settings.segmenter_port, log_config=None, access_log=False)
"""


class Processes:
    """Real processes on one database, and a policy server of our own."""

    def __init__(self, clinic: Clinic, settings: Settings, policy: StubOfOpenAIServer, stack: ExitStack) -> None:
        self.clinic, self.policy, self.stack = clinic, policy, stack
        self.settings = settings.model_copy(
            update={
                "policy_url": policy.base_url,
                "policy_model": "m1",
                "lease_s": LEASE_S,
                "port": free_port(),
                "segmenter_port": free_port(),
            }
        )

    def start(self, script: str) -> subprocess.Popen[bytes]:
        environment = child_environment(self.settings) | {"PYTHONPATH": str(ROOT)}
        process = subprocess.Popen(
            [sys.executable, "-c", script],
            env=environment,
            cwd=self.settings.home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=end_with_parent(signal.SIGKILL),
        )
        self.stack.callback(_ended, process)
        return process

    def start_web(self) -> subprocess.Popen[bytes]:
        process = self.start(WEB)
        soon(lambda: _answers(f"http://127.0.0.1:{self.settings.port}/healthz"), within_s=START_S)
        return process

    def start_segmenter(self) -> subprocess.Popen[bytes]:
        process = self.start(SLOW_SEGMENTER)
        soon(lambda: _answers(f"http://127.0.0.1:{self.settings.segmenter_port}/healthz"), within_s=START_S)
        return process

    def stopped(self, run: Run) -> Run:
        soon(lambda: self.clinic.run(run.id).state is RunState.STOPPED)
        assert self.clinic.kinds(run.id).count("RunStopped") == 1
        return self.clinic.run(run.id)


def soon(condition: Callable[[], Any], within_s: float = 60) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, trust_env=False).status_code < 500  # the segmenter answers 401 without its token
    except httpx.TransportError:
        return False


def _ended(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def kill(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait(10)


@contextmanager
def _processes(clinic: Clinic, settings: Settings) -> Iterator[Processes]:
    with policy_served(StubOfOpenAIServer([BOX])) as policy, ExitStack() as stack:
        yield Processes(clinic, settings, policy, stack)


@pytest.fixture
def processes(store, blobs, settings, actor) -> Iterator[Processes]:
    with _processes(Clinic(store, blobs, settings, utc_now, actor), settings) as started:
        yield started


def test_kill_9_of_the_runner_while_the_policy_speaks_and_the_next_one_goes_on(processes: Processes) -> None:
    clinic, policy = processes.clinic, processes.policy
    policy.silent_after = 0
    runner = processes.start(RUNNER)
    run = clinic.ask(clinic.ct())
    soon(lambda: policy.requests)
    before = clinic.events(run.id)
    assert [event.payload.kind for event in before] == ["QuestionAsked", "ImageShown"]
    kill(runner)
    policy.silent_after, policy.pieces = None, ["<answer>It is there.</answer>"]
    processes.start(RUNNER)
    assert processes.stopped(run).stop_reason is StopReason.ANSWERED
    assert clinic.events(run.id)[:2] == before
    assert clinic.kinds(run.id)[2:] == ["ModelSpoke", "AnswerGiven", "RunStopped"]


def test_kill_9_of_the_segmenter_ends_the_run_by_name_and_its_runner_works_on(processes: Processes) -> None:
    clinic = processes.clinic
    segmenter = processes.start_segmenter()
    processes.start(RUNNER)
    run = clinic.ask(clinic.ct())
    soon(lambda: "ToolCalled" in clinic.kinds(run.id))
    time.sleep(0.3)
    kill(segmenter)
    stopped = processes.stopped(run)
    assert stopped.stop_reason is StopReason.FAILED
    assert clinic.kinds(run.id)[2:5] == ["ModelSpoke", "ToolCalled", "ToolFailed"]
    assert clinic.events(run.id)[-1].payload.error_code == "segmenter_unavailable"
    processes.policy.pieces = ["<answer>No.</answer>"]
    assert processes.stopped(clinic.ask(clinic.ct())).stop_reason is StopReason.ANSWERED


def test_kill_9_of_runner_and_segmenter_in_a_tool_call_repeats_the_call_and_stores_nothing_twice(
    processes: Processes,
) -> None:
    clinic = processes.clinic
    segmenter, runner = processes.start_segmenter(), processes.start(RUNNER)
    run = clinic.ask(clinic.ct())
    soon(lambda: "ToolCalled" in clinic.kinds(run.id))
    kill(runner)
    kill(segmenter)
    before = clinic.events(run.id)
    processes.policy.pieces = ["<answer>No.</answer>"]
    processes.start(RUNNER)
    assert processes.stopped(run).stop_reason is StopReason.ANSWERED
    assert clinic.events(run.id)[: len(before)] == before
    assert clinic.kinds(run.id)[len(before) :] == ["ToolFailed", "ModelSpoke", "AnswerGiven", "RunStopped"]


def test_sigterm_of_the_runner_gives_the_run_back_at_once(processes: Processes) -> None:
    clinic, policy = processes.clinic, processes.policy
    policy.silent_after = 0
    runner = processes.start(RUNNER)
    run = clinic.ask(clinic.ct())
    soon(lambda: policy.requests)
    runner.terminate()
    soon(lambda: clinic.run(run.id).state is RunState.QUEUED, within_s=LEASE_S + 3)
    assert runner.wait(10) == 0


def test_kill_9_of_the_web_process_loses_no_acknowledged_judgement_and_stops_no_run(processes: Processes) -> None:
    clinic, policy = processes.clinic, processes.policy
    policy.pieces = ["<answer>It is there.</answer>"]
    processes.start(RUNNER)
    judged = processes.stopped(clinic.ask(clinic.ct()))
    policy.silent_after = 0
    seen = len(policy.requests)
    running = clinic.ask(clinic.ct())
    soon(lambda: len(policy.requests) > seen)
    web = processes.start_web()
    token, _ = open_session(clinic.store, clinic.actor, utc_now())
    headers, url = {"Authorization": f"Bearer {token}"}, f"http://127.0.0.1:{processes.settings.port}"
    address = f"{url}/api/runs/{judged.id}/feedback"
    acknowledged: list[str] = []
    unanswered: list[str] = []

    def judge() -> None:
        with httpx.Client(headers=headers, trust_env=False, timeout=10) as client:
            while True:
                key = new_id()
                try:
                    answer = client.post(address, json={"target": "trace", "verdict": "accept", "request_key": key})
                except httpx.TransportError:
                    unanswered.append(key)
                    return
                acknowledged.append(answer.json()["id"])

    judging = [threading.Thread(target=judge) for _ in range(4)]
    for thread in judging:
        thread.start()
    soon(lambda: len(acknowledged) >= 40)
    kill(web)
    for thread in judging:
        thread.join(20)
    processes.start_web()
    with httpx.Client(headers=headers, trust_env=False, timeout=30) as client:
        stored = [one["id"] for one in client.get(address).json()["feedback"]]
        assert set(acknowledged) <= set(stored)
        assert len(stored) <= len(acknowledged) + len(unanswered)
        again = [
            client.post(address, json={"target": "trace", "verdict": "accept", "request_key": key}).json()["id"]
            for key in unanswered
        ]
        stored = [one["id"] for one in client.get(address).json()["feedback"]]
        assert sorted(stored) == sorted({*acknowledged, *again})
        assert clinic.run(running.id).state is RunState.RUNNING
        assert client.post(f"{url}/api/runs/{running.id}/cancel").status_code == 200
        assert processes.stopped(running).stop_reason is StopReason.CANCELLED
        with client.stream("GET", f"{url}/api/runs/{running.id}/events") as answer:
            sent = answer.read().decode()
        assert f"id: {clinic.run(running.id).event_count}\n" in sent
        assert sent.endswith("event: end\ndata: {}\n\n")
