"""The three call grammars that exist in the wild: all are read, A is written. Source: reference/methods.md 1.1.

A  `<tool_call>{"name": ..., "arguments": {...}}</tool_call>` (Hermes, DeepEyes, Qwen)
B  `Action: <tool_call>Name`, a fenced JSON list of arguments, `</tool_call>`
C  `Action: Name`, a fenced JSON list of arguments

and the answer, `<answer>...</answer>`, which B and C announce by `Action: Answer`. A turn is one thought and one act,
and ends at the act's closing tag: what a model writes after it (a made-up tool result, casebook C44) is cut. Nothing
inside `<think>` is an act. A list of several arguments in B or C is several calls, carried out one after the other,
each with a result of its own (as the published environment does); a second `<tool_call>` after the first is cut.

The reader goes forward character by character and decides from what it has seen only, so a turn that is read while it
streams is cut at the same place as a turn that is read whole.
"""

import json
import re
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Literal

from backend.agent.call_json import JsonScan, UnreadableJson, read_json

CALL_OPENS, CALL_CLOSES = "<tool_call>", "</tool_call>"
FENCE = "```"
MOST_CALLS = 8

_OPENER = re.compile(r"<think>|</think>|<tool_call>|<answer>|<tool_response>|<obs>|\bAction:")
_LONGEST_OPENER = len("<tool_response>")
_MADE_UP_RESULT = re.compile(r"<tool_response>|<obs>")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")
_AROUND_NAME = " \t\r\n*:"
_NAME_ENDS = re.compile(r"[\n`<{\[]")
_WORD_ENDS = re.compile(r"[^A-Za-z0-9]")


@dataclass(frozen=True, slots=True)
class WrittenCall:
    """A call as the model wrote it; nothing about it is checked but that its arguments are a JSON object."""

    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Calls:
    """One call, or several of one list in B or C, to be carried out in this order."""

    calls: tuple[WrittenCall, ...]
    grammar: Literal["A", "B", "C"]


@dataclass(frozen=True, slots=True)
class Answer:
    """The words between the answer's tags."""

    text: str


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A turn that is no act. The message goes back to the model; nothing of the turn is carried out (casebook C43)."""

    code: Literal["broken_call", "no_act"]
    message: str


_NO_PAYLOAD = Unreadable("broken_call", f"no {FENCE}json block with a list of arguments follows `Action:`")


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn as it was understood.

    Attributes:
        text: Up to and including the closing tag: all that stays in the conversation.
        cut: What came after.
        thought: The words of `<think>`.
    """

    text: str
    cut: str
    thought: str
    act: Calls | Answer | Unreadable


class _State(Enum):
    IDLE = auto()
    THINK = auto()
    CALL = auto()
    NAME = auto()
    FENCE = auto()
    LANGUAGE = auto()
    JSON = auto()
    AFTER_FENCE = auto()
    ANSWER = auto()


