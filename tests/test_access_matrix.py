"""Every route of the API against every role, in the project and outside it, as `backend.domain.access` says.

The routes are found by walking the application: one without a permission, or without a sample request here, fails.
"""

import asyncio
import json
import re
import time
import zlib
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute, iter_route_contexts
from fastapi.testclient import TestClient

from backend.api.deps import PermissionCheck
from backend.api.guard import is_open_address
from backend.domain.access import ALLOWED_ROLES, Actor, Permission, Role
from backend.domain.account import Project, User
from backend.main import create_app
from backend.services.ingest import ingest
from backend.settings import Settings
from backend.store.repository import Store, new_id
from tests.conftest import FakeClock
from tests.ingest_files import dicom
from tests.people import RecordingQueue, anonymous, signed_in, sqlite_url

# For whoever is signed in, whatever their role: their own session.
SIGNED_IN = {("GET", "/api/session"), ("DELETE", "/api/session"), ("POST", "/api/session/password")}

NEW_FILES = {"files": ("a/0001.dcm", dicom("1.2.3.9"))}

# What a well-formed request of a route carries beside its path.
SAMPLES: dict[tuple[str, str], dict[str, Any]] = {
    ("POST", "/api/session"): {"json": {"name": "nobody", "password": "x"}},
    ("POST", "/api/session/password"): {"json": {"old_password": "x", "new_password": "x"}},
    ("POST", "/api/users"): {"json": {"name": "{new}", "role": "clinician", "password": "correct horse battery"}},
    ("PATCH", "/api/users/{user_id}"): {"json": {"display_name": "Other"}},
    ("POST", "/api/projects"): {"json": {"name": "{new}"}},
    ("PUT", "/api/projects/{project_id}/members/{user_id}"): {},
    ("POST", "/api/uploads"): {"json": {"project_id": "{project_id}", "request_key": "{new}"}},
    ("POST", "/api/uploads/{upload_id}/files"): {"files": NEW_FILES},
    ("POST", "/api/uploads/{upload_id}/finish"): {},
    ("POST", "/api/studies/search"): {"json": {"q": "x"}},
    ("POST", "/api/studies"): {"data": {"project_id": "{project_id}"}, "files": NEW_FILES},
    ("POST", "/api/series/{series_id}/runs"): {"json": {"question": "Is it there?", "request_key": "{new}"}},
    ("POST", "/api/runs/{run_id}/cancel"): {},
    ("POST", "/api/runs/{run_id}/continue"): {"json": {"from_sequence": 1, "request_key": "{new}"}},
    ("POST", "/api/runs/{run_id}/feedback"): {
        "json": {"target": "trace", "verdict": "accept", "request_key": "{new}", "comment": "good"}
    },
    ("POST", "/api/series/{series_id}/masks"): {"json": {"label": "Lung", "request_key": "{new}"}},
    ("PATCH", "/api/masks/{mask_id}"): {
        "json": {
            "segments": [{"number": 1, "label": "Lung", "color": "#ff0000"}],
            "base_version": 1,
            "request_key": "{new}",
        }
    },
    ("POST", "/api/masks/{mask_id}/restore"): {"json": {"version": 1, "base_version": 1, "request_key": "{new}"}},
    ("PUT", "/api/masks/{mask_id}/planes/{segment}/{frame_index}"): {
        "params": {"base_version": "1", "request_key": "{new}"},
        "content": zlib.compress(bytes(3)),
    },
    ("POST", "/api/series/{series_id}/prepare"): {"json": {"frame_index": 0}},
    ("POST", "/api/series/{series_id}/prompts"): {"json": {"frame_index": 0, "box": [1, 1, 3, 3]}},
    ("POST", "/api/series/{series_id}/prompts/accept"): {
        "json": {
            "prompt": {"frame_index": 0, "box": [1, 1, 3, 3]},
            "bits_sha256": "0" * 64,
            "request_key": "{new}",
        }
    },
}
# What a run must have got to first; who may not is refused before that is looked at, and only this is tested here.
NEEDS_EVENTS = {("POST", "/api/runs/{run_id}/continue"), ("GET", "/api/runs/{run_id}/pictures/{index}")}
STREAMS = {("GET", "/api/runs/{run_id}/events")}
# Refusals that say who may not, or that the sample above is no well-formed request.
DENIALS = {"not_signed_in", "not_allowed", "not_found", "cross_site_request", "invalid_request", "internal_error"}
# Where a route's answer depends on membership although its path names nothing of a project.
IN_PROJECT = {("POST", "/api/uploads"), ("POST", "/api/studies")}
PROJECT_PARAMETERS = {"project_id", "study_id", "series_id", "upload_id", "run_id", "mask_id", "version_id"}


