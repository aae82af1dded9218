"""Masks on the case page: each outline on its own slice, prompts with a preview, and a list that can be undone."""

from typing import Any

import numpy as np
import pytest
from playwright.sync_api import expect

from backend.domain.segmenter import SegmenterUnavailable
from tests.mask_page import *  # noqa: F403
from tests.mask_page import MaskPage, OpenMasks, block, phantom
from tests.pages_fixtures import Shoot, shoot  # noqa: F401
from tests.product import Product

PREVIEW = ".sm-said"


def refresh(opened: MaskPage) -> None:
    """Read the list of masks anew, as after a run."""
    opened.page.evaluate("() => document.querySelector('.sp-stage').serpensMasks.store.refresh()")
    opened.page.wait_for_timeout(150)


def outlined(opened: MaskPage) -> tuple[int, int, int, int] | None:
    """The pixels around which something is drawn, as (i0, j0, i1, j1); None where nothing is."""
    _, overlay, _, scale = opened.layers()
    rows, columns = np.flatnonzero(overlay.any(axis=1)), np.flatnonzero(overlay.any(axis=0))
    if not len(rows):
        return None
    edges = columns[0], rows[0], columns[-1] + 1, rows[-1] + 1
    i0, j0, i1, j1 = (round(edge / scale) for edge in edges)
    return i0, j0, i1, j1


def squares(count: int) -> dict[int, np.ndarray]:
    """On slice k a square of k pixels a side, from column and row 4 on."""
    return {k: block(4, 4, 4 + k, 4 + k) for k in range(1, count)}


def said(opened: MaskPage) -> str:
    """What the prompt's part of the column says, on one line."""
    return " ".join(opened.page.locator(PREVIEW).inner_text().split())


def prompt_box(opened: MaskPage, *places: tuple[float, float]) -> tuple[int, int, int, int]:
    """Drag a box and wait for its preview; the pixels that the fake outlines."""
    opened.tool("box")
    (x0, y0), *_, (x1, y1) = opened.drag(*places)
    opened.page.locator(".sm-accept").wait_for()
    return round(x0), round(y0), round(x1), round(y1)


def test_c30_each_slice_shows_its_own_mask(cpu_masks: OpenMasks):
    opened = cpu_masks(phantom("c30", slices=12))
    opened.store("Squares", squares(12))
    refresh(opened)
    opened.look(8, x=32, y=24)
    there_and_back = [*range(12), *range(11, -1, -1), 7, 2, 11, 5]
    for index in there_and_back:
        opened.go_to(index)
        opened.page.wait_for_timeout(40)
        assert outlined(opened) == (None if index == 0 else (4, 4, 4 + index, 4 + index)), index
    opened.call("[3, 9, 1, 10, 8].forEach((index, at) => setTimeout(() => viewer.goTo(index), at * 16))")
    opened.page.wait_for_timeout(200)
    opened.settle()
    assert outlined(opened) == (4, 4, 12, 12)
    assert "64.0 mm² here" in opened.row_text("Squares")


def test_c54_late_planes_are_drawn_on_their_own_slice_only(cpu_masks: OpenMasks):
    """0, 57, 12 within 300 ms, each plane late, the first one last: picture, mask, number and the next edit are 12."""
    opened = cpu_masks(phantom("c54", slices=60))
    opened.store("Squares", {0: block(4, 4, 40, 40), 57: block(4, 4, 30, 30), 12: block(4, 4, 10, 10)})
    held: list[Any] = []
    opened.page.route("**/planes/**", lambda route: held.append(route))
    refresh(opened)
    opened.look(8, x=32, y=24)
    for index in (0, 57, 12):
        opened.call(f"viewer.goTo({index})")
        opened.page.wait_for_timeout(80)
    opened.settle()
    assert outlined(opened) is None
    for route in sorted(held, key=lambda route: ["/57", "/12", "/0"].index("/" + route.request.url.rsplit("/", 1)[1])):
        route.continue_()
    opened.page.wait_for_timeout(250)
    assert outlined(opened) == (4, 4, 10, 10)
    assert "slice 13 / 60" in opened.page.inner_text(".sv-position")
    opened.page.unroute_all()
    opened.row("Squares").click()
    opened.tool("erase")
    opened.drag((7, 7))
    opened.wait_saved()
    assert opened.plane("Squares", 12).sum() < 36
    assert opened.plane("Squares", 0).sum() == 36 * 36
    assert opened.plane("Squares", 57).sum() == 26 * 26


