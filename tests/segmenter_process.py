"""A real segmenter process for tests, on a port of its own."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from backend.agent.segmenter_client import HttpSegmenter
from backend.domain.segmenter import SegmenterUnavailable
from tests.services import ROOT

TOKEN = "a token of a test, long enough"
START_TIMEOUT_S = 90.0


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def segmenter_process(home: Path) -> Iterator[HttpSegmenter]:
    """`serpens segmenter` with its embedded bodies, and a client of it."""
    port = free_port()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SERPENS_")}
    environment |= {
        "SERPENS_HOME": str(home),
        "SERPENS_SEGMENTER_PORT": str(port),
        "SERPENS_SEGMENTER_TOKEN": TOKEN,
        # A test machine may be busy with everything else: what is tested here is the answer and not its time.
        "SERPENS_SEGMENTER_TIMEOUT_S": "240",
        "PYTHONPATH": str(ROOT),
    }
    command = [sys.executable, "-c", "from annotation.service import segmenter_command; segmenter_command()"]
    process = subprocess.Popen(command, cwd=home, env=environment)
    try:
        with HttpSegmenter(f"http://127.0.0.1:{port}", TOKEN, timeout_s=240) as client:
            _wait_until_it_answers(client, process)
            yield client
    finally:
        process.terminate()
        process.wait(20)


def _wait_until_it_answers(client: HttpSegmenter, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            client.bodies()
        except SegmenterUnavailable:
            assert process.poll() is None, f"the segmenter process ended with status {process.returncode}"
            assert time.monotonic() < deadline, "the segmenter process did not answer in time"
            time.sleep(0.1)
        else:
            return
