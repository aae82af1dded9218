"""A demonstration policy: rules, not a model. It reads the question, uses every tool and decides from their results.

It knows a handful of structures by name and three kinds of question (is it there, how large is it, is one smaller). It
sees no picture: all that it says rests on what the tools returned, and it cites them.
"""

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from backend.agent.grammar import write_call
from backend.agent.pictures import PictureLimits
from backend.agent.policy import Message, SpeakLimits, Utterance
from backend.domain.trace import PolicyBody

LABEL = "demonstration policy: rules, not a model"
_REFINED = 2


@dataclass(frozen=True, slots=True)
class _Structure:
    """What the rules know of one structure: how questions call it, and the names to try with the concept tool."""

    words: str
    names: tuple[str, ...]
    is_refined: bool


_STRUCTURES = (
    _Structure(r"lungs?|pulmonary", ("lungs", "lung"), is_refined=True),
    _Structure(r"nucle(?:i|us|ar)|cells?", ("nuclei", "stained nuclei", "nucleus"), is_refined=True),
    _Structure(r"bones?|skeleton|ribs?|spine|vertebrae?", ("bone", "bones"), is_refined=True),
    _Structure(r"fat|adipose", ("fat",), is_refined=False),
    _Structure(r"air|gas", ("air",), is_refined=False),
    _Structure(r"body|trunk", ("body",), is_refined=False),
)
_SIZE = re.compile(r"\b(how (?:large|big)|size|area|measure|volume)\b", re.IGNORECASE)
_COMPARE = re.compile(r"\b(one side|smaller|larger|asymmetr\w*|symmetr\w*|both sides|compare)\b", re.IGNORECASE)
_INTENSITY = re.compile(r"\b(dens\w+|intensit\w+|hounsfield|HU|bright\w*|mean)\b", re.IGNORECASE)

_CITE = re.compile(r"^\[([ps]\d+)\] (\w+)", re.MULTILINE)
_FAILED = re.compile(r"^\[[ps]\d+\] (\w*) ?failed \((\w+)\): (.*)", re.MULTILINE)
_MASK = re.compile(r'Mask (\d+) "([^"]*)", slice \d+: area (\d+) px \(([^)]*)\)')
_REGION = re.compile(r"Region \d+: area (\d+) px \(([^)]*)\), box \[([^\]]*)\]")
_ON_PICTURE = re.compile(r"Boxes are on picture (\d+)")
_LETTERS = re.compile(r"its edges face the patient's left ([LRAPHF]), right ([LRAPHF])")
_SIDES = {"L": "left", "R": "right", "A": "anterior", "P": "posterior", "H": "upper", "F": "lower"}
# One region counts as smaller where it has less than this share of the other's area: nearer ones are called alike.
_SMALLER = 0.8
# What the rules understand beside the structures. Any other word of a question is named in the answer, and no option
# is chosen then: "is there a nodule in the lungs" is not answered by finding lungs.
_WORDS = """
a all an and any are area areas at be big contour delineate detect display draw highlight locate mark please segment
segmented segmentation tell with both bright brightness can compare compared density dense do does
find found has have high hounsfield how hu i image in intensity is it its large larger left look mean measure me of
on one or other outline patient patient's picture present right scan see seen show side sides size slice smaller
than that the their them there these they this to value values visible what where which you your asymmetric
asymmetry symmetric symmetrical same different equal ct x ray xray x-ray radiograph chest much
"""
_UNDERSTOOD = frozenset(_WORDS.split())


@dataclass(frozen=True, slots=True)
class _Result:
    """One tool result: what the rules read of it."""

    cite: str
    tool: str
    text: str
    failure: str | None

    @property
    def mask(self) -> tuple[int, str, int, str] | None:
        """Number, label, area in px, area in mm2 as told."""
        found = _MASK.search(self.text)
        return None if found is None else (int(found[1]), found[2], int(found[3]), found[4])

    @property
    def regions(self) -> list["_Region"]:
        picture = _ON_PICTURE.search(self.text)
        return [
            _Region(int(area), told, [float(edge) for edge in box.split(",")], int(picture[1]) if picture else 1)
            for area, told, box in _REGION.findall(self.text)
        ]


@dataclass(frozen=True, slots=True)
class _Region:
    area_px: int
    told: str
    box: list[float]
    picture: int


@dataclass(frozen=True, slots=True)
class _Turn:
    thought: str
    tool: str | None = None
    arguments: dict[str, object] | None = None
    answer: str = ""

    @property
    def text(self) -> str:
        if self.tool is None:
            return f"<think>{self.thought}</think>\n<answer>{self.answer}</answer>"
        return f"<think>{self.thought}</think>\n{write_call(self.tool, self.arguments or {})}"


