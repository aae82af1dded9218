"""What the viewer paints is what `imaging.render` says, to one grey level, in both ways of drawing."""

import math

import numpy as np
import pytest

from tests.viewer_fixtures import *  # noqa: F403
from tests.viewer_fixtures import OpenPage
from tests.viewer_page import OpenViewer, SyntheticSeries, ViewerPage

SOFT_TISSUE = {"center": 40, "width": 400, "function": "LINEAR"}


def expected_grey(series: SyntheticSeries, window: dict[str, object]) -> np.ndarray:
    """The standard's formula, one value at a time: slow and clear. Source: DICOM PS3.3 C.11.2.1.2 and C.11.2.1.3."""
    center, width = float(window["center"]), float(window["width"])  # type: ignore[arg-type]

    def grey(stored: float) -> int:
        is_padding = series.padding and series.padding[0] <= stored <= series.padding[1]
        if is_padding or not math.isfinite(stored):
            return 0
        value = stored * series.slope + series.intercept
        match window["function"]:
            case "SIGMOID":
                level = 255 / (1 + math.exp(-4 * (value - center) / width))
            case "LINEAR_EXACT":
                level = ((value - center) / width + 0.5) * 255
            case _ if value <= center - 0.5 - (width - 1) / 2:
                level = 0.0
            case _ if value > center - 0.5 + (width - 1) / 2:
                level = 255.0
            case _:
                level = ((value - (center - 0.5)) / (width - 1) + 0.5) * 255
        level = min(255.0, max(0.0, level))
        return round(255 - level if series.photometric == "MONOCHROME1" else level)

    return np.vectorize(grey)(series.frames[0])


def ramp(dtype: str, low: float, high: float, *, rows: int = 96, columns: int = 80) -> np.ndarray:
    """One frame (1, rows, columns) that goes through every grey level many times."""
    return np.linspace(low, high, rows * columns).reshape(1, rows, columns).astype(dtype)


CASES = {
    "soft tissue": SyntheticSeries(ramp("int16", -1024, 1500), window=SOFT_TISSUE),
    "lung, rescaled": SyntheticSeries(
        ramp("uint16", 0, 2600), intercept=-1024.0, window={"center": -600, "width": 1500, "function": "LINEAR"}
    ),
    "signed, all values": SyntheticSeries(
        ramp("int16", -32768, 32767), window={"center": 0, "width": 65536, "function": "LINEAR"}
    ),
    "unsigned above 32767": SyntheticSeries(
        ramp("uint16", 30000, 65535), window={"center": 50000, "width": 20000, "function": "LINEAR"}
    ),
    "width 1 is a step": SyntheticSeries(
        ramp("int16", -20, 100), window={"center": 40, "width": 1, "function": "LINEAR"}
    ),
    "fractional slope": SyntheticSeries(
        ramp("int16", -500, 5000),
        slope=0.37,
        intercept=-12.5,
        window={"center": 800.5, "width": 1777.3, "function": "LINEAR"},
    ),
    "eight bit signed": SyntheticSeries(
        ramp("int8", -128, 127), window={"center": 0, "width": 200, "function": "LINEAR"}
    ),
    "float": SyntheticSeries(ramp("float32", -1, 1), window={"center": 0.1, "width": 1.5, "function": "LINEAR_EXACT"}),
    "no number": SyntheticSeries(
        np.array([[[-0.5, 0.0, 0.5], [np.nan, np.inf, -np.inf]]], np.float32),
        window={"center": 0, "width": 2, "function": "LINEAR_EXACT"},
        photometric="MONOCHROME1",
    ),
    "int32": SyntheticSeries(
        ramp("int32", -200000, 200000), window={"center": 1000, "width": 150000, "function": "LINEAR"}
    ),
    "exact": SyntheticSeries(
        ramp("int16", -1024, 1500), window={"center": 40, "width": 400, "function": "LINEAR_EXACT"}
    ),
    "sigmoid": SyntheticSeries(ramp("int16", -1024, 1500), window={"center": 40, "width": 400, "function": "SIGMOID"}),
    "monochrome1": SyntheticSeries(
        ramp("uint16", 0, 4095), photometric="MONOCHROME1", window={"center": 2048, "width": 3000, "function": "LINEAR"}
    ),
    "padding is black": SyntheticSeries(ramp("int16", -2000, 1500), padding=(-2000, -1025), window=SOFT_TISSUE),
    "padding of monochrome1 is black": SyntheticSeries(
        ramp("uint16", 0, 4095), photometric="MONOCHROME1", padding=(4000, 4095),
        window={"center": 2048, "width": 3000, "function": "LINEAR"},
    ),
}  # fmt: skip


