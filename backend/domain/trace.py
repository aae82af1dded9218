"""The trace: the append-only events of one run.

It is the one artefact that the viewer draws, the reviewer judges, the exporter freezes and the trainer learns from.
An event is stored before anybody sees it; streaming text is an unsequenced preview and never an event. DESIGN 3.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator


class StopReason(StrEnum):
    """Why a run ended."""

    ANSWERED = "answered"
    MAX_TURNS = "max_turns"
    MAX_TOKENS = "max_tokens"
    MAX_TOOL_CALLS = "max_tool_calls"
    NO_PROGRESS = "no_progress"
    TIMEOUT = "timeout"
    UNREADABLE = "unreadable"
    CANCELLED = "cancelled"
    FAILED = "failed"


class _Payload(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class PolicyBody(_Payload):
    """Which policy speaks: shown on the screen and kept in the trace.

    Attributes:
        coordinates: The space of its boxes: pixels of the picture that it saw, or 0 to 1000 of each side.
        label: What people are told where it is no trained model, e.g. "demonstration policy: rules, not a model".
    """

    name: str
    version: str
    coordinates: Literal["pixels", "thousandths"] = "pixels"
    is_demonstration: bool = False
    label: str | None = None


class ToolBody(_Payload):
    """Which body answered a tool call: name, version, hash of its weights where it has any."""

    name: str
    version: str
    sha256: str | None = None
    is_demonstration: bool = False


class QuestionAsked(_Payload):
    """The first event of a run, or of its continuation."""

    kind: Literal["QuestionAsked"] = "QuestionAsked"
    question: str
    options: tuple[str, ...] = ()
    asked_by: str
    policy: PolicyBody
    segmenter: tuple[ToolBody, ...] = ()


class ModelSpoke(_Payload):
    """One turn of the policy, cut at its closing tag. `cut` keeps what came after it, which nobody acts on.

    Attributes:
        tokens: How many tokens it wrote, the cut ones included: what the run's limit counts.
    """

    kind: Literal["ModelSpoke"] = "ModelSpoke"
    text: str
    thought: str = ""
    cut: str = ""
    token_ids: tuple[int, ...] | None = None
    logprobs: tuple[float, ...] | None = None
    tokens: int | None = None
    seconds: float = 0.0


class ToolCalled(_Payload):
    """A call as it was understood: the tool's own name, and arguments in pixels of the view `view_index`.

    Attributes:
        written: The name and arguments as the model wrote them.
        view_index: The 1-based number of the picture of this run that the call names.
        was_clamped: A box that reached beyond the picture was cut at its edge.
    """

    kind: Literal["ToolCalled"] = "ToolCalled"
    tool: str
    arguments: dict[str, Any]
    written: dict[str, Any]
    view_index: int | None = None
    was_clamped: bool = False


class MaskMade(_Payload):
    """A mask that a tool stored: which version, on which slice, and the facts that the model was told.

    Attributes:
        area_mm2: None where the spacing is unknown: then there are no millimetres.
        box: Tight (x0, y0, x1, y1) on the displayed frame, edges; None where nothing is set.
        is_resampled: The body's own grid had less than one cell for each of the frame's pixels.
    """

    mask_version_id: str
    segment: int
    frame_index: int
    area_px: int
    area_mm2: float | None
    box: tuple[float, float, float, float] | None
    score: float | None
    is_present: bool = True
    is_resampled: bool = False


class ToolReturned(_Payload):
    """What a tool gave back. A tool result comes only from a tool (casebook C44)."""

    kind: Literal["ToolReturned"] = "ToolReturned"
    tool: str
    text: str
    body: ToolBody
    masks: tuple[MaskMade, ...] = ()
    values: dict[str, Any] = Field(default_factory=dict)
    seconds: float = 0.0


class ToolFailed(_Payload):
    """A tool could not; the text went back to the model, which may try again."""

    kind: Literal["ToolFailed"] = "ToolFailed"
    tool: str
    code: str
    message: str
    seconds: float = 0.0


class ViewShown(_Payload):
    """A view as stored in an event. Crop edges are exact fractions as text ("512", "1023/2")."""

    series_id: str
    frame_index: int
    frame_width: int
    frame_height: int
    crop: tuple[str, str, str, str]
    width: int
    height: int
    window: dict[str, Any] | None


class ImageShown(_Payload):
    """A picture that the model was given. `index` counts from 1 within the run; `picture_sha256` is the PNG's blob."""

    kind: Literal["ImageShown"] = "ImageShown"
    index: int
    view: ViewShown
    picture_sha256: str
    mask_version_id: str | None = None


