"""`serpens run`: prepares home and database, starts the processes, keeps them up and stops them all.

Each child leads a process group of its own. It ends with this process in three ways: by SIGTERM when we stop, by the
kernel's parent-death signal when we are killed (Linux), and by end-of-file on its standard input, the read end of a
pipe whose write end only we hold (everywhere). `end_with_parent` is the child's half.

Nothing heavy is imported here: a start waits for the web process and for nothing else.
"""

import ctypes
import errno
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import structlog
from pydantic import SecretStr

from backend.domain.errors import Misconfigured, PlatformError
from backend.settings import Settings

log = structlog.get_logger(__name__)

STOP_GRACE_S = 5.0
POLL_S = 0.1
HEALTH_TIMEOUT_S = 300.0
# A child that lived longer than this had started well: its end is an accident and not a bad start.
STARTED_WELL_S = 10.0
MAX_FAST_FAILURES = 5
FIRST_BACKOFF_S = 0.5
MAX_BACKOFF_S = 8.0

PR_SET_PDEATHSIG = 1


class ProcessKeepsFailing(PlatformError):
    """A process ended several times soon after its start; its own last lines say why."""

    code = "process_keeps_failing"


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """One process to keep up."""

    name: str
    command: tuple[str, ...]


def serpens_process(name: str) -> ProcessSpec:
    """The process that `serpens NAME` runs."""
    return ProcessSpec(name, (sys.executable, "-m", "backend.cli", "--end-with-parent", name))


PROCESSES = tuple(serpens_process(name) for name in ("web", "worker", "runner", "segmenter"))


@dataclass
class _Child:
    spec: ProcessSpec
    process: subprocess.Popen[bytes] | None = None
    started_at: float = 0.0
    restart_at: float = 0.0
    fast_failures: int = 0
    groups: set[int] = field(default_factory=set)


class Supervisor:
    """Keeps processes up until it is told to stop."""

    def __init__(self, specs: Sequence[ProcessSpec], *, environment: dict[str, str]) -> None:
        self._children = [_Child(spec) for spec in specs]
        self._environment = environment
        self._lifeline, self._held_end = os.pipe()

    def start(self) -> None:
        """Start every process."""
        for child in self._children:
            self._spawn(child)

    def check(self) -> None:
        """Start again what has ended, after a pause that grows.

        Raises:
            ProcessKeepsFailing: If one ended `MAX_FAST_FAILURES` times in a row soon after its start.
        """
        now = time.monotonic()
        for child in self._children:
            if child.process is None:
                if now >= child.restart_at:
                    self._spawn(child)
            elif (status := child.process.poll()) is not None:
                self._note_end(child, status, now)

    def stop(self) -> None:
        """End every process and whatever it started: SIGTERM, and SIGKILL after `STOP_GRACE_S`."""
        self._signal_all(signal.SIGTERM)
        deadline = time.monotonic() + STOP_GRACE_S
        for child in self._children:
            if child.process is not None:
                try:
                    child.process.wait(max(0.0, deadline - time.monotonic()))
                except subprocess.TimeoutExpired:
                    log.warning("process_killed", process=child.spec.name)
        # Also where the leader has ended: a group may hold a process that it left behind.
        self._signal_all(signal.SIGKILL)
        for child in self._children:
            if child.process is not None:
                child.process.wait()
        for end in (self._lifeline, self._held_end):
            os.close(end)

    def _spawn(self, child: _Child) -> None:
        child.process = subprocess.Popen(
            child.spec.command, stdin=self._lifeline, env=self._environment, process_group=0
        )
        child.started_at = time.monotonic()
        child.groups.add(child.process.pid)

    def _note_end(self, child: _Child, status: int, now: float) -> None:
        child.process = None
        lived_s = now - child.started_at
        child.fast_failures = child.fast_failures + 1 if lived_s < STARTED_WELL_S else 1
        if child.fast_failures >= MAX_FAST_FAILURES:
            raise ProcessKeepsFailing(
                f"the process {child.spec.name} ended {child.fast_failures} times within {STARTED_WELL_S:.0f} s of its "
                f"start, last with status {status}; its own lines above say why"
            )
        pause_s = min(FIRST_BACKOFF_S * 2 ** (child.fast_failures - 1), MAX_BACKOFF_S)
        child.restart_at = now + pause_s
        log.warning(
            "process_ended", process=child.spec.name, status=status, lived_s=round(lived_s, 1), again_in_s=pause_s
        )

    def _signal_all(self, number: signal.Signals) -> None:
        for child in self._children:
            for group in child.groups:
                try:
                    os.killpg(group, number)
                except ProcessLookupError:
                    continue  # nobody is left in this group


