"""The brush paints exactly the pixels under it, and what it painted reaches the server whatever happens on the way."""

import numpy as np
import pytest

from tests.mask_page import *  # noqa: F403
from tests.mask_page import BLOCK, COLUMNS, ROWS, MaskPage, OpenMasks, block, phantom, swept

# What the fill of a segment has on the screen: 35 % of 255.
FILL = 89
LEGS = [("cpu_masks", 1), ("cpu_masks", 2), ("webgl_masks", 1), ("webgl_masks", 2)]


@pytest.fixture
def leg(request: pytest.FixtureRequest) -> OpenMasks:
    opener: OpenMasks = request.getfixturevalue(request.param)
    return opener


def open_with_brush(opener: OpenMasks, name: str, **options: object) -> MaskPage:
    """A study at zoom 8 with an empty segment that the brush is in."""
    files = phantom(name, **{key: options.pop(key) for key in ("slices", "spacing") if key in options})  # type: ignore[arg-type]
    opened = opener(files, **options)
    opened.page.locator(".sm-column").get_by_text("+ Add").click()
    opened.look(8, x=24, y=16)
    opened.tool("brush")
    opened.set_radius(3.3)
    return opened


def rule(opened: MaskPage, places: list[tuple[float, float]], radius: float = 3.3) -> np.ndarray:
    spacing = opened.series["frames"][0]["spacing"]
    painted: np.ndarray = swept(places, radius, spacing=spacing, rows=ROWS, columns=COLUMNS)
    return painted


def shown_as_painted(opened: MaskPage, expected: np.ndarray) -> None:
    """The fill on the screen is on these pixels and on no others: read at the middle of each."""
    _, overlay, _, scale = opened.layers()
    middles = [
        [int((j + 0.5) * overlay.shape[0] / ROWS) for j in range(ROWS)],
        [int((i + 0.5) * scale) for i in range(COLUMNS)],
    ]
    seen = overlay[np.ix_(*middles)]
    inside = (seen > 0)[expected]
    assert inside.all()
    assert not (seen > 0)[~expected].any()


@pytest.mark.parametrize(("leg", "ratio"), LEGS, indirect=["leg"])
def test_c29_a_mask_has_its_edges_where_the_picture_has_them(leg: OpenMasks, ratio: int):
    """Step edges at zoom 8: picture and mask change at the same device pixel, in both ways of drawing."""
    opened = leg(phantom(f"edges {ratio} {id(leg)}"), ratio=ratio)
    opened.store("Block", {1: block(*BLOCK)})
    opened.page.evaluate("() => document.querySelector('.sp-stage').serpensMasks.store.refresh()")
    opened.row("Block").click()
    opened.go_to(1)
    opened.look(8, x=24, y=16)
    opened.page.wait_for_timeout(150)
    picture, overlay, _, scale = opened.layers()
    assert scale == 8 * ratio
    for of_picture, of_mask, (low, high) in (
        (picture[16 * 8 * ratio], overlay[16 * 8 * ratio], (BLOCK[0], BLOCK[2])),
        (picture[:, 24 * 8 * ratio], overlay[:, 24 * 8 * ratio], (BLOCK[1], BLOCK[3])),
    ):
        bright = np.flatnonzero(of_picture > 127)
        assert (bright[0], bright[-1] + 1) == (low * 8 * ratio, high * 8 * ratio)
        # The border of the chosen segment is two CSS pixels wide and lies half inside.
        drawn, filled = np.flatnonzero(of_mask), np.flatnonzero(of_mask == FILL)
        assert (drawn[0], drawn[-1] + 1) == (low * 8 * ratio - ratio, high * 8 * ratio + ratio)
        assert (filled[0], filled[-1] + 1) == (low * 8 * ratio + ratio, high * 8 * ratio - ratio)


@pytest.mark.parametrize(("leg", "ratio"), LEGS, indirect=["leg"])
def test_the_brush_paints_exactly_the_pixels_under_it_and_the_eraser_takes_them(leg: OpenMasks, ratio: int):
    opened = open_with_brush(leg, f"exact {ratio} {id(leg)}", ratio=ratio)
    painted = rule(opened, opened.drag((15.2, 9.7), (28.9, 20.1), (33.4, 12.6)))
    opened.wait_saved()
    assert painted.sum() > 100
    assert np.array_equal(opened.plane("Segment 1", 1), painted)
    shown_as_painted(opened, painted)
    opened.tool("erase")
    erased = painted & ~rule(opened, opened.drag((24.3, 16.2), (24.8, 21.6)))
    assert 0 < erased.sum() < painted.sum()
    opened.page.wait_for_timeout(50)
    opened.wait_saved()
    assert np.array_equal(opened.plane("Segment 1", 1), erased)
    assert not opened.plane("Segment 1", 0).any()
    opened.watched.require_clean()


