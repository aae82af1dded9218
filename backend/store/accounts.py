"""Users, sessions, failed logins, projects and memberships."""

import hashlib
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Select, and_, bindparam, delete, exists, func, or_, select, text, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from backend.domain.access import Actor, Role
from backend.domain.account import Credentials, Project, SignedIn, User
from backend.domain.errors import Conflict, NotFound
from backend.store.tables import LoginFailureRow, MembershipRow, ProjectRow, SessionRow, UserRow


def _session_query() -> Select[Any]:
    """A session by `:token_sha256` with its active user: a row for each of the user's projects, or one without."""
    sessions, users, projects, memberships = (
        row.__table__.c for row in (SessionRow, UserRow, ProjectRow, MembershipRow)
    )
    is_member = exists().where(memberships.project_id == projects.id, memberships.user_id == users.id)
    return (
        select(
            sessions.csrf_token,
            sessions.created_at,
            sessions.seen_at,
            sessions.expires_at,
            users.id,
            users.name,
            users.display_name,
            users.role,
            users.is_sample,
            projects.id,
        )
        .select_from(SessionRow.__table__)
        .join(UserRow.__table__, and_(users.id == sessions.user_id, users.is_active))
        .outerjoin(ProjectRow.__table__, or_(users.role == Role.ADMIN.value, is_member))
        .where(sessions.token_sha256 == bindparam("token_sha256"))
    )


# Every request asks this. Put together once, and of the tables alone, it costs a third of what it would as ORM.
_SESSION_QUERY = _session_query()


