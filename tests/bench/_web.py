"""What the benches of the web process share: a real one on a port, and a series with people to ask about it."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from backend.domain.access import Actor, Role
from backend.domain.account import Project, User
from backend.services.context import utc_now
from backend.settings import Settings
from backend.store.blobs import DirectoryBlobs
from backend.store.repository import Store, new_id
from backend.store.schema import upgrade
from backend.supervisor import child_environment
from tests.clinic import Clinic
from tests.services import ROOT, free_port

START_TIMEOUT_S = 120.0


@contextmanager
def clinic_with_web(home: Path, *, database_url: str | None = None) -> Iterator[tuple[Clinic, str]]:
    """A clinic on a migrated database and the address of a real `serpens web` on the same one."""
    settings = Settings(_env_file=None, home=home, database_url=database_url, port=free_port())
    upgrade(settings.database)
    store = Store(settings.database)
    clinic = Clinic(store, DirectoryBlobs(settings.blobs), settings, utc_now, _person(store))
    log_file = home / "web.log"
    with log_file.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "backend.cli", "web"],
            cwd=ROOT,
            env=child_environment(settings),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            url = f"http://127.0.0.1:{settings.port}"
            _wait_for(url, process, log_file)
            yield clinic, url
        finally:
            process.terminate()
            process.wait(30)
            store.close()


def _person(store: Store) -> Actor:
    project_id, user_id = new_id(), new_id()
    with store.transaction() as tx:
        tx.accounts.add_project(Project(project_id, "Bench", False, utc_now()))
        user = User(user_id, "bench", "Bench", Role.CLINICIAN, True, False, utc_now())
        tx.accounts.add_user(user, password_hash="!")
        tx.accounts.add_member(project_id, user_id)
    return Actor(user_id, "bench", Role.CLINICIAN, frozenset({project_id}))


def _wait_for(url: str, process: subprocess.Popen[bytes], log_file: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if httpx.get(f"{url}/healthz", trust_env=False).status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.1)
    raise RuntimeError(f"the web process does not answer: {log_file.read_text(errors='replace')[-2000:]}")
