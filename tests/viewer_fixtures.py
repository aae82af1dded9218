"""Chromium for the viewer's tests: one browser of each leg for a test process, closed when it ends."""

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, Playwright, sync_playwright

from tests.services import CHROMIUM_CPU_ARGS, CHROMIUM_WEBGL_ARGS
from tests.viewer_page import OpenViewer, ViewerPage, open_viewer, serve_viewer

OpenPage = Callable[..., OpenViewer]


@pytest.fixture(scope="module")
def playwright_driver() -> Iterator[Playwright]:
    """Playwright's driver."""
    with sync_playwright() as driver:
        yield driver


@pytest.fixture(scope="module")
def cpu_browser(chromium: str, playwright_driver: Playwright) -> Iterator[Browser]:
    """Chromium on a computer without WebGL."""
    browser = playwright_driver.chromium.launch(
        executable_path=chromium, args=[*CHROMIUM_CPU_ARGS, "--disable-3d-apis"]
    )
    yield browser
    browser.close()


@pytest.fixture(scope="module")
def webgl_browser(chromium: str, playwright_driver: Playwright) -> Iterator[Browser]:
    """Chromium with WebGL in software."""
    browser = playwright_driver.chromium.launch(executable_path=chromium, args=list(CHROMIUM_WEBGL_ARGS))
    yield browser
    browser.close()


@pytest.fixture(scope="module")
def viewer_page() -> Iterator[ViewerPage]:
    """The server of the bare viewer."""
    with serve_viewer() as page:
        yield page


@pytest.fixture
def cpu_viewer(cpu_browser: Browser, viewer_page: ViewerPage) -> Iterator[OpenPage]:
    """Opens the viewer with CPU rendering: `cpu_viewer(ratio=2)`."""
    yield from _pages(cpu_browser, viewer_page)


@pytest.fixture
def webgl_viewer(webgl_browser: Browser, viewer_page: ViewerPage) -> Iterator[OpenPage]:
    """Opens the viewer with WebGL, though it is in software: `webgl_viewer()`."""
    yield from _pages(webgl_browser, viewer_page, query="?render=webgl")


def _pages(browser: Browser, server: ViewerPage, *, query: str = "") -> Iterator[OpenPage]:
    opened: list[OpenViewer] = []

    def make(**options: object) -> OpenViewer:
        opened.append(open_viewer(browser, server, **{"query": query, **options}))  # type: ignore[arg-type]
        return opened[-1]

    yield make
    for viewer in opened:
        viewer.page.context.close()
    server.series.clear()
