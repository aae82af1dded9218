"""Masks in the case page: the product with a segmenter that draws its box, a phantom of step edges, and shorthands."""

import base64
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import httpx
import numpy as np
import pytest
from playwright.sync_api import Browser, Locator

from tests.factories.images import make_dicom, uid_of
from tests.fakes import BoxSegmenter
from tests.product import Product, Watched, open_page, open_product
from tests.viewer_fixtures import cpu_browser, playwright_driver, webgl_browser  # noqa: F401
from tests.viewer_page import build_bundle

# The phantom: 64 columns x 48 rows, at stated spacings. A block of ones, columns 16 to 31 and rows 8 to 23.
COLUMNS, ROWS = 64, 48
BLOCK = (16, 8, 32, 24)

VIEWER = "const viewer = document.querySelector('.sp-stage').serpensViewer;"
READ_LAYERS = f"""async ([left, top, width, height]) => {{
  {VIEWER}
  await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  const read = (canvas) => {{
    const copy = document.createElement("canvas");
    [copy.width, copy.height] = [width, height];
    const context = copy.getContext("2d");
    context.drawImage(canvas, -left, -top);
    let text = "";
    for (const byte of context.getImageData(0, 0, width, height).data) text += String.fromCharCode(byte);
    return btoa(text);
  }};
  return [read(viewer.canvas), read(document.querySelector(".sm-overlay"))];
}}"""

OpenMasks = Callable[..., "MaskPage"]


def phantom(
    name: str,
    *,
    slices: int = 3,
    spacing: Sequence[float] = (1.0, 1.0),
    rows: int = ROWS,
    columns: int = COLUMNS,
    **attributes: Any,
) -> list[tuple[str, bytes]]:
    """A CT of step edges, as files; `attributes` replace its own."""
    frame = np.zeros((rows, columns), np.int16)
    frame[BLOCK[1] : BLOCK[3], BLOCK[0] : BLOCK[2]] = 1000
    return [
        (
            f"{k}.dcm",
            make_dicom(
                frame,
                **{
                    "StudyInstanceUID": uid_of("masks", name),
                    "SeriesInstanceUID": uid_of("masks", name, "series"),
                    "SOPInstanceUID": uid_of("masks", name, k),
                    "StudyDescription": name,
                    "ImagePositionPatient": [0, 0, 3 * k],
                    "InstanceNumber": k + 1,
                    "PixelSpacing": list(spacing),
                    "WindowCenter": 500,
                    "WindowWidth": 1000,
                    **attributes,
                },
            ),
        )
        for k in range(slices)
    ]


def swept(
    places: Sequence[Sequence[float]], radius: float, *, spacing: Sequence[float], rows: int, columns: int
) -> np.ndarray:
    """The brush's rule, one pixel at a time: is its centre within `radius` of the line through the places?"""
    row, column = spacing
    painted = np.zeros((rows, columns), bool)
    points = [(x * column, y * row) for x, y in places]
    for j in range(rows):
        for i in range(columns):
            x, y = (i + 0.5) * column, (j + 0.5) * row
            for (ax, ay), (bx, by) in zip(points, points[1:] or points, strict=False):
                long = (bx - ax) ** 2 + (by - ay) ** 2
                along = min(1.0, max(0.0, ((x - ax) * (bx - ax) + (y - ay) * (by - ay)) / long)) if long else 0.0
                away = (x - ax - along * (bx - ax)) ** 2 + (y - ay - along * (by - ay)) ** 2
                painted[j, i] |= away <= radius**2
    return painted