class ScriptedPolicy:
    """Rules in the place of a model, for samples, demonstrations and tests; never a gate's opponent."""

    body: ClassVar[PolicyBody] = PolicyBody(
        name="ScriptedPolicy", version="1", coordinates="pixels", is_demonstration=True, label=LABEL
    )
    pictures: ClassVar[PictureLimits] = PictureLimits()

    def speak(
        self,
        messages: Sequence[Message],
        *,
        limits: SpeakLimits,
        on_preview: Callable[[str], None],
        should_stop: Callable[[], bool],
    ) -> Utterance:
        """Say the next turn that the rules give; nothing of it depends on anything but the messages."""
        begun_at = time.monotonic()
        text = _Script(messages).next_turn().text
        was_interrupted = should_stop()
        if not was_interrupted:
            on_preview(text)
        return Utterance(
            text=text,
            tokens_used=len(text.split()),
            seconds=time.monotonic() - begun_at,
            was_interrupted=was_interrupted,
        )


class _Script:
    """The rules: what was asked, what came back so far, and what follows from it."""

    def __init__(self, messages: Sequence[Message]) -> None:
        asked = next(message.text for message in messages if message.role == "user")
        self._question = re.sub(r"\AQuestion: ", "", asked.split("\nThe series:")[0].split("\nOptions:")[0])
        self._options = re.findall(r"^([A-Z])\. (.*)$", asked.split("\nThe series:")[0], re.MULTILINE)
        letters = _LETTERS.search(asked)
        self._letters = None if letters is None else (letters[1], letters[2])
        self._results = [_read_result(message.text) for message in messages if message.role == "tool"]
        self._structure = next(
            (one for one in _STRUCTURES if re.search(rf"\b(?:{one.words})\b", self._question, re.IGNORECASE)), None
        )

    @property
    def _not_understood(self) -> list[str]:
        """The words of the question that no rule knows."""
        words = re.findall(r"[a-z][a-z'-]*", self._question.casefold())
        structures = "|".join(one.words for one in _STRUCTURES)
        return [word for word in words if word not in _UNDERSTOOD and not re.fullmatch(structures, word)]

    def next_turn(self) -> _Turn:
        if self._structure is None:
            known = ", ".join(one.names[0] for one in _STRUCTURES)
            return _Turn(
                "The rules that I am made of find none of their words in the question.",
                answer=f"I cannot answer this: I am a demonstration made of rules and know only {known}.",
            )
        if any(result.failure == "segmenter_unavailable" for result in self._results):
            return self._cannot("no segmenter answers now")
        found = next((result for result in self._named if result.failure is None), None)
        if found is None:
            return self._find(self._structure)
        if found.mask is None:
            return self._absent(found)
        return self._zoom(found) or self._refine(found, self._structure) or self._measure(found) or self._answer(found)

    @property
    def _named(self) -> list[_Result]:
        return [result for result in self._results if result.tool == "biomedparse"]

    def _of(self, tool: str) -> list[_Result]:
        return [result for result in self._results if result.tool == tool]

    def _find(self, structure: _Structure) -> _Turn:
        tried = len(self._named)
        names = [*structure.names]
        for failed in self._named:
            # The tool says which names it knows; one of the same meaning may be among them.
            known = re.search(r"Known names: (.*)\.", failed.text)
            names += (
                []
                if known is None
                else [
                    name.strip()
                    for name in known[1].split(",")
                    if re.search(rf"\b(?:{structure.words})\b", name, re.IGNORECASE) and name.strip() not in names
                ]
            )
        if tried >= len(names):
            return self._cannot(f"the concept tool finds no {structure.names[0]} in such a picture")
        again = "It is not known by that name here. " if tried else ""
        return _Turn(
            f"{again}The question is about {structure.names[0]}. I ask the concept tool for it by name.",
            "biomedparse",
            {"index": 1, "captions": names[tried]},
        )

    def _zoom(self, found: _Result) -> _Turn | None:
        if self._of("zoom_in") or not found.regions:
            return None
        boxes = [region.box for region in found.regions]
        box = [min(b[0] for b in boxes), min(b[1] for b in boxes), max(b[2] for b in boxes), max(b[3] for b in boxes)]
        return _Turn(
            f"It was found in {len(boxes)} region{'s' * (len(boxes) > 1)} [{found.cite}]. I look at them more closely.",
            "zoom_in",
            {"index": found.regions[0].picture, "bbox_2d": box},
        )

    def _refine(self, found: _Result, structure: _Structure) -> _Turn | None:
        done = len(self._of("sam2"))
        if not structure.is_refined or done >= min(_REFINED, len(found.regions)):
            return None
        region = found.regions[done]
        return _Turn(
            f"I let the box tool outline region {done + 1} again from its box, to check the outline.",
            "sam2",
            {"index": region.picture, "bbox_2d": region.box, "label": f"{structure.names[0]}, region {done + 1}"},
        )

    def _measure(self, found: _Result) -> _Turn | None:
        outlined = [result for result in self._of("sam2") if result.mask is not None] or [found]
        done = len(self._of("measure"))
        if done >= len(outlined):
            return None
        mask = outlined[done].mask
        assert mask is not None
        quantity = "intensity" if _INTENSITY.search(self._question) else "area"
        return _Turn(f"I measure mask {mask[0]}.", "measure", {"quantity": quantity, "mask": mask[0]})

    def _answer(self, found: _Result) -> _Turn:
        if _COMPARE.search(self._question):
            return self._compare(found)
        mask = found.mask
        assert mask is not None
        measured = [
            (result.text.partition("measure: ")[2], result.cite) for result in self._of("measure") if not result.failure
        ]
        said = f"{mask[1].capitalize()}: present in this slice, {_size(mask[2], mask[3])} [{found.cite}]"
        if _INTENSITY.search(self._question):
            said = " ".join(f"{text} [{cite}]" for text, cite in measured if text.startswith("Values")) or said
        elif self._of("sam2") and measured:
            parts = "; ".join(f"{text.rpartition(': ')[2].rstrip('.')} [{cite}]" for text, cite in measured)
            said += f". As the box tool outlined it again: {parts}"
        answer = said if said.endswith(".") else f"{said}."
        letter = None if _SIZE.search(self._question) else self._letter_of("yes", "present")
        return _Turn("The tools gave what the question asks for.", answer=self._said(letter, answer))

    def _compare(self, found: _Result) -> _Turn:
        two = [(region, result) for region, result in self._pairs(found)]
        if len(two) < 2:
            return self._cannot(f"the tools found one region only, so there is nothing to compare [{found.cite}]")
        (first, cite), (second, other) = sorted(two[:2], key=lambda pair: pair[0].box[0])
        small, large = sorted((first, second), key=lambda region: region.area_px)
        share = small.area_px / large.area_px
        sizes = f"{self._side(first, second).capitalize()}: {_size(first.area_px, first.told)} [{cite}]; "
        sizes += f"{self._side(second, first)}: {_size(second.area_px, second.told)} [{other}]"
        if share >= _SMALLER:
            answer = f"No: the two are alike in this slice, {share:.0%} of each other. {sizes}."
            return _Turn("Their areas are close.", answer=self._said(self._letter_of("no", "alike"), answer))
        other_one = second if small is first else first
        answer = f"Yes: {self._side(small, other_one)} is smaller, {share:.0%} of the other. {sizes}."
        letter = self._letter_of(self._side(small, other_one)) or self._letter_of("yes")
        return _Turn("One area is clearly below the other.", answer=self._said(letter, answer))

    def _pairs(self, found: _Result) -> list[tuple[_Region, str]]:
        """The two largest regions, each as the box tool outlined it where it did."""
        outlined = [(result.regions[0], result.cite) for result in self._of("sam2") if result.mask and result.regions]
        return outlined if len(outlined) >= 2 else [(region, found.cite) for region in found.regions[:2]]

    def _side(self, region: _Region, other: _Region) -> str:
        """A patient's side only where the picture's edges are known; else the region by its number."""
        is_left_in_picture = region.box[0] + region.box[2] < other.box[0] + other.box[2]
        if self._letters is None:
            return "region 1" if is_left_in_picture else "region 2"
        return _SIDES[self._letters[0 if is_left_in_picture else 1]]

    def _absent(self, found: _Result) -> _Turn:
        answer = f"It is not present in this slice, says the concept tool [{found.cite}]."
        return _Turn(
            "The tool's own test refused it. That is a result.",
            answer=self._said(self._letter_of("no", "absent", "not present"), answer),
        )

    def _said(self, letter: str | None, answer: str) -> str:
        unknown = ", ".join(f'"{word}"' for word in self._not_understood[:4])
        if unknown and self._structure is not None:
            return f"My rules know no {unknown}, so this is about {self._structure.names[0]} alone. {answer}"
        return answer if letter is None else f"{letter}. {answer}"

    def _cannot(self, reason: str) -> _Turn:
        cites = "".join(f" [{result.cite}]" for result in self._results[-1:] if f"[{result.cite}]" not in reason)
        return _Turn("The tools do not give what the question needs.", answer=f"I cannot answer this: {reason}{cites}.")

    def _letter_of(self, *words: str) -> str | None:
        """The one option that begins with one of the words; none where the question was not understood whole."""
        if self._not_understood:
            return None
        pattern = re.compile(rf"(?:the )?(?:{'|'.join(map(re.escape, words))})\b", re.IGNORECASE)
        letters = [letter for letter, text in self._options if pattern.match(text)]
        return letters[0] if len(letters) == 1 else None


def _read_result(text: str) -> _Result:
    failed, cited = _FAILED.search(text), _CITE.search(text)
    cite = cited[1] if cited else ""
    if failed is not None:
        return _Result(cite, failed[1], text, failed[2])
    return _Result(cite, cited[2] if cited else "", text, None)


def _size(area_px: int, told: str) -> str:
    return f"{told} ({area_px} px)" if "mm2" in told else f"{area_px} px ({told})"
