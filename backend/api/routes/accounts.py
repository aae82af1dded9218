"""Accounts, for admins."""

from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from backend.api.deps import CurrentActor, CurrentServices, requires
from backend.domain.access import Permission, Role
from backend.domain.account import User
from backend.domain.errors import InvalidRequest
from backend.services import accounts, passwords

router = APIRouter(tags=["accounts"], dependencies=[requires(Permission.MANAGE_ACCOUNTS)])

DisplayName = Annotated[str, Field(max_length=200)]
Password = Annotated[str, Field(max_length=passwords.GREATEST_LENGTH)]


class NewUser(BaseModel):
    """Without a password one is generated, and told once in the answer."""

    model_config = ConfigDict(extra="forbid")

    name: Annotated[str, Field(min_length=1, max_length=120)]
    display_name: DisplayName = ""
    role: Role
    password: Password | None = None


class UserChange(BaseModel):
    """What is given is changed. A new password comes alone: `password`, or `reset_password` to have one generated."""

    model_config = ConfigDict(extra="forbid")

    display_name: DisplayName | None = None
    role: Role | None = None
    is_active: bool | None = None
    password: Password | None = None
    reset_password: bool = False


def user_json(user: User) -> dict[str, Any]:
    """A user as admins see them."""
    return {
        "id": user.id,
        "name": user.name,
        "display_name": user.display_name,
        "role": user.role.value,
        "is_active": user.is_active,
        "is_sample": user.is_sample,
        "created_at": user.created_at.isoformat(),
    }


def _changed_json(changed: accounts.ChangedUser) -> dict[str, Any]:
    return {"user": user_json(changed.user), "password": changed.password}


@router.get("/api/users")
def list_users(actor: CurrentActor, services: CurrentServices) -> dict[str, Any]:
    """Everybody with an account."""
    return {"users": [user_json(user) for user in accounts.list_users(actor, store=services.store)]}


@router.post("/api/users", status_code=201)
def create_user(body: NewUser, actor: CurrentActor, services: CurrentServices) -> dict[str, Any]:
    """Make an account."""
    made = accounts.create_user(
        actor,
        body.name,
        display_name=body.display_name,
        role=body.role,
        password=body.password,
        store=services.store,
        clock=services.clock,
    )
    return _changed_json(made)


@router.patch("/api/users/{user_id}")
def change_user(user_id: str, body: UserChange, actor: CurrentActor, services: CurrentServices) -> dict[str, Any]:
    """Change a role, a display name, whether the account is in use, or the password."""
    sets_password = body.reset_password or body.password is not None
    if sets_password and body.model_fields_set - {"password", "reset_password"}:
        raise InvalidRequest("a new password is set in a request of its own")
    if sets_password:
        changed = accounts.reset_password(actor, user_id, password=body.password, store=services.store)
    else:
        changed = accounts.change_user(
            actor,
            user_id,
            display_name=body.display_name,
            role=body.role,
            is_active=body.is_active,
            store=services.store,
            settings=services.settings,
        )
    return _changed_json(changed)
