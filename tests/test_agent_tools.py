"""The tools: what a call comes to on the frame, what the model is told, and what it is refused."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.agent import tools
from backend.agent.coordinates import place_box
from backend.agent.grammar import WrittenCall
from backend.agent.pictures import PictureLimits, in_proportion, legal_crop
from backend.agent.policy import Utterance
from backend.agent.schemas import ARGUMENTS, system_prompt, tool_schemas
from backend.agent.tool_context import (
    BadArguments,
    KnownMask,
    NoSuchPicture,
    NothingToMeasure,
    ShownPicture,
    ToolContext,
    UnknownTool,
)
from backend.domain.crop import View, whole_frame
from backend.domain.errors import ShapeError
from backend.domain.segmenter import BoxPrompt, Segmentation, ToolError, UnknownConcept, UnusablePrompt
from backend.domain.study import SpacingSource
from tests.fakes_agent import BlockSegmenter, FakeWorkbench, two_blocks

PIXEL_FOR_PIXEL = PictureLimits(multiple=1, least_side=1, least_pixels=1, zoom_side=1)


def context_of(workbench: FakeWorkbench | None = None, **changes) -> ToolContext:
    workbench = workbench or FakeWorkbench(two_blocks())
    defaults = {
        "workbench": workbench,
        "segmenter": BlockSegmenter(),
        "space": "pixels",
        "limits": PIXEL_FOR_PIXEL,
        "shown": (ShownPicture(1, workbench.first_view()),),
        "masks": (),
    }
    return ToolContext(**{**defaults, **changes})


def frame_view(width: int, height: int, *, shown_as: tuple[int, int] | None = None) -> View:
    view = whole_frame("series1", 0, width=width, height=height, window=None)
    return view if shown_as is None else view.zoomed((0, 0, width, height), width=shown_as[0], height=shown_as[1])


def call(name: str, context: ToolContext, **arguments):
    return tools.place(WrittenCall(name, arguments), context).run(context, sequence=5)


def on_frame(written, view: View, space="pixels") -> list[float]:
    return [round(float(edge), 1) for edge in place_box(written, view, space).on_frame(view)]


# --------------------------------------------------------------------------------------------------- coordinates


def test_c41_a_box_in_pixels_of_the_resized_picture_lands_on_the_frame():
    view = PictureLimits().shown(frame_view(2544, 3056))
    assert (view.width, view.height) == (896, 1092)
    assert on_frame([300, 400, 500, 700], view) == [851.8, 1119.4, 1419.6, 1959.0]


def test_c41_the_same_numbers_in_thousandths_are_another_box():
    view = PictureLimits().shown(frame_view(2544, 3056))
    assert on_frame([300, 400, 500, 700], view, "thousandths") == [763.2, 1222.4, 1272.0, 2139.2]


def test_c42_a_box_beyond_the_picture_is_cut_at_its_edge():
    view = PictureLimits().shown(frame_view(368, 434))
    assert (view.width, view.height) == (364, 448)
    assert on_frame([19, 300, 154, 476], view) == [19.2, 290.6, 155.7, 434.0]
    assert place_box([19, 300, 154, 476], view, "pixels").was_clamped


@pytest.mark.parametrize(
    "box",
    [
        ["10", 20, 30, 40],
        [None, 20, 30, 40],
        [True, 20, 30, 40],
        [float("inf"), 20, 30, 40],
        [float("nan"), 20, 30, 40],
        [10, 20, 30],
        [10, 20, 30, 40, 50],
        [-30, -40, -10, -20],
        [200, 10, 300, 20],
        [10, 20, 10, 40],
        [10**400, 0, 10**401, 5],
        "10,20,30,40",
        {"x": 1},
    ],
)
def test_c42_an_unusable_box_is_a_tool_error(box):
    with pytest.raises(ToolError):
        call("zoom_in", context_of(), index=1, bbox_2d=box)


@pytest.mark.parametrize("box", [[30, 40, 10, 20], [70, 50, 60, 60], [50, 10, 20, 40]])
def test_c50_reversed_corners_or_a_width_and_height_are_refused_and_not_guessed_at(box):
    with pytest.raises(UnusablePrompt, match="left, top, right, bottom"):
        call("sam2", context_of(), index=1, bbox_2d=box)


@given(st.lists(st.floats(allow_nan=True) | st.integers() | st.text(max_size=3), max_size=6))
def test_c42_whatever_is_written_as_a_box_is_a_box_or_a_tool_error(box):
    context = context_of()
    try:
        placed = tools.place(WrittenCall("zoom_in", {"bbox_2d": box}), context)
    except ToolError:
        return
    x0, y0, x1, y1 = placed.picture(context, ()).crop
    assert 0 <= x0 < x1 <= 100
    assert 0 <= y0 < y1 <= 60


# --------------------------------------------------------------------------------------------------- pictures


@pytest.mark.parametrize(
    ("width", "height"), [(20, 6), (1, 400), (2000, 8), (8, 2000), (1, 1), (30_000, 3), (9000, 9000)]
)
def test_c46_any_frame_is_shown_at_a_legal_size(width, height):
    limits = PictureLimits()
    across, down = limits.fit(width, height)
    assert min(across, down) >= 28
    assert max(across, down) <= 200 * min(across, down)
    assert across * down <= limits.most_pixels
    assert across % 28 == down % 28 == 0


@pytest.mark.parametrize("box", [(400, 300, 420, 306), (400, 100, 401, 500), (0, 0, 1, 1), (0, 590, 1000, 598)])
def test_c46_a_tiny_or_thin_crop_is_enlarged_with_context_and_its_mapping_kept(box):
    workbench = FakeWorkbench(np.zeros((1, 600, 1000)))
    shown = (ShownPicture(1, workbench.first_view()),)
    context = context_of(workbench, limits=PictureLimits(), shown=shown)
    view = tools.place(WrittenCall("zoom_in", {"bbox_2d": list(box)}), context).picture(context, ())
    x0, y0, x1, y1 = view.crop
    assert x0 <= box[0] < box[2] <= x1
    assert y0 <= box[1] < box[3] <= y1
    assert min(view.width, view.height) >= 28
    assert max(view.width, view.height) >= 448
    assert max(view.width, view.height) <= 10 * min(view.width, view.height)
    assert view.to_frame(0, 0) == (x0, y0)
    assert view.to_frame(view.width, view.height) == (x1, y1)


def test_c46_a_box_without_an_area_is_a_tool_error():
    with pytest.raises(UnusablePrompt):
        call("zoom_in", context_of(), bbox_2d=[5, 5, 5, 5])


@given(st.data())
def test_a_legal_crop_holds_the_given_one_and_stays_in_its_frame(data):
    width, height = data.draw(st.integers(1, 3000)), data.draw(st.integers(1, 3000))
    view = frame_view(width, height)
    x0, y0 = data.draw(st.integers(0, width - 1)), data.draw(st.integers(0, height - 1))
    box = (x0, y0, data.draw(st.integers(x0 + 1, width)), data.draw(st.integers(y0 + 1, height)))
    crop = legal_crop(view.zoomed(box, width=1, height=1).crop, frame_width=width, frame_height=height)
    assert 0 <= crop[0] <= box[0] < box[2] <= crop[2] <= width
    assert 0 <= crop[1] <= box[1] < box[3] <= crop[3] <= height


def test_a_small_crop_is_upscaled_and_says_what_it_shows():
    context = context_of(limits=PictureLimits())
    outcome = call("Zoom-in", context, index=1, bbox_2d=[10, 10, 30, 40])
    assert outcome.text == "Enlarged [10.0, 10.0, 30.0, 40.0] of picture 1."
    view = tools.place(WrittenCall("zoom_in", {"bbox_2d": [10, 10, 30, 40]}), context).picture(context, ())
    assert (view.width, view.height) == (308, 448)


# --------------------------------------------------------------------------------------------------- outlining


def test_sam2_says_area_score_and_box_as_the_model_would_write_them():
    outcome = call("SAM2", context_of(), index=1, bbox_2d=[5, 5, 35, 45], label="block")
    assert outcome.text == (
        'Mask 1 "block", slice 1: area 600 px (150.0 mm2); score 0.90.\n'
        "Region 1: area 600 px (150.0 mm2), box [10.0, 10.0, 30.0, 40.0].\n"
        "Boxes are on picture 1."
    )
    assert outcome.body.name.startswith("BlockSegmenter")


def test_without_a_spacing_there_are_no_millimetres():
    outcome = call("sam2", context_of(FakeWorkbench(two_blocks(), spacing=None)), bbox_2d=[5, 5, 35, 45])
    assert "area 600 px (no pixel spacing)" in outcome.text
    assert "mm" not in outcome.text
    assert outcome.masks[0].area_mm2 is None


def test_millimetres_at_the_detector_are_said_to_be():
    workbench = FakeWorkbench(two_blocks(), spacing_source=SpacingSource.IMAGER)
    assert "150.0 mm2 at the detector" in call("sam2", context_of(workbench), bbox_2d=[5, 5, 35, 45]).text
    length = call("measure", context_of(workbench), quantity="length", points=[[0, 0], [10, 0]])
    assert length.text == "Length: 5.0 mm at the detector (10.0 px of the slice)."


def test_leak_d_a_box_on_a_crop_is_placed_with_the_crops_offset():
    """peers.md 6 d, through the tool: the crop is 4 times enlarged and begins at (50, 5)."""
    workbench = FakeWorkbench(two_blocks())
    crop = workbench.first_view().zoomed((50, 5, 90, 35), width=160, height=120)
    shown = (ShownPicture(1, workbench.first_view()), ShownPicture(2, crop))
    context = context_of(workbench, shown=shown)
    outcome = call("sam2", context, index=2, bbox_2d=[20, 10, 140, 100])
    assert context.segmenter.prompts == [BoxPrompt((55.0, 7.5, 85.0, 30.0))]
    expected = np.zeros((60, 100), dtype=bool)
    expected[10:25, 60:80] = True
    assert (workbench.mask_on_frame(outcome.masks[0]) == expected).all()
    assert "box [40.0, 20.0, 120.0, 80.0]" in outcome.text


def test_biomedparse_lists_its_regions_largest_first():
    outcome = call("BiomedParse", context_of(), index=1, captions="lungs")
    assert outcome.text.splitlines()[1:3] == [
        "Region 1: area 600 px (150.0 mm2), box [10.0, 10.0, 30.0, 40.0].",
        "Region 2: area 300 px (75.0 mm2), box [60.0, 10.0, 80.0, 25.0].",
    ]
    assert outcome.values["region_count"] == 2


def test_boxes_are_told_in_thousandths_to_a_policy_that_counts_so():
    outcome = call("biomedparse", context_of(space="thousandths"), captions="lungs")
    assert "box [100.0, 166.7, 300.0, 666.7]" in outcome.text


def test_c49_what_the_bodys_own_test_refuses_is_not_present_and_no_mask():
    workbench = FakeWorkbench(two_blocks())
    outcome = call("biomedparse", context_of(workbench), captions="liver")
    assert outcome.text.startswith('"liver" is not present in slice 1')
    assert outcome.masks == ()
    assert workbench.stored == {}
    assert outcome.values["is_present"] is False


def test_an_unknown_concept_comes_with_the_known_ones():
    with pytest.raises(UnknownConcept, match="Known names: lungs, liver"):
        call("biomedparse", context_of(), captions="pancreas")


def test_c48_a_mask_of_another_size_than_the_slice_ends_the_run():
    class Squarer(BlockSegmenter):
        def segment(self, picture, prompt):
            return Segmentation(np.ones((60, 60), dtype=bool), 0.9, True, self.body, 0.0)

    with pytest.raises(ShapeError, match=r"\(60, 60\) for a slice of \(60, 100\)"):
        call("sam2", context_of(segmenter=Squarer()), bbox_2d=[5, 5, 35, 45])


@pytest.mark.parametrize(
    ("grid", "is_resampled"),
    [(None, False), ((60, 100), False), ((256, 256), False), ((60, 99), True), ((30, 50), True)],
)
def test_a_body_that_answers_in_cells_larger_than_pixels_is_said_to(grid, is_resampled):
    class Coarse(BlockSegmenter):
        def segment(self, picture, prompt):
            return replace(super().segment(picture, prompt), grid=grid)

    outcome = call("sam2", context_of(segmenter=Coarse()), bbox_2d=[5, 5, 35, 45])
    assert outcome.masks[0].is_resampled is is_resampled
    assert ("; resampled" in outcome.text) is is_resampled


def test_after_a_crash_the_stored_answer_is_told_and_not_the_new_one():
    workbench = FakeWorkbench(two_blocks())
    before = call("sam2", context_of(workbench), bbox_2d=[5, 5, 35, 45])

    class Other(BlockSegmenter):
        body = replace(BlockSegmenter.body, name="another")

        def segment(self, picture, prompt):
            return replace(super().segment(picture, BoxPrompt((0, 0, 100, 60))), score=0.1)

    assert call("sam2", context_of(workbench, segmenter=Other()), bbox_2d=[5, 5, 35, 45]) == before


def test_a_slice_with_long_pixels_is_shown_in_its_physical_aspect_and_so_is_its_crop():
    workbench = FakeWorkbench(np.zeros((2, 60, 100)), spacing=(2.0, 0.5))
    context = context_of(workbench)
    whole = tools.place(WrittenCall("go_to_slice", {"slice": 2}), context).picture(context, ())
    assert (whole.width, whole.height) == (100, 240)
    assert on_frame([10, 40, 30, 120], whole) == [10, 10, 30, 30]
    context = context_of(workbench, shown=(ShownPicture(1, whole),))
    part = tools.place(WrittenCall("zoom_in", {"bbox_2d": [10, 40, 30, 120]}), context).picture(context, ())
    assert (part.width, part.height) == (20, 80)
    assert on_frame([0, 0, 20, 80], part) == [10, 10, 30, 30]
    assert in_proportion(frame_view(100, 60), None) == frame_view(100, 60)
    assert in_proportion(frame_view(100, 60), (0.5, 1.0)).width == 200


def test_points_go_to_the_segmenter_on_the_frame():
    workbench = FakeWorkbench(two_blocks())
    crop = workbench.first_view().zoomed((50, 5, 90, 35), width=160, height=120)
    context = context_of(workbench, shown=(ShownPicture(1, crop),))
    outcome = call("SAM2", context, clicklist=[[80, 40]], labels=[1])
    assert outcome.masks[0].box == (70, 15, 71, 16)


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"bbox_2d": [1, 2, 3, 4], "points": [[1, 2]]},
        {"points": [[1, 2]], "labels": [1, 0]},
        {"points": [[1, 2]], "labels": [2]},
        {"points": [[1, 2]], "labels": [0]},
        {"points": [[1, 200]]},
        {"points": []},
        {"bbox_2d": [1, 2, 3, 4], "path": "/etc/passwd"},
    ],
)
def test_contradicting_prompts_are_tool_errors(arguments):
    with pytest.raises(ToolError):
        call("sam2", context_of(), **arguments)


# --------------------------------------------------------------------------------------------------- measuring


def masked(workbench: FakeWorkbench) -> ToolContext:
    made = call("sam2", context_of(workbench), bbox_2d=[5, 5, 35, 45]).masks[0]
    return context_of(workbench, masks=(KnownMask(1, "block", made),))


def test_measure_area_and_intensity_of_a_mask():
    workbench = FakeWorkbench(two_blocks())
    workbench.values[0, 10:25, 10:30] = 70  # half of the block's rows: mean 60, standard deviation 10
    context = masked(workbench)
    assert call("measure", context, quantity="area", mask=1).text == 'Area of mask 1 "block": 600 px (150.0 mm2).'
    values = call("measure", context, quantity="intensity", mask=1).values
    assert (values["mean"], values["sd"], values["unit"], values["px"]) == (60.0, 10.0, "HU", 600)


def test_measure_length_uses_the_slices_own_pixels_and_both_spacings():
    workbench = FakeWorkbench(two_blocks(), spacing=(0.5, 2.0))
    enlarged = frame_view(100, 60, shown_as=(200, 600))
    context = context_of(workbench, shown=(ShownPicture(1, enlarged),))
    outcome = call("measure", context, quantity="length", points=[[0, 0], [6, 160]])  # 3 px across, 16 px down
    assert outcome.values["length_mm"] == pytest.approx(10.0)  # 6 mm across, 8 mm down


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"quantity": "area", "mask": 2}, NoSuchPicture),
        ({"quantity": "length"}, BadArguments),
        ({"quantity": "volume"}, BadArguments),
        ({"quantity": "area", "points": [[1, 2], [3, 4]]}, BadArguments),
        ({"quantity": "length", "points": [[1, 2], [3, 400]]}, UnusablePrompt),
    ],
)
def test_what_cannot_be_measured_is_a_tool_error(arguments, error):
    with pytest.raises(error):
        call("measure", masked(FakeWorkbench(two_blocks())), **arguments)


def test_c17_padding_has_no_intensity():
    workbench = FakeWorkbench(two_blocks())
    workbench.values[0, 10:25, 10:30] = np.nan
    context = masked(FakeWorkbench(two_blocks()))
    workbench.stored = context.workbench.stored
    context = context_of(workbench, masks=context.masks)
    outcome = call("measure", context, quantity="intensity")
    assert (outcome.values["mean"], outcome.values["px"]) == (50.0, 300)
    assert "300 px (300 px more have no value)" in outcome.text
    workbench.values[:] = np.nan
    with pytest.raises(NothingToMeasure, match="padding"):
        call("measure", context, quantity="intensity")


def test_colour_has_no_intensity():
    class Colour(FakeWorkbench):
        def canonical(self, frame_index):
            picture = super().canonical(frame_index)
            return type(picture)(np.stack([picture.pixels] * 3, axis=-1))

    workbench = FakeWorkbench(two_blocks())
    context = masked(workbench)
    colour = Colour(two_blocks())
    colour.stored = workbench.stored
    with pytest.raises(NothingToMeasure, match="colour"):
        call("measure", context_of(colour, masks=context.masks), quantity="intensity")


# --------------------------------------------------------------------------------------------------- windows, slices


def test_set_window_keeps_the_crop_and_go_to_slice_keeps_the_window():
    workbench = FakeWorkbench(np.zeros((3, 60, 100)))
    context = context_of(workbench)
    windowed = tools.place(WrittenCall("set_window", {"center": -600, "width": 1500}), context).picture(context, ())
    assert (windowed.window.center, windowed.window.width, windowed.crop) == (-600, 1500, context.shown[0].view.crop)
    context = context_of(workbench, shown=(context.shown[0], ShownPicture(2, windowed)))
    moved = tools.place(WrittenCall("go_to_slice", {"slice": 3}), context).picture(context, ())
    assert (moved.frame_index, moved.window.center) == (2, -600)


@pytest.mark.parametrize("number", [0, 4, 1.5, "2"])
def test_a_slice_that_is_not_there_is_a_tool_error(number):
    with pytest.raises(ToolError):
        call("go_to_slice", context_of(FakeWorkbench(np.zeros((3, 60, 100)))), slice=number)


def test_a_picture_that_was_never_shown_cannot_be_named():
    with pytest.raises(NoSuchPicture, match="pictures 1 to 1, got 2"):
        call("zoom_in", context_of(), index=2, bbox_2d=[1, 2, 30, 40])


def test_an_unknown_tool_is_told_the_known_ones():
    with pytest.raises(UnknownTool, match="zoom_in, sam2, biomedparse, set_window, go_to_slice, measure"):
        call("propagate", context_of())


# --------------------------------------------------------------------------------------------------- the prompt


def test_the_prompt_lists_every_tool_in_its_own_coordinate_space():
    assert [schema["function"]["name"] for schema in tool_schemas("pixels")] == list(ARGUMENTS)
    assert "thousandths of that picture" in system_prompt("thousandths")
    assert "thousandths" not in system_prompt("pixels")
    assert "{space}" not in system_prompt("pixels")
    required = {s["function"]["name"]: s["function"]["parameters"].get("required") for s in tool_schemas("pixels")}
    assert required["zoom_in"] == ["bbox_2d"]
    assert required["sam2"] is None


def test_the_tokens_of_a_cut_turn_end_with_the_token_that_closes_it():
    said = Utterance(
        "ab</x>cd", 4, 0.1, token_ends=(2, 5, 7, 8), token_ids=(1, 2, 3, 4), logprobs=(-1.0, -2.0, -3.0, -4.0)
    )
    assert said.tokens_until(6) == ((1, 2, 3), (-1.0, -2.0, -3.0))
    assert Utterance("ab", 1, 0.1).tokens_until(1) == (None, None)