def test_c31_a_mask_stays_with_its_study_and_an_edit_on_its_way_with_its_mask(cpu_masks: OpenMasks):
    opened = cpu_masks(phantom("c31 a", rows=40, columns=40))
    other = opened.watched.product.upload(phantom("c31 b"))["study_ids"][0]
    other_series = opened.watched.product.study(other)["series"][0]["id"]
    opened.look(8, x=20, y=20)
    opened.tool("brush")
    opened.page.route("**/api/series/*/masks", lambda route: route.abort("connectionrefused"))
    opened.drag((20, 20), (24, 24))
    shown = outlined(opened)
    assert shown is not None
    second = MaskPage(opened.watched, opened.client, opened.client.get(f"/api/series/{other_series}").json())
    opened.page.evaluate("(id) => { location.hash = `#/case/${id}`; }", other)
    opened.page.wait_for_function(
        "(id) => document.querySelector('.sp-stage').serpensMasks.store.series?.id === id", arg=other_series
    )
    second.settle()
    assert outlined(second) is None
    assert second.labels() == []
    assert second.saving().startswith("not saved")
    second.press("Control+z")
    second.page.unroute_all()
    second.page.locator(".sm-saving button").click()
    second.wait_saved()
    assert second.masks() == []
    assert len(opened.masks()) == 1
    assert opened.plane("Segment 1", 1).sum() == opened.masks()[0]["segments"][0]["voxels"] > 0
    opened.show_study(opened.series["study_id"])
    opened.row("Segment 1").wait_for()
    opened.look(8, x=20, y=20)
    opened.page.wait_for_timeout(200)
    assert outlined(opened) == shown


def test_c33_each_step_is_undone_in_reverse_and_done_again(cpu_masks: OpenMasks):
    """Add a segment, paint, rename, accept a tool's mask, delete it; undo five times; redo five times."""
    opened = cpu_masks(phantom("c33"))
    opened.look(8, x=32, y=24)
    opened.page.get_by_text("+ Add").click()
    opened.tool("brush")
    opened.drag((20, 16), (26, 18))
    opened.wait_saved()
    painted = opened.plane("Segment 1", 1)
    opened.page.locator(".sm-name").dblclick()
    opened.page.locator(".sm-rename").fill("Nodule")
    opened.page.locator(".sm-rename").press("Enter")
    opened.row("Nodule").wait_for()
    i0, j0, i1, j1 = prompt_box(opened, (36, 8), (50, 20))
    opened.press("Enter")
    opened.row("Segment 2").wait_for()
    accepted = block(i0, j0, i1, j1)
    opened.row("Segment 2").hover()
    opened.row("Segment 2").locator(".sm-remove").click()
    opened.row("Segment 2").wait_for(state="detached")

    def state() -> tuple[list[str], bool | None, bool | None]:
        opened.page.wait_for_timeout(250)
        opened.wait_saved()
        labels = sorted(segment["label"] for mask in opened.masks() for segment in mask["segments"])
        assert sorted(opened.labels()) == labels
        first = next((label for label in ("Nodule", "Segment 1") if label in labels), None)
        has_paint = None if first is None else np.array_equal(opened.plane(first, 1), painted)
        has_box = np.array_equal(opened.plane("Segment 2", 1), accepted) if "Segment 2" in labels else None
        return labels, has_paint, has_box

    steps = [
        ([], None, None),
        (["Segment 1"], False, None),
        (["Segment 1"], True, None),
        (["Nodule"], True, None),
        (["Nodule", "Segment 2"], True, True),
        (["Nodule"], True, None),
    ]
    assert state() == steps[5]
    for at in (4, 3, 2, 1, 0):
        opened.press("Control+z")
        assert state() == steps[at]
    for at in (1, 2, 3, 4, 5):
        opened.press("Control+y")
        assert state() == steps[at]
    versions = opened.client.get(f"/api/masks/{opened.mask('Nodule')['mask_id']}/versions").json()["versions"]
    assert [version["version"] for version in versions] == list(range(1, len(versions) + 1))
    opened.watched.require_clean()


