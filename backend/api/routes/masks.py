"""Masks: list, planes as shown, edits as new versions, and prompts with a preview."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field, model_validator
from starlette.concurrency import run_in_threadpool

from backend.api.deps import CurrentActor, CurrentServices, requires
from backend.api.fields import OurId, RequestKey
from backend.domain.access import Permission
from backend.domain.errors import FileTooLarge, InvalidRequest
from backend.domain.mask import MaskVersion, Segment
from backend.domain.segmenter import BoxPrompt, ConceptPrompt, PointsPrompt, Prompt
from backend.services import masks, prompts

router = APIRouter(prefix="/api", tags=["masks"])

# A packed plane of the largest frame that is let in is a few kilobytes; noise in every pixel of 8192 x 8192 is 8 MiB.
MAX_PLANE_BYTES = 9 * 1024 * 1024


class NewMask(BaseModel):
    """An empty mask to draw on. `frame_count` is that of the series when it was opened."""

    model_config = ConfigDict(extra="forbid")

    label: str
    color: str | None = None
    frame_count: int | None = None
    request_key: RequestKey


class SegmentJson(BaseModel):
    """One segment."""

    number: int = Field(ge=1, le=65_535)
    label: str
    color: str


class SegmentsChange(BaseModel):
    """The segments that a mask has from now on."""

    model_config = ConfigDict(extra="forbid")

    segments: tuple[SegmentJson, ...] = Field(max_length=64)
    base_version: int
    request_key: RequestKey


class Restoration(BaseModel):
    """Which version to go back, or forward, to."""

    model_config = ConfigDict(extra="forbid")

    version: int = Field(ge=1)
    base_version: int
    request_key: RequestKey


class PromptJson(BaseModel):
    """One of a box, points with labels, or a concept, on one frame as shown; edges in pixels."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    frame_index: int = Field(ge=0)
    box: tuple[float, float, float, float] | None = None
    points: tuple[tuple[float, float], ...] | None = Field(default=None, max_length=64)
    labels: tuple[Literal[0, 1], ...] | None = Field(default=None, max_length=64)
    concept: str | None = Field(default=None, max_length=80)

    @model_validator(mode="after")
    def _is_one_prompt(self) -> "PromptJson":
        if sum(part is not None for part in (self.box, self.points, self.concept)) != 1:
            raise ValueError("a prompt is one of box, points and concept")
        if (self.points is None) != (self.labels is None) or len(self.points or ()) != len(self.labels or ()):
            raise ValueError("each point has a label")
        return self

    def to_prompt(self) -> Prompt:
        """As the domain's value."""
        if self.box is not None:
            return BoxPrompt(self.box)
        if self.concept is not None:
            return ConceptPrompt(self.concept)
        return PointsPrompt(self.points or (), self.labels or ())


class FrameJson(BaseModel):
    """Which frame."""

    frame_index: int = Field(ge=0)


class AcceptedPrompt(BaseModel):
    """A previewed prompt that becomes a mask, or the next version of one."""

    model_config = ConfigDict(extra="forbid")

    prompt: PromptJson
    bits_sha256: str = Field(min_length=64, max_length=64)
    label: str = "Segment"
    mask_id: OurId | None = None
    segment: int = 1
    base_version: int | None = None
    request_key: RequestKey


def mask_json(version: MaskVersion) -> dict[str, Any]:
    """A mask version on the wire."""
    return {
        "id": version.id,
        "mask_id": version.mask_id,
        "series_id": version.series_id,
        "version": version.version,
        "author": {
            "kind": version.author.kind,
            "name": version.author.name,
            "user_id": version.author.user_id,
            "run_id": version.author.run_id,
            "sequence": version.author.sequence,
        },
        "created_at": version.created_at.isoformat(),
        "segments": [
            {"number": s.number, "label": s.label, "color": s.color, "voxels": sum(version.voxels[s.number].values())}
            for s in version.segments
        ],
        "is_resampled": version.is_resampled,
    }


@router.get("/series/{series_id}/masks", dependencies=[requires(Permission.VIEW_STUDIES)])
def list_masks(series_id: str, actor: CurrentActor, services: CurrentServices) -> dict[str, Any]:
    """The newest version of each mask on a series."""
    found = masks.describe_masks(actor, series_id, store=services.store)
    return {"masks": [{**mask_json(each.version), **each.facts()} for each in found]}


@router.get("/masks/{mask_id}/versions", dependencies=[requires(Permission.VIEW_STUDIES)])
def list_versions(mask_id: str, actor: CurrentActor, services: CurrentServices) -> dict[str, Any]:
    """Every version of a mask, oldest first."""
    found = masks.versions_of_mask(actor, mask_id, store=services.store)
    return {"versions": [mask_json(version) for version in found]}


@router.get("/mask-versions/{version_id}", dependencies=[requires(Permission.VIEW_STUDIES)])
def read_version(version_id: str, actor: CurrentActor, services: CurrentServices) -> dict[str, Any]:
    """One version with the facts that its series gives."""
    each = masks.describe_version(actor, version_id, store=services.store)
    return {**mask_json(each.version), **each.facts()}


