"""Judge what a model did: attach a judgement to a stored step, an answer, a mask or a stopped trace."""

import math
from dataclasses import replace

import structlog

from backend.domain.access import Actor
from backend.domain.errors import Conflict, InvalidRequest, NotFound
from backend.domain.feedback import Feedback, TargetKind, Verdict
from backend.domain.trace import (
    AnswerGiven,
    ModelSpoke,
    Run,
    RunState,
    ToolCalled,
    ToolFailed,
    ToolReturned,
)
from backend.services.context import Clock
from backend.store.repository import Store, Transaction

log = structlog.get_logger(__name__)

_RESULTS = {ToolReturned.__name__, ToolFailed.__name__}


class NotJudgeable(Conflict):
    """The step has no stored result yet, or the trace has not stopped; judge it when it has."""

    code = "not_judgeable"


def submit_feedback(actor: Actor, feedback: Feedback, *, store: Store, clock: Clock) -> Feedback:
    """Attach one person's judgement; earlier feedback stays. The same request again finds what it stored (C61).

    Raises:
        NotFound: If the run, its project or a mask version is none of this person's.
        NotJudgeable: If the target is not finished.
        InvalidRequest: If the target, the verdict and the correction do not fit.
        Conflict: If the request key was used for something else.
    """
    _require_consistent(feedback)
    with store.transaction() as tx:
        run = run_of_member(actor, feedback.run_id, tx)
        _require_judgeable(run, feedback, tx)
        stored = tx.reviews.add(replace(feedback, user_id=actor.user_id, created_at=clock()), project_id=run.project_id)
        if _target_of(stored) != _target_of(feedback):
            raise Conflict("this request key was used for another judgement")
    log.info("feedback_submitted", run_id=run.id, feedback_id=stored.id, verdict=stored.verdict.value)
    return stored


def feedback_of_run(actor: Actor, run_id: str, *, store: Store) -> list[Feedback]:
    """What this person judged of a run, oldest first. Others' judgements stay unseen until adjudication."""
    with store.transaction(read_only=True) as tx:
        run = run_of_member(actor, run_id, tx)
        return tx.reviews.of_run(run.id, user_id=actor.user_id)


def run_of_member(actor: Actor, run_id: str, tx: Transaction) -> Run:
    """A run of a project that the actor is a member of. Raises `NotFound`."""
    run = tx.runs.get(run_id)
    if run.project_id not in actor.project_ids:
        raise NotFound(f"no run {run_id}")
    return run


def require_text(text: str) -> None:
    """Refuse what no database keeps: NUL and halves of surrogate pairs. Raises `InvalidRequest`."""
    if "\x00" in text or any("\ud800" <= character <= "\udfff" for character in text):
        raise InvalidRequest("a text has no NUL and no half of a surrogate pair")


def require_box(box: tuple[float, float, float, float]) -> None:
    """Refuse a box without an area. Raises `InvalidRequest`."""
    x0, y0, x1, y1 = box
    if not (all(math.isfinite(edge) for edge in box) and x0 < x1 and y0 < y1):
        raise InvalidRequest("a box is (x0, y0, x1, y1), four finite edges with an area between them")


def _target_of(feedback: Feedback) -> tuple[object, ...]:
    return feedback.run_id, feedback.target, feedback.sequence, feedback.mask_version_id


def _require_consistent(feedback: Feedback) -> None:
    for text in (feedback.comment, feedback.corrected_text or "", *feedback.marks):
        require_text(text)
    corrections = (
        feedback.corrected_text,
        feedback.corrected_choice,
        feedback.corrected_box,
        feedback.corrected_mask_version_id,
    )
    if (feedback.verdict is Verdict.CORRECT) != any(part is not None for part in corrections):
        raise InvalidRequest("a correction, and only a correction, says what it should have been")
    if (feedback.sequence is None) != (feedback.target in (TargetKind.TRACE, TargetKind.MASK)):
        raise InvalidRequest("a step or an answer is named by its sequence; a trace or a mask has none")
    if (feedback.mask_version_id is None) != (feedback.target is not TargetKind.MASK):
        raise InvalidRequest("a mask is judged by naming its version")
    if feedback.corrected_box is not None:
        require_box(feedback.corrected_box)
    if feedback.corrected_box is not None and feedback.target not in (TargetKind.STEP, TargetKind.MASK):
        raise InvalidRequest("a box corrects a step or a mask")
    if feedback.corrected_choice is not None and feedback.target is not TargetKind.ANSWER:
        raise InvalidRequest("a choice corrects an answer")
    if any(not 0 <= mark <= 1 for mark in feedback.marks.values()):
        raise InvalidRequest("a rubric mark is 0 to 1")


def _require_judgeable(run: Run, feedback: Feedback, tx: Transaction) -> None:
    for version_id in (feedback.mask_version_id, feedback.corrected_mask_version_id):
        if version_id is not None and tx.masks.get(version_id).series_id != run.series_id:
            raise NotFound(f"no mask version {version_id} on this run's series")
    if feedback.target is TargetKind.TRACE and run.state is not RunState.STOPPED:
        raise NotJudgeable(f"run {run.id} is still {run.state.value}")
    if feedback.corrected_choice is not None and feedback.corrected_choice not in _letters(run):
        raise InvalidRequest(f"run {run.id} has the options {', '.join(_letters(run)) or 'none'}")
    if feedback.sequence is None:
        return
    kind = tx.runs.kind(run.id, feedback.sequence)
    if kind is None:
        raise NotJudgeable(f"run {run.id} has no event {feedback.sequence} yet")
    _require_finished(run, feedback.sequence, kind, feedback.target, tx)


def _letters(run: Run) -> tuple[str, ...]:
    return tuple(chr(ord("A") + place) for place in range(len(run.options)))


def _require_finished(run: Run, sequence: int, kind: str, target: TargetKind, tx: Transaction) -> None:
    if target is TargetKind.ANSWER:
        if kind != AnswerGiven.__name__:
            raise InvalidRequest(f"event {sequence} of run {run.id} is no answer")
    elif kind == ToolCalled.__name__:
        if not _RESULTS & set(tx.runs.kinds_of_answers(run.id, sequence)):
            raise NotJudgeable(f"step {sequence} of run {run.id} has no result yet")
    elif kind != ModelSpoke.__name__:
        raise InvalidRequest(f"event {sequence} of run {run.id} is no step of the model")