def test_c34_five_segments_of_one_mask_stay_five(cpu_masks: OpenMasks):
    opened = cpu_masks(phantom("c34"))
    version = opened.store("One", {1: block(2, 2, 4, 4)})
    segments = [{"number": n, "label": f"Label {n}", "color": "#4cc2ff"} for n in (1, 2, 3, 4, 7)]
    version = opened.client.patch(
        f"/api/masks/{version['mask_id']}",
        json={"segments": segments, "base_version": version["version"], "request_key": "five-labels"},
    ).json()
    for n in (2, 3, 4, 7):
        version = opened.save(version, 1, block(4 * n, 2, 4 * n + n, 4), number=n)
    refresh(opened)
    assert opened.labels() == ["Label 1", "Label 2", "Label 3", "Label 4", "Label 7"]
    opened.look(8, x=32, y=24)
    opened.row("Label 3").click()
    prompt_box(opened, (40, 30), (44, 34))
    opened.page.get_by_role("button", name="instead of this slice").click()
    opened.press("Enter")
    opened.page.locator(".sm-accept").wait_for(state="detached")
    counts = {s["number"]: s["voxels"] for s in opened.mask("Label 3")["segments"]}
    assert counts == {1: 4, 2: 4, 3: 16, 4: 8, 7: 14}
    assert opened.labels() == ["Label 1", "Label 2", "Label 3", "Label 4", "Label 7"]


@pytest.mark.parametrize("ratio", [1, 2])
def test_masks_lie_right_under_zoom_pan_resize_and_where_pixels_are_not_square(cpu_masks: OpenMasks, ratio: int):
    opened = cpu_masks(phantom(f"places {ratio}", spacing=(1.0, 2.0)), ratio=ratio)
    opened.store("Corner", {1: block(50, 4, 60, 9)})
    refresh(opened)
    inside, outside = ((50.5, 4.5), (59.5, 8.5)), ((49.2, 6.5), (60.8, 6.5), (55.5, 3.2), (55.5, 9.8), (4.5, 4.5))
    views = (
        "viewer.fit()",
        "viewer.setZoom(9.3)",
        "viewer.pan(-131, 77)",
        "viewer.setZoom(3.7, [50, 60])",
        "viewer.fit()",
    )
    for view in views:
        opened.call(view)
        if view == "viewer.setZoom(9.3)":
            opened.look(9.3, x=55, y=7)
        for place in inside:
            assert opened.overlay_colour(*place)[3] > 60, view
        for place in outside:
            assert opened.overlay_colour(*place)[3] == 0, view
    opened.page.set_viewport_size({"width": 1300, "height": 760})
    opened.page.wait_for_timeout(200)
    assert opened.overlay_colour(55.5, 6.5)[3] > 60
    assert opened.overlay_colour(4.5, 4.5)[3] == 0
    opened.page.set_viewport_size({"width": 1600, "height": 920})


def test_colour_opacity_and_visibility(cpu_masks: OpenMasks):
    opened = cpu_masks(phantom("colours"))
    opened.store("Liver", {1: block(20, 10, 40, 30)})
    refresh(opened)
    opened.look(8, x=30, y=20)
    assert opened.overlay_colour(30.5, 20.5) == pytest.approx((0x4C, 0xC2, 0xFF, 89), abs=2)
    row = opened.row("Liver")
    row.locator(".sm-swatch").first.click()
    row.get_by_label("Colour #ff9f6b").click()
    opened.page.wait_for_timeout(150)
    assert opened.overlay_colour(30.5, 20.5) == pytest.approx((0xFF, 0x9F, 0x6B, 89), abs=3)
    opened.wait_saved()
    assert opened.mask("Liver")["segments"][0]["color"] == "#ff9f6b"
    opened.page.get_by_label("Opacity of the segments").fill("80")
    assert opened.overlay_colour(30.5, 20.5)[3] == pytest.approx(204, abs=1)
    opened.page.get_by_label("Opacity of the segments").fill("35")
    row.get_by_label("Hide Liver").click()
    assert outlined(opened) is None
    row.get_by_label("Show Liver").click()
    assert outlined(opened) == (20, 10, 40, 30)
    opened.press("v")
    assert outlined(opened) is None
    opened.press("v")
    assert outlined(opened) == (20, 10, 40, 30)


