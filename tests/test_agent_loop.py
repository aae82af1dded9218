"""The loop: its limits, its ends, what goes back to the model, and going on after a crash."""

import json
from datetime import timedelta

import numpy as np
import pytest

from backend.agent.conversation import RunQuestion
from backend.agent.loop import UNREADABLE_TURNS, run
from backend.agent.pictures import PictureLimits
from backend.agent.policy import PicturePart, PolicyUnavailable, Utterance
from backend.domain.segmenter import SegmenterUnavailable
from backend.domain.trace import CorrectionGiven, RunLimits, StopReason
from tests.fakes_agent import NOON, BlockSegmenter, FakeWorkbench, ListSink, ProcessDied, SayPolicy, two_blocks

ASKED = RunQuestion("Is there a lung?", "user1", options=("A. Yes", "B. No"))
ANSWER = "<think>seen</think><answer>B. No</answer>"


def say(name: str, **arguments) -> str:
    return f"<think>t</think><tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


ZOOM = say("zoom_in", index=1, bbox_2d=[5, 5, 45, 45])
FIND = say("biomedparse", index=1, captions="lungs")


def go(policy, sink=None, *, workbench=None, segmenter=None, question=ASKED, should_cancel=lambda: False, **limits):
    sink = sink if sink is not None else ListSink()
    reason = run(
        question,
        events_so_far=tuple(sink.events),
        policy=policy,
        segmenter=segmenter or BlockSegmenter(),
        workbench=workbench or FakeWorkbench(two_blocks()),
        sink=sink,
        clock=sink.clock,
        should_cancel=should_cancel,
        limits=RunLimits(**limits),
    )
    return reason, sink


def stopped(sink):
    assert sink.kinds.count("RunStopped") == 1
    assert sink.kinds[-1] == "RunStopped"
    return sink.events[-1].payload


def test_a_run_is_asked_shown_spoken_called_returned_shown_and_answered():
    reason, sink = go(SayPolicy(FIND, ANSWER))
    assert reason is StopReason.ANSWERED
    assert sink.kinds == [
        "QuestionAsked",
        "ImageShown",
        "ModelSpoke",
        "ToolCalled",
        "ToolReturned",
        "ImageShown",
        "ModelSpoke",
        "AnswerGiven",
        "RunStopped",
    ]
    assert [event.parent for event in sink.events] == [None, 1, 2, 3, 4, 5, 6, 7, 8]
    assert [event.sequence for event in sink.events if event.sampled] == [3, 7]
    assert sink.events[5].payload.mask_version_id == sink.events[4].payload.masks[0].mask_version_id
    assert sink.events[7].payload.choice == "B"


def test_the_policy_is_told_the_question_the_picture_and_each_result_with_its_number():
    policy = SayPolicy(FIND, ANSWER)
    go(policy)
    roles = [message.role for message in policy.heard[1]]
    assert roles == ["system", "user", "assistant", "tool"]
    assert "A. Yes\nB. No" in policy.heard[0][1].text
    assert "Picture 1 (width: 100, height: 60)" in policy.heard[0][1].text
    tool = policy.heard[1][3]
    assert tool.text.startswith('[s5] biomedparse: Mask 1 "lungs"')
    assert [part.index for part in tool.parts if isinstance(part, PicturePart)] == [2]


def test_c41_the_picture_is_shown_at_the_policys_size_and_the_box_lands_on_the_frame():
    workbench = FakeWorkbench(two_blocks(rows=434, columns=368))
    _, sink = go(SayPolicy(say("sam2", bbox_2d=[5, 5, 40, 50]), ANSWER, pictures=PictureLimits()), workbench=workbench)
    shown = sink.events[1].payload.view
    assert (shown.width, shown.height) == (364, 448)
    assert sink.of("ToolReturned")[0].masks[0].box == (10, 10, 30, 40)


def test_c42_a_clamped_box_is_recorded_as_clamped():
    _, sink = go(SayPolicy(say("zoom_in", bbox_2d=[50, -5, 400, 40]), ANSWER))
    called = sink.of("ToolCalled")[0]
    assert called.was_clamped
    assert called.arguments == {"index": 1, "bbox_2d": [50.0, 0.0, 100.0, 40.0]}
    assert called.written == {"name": "zoom_in", "arguments": {"bbox_2d": [50, -5, 400, 40]}}


