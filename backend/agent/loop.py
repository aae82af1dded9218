"""One run from its question to its `RunStopped`, for the clinic and for rollouts alike.

The loop knows no store: events go to a sink that has stored them when it returns. What comes next is read off the
events alone (`conversation`), so a run whose process was lost goes on from its last stored event. DESIGN 3 and 6.
"""

import re
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol, TypeVar

import structlog

from backend.agent import tools
from backend.agent.answers import choice_of
from backend.agent.conversation import (
    Ask,
    Conversation,
    Correct,
    Ended,
    Execute,
    GiveAnswer,
    RunQuestion,
    ShowFirst,
    ShowFrame,
    ShowResult,
    Speak,
    Step,
    Stop,
    Take,
    TellUnreadable,
    call_key,
)
from backend.agent.grammar import WrittenCall, read_turn
from backend.agent.policy import Policy, PolicyUnavailable, SpeakLimits
from backend.agent.tool_context import Outcome, PlacedCall, ToolContext
from backend.agent.view_events import view_shown
from backend.agent.workbench import Workbench
from backend.domain.crop import View
from backend.domain.errors import PlatformError
from backend.domain.segmenter import Segmenter, SegmenterUnavailable, ToolError
from backend.domain.trace import (
    AnswerGiven,
    Event,
    ImageShown,
    MaskMade,
    ModelSpoke,
    Payload,
    QuestionAsked,
    RunLimits,
    RunStopped,
    StopReason,
    ToolBody,
    ToolCalled,
    ToolFailed,
    ToolReturned,
)

__all__ = ["UNREADABLE_TURNS", "EventSink", "RunQuestion", "run"]

log = structlog.get_logger(__name__)
T = TypeVar("T")

# This many turns in a row that hold neither a call nor an answer, and nobody waits for the next one.
UNREADABLE_TURNS = 3

_NO_TEXT = re.compile("[\x00\ud800-\udfff]")


class EventSink(Protocol):
    """Where events go. Whatever it raises (a lost lease, a lost database) leaves `run` as it is."""

    def append(self, payload: Payload, *, parent: int | None, sampled: bool) -> Event:
        """Store the next event of the run; it is stored when this returns."""
        ...

    def preview(self, text: str) -> None:
        """Show the text of the turn so far; it is no event."""
        ...


def run(
    question: RunQuestion,
    *,
    events_so_far: Sequence[Event],
    policy: Policy,
    segmenter: Segmenter,
    workbench: Workbench,
    sink: EventSink,
    clock: Callable[[], datetime],
    should_cancel: Callable[[], bool],
    limits: RunLimits,
) -> StopReason:
    """Carry a run to its end.

    Only `ModelSpoke` is `sampled`: calls and answers repeat its words, and nothing shall be trained on twice.

    Args:
        events_so_far: What is stored of this run; empty for a new one, more after a crash.
        should_cancel: Asked between steps and while the policy speaks.
        limits: Each has its `StopReason`. Of what was done before a run was taken up count the seconds that its turns
            and calls took, as their events say; from then on it is the clock. So a run may lie still, once or often.

    Returns:
        Why it ended; the `RunStopped` that says so is stored, exactly one in a run.

    Raises:
        Exception: What the sink or `should_cancel` raise, and nothing else.
    """
    try:
        work = _Run(policy, segmenter, workbench, sink, clock, should_cancel, limits, question)
        return work.to_the_end(events_so_far)
    except _Outside as outside:
        raise outside.error from None


class _Ends(Exception):
    """Ends the run with a reason."""

    def __init__(self, reason: StopReason, message: str = "", code: str | None = None) -> None:
        super().__init__(message)
        self.stopped = RunStopped(reason=reason, message=message, error_code=code)


class _Outside(BaseException):
    """Carries what the sink or `should_cancel` raised past everything that would take it for the run's own failure."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error


def _outside(work: Callable[[], T]) -> T:
    try:
        return work()
    except Exception as error:
        raise _Outside(error) from error


def _guarded(work: Callable[[], T], *, passes: tuple[type[Exception], ...] = ()) -> T:
    """Do something of the world's; what goes wrong there ends the run, but for what `passes`."""
    try:
        return work()
    except passes:
        raise
    except PlatformError as error:
        log.warning("run_failed", code=error.code)
        raise _Ends(StopReason.FAILED, error.message, error.code) from error
    except Exception as error:
        # Its message may hold anything, a patient's values too: the type and the lines of code are enough to find it.
        where = "".join(traceback.format_tb(error.__traceback__))
        log.error("run_failed", error=type(error).__name__, where=where)
        raise _Ends(StopReason.FAILED, f"an unexpected {type(error).__name__}", "internal_error") from error