def test_a_row_leads_to_the_nearest_slice_that_has_it_and_says_who_and_how_large(cpu_masks: OpenMasks):
    opened = cpu_masks(phantom("rows", slices=9))
    opened.store("Far", {0: block(0, 0, 4, 4), 7: block(0, 0, 10, 10)})
    refresh(opened)
    row = opened.row("Far")
    assert "v3 · clinician" in opened.row_text("Far")
    assert "not on this slice" in opened.row_text("Far")
    row.click()
    opened.settle()
    assert opened.watched.viewer_state()["index"] == 7
    # 116 voxels of 1 x 1 x 3 mm.
    assert "100 mm² here · 0.35 ml" in opened.row_text("Far")


def test_what_is_measured_at_the_detector_is_never_plain_millimetres(cpu_masks: OpenMasks):
    detector = {"Modality": "DX", "PixelSpacing": None, "ImagerPixelSpacing": [0.5, 0.5]}
    opened = cpu_masks(phantom("detector", slices=1, **detector))
    assert opened.series["spacing_source"] == "imager"
    opened.look(8, x=32, y=24)
    opened.store("Plate", {0: block(0, 0, 10, 10)})
    refresh(opened)
    # 100 px of 0.5 x 0.5 mm.
    expect(opened.row("Plate").locator(".sm-size")).to_have_text("25.0\u00a0mm²\u00a0det.")
    assert "Measured at the detector" in str(opened.row("Plate").locator(".sm-size").get_attribute("title"))
    prompt_box(opened, (18.1, 12.2), (30.1, 22.2))
    assert said(opened).startswith("Box. 30.0 mm² at the detector")
    opened.press("Escape")
    opened.tool("brush")
    assert opened.page.locator(".sm-panel .sm-value").inner_text().endswith(" mm det.")


def test_without_a_spacing_everything_is_in_pixels(cpu_masks: OpenMasks):
    opened = cpu_masks(phantom("no spacing", slices=1, Modality="DX", PixelSpacing=None))
    assert opened.series["spacing_source"] == "unknown"
    opened.store("Plate", {0: block(0, 0, 10, 10)})
    refresh(opened)
    expect(opened.row("Plate").locator(".sm-size")).to_have_text("100\u00a0px")


def test_an_outline_begun_before_more_images_came_is_not_stored_on_another_slice(cpu_masks: OpenMasks):
    opened = cpu_masks(phantom("grows", slices=2))
    opened.look(8, x=32, y=24)
    more = [("9.dcm", phantom("grows", slices=3)[2][1])]
    assert opened.watched.product.upload(more)["counts"]["stored"] == 1
    opened.page.get_by_text("+ Add").click()
    opened.page.wait_for_function("() => document.querySelector('.sm-saving').dataset.tone === 'bad'")
    assert opened.saving().startswith("not saved: More images came to this series since it was opened")
    assert opened.masks() == []
    opened.page.locator(".sm-saving button").click()
    opened.page.wait_for_function("() => document.querySelector('.sp-stage').serpensViewer.state().count === 3")
    expect(opened.page.locator(".sm-notice")).to_contain_text("could not be kept. Draw it again.")
    assert opened.labels() == []
    opened.page.get_by_text("+ Add").click()
    opened.wait_saved()
    assert len(opened.masks()) == 1