def test_c43_a_broken_call_is_one_error_turn_and_the_run_goes_on():
    broken = '<think>t</think><tool_call>{"name": "zoom_in", "arguments": {"bbox_2d": [1, 2</tool_call>'
    policy = SayPolicy(broken, ZOOM, ANSWER)
    reason, sink = go(policy)
    assert reason is StopReason.ANSWERED
    assert sink.kinds[2:6] == ["ModelSpoke", "ToolFailed", "ModelSpoke", "ToolCalled"]
    assert sink.events[2].payload.text == broken
    assert policy.heard[1][-1].text.startswith("[s4] turn failed (broken_call)")


def test_c44_a_made_up_result_and_answer_after_the_call_never_count():
    fake = '<tool_response>[s5] Mask 1 "lungs": area 9999 px</tool_response><answer>A. Yes</answer>'
    policy = SayPolicy(ZOOM + fake, ANSWER)
    _, sink = go(policy)
    assert sink.of("ModelSpoke")[0].text == ZOOM
    assert sink.of("ModelSpoke")[0].cut == fake
    assert sink.of("AnswerGiven")[0].choice == "B"
    assert all("9999" not in message.text for messages in policy.heard for message in messages)


def test_c44_the_tokens_of_what_was_cut_are_not_kept():
    class WithTokens(SayPolicy):
        def speak(self, messages, **rest):
            said = super().speak(messages, **rest)
            ends = tuple(range(1, len(said.text) + 1))
            return Utterance(said.text, 99, 0.1, token_ends=ends, token_ids=ends, logprobs=tuple(-0.5 for _ in ends))

    _, sink = go(WithTokens(ZOOM + "<answer>A</answer>", ANSWER))
    spoke = sink.of("ModelSpoke")[0]
    assert len(spoke.token_ids) == len(spoke.logprobs) == len(ZOOM)


def test_c45_the_same_call_again_and_again_is_no_progress():
    reason, sink = go(SayPolicy(ZOOM), identical_calls=3)
    assert reason is StopReason.NO_PROGRESS
    assert sink.kinds.count("ToolReturned") == 2
    assert "AnswerGiven" not in sink.kinds
    assert stopped(sink).reason is StopReason.NO_PROGRESS


def test_c45_the_same_unreadable_arguments_are_no_progress_either():
    reason, _ = go(SayPolicy(say("zoom_in", bbox_2d=["a"])), identical_calls=4)
    assert reason is StopReason.NO_PROGRESS


def different_zooms(count):
    return [say("zoom_in", index=1, bbox_2d=[at, 0, at + 30, 30]) for at in range(count)]


def test_each_limit_has_its_reason():
    assert go(SayPolicy(*different_zooms(9)), turns=4)[0] is StopReason.MAX_TURNS
    assert go(SayPolicy(*different_zooms(9)), tokens=35)[0] is StopReason.MAX_TOKENS
    assert go(SayPolicy(*different_zooms(9)), tool_calls=3)[0] is StopReason.MAX_TOOL_CALLS
    reason, sink = go(SayPolicy("I do not know."))
    assert reason is StopReason.UNREADABLE
    assert sink.kinds.count("ModelSpoke") == UNREADABLE_TURNS


def test_a_readable_turn_begins_the_count_of_unreadable_ones_anew():
    reason, _ = go(SayPolicy("hm", "hm", ZOOM, "hm", "hm", ANSWER))
    assert reason is StopReason.ANSWERED


def test_a_run_out_of_time_stops_with_timeout(clock):
    class Slow(SayPolicy):
        def speak(self, messages, **rest):
            clock.advance(100)
            return super().speak(messages, **rest)

    reason, sink = go(Slow(*different_zooms(9)), ListSink(clock=clock), seconds=180)
    assert reason is StopReason.TIMEOUT
    # The turn that ran over was broken off, so it is no event.
    assert sink.kinds.count("ModelSpoke") == 1


def test_cancel_is_seen_between_turns_and_inside_one():
    asked = []

    def at_the_third():
        asked.append(1)
        return len(asked) >= 3

    reason, sink = go(SayPolicy(ZOOM), should_cancel=at_the_third)
    assert reason is StopReason.CANCELLED
    stopped(sink)
    reason, sink = go(SayPolicy(ZOOM), should_cancel=lambda: True)
    assert (reason, "ModelSpoke" in sink.kinds) == (StopReason.CANCELLED, False)


