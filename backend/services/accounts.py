"""Who has an account: the first start, demo mode's people, and what admins change."""

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import structlog

from backend.domain.access import Actor, Permission, Role
from backend.domain.account import Project, User
from backend.domain.errors import Conflict, InvalidRequest, Misconfigured, NotAllowed, NotFound
from backend.services import passwords
from backend.services.context import Clock
from backend.services.sessions import account_name, may_sign_in
from backend.settings import Settings
from backend.store.repository import Store, Transaction, new_id

log = structlog.get_logger(__name__)

FIRST_ADMIN = "admin"
DEMO_PROJECT = "Demo"


@dataclass(frozen=True, slots=True)
class SamplePerson:
    """A user of demo mode. The password is public on purpose: demo mode never leaves the machine."""

    name: str
    display_name: str
    role: Role
    password: str


SAMPLE_PEOPLE = (
    SamplePerson("clinician", "Sample clinician", Role.CLINICIAN, "clinician"),
    SamplePerson("reader2", "Sample second reader", Role.ADJUDICATOR, "reader2"),
    SamplePerson("engineer", "Sample engineer", Role.ENGINEER, "engineer"),
    SamplePerson(FIRST_ADMIN, "Sample admin", Role.ADMIN, "admin"),
)

_NAME = re.compile(r"[^\W_][\w.@+-]{0,119}")


@dataclass(frozen=True, slots=True)
class ChangedUser:
    """A user as stored now, and the generated password to hand over once, where one was generated."""

    user: User
    password: str | None = field(default=None, repr=False)


# --- the first start


def require_safe_demo(settings: Settings) -> None:
    """Demo mode's passwords are public, so it serves nobody but this machine. Raises `Misconfigured`."""
    if settings.demo and not _is_loopback(settings.host):
        raise Misconfigured(
            "demo mode has sample users with public passwords and needs a loopback address: SERPENS_HOST is"
            f" {settings.host}; set it to 127.0.0.1, or set SERPENS_DEMO=false"
        )


def ensure_first_admin(*, store: Store, settings: Settings, clock: Clock) -> str | None:
    """Make the account `admin` where nobody could administer, and return its generated password; else None.

    In demo mode the sample admin is there instead. Where demo mode was on before, the sample account `admin` becomes
    the real one: it gets the new password and its sessions end.

    Raises:
        Misconfigured: Nobody can administer and the name belongs to a person who is no admin.
    """
    if settings.demo:
        return None
    password = passwords.generate_password()
    password_hash = passwords.hash_password(password)
    with store.transaction() as tx:
        tx.accounts.lock("first-admin")
        if any(not admin.is_sample for admin in tx.accounts.active_admins()):
            return None
        found = tx.accounts.credentials(FIRST_ADMIN)
        if found is None:
            admin = User(new_id(), FIRST_ADMIN, "Admin", Role.ADMIN, True, False, clock())
            tx.accounts.add_user(admin, password_hash=password_hash)
        elif found.user.is_sample:
            admin = replace(found.user, display_name="Admin", role=Role.ADMIN, is_active=True, is_sample=False)
            tx.accounts.update_user(admin)
            tx.accounts.set_password_hash(admin.id, password_hash)
            tx.accounts.end_sessions_of(admin.id)
        else:
            raise Misconfigured(f"no account is an active admin, and user {found.user.id} has the name {FIRST_ADMIN}")
    log.info("first_admin_made", user_id=admin.id)
    return password


def ensure_demo_people(*, store: Store, settings: Settings, clock: Clock) -> str | None:
    """In demo mode, make sure of the demo project and the sample users in it; an account that is there stays as it is.

    Returns:
        The demo project's id; None, and nothing done, where demo mode is off.

    Raises:
        Misconfigured: Demo mode on an address that is not loopback.
    """
    if not settings.demo:
        return None
    require_safe_demo(settings)
    with store.transaction(read_only=True) as tx:
        absent = {person.name for person in SAMPLE_PEOPLE if tx.accounts.credentials(person.name) is None}
    hashes = {
        person.name: passwords.hash_password(person.password) for person in SAMPLE_PEOPLE if person.name in absent
    }
    with store.transaction() as tx:
        tx.accounts.lock("demo-people")
        project = tx.accounts.demo_project()
        if project is None:
            project = Project(new_id(), DEMO_PROJECT, True, clock())
            tx.accounts.add_project(project)
        for person in SAMPLE_PEOPLE:
            user = _ensure_sample(tx, person, hashes, clock)
            if user.is_sample:
                tx.accounts.add_member(project.id, user.id)
    return project.id


