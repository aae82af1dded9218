"""A run as its events tell it: what comes next, and what the policy is told.

Everything here follows from the stored events, so a run that lost its process is taken up by folding them again: the
next step is the same one, and nothing is done or stored twice.
"""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from backend.agent.answers import option_words
from backend.agent.corrections import correction_text, outline_text, picture_of_box
from backend.agent.grammar import Answer, Calls, Turn, Unreadable, WrittenCall, read_turn
from backend.agent.policy import Message, PicturePart, TextPart
from backend.agent.schemas import Coordinates, system_prompt
from backend.agent.tool_context import KnownMask, ShownPicture
from backend.agent.view_events import view_of
from backend.agent.workbench import Workbench
from backend.domain.crop import View, whole_frame
from backend.domain.errors import PlatformError
from backend.domain.trace import (
    AnswerGiven,
    CorrectionGiven,
    Event,
    ImageShown,
    MaskMade,
    ModelSpoke,
    QuestionAsked,
    RunStopped,
    StopReason,
    ToolCalled,
    ToolFailed,
    ToolReturned,
)


class PictureChanged(PlatformError):
    """A stored picture, drawn again when a run is taken up, is another one than the trace has."""

    code = "picture_changed"


@dataclass(frozen=True, slots=True)
class RunQuestion:
    """What a run is about.

    Attributes:
        asked_by: Our own id of the person.
        history: "Continue from here": the parent run's events up to the step that this run goes on from.
        correction: What a person says there; stored as this run's own event.
    """

    question: str
    asked_by: str
    options: tuple[str, ...] = ()
    history: tuple[Event, ...] = ()
    correction: CorrectionGiven | None = None


@dataclass(frozen=True, slots=True)
class Ask:
    """Store the question."""


@dataclass(frozen=True, slots=True)
class Correct:
    """Store the correction that a continued run begins with."""

    correction: CorrectionGiven


@dataclass(frozen=True, slots=True)
class ShowFirst:
    """Show the frame that the question is about."""


@dataclass(frozen=True, slots=True)
class ShowFrame:
    """Show the frame that a correction is about, with a person's mask over it where it has one."""

    frame_index: int
    mask: MaskMade | None = None


@dataclass(frozen=True, slots=True)
class Speak:
    """Let the policy speak."""


@dataclass(frozen=True, slots=True)
class Take:
    """Store the next call of the turn."""

    call: WrittenCall
    turn_sequence: int


@dataclass(frozen=True, slots=True)
class Execute:
    """Carry out a stored call that has no result yet."""

    event: Event
    written: WrittenCall


@dataclass(frozen=True, slots=True)
class ShowResult:
    """Show the picture of a stored result, if it has one.

    Attributes:
        sequence: Of the result; None where it is the parent run's and no event of this run.
    """

    sequence: int | None
    written: WrittenCall
    masks: tuple[MaskMade, ...]


@dataclass(frozen=True, slots=True)
class GiveAnswer:
    """Store the answer of the turn."""

    text: str
    turn_sequence: int


@dataclass(frozen=True, slots=True)
class TellUnreadable:
    """Tell the policy that its turn could not be read."""

    unreadable: Unreadable
    turn_sequence: int


@dataclass(frozen=True, slots=True)
class Stop:
    """The answer is stored: end the run."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The run has its `RunStopped`."""

    reason: StopReason


Step = (
    Ask
    | Correct
    | ShowFirst
    | ShowFrame
    | Speak
    | Take
    | Execute
    | ShowResult
    | GiveAnswer
    | TellUnreadable
    | Stop
    | Ended
)


