"""Scrolling, loading and what the reader does with mouse and keys."""

import time

import numpy as np
import pytest

from tests.viewer_fixtures import *  # noqa: F403
from tests.viewer_fixtures import OpenPage
from tests.viewer_page import OpenViewer, SyntheticSeries, ViewerPage

GREY_OF_SLICE = {"center": 128, "width": 256, "function": "LINEAR"}


def numbered(count: int = 30, *, size: int = 64, **options: object) -> SyntheticSeries:
    """Slice k holds the value 8 k everywhere, so that its grey level names it."""
    frames = np.stack([np.full((size, size), 8 * k % 256, np.int16) for k in range(count)])
    return SyntheticSeries(frames, **{"window": GREY_OF_SLICE, **options})  # type: ignore[arg-type]


def middle(viewer: OpenViewer) -> int:
    return viewer.pixel_of(32, 32)[0]


@pytest.mark.parametrize("leg", ["cpu_viewer", "webgl_viewer"])
def test_every_slice_shows_its_own_content(leg: str, request: pytest.FixtureRequest, viewer_page: ViewerPage) -> None:
    viewer = request.getfixturevalue(leg)()
    viewer.open(viewer_page.add(numbered()))
    for index in [*range(30), *range(29, -1, -1), 17, 3, 28, 0, 12]:
        viewer.call(f"viewer.goTo({index})")
        assert viewer.settle() == index
        assert abs(middle(viewer) - 8 * index) <= 1
        assert viewer.text(".sv-position") == f"slice {index + 1} / 30 · {3 * index:.1f} mm"
    assert viewer.console == []


def test_first_image_comes_with_its_events(cpu_viewer: OpenPage, viewer_page: ViewerPage) -> None:
    viewer = cpu_viewer()
    viewer.open(viewer_page.add(numbered()))
    viewer.page.wait_for_function("() => document.getElementById('stage').serpensViewer.state().loadedFrames === 30")
    assert viewer.events("opened") == [{"seriesId": "series-a", "count": 30}]
    assert viewer.events("first-image") == [{"index": 15}]
    assert viewer.events("progress")[-1] == {"loaded": 30, "total": 30}
    assert viewer.text(".sv-title") == "Chest · CT"
    viewer.page.wait_for_function("() => document.querySelector('.sv-status').textContent.includes('30 / 30')")
    assert viewer.text(".sv-status") == "64 × 64 · CPU rendering · 30 / 30 loaded"
    assert "Research use, not for diagnosis" in viewer.text(".sv-br")


def test_placeholder_is_there_at_once_and_goes_with_the_first_image(
    cpu_viewer: OpenPage, viewer_page: ViewerPage
) -> None:
    viewer = cpu_viewer()
    viewer_page.add(numbered(delay_s=lambda _: 0.4))
    viewer.page.evaluate("() => { document.getElementById('stage').serpensViewer.open('series-a'); }")
    assert viewer.page.locator(".sv-placeholder").get_attribute("src") == "/api/series/series-a/thumbnail"
    assert viewer.page.locator(".sv-placeholder").is_visible()
    viewer.page.locator(".sv-progress.sv-busy").wait_for(state="attached")
    viewer.settle()
    assert viewer.page.locator(".sv-placeholder").is_hidden()


def test_neighbours_are_fetched_outward_from_the_slice_on_the_screen(
    cpu_viewer: OpenPage, viewer_page: ViewerPage
) -> None:
    viewer = cpu_viewer()
    viewer.open(viewer_page.add(numbered(21, delay_s=lambda _: 0.02)))
    viewer.page.wait_for_function("() => document.getElementById('stage').serpensViewer.state().loadedFrames === 21")
    order = [int(url.rsplit("/", 1)[1]) for url in viewer.requests if "/frames/" in url]
    assert order == [10, 11, 9, 12, 8, 13, 7, 14, 6, 15, 5, 16, 4, 17, 3, 18, 2, 19, 1, 20, 0]


def test_memory_for_frames_is_bounded(cpu_viewer: OpenPage, viewer_page: ViewerPage) -> None:
    """64 x 64 x 2 bytes = 8,192 a frame: 100,000 bytes hold 12 of 30, and what is shown is always one of them."""
    viewer = cpu_viewer(query="?cache=100000")
    viewer.open(viewer_page.add(numbered()))
    for index in (0, 29, 14, 2):
        viewer.call(f"viewer.goTo({index})")
        viewer.settle()
        viewer.page.wait_for_timeout(250)
        assert abs(middle(viewer) - 8 * index) <= 1
        assert 10 <= viewer.state()["loadedFrames"] <= 12
    asked = sum("/frames/" in url for url in viewer.requests)
    viewer.page.wait_for_timeout(250)
    assert sum("/frames/" in url for url in viewer.requests) == asked


