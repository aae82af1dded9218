"""The real product for the browser tests: API, pages and database in this process, worker and runner as threads.

`open_product` starts it with a home of its own and the people of demo mode. `Watched` is a page in Chromium whose
console, requests and answers are written down, for every test that says they were clean.
"""

import io
import threading
import time
import zipfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from fastapi import FastAPI
from playwright.sync_api import Browser, Page

from annotation.segmenters.embedded import EmbeddedSegmenter
from app.main import create_web
from backend.agent.policy import Policy
from backend.domain.segmenter import Segmenter
from backend.main import create_app
from backend.runner import Runner
from backend.services.accounts import SAMPLE_PEOPLE, ensure_demo_people
from backend.services.context import Services
from backend.services.ingest import ingest
from backend.settings import Settings
from backend.store.tables import Base
from tests.services import free_port

PASSWORDS = {person.name: person.password for person in SAMPLE_PEOPLE}
START_TIMEOUT_S = 30.0
INGEST_TIMEOUT_S = 60.0
TIMEOUT_MS = 15_000


class ThreadQueue:
    """Does at once, in a thread, what the worker does when it is woken."""

    def __init__(self) -> None:
        self.services: Services | None = None
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="ingest")

    def wake_ingest(self, upload_id: str) -> None:
        """Part of `Queue`."""
        self._pool.submit(self._work, upload_id)

    def close(self) -> None:
        """Finish what is begun."""
        self._pool.shutdown()

    def _work(self, upload_id: str) -> None:
        services = self.services
        assert services is not None
        while not ingest(
            upload_id,
            store=services.store,
            blobs=services.blobs,
            settings=services.settings,
            clock=services.clock,
            owner="test-worker",
            until_s=20,
        ):
            time.sleep(0.02)


@dataclass
class Product:
    """A running product."""

    url: str
    app: FastAPI
    demo_project_id: str

    @property
    def services(self) -> Services:
        """What its services work with."""
        services: Services = self.app.state.services
        return services

    def client(self, name: str = "clinician") -> httpx.Client:
        """A program that is signed in as one of the people of demo mode."""
        body = {"name": name, "password": PASSWORDS[name], "as": "token"}
        token = httpx.post(f"{self.url}/api/session", json=body).raise_for_status().json()["token"]
        return httpx.Client(base_url=self.url, headers={"Authorization": f"Bearer {token}"}, timeout=60)

    def upload(self, files: Iterable[tuple[str, bytes]], *, project_id: str = "", **stated: str) -> dict[str, Any]:
        """Upload files and wait until they are read; the upload as JSON."""
        with self.client("admin") as client:
            form = {"project_id": project_id or self.demo_project_id, **stated}
            parts = [("files", (name, content)) for name, content in files]
            upload = client.post("/api/studies", data=form, files=parts).raise_for_status().json()
            deadline = time.monotonic() + INGEST_TIMEOUT_S
            while upload["state"] not in ("done", "failed"):
                assert time.monotonic() < deadline, upload
                time.sleep(0.05)
                upload = client.get(f"/api/uploads/{upload['id']}").raise_for_status().json()
        assert upload["state"] == "done", upload
        return dict(upload)

    def study(self, study_id: str) -> dict[str, Any]:
        """A study as JSON."""
        with self.client("admin") as client:
            return dict(client.get(f"/api/studies/{study_id}").raise_for_status().json())


