"""Who may do what: a role, and membership of the project that a thing belongs to.

`docs/admin.md` prints this table and the route tests walk it, so a route without a permission does not exist.
"""

from dataclasses import dataclass
from enum import StrEnum


class Role(StrEnum):
    """One role a person. An admin is a member of every project; the others see the projects they are members of."""

    CLINICIAN = "clinician"
    ADJUDICATOR = "adjudicator"
    ENGINEER = "engineer"
    ADMIN = "admin"


class Permission(StrEnum):
    """One thing that a role allows, within the projects that a person is a member of."""

    VIEW_STUDIES = "view_studies"
    UPLOAD_STUDIES = "upload_studies"
    SEE_IDENTITY = "see_identity"
    ASK_MODEL = "ask_model"
    JUDGE = "judge"
    MANAGE_ACCOUNTS = "manage_accounts"
    MANAGE_PROJECTS = "manage_projects"
    SEE_SYSTEM = "see_system"


_EVERYONE = frozenset(Role)
_READERS = frozenset({Role.CLINICIAN, Role.ADJUDICATOR, Role.ADMIN})
_ADMINS = frozenset({Role.ADMIN})

ALLOWED_ROLES: dict[Permission, frozenset[Role]] = {
    Permission.VIEW_STUDIES: _EVERYONE,
    Permission.UPLOAD_STUDIES: _EVERYONE,
    # An engineer sees the pictures and the labels, never whose they are.
    Permission.SEE_IDENTITY: _READERS,
    Permission.ASK_MODEL: _EVERYONE,
    # Judgements and masks become training data, so they are a reader's.
    Permission.JUDGE: _READERS,
    Permission.MANAGE_ACCOUNTS: _ADMINS,
    Permission.MANAGE_PROJECTS: _ADMINS,
    Permission.SEE_SYSTEM: frozenset({Role.ENGINEER, Role.ADMIN}),
}


@dataclass(frozen=True, slots=True)
class Actor:
    """The signed-in person on whose behalf a service works.

    Attributes:
        project_ids: The projects they are a member of; an admin's holds every project.
    """

    user_id: str
    name: str
    role: Role
    project_ids: frozenset[str]

    def may(self, permission: Permission) -> bool:
        """Whether the role allows it, in whichever project."""
        return self.role in ALLOWED_ROLES[permission]