def test_c54_the_last_slice_asked_for_wins(cpu_viewer: OpenPage, viewer_page: ViewerPage) -> None:
    """0 -> 57 -> 12 within 300 ms, 150 ms a frame: number, picture and state never differ, and end at 12."""
    frames = np.stack([np.full((64, 64), k, np.int16) for k in range(200)])
    viewer_page.add(SyntheticSeries(frames, window=GREY_OF_SLICE, delay_s=lambda _: 0.15))
    viewer = cpu_viewer()
    viewer.page.evaluate("() => document.getElementById('stage').serpensViewer.open('series-a')")
    viewer.page.evaluate(
        """async () => {
          const viewer = document.getElementById("stage").serpensViewer;
          const wait = (ms) => new Promise((done) => setTimeout(done, ms));
          window.seen = [];
          const copy = document.createElement("canvas");
          const context = copy.getContext("2d", { willReadFrequently: true });
          const watch = () => {
            const { index } = viewer.state();
            if (index >= 0) {
              context.drawImage(viewer.canvas, -450, -360);
              const text = document.querySelector(".sv-position").textContent;
              const grey = context.getImageData(0, 0, 1, 1).data[0];
              window.seen.push([index, grey, Number(text.match(/slice (\\d+)/)[1]) - 1]);
            }
            requestAnimationFrame(watch);
          };
          watch();
          for (let index = 0; index <= 57; index += 3) { viewer.goTo(index); await wait(8); }
          for (let index = 57; index >= 12; index -= 3) { viewer.goTo(index); await wait(8); }
          viewer.goTo(12);
        }"""
    )
    assert viewer.settle() == 12
    viewer.page.wait_for_timeout(500)
    assert viewer.state()["index"] == 12
    seen = viewer.page.evaluate("() => window.seen")
    assert seen[-1] == [12, 12, 12]
    assert all(abs(grey - index) <= 1 and label == index for index, grey, label in seen)


def test_slice_number_stays_with_the_picture_while_the_next_one_loads(
    cpu_viewer: OpenPage, viewer_page: ViewerPage
) -> None:
    viewer = cpu_viewer(query="?cache=1")
    viewer.open(viewer_page.add(numbered(delay_s=lambda _: 0.3)))
    viewer.call("viewer.goTo(3)")
    viewer.page.wait_for_timeout(80)
    state = viewer.state()
    assert (state["index"], state["target"]) == (15, 3)
    assert viewer.text(".sv-position").startswith("slice 16 / 30")
    assert abs(middle(viewer) - 120) <= 1
    assert viewer.settle() == 3


def test_a_failing_frame_is_told_on_that_frame_and_others_go_on(cpu_viewer: OpenPage, viewer_page: ViewerPage) -> None:
    viewer = cpu_viewer()
    viewer.open(viewer_page.add(numbered(failing=frozenset({16}))))
    viewer.call("viewer.goTo(16)")
    viewer.settle()
    assert viewer.text(".sv-message") == "Slice 17 cannot be shown: frame 16 of series-a cannot be decoded"
    assert middle(viewer) == 0
    error = viewer.events("error")[-1]
    assert (error["code"], error["index"]) == ("undecodable_frame", 16)
    viewer.page.mouse.move(300, 300, steps=5)
    viewer.page.wait_for_timeout(200)
    # Once ahead of need, once when it was asked for: it is not asked for again by itself.
    assert sum(url.endswith("/frames/16") for url in viewer.requests) <= 2
    viewer.call("viewer.goTo(17)")
    viewer.settle()
    assert viewer.page.locator(".sv-message").is_hidden()
    assert abs(middle(viewer) - 136) <= 1


def test_an_unknown_series_is_told(cpu_viewer: OpenPage, viewer_page: ViewerPage) -> None:
    viewer = cpu_viewer()
    viewer.page.evaluate(
        """async () => {
          const viewer = document.getElementById("stage").serpensViewer;
          await viewer.open("nothing");
        }"""
    )
    assert viewer.page.locator(".sv-message").is_visible()
    assert viewer.state()["seriesId"] is None
    assert len(viewer.events("error")) == 1