@dataclass
class World:
    """An application with one project that has a study, and one person of each role inside and outside it."""

    app: FastAPI
    people: dict[tuple[Role, bool], Actor]
    ids: dict[str, str]
    someone: str


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, empty_sqlite) -> Iterator[World]:
    """Made once: no test here depends on what another left."""
    home = tmp_path_factory.mktemp("matrix") / "home"
    settings = Settings(
        _env_file=None,
        home=home,
        database_url=sqlite_url(home, empty_sqlite),
        public_origins=("http://testserver",),
        login_attempts=10_000,
    )
    clock = FakeClock()
    app = create_app(settings, queue=RecordingQueue(), clock=clock)
    store: Store = app.state.services.store
    project_id, someone = new_id(), new_id()
    people = {}
    with store.transaction() as tx:
        tx.accounts.add_project(Project(project_id, "Chest", False, clock()))
        tx.accounts.add_user(
            User(someone, "someone", "Someone", Role.CLINICIAN, True, False, clock()), password_hash="!"
        )
        for role in Role:
            for is_member in (True, False):
                name = f"{role.value}-{'member' if is_member else 'stranger'}"
                user = User(new_id(), name, name, role, True, False, clock())
                tx.accounts.add_user(user, password_hash="!")
                if is_member:
                    tx.accounts.add_member(project_id, user.id)
                people[role, is_member] = Actor(user.id, name, role, frozenset({project_id} if is_member else ()))
    places = {"project_id": project_id, "index": "0", "segment": "1", "frame_index": "0"}
    ids = places | _ingested(app, people[Role.CLINICIAN, True], project_id)
    yield World(app, people, ids, someone)
    store.close()


def _ingested(app: FastAPI, member: Actor, project_id: str) -> dict[str, str]:
    services = app.state.services
    client = signed_in(app, member)
    upload = client.post(
        "/api/studies", data={"project_id": project_id}, files={"files": ("a/0001.dcm", dicom("1.2.3.1"))}
    ).json()
    done = ingest(
        upload["id"],
        store=services.store,
        blobs=services.blobs,
        settings=services.settings,
        clock=services.clock,
        owner="test",
        until_s=time.monotonic() + 60,
    )
    assert done
    (study_id,) = client.get(f"/api/uploads/{upload['id']}").json()["study_ids"]
    (series,) = client.get(f"/api/studies/{study_id}").json()["series"]
    place = f"/api/series/{series['id']}"
    run = client.post(f"{place}/runs", json={"question": "Is it there?", "request_key": new_id()}).json()
    mask = client.post(f"{place}/masks", json={"label": "Lung", "request_key": new_id()}).json()
    return {
        "upload_id": upload["id"],
        "study_id": study_id,
        "series_id": series["id"],
        "run_id": run["id"],
        "mask_id": mask["mask_id"],
        "version_id": mask["id"],
    }


def permission_of(dependant: Dependant) -> Permission | None:
    """The permission that a route asks for, found among its dependencies."""
    if isinstance(dependant.call, PermissionCheck):
        return dependant.call.permission
    found = {permission for one in dependant.dependencies if (permission := permission_of(one))}
    assert len(found) <= 1
    return found.pop() if found else None


def routes_of(app: FastAPI) -> Iterator[tuple[str, str, Permission | None]]:
    """Method, path and permission of every route."""
    for context in iter_route_contexts(app.routes):
        if isinstance(context.original_route, APIRoute):
            for method in sorted(context.methods or ()):
                yield method, str(context.path), permission_of(context.dependant)


def send(client: TestClient, method: str, path: str, ids: dict[str, str]) -> tuple[int, str]:
    """The status and, of a refusal, the code."""
    if (method, path) in STREAMS:
        return begin_stream(client, path.format(**ids))
    answer = client.request(method, path.format(**ids), **filled(SAMPLES.get((method, path), {}), ids))
    return answer.status_code, answer.json()["error"]["code"] if answer.status_code >= 400 else ""


def begin_stream(client: TestClient, path: str) -> tuple[int, str]:
    """The same of a stream of events, hung up on once it has begun."""
    begun: list[dict[str, Any]] = []

    async def read(message: MutableMapping[str, Any]) -> None:
        begun.append(dict(message))
        if message["type"] == "http.response.start" and message["status"] == 200:
            raise OSError

    async def wait() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    cookie = f"serpens_session={client.cookies.get('serpens_session', '')}"
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(b"host", b"testserver"), (b"cookie", cookie.encode())],
        "client": ("testclient", 1),
        "server": ("testserver", 80),
    }
    asyncio.run(client.app(scope, wait, read))  # type: ignore[arg-type]
    status = begun[0]["status"]
    return status, "" if status == 200 else json.loads(begun[1]["body"])["error"]["code"]


def filled(value: Any, ids: dict[str, str]) -> Any:
    """A sample request with the ids in their places and `{new}` as a new one."""
    if isinstance(value, dict):
        return {key: filled(part, ids) for key, part in value.items()}
    return value.format(**ids, new=new_id()) if isinstance(value, str) else value