class Conversation:
    """The events of one run, folded. The counters are this run's own, without its history.

    Attributes:
        masks: What the run may measure: its tools' masks, and those that a person gave with a correction.
        seconds: What the turns and the calls took so far.
    """

    def __init__(self, question: RunQuestion, *, workbench: Workbench, space: Coordinates) -> None:
        self._question, self._workbench, self._space = question, workbench, space
        self.shown: list[ShownPicture] = []
        self.masks: list[KnownMask] = []
        self.calls: Counter[str] = Counter()
        self.turns = self.tokens = self.unreadable_in_a_row = self.times_without_segmenter = 0
        self.seconds = 0.0
        self.last: Event | None = None
        self._messages = [Message("system", (TextPart(system_prompt(space)),))]
        self._turn: tuple[int, Turn] | None = None
        self._calls_left: list[WrittenCall] = []
        self._called: tuple[Event, WrittenCall] | None = None
        self._returned: ShowResult | None = None
        self._given: ShowFrame | None = None
        for event in question.history:
            self._fold(event, label="p")
        self._begin_own()

    def _begin_own(self) -> None:
        """The history is over: what it counted, and what was left of its last turn, is not this run's."""
        self._turn, self._calls_left, self._called = None, [], None
        self.calls.clear()
        self.turns = self.tokens = self.unreadable_in_a_row = self.times_without_segmenter = 0
        self.seconds = 0.0
        self._is_corrected, self._given = self._question.correction is None, None
        if self._returned is not None:
            self._returned = replace(self._returned, sequence=None)

    def add(self, event: Event, *, png: bytes | None = None) -> None:
        """Take in one event of this run; `png` is the picture of an `ImageShown` that was drawn just now."""
        self._fold(event, label="s", png=png)
        self.last = event

    def no_picture_is_due(self) -> None:
        """The newest result comes without a picture."""
        self._returned = None

    @property
    def tool_calls(self) -> int:
        """How many calls were stored."""
        return self.calls.total()

    def next_step(self) -> Step:
        """What the events ask for next."""
        if self.last is None:
            return Ask()
        match self.last.payload:
            case RunStopped(reason=reason):
                return Ended(reason)
            case AnswerGiven():
                return Stop()
        if not self.shown:
            return ShowFirst()
        if self._called is not None:
            return Execute(*self._called)
        return self._returned or self._next_of_correction() or self._next_of_turn()

    def _next_of_correction(self) -> Step | None:
        """A place is told by the number of a picture, so the picture that it lies on comes first."""
        correction = self._question.correction
        if self._is_corrected or correction is None:
            return self._given
        if correction.frame_index is None or correction.box is None or picture_of_box(correction, self.shown):
            return Correct(correction)
        return ShowFrame(correction.frame_index)

    def _next_of_turn(self) -> Step:
        if self._turn is None:
            return Speak()
        sequence, turn = self._turn
        is_new = self.last is not None and self.last.sequence == sequence
        match turn.act:
            case Answer(text=text) if is_new:
                return GiveAnswer(text, sequence)
            case Unreadable() as unreadable if is_new:
                return TellUnreadable(unreadable, sequence)
        return Take(self._calls_left[0], sequence) if self._calls_left else Speak()

    def messages(self) -> Sequence[Message]:
        """What the policy is told now."""
        return tuple(self._messages)

    def _fold(self, event: Event, *, label: str, png: bytes | None = None) -> None:
        cite = f"[{label}{event.sequence}]"
        match event.payload:
            case QuestionAsked():
                if len(self._messages) == 1:
                    self._messages.append(Message("user", (TextPart(self._question_text()),)))
                elif self._messages[-1].role == "assistant" and self._question.correction is None:
                    self._messages.append(Message("user", (TextPart("Look again, and answer again."),)))
            case ImageShown() as image:
                self._show(image, png)
            case ModelSpoke() as spoke:
                self._spoke(event.sequence, spoke)
            case ToolCalled() as called:
                self._called = (event, WrittenCall(str(called.written["name"]), dict(called.written["arguments"])))
                self._calls_left = self._calls_left[1:]
                self.calls[call_key(called)] += 1
            case ToolReturned() as returned:
                self._took_result(event, returned, cite)
            case ToolFailed() as failed:
                self.seconds += failed.seconds
                is_of_turn = self._called is None
                self._called = None
                self.unreadable_in_a_row = self.unreadable_in_a_row + 1 if is_of_turn else 0
                self.times_without_segmenter += failed.code == "segmenter_unavailable"
                self._tell(f"{cite} {failed.tool or 'turn'} failed ({failed.code}): {failed.message}")
            case CorrectionGiven() as correction:
                self._is_corrected, self._turn, self._calls_left = True, None, []
                words = correction_text(correction, self.shown, self._space)
                self._messages.append(Message("user", (TextPart(words),)))
                self._take_persons_mask(correction)

    def _spoke(self, sequence: int, spoke: ModelSpoke) -> None:
        turn = read_turn(spoke.text)
        self._turn = (sequence, turn)
        self._calls_left = list(turn.act.calls) if isinstance(turn.act, Calls) else []
        self._returned = None
        self.turns += 1
        self.tokens += spoke.tokens or 0
        self.seconds += spoke.seconds
        self._messages.append(Message("assistant", (TextPart(spoke.text),)))

    def _took_result(self, event: Event, returned: ToolReturned, cite: str) -> None:
        if self._called is not None:
            self._returned = ShowResult(event.sequence, self._called[1], returned.masks)
        self.seconds += returned.seconds
        self._called, self.unreadable_in_a_row = None, 0
        label = str(returned.values.get("label", returned.tool))
        for made in returned.masks:
            self.masks.append(KnownMask(len(self.masks) + 1, label, made))
        self._tell(f"{cite} {returned.tool}: {returned.text}")

    def _take_persons_mask(self, correction: CorrectionGiven) -> None:
        if correction.mask_version_id is None or correction.frame_index is None:
            return
        given = self._workbench.given_mask(correction.mask_version_id, frame_index=correction.frame_index)
        self.masks.append(KnownMask(len(self.masks) + 1, given.label, given.made, is_by_person=True))
        self._given = ShowFrame(correction.frame_index, given.made)

    def _tell(self, text: str) -> None:
        self._messages.append(Message("tool", (TextPart(text),)))

    def _show(self, image: ImageShown, png: bytes | None) -> None:
        """Add a picture to the message that it belongs to: the tool's result, the question, the correction."""
        mask = self._mask_of(image)
        self._returned, self._given = None, None
        view = view_of(image.view)
        if png is None:
            rendered = self._workbench.render(view, None if mask is None else mask.made)
            if rendered.sha256 != image.picture_sha256:
                raise PictureChanged(f"picture {image.index} of this run, drawn again, is another one than was stored")
            png = rendered.png
        shown = ShownPicture(image.index, view)
        self.shown.append(shown)
        part = PicturePart(png, image.index, view.width, view.height)
        facts = self._picture_text(image.index, view, mask)
        if mask is not None and mask.is_by_person:
            facts += "\n" + outline_text(mask, shown, workbench=self._workbench, space=self._space)
        if self._messages[-1].role == "assistant":
            self._messages.append(Message("user", ()))
        last = self._messages[-1]
        self._messages[-1] = Message(last.role, (*last.parts, part, TextPart(facts)))

    def _mask_of(self, image: ImageShown) -> KnownMask | None:
        """The mask that is drawn on a picture: the newest of that version and frame."""
        at = image.mask_version_id, image.view.frame_index
        return next(
            (one for one in reversed(self.masks) if (one.made.mask_version_id, one.made.frame_index) == at), None
        )

    def _question_text(self) -> str:
        series = self._workbench.series
        lines = [f"Question: {self._question.question}"]
        if self._question.options:
            lines.append("Options:")
            lines += [f"{chr(65 + at)}. {option_words(option)}" for at, option in enumerate(self._question.options)]
        slices = "one picture" if series.frame_count == 1 else f"{series.frame_count} slices"
        lines.append(f"The series: {series.modality or 'modality unknown'}, {slices}.")
        return "\n".join(lines)

    def _picture_text(self, index: int, view: View, mask: KnownMask | None) -> str:
        series = self._workbench.series
        is_whole = (
            view.crop
            == whole_frame(
                view.series_id, view.frame_index, width=view.frame_width, height=view.frame_height, window=None
            ).crop
        )
        facts = [f"{'the whole' if is_whole else 'a part of'} slice {view.frame_index + 1} of {series.frame_count}"]
        if mask is not None:
            facts.append(f"with mask {mask.number} drawn over it")
        if view.window is not None:
            unit = f" {series.unit}" if series.unit else ""
            facts.append(f"window {view.window.center:g} wide {view.window.width:g}{unit}")
        if letters := self._workbench.letters_of_frame(view.frame_index):
            edges = f"left {letters.left}, right {letters.right}, top {letters.top}, bottom {letters.bottom}"
            facts.append(f"its edges face the patient's {edges}")
        return f"Picture {index} (width: {view.width}, height: {view.height}): {'; '.join(facts)}."


def call_key(called: ToolCalled) -> str:
    """What makes two calls the same: the tool and its arguments as understood, or as written where they were not."""
    return json.dumps([called.tool, called.arguments or called.written], sort_keys=True)
