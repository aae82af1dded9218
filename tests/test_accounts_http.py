"""The routes of sessions, accounts and projects, and how failures read from outside."""

import logging

import pytest
import structlog
from argon2 import PasswordHasher
from fastapi.testclient import TestClient

from backend.api.edge import describe_without_text
from backend.domain.access import Role
from backend.domain.errors import Misconfigured
from backend.main import create_app
from backend.services import accounts, passwords
from tests.people import PASSWORD, RecordingQueue, anonymous, signed_in, with_settings

CANARY = "ZZTEST^CANARY"


@pytest.fixture(autouse=True)
def _cheap_hashing(monkeypatch):
    monkeypatch.setattr(passwords, "_hasher", PasswordHasher(time_cost=1, memory_cost=8, parallelism=1))
    passwords._nobodys_hash.cache_clear()


@pytest.fixture
def app(store, settings, clock):
    return create_app(settings, queue=RecordingQueue(), clock=clock)


@pytest.fixture
def admin(app, make_actor):
    return signed_in(app, make_actor(Role.ADMIN, name="boss"))


def make_user(admin, name="anna", role="clinician", **fields):
    answer = admin.post("/api/users", json={"name": name, "role": role, "password": PASSWORD} | fields)
    assert answer.status_code == 201, answer.text
    return answer.json()["user"]


def sign_in(app, name="anna", password=PASSWORD, **fields):
    client = TestClient(app)
    return client, client.post("/api/session", json={"name": name, "password": password} | fields)


# --- the session


def test_signing_in_sets_a_cookie_that_no_script_reads_and_no_other_site_sends(app, admin):
    user = make_user(admin, display_name="Dr Anna")
    client, answer = sign_in(app)
    assert answer.json() == {
        "user": {"id": user["id"], "name": "anna", "display_name": "Dr Anna", "role": "clinician"},
        "csrf_token": client.get("/api/session").json()["csrf_token"],
    }
    cookie = answer.headers["set-cookie"]
    assert {"HttpOnly", "SameSite=strict", "Path=/", "Max-Age=43200"} <= set(cookie.split("; "))
    assert "Secure" not in cookie


def test_over_https_the_cookie_is_secure_also_where_a_proxy_ends_it(app, admin, settings):
    make_user(admin)
    body = {"name": "anna", "password": PASSWORD}
    direct = TestClient(app, base_url="https://testserver").post("/api/session", json=body)
    assert "; Secure" in direct.headers["set-cookie"]
    behind = create_app(with_settings(settings, public_origins=("https://s.example",)), queue=RecordingQueue())
    headers = {"Host": "s.example", "Origin": "https://s.example"}
    assert "; Secure" in TestClient(behind).post("/api/session", json=body, headers=headers).headers["set-cookie"]


def test_a_program_gets_its_token_and_no_cookie(app, admin):
    make_user(admin)
    client, answer = sign_in(app, **{"as": "token"})
    assert "set-cookie" not in answer.headers
    assert client.get("/api/session").status_code == 401
    headers = {"Authorization": f"Bearer {answer.json()['token']}"}
    assert client.get("/api/session", headers=headers).json()["user"]["name"] == "anna"


def test_the_session_tells_the_page_what_it_shows(app, make_actor, make_project):
    project_id = make_project("Chest")
    make_project("Brain")
    told = signed_in(app, make_actor(Role.ENGINEER, project_id)).get("/api/session").json()
    assert told["demo"] is False
    assert told["projects"] == [{"id": project_id, "name": "Chest", "is_demo": False}]
    assert told["research_notice"] == "Research use, not for diagnosis"
    assert "see_system" in told["permissions"]
    assert "see_identity" not in told["permissions"]


def test_a_wrong_password_is_401_and_too_many_are_429_with_the_time_to_wait(app, admin):
    make_user(admin)
    for _ in range(8):
        _, answer = sign_in(app, password="wrong")
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "wrong_credentials")
    _, answer = sign_in(app)
    assert (answer.status_code, answer.json()["error"]["code"]) == (429, "too_many_attempts")
    assert answer.headers["retry-after"] == "300"


def test_a_new_password_signs_out_and_the_old_one_is_gone(app, admin):
    make_user(admin)
    client, answer = sign_in(app)
    client.headers["X-CSRF-Token"] = answer.json()["csrf_token"]
    change = {"old_password": PASSWORD, "new_password": "another long one"}
    assert client.post("/api/session/password", json=change).status_code == 204
    assert client.get("/api/session").status_code == 401
    assert sign_in(app)[1].status_code == 401
    assert sign_in(app, password="another long one")[1].status_code == 200