def test_where_pixels_are_not_square_the_brush_is_round_in_millimetres(cpu_masks: OpenMasks):
    """Rows 1 mm apart, columns 2 mm: a radius of 5 mm reaches 5 rows and 2.5 columns."""
    opened = open_with_brush(cpu_masks, "not square", spacing=(1.0, 2.0))
    opened.set_radius(5.0)
    painted = rule(opened, opened.drag((24.1, 16.3)), radius=5.0)
    opened.wait_saved()
    assert np.array_equal(opened.plane("Segment 1", 1), painted)
    assert painted.any(axis=1).sum() == 10
    assert painted.any(axis=0).sum() == 5


def test_the_least_brush_paints_one_pixel_and_the_cursor_is_as_large_as_the_brush(cpu_masks: OpenMasks):
    opened = open_with_brush(cpu_masks, "least")
    opened.page.mouse.move(*opened.screen(24, 16))
    tip = opened.page.locator(".sm-tip").bounding_box()
    assert tip["width"] == pytest.approx(2 * 3.3 * 8, abs=0.6)
    for _ in range(40):
        opened.press("[")
    opened.drag((24.5, 16.5))
    opened.wait_saved()
    assert np.argwhere(opened.plane("Segment 1", 1)).tolist() == [[16, 24]]
    opened.press("]")
    larger = opened.page.locator(".sm-tip").bounding_box()
    assert larger["width"] < tip["width"]


def test_two_fast_strokes_are_both_saved_and_undone_one_by_one(cpu_masks: OpenMasks):
    opened = open_with_brush(cpu_masks, "two strokes")
    first = rule(opened, opened.drag((12, 10), (14, 12)))
    both = first | rule(opened, opened.drag((30, 20), (33, 22)))
    opened.wait_saved()
    assert np.array_equal(opened.plane("Segment 1", 1), both)
    for keys, expected in (
        ("Control+z", first),
        ("Control+z", np.zeros_like(first)),
        ("Control+Shift+z", first),
        ("Control+y", both),
    ):
        opened.press(keys)
        opened.page.wait_for_timeout(80)
        opened.wait_saved()
        assert np.array_equal(opened.plane("Segment 1", 1), expected)
    shown_as_painted(opened, both)


def test_a_new_stroke_clears_what_could_be_done_again(cpu_masks: OpenMasks):
    opened = open_with_brush(cpu_masks, "clears redo")
    opened.drag((12, 10))
    opened.press("Control+z")
    second = rule(opened, opened.drag((30, 20)))
    opened.press("Control+y")
    opened.wait_saved()
    assert np.array_equal(opened.plane("Segment 1", 1), second)


def test_a_slice_change_in_mid_save_puts_each_stroke_on_its_own_slice(cpu_masks: OpenMasks):
    opened = open_with_brush(cpu_masks, "mid save")
    opened.wait_saved()
    held: list[object] = []
    opened.page.route("**/api/masks/*/planes/**", lambda route: held.append(route), times=1)
    middle = rule(opened, opened.drag((15, 12), (20, 14)))
    opened.go_to(2)
    last = rule(opened, opened.drag((30, 20), (34, 24)))
    opened.page.wait_for_timeout(100)
    assert opened.saving() == "saving…"
    assert len(held) == 1
    held[0].continue_()  # type: ignore[attr-defined]
    opened.wait_saved()
    assert np.array_equal(opened.plane("Segment 1", 1), middle)
    assert np.array_equal(opened.plane("Segment 1", 2), last)
    assert not opened.plane("Segment 1", 0).any()
    shown_as_painted(opened, last)
    opened.page.reload()
    opened.settle()
    opened.row("Segment 1").wait_for()
    opened.go_to(2)
    opened.look(8, x=24, y=16)
    opened.page.wait_for_timeout(200)
    shown_as_painted(opened, last)


def test_a_stroke_ends_where_the_slice_changes_under_it(cpu_masks: OpenMasks):
    opened = open_with_brush(cpu_masks, "wheel in stroke")
    start = opened.screen(15, 12)
    opened.page.mouse.move(*start)
    opened.page.mouse.down()
    before = rule(opened, [opened.picture(start)])
    opened.go_to(2)
    opened.page.mouse.move(*opened.screen(40, 30))
    opened.page.mouse.up()
    opened.wait_saved()
    assert np.array_equal(opened.plane("Segment 1", 1), before)
    assert not opened.plane("Segment 1", 2).any()


