"""Projects and their members."""

from typing import Annotated, Any

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field

from backend.api.deps import CurrentActor, CurrentServices, requires
from backend.domain.access import Permission
from backend.domain.account import Project
from backend.services import projects

router = APIRouter(tags=["projects"])

_VIEW = [requires(Permission.VIEW_STUDIES)]
_MANAGE = [requires(Permission.MANAGE_PROJECTS)]


class NewProject(BaseModel):
    """A project is made without members."""

    model_config = ConfigDict(extra="forbid")

    name: Annotated[str, Field(min_length=1, max_length=120)]


def project_json(project: Project) -> dict[str, Any]:
    """A project."""
    return {
        "id": project.id,
        "name": project.name,
        "is_demo": project.is_demo,
        "created_at": project.created_at.isoformat(),
    }


@router.get("/api/projects", dependencies=_VIEW)
def list_projects(actor: CurrentActor, services: CurrentServices) -> dict[str, Any]:
    """The projects that one is a member of; an admin's are all."""
    return {"projects": [project_json(project) for project in projects.my_projects(actor, store=services.store)]}


@router.post("/api/projects", status_code=201, dependencies=_MANAGE)
def create_project(body: NewProject, actor: CurrentActor, services: CurrentServices) -> dict[str, Any]:
    """Make a project."""
    return project_json(projects.create_project(actor, body.name, store=services.store, clock=services.clock))


@router.get("/api/projects/{project_id}/members", dependencies=_VIEW)
def list_members(project_id: str, actor: CurrentActor, services: CurrentServices) -> dict[str, Any]:
    """Who works in a project, for those who do."""
    members = projects.list_members(actor, project_id, store=services.store)
    return {
        "members": [
            {"id": user.id, "name": user.name, "display_name": user.display_name, "role": user.role.value}
            for user in members
        ]
    }


@router.put("/api/projects/{project_id}/members/{user_id}", status_code=204, dependencies=_MANAGE)
def add_member(project_id: str, user_id: str, actor: CurrentActor, services: CurrentServices) -> Response:
    """Make a user a member; nothing changes where they are one."""
    projects.add_member(actor, project_id, user_id, store=services.store)
    return Response(status_code=204)


@router.delete("/api/projects/{project_id}/members/{user_id}", status_code=204, dependencies=_MANAGE)
def remove_member(project_id: str, user_id: str, actor: CurrentActor, services: CurrentServices) -> Response:
    """End a membership; nothing changes where there is none."""
    projects.remove_member(actor, project_id, user_id, store=services.store)
    return Response(status_code=204)