def test_several_calls_of_one_list_run_in_order_each_with_its_result():
    text = (
        'Action: Zoom-in\n```json\n[{"index": 1, "bbox_2d": [0, 0, 40, 40]}, {"index": 9, "bbox_2d": [0, 0, 9, 9]}, '
        '{"index": 2, "bbox_2d": [0, 0, 224, 224]}]\n```'
    )
    reason, sink = go(SayPolicy(text, ANSWER))
    assert reason is StopReason.ANSWERED
    assert sink.kinds[2:11] == [
        "ModelSpoke",
        *("ToolCalled", "ToolReturned", "ImageShown"),
        *("ToolCalled", "ToolFailed"),
        *("ToolCalled", "ToolReturned", "ImageShown"),
    ]
    # The last one is a crop of the crop: half of its 448 pixels, which show 40 of the frame.
    assert sink.of("ImageShown")[2].view.crop == ("0", "0", "20", "20")


def test_a_tool_error_goes_back_to_the_model_and_it_may_try_again():
    policy = SayPolicy(say("biomedparse", captions="pancreas"), FIND, ANSWER)
    reason, sink = go(policy)
    assert reason is StopReason.ANSWERED
    assert sink.of("ToolFailed")[0].code == "unknown_concept"
    assert "Known names: lungs, liver" in policy.heard[1][-1].text


def test_a_segmenter_that_is_away_is_told_once_and_then_ends_the_run():
    away = [SegmenterUnavailable("no segmenter answers")] * 2
    reason, sink = go(SayPolicy(FIND, say("sam2", bbox_2d=[1, 1, 9, 9])), segmenter=BlockSegmenter(fails=away))
    assert reason is StopReason.FAILED
    assert [failed.code for failed in sink.of("ToolFailed")] == ["segmenter_unavailable"]
    assert stopped(sink).error_code == "segmenter_unavailable"


def test_anything_else_ends_the_run_and_is_recorded_once_without_its_words():
    reason, sink = go(SayPolicy(FIND), segmenter=BlockSegmenter(fails=[RuntimeError("patient Doe, C:/doe.dcm")]))
    assert reason is StopReason.FAILED
    assert stopped(sink).error_code == "internal_error"
    assert "Doe" not in stopped(sink).message


def test_a_policy_that_is_away_ends_the_run():
    class Away(SayPolicy):
        def speak(self, messages, **rest):
            raise PolicyUnavailable("the policy's server did not answer in time")

    reason, sink = go(Away(ANSWER))
    assert reason is StopReason.FAILED
    assert stopped(sink).error_code == "policy_unavailable"


@pytest.mark.parametrize("where", ["append", "preview", "cancel"])
def test_what_the_sink_raises_leaves_the_loop_and_is_not_recorded(where):
    class LeaseLost(Exception):
        pass

    def lost(*args, **rest):
        raise LeaseLost

    sink = ListSink()
    if where != "cancel":
        setattr(sink, where, lost)
    with pytest.raises(LeaseLost):
        go(SayPolicy(FIND, ANSWER), sink, should_cancel=lost if where == "cancel" else lambda: False)
    assert "RunStopped" not in sink.kinds


TURNS = (
    FIND,
    "hm",
    'Action: SAM2\n```json\n[{"index": 1, "bbox_2d": [5, 5, 35, 45]}, {"bbox_2d": [55, 5, 85, 45]}]\n```',
    say("measure", quantity="intensity", mask=3),
    say("biomedparse", captions="pancreas"),
    ANSWER,
)


def outline(sink):
    """Everything that a trace holds but its times."""
    return [event.model_dump(exclude={"at"}) for event in sink.events]


WHOLE = outline(go(SayPolicy(*TURNS))[1])


@pytest.mark.parametrize("dies_after", range(1, len(WHOLE) + 1))
def test_a_run_that_died_after_any_event_goes_on_and_comes_to_the_same_trace(dies_after):
    workbench, policy = FakeWorkbench(two_blocks()), SayPolicy(*TURNS)
    sink = ListSink(dies_after=dies_after)
    with pytest.raises(ProcessDied):
        go(policy, sink, workbench=workbench)
    sink.dies_after = None
    # Another process: another segmenter, the same stored masks and events.
    reason, _ = go(SayPolicy(*TURNS), sink, workbench=workbench)
    assert reason is StopReason.ANSWERED
    assert outline(sink) == WHOLE
    assert len(workbench.stored) == 3


