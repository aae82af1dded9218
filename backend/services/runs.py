"""Runs: ask, follow, cancel, continue. The work itself is `backend.agent.loop`, in the runner process."""

from dataclasses import dataclass
from datetime import timedelta

import structlog

from backend.domain.access import Actor
from backend.domain.errors import Conflict, InvalidRequest, NotFound
from backend.domain.trace import (
    AnswerGiven,
    CorrectionGiven,
    Event,
    ImageShown,
    Payload,
    Run,
    RunLimits,
    RunState,
    ToolCalled,
    ToolFailed,
    ToolReturned,
)
from backend.services.context import Clock
from backend.services.masks import shown_size
from backend.services.reviews import NotJudgeable, require_box, require_text, run_of_member
from backend.services.studies import hold_series, series_of_member
from backend.store.blobs import Blobs
from backend.store.notify import News, Notifier
from backend.store.repository import Store, Transaction, new_id

log = structlog.get_logger(__name__)

QUESTION_LENGTH = 2_000
OPTIONS = 8
# A run holds a place of its runner; what a rollout may need has no bound here.
MOST_LIMITS = RunLimits(turns=100, tokens=262_144, tool_calls=200, seconds=3_600, identical_calls=20)
# A run that was taken up this often and never ended takes its runner down each time; it is stopped as failed.
MAX_ATTEMPTS = 4


@dataclass(frozen=True, slots=True)
class Correction:
    """What a person says to a step, before it is known which frame the step is about.

    Attributes:
        box: (x0, y0, x1, y1), edges in pixels of the displayed frame.
        frame_index: Where the box and the mask lie; None for the frame of the step.
    """

    text: str = ""
    box: tuple[float, float, float, float] | None = None
    mask_version_id: str | None = None
    frame_index: int | None = None


def start_run(
    actor: Actor,
    series_id: str,
    *,
    question: str,
    options: tuple[str, ...] = (),
    frame_index: int = 0,
    frame_count: int | None = None,
    limits: RunLimits | None = None,
    request_key: str,
    store: Store,
    clock: Clock,
) -> Run:
    """Put a question about a series in the queue; the same request again finds the run that it made.

    Raises:
        Conflict: If the request key was used for something else.
        SeriesChanged: If the series has not `frame_count` frames any more.
    """
    question, options = _checked_words(question, options)
    limits = _checked_limits(limits or RunLimits())
    with store.transaction() as tx:
        series = hold_series(actor, series_id, tx, frame_count=frame_count)
        if stored := tx.runs.by_request(actor.user_id, request_key):
            return _of_this_request(stored, series_id=series_id, parent=(None, None))
        if not 0 <= frame_index < len(series.frames):
            raise InvalidRequest(f"series {series_id} has frames 0 to {len(series.frames) - 1}, got {frame_index}")
        run = Run(
            id=new_id(),
            series_id=series.id,
            study_id=series.study_id,
            project_id=series.project_id,
            asked_by=actor.user_id,
            question=question,
            options=options,
            frame_index=frame_index,
            state=RunState.QUEUED,
            stop_reason=None,
            limits=limits,
            created_at=clock(),
            parent_run_id=None,
            parent_sequence=None,
            correction=None,
            event_count=0,
            cancel_requested=False,
        )
        run = _of_this_request(tx.runs.add(run, request_key=request_key), series_id=series_id, parent=(None, None))
    log.info("run_queued", run_id=run.id, series_id=series_id)
    return run