def assert_agrees(viewer: OpenViewer, series: SyntheticSeries) -> None:
    assert series.window is not None
    painted = viewer.picture(series).astype(int)
    expected = expected_grey(series, series.window)
    assert len(np.unique(expected)) > 1
    assert abs(painted - expected[..., None]).max() <= 1


@pytest.mark.parametrize("case", CASES)
def test_picture_agrees_to_one_grey_level(case: str, cpu_viewer: OpenPage, viewer_page: ViewerPage) -> None:
    series = viewer_page.add(CASES[case])
    viewer = cpu_viewer()
    viewer.open(series)
    assert viewer.state()["renderMode"] == "cpu"
    assert_agrees(viewer, series)


def test_picture_agrees_to_one_grey_level_with_webgl(webgl_viewer: OpenPage, viewer_page: ViewerPage) -> None:
    viewer = webgl_viewer()
    for case in ("soft tissue", "fractional slope", "sigmoid", "padding of monochrome1 is black", "float"):
        series = viewer_page.add(CASES[case])
        viewer.open(series)
        assert viewer.state()["renderMode"] == "webgl"
        assert_agrees(viewer, series)
    assert not viewer.console


def test_presets_change_the_picture_as_the_formula_says(cpu_viewer: OpenPage, viewer_page: ViewerPage) -> None:
    presets = (
        {"key": "1", "label": "Soft tissue", "center": 40, "width": 400},
        {"key": "2", "label": "Lung", "center": -600, "width": 1500},
        {"key": "3", "label": "Bone", "center": 400, "width": 1800},
    )
    series = viewer_page.add(SyntheticSeries(ramp("int16", -1024, 1500), presets=presets))
    viewer = cpu_viewer()
    viewer.open(series)
    for key, center, width in (("2", -600, 1500), ("3", 400, 1800), ("1", 40, 400)):
        viewer.page.locator(".sv-surface").press(key)
        window = {"center": center, "width": width, "function": "LINEAR"}
        assert viewer.state()["window"] == window
        assert abs(viewer.picture(series).astype(int) - expected_grey(series, window)[..., None]).max() <= 1
        assert viewer.text(".sv-window") == f"C {center} W {width}"


@pytest.mark.parametrize("leg", ["cpu_viewer", "webgl_viewer"])
def test_colour_is_shown_as_it_is_and_has_no_window(
    leg: str, request: pytest.FixtureRequest, viewer_page: ViewerPage
) -> None:
    frames = np.random.default_rng(5).integers(0, 256, (1, 60, 90, 3), dtype=np.uint8)
    series = viewer_page.add(
        SyntheticSeries(frames, photometric="RGB", window=None, unit=None, letters=None, spacing=None, positions=False)
    )
    viewer = request.getfixturevalue(leg)()
    viewer.open(series)
    assert abs(viewer.picture(series).astype(int) - frames[0]).max() <= 1
    assert viewer.state()["window"] is None
    assert viewer.page.get_by_role("button", name="W/L").is_hidden()
    assert viewer.text(".sv-window") == "colour"


def test_picture_agrees_with_imaging_render(cpu_viewer: OpenPage, viewer_page: ViewerPage) -> None:
    from backend.domain.study import FrameValues, Photometric
    from backend.domain.view import VoiLutFunction, Window
    from backend.imaging.render import render

    viewer = cpu_viewer()
    for series in CASES.values():
        assert series.window is not None
        window = Window(
            float(series.window["center"]), float(series.window["width"]), VoiLutFunction(series.window["function"])
        )
        values = FrameValues(slope=series.slope, intercept=series.intercept, padding=series.padding)
        expected = render(series.frames[0], values, Photometric(series.photometric), window)
        viewer.open(viewer_page.add(series))
        assert abs(viewer.picture(series).astype(int) - expected.astype(int)[..., None]).max() <= 1