@pytest.mark.parametrize("content_type", ["application/json", "multipart/form-data; boundary=x"])
def test_a_huge_body_of_somebody_unknown_is_not_read(app, content_type):
    body = b'{"name":"' + b"x" * 20_000 + b'"}'
    answer = anonymous(app).post("/api/session", content=body, headers={"Content-Type": content_type})
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "request_too_large")


def test_a_huge_body_of_somebody_known_is_refused_too(admin):
    answer = admin.post("/api/users", content=b'{"name":"' + b"x" * 17_000_000 + b'"}')
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "request_too_large")


def test_behind_a_trusted_proxy_failures_count_by_the_address_that_it_names(store, settings, clock, admin):
    make_user(admin)
    settings = with_settings(settings, trusted_proxies=("testclient", "10.0.0.9"))
    app = create_app(settings, queue=RecordingQueue(), clock=clock)

    def attempt(number, forwarded):
        body = {"name": f"guess{number}", "password": "wrong"}
        return anonymous(app).post("/api/session", json=body, headers={"X-Forwarded-For": forwarded}).status_code

    # What stands left of an address that no trusted proxy has is the sender's own invention.
    assert [attempt(n, f"1.2.3.{n}, 20.0.0.1, 10.0.0.9") for n in range(9)] == [401] * 8 + [429]
    assert attempt(9, "20.0.0.2, 10.0.0.9") == 401


def test_without_a_trusted_proxy_nobody_says_where_they_come_from(app):
    codes = [
        anonymous(app)
        .post("/api/session", json={"name": f"g{n}", "password": "x"}, headers={"X-Forwarded-For": f"1.2.3.{n}"})
        .status_code
        for n in range(9)
    ]
    assert codes == [401] * 8 + [429]


# --- accounts


def test_a_new_account_gets_a_generated_password_that_is_told_once(app, admin):
    made = admin.post("/api/users", json={"name": "Anna", "role": "clinician"}).json()
    assert len(made["password"]) == 23  # four groups of five and three dashes
    assert sign_in(app, password=made["password"])[1].status_code == 200
    assert made["password"] not in admin.get("/api/users").text
    assert "hash" not in admin.get("/api/users").text


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"name": "anna", "role": "clinician", "password": "eleven char"}, 422),
        ({"name": "no spaces", "role": "clinician"}, 422),
        ({"name": "-anna", "role": "clinician"}, 422),
        ({"name": "anna", "role": "king"}, 422),
        ({"name": "anna"}, 422),
        ({"name": "ANNA", "role": "clinician"}, 409),
    ],
)
def test_what_makes_no_account(admin, body, status):
    if status == 409:
        make_user(admin)
    assert admin.post("/api/users", json=body).status_code == status


def test_an_admin_resets_a_password(app, admin):
    user = make_user(admin)
    client, _ = sign_in(app)
    reset = admin.patch(f"/api/users/{user['id']}", json={"reset_password": True}).json()
    assert client.get("/api/session").status_code == 401
    assert sign_in(app)[1].status_code == 401
    assert sign_in(app, password=reset["password"])[1].status_code == 200


def test_a_password_and_a_role_are_not_changed_at_once(admin):
    user = make_user(admin)
    answer = admin.patch(f"/api/users/{user['id']}", json={"reset_password": True, "role": "admin"})
    assert answer.status_code == 422


def test_the_last_active_admin_stays_one(app, admin):
    me = admin.get("/api/session").json()["user"]["id"]
    for change in ({"role": "engineer"}, {"is_active": False}):
        answer = admin.patch(f"/api/users/{me}", json=change)
        assert (answer.status_code, answer.json()["error"]["code"]) == (409, "conflict")
    second = make_user(admin, "second", "admin")
    assert admin.patch(f"/api/users/{me}", json={"role": "engineer"}).status_code == 200
    assert admin.get("/api/session").status_code == 401
    _, answer = sign_in(app, "second")
    assert answer.json()["user"]["id"] == second["id"]


def test_a_sample_admin_does_not_count_as_the_last_one(app, store, settings, clock, admin):
    demo = with_settings(settings, demo=True)
    accounts.ensure_demo_people(store=store, settings=demo, clock=clock)
    browser = create_app(demo, queue=RecordingQueue(), clock=clock)
    _, answer = sign_in(browser, "admin", "admin")
    assert answer.status_code == 200
    me = admin.get("/api/session").json()["user"]["id"]
    assert admin.patch(f"/api/users/{me}", json={"is_active": False}).status_code == 409


