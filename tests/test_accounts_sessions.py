"""Signing in and out, how long a session lives, and how many wrong passwords somebody may try."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from argon2 import PasswordHasher
from sqlalchemy import text

from backend.domain.access import Role
from backend.domain.account import User
from backend.domain.errors import InvalidRequest, PlatformError, TooManyAttempts, WrongCredentials
from backend.services import accounts, passwords, sessions
from backend.store.repository import Store, new_id
from tests.people import PASSWORD, with_settings


@pytest.fixture(autouse=True)
def _cheap_hashing(monkeypatch):
    monkeypatch.setattr(passwords, "_hasher", PasswordHasher(time_cost=1, memory_cost=8, parallelism=1))
    passwords._nobodys_hash.cache_clear()


@pytest.fixture
def make_user(store, clock):
    def make(name="anna", *, role=Role.CLINICIAN, is_active=True, is_sample=False, password=PASSWORD):
        user = User(new_id(), name, name.title(), role, is_active, is_sample, clock())
        with store.transaction() as tx:
            tx.accounts.add_user(user, password_hash=passwords.hash_password(password))
        return user

    return make


@pytest.fixture
def sign_in(store, settings, clock):
    def call(name="anna", password=PASSWORD, *, address="10.0.0.1", replaces=None, settings=settings):
        return sessions.sign_in(
            name, password, address=address, replaces=replaces, store=store, settings=settings, clock=clock
        )

    return call


@pytest.fixture
def find(store, settings, clock):
    return lambda token, settings=settings: sessions.find_session(token, store=store, settings=settings, clock=clock)


def test_the_right_password_opens_a_session_of_that_person(make_user, sign_in, find, make_project, store):
    user = make_user()
    with store.transaction() as tx:
        tx.accounts.add_member(project_id := make_project("Chest"), user.id)
    found = find(sign_in(" Anna ").token)
    assert (found.actor.user_id, found.actor.name, found.actor.role) == (user.id, "anna", Role.CLINICIAN)
    assert found.actor.project_ids == {project_id}


def test_an_admin_is_in_every_project_and_others_in_their_own(make_user, sign_in, find, make_project):
    make_user("boss", role=Role.ADMIN)
    make_user()
    every = {make_project("Chest"), make_project("Brain")}
    assert find(sign_in("boss").token).actor.project_ids == every
    assert find(sign_in("anna").token).actor.project_ids == frozenset()


def test_only_the_hash_of_a_token_is_stored_and_a_token_has_256_bits(make_user, sign_in, store):
    make_user()
    token = sign_in().token
    with store.engine.connect() as connection:
        row = connection.execute(text("SELECT * FROM sessions")).mappings().one()
    assert token not in str(dict(row))
    assert row["token_sha256"] == sessions.token_sha256(token)
    assert len(token) == 43  # 32 bytes in base64 without padding


@pytest.mark.parametrize(
    ("name", "password"), [("anna", "wrong"), ("nobody", PASSWORD), ("retired", PASSWORD), ("sample", PASSWORD)]
)
def test_every_refusal_reads_the_same(make_user, sign_in, name, password):
    make_user()
    make_user("retired", is_active=False)
    make_user("sample", is_sample=True)
    with pytest.raises(WrongCredentials) as refusal:
        sign_in(name, password)
    assert refusal.value.message == "the name or the password is wrong"


def test_an_unknown_name_costs_the_same_verification_as_a_known_one(make_user, sign_in, monkeypatch):
    make_user()
    verified = []
    hasher = passwords._hasher

    class Counting:
        def verify(self, password_hash, password):
            verified.append(password_hash[:9])
            return hasher.verify(password_hash, password)

        def __getattr__(self, name):
            return getattr(hasher, name)

    monkeypatch.setattr(passwords, "_hasher", Counting())
    for name in ("anna", "nobody"):
        with pytest.raises(WrongCredentials):
            sign_in(name, "wrong")
    assert verified == ["$argon2id", "$argon2id"]


def test_a_sample_user_signs_in_in_demo_mode_only(make_user, sign_in, find, settings):
    make_user("sample", is_sample=True)
    demo = with_settings(settings, demo=True)
    token = sign_in("sample", settings=demo).token
    assert find(token, demo) is not None
    assert find(token) is None


def test_a_hash_of_older_parameters_is_replaced_at_sign_in(make_user, sign_in, store, monkeypatch):
    make_user()
    monkeypatch.setattr(passwords, "_hasher", PasswordHasher(time_cost=2, memory_cost=16, parallelism=1))
    sign_in()
    with store.transaction() as tx:
        assert "m=16,t=2" in tx.accounts.credentials("anna").password_hash
    sign_in()


def test_passwords_are_hashed_with_the_librarys_parameters(monkeypatch):
    monkeypatch.undo()
    assert passwords.hash_password("x").startswith("$argon2id$v=19$m=65536,t=3,p=4$")


def test_a_session_ends_twelve_hours_after_it_began_however_busy(make_user, sign_in, find, clock):
    make_user()
    token = sign_in().token
    for _ in range(23):
        clock.advance(30 * 60)
        assert find(token) is not None
    clock.advance(30 * 60)
    assert find(token) is None


def test_a_session_ends_after_an_hour_without_use(make_user, sign_in, find, clock):
    make_user()
    token = sign_in().token
    clock.advance(3599)
    assert find(token) is not None
    clock.advance(3600)
    assert find(token) is None


def test_use_is_noted_at_most_once_a_minute(make_user, sign_in, find, clock, store):
    make_user()
    token = sign_in().token
    began = clock()

    def seen():
        with store.transaction(read_only=True) as tx:
            return tx.accounts.session(sessions.token_sha256(token)).seen_at - began

    clock.advance(59)
    find(token)
    assert seen() == timedelta(0)
    clock.advance(1)
    find(token)
    assert seen() == timedelta(seconds=60)


def test_a_lookup_waits_for_no_writer(make_user, sign_in, find, store):
    make_user()
    token = sign_in().token
    with store.transaction() as tx:
        tx.accounts.set_password_hash("nobody", "!")
        assert find(token) is not None


def test_signing_in_again_ends_the_browsers_earlier_session_alone(make_user, sign_in, find):
    make_user()
    first, elsewhere = sign_in().token, sign_in().token
    second = sign_in(replaces=first).token
    assert find(first) is None
    assert find(second) is not None
    assert find(elsewhere) is not None


def test_signing_out_ends_this_session_alone(make_user, sign_in, find, store):
    make_user()
    first, second = sign_in(), sign_in()
    sessions.sign_out(first.signed_in, store=store)
    assert find(first.token) is None
    assert find(second.token) is not None


def test_a_new_password_ends_every_session(make_user, sign_in, find, store, settings, clock):
    make_user()
    one, other = sign_in(), sign_in()
    sessions.change_own_password(
        one.signed_in.actor, PASSWORD, "another long one", address="::1", store=store, settings=settings, clock=clock
    )
    assert find(one.token) is None
    assert find(other.token) is None
    with pytest.raises(WrongCredentials):
        sign_in()
    assert sign_in(password="another long one").token


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ("wrong", "another long one", WrongCredentials),
        (PASSWORD, "eleven char", InvalidRequest),
        (PASSWORD, "x" * 257, InvalidRequest),
        (PASSWORD, "I am Anna indeed", InvalidRequest),
    ],
)
def test_a_password_change_needs_the_old_one_and_an_acceptable_new_one(
    make_user, sign_in, store, settings, clock, old, new, error
):
    make_user()
    actor = sign_in().signed_in.actor
    with pytest.raises(error):
        sessions.change_own_password(actor, old, new, address="::1", store=store, settings=settings, clock=clock)
    assert sign_in().token


@pytest.mark.parametrize("change", [{"role": Role.ENGINEER}, {"is_active": False}])
def test_a_new_role_or_being_deactivated_ends_every_session(make_user, sign_in, find, store, settings, change):
    user, boss = make_user(), make_user("boss", role=Role.ADMIN)
    token, boss_session = sign_in().token, sign_in("boss")
    accounts.change_user(boss_session.signed_in.actor, user.id, **change, store=store, settings=settings)
    assert find(token) is None
    assert find(boss_session.token).actor.user_id == boss.id


# --- failed logins


def fail(sign_in, times, name="anna", *, address="10.0.0.1"):
    for _ in range(times):
        with pytest.raises(WrongCredentials):
            sign_in(name, "wrong", address=address)


def test_after_eight_failures_a_name_pauses_from_every_address(make_user, sign_in, clock):
    make_user()
    fail(sign_in, 7)
    clock.advance(100)
    fail(sign_in, 1)
    with pytest.raises(TooManyAttempts) as pause:
        sign_in(address="10.0.0.2")
    assert pause.value.details == {"retry_after_s": 200}
    clock.advance(199)
    with pytest.raises(TooManyAttempts):
        sign_in(address="10.0.0.2")
    clock.advance(1)
    assert sign_in(address="10.0.0.2").token


def test_after_eight_failures_an_address_pauses_for_every_name(make_user, sign_in):
    make_user()
    for n in range(8):
        fail(sign_in, 1, f"guess{n}")
    with pytest.raises(TooManyAttempts):
        sign_in()
    assert sign_in(address="10.0.0.2").token


def test_the_addresses_of_one_ipv6_network_count_together(make_user, sign_in):
    make_user()
    for n in range(8):
        fail(sign_in, 1, f"guess{n}", address=f"2001:db8:1:2::{n}")
    with pytest.raises(TooManyAttempts):
        sign_in(address="2001:db8:1:2:ffff::1")
    assert sign_in(address="2001:db8:1:3::1").token


def test_success_clears_the_names_failures_and_leaves_the_addresses(make_user, sign_in):
    make_user()
    fail(sign_in, 7)
    sign_in(address="10.0.0.2")
    fail(sign_in, 7, address="10.0.0.3")
    fail(sign_in, 1, "nobody")
    with pytest.raises(TooManyAttempts):
        sign_in(address="10.0.0.1")


def test_success_does_not_count_against_the_address(make_user, sign_in):
    make_user()
    for _ in range(20):
        sign_in()


def test_failures_count_across_processes(make_user, sign_in, store, settings, clock):
    make_user()
    fail(sign_in, 8)
    other = Store(settings.database)
    try:
        with pytest.raises(TooManyAttempts):
            sessions.sign_in("anna", PASSWORD, address="::1", store=other, settings=settings, clock=clock)
    finally:
        other.close()


def test_a_burst_of_attempts_gets_no_more_tries_than_the_limit(make_user, sign_in):
    make_user()

    def attempt(number):
        try:
            sign_in("anna", f"wrong {number}", address=f"10.0.1.{number}")
        except PlatformError as error:
            return type(error)

    with ThreadPoolExecutor(16) as pool:
        outcomes = list(pool.map(attempt, range(40)))
    assert outcomes.count(WrongCredentials) == 8
    assert outcomes.count(TooManyAttempts) == 32


def test_names_and_addresses_are_stored_as_hashes(make_user, sign_in, store):
    fail(sign_in, 1, "somebody", address="10.9.8.7")
    with store.engine.connect() as connection:
        rows = str(connection.execute(text("SELECT * FROM login_failures")).all())
    assert "somebody" not in rows
    assert "10.9.8.7" not in rows
