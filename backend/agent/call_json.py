"""The JSON of a call: where it ends in a text that streams, and what of it a trace can keep."""

import json
import math
import re
from typing import Any

_STRING_OR_COMMENT = re.compile(r'"(?:\\.|[^"\\])*"|//[^\n]*|#[^\n]*')
_NO_TEXT = re.compile("[\x00\ud800-\udfff]")
# What a database's integer, and every JSON reader on the way to a trainer, takes.
_LEAST_INTEGER, _MOST_INTEGER = -(2**63), 2**63 - 1


class UnreadableJson(ValueError):
    """A call's JSON does not read, or holds what no trace keeps; the words go back to the model."""


class JsonScan:
    """Finds the closing mark of a JSON text, and not one inside a string (casebook C43)."""

    def __init__(self, begin: int, *, closing: str, has_comments: bool) -> None:
        self.begin, self.closing = begin, closing
        self._has_comments = has_comments
        self._at = begin
        self._is_in_string = self._is_in_comment = self._is_broken = False

    def closing_in(self, text: str) -> int | None:
        """Where the closing mark begins; None where more text is needed."""
        while self._at < len(text) and not self._is_broken:
            char = text[self._at]
            if self._is_in_string:
                if not self._step_in_string(text, char):
                    return None
                continue
            ahead = text[self._at : self._at + len(self.closing)]
            if ahead == self.closing:
                return self._at
            if self.closing.startswith(ahead):
                return None
            if self._is_in_comment:
                self._is_in_comment = char != "\n"
            elif char == '"':
                self._is_in_string = True
            elif self._has_comments and char in "#/":
                if char == "/" and self._at + 1 == len(text):
                    return None
                self._is_in_comment = char == "#" or text[self._at + 1] == "/"
            self._at += 1
        # A line break inside a string is no JSON: what closes a broken text is the first closing mark, wherever it is.
        found = text.find(self.closing, self.begin) if self._is_broken else -1
        return found if found >= 0 else None

    def _step_in_string(self, text: str, char: str) -> bool:
        if char == "\\":
            if self._at + 1 == len(text):
                return False
            self._at += 2
            return True
        self._is_broken = char < " "
        self._is_in_string = char != '"'
        self._at += 1
        return True


def read_json(payload: str, *, has_comments: bool) -> Any:
    """The value of a call's JSON.

    Args:
        has_comments: Blank out `//` and `#` comments first.

    Raises:
        UnreadableJson: If it is no JSON, or holds what no database keeps: half a surrogate pair, NUL, an integer beyond
            64 bits, a number that is not finite (1e999 reads as one).
    """
    try:
        written = json.loads(_without_comments(payload) if has_comments else payload, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        reason = error.msg if isinstance(error, json.JSONDecodeError) else "a number or a nesting that is not allowed"
        raise UnreadableJson(f"the call's JSON does not read: {reason}") from None
    _require_storable(written)
    return written


def _require_storable(written: Any) -> None:
    left = [written]
    while left:
        match left.pop():
            case dict() as fields:
                left += [*fields.keys(), *fields.values()]
            case list() as values:
                left += values
            case str() as text if _NO_TEXT.search(text):
                raise UnreadableJson("the call's strings hold a character that is no text")
            case int() as number if not _LEAST_INTEGER <= number <= _MOST_INTEGER:
                raise UnreadableJson("the call has an integer of more than 64 bits")
            case float() as number if not math.isfinite(number):
                raise UnreadableJson("the call has a number that is too large")


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON")


def _without_comments(payload: str) -> str:
    """Blank out `//` and `#` comments, but for what looks like one inside a string."""
    return _STRING_OR_COMMENT.sub(lambda found: found.group() if found.group().startswith('"') else "", payload)
