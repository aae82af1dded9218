"""PostgreSQL, Redis and Chromium for the tests, and the list of what is skipped where one of them is absent.

Each server is a child of the test process on a free loopback port, with its files in a folder of its own under the
system's temporary folder. The kernel ends it with its parent, so nothing stays behind a killed run.

`python -m tests.services --write-skips` rewrites `tests/expected_skips.txt` from the markers of the collected tests.
"""

import argparse
import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SHARED_DATA = ROOT.parent / "shared" / "data"
EXPECTED_SKIPS = ROOT / "tests" / "expected_skips.txt"
CAPABILITIES = ("shared_data", "chromium", "postgres", "redis", "gpu")

# Chromium as Debian builds it runs in containers only without its own sandbox; nothing may leave the machine.
CHROMIUM_ARGS = (
    "--no-sandbox",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)
CHROMIUM_CPU_ARGS = (*CHROMIUM_ARGS, "--disable-gpu")
CHROMIUM_WEBGL_ARGS = (*CHROMIUM_ARGS, "--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader")

START_TIMEOUT_S = 60.0
PR_SET_PDEATHSIG = 1


class ServiceError(RuntimeError):
    """A server that is installed did not come up; the message ends with what it wrote."""


@cache
def has(capability: str) -> bool:
    """Whether this machine has the capability. Looked up once a process.

    Raises:
        ValueError: If there is no such capability.
    """
    match capability:
        case "shared_data":
            return (SHARED_DATA / "MANIFEST.json").is_file()
        case "chromium":
            return chromium_path() is not None
        case "postgres":
            return _postgres_bin() is not None
        case "redis":
            return shutil.which("redis-server") is not None
        case "gpu":
            return Path("/dev/nvidia0").exists()
    raise ValueError(f"the capabilities are {', '.join(CAPABILITIES)}; got {capability!r}")


def chromium_path() -> str | None:
    """The browser's executable."""
    return next((path for name in ("chromium", "chromium-browser") if (path := shutil.which(name))), None)


def _postgres_bin() -> Path | None:
    """The folder of `initdb` and `postgres`. Debian keeps both off the PATH."""
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    found = str(debian[-1]) if debian else shutil.which("initdb")
    if found is None or not (Path(found).parent / "postgres").exists():
        return None
    return Path(found).parent