def test_a_box_is_previewed_and_accepted_or_rejected(cpu_masks: OpenMasks):
    opened = cpu_masks(phantom("box"))
    opened.look(8, x=32, y=24)
    i0, j0, i1, j1 = prompt_box(opened, (18.1, 12.2), (30.1, 22.2))
    assert (i0, j0, i1, j1) == (18, 12, 30, 22)
    text = said(opened)
    assert text.startswith("Box on slice 2. 120 mm²")
    assert "the box itself (a test's fake) 1 (demonstration)" in text
    assert outlined(opened) == (18, 12, 30, 22)
    assert opened.masks() == []
    opened.press("Escape")
    assert outlined(opened) is None
    assert opened.masks() == []
    prompt_box(opened, (18.1, 12.2), (30.1, 22.2))
    opened.press("Enter")
    opened.row("Segment 1").wait_for()
    assert np.array_equal(opened.plane("Segment 1", 1), block(18, 12, 30, 22))
    assert "v1 · the box itself" in opened.row_text("Segment 1")
    # The active segment has nothing on the next slice, so that is where the next outline goes.
    opened.go_to(2)
    prompt_box(opened, (20.1, 12.2), (28.1, 20.2))
    assert "into “Segment 1” on this slice" in said(opened)
    opened.press("Enter")
    opened.page.locator(".sm-accept").wait_for(state="detached")
    assert np.array_equal(opened.plane("Segment 1", 2), block(20, 12, 28, 20))
    assert np.array_equal(opened.plane("Segment 1", 1), block(18, 12, 30, 22))
    opened.watched.require_clean()


def test_an_accept_on_another_slice_shows_it_first(cpu_masks: OpenMasks):
    opened = cpu_masks(phantom("elsewhere"))
    opened.look(8, x=32, y=24)
    prompt_box(opened, (18.1, 12.2), (30.1, 22.2))
    opened.go_to(0)
    assert outlined(opened) is None
    opened.press("Enter")
    opened.settle()
    assert opened.watched.viewer_state()["index"] == 1
    assert opened.masks() == []
    opened.press("Enter")
    opened.row("Segment 1").wait_for()
    assert opened.plane("Segment 1", 1).sum() == 120


def test_points_gather_into_one_prompt(cpu_masks: OpenMasks):
    opened = cpu_masks(phantom("points"))
    opened.look(8, x=32, y=24)
    opened.tool("point")
    opened.drag((20.5, 12.5))
    opened.page.locator(".sm-accept").wait_for()
    opened.drag((24.5, 16.5))
    opened.page.wait_for_function("() => document.querySelector('.sm-said').textContent.startsWith('2 points')")
    opened.page.locator(".sm-accept").wait_for()
    opened.page.keyboard.down("Shift")
    opened.drag((40.5, 30.5))
    opened.page.keyboard.up("Shift")
    opened.page.wait_for_function("() => document.querySelector('.sm-said').textContent.startsWith('3 points')")
    opened.page.locator(".sm-accept").wait_for()
    prompt = opened.page.evaluate(
        "() => document.querySelector('.sp-stage').serpensMasks.prompting.prompts.state.prompt"
    )
    assert prompt["labels"] == [1, 1, 0]
    opened.press("Escape")


def test_a_prompt_tool_readies_the_slice_that_rests(cpu_masks: OpenMasks, mask_product: Product):
    opened = cpu_masks(phantom("rests"))
    segmenter: Any = mask_product.services.segmenter
    before = len(segmenter.prepared)
    opened.tool("box")
    opened.page.wait_for_timeout(300)
    assert len(segmenter.prepared) == before + 1
    opened.go_to(0)
    opened.go_to(2)
    opened.page.wait_for_timeout(700)
    assert len(segmenter.prepared) == before + 2


def test_what_goes_wrong_with_a_prompt_is_said_in_words(
    cpu_masks: OpenMasks, mask_product: Product, monkeypatch: pytest.MonkeyPatch
):
    opened = cpu_masks(phantom("wrong"))
    field = opened.page.get_by_label("Find by name")
    field.fill("liver")
    field.press("Enter")
    problem = opened.page.locator(".sm-said .sm-problem")
    problem.wait_for()
    assert problem.inner_text() == "Nothing is found by name in this kind of picture."

    def is_away(*_: object) -> None:
        raise SegmenterUnavailable("no segmenter answers")

    opened.press("Escape")
    with monkeypatch.context() as patched:
        patched.setattr(mask_product.services.segmenter, "segment", is_away)
        opened.look(8, x=32, y=24)
        opened.tool("box")
        opened.drag((18.1, 12.2), (30.1, 22.2))
        problem.wait_for()
        assert problem.inner_text() == "The segmenter does not answer at the moment."
    opened.page.get_by_role("button", name="Try again").click()
    opened.page.locator(".sm-accept").wait_for()
    opened.press("Escape")