@pytest.mark.parametrize("leg", ["cpu_viewer", "webgl_viewer"])
@pytest.mark.parametrize(
    ("plane", "letters"),
    [("axial", ("R", "L", "A", "P")), ("sagittal", ("A", "P", "H", "F")), ("coronal", ("R", "L", "H", "F"))],
)
def test_asymmetric_phantom_keeps_its_sides(
    leg: str, plane: str, letters: tuple[str, str, str, str], request: pytest.FixtureRequest, viewer_page: ViewerPage
) -> None:
    """A bright block in the first column's and first row's corner, a middle one at the right: nothing is mirrored."""
    frame = np.full((1, 64, 96), 100, np.int16)
    frame[0, 8:16, 8:16] = 1000  # toward the first letter of left and top: patient right, anterior in an axial slice
    frame[0, 40:48, 80:88] = 500
    series = viewer_page.add(
        SyntheticSeries(frame, letters=letters, window={"center": 500, "width": 1001, "function": "LINEAR"})
    )
    viewer = request.getfixturevalue(leg)()
    viewer.open(series)
    edges = [viewer.text(f".sv-letter-{edge}") for edge in ("left", "right", "top", "bottom")]
    assert edges == list(letters)
    # ((1000 - 499.5) / 1000 + 0.5) * 255 = 255.1; 500: 127.6; 100: 25.6
    for (i, j), grey in (((11, 11), 255), ((84, 11), 26), ((11, 43), 26), ((84, 43), 128), ((50, 30), 26)):
        assert abs(viewer.pixel_of(i, j)[0] - grey) <= 1
    left, right = viewer.call("[viewer.camera.toView([11, 11])[0], viewer.camera.toView([84, 43])[0]]")
    box = {edge: viewer.page.locator(f".sv-letter-{edge}").bounding_box() for edge in ("left", "right")}
    assert box["left"]["x"] < left < right < box["right"]["x"]


def test_no_letters_without_a_geometry(cpu_viewer: OpenPage, viewer_page: ViewerPage) -> None:
    viewer = cpu_viewer()
    viewer.open(viewer_page.add(SyntheticSeries(ramp("int16", 0, 100), letters=None, positions=False)))
    assert viewer.page.locator(".sv-letter:not(:empty)").count() == 0


@pytest.mark.parametrize("leg", ["cpu_viewer", "webgl_viewer"])
def test_c07_non_square_pixels_look_round(leg: str, request: pytest.FixtureRequest, viewer_page: ViewerPage) -> None:
    """Rows 1 mm apart, columns 2 mm: an ellipse of 20 rows x 10 columns is a circle of 20 mm."""
    y, x = np.mgrid[0:100, 0:100]
    inside = ((y - 49.5) / 20) ** 2 + ((x - 49.5) / 10) ** 2 <= 1
    series = viewer_page.add(
        SyntheticSeries(
            np.where(inside, 1000, 0).astype(np.int16)[None],
            spacing=(1.0, 2.0),
            window={"center": 500, "width": 1000, "function": "LINEAR"},
        )
    )
    viewer = request.getfixturevalue(leg)()
    viewer.open(series)
    (left, top), (right, bottom) = viewer.call("[viewer.camera.toView([0, 0]), viewer.camera.toView([100, 100])]")
    assert (right - left) / (bottom - top) == pytest.approx(2.0, abs=0.01)
    centre = ((left + right) / 2, (top + bottom) / 2)
    radius = viewer.state()["zoom"] * 20
    for angle in range(0, 360, 30):
        away = (math.cos(math.radians(angle)), math.sin(math.radians(angle)))
        assert viewer.pixel(centre[0] + away[0] * radius * 0.85, centre[1] + away[1] * radius * 0.85)[0] > 200
        assert viewer.pixel(centre[0] + away[0] * radius * 1.15, centre[1] + away[1] * radius * 1.15)[0] < 50


@pytest.mark.parametrize("leg", ["cpu_viewer", "webgl_viewer"])
def test_two_device_pixels_a_css_pixel(leg: str, request: pytest.FixtureRequest, viewer_page: ViewerPage) -> None:
    series = viewer_page.add(CASES["soft tissue"])
    viewer = request.getfixturevalue(leg)(ratio=2.0)
    viewer.open(series)
    assert viewer.call("[viewer.canvas.width, viewer.canvas.height]") == [1800, 1400]
    assert_agrees(viewer, series)
