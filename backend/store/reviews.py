"""Judgements: rows that are only ever added."""

from dataclasses import asdict
from typing import Any

from sqlalchemy import Row, bindparam, select
from sqlalchemy.orm import Session

from backend.domain.errors import Conflict
from backend.domain.feedback import Feedback, TargetKind, Verdict
from backend.store.sql import insert_new
from backend.store.tables import FeedbackRow

_CORRECTIONS = ("corrected_text", "corrected_choice", "corrected_box", "corrected_mask_version_id")


# Run for every judgement, so built once.
_BY_REQUEST = select(*FeedbackRow.__table__.columns).where(
    FeedbackRow.user_id == bindparam("of"), FeedbackRow.request_key == bindparam("key")
)


def _feedback(row: FeedbackRow | Row[Any]) -> Feedback:
    correction: dict[str, Any] = dict(row.correction)
    if correction.get("corrected_box") is not None:
        correction["corrected_box"] = tuple(correction["corrected_box"])
    return Feedback(
        id=row.id,
        run_id=row.run_id,
        user_id=row.user_id,
        target=TargetKind(row.target),
        verdict=Verdict(row.verdict),
        created_at=row.created_at,
        request_key=row.request_key,
        sequence=row.sequence,
        mask_version_id=row.mask_version_id,
        comment=row.comment,
        marks=dict(row.marks),
        seconds_spent=row.seconds_spent,
        **correction,
    )


class Reviews:
    """Repository of feedback."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, feedback: Feedback, *, project_id: str) -> Feedback:
        """Store a judgement, or find the one that the same request stored before (casebook C61)."""
        values = asdict(feedback)
        correction = {name: values.pop(name) for name in _CORRECTIONS}
        row = {**values, "project_id": project_id, "correction": correction}
        insert_new(self._session, FeedbackRow, [row])
        stored = self.by_request(feedback.user_id, feedback.request_key)
        if stored is None:
            raise Conflict(f"judgement {feedback.id} was not stored, and no other under its request key")
        return stored

    def by_request(self, user_id: str, request_key: str) -> Feedback | None:
        """The judgement that this request stored before."""
        row = self._session.execute(_BY_REQUEST, {"of": user_id, "key": request_key}).one_or_none()
        return _feedback(row) if row else None

    def of_run(self, run_id: str, *, user_id: str | None = None) -> list[Feedback]:
        """The judgements of one run, oldest first; of one person where `user_id` is given."""
        query = select(FeedbackRow).where(FeedbackRow.run_id == run_id)
        if user_id is not None:
            query = query.where(FeedbackRow.user_id == user_id)
        return [_feedback(row) for row in self._session.scalars(query.order_by(FeedbackRow.created_at, FeedbackRow.id))]
