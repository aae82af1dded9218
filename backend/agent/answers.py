"""Which option an answer names: only one that is named clearly."""

import re

_ENDS = r"(?=\s*(?:[.,;:)\]]|$))"
_CITATION = re.compile(r"\[s\d+\]")
_NAMED = (
    re.compile(r"^\W*(?P<letter>[A-Z])\W*$"),
    re.compile(r"^\s*\((?P<letter>[A-Za-z])\)"),
    re.compile(r"^\s*(?P<letter>[A-Z])[.):](?=\s|$)"),
    re.compile(r"\b(?i:option|choice|answer|answer\s+is)\s*:?\s*\(?(?P<letter>[A-Z])" + _ENDS),
    re.compile(r"\b(?i:option|choice|answer|answer\s+is)\s*:?\s*\((?P<letter>[A-Za-z])\)"),
)


def choice_of(answer: str, options: tuple[str, ...]) -> str | None:
    """The letter of the option that an answer clearly names, or None.

    A letter counts where it is written as a letter: alone ("C", "(c)"), before a mark ("C. Liver"), after "option",
    "answer", "answer is" or "choice" and before a mark or the end; upper case unless in brackets. The article "a" is
    never an answer (peers.md 6 c), and two letters are none. The words of exactly one option count as well.
    """
    letters = "".join(chr(ord("A") + place) for place in range(min(len(options), 26)))
    words = _CITATION.sub("", answer).strip()
    named = {found.group("letter").upper() for rule in _NAMED for found in rule.finditer(words)}
    if named:
        letter = named.pop()
        return letter if not named and letter in letters else None
    same = [letter for letter, option in zip(letters, options, strict=False) if _plain(option) == _plain(words) != ""]
    return same[0] if len(same) == 1 else None


def option_words(option: str) -> str:
    """An option without the letter that it may carry itself ("B. Liver" -> "Liver")."""
    return re.sub(r"^\s*(?:\([A-Za-z]\)|[A-Z][.):])\s*", "", option)


def _plain(words: str) -> str:
    return option_words(words).strip().rstrip(".!").casefold()