class Accounts:
    """The account tables within one transaction."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def lock(self, name: str) -> None:
        """Let one transaction at a time go on from here. On SQLite a writing transaction is alone already."""
        if self._session.get_bind().dialect.name == "postgresql":
            number = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], signed=True)
            self._session.execute(text("SELECT pg_advisory_xact_lock(:number)"), {"number": number})

    # --- users

    def add_user(self, user: User, *, password_hash: str) -> None:
        """Store a new user. Raises `Conflict` where the name is taken."""
        self._session.add(
            UserRow(
                id=user.id,
                name=user.name,
                display_name=user.display_name,
                password_hash=password_hash,
                role=user.role.value,
                is_active=user.is_active,
                is_sample=user.is_sample,
                created_at=user.created_at,
            )
        )
        self._flush_new("an account with this name exists already; choose another name")

    def user(self, user_id: str) -> User:
        """One user. Raises `NotFound`."""
        row = self._session.get(UserRow, user_id)
        if row is None:
            raise NotFound("no user has this id")
        return _user(row)

    def users(self) -> list[User]:
        """Everybody, by name."""
        return [_user(row) for row in self._session.scalars(select(UserRow).order_by(UserRow.name))]

    def credentials(self, name: str) -> Credentials | None:
        """The user of that name with the hash of their password; None where there is none."""
        row = self._session.scalar(select(UserRow).where(UserRow.name == name))
        return None if row is None else Credentials(_user(row), row.password_hash)

    def update_user(self, user: User) -> None:
        """Store what may change of a user: display name, role, whether active, whether a sample."""
        self._session.execute(
            update(UserRow)
            .where(UserRow.id == user.id)
            .values(
                display_name=user.display_name, role=user.role.value, is_active=user.is_active, is_sample=user.is_sample
            )
        )

    def set_password_hash(self, user_id: str, password_hash: str) -> None:
        """Replace the hash of a user's password."""
        self._session.execute(update(UserRow).where(UserRow.id == user_id).values(password_hash=password_hash))

    def active_admins(self) -> list[User]:
        """Admins whose account is active, demo mode's included."""
        chosen = select(UserRow).where(UserRow.role == Role.ADMIN.value, UserRow.is_active)
        return [_user(row) for row in self._session.scalars(chosen.order_by(UserRow.name))]

    # --- sessions

    def add_session(self, signed_in: SignedIn) -> None:
        """Store a new session."""
        self._session.add(
            SessionRow(
                token_sha256=signed_in.token_sha256,
                user_id=signed_in.actor.user_id,
                csrf_token=signed_in.csrf_token,
                created_at=signed_in.created_at,
                seen_at=signed_in.seen_at,
                expires_at=signed_in.expires_at,
            )
        )
        # The statement of `session` passes by the ORM, which would have written this row first.
        self._session.flush()

    def session(self, token_sha256: str) -> SignedIn | None:
        """The session with its active user and the projects they are in, in one statement; None where there is none.

        The caller judges whether it has expired.
        """
        rows = self._session.connection().execute(_SESSION_QUERY, {"token_sha256": token_sha256}).all()
        if not rows:
            return None
        csrf_token, created_at, seen_at, expires_at, user_id, name, display_name, role, is_sample, _ = rows[0]
        project_ids = frozenset(row[-1] for row in rows if row[-1] is not None)
        return SignedIn(
            actor=Actor(user_id=user_id, name=name, role=Role(role), project_ids=project_ids),
            display_name=display_name,
            is_sample=is_sample,
            created_at=created_at,
            seen_at=seen_at,
            expires_at=expires_at,
            token_sha256=token_sha256,
            csrf_token=csrf_token,
        )

    def mark_seen(self, token_sha256: str, at: datetime) -> None:
        """Note that the session was used."""
        chosen = update(SessionRow).where(SessionRow.token_sha256 == token_sha256, SessionRow.seen_at < at)
        self._session.execute(chosen.values(seen_at=at))

    def end_session(self, token_sha256: str) -> None:
        """Forget one session, if it is there."""
        self._session.execute(delete(SessionRow).where(SessionRow.token_sha256 == token_sha256))

    def end_sessions_of(self, user_id: str) -> None:
        """Sign a user out everywhere."""
        self._session.execute(delete(SessionRow).where(SessionRow.user_id == user_id))

    def forget_sessions_expired_by(self, at: datetime) -> None:
        """Drop the rows of sessions whose absolute end has passed."""
        self._session.execute(delete(SessionRow).where(SessionRow.expires_at <= at))

    # --- failed logins

    def failures(self, key_sha256: str, *, since: datetime, at_most: int) -> list[datetime]:
        """When logins under this key failed, newest first."""
        chosen = select(LoginFailureRow.failed_at).where(
            LoginFailureRow.key_sha256 == key_sha256, LoginFailureRow.failed_at > since
        )
        return list(self._session.scalars(chosen.order_by(LoginFailureRow.failed_at.desc()).limit(at_most)))

    def add_failure(self, failure_id: str, key_sha256: str, at: datetime) -> None:
        """Store one failed login."""
        self._session.add(LoginFailureRow(id=failure_id, key_sha256=key_sha256, failed_at=at))

    def forget_failures(self, *, ids: Sequence[str] = (), key_sha256: str | None = None) -> None:
        """Drop single failures, and all of a key."""
        self._session.execute(
            delete(LoginFailureRow).where(
                or_(LoginFailureRow.id.in_(list(ids)), LoginFailureRow.key_sha256 == (key_sha256 or ""))
            )
        )

    def forget_failures_before(self, at: datetime) -> None:
        """Drop failures that count no longer."""
        self._session.execute(delete(LoginFailureRow).where(LoginFailureRow.failed_at <= at))

    # --- projects

    def add_project(self, project: Project) -> None:
        """Store a new project. Raises `Conflict` where the name is taken."""
        self._session.add(
            ProjectRow(id=project.id, name=project.name, is_demo=project.is_demo, created_at=project.created_at)
        )
        self._flush_new("a project with this name exists already; choose another name")

    def project(self, project_id: str) -> Project:
        """One project. Raises `NotFound`."""
        row = self._session.get(ProjectRow, project_id)
        if row is None:
            raise NotFound("no project has this id")
        return _project(row)

    def projects(self, project_ids: Iterable[str]) -> list[Project]:
        """These projects, by name."""
        chosen = select(ProjectRow).where(ProjectRow.id.in_(list(project_ids))).order_by(func.lower(ProjectRow.name))
        return [_project(row) for row in self._session.scalars(chosen)]

    def project_ids_of(self, user: User) -> frozenset[str]:
        """The projects that a user is a member of; an admin is one of every project."""
        chosen = select(ProjectRow.id)
        if user.role is not Role.ADMIN:
            chosen = select(MembershipRow.project_id).where(MembershipRow.user_id == user.id)
        return frozenset(self._session.scalars(chosen))

    def demo_project(self) -> Project | None:
        """Demo mode's project; None before its first start."""
        row = self._session.scalar(select(ProjectRow).where(ProjectRow.is_demo).order_by(ProjectRow.created_at))
        return None if row is None else _project(row)

    def members(self, project_id: str) -> list[User]:
        """The members of a project, by name. Admins who were not added are not among them."""
        chosen = (
            select(UserRow)
            .join(MembershipRow, MembershipRow.user_id == UserRow.id)
            .where(MembershipRow.project_id == project_id)
        )
        return [_user(row) for row in self._session.scalars(chosen.order_by(UserRow.name))]

    def add_member(self, project_id: str, user_id: str) -> None:
        """Make a user a member; nothing changes where they are one. The caller knows that both exist."""
        self._session.merge(MembershipRow(project_id=project_id, user_id=user_id))

    def remove_member(self, project_id: str, user_id: str) -> None:
        """End a membership, if there is one."""
        self._session.execute(
            delete(MembershipRow).where(MembershipRow.project_id == project_id, MembershipRow.user_id == user_id)
        )

    def _flush_new(self, taken: str) -> None:
        try:
            self._session.flush()
        except IntegrityError:
            raise Conflict(taken) from None


def _user(row: UserRow) -> User:
    return User(
        id=row.id,
        name=row.name,
        display_name=row.display_name,
        role=Role(row.role),
        is_active=row.is_active,
        is_sample=row.is_sample,
        created_at=row.created_at,
    )


def _project(row: ProjectRow) -> Project:
    return Project(id=row.id, name=row.name, is_demo=row.is_demo, created_at=row.created_at)