@dataclass
class MaskPage:
    """A case page with a hand on the brush."""

    watched: Watched
    client: httpx.Client
    series: dict[str, Any]

    @property
    def page(self) -> Any:
        """Playwright's page."""
        return self.watched.page

    @property
    def size(self) -> tuple[int, int]:
        """Rows and columns as shown."""
        return self.series["pixel"]["rows"], self.series["pixel"]["columns"]

    def show_study(self, study_id: str) -> None:
        """Go to a study and wait for its picture and its masks."""
        self.page.evaluate("(id) => { location.hash = `#/case/${id}`; }", study_id)
        self.page.wait_for_function(
            """(id) => { const { serpensViewer: viewer, serpensMasks: masks } = document.querySelector('.sp-stage');
                         return viewer?.series?.id === id && masks?.store.series?.id === id; }""",
            arg=self.series["id"],
        )
        self.settle()
        self.call("viewer.setTool('window')")

    # ---- the viewer

    def call(self, expression: str) -> Any:
        """Evaluate with `viewer` in scope."""
        return self.page.evaluate(f"() => {{ {VIEWER} return ({expression}); }}")

    def settle(self) -> None:
        """Wait until the slice that is asked for is painted."""
        self.watched.wait_for_image()

    def go_to(self, index: int) -> None:
        """Show a slice."""
        self.call(f"viewer.goTo({index})")
        self.settle()

    def look(self, zoom: float, *, x: float, y: float) -> None:
        """Square pixels at a zoom, with a place of the picture in the middle of the view."""
        self.call("viewer.setSmooth(false)")
        self.call(f"viewer.setZoom({zoom})")
        left, top = self.call(f"viewer.camera.toView([{x}, {y}])")
        box = self.page.locator(".sv-surface").bounding_box()
        self.call(f"viewer.pan({box['width'] / 2 - left}, {box['height'] / 2 - top})")
        self.settle()

    def tool(self, name: str) -> None:
        """Take a tool."""
        self.call(f"viewer.setTool('{name}')")

    def screen(self, x: float, y: float) -> tuple[int, int]:
        """The whole CSS pixel of the page nearest to a place of the picture."""
        left, top = self.call(f"viewer.camera.toView([{x}, {y}])")
        box = self.page.locator(".sv-surface").bounding_box()
        return round(box["x"] + left), round(box["y"] + top)

    def picture(self, at: Sequence[float]) -> tuple[float, float]:
        """The place of the picture under a place of the page."""
        box = self.page.locator(".sv-surface").bounding_box()
        x, y = self.call(f"viewer.camera.toPicture([{at[0] - box['x']}, {at[1] - box['y']}])")
        return x, y

    def drag(self, *places: Sequence[float]) -> list[tuple[float, float]]:
        """Press at the first place of the picture, move over the others, release; the places that the mouse was at."""
        at = [self.screen(*place) for place in places]
        self.page.mouse.move(*at[0])
        self.page.mouse.down()
        for place in at[1:]:
            self.page.mouse.move(*place)
        self.page.mouse.up()
        return [self.picture(place) for place in at]

    def layers(self) -> tuple[np.ndarray, np.ndarray, tuple[int, int], float]:
        """The picture (h, w) and the masks' opacity (h, w) on the screen, where the picture begins, device pixels.

        Returns:
            Both cut to the picture, its corner in device pixels of the stage, and device pixels for each pixel.
        """
        ratio = self.call("devicePixelRatio")
        left, top = (round(edge * ratio) for edge in self.call("viewer.camera.toView([0, 0])"))
        right, bottom = (
            round(edge * ratio) for edge in self.call(f"viewer.camera.toView([{self.size[1]}, {self.size[0]}])")
        )
        box = [left, top, right - left, bottom - top]
        read = [np.frombuffer(base64.b64decode(one), np.uint8) for one in self.page.evaluate(READ_LAYERS, box)]
        picture, overlay = (one.reshape(bottom - top, right - left, 4).astype(int) for one in read)
        return picture[..., 0], overlay[..., 3], (left, top), (right - left) / self.size[1]

    def overlay_colour(self, x: float, y: float) -> tuple[int, ...]:
        """Red, green, blue and opacity of the masks' layer at a place of the picture."""
        ratio = self.call("devicePixelRatio")
        left, top = self.call(f"viewer.camera.toView([{x}, {y}])")
        _, overlay = self.page.evaluate(READ_LAYERS, [int(left * ratio), int(top * ratio), 1, 1])
        return tuple(base64.b64decode(overlay))

    # ---- the column

    def rows(self) -> Locator:
        """The rows of the list of segments."""
        return self.page.locator(".sm-row")

    def row(self, label: str) -> Locator:
        """The row of a segment."""
        return self.page.locator(f".sm-row[data-label='{label}']")

    def row_text(self, label: str) -> str:
        """What a row says, with plain spaces."""
        return str(self.row(label).inner_text()).replace("\u00a0", " ")

    def labels(self) -> list[str]:
        """What the list says."""
        return list(self.page.locator(".sm-name").all_inner_texts())

    def set_radius(self, radius: float) -> None:
        """The radius of the brush, by its keys and its slider to what is nearest, then exactly."""
        self.page.evaluate(
            "(radius) => { document.querySelector('.sp-stage').serpensMasks.painting.radius = radius; }", radius
        )

    def wait_saved(self) -> None:
        """Wait until nothing waits to be saved."""
        self.page.wait_for_function(
            """() => { const { store, status } = document.querySelector('.sp-stage').serpensMasks;
                       return store.savedAt > 0 && !status.isUnsaved; }"""
        )

    def saving(self) -> str:
        """The footer's words on saving."""
        return str(self.page.locator(".sm-saving").inner_text())

    def press(self, keys: str) -> None:
        """Press keys with the focus on the picture."""
        self.page.locator(".sv-surface").press(keys)

    # ---- the server

    def masks(self) -> list[dict[str, Any]]:
        """The masks that the server lists."""
        answer = self.client.get(f"/api/series/{self.series['id']}/masks").raise_for_status().json()
        return list(answer["masks"])

    def mask(self, label: str) -> dict[str, Any]:
        """The mask with a segment of that name."""
        (found,) = [one for one in self.masks() if label in [segment["label"] for segment in one["segments"]]]
        return found

    def plane(self, label: str, frame: int = 0) -> np.ndarray:
        """The server's plane, as shown."""
        mask = self.mask(label)
        (number,) = [segment["number"] for segment in mask["segments"] if segment["label"] == label]
        answer = self.client.get(f"/api/mask-versions/{mask['id']}/planes/{number}/{frame}").raise_for_status()
        return unpacked(answer.content, self.size)

    def store(self, label: str, planes: dict[int, np.ndarray]) -> dict[str, Any]:
        """A mask made by a program."""
        made = self.client.post(
            f"/api/series/{self.series['id']}/masks",
            json={"label": label, "request_key": f"begin-{self.series['id']}-{label}"},
        )
        version = made.raise_for_status().json()
        for frame, plane in planes.items():
            version = self.save(version, frame, plane)
        return dict(version)

    def save(self, version: dict[str, Any], frame: int, plane: np.ndarray, *, number: int = 1) -> dict[str, Any]:
        """Save a plane over a version, as another tab would."""
        answer = self.client.put(
            f"/api/masks/{version['mask_id']}/planes/{number}/{frame}",
            params={"base_version": version["version"], "request_key": f"save-{version['id']}-{frame}"},
            content=zlib.compress(np.packbits(plane).tobytes()),
        )
        return dict(answer.raise_for_status().json())


