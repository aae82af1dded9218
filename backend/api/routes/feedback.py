"""Judgements of a run."""

from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from backend.api.deps import CurrentActor, CurrentServices, requires
from backend.api.fields import MOST_EVENTS, OurId, RequestKey
from backend.domain.access import Permission
from backend.domain.feedback import Feedback, TargetKind, Verdict
from backend.services import reviews
from backend.store.repository import new_id

router = APIRouter(prefix="/api/runs/{run_id}/feedback", tags=["feedback"])


class Judgement(BaseModel):
    """One judgement; see `backend.domain.feedback.Feedback` for the fields."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    target: TargetKind
    verdict: Verdict
    sequence: int | None = Field(default=None, ge=1, le=MOST_EVENTS)
    mask_version_id: OurId | None = None
    corrected_text: str | None = Field(default=None, max_length=4_000)
    corrected_choice: str | None = Field(default=None, max_length=8)
    corrected_box: tuple[float, float, float, float] | None = None
    corrected_mask_version_id: OurId | None = None
    comment: str = Field(default="", max_length=4_000)
    marks: dict[Annotated[str, Field(min_length=1, max_length=40)], float] = Field(default_factory=dict, max_length=20)
    seconds_spent: float | None = Field(default=None, ge=0)
    request_key: RequestKey


def feedback_json(feedback: Feedback) -> dict[str, Any]:
    """A judgement on the wire."""
    return {
        "id": feedback.id,
        "run_id": feedback.run_id,
        "user_id": feedback.user_id,
        "target": feedback.target,
        "verdict": feedback.verdict,
        "sequence": feedback.sequence,
        "mask_version_id": feedback.mask_version_id,
        "corrected_text": feedback.corrected_text,
        "corrected_choice": feedback.corrected_choice,
        "corrected_box": feedback.corrected_box,
        "corrected_mask_version_id": feedback.corrected_mask_version_id,
        "comment": feedback.comment,
        "marks": feedback.marks,
        "seconds_spent": feedback.seconds_spent,
        "created_at": feedback.created_at.isoformat(),
    }


@router.post("", status_code=201, dependencies=[requires(Permission.JUDGE)])
def judge(run_id: str, judgement: Judgement, actor: CurrentActor, services: CurrentServices) -> dict[str, Any]:
    """Attach a judgement; the same request again answers with what it stored."""
    feedback = Feedback(
        id=new_id(), run_id=run_id, user_id=actor.user_id, created_at=services.clock(), **judgement.model_dump()
    )
    return feedback_json(reviews.submit_feedback(actor, feedback, store=services.store, clock=services.clock))


@router.get("", dependencies=[requires(Permission.VIEW_STUDIES)])
def list_feedback(run_id: str, actor: CurrentActor, services: CurrentServices) -> dict[str, Any]:
    """What this person judged of the run, oldest first."""
    found = reviews.feedback_of_run(actor, run_id, store=services.store)
    return {"feedback": [feedback_json(feedback) for feedback in found]}
