"""A page with nothing but the built viewer, and series made of arrays behind the JSON contract of /api/series.

`ViewerPage` is the server, `open_viewer` a page in Chromium with its errors and requests written down.
"""

import base64
import functools
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import uvicorn
from fastapi import FastAPI, HTTPException, Response
from fastapi.responses import HTMLResponse, JSONResponse
from fastapi.staticfiles import StaticFiles
from playwright.sync_api import Browser, Page
from playwright.sync_api import Error as PlaywrightError

from tests.services import ROOT

BUNDLE = ROOT / "app" / "static" / "viewer"

PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Viewer</title>
<link rel="icon" href="data:,">
<style>html,body{margin:0;height:100%;background:#0b0d10}#stage{width:100vw;height:100vh}</style>
<div id="stage"></div>
<script type="module">
  import { createViewer, prepare } from "/assets/viewer/viewer.js";
  const stage = document.getElementById("stage");
  stage.events = [];
  await prepare();
  createViewer(stage, {
    fetchJson: async (url) => {
      const answer = await fetch(url);
      const body = await answer.json();
      if (!answer.ok) throw Object.assign(new Error(body.error.message), { code: body.error.code });
      return body;
    },
    onEvent: (kind, detail) => stage.events.push({ kind, detail, at: performance.now() }),
    maxCacheBytes: Number(new URLSearchParams(location.search).get("cache")) || undefined,
  });
  stage.dataset.ready = "yes";
</script></html>"""

# Resolves when the picture on the screen is the slice that was asked for last, and has been painted.
SETTLED = """() => new Promise((done) => {
  const viewer = document.getElementById("stage").serpensViewer;
  const look = () => {
    const { index, target } = viewer.state();
    if (index === target && index >= 0) requestAnimationFrame(() => requestAnimationFrame(() => done(index)));
    else requestAnimationFrame(look);
  };
  look();
})"""

# The rendered pixels of the whole picture at one device pixel a picture pixel, as base64 of RGBA.
READ_PICTURE = """async ({ rows, columns }) => {
  const viewer = document.getElementById("stage").serpensViewer;
  const ratio = devicePixelRatio;
  viewer.setSmooth(false);
  viewer.fit();
  viewer.setZoom(1 / ratio);
  await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  const [left, top] = viewer.camera.toView([0, 0]).map((value) => Math.round(value * ratio));
  const copy = document.createElement("canvas");
  [copy.width, copy.height] = [columns, rows];
  const context = copy.getContext("2d");
  context.drawImage(viewer.canvas, -left, -top);
  let text = "";
  for (const byte of context.getImageData(0, 0, columns, rows).data) text += String.fromCharCode(byte);
  return btoa(text);
}"""

# One pixel of the screen, at view coordinates, as [red, green, blue].
READ_PIXEL = """([x, y]) => {
  const viewer = document.getElementById("stage").serpensViewer;
  const copy = document.createElement("canvas");
  [copy.width, copy.height] = [1, 1];
  const context = copy.getContext("2d");
  context.drawImage(viewer.canvas, -Math.floor(x * devicePixelRatio), -Math.floor(y * devicePixelRatio));
  return Array.from(context.getImageData(0, 0, 1, 1).data.slice(0, 3));
}"""


@dataclass
class SyntheticSeries:
    """A series of arrays (frames, rows, columns[, 3]) with the descriptor that the server would give.

    Attributes:
        delay_s: How long the server takes for a frame.
        failing: Frames that the server refuses.
    """

    frames: np.ndarray
    id: str = "series-a"
    modality: str = "CT"
    description: str = "Chest"
    photometric: str = "MONOCHROME2"
    unit: str | None = "HU"
    slope: float = 1.0
    intercept: float = 0.0
    padding: tuple[int, int] | None = None
    window: dict[str, Any] | None = field(default_factory=lambda: {"center": 40, "width": 400, "function": "LINEAR"})
    spacing: tuple[float, float] | None = (0.7, 0.7)
    spacing_source: str = "patient"
    letters: tuple[str, str, str, str] | None = ("R", "L", "A", "P")
    positions: bool = True
    frame_time_ms: float | None = None
    presets: tuple[dict[str, Any], ...] = ()
    kind_reason: str | None = None
    delay_s: Callable[[int], float] = lambda _: 0.0
    failing: frozenset[int] = frozenset()

    def descriptor(self) -> dict[str, Any]:
        """The answer of GET /api/series/{id}."""
        rows, columns = self.frames.shape[1:3]
        count = len(self.frames)
        names = ("left", "right", "top", "bottom")
        return {
            "id": self.id,
            "study_id": "study-a",
            "modality": self.modality,
            "description": self.description,
            "number": 1,
            "kind": "volume" if self.positions else "multiframe",
            "kind_label": f"{count} slices",
            "three_d": self.kind_reason is None and count > 1,
            "kind_reason": self.kind_reason,
            "pixel": {
                "rows": rows,
                "columns": columns,
                "samples": 3 if self.frames.ndim == 4 else 1,
                "dtype": self.frames.dtype.name,
                "photometric": self.photometric,
            },
            "unit": self.unit,
            "spacing_source": self.spacing_source,
            "windows": [{"label": "auto", **self.window}] if self.window else [],
            "presets": list(self.presets),
            "frames": [
                {
                    "index": index,
                    "ipp": [0.0, 0.0, 3.0 * index] if self.positions else None,
                    "iop": [1, 0, 0, 0, 1, 0] if self.positions else None,
                    "spacing": list(self.spacing) if self.spacing else None,
                    "letters": dict(zip(names, self.letters, strict=True)) if self.letters else None,
                    "slope": self.slope,
                    "intercept": self.intercept,
                    "padding": list(self.padding) if self.padding else None,
                    "window": self.window,
                    "position_mm": 3.0 * index if self.positions and count > 1 else None,
                    "time_ms": self.frame_time_ms * index if self.frame_time_ms is not None else None,
                }
                for index in range(count)
            ],
        }

    def frame_bytes(self, index: int) -> bytes:
        """The answer of GET /api/series/{id}/frames/{index}."""
        frame = self.frames[index]
        return frame.astype(frame.dtype.newbyteorder("<")).tobytes()


@dataclass
class ViewerPage:
    """The running server."""

    url: str
    series: dict[str, SyntheticSeries] = field(default_factory=dict)

    def add(self, series: SyntheticSeries) -> SyntheticSeries:
        """Serve a series."""
        self.series[series.id] = series
        return series


@functools.cache
def build_bundle() -> None:
    """Build the viewer if its sources changed."""
    subprocess.run([ROOT / ".ci" / "bundle"], check=True, capture_output=True)


def _app(page: ViewerPage) -> FastAPI:
    app = FastAPI()
    app.mount("/assets/viewer", StaticFiles(directory=BUNDLE))

    def find(series_id: str) -> SyntheticSeries:
        if series_id not in page.series:
            raise HTTPException(404)
        return page.series[series_id]

    @app.get("/")
    def index() -> HTMLResponse:
        return HTMLResponse(PAGE)

    @app.get("/api/series/{series_id}")
    def descriptor(series_id: str) -> dict[str, Any]:
        return find(series_id).descriptor()

    @app.get("/api/series/{series_id}/thumbnail")
    def thumbnail(series_id: str) -> Response:
        find(series_id)
        return Response(content=_GREY_PNG, media_type="image/png")

    @app.get("/api/series/{series_id}/frames/{frame}")
    def frame(series_id: str, frame: int) -> Response:
        series = find(series_id)
        time.sleep(series.delay_s(frame))
        if frame in series.failing:
            error = {"code": "undecodable_frame", "message": f"frame {frame} of {series_id} cannot be decoded"}
            return JSONResponse({"error": error}, status_code=422)
        headers = {"Cache-Control": "no-store"}
        return Response(series.frame_bytes(frame), media_type="application/octet-stream", headers=headers)

    return app


_GREY_PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNoAAAAggCBd81ytgAAAABJRU5ErkJggg=="
)


@contextmanager
def serve_viewer() -> Iterator[ViewerPage]:
    """Run the page on a free loopback port."""
    build_bundle()
    page = ViewerPage(url="")
    server = uvicorn.Server(uvicorn.Config(_app(page), host="127.0.0.1", port=0, log_level="warning"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        if not thread.is_alive():
            raise RuntimeError("the viewer page's server did not start")
        time.sleep(0.01)
    page.url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    try:
        yield page
    finally:
        server.should_exit = True
        thread.join(10)


@dataclass
class OpenViewer:
    """A viewer in a page of Chromium, and what the page did."""

    page: Page
    console: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def open(self, series: SyntheticSeries) -> None:
        """Open a series and wait for its first picture."""
        self.page.evaluate("(id) => document.getElementById('stage').serpensViewer.open(id)", series.id)
        self.settle()

    def settle(self) -> int:
        """Wait until the wanted slice is on the screen; its index."""
        index: int = self.page.evaluate(SETTLED)
        return index

    def call(self, expression: str) -> Any:
        """Evaluate with `viewer` in scope, e.g. `viewer.goTo(3)`."""
        return self.page.evaluate(
            f"() => {{ const viewer = document.getElementById('stage').serpensViewer; return ({expression}); }}"
        )

    def state(self) -> dict[str, Any]:
        """What the viewer says is on the screen."""
        state: dict[str, Any] = self.call("viewer.state()")
        return state

    def text(self, selector: str) -> str:
        """The text of a part of the viewer."""
        return self.page.locator(selector).inner_text()

    def events(self, kind: str) -> list[dict[str, Any]]:
        """The details of the events of a kind so far."""
        found: list[dict[str, Any]] = self.page.evaluate(
            "(kind) => document.getElementById('stage').events.filter((e) => e.kind === kind).map((e) => e.detail)",
            kind,
        )
        return found

    def picture(self, series: SyntheticSeries) -> np.ndarray:
        """The picture on the screen at one device pixel a picture pixel, (rows, columns, 3) uint8."""
        rows, columns = series.frames.shape[1:3]
        text = self.page.evaluate(READ_PICTURE, {"rows": rows, "columns": columns})
        return np.frombuffer(base64.b64decode(text), np.uint8).reshape(rows, columns, 4)[..., :3]

    def pixel(self, x: float, y: float) -> tuple[int, int, int]:
        """The colour at view coordinates."""
        red, green, blue = self.page.evaluate(READ_PIXEL, [x, y])
        return red, green, blue

    def pixel_of(self, i: float, j: float) -> tuple[int, int, int]:
        """The colour on the screen at the middle of picture pixel (column i, row j)."""
        x, y = self.call(f"viewer.camera.toView([{i + 0.5}, {j + 0.5}])")
        return self.pixel(x, y)


def open_viewer(
    browser: Browser, server: ViewerPage, *, query: str = "", width: int = 900, height: int = 700, ratio: float = 1.0
) -> OpenViewer:
    """Open the page and wait until the viewer is there."""
    context = browser.new_context(viewport={"width": width, "height": height}, device_scale_factor=ratio)
    opened = OpenViewer(context.new_page())
    page = opened.page
    page.on(
        "console", lambda message: opened.console.append(message.text) if message.type in ("error", "warning") else None
    )
    page.on("pageerror", lambda error: opened.console.append(str(error)))
    page.on("request", lambda request: opened.requests.append(request.url))
    page.on("response", lambda answer: opened.refused.append(answer.url) if answer.status >= 400 else None)
    page.goto(f"{server.url}/{query}")
    try:
        page.locator("#stage[data-ready=yes]").wait_for()
    except PlaywrightError as error:
        raise AssertionError(
            f"the viewer did not start: {opened.console} {opened.refused} {opened.requests}"
        ) from error
    return opened
