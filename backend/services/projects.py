"""Projects and who works in them."""

import structlog

from backend.domain.access import Actor, Permission
from backend.domain.account import Project, User
from backend.domain.errors import InvalidRequest, NotAllowed, NotFound
from backend.services.context import Clock
from backend.store.repository import Store, new_id

log = structlog.get_logger(__name__)


def my_projects(actor: Actor, *, store: Store) -> list[Project]:
    """The projects that the actor is a member of, by name; an admin's are all."""
    with store.transaction(read_only=True) as tx:
        return tx.accounts.projects(actor.project_ids)


def create_project(actor: Actor, name: str, *, store: Store, clock: Clock) -> Project:
    """Make a project without members.

    Raises:
        NotAllowed: The actor manages no projects.
        InvalidRequest: The name is empty.
        Conflict: The name is taken.
    """
    _require_manager(actor)
    if not name.strip():
        raise InvalidRequest("a project has a name")
    project = Project(new_id(), name.strip(), False, clock())
    with store.transaction() as tx:
        tx.accounts.add_project(project)
    log.info("project_created", project_id=project.id, by_user_id=actor.user_id)
    return project


def list_members(actor: Actor, project_id: str, *, store: Store) -> list[User]:
    """Who works in a project. Raises `NotFound` for a project that the actor is no member of."""
    if project_id not in actor.project_ids:
        raise NotFound("no project has this id")
    with store.transaction(read_only=True) as tx:
        tx.accounts.project(project_id)
        return tx.accounts.members(project_id)


def add_member(actor: Actor, project_id: str, user_id: str, *, store: Store) -> None:
    """Make a user a member; nothing changes where they are one. Raises `NotAllowed`, `NotFound`."""
    _require_manager(actor)
    with store.transaction() as tx:
        tx.accounts.add_member(tx.accounts.project(project_id).id, tx.accounts.user(user_id).id)
    log.info("member_added", project_id=project_id, user_id=user_id, by_user_id=actor.user_id)


def remove_member(actor: Actor, project_id: str, user_id: str, *, store: Store) -> None:
    """End a membership; nothing changes where there is none. Raises `NotAllowed`, `NotFound`."""
    _require_manager(actor)
    with store.transaction() as tx:
        tx.accounts.remove_member(tx.accounts.project(project_id).id, tx.accounts.user(user_id).id)
    log.info("member_removed", project_id=project_id, user_id=user_id, by_user_id=actor.user_id)


def _require_manager(actor: Actor) -> None:
    if not actor.may(Permission.MANAGE_PROJECTS):
        raise NotAllowed(f"the role {actor.role.value} does not manage projects")