@contextmanager
def open_product(
    home: Path, *, segmenter: Segmenter | None = None, policy: Policy | None = None, threads: int = 2
) -> Iterator[Product]:
    """Start the product on a free port and stop it at the end.

    Args:
        segmenter: Who outlines; the embedded bodies in this process where None.
        policy: Who answers runs; where None there is no runner and a run waits.
    """
    port = free_port()
    home.mkdir(parents=True, exist_ok=True)
    settings = Settings(_env_file=None, home=home, port=port, demo=True, login_attempts=50)
    queue = ThreadQueue()
    api = create_app(settings, queue=queue, segmenter=segmenter or EmbeddedSegmenter())
    services: Services = api.state.services
    queue.services = services
    Base.metadata.create_all(services.store.engine)
    project_id = ensure_demo_people(store=services.store, settings=settings, clock=services.clock)
    assert project_id is not None
    app = create_web(settings, api=api)
    server = uvicorn.Server(
        uvicorn.Config(app, host="127.0.0.1", port=port, log_config=None, access_log=False, timeout_graceful_shutdown=1)
    )
    thread = threading.Thread(target=server.run, name="product", daemon=True)
    thread.start()
    deadline = time.monotonic() + START_TIMEOUT_S
    while not server.started:
        assert thread.is_alive(), "the product did not start"
        assert time.monotonic() < deadline, "the product did not start in time"
        time.sleep(0.02)
    runner = None if policy is None else Runner(services, policy, threads=threads)
    running = threading.Thread(target=runner.serve, name="runner", daemon=True) if runner else None
    if running:
        running.start()
    try:
        yield Product(f"http://127.0.0.1:{port}", app, project_id)
    finally:
        if runner and running:
            runner.stop()
            running.join(15)
        server.should_exit = True
        thread.join(15)
        queue.close()


@dataclass
class Watched:
    """A page and everything about it that must be clean."""

    page: Page
    product: Product
    console: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    elsewhere: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    def sign_in(self, name: str = "clinician", password: str | None = None, *, at: str = "") -> None:
        """Sign in by hand, and wait until the worklist, or what `at` asks for, is on the screen."""
        self.page.goto(f"{self.product.url}/{at}")
        self.page.fill("#name", name)
        self.page.fill("#password", PASSWORDS[name] if password is None else password)
        self.page.click("form button")
        self.page.wait_for_selector("#sp-header .sp-user")

    def open_study(self, study_id: str) -> None:
        """Show a study and wait for its first image."""
        self.page.evaluate("(id) => { location.hash = `#/case/${id}`; }", study_id)
        self.wait_for_image()

    def wait_for_image(self) -> None:
        """Wait until the slice that is asked for is painted."""
        self.page.wait_for_function(
            """() => { const state = document.querySelector(".sp-stage")?.serpensViewer?.state();
                       return state && state.index >= 0 && state.index === state.target; }"""
        )
        self.page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def viewer_state(self) -> dict[str, Any]:
        """The viewer's own account of what it shows."""
        return dict(self.page.evaluate("() => document.querySelector('.sp-stage').serpensViewer.state()"))

    def require_clean(self) -> None:
        """Nothing in the console, no answer of 400 or more, no request that failed or went to another origin."""
        assert self.console == []
        assert self.refused == []
        assert self.elsewhere == []
        assert self.failed == []


@contextmanager
def open_page(
    browser: Browser, product: Product, *, width: int = 1600, height: int = 920, ratio: float = 1
) -> Iterator[Watched]:
    """A page in a browser of its own: no cookie, no storage of another test. `ratio`: device pixels per CSS pixel."""
    context = browser.new_context(
        viewport={"width": width, "height": height}, device_scale_factor=ratio, accept_downloads=False
    )
    context.set_default_timeout(TIMEOUT_MS)
    watched = Watched(context.new_page(), product)
    page = watched.page

    def note_request(url: str) -> None:
        if not url.startswith((product.url, "data:", "blob:")):
            watched.elsewhere.append(url)

    page.on("console", lambda one: one.type in ("error", "warning") and watched.console.append(one.text))
    page.on("pageerror", lambda error: watched.console.append(str(error)))
    page.on("request", lambda request: note_request(request.url))
    page.on("response", lambda one: one.status >= 400 and watched.refused.append(f"{one.status} {one.url}"))
    page.on(
        "requestfailed", lambda one: _is_unexpected(one.failure) and watched.failed.append(f"{one.failure} {one.url}")
    )
    try:
        yield watched
    finally:
        context.close()


def _is_unexpected(failure: str | None) -> bool:
    # A request that the page itself gave up: a frame nobody waits for any more, a search that was typed on.
    return failure != "net::ERR_ABORTED"


def zipped(files: Iterable[tuple[str, bytes]]) -> bytes:
    """Files as a zip."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files:
            archive.writestr(name, content)
    return packed.getvalue()
