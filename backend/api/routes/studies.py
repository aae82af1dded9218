"""The worklist and one study."""

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from backend.api.deps import CurrentActor, CurrentServices, requires
from backend.domain.access import Permission
from backend.domain.study import Identity, StudyRow
from backend.services import studies

router = APIRouter(tags=["studies"])

_VIEW = [requires(Permission.VIEW_STUDIES)]


class Search(BaseModel):
    """What is searched for, within which studies."""

    q: str = Field(default="", max_length=200)
    project_id: str | None = Field(default=None, max_length=24)
    modality: str = Field(default="", max_length=16)
    page: int = Field(default=1, ge=1, le=1_000_000)


@router.get("/api/studies", dependencies=_VIEW)
def list_studies(
    actor: CurrentActor,
    services: CurrentServices,
    project_id: Annotated[str | None, Query(max_length=24)] = None,
    modality: Annotated[str, Query(max_length=16)] = "",
    page: Annotated[int, Query(ge=1, le=1_000_000)] = 1,
) -> dict[str, Any]:
    """A page of 50, newest first."""
    return page_json(
        studies.list_studies(actor, store=services.store, project_id=project_id or None, modality=modality, page=page)
    )


@router.post("/api/studies/search", dependencies=_VIEW)
def search_studies(search: Search, actor: CurrentActor, services: CurrentServices) -> dict[str, Any]:
    """The same for words that somebody typed. They may name a patient, so they come in the body and in no address."""
    return page_json(
        studies.list_studies(
            actor,
            store=services.store,
            project_id=search.project_id or None,
            text=search.q,
            modality=search.modality,
            page=search.page,
        )
    )


def page_json(found: studies.Page) -> dict[str, Any]:
    """A page of the worklist on the wire."""
    return {
        "page": found.number,
        "pages": found.pages,
        "total": found.total,
        "studies": [study_json(row) for row in found.studies],
    }


@router.get("/api/studies/{study_id}", dependencies=_VIEW)
def show_study(study_id: str, actor: CurrentActor, services: CurrentServices) -> dict[str, Any]:
    """One study with its series."""
    details = studies.study_details(actor, study_id, store=services.store)
    return study_json(details.row) | {
        "series": [
            {
                "id": series.id,
                "modality": series.modality,
                "description": series.description,
                "number": series.number,
                "kind": series.kind,
                "kind_reason": series.kind_reason,
                "frame_count": series.frame_count,
                "rows": series.rows,
                "columns": series.columns,
                "is_superseded": series.is_superseded,
            }
            for series in details.series
        ]
    }


def study_json(row: StudyRow) -> dict[str, Any]:
    """A line of the worklist; `identity` is null for who may not see it."""
    return {
        "id": row.id,
        "project_id": row.project_id,
        "project_name": row.project_name,
        "description": row.description,
        "modalities": list(row.modalities),
        "series_count": row.series_count,
        "frame_count": row.frame_count,
        "received_at": row.received_at.isoformat(),
        "cover_series_id": row.cover_series_id,
        "identity": None if row.identity is None else identity_json(row.identity),
    }


def identity_json(identity: Identity) -> dict[str, str]:
    """Whose study it is."""
    return asdict(identity)