def test_changes_of_accounts_are_logged_by_id_without_names_and_passwords(admin):
    with structlog.testing.capture_logs() as logs:
        user = make_user(admin, display_name="Dr Anna")
        admin.patch(f"/api/users/{user['id']}", json={"role": "engineer"})
        admin.patch(f"/api/users/{user['id']}", json={"reset_password": True})
    events = [line for line in logs if line["event"] != "request"]
    assert [line["event"] for line in events] == ["user_created", "user_changed", "password_reset"]
    me = admin.get("/api/session").json()["user"]["id"]
    assert {(line["user_id"], line["by_user_id"]) for line in events} == {(user["id"], me)}
    assert "anna" not in str(logs).lower()
    assert PASSWORD not in str(logs)


# --- projects


def test_a_member_sees_the_project_as_soon_as_they_are_added(app, admin, make_actor):
    actor = make_actor(Role.CLINICIAN)
    browser = signed_in(app, actor)
    project = admin.post("/api/projects", json={"name": " Chest "}).json()
    place = f"/api/projects/{project['id']}/members"
    assert browser.get(place).status_code == 404
    assert admin.put(f"{place}/{actor.user_id}").status_code == 204
    assert admin.put(f"{place}/{actor.user_id}").status_code == 204
    assert [one["name"] for one in browser.get("/api/projects").json()["projects"]] == ["Chest"]
    assert [one["id"] for one in browser.get(place).json()["members"]] == [actor.user_id]
    assert admin.delete(f"{place}/{actor.user_id}").status_code == 204
    assert browser.get(place).status_code == 404
    assert browser.get("/api/projects").json() == {"projects": []}


def test_a_project_has_a_name_of_its_own(admin):
    assert admin.post("/api/projects", json={"name": "Chest"}).status_code == 201
    assert admin.post("/api/projects", json={"name": "Chest"}).status_code == 409
    assert admin.post("/api/projects", json={"name": "  "}).status_code == 422


def test_what_does_not_exist_has_no_members(admin, project, make_actor):
    user_id = make_actor().user_id
    assert admin.put(f"/api/projects/{'0' * 20}/members/{user_id}").status_code == 404
    assert admin.put(f"/api/projects/{project}/members/{'0' * 20}").status_code == 404
    assert admin.delete(f"/api/projects/{project}/members/{'0' * 20}").status_code == 404
    assert admin.patch(f"/api/users/{'0' * 20}", json={"is_active": False}).status_code == 404


def test_c69_another_projects_members_read_like_those_of_no_project(app, make_actor, make_project):
    stranger = signed_in(app, make_actor(Role.CLINICIAN))
    other = stranger.get(f"/api/projects/{make_project('Chest')}/members")
    nothing = stranger.get(f"/api/projects/{'0' * 20}/members")
    assert (other.status_code, other.content) == (404, nothing.content)


# --- failures


def test_a_request_that_does_not_fit_names_the_fields_and_none_of_the_values(admin):
    body = {"name": 5, "role": CANARY, "password": CANARY, CANARY: CANARY}
    answer = admin.post("/api/users", json=body)
    assert answer.status_code == 422
    assert answer.json()["error"]["code"] == "invalid_request"
    fields = {(one["field"], one["problem"]) for one in answer.json()["error"]["details"]["fields"]}
    assert fields == {("body.name", "string_type"), ("body.role", "enum"), ("body", "extra_forbidden")}
    assert CANARY not in answer.text
    assert CANARY not in admin.post("/api/users", content=CANARY).text