class TurnReader:
    """Reads a turn as it streams: `feed` says when the turn is whole, and then generation can stop."""

    def __init__(self) -> None:
        self._text = ""
        self._at = 0
        self._state = _State.IDLE
        self._thoughts: list[str] = []
        self._begin = 0
        self._grammar: Literal["A", "B", "C"] = "A"
        self._name = ""
        self._scan = JsonScan(0, closing=CALL_CLOSES, has_comments=False)
        self._has_bare_action = False
        self._act: Calls | Answer | Unreadable | None = None
        self._end: int | None = None

    @property
    def text(self) -> str:
        """All that was fed."""
        return self._text

    @property
    def closed_at(self) -> int | None:
        """Where the act's closing tag ends, once it was seen."""
        return self._end

    def feed(self, chunk: str) -> bool:
        """Read on; whether the turn is whole."""
        self._text += chunk
        steps = {
            _State.IDLE: self._idle,
            _State.THINK: self._think,
            _State.CALL: self._call,
            _State.NAME: self._read_name,
            _State.FENCE: self._fence,
            _State.LANGUAGE: self._language,
            _State.JSON: self._json,
            _State.AFTER_FENCE: self._after_fence,
            _State.ANSWER: self._answer,
        }
        while self._end is None and steps[self._state]():
            pass
        return self._end is not None

    def turn(self) -> Turn:
        """The turn, taking what was fed as all that there is."""
        end = self._end if self._end is not None else self._end_of_unclosed()
        thoughts = list(self._thoughts)
        if self._state is _State.THINK:
            thoughts.append(self._text[self._begin : end])
        thought = "\n".join(words.strip() for words in thoughts if words.strip())
        return Turn(self._text[:end], self._text[end:], thought, self._act or self._unclosed())

    def _end_of_unclosed(self) -> int:
        """An unclosed turn ends where its JSON's closing tag or a made-up tool result is, whatever is wrong with it."""
        ends = [len(self._text)]
        if self._state is _State.AFTER_FENCE:
            ends.append(self._begin)
        if self._state is _State.JSON and (tag := self._text.find(self._scan.closing, self._scan.begin)) >= 0:
            ends.append(tag + len(self._scan.closing))
        begin = {_State.JSON: self._scan.begin, _State.THINK: self._begin, _State.ANSWER: self._begin}
        if made_up := _MADE_UP_RESULT.search(self._text, begin.get(self._state, self._at)):
            ends.append(made_up.start())
        return min(ends)

    def _unclosed(self) -> Unreadable:
        match self._state:
            case _State.JSON | _State.CALL | _State.LANGUAGE:
                return Unreadable("broken_call", "the call ends before its JSON and its closing tag do")
            case _State.ANSWER:
                return Unreadable("no_act", "the answer has no closing </answer>")
            case _State.THINK:
                return Unreadable("no_act", "the thought has no closing </think>, and nothing inside a thought is done")
            case _State.FENCE:
                return _NO_PAYLOAD
            case _State.NAME if not self._announces_answer(self._text[self._at :]):
                return _NO_PAYLOAD
        return (
            _NO_PAYLOAD if self._has_bare_action else Unreadable("no_act", "no <tool_call> and no <answer> was found")
        )

    def _announces_answer(self, name: str) -> bool:
        return self._grammar == "C" and name.strip(_AROUND_NAME).casefold() == "answer"

    # Each step reads on from `_at` and says whether it got anywhere; False waits for more text.

    def _idle(self) -> bool:
        found = _OPENER.search(self._text, self._at)
        if found is None:
            self._at = max(self._at, len(self._text) - _LONGEST_OPENER)
            return False
        self._at = found.end()
        match found.group():
            case "<think>":
                self._begin, self._state = found.end(), _State.THINK
            case "</think>":
                # Some chat templates open the thought in the prompt, so that only its end is written.
                self._thoughts.append(self._text[self._begin : found.start()])
                self._begin = found.end()
            case "<tool_call>":
                self._state = _State.CALL
            case "<answer>":
                self._begin, self._state = found.end(), _State.ANSWER
            case "<tool_response>" | "<obs>":
                # A tool's result comes from a tool only; one that the model makes up ends its turn (casebook C44).
                self._act, self._end = self._unclosed(), found.start()
            case _ if self._begins_line(found.start()):
                self._grammar, self._state = "C", _State.NAME
        return True

    def _begins_line(self, at: int) -> bool:
        line = self._text[self._text.rfind("\n", 0, at) + 1 : at]
        return not line.rpartition("</think>")[2].strip(" \t*")

    def _think(self) -> bool:
        end = self._text.find("</think>", self._at)
        if end < 0:
            self._at = max(self._at, len(self._text) - len("</think>"))
            return False
        self._thoughts.append(self._text[self._begin : end])
        self._at = self._begin = end + len("</think>")
        self._state = _State.IDLE
        return True

    def _call(self) -> bool:
        """After `<tool_call>`: a name begins B, anything else is the JSON of A."""
        if not self._skip_space():
            return False
        if self._text[self._at].isalpha():
            self._grammar, self._state = "B", _State.NAME
        else:
            self._grammar = "A"
            self._begin_json(CALL_CLOSES)
        return True

    def _read_name(self) -> bool:
        """The tool's name of B and C, up to the end of its line, a fence, a tag or its JSON."""
        found = _NAME_ENDS.search(self._text, self._at)
        if found is None:
            return False
        name = self._text[self._at : found.start()].strip(_AROUND_NAME)
        self._at = found.start()
        if self._announces_answer(name):
            self._state = _State.IDLE
        elif self._grammar == "C" and found.group() == "<":
            self._has_bare_action, self._state = True, _State.IDLE
        else:
            self._name, self._state = name, _State.FENCE
        return True

    def _fence(self) -> bool:
        if not self._skip_space():
            return False
        ahead = self._text[self._at : self._at + len(FENCE)]
        if ahead == FENCE:
            self._at += len(FENCE)
            self._state = _State.LANGUAGE
        elif FENCE.startswith(ahead):
            return False
        elif self._grammar == "B":
            self._begin_json(CALL_CLOSES)
        else:
            self._has_bare_action, self._state = True, _State.IDLE
        return True

    def _language(self) -> bool:
        """The word after the opening fence."""
        found = _WORD_ENDS.search(self._text, self._at)
        if found is None:
            return False
        self._at = found.start()
        self._begin_json(FENCE)
        return True

    def _begin_json(self, closing: str) -> None:
        self._scan = JsonScan(self._at, closing=closing, has_comments=self._grammar != "A")
        self._state = _State.JSON

    def _json(self) -> bool:
        end = self._scan.closing_in(self._text)
        if end is None:
            return False
        self._act = _calls(self._grammar, self._name, self._text[self._scan.begin : end])
        self._at = self._begin = end + len(self._scan.closing)
        if self._grammar == "B" and self._scan.closing == FENCE:
            self._state = _State.AFTER_FENCE
        else:
            self._end = self._at
        return True

    def _after_fence(self) -> bool:
        """B closes by its tag; where something else follows the fence, the fence closed it."""
        if not self._skip_space():
            return False
        ahead = self._text[self._at : self._at + len(CALL_CLOSES)]
        if ahead != CALL_CLOSES and CALL_CLOSES.startswith(ahead):
            return False
        self._end = self._at + len(CALL_CLOSES) if ahead == CALL_CLOSES else self._begin
        return True

    def _answer(self) -> bool:
        end = self._text.find("</answer>", self._at)
        if end < 0:
            self._at = max(self._at, len(self._text) - len("</answer>"))
            return False
        words = self._text[self._begin : end].strip()
        self._act = Answer(words) if words else Unreadable("no_act", "the answer is empty")
        self._end = end + len("</answer>")
        return True

    def _skip_space(self) -> bool:
        """Go to the next character that is no space; whether there is one."""
        while self._at < len(self._text) and self._text[self._at].isspace():
            self._at += 1
        return self._at < len(self._text)


