"""Signing in and out, and who is asking."""

import hashlib
import ipaddress
import math
import secrets
from dataclasses import dataclass, field, replace
from datetime import timedelta

import structlog

from backend.domain.access import Actor
from backend.domain.account import Credentials, SignedIn, User
from backend.domain.errors import NotSignedIn, TooManyAttempts, WrongCredentials
from backend.services import passwords
from backend.services.context import Clock
from backend.settings import Settings
from backend.store.repository import Store, Transaction, new_id

log = structlog.get_logger(__name__)

SEEN_EVERY_S = 60.0


@dataclass(frozen=True, slots=True)
class NewSession:
    """A session just opened. `token` is told once: to its browser or program."""

    signed_in: SignedIn
    token: str = field(repr=False)


def account_name(typed: str) -> str:
    """The one way in which a name is stored and compared."""
    return typed.strip().casefold()


def may_sign_in(user: User, settings: Settings) -> bool:
    """Whether the account is in use; a sample user's only is in demo mode."""
    return user.is_active and (settings.demo or not user.is_sample)


def sign_in(
    name: str,
    password: str,
    *,
    address: str,
    replaces: str | None = None,
    store: Store,
    settings: Settings,
    clock: Clock,
) -> NewSession:
    """Open a session for a name and its password.

    Args:
        address: Where the request comes from, for counting failures.
        replaces: The token of the browser's present session, which ends with this.

    Raises:
        WrongCredentials: Whatever was wrong: name, password, or an account that is not in use.
        TooManyAttempts: Too many failures for this name or address; the password was not looked at.
    """
    attempt = _Attempt(account_name(name), address)
    credentials = attempt.begin(store=store, settings=settings, clock=clock)
    if not passwords.is_right(password, credentials.password_hash if credentials else None):
        credentials = None
    if credentials is None or not may_sign_in(credentials.user, settings):
        log.warning("sign_in_refused")
        raise WrongCredentials("the name or the password is wrong")
    rehashed = passwords.hash_password(password) if passwords.is_outdated(credentials.password_hash) else None
    with store.transaction() as tx:
        if tx.accounts.credentials(attempt.name) != credentials:
            raise WrongCredentials("the account was changed just now; sign in again")
        attempt.succeed(tx)
        if rehashed:
            tx.accounts.set_password_hash(credentials.user.id, rehashed)
        if replaces:
            tx.accounts.end_session(token_sha256(replaces))
        tx.accounts.forget_sessions_expired_by(clock())
        token = secrets.token_urlsafe(32)
        tx.accounts.add_session(_session_of(credentials.user, token, settings=settings, clock=clock))
        opened = tx.accounts.session(token_sha256(token))
    assert opened is not None  # added in this very transaction, for a user that is active
    log.info("signed_in", user_id=credentials.user.id)
    return NewSession(signed_in=opened, token=token)


def find_session(token: str, *, store: Store, settings: Settings, clock: Clock, is_use: bool = True) -> SignedIn | None:
    """The live session that a token opens, or None.

    Args:
        is_use: Whether this keeps the session from ending for idleness; noted at most once a minute.
    """
    now = clock()
    idle = timedelta(minutes=settings.session_idle_minutes)
    with store.transaction(read_only=True) as tx:
        found = tx.accounts.session(token_sha256(token))
    if found is None or found.expires_at <= now or now - found.seen_at >= idle:
        return None
    if found.is_sample and not settings.demo:
        return None
    if is_use and now - found.seen_at >= min(timedelta(seconds=SEEN_EVERY_S), idle / 4):
        with store.transaction() as tx:
            tx.accounts.mark_seen(found.token_sha256, now)
        return replace(found, seen_at=now)
    return found


def sign_out(signed_in: SignedIn, *, store: Store) -> None:
    """End this session."""
    with store.transaction() as tx:
        tx.accounts.end_session(signed_in.token_sha256)
    log.info("signed_out", user_id=signed_in.actor.user_id)


def change_own_password(
    actor: Actor,
    old_password: str,
    new_password: str,
    *,
    address: str,
    store: Store,
    settings: Settings,
    clock: Clock,
) -> None:
    """Give oneself another password; every session of the account ends, this one too.

    Raises:
        WrongCredentials: The old password is wrong. It counts as a failed login.
        TooManyAttempts: Too many failures for this account or address.
        InvalidRequest: The new password is too short or too long.
    """
    attempt = _Attempt(actor.name, address)
    credentials = attempt.begin(store=store, settings=settings, clock=clock)
    if not passwords.is_right(old_password, credentials.password_hash if credentials else None):
        raise WrongCredentials("the old password is wrong")
    passwords.require_acceptable(new_password, name=actor.name)
    new_hash = passwords.hash_password(new_password)
    with store.transaction() as tx:
        if tx.accounts.credentials(actor.name) != credentials:
            raise NotSignedIn("the account was changed just now; sign in again")
        attempt.succeed(tx)
        tx.accounts.set_password_hash(actor.user_id, new_hash)
        tx.accounts.end_sessions_of(actor.user_id)
    log.info("password_changed", user_id=actor.user_id)


def token_sha256(token: str) -> str:
    """The key of a session in the database."""
    return hashlib.sha256(token.encode()).hexdigest()


def _session_of(user: User, token: str, *, settings: Settings, clock: Clock) -> SignedIn:
    now = clock()
    return SignedIn(
        actor=Actor(user_id=user.id, name=user.name, role=user.role, project_ids=frozenset()),
        display_name=user.display_name,
        is_sample=user.is_sample,
        created_at=now,
        seen_at=now,
        expires_at=now + timedelta(hours=settings.session_hours),
        token_sha256=token_sha256(token),
        csrf_token=secrets.token_urlsafe(32),
    )


class _Attempt:
    """One try at a password, counted as failed before the password is looked at.

    Counting afterwards would let a hundred requests at once all find the count at zero.
    """

    def __init__(self, name: str, address: str) -> None:
        self.name = name
        self._name_key = _key("name", name)
        self._keys = (self._name_key, _key("address", _network(address)))
        self._ids = (new_id(), new_id())

    def begin(self, *, store: Store, settings: Settings, clock: Clock) -> Credentials | None:
        """Count the attempt and find the account. Raises `TooManyAttempts`."""
        now = clock()
        window = timedelta(seconds=settings.login_window_s)
        with store.transaction() as tx:
            for key in sorted(self._keys):  # one order for all, so that two attempts cannot wait for each other
                tx.accounts.lock(key)
            for key in self._keys:
                failures = tx.accounts.failures(key, since=now - window, at_most=settings.login_attempts)
                if len(failures) == settings.login_attempts:
                    retry_after_s = max(1, math.ceil((failures[-1] + window - now).total_seconds()))
                    raise TooManyAttempts(
                        f"too many failed sign-ins; try again in {retry_after_s} s", retry_after_s=retry_after_s
                    )
            for failure_id, key in zip(self._ids, self._keys, strict=True):
                tx.accounts.add_failure(failure_id, key, now)
            tx.accounts.forget_failures_before(now - window)
            return tx.accounts.credentials(self.name)

    def succeed(self, tx: Transaction) -> None:
        """Forget the failures of the name, and that this attempt was one of the address."""
        tx.accounts.forget_failures(ids=self._ids, key_sha256=self._name_key)


def _key(kind: str, value: str) -> str:
    return hashlib.sha256(f"{kind}:{value}".encode()).hexdigest()


def _network(address: str) -> str:
    """An IPv6 host owns a whole /64, so that is what counts; anything else counts as it stands."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv6Address):
        return str(ipaddress.IPv6Network((parsed, 64), strict=False))
    return str(parsed)
