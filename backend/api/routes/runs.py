"""Runs: ask, follow the events, cancel, continue, and the pictures that the model saw."""

from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from backend.api.deps import STREAM_PROJECT_STATE, CurrentActor, CurrentServices, requires
from backend.api.events import EventHub, EventStream, stream_events
from backend.api.fields import MOST_EVENTS, OurId, RequestKey
from backend.domain.access import Permission
from backend.domain.errors import NotAllowed
from backend.domain.trace import Run, RunLimits
from backend.services import runs

router = APIRouter(prefix="/api", tags=["runs"])


class Question(BaseModel):
    """What is asked, about which frame. `request_key` makes a retry find the run that it made before.

    `frame_count` says how many frames the series had when it was opened, so that a frame index means what was seen.
    """

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    question: str
    options: tuple[str, ...] = ()
    frame_index: int = 0
    frame_count: int | None = None
    request_key: RequestKey
    limits: RunLimits | None = None


class Continuation(BaseModel):
    """From which finished event a child run goes on, and what a person says to it.

    `box` and `mask_version_id` lie on `frame_index`; without one, on the frame that the step is about.
    """

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    from_sequence: int = Field(ge=1, le=MOST_EVENTS)
    correction: str = Field(default="", max_length=2_000)
    box: tuple[float, float, float, float] | None = None
    mask_version_id: OurId | None = None
    frame_index: int | None = Field(default=None, ge=0)
    request_key: RequestKey


def run_json(run: Run) -> dict[str, Any]:
    """A run on the wire."""
    return {
        "id": run.id,
        "series_id": run.series_id,
        "study_id": run.study_id,
        "question": run.question,
        "options": run.options,
        "frame_index": run.frame_index,
        "state": run.state,
        "stop_reason": run.stop_reason,
        "limits": run.limits.model_dump(),
        "created_at": run.created_at.isoformat(),
        "parent_run_id": run.parent_run_id,
        "parent_sequence": run.parent_sequence,
        "event_count": run.event_count,
        "cancel_requested": run.cancel_requested,
    }


@router.post("/series/{series_id}/runs", status_code=201, dependencies=[requires(Permission.ASK_MODEL)])
def ask(series_id: str, question: Question, actor: CurrentActor, services: CurrentServices) -> dict[str, Any]:
    """Put a question in the queue."""
    run = runs.start_run(
        actor,
        series_id,
        question=question.question,
        options=question.options,
        frame_index=question.frame_index,
        frame_count=question.frame_count,
        limits=question.limits,
        request_key=question.request_key,
        store=services.store,
        clock=services.clock,
    )
    return run_json(run)


@router.get("/series/{series_id}/runs", dependencies=[requires(Permission.VIEW_STUDIES)])
def list_runs(series_id: str, actor: CurrentActor, services: CurrentServices) -> dict[str, Any]:
    """The runs about a series, newest first."""
    return {"runs": [run_json(run) for run in runs.runs_of_series(actor, series_id, store=services.store)]}


@router.get("/runs/{run_id}", dependencies=[requires(Permission.VIEW_STUDIES)])
def read_run(run_id: str, actor: CurrentActor, services: CurrentServices) -> dict[str, Any]:
    """One run."""
    return run_json(runs.get_run(actor, run_id, store=services.store))


@router.get("/runs/{run_id}/events", dependencies=[requires(Permission.VIEW_STUDIES)])
async def follow(
    run_id: str,
    request: Request,
    actor: CurrentActor,
    services: CurrentServices,
    after: Annotated[int, Query(ge=0, le=MOST_EVENTS)] = 0,
    last_event_id: Annotated[str | None, Header()] = None,
) -> EventStream:
    """The events of a run as they are stored; a page that reconnects names the last one it has."""
    run = await run_in_threadpool(runs.get_run, actor, run_id, store=services.store)
    request.scope["state"][STREAM_PROJECT_STATE] = run.project_id
    if last_event_id is not None and last_event_id.isdecimal():
        after = min(int(last_event_id[:10]), MOST_EVENTS)
    hub: EventHub = request.app.state.event_hub
    stream = stream_events(
        run_id, after=after, hub=hub, read=lambda place: runs.news_of_run(run_id, after=place, store=services.store)
    )
    return EventStream(stream)


@router.post("/runs/{run_id}/cancel", dependencies=[requires(Permission.ASK_MODEL)])
def cancel(run_id: str, actor: CurrentActor, services: CurrentServices) -> dict[str, Any]:
    """Ask a run to stop at its next step."""
    return run_json(runs.cancel_run(actor, run_id, store=services.store))


@router.post("/runs/{run_id}/continue", status_code=201, dependencies=[requires(Permission.ASK_MODEL)])
def go_on(run_id: str, wanted: Continuation, actor: CurrentActor, services: CurrentServices) -> dict[str, Any]:
    """A child run that goes on from a finished step. A correction is a judgement, and needs the permission to judge."""
    given = runs.Correction(wanted.correction.strip(), wanted.box, wanted.mask_version_id, wanted.frame_index)
    has_correction = bool(given.text or given.box or given.mask_version_id)
    if has_correction and not actor.may(Permission.JUDGE):
        raise NotAllowed(f"the role {actor.role.value} does not allow {Permission.JUDGE.value}")
    run = runs.continue_run(
        actor,
        run_id,
        from_sequence=wanted.from_sequence,
        correction=given if has_correction else None,
        request_key=wanted.request_key,
        store=services.store,
        clock=services.clock,
    )
    return run_json(run)


@router.get("/runs/{run_id}/pictures/{index}", dependencies=[requires(Permission.VIEW_STUDIES)])
def picture(run_id: str, index: int, actor: CurrentActor, services: CurrentServices) -> Response:
    """The picture that the model was given under this number: the stored PNG."""
    png = runs.picture_of_run(actor, run_id, index, store=services.store, blobs=services.blobs)
    return Response(png, media_type="image/png")
