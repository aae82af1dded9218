"""What a route may ask for: the services, who is asking, and that the role allows it."""

from typing import Annotated, Any

from fastapi import Depends, Request
from fastapi.params import Depends as Dependency

from backend.domain.access import Actor, Permission
from backend.domain.account import SignedIn
from backend.domain.errors import NotAllowed, NotSignedIn
from backend.services.context import Services

# `backend.api.guard` puts these into `scope["state"]` of every request: the session and its person, or None.
SESSION_STATE, ACTOR_STATE = "signed_in", "actor"
# A route that streams puts the project of what it streams here: the guard ends the stream for who has left it.
STREAM_PROJECT_STATE = "stream_project_id"


async def get_services(request: Request) -> Services:
    """The application's services."""
    services: Services = request.app.state.services
    return services


async def get_session(request: Request) -> SignedIn:
    """The session that the guard found. Raises `NotSignedIn`."""
    signed_in: SignedIn | None = request.scope["state"][SESSION_STATE]
    if signed_in is None:
        raise NotSignedIn("sign in first")
    return signed_in


CurrentServices = Annotated[Services, Depends(get_services)]
CurrentSession = Annotated[SignedIn, Depends(get_session)]


async def get_actor(session: CurrentSession) -> Actor:
    """The signed-in person."""
    return session.actor


CurrentActor = Annotated[Actor, Depends(get_actor)]


class PermissionCheck:
    """Lets a request through whose person's role allows it; carries the permission for whoever walks the routes."""

    def __init__(self, permission: Permission) -> None:
        self.permission = permission

    async def __call__(self, actor: CurrentActor) -> Actor:
        """The actor. Raises `NotAllowed`."""
        if not actor.may(self.permission):
            raise NotAllowed(f"the role {actor.role.value} does not allow {self.permission.value}")
        return actor


def requires(permission: Permission) -> Any:
    """A dependency that asks for a permission: `dependencies=[requires(...)]` or `Annotated[Actor, requires(...)]`.

    Whether the person is a member of the project is for the service to see: only it knows the project.
    """
    check: Dependency = Depends(PermissionCheck(permission))
    return check