def _ensure_sample(tx: Transaction, person: SamplePerson, hashes: Mapping[str, str], clock: Clock) -> User:
    found = tx.accounts.credentials(person.name)
    if found is not None:
        return found.user
    user = User(new_id(), person.name, person.display_name, person.role, True, True, clock())
    tx.accounts.add_user(user, password_hash=hashes[person.name])
    return user


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def actor_named(name: str, *, store: Store) -> Actor:
    """The active user of that name as an actor, for who works on the machine itself. Raises `NotFound`."""
    with store.transaction(read_only=True) as tx:
        found = tx.accounts.credentials(account_name(name))
        if found is None or not found.user.is_active:
            raise NotFound("no active user has this name")
        user = found.user
        return Actor(user.id, user.name, user.role, tx.accounts.project_ids_of(user))


# --- what admins do


def list_users(actor: Actor, *, store: Store) -> list[User]:
    """Everybody with an account. Raises `NotAllowed`."""
    _require_manager(actor)
    with store.transaction(read_only=True) as tx:
        return tx.accounts.users()


def create_user(
    actor: Actor,
    name: str,
    *,
    display_name: str,
    role: Role,
    password: str | None = None,
    store: Store,
    clock: Clock,
) -> ChangedUser:
    """Make an account, with a generated password unless one is given.

    Raises:
        NotAllowed: The actor manages no accounts.
        InvalidRequest: A name or password that does not do.
        Conflict: The name is taken.
    """
    _require_manager(actor)
    name = account_name(name)
    if not _NAME.fullmatch(name):
        raise InvalidRequest("a name has letters, digits and . @ + - _ only, starts with a letter or digit")
    password_hash, generated = _new_password(password, name)
    user = User(new_id(), name, display_name.strip() or name, role, True, False, clock())
    with store.transaction() as tx:
        tx.accounts.add_user(user, password_hash=password_hash)
    log.info("user_created", user_id=user.id, role=user.role.value, by_user_id=actor.user_id)
    return ChangedUser(user, generated)


def change_user(
    actor: Actor,
    user_id: str,
    *,
    display_name: str | None = None,
    role: Role | None = None,
    is_active: bool | None = None,
    store: Store,
    settings: Settings,
) -> ChangedUser:
    """Change what is given. A new role, or being deactivated, ends the person's sessions.

    Raises:
        NotAllowed: The actor manages no accounts.
        NotFound: No such user.
        Conflict: It would leave nobody who can administer.
    """
    _require_manager(actor)
    with store.transaction() as tx:
        tx.accounts.lock("admins")
        old = tx.accounts.user(user_id)
        new = replace(
            old,
            display_name=(display_name or "").strip() or old.display_name,
            role=old.role if role is None else role,
            is_active=old.is_active if is_active is None else is_active,
        )
        _require_an_admin_left(tx, old, new, settings)
        tx.accounts.update_user(new)
        if (old.role, old.is_active) != (new.role, new.is_active):
            tx.accounts.end_sessions_of(user_id)
    log.info(
        "user_changed",
        user_id=user_id,
        role=new.role.value,
        is_active=new.is_active,
        by_user_id=actor.user_id,
    )
    return ChangedUser(new)


def reset_password(actor: Actor, user_id: str, *, password: str | None = None, store: Store) -> ChangedUser:
    """Give a person another password, generated unless given; their sessions end.

    Raises:
        NotAllowed: The actor manages no accounts.
        NotFound: No such user.
        InvalidRequest: The password is too short or too long.
    """
    _require_manager(actor)
    with store.transaction(read_only=True) as tx:
        user = tx.accounts.user(user_id)
    password_hash, generated = _new_password(password, user.name)
    with store.transaction() as tx:
        tx.accounts.set_password_hash(user_id, password_hash)
        tx.accounts.end_sessions_of(user_id)
    log.info("password_reset", user_id=user_id, by_user_id=actor.user_id)
    return ChangedUser(user, generated)


def _require_manager(actor: Actor) -> None:
    if not actor.may(Permission.MANAGE_ACCOUNTS):
        raise NotAllowed(f"the role {actor.role.value} does not manage accounts")


def _require_an_admin_left(tx: Transaction, old: User, new: User, settings: Settings) -> None:
    was_admin = old.role is Role.ADMIN and old.is_active
    if not was_admin or (new.role is Role.ADMIN and new.is_active):
        return
    others = [admin for admin in tx.accounts.active_admins() if admin.id != old.id]
    # A real admin is followed by a real one: sample admins are gone once demo mode is switched off.
    if not any(may_sign_in(admin, settings) and (old.is_sample or not admin.is_sample) for admin in others):
        raise Conflict(f"user {old.id} is the last active admin; make another account admin first")


def _new_password(given: str | None, name: str) -> tuple[str, str | None]:
    """The hash to store, and the password where it was generated."""
    if given is not None:
        passwords.require_acceptable(given, name=name)
        return passwords.hash_password(given), None
    generated = passwords.generate_password()
    return passwords.hash_password(generated), generated