def test_the_time_that_a_run_lay_still_is_not_counted(clock):
    sink = ListSink(clock=clock, dies_after=4)
    with pytest.raises(ProcessDied):
        go(SayPolicy(FIND, ANSWER), sink, seconds=60)
    sink.dies_after = None
    clock.advance(timedelta(hours=2).total_seconds())
    workbench = FakeWorkbench(two_blocks())
    assert go(SayPolicy(FIND, ANSWER), sink, workbench=workbench, seconds=60)[0] is StopReason.ANSWERED


def test_a_picture_that_is_drawn_otherwise_when_a_run_is_taken_up_ends_it():
    sink = ListSink(dies_after=3)
    with pytest.raises(ProcessDied):
        go(SayPolicy(FIND, ANSWER), sink)
    sink.dies_after = None
    changed = FakeWorkbench(two_blocks())
    changed.render_salt = b"another version"
    reason, _ = go(SayPolicy(FIND, ANSWER), sink, workbench=changed)
    assert (reason, stopped(sink).error_code) == (StopReason.FAILED, "picture_changed")


def test_a_stopped_run_is_not_stopped_again():
    _, sink = go(SayPolicy(ANSWER))
    before = outline(sink)
    assert go(SayPolicy(ANSWER), sink)[0] is StopReason.ANSWERED
    assert outline(sink) == before


def test_a_continued_run_knows_its_history_and_is_told_the_correction():
    workbench = FakeWorkbench(two_blocks())
    _, parent = go(SayPolicy(FIND, ANSWER), workbench=workbench)
    correction = CorrectionGiven(text="Look at the right block.", given_by="user2", box=(60, 10, 80, 25), frame_index=0)
    asked = RunQuestion(ASKED.question, "user2", ASKED.options, history=tuple(parent.events[:5]), correction=correction)
    policy = SayPolicy("", say("measure", quantity="area", mask=1), ANSWER)
    reason, child = go(policy, workbench=workbench, question=asked)
    assert reason is StopReason.ANSWERED
    assert child.kinds[:4] == ["QuestionAsked", "ImageShown", "CorrectionGiven", "ModelSpoke"]
    # The parent's result, whose picture the parent showed after the step, is shown here as the next picture.
    assert child.events[1].payload.index == 2
    # Parents are events of this run: the parent run's numbers mean others here.
    assert [event.parent for event in child.events[:4]] == [None, 1, 2, 3]
    told = policy.heard[0]
    assert any(message.text.startswith("[p5] biomedparse") for message in told)
    assert "A clinician corrects you: Look at the right block." in "".join(message.text for message in told)
    assert child.of("ToolReturned")[0].values["area_px"] == 900


def three_slices() -> np.ndarray:
    """Three frames; the block lies at x 10 to 30 on the first and at x 60 to 80 on the last."""
    values = np.full((3, 60, 100), -1000.0)
    values[0, 10:40, 10:30] = 50
    values[2, 10:25, 60:80] = 50
    return values


def continued(workbench, parent, correction, *turns, upto, sink=None):
    """A child run with a correction, and what its policy was told at last."""
    asked = RunQuestion(
        ASKED.question, "user2", ASKED.options, history=tuple(parent.events[:upto]), correction=correction
    )
    policy = SayPolicy("", "", "", *turns, ANSWER)
    _, child = go(policy, sink, workbench=workbench, question=asked)
    return child, "\n".join(message.text for message in policy.heard[-1])


def test_a_corrections_box_is_told_on_a_picture_of_its_own_slice():
    """sam2 on slice 1 after a look at slice 3: the box that a person drags lies on slice 1."""
    workbench = FakeWorkbench(three_slices())
    look_away = say("go_to_slice", slice=3)
    _, parent = go(SayPolicy(look_away, say("sam2", index=1, bbox_2d=[5, 5, 45, 45]), ANSWER), workbench=workbench)
    upto = [event.sequence for event in parent.events if event.payload.kind == "ToolReturned"][1]
    correction = CorrectionGiven(text="", given_by="user2", box=(12, 10, 30, 40), frame_index=0)
    child, told = continued(workbench, parent, correction, upto=upto)
    assert child.of("ImageShown")[0].view.frame_index == 0
    assert "The place meant is [12.0, 10.0, 30.0, 40.0] on picture 3." in told
    # The same box on slice 3 is told on the picture of slice 3.
    correction = correction.model_copy(update={"frame_index": 2})
    assert "on picture 2." in continued(workbench, parent, correction, upto=upto)[1]


