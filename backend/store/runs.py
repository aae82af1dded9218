"""Runs and their events. An event takes its place under the run's lease: a runner that lost it can write nothing."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Row, and_, bindparam, or_, select, update
from sqlalchemy.orm import Session

from backend.domain.errors import Conflict, NotFound
from backend.domain.trace import CorrectionGiven, Event, Payload, Run, RunLimits, RunState, RunStopped, StopReason
from backend.store.sql import insert_new
from backend.store.tables import EventRow, RunRow

# Read for every judgement: the columns and not a mapped row, and the statement is built once.
_BY_ID = select(*RunRow.__table__.columns).where(RunRow.id == bindparam("run_id"))


class LeaseLost(Conflict):
    """Another process holds this run now; whoever meets this stops working on it."""

    code = "lease_lost"


def _run(row: RunRow | Row[Any]) -> Run:
    return Run(
        id=row.id,
        series_id=row.series_id,
        study_id=row.study_id,
        project_id=row.project_id,
        asked_by=row.asked_by,
        question=row.question,
        options=tuple(row.options),
        frame_index=row.frame_index,
        state=RunState(row.state),
        stop_reason=StopReason(row.stop_reason) if row.stop_reason else None,
        limits=RunLimits.model_validate(row.limits),
        created_at=row.created_at,
        parent_run_id=row.parent_run_id,
        parent_sequence=row.parent_sequence,
        correction=None if row.correction is None else CorrectionGiven.model_validate(row.correction),
        event_count=row.last_sequence,
        cancel_requested=row.cancel_requested,
    )


def _event(row: EventRow) -> Event:
    return Event.model_validate(
        {"sequence": row.sequence, "at": row.at, "parent": row.parent, "sampled": row.sampled, "payload": row.payload}
    )


class Runs:
    """Repository of runs and events."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, run: Run, *, request_key: str) -> Run:
        """Store a new run, or find the one that the same request stored, at this moment or before."""
        row = {
            "id": run.id,
            "series_id": run.series_id,
            "study_id": run.study_id,
            "project_id": run.project_id,
            "asked_by": run.asked_by,
            "request_key": request_key,
            "question": run.question,
            "options": list(run.options),
            "frame_index": run.frame_index,
            "limits": run.limits.model_dump(),
            "state": run.state.value,
            "stop_reason": None,
            "created_at": run.created_at,
            "parent_run_id": run.parent_run_id,
            "parent_sequence": run.parent_sequence,
            "correction": None if run.correction is None else run.correction.model_dump(mode="json"),
            "last_sequence": 0,
            "cancel_requested": False,
            "lease_owner": None,
            "lease_until": None,
            "attempts": 0,
        }
        insert_new(self._session, RunRow, [row])
        stored = self.by_request(run.asked_by, request_key)
        if stored is None:
            raise Conflict(f"run {run.id} was not stored, and no other under its request key")
        return stored

    def by_request(self, user_id: str, request_key: str) -> Run | None:
        """The run that this request made before."""
        row = self._session.scalar(select(RunRow).where(RunRow.asked_by == user_id, RunRow.request_key == request_key))
        return _run(row) if row else None

    def get(self, run_id: str) -> Run:
        """One run. Raises `NotFound`."""
        row = self._session.execute(_BY_ID, {"run_id": run_id}).one_or_none()
        if row is None:
            raise NotFound(f"no run {run_id}")
        return _run(row)

    def of_series(self, series_id: str) -> list[Run]:
        """The runs about one series, newest first."""
        rows = self._session.scalars(
            select(RunRow).where(RunRow.series_id == series_id).order_by(RunRow.created_at.desc(), RunRow.id)
        )
        return [_run(row) for row in rows]

    def events(self, run_id: str, *, after: int = 0) -> list[Event]:
        """The events behind one place, in order."""
        rows = self._session.scalars(
            select(EventRow).where(EventRow.run_id == run_id, EventRow.sequence > after).order_by(EventRow.sequence)
        )
        return [_event(row) for row in rows]

    def progress(self, run_id: str) -> tuple[int, bool]:
        """How many events are stored, and whether the run has stopped: what a stream asks several times a second."""
        row = self._session.execute(select(RunRow.last_sequence, RunRow.state).where(RunRow.id == run_id)).one_or_none()
        if row is None:
            raise NotFound(f"no run {run_id}")
        return row[0], row[1] == RunState.STOPPED

    def event(self, run_id: str, sequence: int) -> Event | None:
        """One event, None where the run has not got there."""
        row = self._session.get(EventRow, (run_id, sequence))
        return None if row is None else _event(row)

    def kind(self, run_id: str, sequence: int) -> str | None:
        """The kind of one event, None where the run has not got there."""
        return self._session.scalar(
            select(EventRow.payload["kind"].as_string()).where(EventRow.run_id == run_id, EventRow.sequence == sequence)
        )

    def kinds_of_answers(self, run_id: str, sequence: int) -> list[str]:
        """The kinds of the events that answer one event, in order."""
        rows = self._session.scalars(
            select(EventRow.payload["kind"].as_string())
            .where(EventRow.run_id == run_id, EventRow.parent == sequence)
            .order_by(EventRow.sequence)
        )
        return list(rows)

    def any_to_claim(self, now: datetime) -> bool:
        """Whether `claim` would find a run; a read alone, for whoever looks many times a second."""
        return self._session.scalar(select(RunRow.id).where(_claimable(now)).limit(1)) is not None

    def claim(self, *, owner: str, now: datetime, lease_s: float) -> Run | None:
        """Take the oldest run that waits or whose holder has stopped talking; None where there is none.

        Args:
            owner: Names this claim and no other, so that a holder that lost a run and took it again is two.
        """
        row = self._session.scalar(
            select(RunRow)
            .where(_claimable(now))
            .order_by(RunRow.created_at, RunRow.id)
            .limit(1)
            .with_for_update(skip_locked=True)
        )
        if row is None:
            return None
        row.state = RunState.RUNNING
        row.lease_owner, row.lease_until = owner, now + timedelta(seconds=lease_s)
        row.attempts += 1
        self._session.flush()
        return _run(row)

    def attempts(self, run_id: str) -> int:
        """How often the run was taken up."""
        return self._session.scalar(select(RunRow.attempts).where(RunRow.id == run_id)) or 0

    def heartbeat(self, owners: Sequence[str], *, until: datetime) -> None:
        """Hold the runs of these claims for longer."""
        self._session.execute(update(RunRow).where(RunRow.lease_owner.in_(owners)).values(lease_until=until))

    def release(self, owners: Sequence[str]) -> None:
        """Give runs back so that another process may go on with them at once. To be given back wears no run out."""
        self._session.execute(
            update(RunRow)
            .where(RunRow.lease_owner.in_(owners), RunRow.state == RunState.RUNNING)
            .values(state=RunState.QUEUED, lease_owner=None, lease_until=None, attempts=RunRow.attempts - 1)
        )

    def request_cancel(self, run_id: str) -> None:
        """Ask a run to stop at its next step."""
        self._session.execute(
            update(RunRow).where(RunRow.id == run_id, RunRow.state != RunState.STOPPED).values(cancel_requested=True)
        )

    def append(
        self, run_id: str, payload: Payload, *, owner: str, parent: int | None, sampled: bool, at: datetime
    ) -> Event:
        """Store the next event of a run that `owner` holds.

        Raises:
            LeaseLost: If another process holds the run by now; nothing is stored.
        """
        values: dict[str, object] = {"last_sequence": RunRow.last_sequence + 1}
        if isinstance(payload, RunStopped):
            values |= {
                "state": RunState.STOPPED,
                "stop_reason": payload.reason,
                "lease_owner": None,
                "lease_until": None,
            }
        sequence = self._session.scalar(
            update(RunRow)
            .where(RunRow.id == run_id, RunRow.lease_owner == owner, RunRow.state == RunState.RUNNING)
            .values(**values)
            .returning(RunRow.last_sequence)
        )
        if sequence is None:
            raise LeaseLost(f"run {run_id} is not held by this process any more")
        event = Event(sequence=sequence, at=at, parent=parent, sampled=sampled, payload=payload)
        self._session.add(_event_row(run_id, event))
        return event


def _event_row(run_id: str, event: Event) -> EventRow:
    return EventRow(
        run_id=run_id,
        sequence=event.sequence,
        at=event.at,
        parent=event.parent,
        sampled=event.sampled,
        payload=event.payload.model_dump(mode="json"),
    )


def _claimable(now: datetime) -> ColumnElement[bool]:
    return or_(
        RunRow.state == RunState.QUEUED,
        and_(RunRow.state == RunState.RUNNING, RunRow.lease_until < now),
    )