def test_a_failed_save_keeps_the_edit_says_so_and_is_tried_again(cpu_masks: OpenMasks):
    opened = open_with_brush(cpu_masks, "failed save")
    opened.wait_saved()
    opened.page.route("**/api/masks/*/planes/**", lambda route: route.abort("connectionrefused"))
    painted = rule(opened, opened.drag((15, 12), (20, 14)))
    opened.page.wait_for_function("() => document.querySelector('.sm-saving').textContent.startsWith('not saved')")
    assert "the edit is kept here" in opened.saving()
    shown_as_painted(opened, painted)
    warns = """() => { const leaving = new Event("beforeunload", { cancelable: true });
                       dispatchEvent(leaving); return leaving.defaultPrevented; }"""
    assert opened.page.evaluate(warns)
    painted = painted | rule(opened, opened.drag((30, 20)))
    opened.page.unroute("**/api/masks/*/planes/**")
    opened.page.locator(".sm-saving button").click()
    opened.wait_saved()
    assert np.array_equal(opened.plane("Segment 1", 1), painted)
    assert not opened.page.evaluate(warns)
    assert opened.saving().startswith("saved ")


def test_a_lost_answer_loses_no_stroke(cpu_masks: OpenMasks):
    """The server stored the first try, whose answer never came; what was drawn meanwhile is stored after it."""
    opened = open_with_brush(cpu_masks, "lost answer")
    opened.wait_saved()

    def lose(route: object) -> None:
        route.fetch()  # type: ignore[attr-defined]
        route.abort("connectionreset")  # type: ignore[attr-defined]

    opened.page.route("**/api/masks/*/planes/**", lose, times=1)
    painted = rule(opened, opened.drag((15, 12)))
    opened.page.wait_for_function("() => document.querySelector('.sm-saving').textContent.startsWith('not saved')")
    painted = painted | rule(opened, opened.drag((30, 20)))
    opened.page.locator(".sm-saving button").click()
    opened.wait_saved()
    assert np.array_equal(opened.plane("Segment 1", 1), painted)
    assert opened.mask("Segment 1")["version"] == 3


def two_tabs(opener: OpenMasks, name: str) -> tuple[MaskPage, MaskPage, np.ndarray, np.ndarray]:
    """Two tabs on one mask; the first one saved after the second one opened it, and the second one drew, too."""
    first = open_with_brush(opener, name)
    first.wait_saved()
    second = opener(study_id=first.series["study_id"])
    second.look(8, x=24, y=16)
    second.row("Segment 1").click()
    second.tool("brush")
    second.set_radius(3.3)
    theirs = rule(first, first.drag((15, 12)))
    first.wait_saved()
    mine = rule(second, second.drag((30, 20)))
    second.page.locator(".sm-conflict:not([hidden])").wait_for()
    return first, second, theirs, mine


def test_of_two_tabs_the_second_save_is_refused_and_kept_as_a_segment_of_its_own(cpu_masks: OpenMasks):
    _, second, theirs, mine = two_tabs(cpu_masks, "conflict, mine")
    assert "was saved in another tab" in second.page.locator(".sm-conflict:not([hidden])").inner_text()
    assert second.saving() == "not saved: the mask was changed elsewhere"
    shown_as_painted(second, mine)
    assert np.array_equal(second.plane("Segment 1", 1), theirs)
    second.page.get_by_role("button", name="Save mine as a new segment").click()
    second.row("Segment 1 (mine)").wait_for()
    second.wait_saved()
    assert np.array_equal(second.plane("Segment 1", 1), theirs)
    assert np.array_equal(second.plane("Segment 1 (mine)", 1), mine)
    assert second.page.locator(".sm-conflict:not([hidden])").count() == 0


def test_of_two_tabs_theirs_can_be_taken(cpu_masks: OpenMasks):
    _, second, theirs, _ = two_tabs(cpu_masks, "conflict, theirs")
    second.page.get_by_role("button", name="Take theirs").click()
    second.page.locator(".sm-conflict:not([hidden])").wait_for(state="detached")
    second.page.wait_for_timeout(200)
    shown_as_painted(second, theirs)
    both = theirs | rule(second, second.drag((30, 20)))
    second.wait_saved()
    assert np.array_equal(second.plane("Segment 1", 1), both)


def test_a_person_on_a_tools_mask_makes_a_version_of_their_own(cpu_masks: OpenMasks):
    opened = open_with_brush(cpu_masks, "tool mask")
    opened.tool("box")
    opened.drag((10, 30), (20, 40))
    opened.page.get_by_role("button", name="Keep").click()
    opened.page.locator(".sm-accept").wait_for(state="detached")
    assert opened.mask("Segment 1")["author"]["kind"] == "tool"
    before = opened.plane("Segment 1", 1)
    opened.tool("brush")
    after = before | rule(opened, opened.drag((30, 20)))
    opened.page.wait_for_timeout(50)
    opened.wait_saved()
    mask = opened.mask("Segment 1")
    assert (mask["author"]["kind"], mask["author"]["name"]) == ("person", "clinician")
    assert np.array_equal(opened.plane("Segment 1", 1), after)