def run(settings: Settings, *, tell: Callable[[str], None] = print) -> None:
    """Prepare, serve until SIGINT, SIGTERM or SIGHUP, and leave no process behind.

    Raises:
        Misconfigured: If a setting cannot be honoured: demo mode beyond loopback, a port in use, no database.
        ProcessKeepsFailing: If a process cannot be kept up; the others are stopped before it is raised.
    """
    from backend.services.accounts import require_safe_demo
    from backend.store.schema import upgrade

    require_safe_demo(settings)
    settings = _with_free_ports(settings)
    with _stop_signals() as is_stopping:
        settings.make_home()
        upgrade(settings.database)
        supervisor = Supervisor(PROCESSES, environment=child_environment(settings))
        try:
            # The web process takes its seconds to import; people and samples are there before the address is told.
            supervisor.start()
            prepare(settings, tell=tell)
            _keep_up(supervisor, settings, is_stopping, tell)
        finally:
            supervisor.stop()
    tell("Serpens has stopped.")


def prepare(settings: Settings, *, tell: Callable[[str], None]) -> None:
    """Make the first admin, or in demo mode the sample people and studies. Safe to repeat."""
    from backend.services import accounts
    from backend.services.context import utc_now
    from backend.store.blobs import DirectoryBlobs
    from backend.store.repository import Store

    store = Store(settings.database)
    try:
        password = accounts.ensure_first_admin(store=store, settings=settings, clock=utc_now)
        if password is not None:
            tell(f"First start: sign in as {accounts.FIRST_ADMIN} with the password {password}")
            tell("It is shown this once. `serpens users reset-password admin` makes another.")
        project_id = accounts.ensure_demo_people(store=store, settings=settings, clock=utc_now)
        if project_id is not None:
            from backend.services.samples import load_samples

            blobs = DirectoryBlobs(settings.blobs)
            load_samples(project_id, store=store, blobs=blobs, settings=settings, clock=utc_now)
    finally:
        store.close()


def child_environment(settings: Settings) -> dict[str, str]:
    """This process's environment with the settings in use, so that every process has the same."""
    environment = dict(os.environ)
    for name in type(settings).model_fields:
        value, variable = getattr(settings, name), f"SERPENS_{name.upper()}"
        if value is None:
            environment.pop(variable, None)
        else:
            environment[variable] = _as_text(value)
    environment["SERPENS_HOME"] = str(settings.home.resolve())
    return environment


def _as_text(value: object) -> str:
    """A setting as the environment holds it: plain text, `true` or `false`, a list as JSON, a secret as it is."""
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    return str(value) if isinstance(value, (str, Path)) else json.dumps(value)


def _with_free_ports(settings: Settings) -> Settings:
    """The settings with ports that can be bound now; port 0 becomes a free one."""
    ports = {"port": _free_port(settings.host, settings.port, "")}
    if settings.segmenter_url is None:
        ports["segmenter_port"] = _free_port(settings.segmenter_host, settings.segmenter_port, "SEGMENTER_")
    return settings.model_copy(update=ports)


def _free_port(host: str, port: int, prefix: str) -> int:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host.strip("[]"), port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise Misconfigured(
                    f"port {port} on {host} is in use, perhaps by another Serpens; "
                    f"set SERPENS_{prefix}PORT to a free one"
                ) from error
            raise Misconfigured(
                f"cannot listen on {host}, port {port}: {error.strerror}; "
                f"SERPENS_{prefix}HOST and SERPENS_{prefix}PORT name them"
            ) from error
        return int(probe.getsockname()[1])


@contextmanager
def _stop_signals() -> Iterator[Callable[[], bool]]:
    """Turn SIGINT, SIGTERM and SIGHUP into a claim that the loop asks for; the old handlers come back at the end."""
    stopping = False

    def note(_number: int, _frame: FrameType | None) -> None:
        nonlocal stopping
        stopping = True

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, note) for number in numbers]
    try:
        yield lambda: stopping
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def _keep_up(
    supervisor: Supervisor, settings: Settings, is_stopping: Callable[[], bool], tell: Callable[[str], None]
) -> None:
    began, is_told = time.monotonic(), False
    while not is_stopping():
        supervisor.check()
        if not is_told and _answers(settings):
            is_told = True
            tell(f"Serpens is at {address(settings)}  (Ctrl-C stops it; research use, not for diagnosis)")
        elif not is_told and time.monotonic() - began > HEALTH_TIMEOUT_S:
            raise ProcessKeepsFailing(f"the web process does not answer within {HEALTH_TIMEOUT_S:.0f} s")
        time.sleep(POLL_S)


def address(settings: Settings) -> str:
    """Where a browser on this machine finds the web process."""
    return f"http://{_reachable_host(settings)}:{settings.port}"


def _reachable_host(settings: Settings) -> str:
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(settings.host, settings.host)
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def _answers(settings: Settings) -> bool:
    connection = http.client.HTTPConnection(_reachable_host(settings).strip("[]"), settings.port, timeout=2)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False  # not up yet
    finally:
        connection.close()


def end_with_parent() -> None:
    """Let this process end when the supervisor does, which holds the other end of our standard input."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
    threading.Thread(target=_watch_lifeline, name="lifeline", daemon=True).start()


def _watch_lifeline() -> None:
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(STOP_GRACE_S)
    # What SIGTERM did not end holds a port and a lease that the next start needs.
    os._exit(1)