def read_turn(text: str) -> Turn:
    """Read a whole turn."""
    reader = TurnReader()
    reader.feed(text)
    return reader.turn()


def write_call(name: str, arguments: dict[str, Any]) -> str:
    """A call in grammar A, with no tag inside its strings that a simpler reader than ours would stop at."""
    written = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False, allow_nan=False)
    return f"{CALL_OPENS}{written.replace('</', '<' + chr(92) + '/')}{CALL_CLOSES}"


def _calls(grammar: Literal["A", "B", "C"], name: str, payload: str) -> Calls | Unreadable:
    try:
        written = read_json(payload, has_comments=grammar != "A")
    except UnreadableJson as error:
        return Unreadable("broken_call", str(error))
    if grammar == "A":
        if not isinstance(written, dict) or not isinstance(written.get("name"), str):
            return Unreadable("broken_call", 'a call is one object {"name": ..., "arguments": {...}}')
        name, payloads = written["name"].strip(), [written.get("arguments", {})]
    else:
        payloads = written if isinstance(written, list) else [written]
    if not _NAME.fullmatch(name):
        return Unreadable("broken_call", "a tool's name is one word")
    if not 1 <= len(payloads) <= MOST_CALLS or not all(isinstance(one, dict) for one in payloads):
        return Unreadable("broken_call", f"arguments are a JSON object, at most {MOST_CALLS} in one list")
    return Calls(tuple(WrittenCall(name, one) for one in payloads), grammar)
