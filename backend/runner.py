"""The runner process: takes runs under a lease and works them off, several at a time.

The rows are the truth. A runner that is killed leaves its leases to expire, and the next one goes on from the last
stored event; one that is stopped in order gives its runs back at once.
"""

import signal
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import structlog

from backend.agent.loop import RunQuestion
from backend.agent.loop import run as run_agent
from backend.agent.openai_policy import Endpoint, OpenAIPolicy
from backend.agent.policy import Policy
from backend.agent.scripted import ScriptedPolicy
from backend.domain.errors import Misconfigured, PlatformError
from backend.domain.trace import PolicyBody, Run, RunStopped, StopReason
from backend.services import runs
from backend.services.context import Services, open_services
from backend.services.run_workbench import ClinicWorkbench
from backend.settings import Settings
from backend.store.runs import LeaseLost
from backend.store.sql import is_transient

log = structlog.get_logger(__name__)

IDLE_S = 0.1
RETRY_S = 1.0
# The supervisor gives a process 5 s to stop; what is not at a step's end by then is given back as it is.
STOP_GRACE_S = 3.0
CANCEL_CHECK_S = 0.25


@dataclass(frozen=True, slots=True)
class _Claim:
    run: Run
    owner: str


@dataclass
class Runner:
    """Works off runs until it is told to stop.

    Attributes:
        policy: Who answers; one policy serves every run of this process.
        threads: How many runs at a time.
    """

    services: Services
    policy: Policy
    threads: int
    owner: str = field(default_factory=lambda: uuid.uuid4().hex)

    def __post_init__(self) -> None:
        self._stopping, self._stopped = threading.Event(), threading.Event()
        # A name of its own for each claim: a run that this process lost and took again is held by the second alone.
        self._held: set[str] = set()
        self._lock = threading.Lock()

    def stop(self) -> None:
        """Take no further run; those at work end at their next step and are given back."""
        self._stopping.set()

    def serve(self) -> None:
        """Work until `stop`. A run that is in the middle of something long then is given back under its feet."""
        heartbeat = threading.Thread(target=self._heartbeat, name="run-heartbeat", daemon=True)
        heartbeat.start()
        slots = threading.Semaphore(self.threads)
        pool = ThreadPoolExecutor(self.threads, thread_name_prefix="run")
        while not self._stopping.is_set():
            if not slots.acquire(timeout=IDLE_S):
                continue
            claimed = self._claim_or_wait()
            if claimed is None:
                slots.release()
            else:
                pool.submit(self._work, claimed).add_done_callback(lambda _: slots.release())
        self._wait_for_work()
        self._stopped.set()
        heartbeat.join()
        runs.release_runs(self._now_held(), store=self.services.store)
        pool.shutdown(wait=False)

    def work_one(self) -> bool:
        """Take one run and work it off in this thread; whether there was one."""
        claimed = self._claim()
        if claimed is None:
            return False
        self._work(claimed)
        return True

    def _claim_or_wait(self) -> _Claim | None:
        """A run, or None after a moment where there is none or the database does not answer."""
        try:
            claimed = self._claim()
        except Exception as error:
            if not is_transient(error):
                raise
            log.warning("run_claim_failed", error=type(error).__name__)
            self._stopping.wait(RETRY_S)
            return None
        if claimed is None:
            self._stopping.wait(IDLE_S)
        return claimed

    def _claim(self) -> _Claim | None:
        services = self.services
        owner = f"{self.owner}:{uuid.uuid4().hex}"
        run = runs.claim_run(owner=owner, lease_s=services.settings.lease_s, store=services.store, clock=services.clock)
        if run is None:
            return None
        with self._lock:
            self._held.add(owner)
        return _Claim(run, owner)

    def _now_held(self) -> list[str]:
        with self._lock:
            return list(self._held)

    def _wait_for_work(self) -> None:
        deadline_s = time.monotonic() + STOP_GRACE_S
        while self._now_held() and time.monotonic() < deadline_s:
            time.sleep(IDLE_S / 2)

    def _heartbeat(self) -> None:
        services = self.services
        lease_s = services.settings.lease_s
        while not self._stopped.wait(lease_s / 4):
            try:
                runs.hold_runs(self._now_held(), lease_s=lease_s, store=services.store, clock=services.clock)
            except Exception as error:  # noqa: BLE001  (without this thread every run of the process loses its lease)
                # The lease outlives three of these; beyond that another runner takes over, and writes are fenced.
                tell = log.warning if is_transient(error) else log.error
                tell("run_heartbeat_failed", error=type(error).__name__)

    def _work(self, claimed: _Claim) -> None:
        """One run to its end, or to where it is left. What cannot even be recorded is left to the lease."""
        with structlog.contextvars.bound_contextvars(run_id=claimed.run.id):
            try:
                self._work_off(claimed)
            except Exception as error:
                if not is_transient(error):
                    log.error("run_abandoned", error=type(error).__name__)
                    raise
                log.warning("run_left_to_its_lease", error=type(error).__name__)
            finally:
                with self._lock:
                    self._held.discard(claimed.owner)

    def _work_off(self, claimed: _Claim) -> None:
        try:
            self._loop(claimed)
        except LeaveRun:
            runs.release_runs([claimed.owner], store=self.services.store)
            log.info("run_given_back")
        except LeaseLost:
            log.warning("run_lease_lost")
        except Exception as error:
            if is_transient(error):
                raise
            self._record_failure(claimed, error)

    def _loop(self, held: _Claim) -> StopReason:
        services, claimed = self.services, held.run
        sink = self._sink(held)
        if runs.is_worn_out(claimed.id, store=services.store):
            raise RunnerLost(f"run {claimed.id} was taken up more than {runs.MAX_ATTEMPTS} times and never ended")
        _, events = runs.events_of_run(claimed.id, after=0, store=services.store)
        return run_agent(
            RunQuestion(
                claimed.question,
                claimed.asked_by,
                claimed.options,
                history=tuple(runs.history_of(claimed, store=services.store)),
                correction=claimed.correction,
            ),
            events_so_far=events,
            policy=self.policy,
            segmenter=services.segmenter,
            workbench=ClinicWorkbench(claimed, services=services),
            sink=sink,
            clock=services.clock,
            should_cancel=CancelCheck(claimed.id, services, self._stopping),
            limits=claimed.limits,
        )

    def _sink(self, held: _Claim) -> runs.StoredTrace:
        services = self.services
        return runs.StoredTrace(
            held.run.id, owner=held.owner, store=services.store, notifier=services.notifier, clock=services.clock
        )

    def _record_failure(self, claimed: _Claim, error: Exception) -> None:
        # The type and not the text: an exception's text may quote what a file or a person says.
        code = error.code if isinstance(error, PlatformError) else "internal_error"
        log.error("run_failed", error=type(error).__name__, code=code)
        message = f"an error of the kind {code} ended the run"
        try:
            self._sink(claimed).append(
                RunStopped(reason=StopReason.FAILED, message=message, error_code=code), parent=None, sampled=False
            )
        except LeaseLost:
            log.warning("run_lease_lost")