def _checked_words(question: str, options: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    question, options = question.strip(), tuple(option.strip() for option in options)
    if not 1 <= len(question) <= QUESTION_LENGTH:
        raise InvalidRequest(f"a question has 1 to {QUESTION_LENGTH} characters, got {len(question)}")
    if len(options) > OPTIONS or any(not 1 <= len(option) <= 200 for option in options):
        raise InvalidRequest(f"there are at most {OPTIONS} options of 1 to 200 characters")
    for text in (question, *options):
        require_text(text)
    return question, options


def _checked_limits(limits: RunLimits) -> RunLimits:
    wanted, most = limits.model_dump(), MOST_LIMITS.model_dump()
    if over := [name for name in wanted if not wanted[name] <= most[name]]:
        raise InvalidRequest(f"a run has at most {', '.join(f'{most[name]:g} {name}' for name in over)}")
    return limits


def _of_this_request(stored: Run, *, series_id: str, parent: tuple[str | None, int | None]) -> Run:
    """What a request key names already, if it is what is asked for now."""
    if stored.series_id != series_id or (stored.parent_run_id, stored.parent_sequence) != parent:
        raise Conflict("this request key was used for another run")
    return stored


def get_run(actor: Actor, run_id: str, *, store: Store) -> Run:
    """One run. Raises `NotFound`."""
    with store.transaction(read_only=True) as tx:
        return run_of_member(actor, run_id, tx)


def runs_of_series(actor: Actor, series_id: str, *, store: Store) -> list[Run]:
    """The runs about a series, newest first."""
    with store.transaction(read_only=True) as tx:
        series_of_member(actor, series_id, tx)
        return tx.runs.of_series(series_id)


def events_of_run(run_id: str, *, after: int, store: Store) -> tuple[Run, list[Event]]:
    """A run and its events behind one place, for who was seen to be a member or is the system itself."""
    with store.transaction(read_only=True) as tx:
        return tx.runs.get(run_id), tx.runs.events(run_id, after=after)


def news_of_run(run_id: str, *, after: int, store: Store) -> tuple[list[Event], bool]:
    """The events behind one place, and whether they are the last. Membership was checked when the stream was opened."""
    with store.transaction(read_only=True) as tx:
        stored, has_stopped = tx.runs.progress(run_id)
        events = tx.runs.events(run_id, after=after) if stored > after else []
    return events, has_stopped and (events[-1].sequence if events else after) >= stored


def picture_of_run(actor: Actor, run_id: str, index: int, *, store: Store, blobs: Blobs) -> bytes:
    """The PNG that the model was given as picture `index` of this run. Raises `NotFound`."""
    with store.transaction(read_only=True) as tx:
        run = run_of_member(actor, run_id, tx)
        events = [*_history(run, tx), *tx.runs.events(run.id)]
    for event in reversed(events):
        if isinstance(event.payload, ImageShown) and event.payload.index == index:
            return blobs.read(event.payload.picture_sha256)
    raise NotFound(f"run {run_id} has no picture {index}")


def history_of(run: Run, *, store: Store) -> list[Event]:
    """The events that a continued run goes on from: its parent's up to the step, and before them the parent's own."""
    with store.transaction(read_only=True) as tx:
        return _history(run, tx)


def _history(run: Run, tx: Transaction) -> list[Event]:
    if run.parent_run_id is None or run.parent_sequence is None:
        return []
    parent = tx.runs.get(run.parent_run_id)
    own = [event for event in tx.runs.events(parent.id) if event.sequence <= run.parent_sequence]
    return [*_history(parent, tx), *own]


def cancel_run(actor: Actor, run_id: str, *, store: Store) -> Run:
    """Ask a run to stop; what it has stored stays."""
    with store.transaction() as tx:
        run = run_of_member(actor, run_id, tx)
        tx.runs.request_cancel(run.id)
        log.info("run_cancel_requested", run_id=run.id)
        return tx.runs.get(run.id)


def continue_run(
    actor: Actor,
    run_id: str,
    *,
    from_sequence: int,
    correction: Correction | None = None,
    request_key: str,
    store: Store,
    clock: Clock,
) -> Run:
    """Continue from here: a child run begins from a finished step of its parent, with a person's word on it.

    Raises:
        InvalidRequest: If the correction's box or frame is none of the series.
        NotJudgeable: If the event is not the end of a step.
        Conflict: If the request key was used for something else.
    """
    with store.transaction() as tx:
        parent = run_of_member(actor, run_id, tx)
        begins = (parent.id, from_sequence)
        if stored := tx.runs.by_request(actor.user_id, request_key):
            return _of_this_request(stored, series_id=parent.series_id, parent=begins)
        event = tx.runs.event(parent.id, from_sequence)
        if event is None:
            raise NotFound(f"run {run_id} has no event {from_sequence}")
        if not isinstance(event.payload, ToolReturned | ToolFailed | AnswerGiven):
            raise NotJudgeable("a run goes on from the result of a step or from the answer")
        given = None if correction is None else _given(correction, actor, parent, event, tx)
        child = Run(
            id=new_id(),
            series_id=parent.series_id,
            study_id=parent.study_id,
            project_id=parent.project_id,
            asked_by=actor.user_id,
            question=parent.question,
            options=parent.options,
            frame_index=parent.frame_index,
            state=RunState.QUEUED,
            stop_reason=None,
            limits=parent.limits,
            created_at=clock(),
            parent_run_id=parent.id,
            parent_sequence=from_sequence,
            correction=given,
            event_count=0,
            cancel_requested=False,
        )
        child = _of_this_request(tx.runs.add(child, request_key=request_key), series_id=parent.series_id, parent=begins)
    log.info("run_continued", run_id=child.id, parent_run_id=run_id)
    return child


def _given(wanted: Correction, actor: Actor, parent: Run, step: Event, tx: Transaction) -> CorrectionGiven:
    """A person's correction with the frame that it lies on; refuses what cannot be meant."""
    require_text(wanted.text)
    series = series_of_member(actor, parent.series_id, tx)
    if wanted.frame_index is not None and not 0 <= wanted.frame_index < len(series.frames):
        raise InvalidRequest(f"series {series.id} has frames 0 to {len(series.frames) - 1}, got {wanted.frame_index}")
    if wanted.box is not None:
        require_box(wanted.box)
        rows, columns = shown_size(series)
        x0, y0, x1, y1 = wanted.box
        if not (x0 < columns and y0 < rows and x1 > 0 and y1 > 0):
            raise InvalidRequest(f"no part of the box {wanted.box} lies on the {columns} x {rows} frame")
    frame_index = _frame_of_step(parent, step, tx) if wanted.frame_index is None else wanted.frame_index
    if wanted.mask_version_id is not None:
        version = tx.masks.get(wanted.mask_version_id)
        if version.series_id != parent.series_id:
            raise NotFound(f"no mask version {wanted.mask_version_id} on the series of run {parent.id}")
        outlined = {series.shown_index(k) for at in version.voxels.values() for k in at}
        if wanted.frame_index is None and wanted.box is None and outlined:
            frame_index = min(sorted(outlined), key=lambda at: abs(at - frame_index))
    return CorrectionGiven(
        text=wanted.text,
        given_by=actor.user_id,
        box=wanted.box,
        mask_version_id=wanted.mask_version_id,
        frame_index=frame_index,
    )


def _frame_of_step(run: Run, step: Event, tx: Transaction) -> int:
    """The frame that a step is about: of the picture that came of it or was named by it, else of the newest before."""
    stored = tx.runs.events(run.id)
    history = [*_history(run, tx), *(event for event in stored if event.sequence <= step.sequence)]
    pictures = [event.payload for event in history if isinstance(event.payload, ImageShown)]
    called = next((event.payload for event in stored if event.sequence == step.parent), None)
    named = called.view_index if isinstance(called, ToolCalled) else None
    found = [
        event.payload for event in stored if isinstance(event.payload, ImageShown) and event.parent == step.sequence
    ]
    found += [picture for picture in pictures if picture.index == named] or pictures[-1:]
    return found[0].view.frame_index if found else run.frame_index


class StoredTrace:
    """The event sink of a run in the clinic: an event is a committed row before anybody hears of it."""

    def __init__(self, run_id: str, *, owner: str, store: Store, notifier: Notifier, clock: Clock) -> None:
        self._run_id, self._owner = run_id, owner
        self._store, self._notifier, self._clock = store, notifier, clock

    def append(self, payload: Payload, *, parent: int | None, sampled: bool) -> Event:
        """Store the next event. Raises `LeaseLost` where another process has the run."""
        with self._store.transaction() as tx:
            event = tx.runs.append(
                self._run_id, payload, owner=self._owner, parent=parent, sampled=sampled, at=self._clock()
            )
        self._notifier.send(News(self._run_id))
        return event

    def preview(self, text: str) -> None:
        """Show text that is still streaming; it is not stored."""
        self._notifier.send(News(self._run_id, preview=text))


def claim_run(*, owner: str, lease_s: float, store: Store, clock: Clock) -> Run | None:
    """Take the next run that waits, or whose runner was lost.

    Args:
        owner: Names this claim and no other.
    """
    with store.transaction(read_only=True) as tx:
        if not tx.runs.any_to_claim(clock()):
            return None
    with store.transaction() as tx:
        run = tx.runs.claim(owner=owner, now=clock(), lease_s=lease_s)
        if run is not None and tx.runs.attempts(run.id) > 1:
            log.warning("run_taken_up_again", run_id=run.id, events=run.event_count)
        return run


def is_worn_out(run_id: str, *, store: Store) -> bool:
    """Whether a run was taken up too often to be tried again."""
    with store.transaction(read_only=True) as tx:
        return tx.runs.attempts(run_id) > MAX_ATTEMPTS


def hold_runs(owners: list[str], *, lease_s: float, store: Store, clock: Clock) -> None:
    """Heartbeat of all the claims of one process."""
    if owners:
        with store.transaction() as tx:
            tx.runs.heartbeat(owners, until=clock() + timedelta(seconds=lease_s))


def release_runs(owners: list[str], *, store: Store) -> None:
    """Give runs back at an orderly stop, so that they go on at once elsewhere."""
    if owners:
        with store.transaction() as tx:
            tx.runs.release(owners)


def is_cancel_requested(run_id: str, *, store: Store) -> bool:
    """Whether somebody asked this run to stop."""
    with store.transaction(read_only=True) as tx:
        return tx.runs.get(run_id).cancel_requested