@router.get(
    "/mask-versions/{version_id}/planes/{segment}/{frame_index}", dependencies=[requires(Permission.VIEW_STUDIES)]
)
def read_plane(
    version_id: str, segment: int, frame_index: int, actor: CurrentActor, services: CurrentServices
) -> Response:
    """One segment on one frame, as shown: a bit a pixel, row by row, first pixel in the highest bit, zlib."""
    packed = masks.plane_as_shown(actor, version_id, segment, frame_index, store=services.store)
    return Response(packed, media_type="application/octet-stream")


@router.post("/series/{series_id}/masks", status_code=201, dependencies=[requires(Permission.JUDGE)])
def begin(series_id: str, wanted: NewMask, actor: CurrentActor, services: CurrentServices) -> dict[str, Any]:
    """An empty mask."""
    version = masks.begin_mask(
        actor,
        series_id,
        label=wanted.label,
        color=wanted.color,
        frame_count=wanted.frame_count,
        request_key=wanted.request_key,
        store=services.store,
        clock=services.clock,
    )
    return mask_json(version)


@router.put("/masks/{mask_id}/planes/{segment}/{frame_index}", dependencies=[requires(Permission.JUDGE)])
async def save(
    mask_id: str,
    segment: int,
    frame_index: int,
    request: Request,
    actor: CurrentActor,
    services: CurrentServices,
    base_version: Annotated[int, Query()],
    request_key: Annotated[RequestKey, Query()],
) -> dict[str, Any]:
    """Save one edited plane, as shown, as the next version."""
    packed = bytearray()
    async for chunk in request.stream():
        packed += chunk
        if len(packed) > MAX_PLANE_BYTES:
            raise FileTooLarge(f"a packed plane has at most {MAX_PLANE_BYTES} bytes")
    version = await run_in_threadpool(
        masks.save_plane,
        actor,
        mask_id,
        segment,
        frame_index,
        bytes(packed),
        base_version=base_version,
        request_key=request_key,
        store=services.store,
        clock=services.clock,
    )
    return mask_json(version)


@router.patch("/masks/{mask_id}", dependencies=[requires(Permission.JUDGE)])
def change_segments(
    mask_id: str, change: SegmentsChange, actor: CurrentActor, services: CurrentServices
) -> dict[str, Any]:
    """Rename, recolour, add or remove segments."""
    version = masks.set_segments(
        actor,
        mask_id,
        tuple(Segment(each.number, each.label, each.color) for each in change.segments),
        base_version=change.base_version,
        request_key=change.request_key,
        store=services.store,
        clock=services.clock,
    )
    return mask_json(version)


@router.post("/masks/{mask_id}/restore", dependencies=[requires(Permission.JUDGE)])
def restore(mask_id: str, wanted: Restoration, actor: CurrentActor, services: CurrentServices) -> dict[str, Any]:
    """Undo and redo: a new version that equals an earlier one."""
    version = masks.restore_version(
        actor,
        mask_id,
        wanted.version,
        base_version=wanted.base_version,
        request_key=wanted.request_key,
        store=services.store,
        clock=services.clock,
    )
    return mask_json(version)


@router.get("/series/{series_id}/concepts", dependencies=[requires(Permission.VIEW_STUDIES)])
def list_concepts(series_id: str, actor: CurrentActor, services: CurrentServices) -> dict[str, Any]:
    """What the segmenter finds by name in this series, and who answers."""
    return prompts.concepts_of_series(actor, series_id, services=services)


@router.post("/series/{series_id}/prepare", status_code=202, dependencies=[requires(Permission.JUDGE)])
def prepare(series_id: str, frame: FrameJson, actor: CurrentActor, services: CurrentServices) -> dict[str, Any]:
    """Encode a frame ahead of its first prompt."""
    prompts.prepare(actor, series_id, frame.frame_index, services=services)
    return {"state": "preparing"}


@router.post("/series/{series_id}/prompts", dependencies=[requires(Permission.JUDGE)])
def preview(series_id: str, wanted: PromptJson, actor: CurrentActor, services: CurrentServices) -> dict[str, Any]:
    """A mask for a prompt, to look at; nothing is stored."""
    return prompts.preview(actor, series_id, wanted.frame_index, wanted.to_prompt(), services=services).to_json()


@router.post("/series/{series_id}/prompts/accept", status_code=201, dependencies=[requires(Permission.JUDGE)])
def accept(series_id: str, accepted: AcceptedPrompt, actor: CurrentActor, services: CurrentServices) -> dict[str, Any]:
    """Store a previewed mask; what is stored is what was seen, or nothing."""
    if (accepted.mask_id is None) != (accepted.base_version is None):
        raise InvalidRequest("mask_id and base_version come together")
    version = prompts.accept(
        actor,
        series_id,
        accepted.prompt.frame_index,
        accepted.prompt.to_prompt(),
        bits_sha256=accepted.bits_sha256,
        label=accepted.label,
        onto=None if accepted.mask_id is None else (accepted.mask_id, accepted.segment, accepted.base_version or 0),
        request_key=accepted.request_key,
        services=services,
    )
    return mask_json(version)
