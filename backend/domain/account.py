"""People with an account, the projects they work in, and the session that says who is asking."""

from dataclasses import dataclass, field
from datetime import datetime

from backend.domain.access import Actor, Role


@dataclass(frozen=True, slots=True)
class User:
    """A person who may sign in.

    Attributes:
        name: What is typed to sign in, as `services.accounts.account_name` writes it.
        is_sample: One of demo mode's people, whose password is in the documentation.
    """

    id: str
    name: str
    display_name: str
    role: Role
    is_active: bool
    is_sample: bool
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Credentials:
    """A user and what their password is checked against."""

    user: User
    password_hash: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Project:
    """What studies belong to and people are members of."""

    id: str
    name: str
    is_demo: bool
    created_at: datetime


@dataclass(frozen=True, slots=True)
class SignedIn:
    """A live session and its person. The token that opens it is known to its browser alone.

    Attributes:
        token_sha256: Hex digest of the token: the session's key in the database.
        csrf_token: What a changing request of a browser repeats in a header.
    """

    actor: Actor
    display_name: str
    is_sample: bool
    created_at: datetime
    seen_at: datetime
    expires_at: datetime
    token_sha256: str = field(repr=False)
    csrf_token: str = field(repr=False)
