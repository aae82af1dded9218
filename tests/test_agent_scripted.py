"""The demonstration policy decides from what the tools returned, cites it, and says what it is."""

import re

import pytest

from backend.agent.conversation import RunQuestion
from backend.agent.scripted import LABEL, ScriptedPolicy
from backend.domain.segmenter import BoxPrompt, ConceptPrompt, SegmenterUnavailable, UnknownConcept, UnusablePrompt
from backend.domain.trace import StopReason
from backend.domain.volume import EdgeLetters
from tests.fakes_agent import BlockSegmenter, FakeWorkbench, ListSink, two_blocks
from tests.test_agent_loop import go

RADIOLOGICAL = EdgeLetters(left="R", right="L", top="A", bottom="P")


def ask(question, *, options=(), workbench=None, segmenter=None):
    reason, sink = go(
        ScriptedPolicy(),
        ListSink(),
        question=RunQuestion(question, "user1", options),
        workbench=workbench or FakeWorkbench(two_blocks()),
        segmenter=segmenter,
    )
    assert reason is StopReason.ANSWERED
    return sink.of("AnswerGiven")[0], sink


def tools_used(sink):
    return [called.tool for called in sink.of("ToolCalled")]


def test_it_says_that_it_is_rules_and_not_a_model():
    _, sink = ask("How large are the lungs?")
    body = sink.events[0].payload.policy
    assert body.is_demonstration
    assert body.label == LABEL == "demonstration policy: rules, not a model"


def test_it_finds_zooms_refines_each_region_measures_and_answers():
    answer, sink = ask("How large are the lungs?")
    assert tools_used(sink) == ["biomedparse", "zoom_in", "sam2", "sam2", "measure", "measure"]
    assert "225.0 mm2 (900 px)" in answer.text
    assert all(spoke.thought for spoke in sink.of("ModelSpoke"))


def test_every_citation_names_a_result_of_this_run():
    answer, sink = ask("How large are the lungs?")
    cited = {int(number) for number in re.findall(r"\[s(\d+)\]", answer.text)}
    results = {event.sequence for event in sink.events if event.payload.kind == "ToolReturned"}
    assert cited
    assert cited <= results


def test_one_side_is_smaller_and_is_named_where_the_edges_are_known():
    workbench = FakeWorkbench(two_blocks(), letters=RADIOLOGICAL)
    answer, _ = ask("Is one side of the lungs smaller?", options=("Yes, the left", "No"), workbench=workbench)
    # The smaller block lies on the right of the picture, which faces the patient's left.
    assert "left is smaller, 50% of the other" in answer.text
    assert answer.choice == "A"


def test_without_known_edges_no_side_of_the_patient_is_named():
    answer, sink = ask("Is one side of the lungs smaller?")
    said = " ".join([answer.text, *(spoke.text for spoke in sink.of("ModelSpoke"))])
    assert not re.search(r"\b(left|right)\b", said)
    assert "region 2 is smaller" in answer.text


def test_sides_that_are_close_are_called_alike():
    workbench = FakeWorkbench(two_blocks())
    workbench.values[0, 10:38, 60:80] = 50
    answer, _ = ask("Is one side of the lungs smaller?", options=("Yes", "No"), workbench=workbench)
    assert answer.text.startswith("B. No: the two are alike in this slice, 93% of each other.")
    assert answer.choice == "B"


def test_not_present_is_an_answer():
    class Refuses(BlockSegmenter):
        def segment(self, picture, prompt):
            return super().segment(picture, ConceptPrompt("liver"))

    answer, sink = ask("Are there lungs?", options=("Yes", "No"), segmenter=Refuses())
    assert "not present in this slice" in answer.text
    assert answer.choice == "B"
    assert tools_used(sink) == ["biomedparse"]


def test_an_unknown_name_is_tried_by_the_known_name_of_the_same_meaning():
    class Singular(BlockSegmenter):
        def segment(self, picture, prompt):
            if isinstance(prompt, ConceptPrompt) and prompt.concept != "stained cell nuclei":
                raise UnknownConcept("unknown.", known=["stained cell nuclei", "background"])
            return super().segment(picture, prompt if isinstance(prompt, BoxPrompt) else ConceptPrompt("lungs"))

    answer, sink = ask("How large are the nuclei?", segmenter=Singular())
    assert [called.written["arguments"].get("captions") for called in sink.of("ToolCalled")][:4] == [
        *("nuclei", "stained nuclei", "nucleus"),
        "stained cell nuclei",
    ]
    assert "present in this slice" in answer.text


def test_what_no_tool_knows_by_any_name_it_cannot_answer():
    answer, _ = ask("How large is the bone?")
    assert answer.text.startswith("I cannot answer this")
    assert answer.choice is None


def test_a_refinement_that_fails_does_not_stop_the_answer():
    class NoBoxes(BlockSegmenter):
        def segment(self, picture, prompt):
            if isinstance(prompt, BoxPrompt):
                raise UnusablePrompt("no boxes here")
            return super().segment(picture, prompt)

    answer, sink = ask("How large are the lungs?", segmenter=NoBoxes())
    assert len(sink.of("ToolFailed")) == 2
    assert "900 px" in answer.text


def test_without_a_segmenter_it_says_that_it_cannot():
    away = BlockSegmenter(fails=[SegmenterUnavailable("no segmenter answers")])
    answer, _ = ask("How large are the lungs?", segmenter=away)
    assert answer.text.startswith("I cannot answer this: no segmenter answers now")


@pytest.mark.parametrize("question", ["Is the patient's aorta dilated?", "What is the diagnosis?", "?"])
def test_a_question_beyond_its_rules_is_not_answered_by_a_guess(question):
    answer, sink = ask(question, options=("Yes", "No"))
    assert answer.text.startswith("I cannot answer this: I am a demonstration made of rules")
    assert answer.choice is None
    assert tools_used(sink) == []


def test_a_finding_that_it_does_not_know_is_not_answered_by_the_organ():
    answer, _ = ask("Is there a nodule in the lungs?", options=("Yes", "No"))
    assert answer.text.startswith('My rules know no "nodule", so this is about lungs alone.')
    assert answer.choice is None


def test_a_structure_that_is_asked_for_and_found_is_a_yes():
    answer, _ = ask("Are the lungs visible in this slice?", options=("Yes", "No"))
    assert answer.choice == "A"


def test_density_is_answered_with_the_unit_of_the_values():
    answer, _ = ask("What is the mean density of the lungs?")
    assert "mean 50.0 HU, standard deviation 0.0 HU" in answer.text


def test_without_a_spacing_it_speaks_of_pixels_only():
    answer, _ = ask("How large are the lungs?", workbench=FakeWorkbench(two_blocks(), spacing=None))
    assert "900 px" in answer.text
    assert "mm" not in answer.text