def test_a_corrections_slice_that_no_picture_shows_is_shown_first():
    workbench = FakeWorkbench(three_slices())
    _, parent = go(SayPolicy(FIND, ANSWER), workbench=workbench)
    correction = CorrectionGiven(text="There.", given_by="user2", box=(60, 10, 80, 25), frame_index=2)
    child, told = continued(workbench, parent, correction, upto=5)
    assert child.kinds[:5] == ["QuestionAsked", "ImageShown", "ImageShown", "CorrectionGiven", "ModelSpoke"]
    assert [image.view.frame_index for image in child.of("ImageShown")] == [0, 2]
    assert "The place meant is [60.0, 10.0, 80.0, 25.0] on picture 3." in told


def test_a_box_outside_the_newest_crop_is_told_on_a_picture_that_holds_it():
    workbench = FakeWorkbench(two_blocks())
    _, parent = go(SayPolicy(ZOOM, FIND, ANSWER), workbench=workbench)
    correction = CorrectionGiven(text="", given_by="user2", box=(60, 10, 80, 25), frame_index=0)
    _, told = continued(workbench, parent, correction, upto=5)
    assert "The place meant is [60.0, 10.0, 80.0, 25.0] on picture 1." in told


def drawn(workbench):
    """A person's mask of 20 x 15 px on the last slice."""
    mask = np.zeros((60, 100), dtype=bool)
    mask[10:25, 60:80] = True
    workbench.keep("drawn1", mask, 2)
    return CorrectionGiven(text="This.", given_by="user2", mask_version_id="drawn1", frame_index=2)


def test_a_persons_mask_is_shown_told_and_measured_and_is_no_tools():
    workbench = FakeWorkbench(three_slices())
    _, parent = go(SayPolicy(FIND, ANSWER), workbench=workbench)
    child, told = continued(workbench, parent, drawn(workbench), say("measure", quantity="intensity", mask=2), upto=5)
    assert child.kinds[:5] == ["QuestionAsked", "ImageShown", "CorrectionGiven", "ImageShown", "ModelSpoke"]
    given = child.of("ImageShown")[1]
    assert (given.view.frame_index, given.mask_version_id, child.events[3].parent) == (2, "drawn1", 3)
    outline = 'The clinician\'s outline is mask 2 "drawn", slice 3: area 300 px (75.0 mm2)'
    assert f"{outline}, box [60.0, 10.0, 80.0, 25.0] on picture 3." in told
    (measured,) = child.of("ToolReturned")
    assert (measured.values["mean"], measured.values["px"], measured.masks) == (50, 300, ())


@pytest.mark.parametrize("dies_after", range(1, 10))
def test_a_continued_run_that_died_after_any_event_comes_to_the_same_trace(dies_after):
    workbench = FakeWorkbench(three_slices())
    _, parent = go(SayPolicy(say("measure", quantity="length", points=[[0, 0], [3, 4]]), ANSWER), workbench=workbench)
    correction = drawn(workbench).model_copy(update={"box": (60, 10, 80, 25)})
    turns = (say("measure", quantity="area", mask=1),)
    whole, _ = continued(workbench, parent, correction, *turns, upto=5)
    sink = ListSink(dies_after=dies_after)
    with pytest.raises(ProcessDied):
        continued(workbench, parent, correction, *turns, upto=5, sink=sink)
    sink.dies_after = None
    assert outline(continued(workbench, parent, correction, *turns, upto=5, sink=sink)[0]) == outline(whole)


def test_a_child_of_a_corrected_run_is_told_its_own_correction_too():
    workbench = FakeWorkbench(two_blocks())
    _, parent = go(SayPolicy(FIND, ANSWER), workbench=workbench)
    first = CorrectionGiven(text="First.", given_by="user2")
    child, _ = continued(workbench, parent, first, FIND, upto=5)
    history = ListSink([*parent.events[:5], *child.events])
    second = CorrectionGiven(text="Second.", given_by="user2")
    _, told = continued(workbench, history, second, upto=len(history.events) - 1)
    assert "corrects you: First." in told
    assert "corrects you: Second." in told


def test_time_between_two_take_ups_is_not_counted_at_the_second_either(clock):
    workbench, sink = FakeWorkbench(two_blocks()), ListSink(clock=clock)
    for dies_after in (4, 6):
        sink.dies_after = dies_after
        with pytest.raises(ProcessDied):
            go(SayPolicy(FIND, ANSWER), sink, workbench=workbench, seconds=60)
        clock.advance(timedelta(hours=2).total_seconds())
    sink.dies_after = None
    assert go(SayPolicy(FIND, ANSWER), sink, workbench=workbench, seconds=60)[0] is StopReason.ANSWERED