@dataclass
class _Run:
    policy: Policy
    segmenter: Segmenter
    workbench: Workbench
    sink: EventSink
    clock: Callable[[], datetime]
    should_cancel: Callable[[], bool]
    limits: RunLimits
    question: RunQuestion

    def to_the_end(self, events_so_far: Sequence[Event]) -> StopReason:
        """Step by step; each step ends in a stored event, from which the next one follows."""
        self._taken_up_at, self._spent_before = self.clock(), timedelta(0)
        last = events_so_far[-1] if events_so_far else None
        if last is not None and isinstance(last.payload, RunStopped):
            return last.payload.reason
        try:
            self._conversation = _guarded(lambda: self._folded(events_so_far))
        except _Ends as end:
            return self._stop(end.stopped, parent=None if last is None else last.sequence)
        self._spent_before = timedelta(seconds=self._conversation.seconds)
        while not isinstance(step := self._conversation.next_step(), Ended):
            try:
                self._do(step)
            except _Ends as end:
                parent = None if self._conversation.last is None else self._conversation.last.sequence
                return self._stop(end.stopped, parent=parent)
        return step.reason

    def _folded(self, events: Sequence[Event]) -> Conversation:
        conversation = Conversation(self.question, workbench=self.workbench, space=self.policy.body.coordinates)
        for event in events:
            conversation.add(event)
        return conversation

    def _do(self, step: Step) -> None:
        match step:
            case Ask():
                self._ask()
            case Correct(correction=correction):
                self._append(correction, parent=self._last_sequence)
            case ShowFirst():
                view = _guarded(lambda: self.policy.pictures.shown(self.workbench.first_view()))
                self._show(view, None, parent=self._last_sequence)
            case ShowFrame(frame_index=frame_index, mask=mask):
                view = _guarded(lambda: self.policy.pictures.shown(self.workbench.view_of_frame(frame_index)))
                self._show(view, mask, parent=self._last_sequence)
            case Speak():
                self._speak()
            case Take(call=call, turn_sequence=parent):
                self._take(call, parent)
            case Execute(event=event, written=written):
                self._execute(event, written)
            case ShowResult():
                self._show_result(step)
            case GiveAnswer(text=text, turn_sequence=parent):
                self._append(AnswerGiven(text=text, choice=choice_of(text, self.question.options)), parent=parent)
            case TellUnreadable(unreadable=unreadable, turn_sequence=parent):
                self._append(ToolFailed(tool="", code=unreadable.code, message=unreadable.message), parent=parent)
            case Stop():
                raise _Ends(StopReason.ANSWERED)

    # ------------------------------------------------------------------ limits

    @property
    def _seconds_left(self) -> float:
        spent = self._spent_before + (self.clock() - self._taken_up_at)
        return self.limits.seconds - spent.total_seconds()

    def _must_stop(self) -> bool:
        return _outside(self.should_cancel) or self._seconds_left <= 0

    def _check_time(self) -> None:
        if _outside(self.should_cancel):
            raise _Ends(StopReason.CANCELLED, "somebody asked it to stop")
        if self._seconds_left <= 0:
            raise _Ends(StopReason.TIMEOUT, f"its {self.limits.seconds:g} seconds are over")

    def _check_before_speaking(self) -> int:
        """How many tokens are left for the turn."""
        self._check_time()
        done = self._conversation
        if done.unreadable_in_a_row >= UNREADABLE_TURNS:
            raise _Ends(StopReason.UNREADABLE, f"{UNREADABLE_TURNS} turns in a row held neither a call nor an answer")
        if done.tokens >= self.limits.tokens:
            raise _Ends(StopReason.MAX_TOKENS, f"its {self.limits.tokens} tokens are used up")
        if done.turns >= self.limits.turns:
            raise _Ends(StopReason.MAX_TURNS, f"no answer after {self.limits.turns} turns")
        return self.limits.tokens - done.tokens

    def _check_before_calling(self, called: ToolCalled) -> None:
        self._check_time()
        done = self._conversation
        if done.tool_calls >= self.limits.tool_calls:
            raise _Ends(StopReason.MAX_TOOL_CALLS, f"no answer after {self.limits.tool_calls} tool calls")
        if done.calls[call_key(called)] + 1 >= self.limits.identical_calls:
            times = self.limits.identical_calls
            raise _Ends(StopReason.NO_PROGRESS, f"the same call of {called.tool}, {times} times")

    # ------------------------------------------------------------------ steps

    def _ask(self) -> None:
        asked = QuestionAsked(
            question=self.question.question,
            options=self.question.options,
            asked_by=self.question.asked_by,
            policy=self.policy.body,
            segmenter=_guarded(self._bodies),
        )
        self._append(asked, parent=None)

    def _bodies(self) -> tuple[ToolBody, ...]:
        try:
            bodies = self.segmenter.bodies()
        except SegmenterUnavailable:
            # The question may need no segmenter; a call that does will say so.
            return ()
        return tuple(
            ToolBody(name=body.name, version=body.version, sha256=body.sha256, is_demonstration=body.is_demonstration)
            for body in bodies
        )

    def _speak(self) -> None:
        tokens_left = self._check_before_speaking()
        utterance = _guarded(
            lambda: self.policy.speak(
                self._conversation.messages(),
                limits=SpeakLimits(tokens=tokens_left, seconds=self._seconds_left),
                on_preview=lambda text: _outside(lambda: self.sink.preview(text)),
                should_stop=self._must_stop,
            )
        )
        if utterance.was_interrupted:
            self._check_time()
            unavailable = PolicyUnavailable("the policy broke off its turn without being asked to")
            raise _Ends(StopReason.FAILED, unavailable.message, unavailable.code)
        turn = read_turn(_NO_TEXT.sub("\ufffd", utterance.text))
        token_ids, logprobs = utterance.tokens_until(len(turn.text))
        spoke = ModelSpoke(
            text=turn.text,
            thought=turn.thought,
            cut=turn.cut,
            token_ids=token_ids,
            logprobs=logprobs,
            tokens=utterance.tokens_used,
            seconds=utterance.seconds,
        )
        self._append(spoke, parent=self._last_sequence, sampled=True)

    def _take(self, call: WrittenCall, parent: int) -> None:
        written = {"name": call.name, "arguments": call.arguments}
        try:
            placed = _guarded(lambda: tools.place(call, self._context()), passes=(ToolError,))
            called = ToolCalled(
                tool=placed.name,
                arguments=placed.recorded,
                written=written,
                view_index=placed.view_index,
                was_clamped=placed.was_clamped,
            )
        except ToolError:
            # Stored as written; carrying it out finds the same error and tells the model.
            called = ToolCalled(tool=tools.own_name(call.name), arguments={}, written=written)
        self._check_before_calling(called)
        self._append(called, parent=parent)

    def _execute(self, event: Event, written: WrittenCall) -> None:
        self._check_time()
        begun_at = self.clock()
        result: ToolReturned | ToolFailed
        try:
            placed, outcome = _guarded(
                lambda: self._carry_out(written, sequence=event.sequence + 1), passes=(ToolError, SegmenterUnavailable)
            )
            result = ToolReturned(
                tool=placed.name,
                text=outcome.text,
                body=outcome.body,
                masks=outcome.masks,
                values=outcome.values,
                seconds=(self.clock() - begun_at).total_seconds(),
            )
        except (ToolError, SegmenterUnavailable) as error:
            if isinstance(error, SegmenterUnavailable) and self._conversation.times_without_segmenter:
                raise _Ends(StopReason.FAILED, error.message, error.code) from error
            result = ToolFailed(
                tool=tools.own_name(written.name),
                code=error.code,
                message=error.message,
                seconds=(self.clock() - begun_at).total_seconds(),
            )
        self._append(result, parent=event.sequence)

    def _carry_out(self, written: WrittenCall, *, sequence: int) -> tuple[PlacedCall, Outcome]:
        context = self._context()
        placed = tools.place(written, context)
        return placed, placed.run(context, sequence=sequence)

    def _show_result(self, step: ShowResult) -> None:
        context = self._context()
        view = _guarded(lambda: tools.place(step.written, context).picture(context, step.masks))
        if view is None:
            self._conversation.no_picture_is_due()
        else:
            parent = self._last_sequence if step.sequence is None else step.sequence
            self._show(view, step.masks[0] if step.masks else None, parent=parent)

    def _show(self, view: View, mask: MaskMade | None, *, parent: int | None) -> None:
        rendered = _guarded(lambda: self.workbench.render(view, mask))
        shown = ImageShown(
            index=len(self._conversation.shown) + 1,
            view=view_shown(view),
            picture_sha256=rendered.sha256,
            mask_version_id=None if mask is None else mask.mask_version_id,
        )
        self._append(shown, parent=parent, png=rendered.png)

    # ------------------------------------------------------------------ events

    def _context(self) -> ToolContext:
        return ToolContext(
            workbench=self.workbench,
            segmenter=self.segmenter,
            space=self.policy.body.coordinates,
            limits=self.policy.pictures,
            shown=tuple(self._conversation.shown),
            masks=tuple(self._conversation.masks),
        )

    @property
    def _last_sequence(self) -> int | None:
        return None if self._conversation.last is None else self._conversation.last.sequence

    def _append(self, payload: Payload, *, parent: int | None, sampled: bool = False, png: bytes | None = None) -> None:
        event = _outside(lambda: self.sink.append(payload, parent=parent, sampled=sampled))
        _guarded(lambda: self._conversation.add(event, png=png))

    def _stop(self, stopped: RunStopped, *, parent: int | None) -> StopReason:
        _outside(lambda: self.sink.append(stopped, parent=parent, sampled=False))
        log.info("run_stopped", reason=stopped.reason.value, code=stopped.error_code)
        return stopped.reason