def test_a_steps_box_is_dragged_and_its_mask_becomes_the_next_version(cpu_masks: OpenMasks):
    opened = cpu_masks(phantom("edit box"))
    version = opened.store("Nodule", {1: block(18, 12, 30, 22)})
    refresh(opened)
    opened.go_to(0)
    step = {
        "runId": "r", "sequence": 3, "frameIndex": 1, "box": [18, 12, 30, 22], "crop": None,
        "maskVersionIds": [version["id"]], "label": "nodule",
    }  # fmt: skip
    begin = """(step) => { const { prompting } = document.querySelector('.sp-stage').serpensMasks;
                           window.edited = []; prompting.edit(step, (result) => window.edited.push(result)); }"""
    opened.page.evaluate(begin, step)
    opened.settle()
    opened.look(8, x=24, y=17)
    assert opened.watched.viewer_state()["index"] == 1
    (x0, _), (x1, _) = opened.drag((30, 17), (36, 17))
    opened.page.locator(".sm-accept").wait_for()
    assert "next version of the step's mask" in said(opened)
    opened.press("Enter")
    opened.page.wait_for_function("() => window.edited.length === 1")
    (edited,) = opened.page.evaluate("() => window.edited")
    assert edited["box"] == pytest.approx([18, 12, 30 + x1 - x0, 22])
    mask = opened.mask("Nodule")
    assert (mask["id"], mask["version"]) == (edited["maskVersionId"], version["version"] + 1)
    assert np.array_equal(opened.plane("Nodule", 1), block(18, 12, round(edited["box"][2]), 22))
    opened.page.evaluate(begin, step)
    opened.press("Escape")
    assert opened.page.evaluate("() => window.edited") == [None]


def test_who_may_not_judge_looks_and_does_not_touch(cpu_masks: OpenMasks):
    reader = cpu_masks(phantom("engineer"))
    reader.store("Liver", {1: block(20, 10, 40, 30)})
    opened = cpu_masks(study_id=reader.series["study_id"], name="engineer")
    opened.row("Liver").wait_for()
    opened.look(8, x=30, y=20)
    assert outlined(opened) == (20, 10, 40, 30)
    tools = opened.page.locator(".sv-tools button").all_inner_texts()
    assert not {"Box", "Point", "Brush", "Erase"} & set(tools)
    assert opened.page.locator(".sm-column").get_by_text("+ Add").count() == 0
    assert opened.page.locator(".sm-remove").count() == 0
    opened.press("b")
    assert opened.watched.viewer_state()["tool"] == "window"
    opened.watched.require_clean()


@pytest.mark.parametrize(("width", "height"), [(1600, 920), (1280, 720)])
def test_pictures_of_the_segments(cpu_masks: OpenMasks, shoot: Shoot, shared_data: Any, width: int, height: int):  # noqa: F811
    from tests.pages_data import folder_files

    files = folder_files(shared_data / "dicom" / "ct_axial_28")
    opened = cpu_masks(files, width=width, height=height)
    label = f"Phantom {width}"
    if label not in opened.labels():
        opened.page.get_by_text("+ Add").click()
        opened.page.locator(".sm-name").last.dblclick()
        opened.page.locator(".sm-rename").fill(label)
        opened.page.locator(".sm-rename").press("Enter")
        opened.row(label).wait_for()
    opened.tool("brush")
    opened.drag((200, 240), (225, 270), (250, 240))
    opened.wait_saved()
    prompt_box(opened, (256, 256), (330, 310))
    shoot(opened.watched, f"masks-preview-{width}x{height}")
    opened.press("Escape")
    opened.tool("brush")
    opened.page.mouse.move(*opened.screen(280, 330))
    shoot(opened.watched, f"masks-brush-{width}x{height}")
    assert opened.page.evaluate("() => document.documentElement.scrollWidth") == width