class LeaveRun(BaseException):
    """This process is stopping: leave the run as it is stored, so that another goes on with it.

    No `Exception`, so that nothing on the way out takes it for a failure of the run.
    """


class RunnerLost(PlatformError):
    """A run whose runner dies each time that it is taken up."""

    code = "runner_lost"


class CancelCheck:
    """Whether somebody asked this run to stop, looked up at most every `CANCEL_CHECK_S`. Once yes, it stays yes."""

    def __init__(self, run_id: str, services: Services, stopping: threading.Event) -> None:
        self._run_id, self._services, self._stopping = run_id, services, stopping
        self._next_look_s = 0.0
        self._is_requested = False

    def __call__(self) -> bool:
        """True to stop. Raises `LeaveRun` where the process itself stops."""
        if self._stopping.is_set():
            raise LeaveRun
        now_s = time.monotonic()
        if not self._is_requested and now_s >= self._next_look_s:
            self._next_look_s = now_s + CANCEL_CHECK_S
            self._is_requested = runs.is_cancel_requested(self._run_id, store=self._services.store)
        return self._is_requested


def open_policy(settings: Settings) -> Policy:
    """The policy that the settings name: an OpenAI-compatible server, or the demonstration policy.

    Raises:
        Misconfigured: A server without a model's name.
    """
    if settings.policy_url is None:
        return ScriptedPolicy()
    if not settings.policy_model:
        raise Misconfigured("SERPENS_POLICY_URL needs SERPENS_POLICY_MODEL, the name under which the model is served")
    endpoint = Endpoint(settings.policy_url, settings.policy_model, api_key=settings.policy_api_key.get_secret_value())
    body = PolicyBody(name=settings.policy_model, version="served", coordinates=settings.policy_coordinates)
    return OpenAIPolicy(endpoint, body=body)


def serve(settings: Settings) -> None:
    """The runner process: build what it works with and work until SIGTERM or SIGINT."""
    services = open_services(settings)
    runner = Runner(services, open_policy(settings), threads=settings.runner_threads)
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda *_: runner.stop())
    log.info("runner_started", owner=runner.owner, policy=runner.policy.body.name)
    runner.serve()
    services.store.close()