def ids_for(world: World, actor: Actor) -> dict[str, str]:
    """The project's things; where they may have one, an upload of their own that still receives."""
    ids = world.ids | {"user_id": world.someone}
    if world.ids["project_id"] in actor.project_ids or actor.role is Role.ADMIN:
        body = {"project_id": world.ids["project_id"], "request_key": new_id()}
        ids["upload_id"] = signed_in(world.app, actor).post("/api/uploads", json=body).json()["id"]
    return ids


def expected(permission: Permission, role: Role, *, is_member: bool, is_in_project: bool) -> str:
    """What the domain says: `not_allowed`, `not_found` or nothing in the way."""
    if role not in ALLOWED_ROLES[permission]:
        return "not_allowed"
    return "not_found" if is_in_project and not is_member and role is not Role.ADMIN else ""


def test_every_route_has_a_permission_or_a_place_in_the_open_list(world):
    bare = {(method, path) for method, path, permission in routes_of(world.app) if permission is None}
    assert {one for one in bare if not is_open_address(*one)} == SIGNED_IN


def test_every_route_of_the_contract_is_there(world):
    found = {(method, path) for method, path, _ in routes_of(world.app)}
    assert found >= set(SAMPLES) | SIGNED_IN
    assert {
        ("GET", "/api/studies"),
        ("GET", "/api/studies/{study_id}"),
        ("GET", "/api/series/{series_id}"),
        ("GET", "/api/series/{series_id}/thumbnail"),
        ("GET", "/api/system"),
        ("GET", "/api/users"),
    } <= found


def test_every_changing_route_has_a_sample_request(world):
    changing = {(method, path) for method, path, _ in routes_of(world.app) if method in {"POST", "PUT", "PATCH"}}
    assert changing - set(SAMPLES) == set(), "add a well-formed request to SAMPLES"


def test_c65_nobody_signed_in_reaches_no_route(world):
    ids = world.ids | {"user_id": world.someone}
    for method, path, _ in routes_of(world.app):
        if not is_open_address(method, path):
            assert send(anonymous(world.app), method, path, ids) == (401, "not_signed_in"), (method, path)


@pytest.mark.parametrize("is_member", [True, False], ids=["member", "stranger"])
@pytest.mark.parametrize("role", list(Role))
def test_every_route_admits_whom_the_domain_admits(world, role, is_member):
    actor = world.people[role, is_member]
    wrong = []
    for method, path, permission in routes_of(world.app):
        if permission is None:
            continue
        names = set(re.findall(r"\{(\w+)\}", path))
        is_in_project = (method, path) in IN_PROJECT or bool(names & PROJECT_PARAMETERS)
        want = expected(permission, role, is_member=is_member, is_in_project=is_in_project)
        status, code = send(signed_in(world.app, actor), method, path, ids_for(world, actor))
        is_right = code == want if want else code not in DENIALS or (method, path) in NEEDS_EVENTS
        if not is_right:
            wrong.append(f"{method} {path}: wanted {want or 'an answer'}, got {status} {code}")
    assert wrong == []


def test_an_admins_list_shows_every_project_and_a_strangers_none_of_it(world):
    for (role, is_member), actor in world.people.items():
        found = signed_in(world.app, actor).get("/api/studies").json()
        sees = is_member or role is Role.ADMIN
        assert [study["id"] for study in found["studies"]] == ([world.ids["study_id"]] if sees else [])
        assert found["total"] == (1 if sees else 0)


def test_identities_are_shown_to_readers_alone(world):
    for (role, is_member), actor in world.people.items():
        if is_member:
            study = signed_in(world.app, actor).get(f"/api/studies/{world.ids['study_id']}")
            assert ("CANARY" in study.text) is (role is not Role.ENGINEER)


def test_c69_a_thing_of_another_project_reads_like_one_that_does_not_exist(world):
    stranger = world.people[Role.CLINICIAN, False]
    nothing = dict.fromkeys(world.ids, "0" * 20) | {"index": "0", "segment": "1", "frame_index": "0"}
    hidden = set(world.ids.values()) - set(nothing.values())
    wrong, seen = [], 0
    for method, path, permission in [*routes_of(world.app), ("GET", "/api/studies?project_id={project_id}", None)]:
        is_in_project = (method, path) in IN_PROJECT or any(f"{{{name}}}" in path for name in PROJECT_PARAMETERS)
        if not is_in_project or (permission and not stranger.may(permission)):
            continue
        seen += 1
        answers = []
        for ids in (world.ids, nothing):
            fields = filled(SAMPLES.get((method, path), {}), ids)
            answer = signed_in(world.app, stranger).request(method, path.format(**ids), **fields)
            answers.append((answer.status_code, answer.text))
        if answers[0] != answers[1] or answers[0][0] != 404 or any(one in answers[0][1] for one in hidden):
            wrong.append(f"{method} {path}: {answers}")
    assert wrong == []
    assert seen >= 12
