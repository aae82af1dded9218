"""The running product and a clean page for the browser tests."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.product import Product, Watched, open_page, open_product
from tests.services import ROOT
from tests.viewer_fixtures import cpu_browser, playwright_driver, webgl_browser  # noqa: F401
from tests.viewer_page import build_bundle

OpenPage = Callable[..., Watched]
Shoot = Callable[[Watched, str], Path]

# Pictures of the documents, and the screenshots that they are.
DOCUMENTS = {"case-ct-1600x920": "case-page.png", "trace-judged-1600x920": "trace.png"}


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    """The product with an empty database and the people of demo mode."""
    build_bundle()
    with open_product(tmp_path_factory.mktemp("home")) as running:
        yield running


@pytest.fixture
def page(cpu_browser: Browser, product: Product) -> Iterator[OpenPage]:  # noqa: F811
    """Opens pages on the CPU leg: `page(width=1280, height=720)`."""
    with ExitStack() as opened:
        yield lambda **options: opened.enter_context(open_page(cpu_browser, product, **options))


@pytest.fixture
def webgl_page(webgl_browser: Browser, product: Product) -> Iterator[OpenPage]:  # noqa: F811
    """Opens pages on the WebGL leg."""
    with ExitStack() as opened:
        yield lambda **options: opened.enter_context(open_page(webgl_browser, product, **options))


@pytest.fixture
def shoot(tmp_path: Path) -> Shoot:
    """Saves a picture of a page; into the folder that SERPENS_SCREENSHOTS names, where it names one."""
    wanted = os.environ.get("SERPENS_SCREENSHOTS")
    folder = Path(wanted) if wanted else tmp_path

    def shoot_page(watched: Watched, name: str) -> Path:
        path = folder / f"{name}.png"
        watched.page.screenshot(path=path)
        if wanted and name in DOCUMENTS:
            picture = ROOT / "docs" / "pictures" / DOCUMENTS[name]
            picture.parent.mkdir(parents=True, exist_ok=True)
            picture.write_bytes(path.read_bytes())
        return path

    folder.mkdir(parents=True, exist_ok=True)
    return shoot_page