def test_opening_another_series_cancels_the_first(cpu_viewer: OpenPage, viewer_page: ViewerPage) -> None:
    viewer_page.add(numbered(id="slow", delay_s=lambda _: 0.5))
    quick = viewer_page.add(numbered(id="quick"))
    viewer = cpu_viewer()
    viewer.page.evaluate("() => { document.getElementById('stage').serpensViewer.open('slow'); }")
    viewer.page.wait_for_timeout(150)
    viewer.open(quick)
    viewer.page.wait_for_timeout(700)
    assert viewer.state()["seriesId"] == "quick"
    assert abs(middle(viewer) - 120) <= 1
    assert sum("/series/slow/frames/" in url for url in viewer.requests) <= 1


def test_drag_with_the_window_tool_changes_known_pixels(cpu_viewer: OpenPage, viewer_page: ViewerPage) -> None:
    """64 px to the right at width 256 widen it by 64; 32 px down raise the centre by 32."""
    viewer = cpu_viewer()
    viewer.open(viewer_page.add(numbered()))
    drag(viewer, (64, 32))
    assert viewer.state()["window"] == {"center": 160, "width": 320, "function": "LINEAR"}
    viewer.page.wait_for_timeout(60)
    # ((120 - 159.5) / 319 + 0.5) * 255 = 95.9
    assert abs(middle(viewer) - 96) <= 1
    assert viewer.text(".sv-window") == "C 160 W 320"


def drag(viewer: OpenViewer, by: tuple[int, int], *, button: str = "left") -> None:
    viewer.page.mouse.move(450, 350)
    viewer.page.mouse.down(button=button)  # type: ignore[arg-type]
    viewer.page.mouse.move(450 + by[0], 350 + by[1], steps=4)
    viewer.page.mouse.up(button=button)  # type: ignore[arg-type]
    viewer.page.wait_for_timeout(60)


@pytest.mark.parametrize("leg", ["cpu_viewer", "webgl_viewer"])
def test_pan_and_zoom_move_the_picture_with_the_hand(
    leg: str, request: pytest.FixtureRequest, viewer_page: ViewerPage
) -> None:
    frame = np.zeros((1, 64, 64), np.int16)
    frame[0, 20:24, 30:34] = 200
    viewer = request.getfixturevalue(leg)()
    viewer.open(viewer_page.add(SyntheticSeries(frame, window=GREY_OF_SLICE)))
    before = viewer.call("viewer.camera.toView([32, 22])")
    assert viewer.pixel(*before)[0] > 150
    drag(viewer, (60, -40), button="middle")
    moved = viewer.call("viewer.camera.toView([32, 22])")
    assert moved == pytest.approx([before[0] + 60, before[1] - 40], abs=1)
    assert viewer.pixel(*moved)[0] > 150
    assert viewer.pixel(*before)[0] < 40
    zoom = viewer.state()["zoom"]
    drag(viewer, (0, -50), button="right")
    assert viewer.state()["zoom"] == pytest.approx(zoom * 1.01**50, rel=0.01)
    viewer.page.mouse.move(*moved)
    viewer.page.keyboard.down("Control")
    viewer.page.mouse.wheel(0, -100)
    viewer.page.keyboard.up("Control")
    viewer.page.wait_for_timeout(60)
    assert viewer.state()["zoom"] == pytest.approx(zoom * 1.01**50 * 1.15, rel=0.01)
    assert viewer.pixel(*viewer.call("viewer.camera.toView([32, 22])"))[0] > 150
    viewer.page.keyboard.press("f")
    assert viewer.state()["zoom"] == pytest.approx(zoom, rel=1e-6)


def test_keys(cpu_viewer: OpenPage, viewer_page: ViewerPage) -> None:
    viewer = cpu_viewer()
    viewer.open(viewer_page.add(numbered()))
    viewer.page.locator(".sv-surface").click()
    for key, index in (
        ("ArrowDown", 16),
        ("ArrowRight", 17),
        ("ArrowUp", 16),
        ("ArrowLeft", 15),
        ("PageDown", 25),
        ("PageDown", 29),
        ("PageUp", 19),
        ("Home", 0),
        ("End", 29),
    ):
        viewer.page.keyboard.press(key)
        assert viewer.settle() == index
    for key, tool in (("z", "zoom"), ("p", "pan"), ("s", "scroll"), ("w", "window")):
        viewer.page.keyboard.press(key)
        assert viewer.state()["tool"] == tool
    viewer.page.keyboard.press("i")
    viewer.page.wait_for_timeout(60)
    assert abs(middle(viewer) - (255 - 232)) <= 1
    zoom = viewer.state()["zoom"]
    viewer.page.keyboard.press("+")
    assert viewer.state()["zoom"] == pytest.approx(1.25 * zoom)
    viewer.page.keyboard.press("0")
    state = viewer.state()
    assert (state["inverted"], state["zoom"]) == (False, pytest.approx(zoom))
    viewer.page.keyboard.press("?")
    assert viewer.page.get_by_role("dialog", name="Keys of the page").is_visible()
    viewer.page.keyboard.press("Escape")
    assert viewer.page.locator(".sv-help").is_hidden()


