"""Judgements. Each is immutable; a change of mind is newer feedback. DESIGN 3."""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum


class Verdict(StrEnum):
    """What a person says of a step."""

    ACCEPT = "accept"
    REJECT = "reject"
    CORRECT = "correct"


class TargetKind(StrEnum):
    """What is judged: a whole trace once it stopped, a step once its result is stored, an answer, or a mask version."""

    TRACE = "trace"
    STEP = "step"
    ANSWER = "answer"
    MASK = "mask"


@dataclass(frozen=True, slots=True)
class Feedback:
    """One judgement by one person.

    Attributes:
        sequence: The event of the run that is judged; None for the whole trace.
        mask_version_id: The mask version that is judged, for a mask.
        corrected_text, corrected_box, corrected_choice, corrected_mask_version_id: What it should have been.
        marks: Rubric marks by name, 0 to 1.
        seconds_spent: From showing the step to the judgement.
        request_key: The sender's idempotency key: a retried request finds what it stored (casebook C61).
    """

    id: str
    run_id: str
    user_id: str
    target: TargetKind
    verdict: Verdict
    created_at: datetime
    request_key: str
    sequence: int | None = None
    mask_version_id: str | None = None
    corrected_text: str | None = None
    corrected_choice: str | None = None
    corrected_box: tuple[float, float, float, float] | None = None
    corrected_mask_version_id: str | None = None
    comment: str = ""
    marks: dict[str, float] = field(default_factory=dict)
    seconds_spent: float | None = None