def test_an_unknown_address_and_a_wrong_method_answer_in_our_form(admin):
    answer = admin.get("/api/nothing")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")
    assert admin.put("/api/session").status_code == 404
    answer = admin.put("/healthz", headers={"Origin": "http://testserver"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (405, "method_not_allowed")


def _fail_with_a_patient(name):
    try:
        raise ValueError(f"the patient is {name}")
    except ValueError as cause:
        raise KeyError(name) from cause


def test_c67_an_unexpected_error_is_logged_by_type_and_place_without_its_text(app, admin, caplog):
    @app.get("/api/broken/{name}")
    def broken(name: str) -> None:
        _fail_with_a_patient(name)

    app.router.routes.insert(0, app.router.routes.pop())
    with caplog.at_level(logging.DEBUG), structlog.testing.capture_logs() as logs:
        answer = admin.get(f"/api/broken/{CANARY}")
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (500, "internal_error")
    (line,) = [line for line in logs if line["event"] == "unexpected_error"]
    assert line["error_id"] == error["details"]["id"]
    assert [one for one in line["trace"] if not one.startswith(" ")] == ["KeyError", "ValueError"]
    assert any("_fail_with_a_patient" in one for one in line["trace"])
    ours = [
        record.getMessage() for record in caplog.records if not record.name.startswith("httpx")
    ]  # the test's client
    for text in (str(logs), str(ours), answer.text):
        assert CANARY not in text


def test_c67_the_request_log_holds_the_route_and_not_the_address(admin):
    with structlog.testing.capture_logs() as logs:
        admin.patch(f"/api/users/{CANARY}?q={CANARY}", json={})
        admin.get(f"/api/{CANARY}")
        anonymous(admin.app).get(f"/{CANARY}")
    lines = [line for line in logs if line["event"] == "request"]
    assert [(line["method"], line["route"], line["status"], line["code"]) for line in lines] == [
        ("PATCH", "/api/users/{user_id}", 404, "not_found"),
        ("GET", "/api", 404, "not_found"),
        ("GET", "(none)", 401, "not_signed_in"),
    ]
    assert all(line["duration_ms"] > 0 for line in lines)
    assert CANARY not in str(logs)


def test_an_exceptions_chain_is_described_once_even_if_it_goes_round():
    first, second = ValueError("a"), KeyError("b")
    first.__cause__, second.__cause__ = second, first
    assert describe_without_text(first) == ["ValueError", "KeyError"]


# --- the first start


def test_the_first_start_makes_an_admin_and_tells_the_password_once(app, store, settings, clock):
    password = accounts.ensure_first_admin(store=store, settings=settings, clock=clock)
    assert sign_in(app, "admin", password)[1].json()["user"]["role"] == "admin"
    assert accounts.ensure_first_admin(store=store, settings=settings, clock=clock) is None


def test_demo_mode_brings_a_project_and_four_people(store, settings, clock):
    demo = with_settings(settings, demo=True)
    assert accounts.ensure_first_admin(store=store, settings=demo, clock=clock) is None
    project_id = accounts.ensure_demo_people(store=store, settings=demo, clock=clock)
    assert accounts.ensure_demo_people(store=store, settings=demo, clock=clock) == project_id
    app = create_app(demo, queue=RecordingQueue(), clock=clock)
    roles = {}
    for name in ("clinician", "reader2", "engineer", "admin"):
        client, answer = sign_in(app, name, name)
        roles[name] = answer.json()["user"]["role"]
        told = client.get("/api/session").json()
        assert told["projects"] == [{"id": project_id, "name": "Demo", "is_demo": True}]
        assert told["demo"] is True
    assert roles == {"clinician": "clinician", "reader2": "adjudicator", "engineer": "engineer", "admin": "admin"}


def test_after_demo_mode_the_sample_people_are_out_and_the_admin_becomes_a_real_one(app, store, settings, clock):
    demo = with_settings(settings, demo=True)
    accounts.ensure_demo_people(store=store, settings=demo, clock=clock)
    client, _ = sign_in(create_app(demo, queue=RecordingQueue(), clock=clock), "clinician", "clinician")
    password = accounts.ensure_first_admin(store=store, settings=settings, clock=clock)
    assert sign_in(app, "clinician", "clinician")[1].status_code == 401
    assert TestClient(app, cookies=dict(client.cookies)).get("/api/session").status_code == 401
    assert sign_in(app, "admin", "admin")[1].status_code == 401
    assert sign_in(app, "admin", password)[1].status_code == 200
    accounts.ensure_demo_people(store=store, settings=demo, clock=clock)
    assert sign_in(app, "admin", password)[1].status_code == 200


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.2", "serpens.example", "", "127.0.0.1.evil.example"])
def test_demo_mode_refuses_to_be_reached_from_elsewhere(store, settings, clock, host):
    exposed = with_settings(settings, demo=True, host=host)
    with pytest.raises(Misconfigured, match="SERPENS_HOST"):
        create_app(exposed, queue=RecordingQueue())
    with pytest.raises(Misconfigured, match="SERPENS_HOST"):
        accounts.ensure_demo_people(store=store, settings=exposed, clock=clock)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.3.2.1", "::1", "[::1]", "localhost"])
def test_demo_mode_serves_this_machine(settings, host):
    accounts.require_safe_demo(with_settings(settings, demo=True, host=host))
    accounts.require_safe_demo(with_settings(settings, demo=False, host="0.0.0.0"))


def test_an_operators_command_acts_as_a_person_with_their_projects(store, make_actor, project):
    actor = make_actor(Role.CLINICIAN, project, name="anna")
    assert accounts.actor_named("Anna", store=store) == actor
    assert accounts.actor_named(make_actor(Role.ADMIN).name, store=store).project_ids == {project}