def test_wheel_and_slider_scroll(cpu_viewer: OpenPage, viewer_page: ViewerPage) -> None:
    viewer = cpu_viewer()
    viewer.open(viewer_page.add(numbered()))
    viewer.page.mouse.move(450, 350)
    for _ in range(3):
        viewer.page.mouse.wheel(0, 100)
    viewer.page.wait_for_function("() => document.getElementById('stage').serpensViewer.state().index === 18")
    viewer.page.mouse.wheel(0, -100)
    viewer.page.wait_for_function("() => document.getElementById('stage').serpensViewer.state().index === 17")
    box = viewer.page.locator(".sv-track").bounding_box()
    assert box is not None
    viewer.page.mouse.move(box["x"] + 2, box["y"] + 1)
    viewer.page.mouse.down()
    viewer.page.mouse.move(box["x"] + 2, box["y"] + box["height"] - 1, steps=5)
    viewer.page.mouse.up()
    assert viewer.settle() == 29
    assert viewer.page.get_by_role("slider").get_attribute("aria-valuenow") == "30"


def test_menu_of_presets_is_chosen_with_the_mouse(cpu_viewer: OpenPage, viewer_page: ViewerPage) -> None:
    presets = ({"key": "1", "label": "Lung", "center": -600, "width": 1500},)
    viewer = cpu_viewer()
    viewer.open(viewer_page.add(numbered(presets=presets)))
    viewer.page.get_by_role("button", name="Presets").click()
    viewer.page.get_by_role("menuitem", name="Lung").click()
    assert viewer.state()["window"] == {"center": -600, "width": 1500, "function": "LINEAR"}
    assert viewer.page.locator(".sv-menu").is_hidden()
    assert viewer.events("window")[-1]["center"] == -600


def test_resize_keeps_the_whole_picture_in_view(cpu_viewer: OpenPage, viewer_page: ViewerPage) -> None:
    viewer = cpu_viewer()
    viewer.open(viewer_page.add(numbered()))
    for width, height in ((500, 800), (1300, 500)):
        viewer.page.set_viewport_size({"width": width, "height": height})
        viewer.page.wait_for_timeout(150)
        assert viewer.call("[viewer.canvas.width, viewer.canvas.height]") == [width, height]
        (left, top), (right, bottom) = viewer.call("[viewer.camera.toView([0, 0]), viewer.camera.toView([64, 64])]")
        assert 0 <= left < right <= width
        assert 56 <= top < bottom <= height
        assert abs(middle(viewer) - 120) <= 1


@pytest.mark.parametrize(
    ("spacing", "source", "label"),
    [
        ((0.5, 0.5), "patient", "5 mm"),
        ((0.15, 0.15), "imager", "2 detector mm"),
        (None, "unknown", "no pixel spacing: px only"),
    ],
)
def test_scale_bar_has_millimetres_only_from_the_file(
    spacing: tuple[float, float] | None, source: str, label: str, cpu_viewer: OpenPage, viewer_page: ViewerPage
) -> None:
    """64 px fill 632 px of the stage: zoom 9.875; 5 mm are 98.75 px of it, 2 detector mm 131.7 px."""
    viewer = cpu_viewer()
    viewer.open(viewer_page.add(numbered(spacing=spacing, spacing_source=source)))
    assert viewer.text(".sv-bar-label") == label
    if spacing:
        box = viewer.page.locator(".sv-bar").bounding_box()
        assert box is not None
        assert box["width"] == pytest.approx(float(label.split()[0]) / spacing[1] * 9.875, abs=0.5)
    else:
        assert viewer.page.locator(".sv-bar").is_hidden()


