"""`serpens run` with real processes: it keeps them up, and whatever happens to it none is left behind."""

import http.client
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from backend import supervisor as supervising
from backend.domain.errors import Misconfigured
from backend.settings import Settings
from backend.supervisor import ProcessKeepsFailing, ProcessSpec, Supervisor
from tests import services

# Notes its process id and waits. `END` is the child's half of ending with the supervisor.
WAIT = "import os, sys, time; open(sys.argv[1], 'a').write(f'{os.getpid()}\\n'); {end}; time.sleep(600)"
END = "from backend.supervisor import end_with_parent; end_with_parent()"
END_WITHOUT_KERNEL = f"import backend.supervisor; sys.platform = 'other'; {END}"
# Ignores SIGTERM and leaves a grandchild in its group.
STUBBORN = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])  # an ignored signal is inherited
open(sys.argv[1], "a").write(f"{os.getpid()}\\n{other.pid}\\n")
time.sleep(600)
"""


def waiting(notes: Path, end: str = "pass") -> ProcessSpec:
    return ProcessSpec("waiting", (sys.executable, "-c", WAIT.replace("{end}", end), str(notes)))


def pids(notes: Path) -> list[int]:
    return [int(line) for line in notes.read_text().split()] if notes.exists() else []


def is_alive(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status")
    # A zombie has ended; it only waits for its new parent to read its status.
    return status.exists() and "State:\tZ" not in status.read_text()


def wait_until(condition: Callable[[], object], timeout_s: float = 30) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.05)


@pytest.fixture
def supervise() -> Iterator[Callable[..., Supervisor]]:
    """Starts supervisors and stops them at the end."""
    running: list[Supervisor] = []

    def start(*specs: ProcessSpec) -> Supervisor:
        running.append(Supervisor(specs, environment=dict(os.environ)))
        running[-1].start()
        return running[-1]

    yield start
    for supervisor in running:
        supervisor.stop()


def test_a_process_that_dies_is_started_again(supervise, tmp_path):
    notes = tmp_path / "pids"
    supervisor = supervise(waiting(notes))
    wait_until(lambda: pids(notes))
    os.kill(pids(notes)[0], signal.SIGKILL)

    def is_back() -> bool:
        supervisor.check()
        return len(pids(notes)) == 2

    wait_until(is_back)
    assert is_alive(pids(notes)[1])


def test_a_process_that_never_starts_well_is_given_up_with_a_reason(supervise, monkeypatch):
    monkeypatch.setattr(supervising, "FIRST_BACKOFF_S", 0.01)
    supervisor = supervise(ProcessSpec("web", (sys.executable, "-c", "raise SystemExit(3)")))

    def check_for_ever() -> None:
        while True:
            supervisor.check()
            time.sleep(0.01)

    with pytest.raises(ProcessKeepsFailing, match=r"web ended 5 times .* status 3"):
        check_for_ever()


def test_stop_ends_what_ignores_sigterm_and_what_that_started(supervise, tmp_path, monkeypatch):
    monkeypatch.setattr(supervising, "STOP_GRACE_S", 0.5)
    notes = tmp_path / "pids"
    supervisor = Supervisor(
        [ProcessSpec("stubborn", (sys.executable, "-c", STUBBORN, str(notes)))], environment=dict(os.environ)
    )
    supervisor.start()
    wait_until(lambda: len(pids(notes)) == 2)

    supervisor.stop()

    wait_until(lambda: not any(is_alive(pid) for pid in pids(notes)), timeout_s=5)


@pytest.mark.parametrize("end", [END, END_WITHOUT_KERNEL], ids=["kernel", "pipe"])
def test_processes_end_when_the_supervisor_is_killed(tmp_path, end):
    notes = tmp_path / "pids"
    code = (
        "import os, sys, time\n"
        "from backend.supervisor import ProcessSpec, Supervisor\n"
        "Supervisor([ProcessSpec('waiting', tuple(sys.argv[1:]))], environment=dict(os.environ)).start()\n"
        "time.sleep(600)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code, *waiting(notes, end).command])
    wait_until(lambda: pids(notes))
    time.sleep(1.0)  # the child has noted itself and now watches
    assert is_alive(pids(notes)[0])

    parent.kill()
    parent.wait()

    wait_until(lambda: not is_alive(pids(notes)[0]), timeout_s=supervising.STOP_GRACE_S + 5)


def test_a_port_in_use_is_refused_by_the_settings_name(tmp_path):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(Misconfigured, match=rf"port {port} .* in use.* SERPENS_PORT"):
            supervising.run(Settings(_env_file=None, home=tmp_path / "home", port=port))
    assert not (tmp_path / "home").exists()


def test_demo_mode_is_refused_beyond_loopback(tmp_path):
    with pytest.raises(Misconfigured, match="SERPENS_HOST"):
        supervising.run(Settings(_env_file=None, home=tmp_path / "home", host="0.0.0.0", demo=True))
    assert not (tmp_path / "home").exists()


def test_every_process_gets_the_settings_in_use(tmp_path, monkeypatch):
    monkeypatch.setenv("SERPENS_PORT", "1")
    monkeypatch.setenv("SERPENS_BROKER_URL", "redis://elsewhere")
    settings = Settings(
        _env_file=None,
        home=tmp_path,
        port=7861,
        broker_url=None,
        demo=True,
        public_origins=("https://serpens.example",),
    )

    environment = supervising.child_environment(settings)

    for name in [name for name in os.environ if name.startswith("SERPENS_")]:
        monkeypatch.delenv(name)
    for name, value in environment.items():
        if name.startswith("SERPENS_"):
            monkeypatch.setenv(name, value)
    assert Settings(_env_file=None) == settings


def test_the_supervisor_imports_nothing_heavy():
    code = (
        "import sys, backend.supervisor\n"
        "from backend.services import accounts\n"
        "from backend.store import schema\n"
        "print([name for name in ('torch', 'gradio', 'fastapi', 'transformers', 'pydicom') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


def test_the_web_process_imports_no_torch(tmp_path):
    code = (
        "import sys\n"
        "from app.main import create_web\n"
        "from backend.settings import Settings\n"
        "create_web(Settings(_env_file=None, home=sys.argv[1]))\n"
        "print(sorted({name.partition('.')[0] for name in sys.modules} & {'torch', 'transformers', 'torchvision'}))"
    )
    ran = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True)
    assert ran.stdout.strip().endswith("[]"), ran.stderr


class Running:
    """A real `serpens run` in a home of its own."""

    def __init__(self, home: Path, **environment: str) -> None:
        self.port = services.free_port()
        self.output = home.parent / "output"
        variables = {
            **os.environ,
            "SERPENS_HOME": str(home),
            "SERPENS_PORT": str(self.port),
            "SERPENS_SEGMENTER_PORT": "0",
            **environment,
        }
        self.started_at = time.monotonic()
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "backend.cli", "run"],
                cwd=services.ROOT,
                env=variables,
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    def told(self) -> str:
        return self.output.read_text(errors="replace")

    def wait_until_it_serves(self) -> float:
        """Seconds from the start to the printed address."""

        def serves() -> bool:
            assert self.process.poll() is None, self.told()
            return f"Serpens is at http://127.0.0.1:{self.port}" in self.told()

        wait_until(serves, timeout_s=supervising.HEALTH_TIMEOUT_S)
        return time.monotonic() - self.started_at

    def children(self) -> dict[str, int]:
        """Name -> process id of every process that it started."""
        found = {}
        for status in Path("/proc").glob("[0-9]*/status"):
            try:
                fields = dict(re.findall(r"^(\w+):\s*(.*)$", status.read_text(), re.MULTILINE))
                command = status.with_name("cmdline").read_text().split("\0")
            except (FileNotFoundError, ProcessLookupError):
                continue
            if fields["PPid"] == str(self.process.pid):
                found[command[-2]] = int(fields["Pid"])
        return found

    def healthz(self) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("GET", "/healthz")
            return connection.getresponse().status
        except OSError:
            return 0
        finally:
            connection.close()


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    """Starts `serpens run` and makes sure that it is gone at the end."""
    started: list[Running] = []

    def start(**environment: str) -> Running:
        started.append(Running(tmp_path / "home", **environment))
        return started[-1]

    yield start
    for running in started:
        children = running.children()
        if running.process.poll() is None:
            running.process.kill()
            running.process.wait()
        for pid in children.values():
            if is_alive(pid):
                os.kill(pid, signal.SIGKILL)


@pytest.mark.timeout(900)  # three starts of every process, on a machine that may be busy with the other tests
def test_run_serves_survives_a_killed_web_process_and_stops_without_a_trace(run):
    running = run()
    running.wait_until_it_serves()
    assert running.healthz() == 200
    assert re.search(r"sign in as admin with the password \S{12,}", running.told())
    children = running.children()
    assert set(children) == {spec.name for spec in supervising.PROCESSES}

    os.kill(children["web"], signal.SIGKILL)
    wait_until(lambda: running.healthz() == 0)
    wait_until(lambda: running.healthz() == 200, timeout_s=supervising.HEALTH_TIMEOUT_S)

    children = running.children()
    stopping_at = time.monotonic()
    running.process.send_signal(signal.SIGINT)
    assert running.process.wait(30) == 0
    assert time.monotonic() - stopping_at < 10
    assert not any(is_alive(pid) for pid in children.values())
    assert running.healthz() == 0

    # The second start has the database, the account and the samples already.
    again = run()
    again.wait_until_it_serves()
    assert "password" not in again.told()
    children = again.children()
    again.process.kill()
    again.process.wait()
    wait_until(lambda: not any(is_alive(pid) for pid in children.values()), timeout_s=20)