def test_the_seconds_of_turns_before_a_take_up_are_counted():
    workbench, sink = FakeWorkbench(two_blocks()), ListSink(dies_after=7)
    with pytest.raises(ProcessDied):
        go(SayPolicy(FIND, ANSWER), sink, workbench=workbench, seconds=1)
    sink.dies_after = None
    # Two turns of half a second are stored.
    assert go(SayPolicy(FIND, "", ANSWER), sink, workbench=workbench, seconds=1)[0] is StopReason.ANSWERED
    sink = ListSink(dies_after=7)
    workbench = FakeWorkbench(two_blocks())
    with pytest.raises(ProcessDied):
        go(SayPolicy(FIND, FIND, ANSWER), sink, workbench=workbench, seconds=1)
    sink.dies_after = None
    assert go(SayPolicy(FIND, FIND, ANSWER), sink, workbench=workbench, seconds=1)[0] is StopReason.TIMEOUT


@pytest.mark.parametrize("number", ["1" * 30, "-9223372036854775809", "1e999", "-1e400"])
def test_a_number_that_no_database_keeps_is_a_broken_call_and_the_run_goes_on(number):
    text = f'<think>t</think><tool_call>{{"name": "go_to_slice", "arguments": {{"slice": [{number}]}}}}</tool_call>'
    reason, sink = go(SayPolicy(text, ANSWER))
    assert reason is StopReason.ANSWERED
    (failed,) = sink.of("ToolFailed")
    assert (failed.code, sink.of("ToolCalled")) == ("broken_call", [])


# ------------------------------------------------------------------ the published environment's leaks (peers.md 6)


def test_leak_a_an_answer_without_a_tool_leaves_no_mask_to_score():
    """There the first image carries the truth, and the latest mask of the trajectory is scored."""
    workbench = FakeWorkbench(two_blocks())
    _, sink = go(SayPolicy("<think>t</think><answer>A. Yes</answer>"), workbench=workbench)
    assert workbench.stored == {}
    assert all(image.mask_version_id is None for image in sink.of("ImageShown"))
    assert [name for name in dir(workbench) if "truth" in name or "reference" in name] == []


def test_leak_b_a_zoom_makes_no_mask_and_hands_none_on():
    """There a crop inherits its parent's mask and counts as a tool's."""
    workbench = FakeWorkbench(two_blocks())
    _, sink = go(SayPolicy(ZOOM, FIND, say("zoom_in", index=3, bbox_2d=[0, 0, 30, 30]), ANSWER), workbench=workbench)
    zooms = [returned for returned in sink.of("ToolReturned") if returned.tool == "zoom_in"]
    assert [zoom.masks for zoom in zooms] == [(), ()]
    assert [image.mask_version_id for image in sink.of("ImageShown")] == [None, None, "mask9", None]
    assert len(workbench.stored) == 1


def test_leak_c_a_turn_with_the_article_a_is_no_answer():
    """There `a` anywhere ended the episode as answer A."""
    reason, sink = go(SayPolicy("I see a shadow, perhaps a mass.", "<think>t</think><answer>a shadow</answer>"))
    assert reason is StopReason.ANSWERED
    assert sink.kinds[2:4] == ["ModelSpoke", "ToolFailed"]
    assert sink.of("AnswerGiven")[0].choice is None


def test_leak_d_a_mask_asked_for_on_a_crop_is_placed_with_its_offset():
    workbench = FakeWorkbench(two_blocks())
    zoomed = say("zoom_in", index=1, bbox_2d=[50, 5, 90, 35])
    _, sink = go(SayPolicy(zoomed, say("sam2", index=2, bbox_2d=[0, 0, 448, 336]), ANSWER), workbench=workbench)
    shown = sink.of("ImageShown")[1].view
    assert shown.crop == ("50", "5", "90", "35")
    assert sink.of("ToolReturned")[1].masks[0].box == (60, 10, 80, 25)


def test_leak_e_no_tool_takes_a_path():
    _, sink = go(SayPolicy(say("sam2", index=1, bbox_2d=[1, 1, 9, 9], image_path="/etc/passwd"), ANSWER))
    assert sink.of("ToolFailed")[0].code == "bad_arguments"


def test_times_are_the_clocks():
    assert {event.at for event in go(SayPolicy(ANSWER))[1].events} == {NOON}