def test_cursor_reads_value_and_unit(cpu_viewer: OpenPage, viewer_page: ViewerPage) -> None:
    frame = np.zeros((1, 64, 64), np.int16)
    frame[0, 10, 20] = 1064
    frame[0, 0, 0] = -2000
    viewer = cpu_viewer()
    viewer.open(viewer_page.add(SyntheticSeries(frame, intercept=-1024.0, padding=(-2000, -2000))))
    for (i, j), text in (
        ((20, 10), "x 20 y 10 · 40 HU"),
        ((21, 10), "x 21 y 10 · -1024 HU"),
        ((0, 0), "x 0 y 0 · padding"),
    ):
        x, y = viewer.call(f"viewer.camera.toView([{i + 0.5}, {j + 0.5}])")
        viewer.page.mouse.move(x, y)
        viewer.page.wait_for_timeout(60)
        assert viewer.text(".sv-cursor") == text
    assert {"i": 20, "j": 10, "value": 40} in viewer.events("cursor")


def test_a_loop_plays_at_its_own_pace(cpu_viewer: OpenPage, viewer_page: ViewerPage) -> None:
    viewer = cpu_viewer()
    viewer.open(viewer_page.add(numbered(20, positions=False, frame_time_ms=50.0, spacing=None, letters=None)))
    assert viewer.state()["index"] == 0
    viewer.page.wait_for_function("() => document.getElementById('stage').serpensViewer.state().loadedFrames === 20")
    started = time.perf_counter()
    viewer.page.get_by_role("button", name="Play").click()
    viewer.page.wait_for_function("() => document.getElementById('stage').serpensViewer.state().index >= 10")
    assert 0.35 < time.perf_counter() - started < 1.5
    viewer.page.get_by_role("button", name="Stop").click()
    assert viewer.state()["playing"] is False
    assert viewer.text(".sv-position").startswith("frame ")


def test_why_there_is_no_3d_is_told(cpu_viewer: OpenPage, viewer_page: ViewerPage) -> None:
    viewer = cpu_viewer()
    viewer.open(viewer_page.add(numbered(kind_reason="a slice is missing after slice 14")))
    assert viewer.text(".sv-chip") == "3D off: a slice is missing after slice 14"


def test_texts_of_the_file_are_never_markup(cpu_viewer: OpenPage, viewer_page: ViewerPage) -> None:
    viewer = cpu_viewer()
    name = "<img src=x onerror=alert(1)> <3 cm"
    viewer.open(viewer_page.add(numbered(description=name, kind_reason="<b>bold</b>")))
    assert viewer.text(".sv-title") == f"{name} · CT"
    assert viewer.text(".sv-chip") == "3D off: <b>bold</b>"


@pytest.mark.parametrize("leg", ["cpu_viewer", "webgl_viewer"])
def test_nothing_is_stored_and_no_request_leaves_the_origin(
    leg: str, request: pytest.FixtureRequest, viewer_page: ViewerPage
) -> None:
    viewer = request.getfixturevalue(leg)()
    viewer.open(viewer_page.add(numbered(description="SECRET^NAME")))
    viewer.page.wait_for_function("() => document.getElementById('stage').serpensViewer.state().loadedFrames === 30")
    stored = viewer.page.evaluate(
        "async () => [localStorage.length, sessionStorage.length, (await indexedDB.databases()).length]"
    )
    assert stored == [0, 0, 0]
    assert all(url.startswith((viewer_page.url, "data:")) for url in viewer.requests)
    assert not any("SECRET" in url for url in viewer.requests)
    assert viewer.refused == []
    assert viewer.console == []


def test_software_webgl_is_no_reason_to_draw_slowly(webgl_viewer: OpenPage, viewer_page: ViewerPage) -> None:
    viewer = webgl_viewer(query="")
    viewer.open(viewer_page.add(numbered()))
    assert viewer.state()["renderMode"] == "cpu"


def test_a_picture_larger_than_a_texture_is_drawn_by_the_cpu(webgl_viewer: OpenPage, viewer_page: ViewerPage) -> None:
    viewer = webgl_viewer()
    viewer.open(viewer_page.add(SyntheticSeries(np.full((1, 900, 9000), 100, np.uint8), window=GREY_OF_SLICE)))
    assert viewer.state()["renderMode"] == "cpu"
    assert abs(viewer.pixel_of(4500, 450)[0] - 100) <= 1
    viewer.open(viewer_page.add(numbered()))
    assert viewer.state()["renderMode"] == "webgl"
