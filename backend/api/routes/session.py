"""Signing in, who is signed in, signing out, and one's own password."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from backend.api.deps import CurrentServices, CurrentSession
from backend.api.guard import SESSION_COOKIE
from backend.domain.access import Permission
from backend.domain.account import SignedIn
from backend.services import passwords, projects, sessions
from backend.settings import Settings

RESEARCH_NOTICE = "Research use, not for diagnosis"
router = APIRouter(tags=["session"])

Name = Annotated[str, Field(min_length=1, max_length=200)]
Password = Annotated[str, Field(min_length=1, max_length=passwords.GREATEST_LENGTH)]


class SignIn(BaseModel):
    """`as: "token"` is for programs: the answer holds the token, and no cookie is set."""

    model_config = ConfigDict(extra="forbid")

    name: Name
    password: Password
    as_: Literal["cookie", "token"] = Field("cookie", alias="as")


class PasswordChange(BaseModel):
    """One's own password."""

    model_config = ConfigDict(extra="forbid")

    old_password: Password
    new_password: Password


@router.post("/api/session")
async def sign_in(body: SignIn, request: Request, response: Response, services: CurrentServices) -> dict[str, Any]:
    """Open a session; the browser's earlier one ends."""
    opened = await run_in_threadpool(
        sessions.sign_in,
        body.name,
        body.password,
        address=_address(request, services.settings),
        replaces=request.cookies.get(SESSION_COOKIE),
        store=services.store,
        settings=services.settings,
        clock=services.clock,
    )
    told = {"user": _user(opened.signed_in), "csrf_token": opened.signed_in.csrf_token}
    if body.as_ == "token":
        return told | {"token": opened.token}
    response.set_cookie(
        SESSION_COOKIE,
        opened.token,
        max_age=int(services.settings.session_hours * 3600),
        path="/",
        httponly=True,
        samesite="strict",
        secure=_is_https(request),
    )
    return told


@router.get("/api/session")
def show_session(session: CurrentSession, services: CurrentServices) -> dict[str, Any]:
    """Who is signed in, what they may do and where."""
    actor = session.actor
    mine = projects.my_projects(actor, store=services.store)
    return {
        "user": _user(session),
        "csrf_token": session.csrf_token,
        "demo": services.settings.demo,
        "projects": [{"id": project.id, "name": project.name, "is_demo": project.is_demo} for project in mine],
        "permissions": [permission.value for permission in Permission if actor.may(permission)],
        "research_notice": RESEARCH_NOTICE,
    }


@router.delete("/api/session", status_code=204)
def sign_out(session: CurrentSession, request: Request, services: CurrentServices) -> Response:
    """End this session."""
    sessions.sign_out(session, store=services.store)
    return _without_cookie(request)


@router.post("/api/session/password", status_code=204)
def change_password(
    body: PasswordChange, session: CurrentSession, request: Request, services: CurrentServices
) -> Response:
    """Change one's own password; every session of the account ends, and one signs in with the new one."""
    sessions.change_own_password(
        session.actor,
        body.old_password,
        body.new_password,
        address=_address(request, services.settings),
        store=services.store,
        settings=services.settings,
        clock=services.clock,
    )
    return _without_cookie(request)


def _user(session: SignedIn) -> dict[str, Any]:
    actor = session.actor
    return {
        "id": actor.user_id,
        "name": actor.name,
        "display_name": session.display_name,
        "role": actor.role.value,
    }


def _address(request: Request, settings: Settings) -> str:
    """Where the request began, read back from us: a hop is believed as long as a trusted proxy named it."""
    address = request.client.host if request.client else "unknown"
    hops = [hop.strip() for hop in request.headers.get("x-forwarded-for", "").split(",") if hop.strip()]
    while hops and address in settings.trusted_proxies:
        address = hops.pop()
    return address


def _is_https(request: Request) -> bool:
    """Whether the browser speaks https, also through a proxy that does not say so."""
    return request.url.scheme == "https" or request.headers.get("origin", "").startswith("https://")


def _without_cookie(request: Request) -> Response:
    response = Response(status_code=204)
    response.delete_cookie(SESSION_COOKIE, path="/", httponly=True, samesite="strict", secure=_is_https(request))
    return response
