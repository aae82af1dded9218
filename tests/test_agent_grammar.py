"""Reading and writing of calls: grammars A, B and C, streamed or whole."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.agent.answers import choice_of
from backend.agent.grammar import Answer, Calls, TurnReader, Unreadable, WrittenCall, read_turn, write_call

ZOOM = '{"name": "zoom_in", "arguments": {"index": 1, "bbox_2d": [1, 2, 30, 40]}}'
ZOOM_CALL = WrittenCall("zoom_in", {"index": 1, "bbox_2d": [1, 2, 30, 40]})

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**9), 10**9)
    | st.text(st.characters(codec="utf-8", exclude_characters="\0")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
arguments = st.dictionaries(
    st.text(st.characters(codec="ascii", exclude_characters="\0"), min_size=1, max_size=8), json_values, max_size=4
)
# Text made of the pieces that matter, in every wrong order.
pieces = st.lists(
    st.sampled_from(
        [
            *(
                "<think>",
                "</think>",
                "<tool_call>",
                "</tool_call>",
                "<answer>",
                "</answer>",
                "<tool_response>",
                "<obs>",
            ),
            *(
                "```",
                "```json\n",
                "\nAction: ",
                "Action: Answer",
                "SAM2",
                "zoom_in\n",
                ZOOM,
                '[{"index": 1}]',
                '"',
                "\\",
            ),
            *("{", "}", "[", "]", "\n", " ", "a", "// c", "# c", "C", "<", "`", "/"),
        ]
    ),
    max_size=14,
).map("".join)


def test_grammar_a_is_read_with_its_thought():
    turn = read_turn(f"<think>look closer</think>\n<tool_call>\n{ZOOM}\n</tool_call>")
    assert turn.thought == "look closer"
    assert turn.act == Calls((ZOOM_CALL,), "A")
    assert turn.cut == ""


def test_grammar_b_is_read():
    block = '```json\n[{"index": 1, "captions": "liver"}]\n```'
    text = f"<think> x </think> Action: <tool_call>BiomedParse\n{block}\n</tool_call>"
    turn = read_turn(text)
    assert turn.act == Calls((WrittenCall("BiomedParse", {"index": 1, "captions": "liver"}),), "B")
    assert turn.text == text


def test_grammar_c_is_read_and_ends_at_its_fence():
    turn = read_turn('<think>x</think> Action: Zoom-in\n```json\n[{"index": 1}]\n```\nThe result shows')
    assert turn.act == Calls((WrittenCall("Zoom-in", {"index": 1}),), "C")
    assert turn.cut == "\nThe result shows"


def test_several_arguments_in_one_list_are_several_calls_in_order():
    turn = read_turn('Action: SAM2\n```json\n[{"index": 1}, {"index": 2}]\n```')
    assert turn.act == Calls((WrittenCall("SAM2", {"index": 1}), WrittenCall("SAM2", {"index": 2})), "C")


def test_a_single_object_in_grammar_c_is_one_call():
    turn = read_turn('Action: SAM2\n```json\n{"index": 1}\n```')
    assert turn.act == Calls((WrittenCall("SAM2", {"index": 1}),), "C")


def test_comments_are_stripped_but_not_inside_strings():
    text = 'Action: BiomedParse\n```json\n[ // the "one\n {"captions": "a // b # c"} # it\'s "odd\n]\n```'
    assert read_turn(text).act == Calls((WrittenCall("BiomedParse", {"captions": "a // b # c"}),), "C")


@pytest.mark.parametrize("text", ["<answer> C </answer>", "<think>t</think> Action: Answer\n<answer> C </answer>\nbye"])
def test_answers_are_read(text):
    assert read_turn(text).act == Answer("C")


def test_c43_braces_and_escaped_quotes_inside_a_string_parse_char_by_char():
    call = r'<tool_call>{"name": "zoom_in", "arguments": {"label": "mass {right \"big\" </tool_call>"}}</tool_call>'
    reader = TurnReader()
    closed = [reader.feed(char) for char in call]
    assert closed == [False] * (len(call) - 1) + [True]
    assert reader.turn().act == Calls((WrittenCall("zoom_in", {"label": 'mass {right "big" </tool_call>'}),), "A")


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>{"name": "zoom_in", "arguments": {"bbox_2d": [1,</tool_call>',
        '<tool_call>{"name": "zoom_in", "arguments": {"bbox_2d": [1, 2',
        '<tool_call>{"name": "zoom_in", "arguments": [1]}</tool_call>',
        '<tool_call>{"name": "zoom_in", "arguments": {"a": NaN}}</tool_call>',
        '<tool_call>{"name": "zoom_in", "arguments": {"a": "\\ud800"}}</tool_call>',
        '<tool_call>{"name": "zoom_in", "arguments": {"a": "\\u0000"}}</tool_call>',
        "<tool_call>" + "[" * 100_000 + "</tool_call>",
        "<tool_call></tool_call>",
        'Action: SAM2\n```json\n[{"index": 1},, {"index": 2}]\n```',
        'Action: SAM2\n```json\n[{"index": 1}, 7]\n```',
        "Action: SAM2\n```json\n[]\n```",
        "Action: SAM2\nwithout a block",
    ],
)
def test_c43_a_broken_call_is_one_structured_error_and_no_call(text):
    act = read_turn(text).act
    assert isinstance(act, Unreadable)
    assert act.code == "broken_call"


@pytest.mark.parametrize("end", ["", "\n", " and then "])
def test_c44_what_follows_the_closing_tag_is_cut(end):
    fake = f"{end}<tool_response>area 12 px</tool_response><answer>A</answer>"
    turn = read_turn(f"<think>t</think><tool_call>{ZOOM}</tool_call>{fake}")
    assert turn.act == Calls((ZOOM_CALL,), "A")
    assert turn.cut == fake
    assert "12 px" not in turn.text


@pytest.mark.parametrize(
    "before", ["", '<tool_call>{"name": "zoom_in"}\n', '<tool_call>{"name": "zoo', "<think>thinking", "I call zoom."]
)
def test_c44_a_made_up_result_never_stays_even_in_a_turn_that_cannot_be_read(before):
    turn = read_turn(f"{before}<tool_response>area 12 px</tool_response><answer>A</answer>")
    assert isinstance(turn.act, Unreadable)
    assert "12 px" not in turn.text


def test_a_second_call_after_the_first_is_cut():
    turn = read_turn(f"<tool_call>{ZOOM}</tool_call><tool_call>{ZOOM}</tool_call>")
    assert turn.act == Calls((ZOOM_CALL,), "A")
    assert turn.cut == f"<tool_call>{ZOOM}</tool_call>"


def test_nothing_inside_a_thought_is_an_act():
    turn = read_turn(f"<think>I could <tool_call>{ZOOM}</tool_call> or <answer>A</answer></think><answer>B</answer>")
    assert turn.act == Answer("B")


def test_a_thought_whose_opening_tag_the_template_wrote_is_a_thought():
    turn = read_turn("it is dark</think><answer>no</answer>")
    assert (turn.thought, turn.act) == ("it is dark", Answer("no"))


@given(pieces)
def test_a_streamed_turn_is_cut_where_a_whole_one_is(text):
    whole, streamed = read_turn(text), TurnReader()
    for char in text:
        if streamed.feed(char):
            break
    turn = streamed.turn()
    assert (turn.text, turn.thought, turn.act) == (whole.text, whole.thought, whole.act)
    assert whole.text + whole.cut == text


@given(pieces)
def test_a_turn_read_again_from_what_was_kept_is_the_same(text):
    turn = read_turn(text)
    again = read_turn(turn.text)
    assert (again.text, again.cut, again.thought) == (turn.text, "", turn.thought)
    assert again.act == turn.act or (isinstance(again.act, Unreadable) and again.act.code == turn.act.code)


@given(st.from_regex(r"[A-Za-z][A-Za-z0-9_-]{0,20}", fullmatch=True), arguments, st.text(max_size=20))
def test_what_is_written_is_read_back_whatever_follows(name, values, after):
    turn = read_turn(write_call(name, values) + after)
    assert turn.act == Calls((WrittenCall(name, values),), "A") or "\\u0000" in json.dumps(values, ensure_ascii=False)
    assert turn.cut == after


@given(st.lists(arguments, min_size=1, max_size=3), st.sampled_from(["Action: SAM2", "Action: <tool_call>SAM2"]))
def test_lists_of_b_and_c_are_read_back(values, opening):
    closing = "\n</tool_call>" if "tool_call" in opening else ""
    act = read_turn(f"{opening}\n```json\n{json.dumps(values)}\n```{closing}").act
    assert isinstance(act, Calls) or "\\u0000" in json.dumps(values, ensure_ascii=False)
    if isinstance(act, Calls):
        assert [call.arguments for call in act.calls] == values


@given(st.text(max_size=200))
def test_any_text_is_read_without_an_error(text):
    assert read_turn(text).act is not None


OPTIONS = ("A. Spleen", "B. Kidney", "C. Liver")


@pytest.mark.parametrize(
    ("answer", "letter"),
    [
        ("C", "C"),
        ("(c)", "C"),
        ("C. Liver", "C"),
        ("C [s7]", "C"),
        ("B) the kidney", "B"),
        ("The answer is B.", "B"),
        ("I choose option A.", "A"),
        ("liver", "C"),
        ("B. Kidney", "B"),
    ],
)
def test_a_clearly_named_option_is_the_choice(answer, letter):
    assert choice_of(answer, OPTIONS) == letter


@pytest.mark.parametrize(
    "answer",
    ["a", "a large mass", "A large mass", "The answer is a mass", "answer: a bit of both", "B or C", "D", "E.", ""],
)
def test_leak_c_the_article_a_and_unclear_words_are_no_choice(answer):
    """peers.md 6 c: in the published environment an answer with the article "a" was taken for option A."""
    assert choice_of(answer, OPTIONS) is None


def test_no_options_no_choice():
    assert choice_of("A", ()) is None