class CorrectionGiven(_Payload):
    """A person mends a step inside a continued run: what the model is told instead.

    Attributes:
        box: (x0, y0, x1, y1), edges in pixels of the displayed frame `frame_index`.
        mask_version_id: The outline that should have been, by a person; no tool of the run made it.
        frame_index: The frame of the step that is corrected: where the box and the mask lie.
    """

    kind: Literal["CorrectionGiven"] = "CorrectionGiven"
    text: str
    given_by: str
    box: tuple[float, float, float, float] | None = None
    mask_version_id: str | None = None
    frame_index: int | None = Field(default=None, ge=0)

    @model_validator(mode="after")
    def _has_its_frame(self) -> Self:
        if self.frame_index is None and (self.box is not None or self.mask_version_id is not None):
            raise ValueError("a box or a mask lies on a frame: frame_index is needed")
        return self


class AnswerGiven(_Payload):
    """The policy's answer; `choice` is the option's letter where options were given and one was named."""

    kind: Literal["AnswerGiven"] = "AnswerGiven"
    text: str
    choice: str | None = None


class RunStopped(_Payload):
    """The last event of a run."""

    kind: Literal["RunStopped"] = "RunStopped"
    reason: StopReason
    message: str = ""
    error_code: str | None = None


Payload = (
    QuestionAsked
    | ModelSpoke
    | ToolCalled
    | ToolReturned
    | ToolFailed
    | ImageShown
    | CorrectionGiven
    | AnswerGiven
    | RunStopped
)


class Event(BaseModel):
    """One event of a run.

    Attributes:
        sequence: Place in the run, from 1, no gaps.
        at: UTC.
        parent: The event it answers or belongs to; None for the first.
        sampled: Whether a policy wrote it. Role decides nothing about what is trained on; this does.
    """

    model_config = ConfigDict(frozen=True)

    sequence: int = Field(ge=1)
    at: datetime
    parent: int | None = None
    sampled: bool = False
    payload: Payload = Field(discriminator="kind")


class RunState(StrEnum):
    """`queued -> running -> stopped`; a run whose process was lost is taken up from its last stored event."""

    QUEUED = "queued"
    RUNNING = "running"
    STOPPED = "stopped"


class RunLimits(_Payload):
    """What ends a run that does not end by itself; each has its `StopReason`."""

    turns: int = Field(default=12, gt=0)
    tokens: int = Field(default=16_384, gt=0)
    tool_calls: int = Field(default=16, gt=0)
    seconds: float = Field(default=180, gt=0)
    identical_calls: int = Field(default=3, gt=0)


@dataclass(frozen=True, slots=True)
class Run:
    """One question to one policy about one series.

    Attributes:
        parent_run_id, parent_sequence: "Continue from here": the run and event that this one goes on from.
        correction: What a person says there, with the box or mask that should have been.
        frame_index: The frame that the first picture shows.
        stop_reason: None until it stopped.
        event_count: How many events are stored.
    """

    id: str
    series_id: str
    study_id: str
    project_id: str
    asked_by: str
    question: str
    options: tuple[str, ...]
    frame_index: int
    state: RunState
    stop_reason: StopReason | None
    limits: RunLimits
    created_at: datetime
    parent_run_id: str | None
    parent_sequence: int | None
    correction: CorrectionGiven | None
    event_count: int
    cancel_requested: bool