def unpacked(content: bytes, size: tuple[int, int]) -> np.ndarray:
    """Packed bits as (rows, columns)."""
    bits = np.unpackbits(np.frombuffer(zlib.decompress(content), np.uint8), count=size[0] * size[1])
    return bits.reshape(size).astype(bool)


def block(i0: int, j0: int, i1: int, j1: int, *, rows: int = ROWS, columns: int = COLUMNS) -> np.ndarray:
    """A plane with columns i0 to i1 - 1 of rows j0 to j1 - 1 set."""
    plane = np.zeros((rows, columns), bool)
    plane[j0:j1, i0:i1] = True
    return plane


@pytest.fixture(scope="module")
def mask_product(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    """The product with a segmenter whose mask is the box."""
    build_bundle()
    with open_product(tmp_path_factory.mktemp("home"), segmenter=BoxSegmenter()) as running:
        yield running


class PagePool:
    """Pages that stay open for a module: a study is opened by its hash, as a reader does it, without a page load."""

    def __init__(self, product: Product) -> None:
        self.product = product
        self.opened = ExitStack()
        self.client = self.opened.enter_context(product.client())
        self.pages: dict[str, list[Watched]] = {}

    def take(self, browser: Browser, query: str, taken: list[Watched], name: str, options: dict[str, Any]) -> Watched:
        """A page of that kind that is not taken; opened and signed in where there is none yet."""
        pages = self.pages.setdefault(f"{query} {name} {sorted(options.items())}", [])
        for watched in pages:
            if watched not in taken:
                return watched
        watched = self.opened.enter_context(open_page(browser, self.product, **options))
        watched.sign_in(name)
        if query:
            watched.page.goto(f"{self.product.url}/{query}#/")
            watched.page.wait_for_selector("#sp-header .sp-user")
        pages.append(watched)
        return watched


@pytest.fixture(scope="module")
def page_pool(mask_product: Product) -> Iterator[PagePool]:
    """The pages of a module."""
    pool = PagePool(mask_product)
    yield pool
    pool.opened.close()


@pytest.fixture
def cpu_masks(cpu_browser: Browser, page_pool: PagePool) -> Iterator[OpenMasks]:  # noqa: F811
    """Opens a study of its own with CPU rendering: `cpu_masks(phantom("name"), ratio=2)`."""
    yield from _opener(cpu_browser, page_pool, query="")


@pytest.fixture
def webgl_masks(webgl_browser: Browser, page_pool: PagePool) -> Iterator[OpenMasks]:  # noqa: F811
    """Opens a study with WebGL."""
    yield from _opener(webgl_browser, page_pool, query="?render=webgl")


def _opener(browser: Browser, pool: PagePool, *, query: str) -> Iterator[OpenMasks]:
    taken: list[Watched] = []

    def open_masks(
        files: Sequence[tuple[str, bytes]] = (), *, study_id: str = "", name: str = "clinician", **options: Any
    ) -> MaskPage:
        study_id = study_id or pool.product.upload(files)["study_ids"][0]
        series_id = pool.product.study(study_id)["series"][0]["id"]
        watched = pool.take(browser, query, taken, name, options)
        taken.append(watched)
        series = pool.client.get(f"/api/series/{series_id}").raise_for_status().json()
        page = MaskPage(watched, pool.client, series)
        page.show_study(study_id)
        return page

    yield open_masks
    for watched in taken:
        watched.page.unroute_all()
        watched.page.evaluate("() => { location.hash = '#/'; }")
        for noted in (watched.console, watched.refused, watched.failed):
            noted.clear()