def free_port() -> int:
    """A loopback port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def end_with_parent(signal_number: int) -> Callable[[], None]:
    """What a child runs before exec so that the kernel signals it when its parent ends (Linux only)."""
    if not sys.platform.startswith("linux"):
        return lambda: None
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    return lambda: prctl(PR_SET_PDEATHSIG, int(signal_number), 0, 0, 0)


@contextmanager
def _server(
    command: list[str], *, log: Path, user: str | None, stop: signal.Signals
) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            user=user,
            group=user,
            extra_groups=[] if user else None,
            start_new_session=True,
            preexec_fn=end_with_parent(stop),
        )
        try:
            yield process
        finally:
            process.send_signal(stop)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait_until(ready: Callable[[], bool], process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline and process.poll() is None:
        if ready():
            return
        time.sleep(0.05)
    raise ServiceError(f"{Path(process.args[0]).name} did not come up: {log.read_text(errors='replace')[-2000:]}")  # type: ignore[index,arg-type]


@contextmanager
def _folder(name: str, user: str | None) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix=f"serpens-{name}-"))
    try:
        if user is not None:
            shutil.chown(folder, user, user)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def postgres() -> Iterator[str]:
    """A PostgreSQL server; gives its SQLAlchemy URL without a database's name ("postgresql+psycopg://...:port")."""
    import psycopg

    binaries = _postgres_bin()
    if binaries is None:
        raise ServiceError("PostgreSQL is not installed")
    # PostgreSQL refuses to run as root; Debian brings this user.
    user = "postgres" if os.geteuid() == 0 else None
    with _folder("postgres", user) as folder:
        data, port = folder / "data", free_port()
        made = subprocess.run(
            [
                binaries / "initdb",
                "-D",
                data,
                "-U",
                "postgres",
                "-A",
                "trust",
                "-E",
                "UTF8",
                "--no-sync",
                "--locale=C.UTF-8",
            ],
            user=user,
            group=user,
            extra_groups=[] if user else None,
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        if made.returncode:
            raise ServiceError(f"initdb failed: {made.stderr[-2000:]}")
        options = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off", "max_connections": "200"}
        command = [str(binaries / "postgres"), "-D", str(data), "-p", str(port), "-h", "127.0.0.1", "-k", str(folder)]
        command += [argument for name, value in options.items() for argument in ("-c", f"{name}={value}")]

        def answers() -> bool:
            try:
                psycopg.connect(
                    host="127.0.0.1", port=port, user="postgres", dbname="postgres", connect_timeout=5
                ).close()
            except psycopg.OperationalError:
                return False
            return True

        with _server(command, log=folder / "log", user=user, stop=signal.SIGINT) as process:
            _wait_until(answers, process, folder / "log")
            yield f"postgresql+psycopg://postgres@127.0.0.1:{port}"


@contextmanager
def redis() -> Iterator[str]:
    """A Redis server; gives its URL ("redis://127.0.0.1:port/0")."""
    with _folder("redis", None) as folder:
        port = free_port()
        command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--save", ""]

        def answers() -> bool:
            try:
                with socket.create_connection(("127.0.0.1", port), 1) as connection:
                    connection.sendall(b"PING\r\n")
                    return connection.recv(64).startswith(b"+PONG")
            except OSError:
                return False

        with _server(command, log=folder / "log", user=None, stop=signal.SIGTERM) as process:
            _wait_until(answers, process, folder / "log")
            yield f"redis://127.0.0.1:{port}/0"


def read_expected_skips() -> dict[str, set[str]]:
    """Capability -> the node ids of the tests that need it, as `tests/expected_skips.txt` lists them."""
    sections: dict[str, set[str]] = {capability: set() for capability in CAPABILITIES}
    current: set[str] | None = None
    for line in EXPECTED_SKIPS.read_text(encoding="utf-8").splitlines():
        if line.startswith("[") and line.endswith("]") and line[1:-1] in sections:
            current = sections[line[1:-1]]
        elif line and not line.startswith("#"):
            if current is None:
                raise ValueError(f"{EXPECTED_SKIPS.name}: a test stands before the first section")
            current.add(line)
    return sections


def write_expected_skips(needs: dict[str, set[str]]) -> None:
    """Write the file: one section a capability, one node id a line."""
    lines = [
        "# The tests that need a capability which a machine may lack; they and no others are skipped there.",
        "# Written by `python -m tests.services --write-skips`; every full run compares the two.",
    ]
    for capability in CAPABILITIES:
        lines += ["", f"[{capability}]", *sorted(needs.get(capability, ()))]
    EXPECTED_SKIPS.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _collect_needs() -> dict[str, set[str]]:
    with tempfile.TemporaryDirectory() as folder:
        listing = Path(folder) / "needs.json"
        collected = subprocess.run(
            [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:xdist", f"--needs-to={listing}"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        if collected.returncode:
            raise ServiceError(f"the tests do not collect: {collected.stdout[-3000:]}{collected.stderr[-3000:]}")
        return {capability: set(nodes) for capability, nodes in json.loads(listing.read_text(encoding="utf-8")).items()}


def main() -> None:
    """Rewrite `tests/expected_skips.txt`, or say which capabilities this machine has."""
    parser = argparse.ArgumentParser(description="What the tests need of this machine.")
    parser.add_argument("--write-skips", action="store_true", help="rewrite tests/expected_skips.txt from the markers")
    if parser.parse_args().write_skips:
        needs = _collect_needs()
        write_expected_skips(needs)
        print(f"{EXPECTED_SKIPS.name}: " + ", ".join(f"{len(needs.get(name, ()))} {name}" for name in CAPABILITIES))
    else:
        for name in CAPABILITIES:
            print(f"{name}: {'present' if has(name) else 'absent'}")


if __name__ == "__main__":
    main()
