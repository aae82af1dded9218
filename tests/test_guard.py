"""Nothing without a session, nothing from another site, no path that climbs; and answers that stream through it all."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import gradio as gr
import pytest
from fastapi import FastAPI, WebSocket
from fastapi.responses import StreamingResponse
from fastapi.routing import iter_route_contexts
from fastapi.staticfiles import StaticFiles
from fastapi.testclient import TestClient
from starlette.exceptions import HTTPException
from starlette.websockets import WebSocketDisconnect

from backend.api import guard as guarding
from backend.api.guard import is_closed_gradio_address
from backend.domain.access import Role
from backend.main import create_app
from backend.settings import Settings
from backend.store.repository import Store
from tests.conftest import FakeClock
from tests.people import RecordingQueue, anonymous, open_session, signed_in, sqlite_url

SECRET = "the canary in the file"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of one application for all of this module: building a Gradio page takes half a second."""
    return tmp_path_factory.mktemp("guard") / "home"


@pytest.fixture(scope="module")
def settings(home: Path, empty_sqlite: Path) -> Settings:
    """What is tested here is no matter of the database."""
    database_url = sqlite_url(home, empty_sqlite)
    return Settings(_env_file=None, home=home, database_url=database_url, public_origins=("http://testserver",))


@pytest.fixture(scope="module")
def store(settings: Settings) -> Iterator[Store]:
    """The application's database."""
    opened = Store(settings.database)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def clock() -> FakeClock:
    """A clock that stands still."""
    return FakeClock()


@pytest.fixture(scope="module")
def app(settings, clock, home) -> FastAPI:
    """The API with a folder of files, a stream, a WebSocket and a Gradio page, as the web process mounts them."""
    app = create_app(settings, queue=RecordingQueue(), clock=clock)
    files = home / "files"
    files.mkdir()
    (files / "viewer.js").write_text("export {}")
    (home / "secret.txt").write_text(SECRET)
    app.mount("/assets/viewer", StaticFiles(directory=files))

    @app.get("/stream")
    async def stream() -> StreamingResponse:
        async def parts():
            for number in range(3):
                yield f"data: {number}\n\n"
                await asyncio.sleep(0)

        return StreamingResponse(parts(), media_type="text/event-stream")

    @app.websocket("/socket")
    async def socket(websocket: WebSocket) -> None:
        await websocket.accept()
        await websocket.send_text(websocket.scope["state"]["actor"].name)
        await websocket.close()

    @app.post("/page-event")
    async def page_event() -> dict[str, bool]:
        return {"reached": True}

    @app.get("/login")
    async def login() -> str:
        return "sign in here"

    with gr.Blocks() as blocks:
        gr.HTML("a page")
        gr.Button("press").click(lambda: None, api_name="press")
    gr.mount_gradio_app(
        app,
        blocks,
        path="/",
        auth_dependency=lambda request: getattr(request.scope["state"]["actor"], "user_id", None),
        run_history=False,
        ssr_mode=False,
        allowed_paths=[str(home)],
    )
    return app


@pytest.fixture
def browser(app, make_actor) -> TestClient:
    """A clinician's browser."""
    return signed_in(app, make_actor(Role.CLINICIAN))


GRADIO_ROUTES = [
    ("GET", "/"),
    ("GET", "/config"),
    ("GET", "/theme.css"),
    ("GET", "/manifest.json"),
    ("GET", "/assets/index.js"),
    ("GET", "/static/img/logo.svg"),
    ("GET", "/monitoring"),
    ("POST", "/login"),
    ("GET", "/logout"),
    ("GET", "/gradio_api/info"),
    ("GET", "/gradio_api/startup-events"),
    ("GET", "/gradio_api/heartbeat/abc"),
    ("POST", "/gradio_api/queue/join"),
    ("GET", "/gradio_api/queue/data?session_hash=abc"),
    ("POST", "/gradio_api/upload"),
    ("GET", "/gradio_api/upload_progress?upload_id=abc"),
    ("GET", "/gradio_api/file=/etc/passwd"),
    ("GET", "/gradio_api/proxy=http://127.0.0.1/"),
    ("POST", "/gradio_api/call/press"),
    ("POST", "/gradio_api/run/press"),
    ("POST", "/gradio_api/api/press"),
    ("POST", "/gradio_api/component_server"),
    ("POST", "/gradio_api/cancel"),
    ("POST", "/gradio_api/reset"),
]
OUR_ROUTES = [
    ("GET", "/docs"),
    ("GET", "/redoc"),
    ("GET", "/openapi.json"),
    ("GET", "/api/openapi.json"),
    ("GET", "/api/session"),
    ("DELETE", "/api/session"),
    ("GET", "/api/users"),
    ("GET", "/api/nothing"),
    ("GET", "/assets/viewer/viewer.js"),
    ("GET", "/stream"),
    ("OPTIONS", "/api/users"),
    ("GET", "/flower"),
]


@pytest.mark.parametrize(("method", "path"), GRADIO_ROUTES + OUR_ROUTES)
def test_c65_without_a_session_every_address_answers_401(app, method, path):
    answer = anonymous(app).request(method, path)
    assert answer.status_code == 401
    assert answer.json()["error"]["code"] == "not_signed_in"


def test_c65_every_route_of_the_mounted_gradio_needs_a_session(app):
    (gradio,) = [route.app for route in app.routes if getattr(route, "path", None) == ""]
    client = anonymous(app)
    paths = {
        (method, route.path) for route in iter_route_contexts(gradio.routes) for method in route.methods or {"GET"}
    }
    assert len(paths) > 50
    for method, path in sorted(paths):
        if (method, path) in {("GET", "/login"), ("HEAD", "/login")}:
            continue
        answer = client.request(method, re.sub(r"\{[^}]*\}", "x", path), follow_redirects=False)
        assert answer.status_code == 401, (method, path)


@pytest.mark.parametrize("token", ["", "x", "y" * 43, "z" * 5000])
def test_c65_an_invented_token_is_no_session(app, token):
    client = TestClient(app, cookies={"serpens_session": token})
    assert client.get("/").status_code == 401
    assert client.get("/", headers={"Authorization": f"Bearer {token}"}).status_code == 401


def test_a_browser_without_a_session_is_sent_to_the_login_page_and_a_program_is_not(app):
    client = anonymous(app)
    page = client.get("/", headers={"Accept": "text/html,*/*"}, follow_redirects=False)
    assert (page.status_code, page.headers["location"]) == (303, "/login")
    assert client.get("/api/session", headers={"Accept": "text/html"}).status_code == 401
    assert client.get("/").status_code == 401


def test_the_login_page_and_the_health_check_are_open(app):
    client = anonymous(app)
    assert client.get("/login").status_code == 200
    assert client.get("/healthz").json() == {"status": "ok"}


def test_a_session_reaches_the_page_the_files_and_the_stream(browser):
    assert "gradio" in browser.get("/").text
    assert browser.get("/config").status_code == 200
    assert browser.get("/assets/viewer/viewer.js").text == "export {}"
    assert browser.get("/stream").text == "data: 0\n\ndata: 1\n\ndata: 2\n\n"
    assert browser.get("/api/openapi.json").json()["info"]["title"] == "Serpens"


def test_a_session_signed_out_is_refused_at_once(browser):
    assert browser.get("/api/session").status_code == 200
    assert browser.delete("/api/session").status_code == 204
    assert browser.get("/api/session").status_code == 401


# --- files


CLIMBING = [
    "/assets/viewer/../secret.txt",
    "/assets/viewer/%2e%2e/secret.txt",
    "/assets/viewer/%2e%2e%2fsecret.txt",
    "/assets/viewer/..%2fsecret.txt",
    "/assets/viewer/%252e%252e%252fsecret.txt",
    "/assets/viewer/%25252e%25252e%25252fsecret.txt",
    "/assets/viewer/..%5csecret.txt",
    "/assets/viewer/..\\secret.txt",
    "/assets/viewer//etc/passwd",
    "/assets/viewer/%2fetc/passwd",
    "/assets/viewer/C:/secret.txt",
    "/assets/viewer/viewer.js%00.png",
    "/login/../secret.txt",
    "/login/%2e%2e/gradio_api/info",
    "/./api/users",
]


def request_raw(app, path, cookie=None):
    """A request whose path is sent as it is written; a client library would tidy it up."""
    sent = []
    headers = [(b"host", b"127.0.0.1")] + ([(b"cookie", f"serpens_session={cookie}".encode())] if cookie else [])
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": unquote(path),
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": headers,
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message):
        sent.append(message)

    asyncio.run(app(scope, receive, send))
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:])


@pytest.mark.parametrize("path", CLIMBING)
@pytest.mark.parametrize("is_signed_in", [True, False])
def test_c64_a_path_that_climbs_reaches_no_file(app, make_actor, store, clock, path, is_signed_in):
    cookie = open_session(store, make_actor(), clock())[0] if is_signed_in else None
    status, body = request_raw(app, path, cookie)
    assert status in {401, 404}
    assert SECRET.encode() not in body


@pytest.mark.parametrize(
    "path",
    [
        "/gradio_api/file={folder}/secret.txt",
        "/gradio_api/file/{folder}/secret.txt",
        "/gradio_api/file%3D{folder}/secret.txt",
        "/gradio_api/file=../secret.txt",
        "/gradio_api/file={home}/serpens.db",
        "/gradio_api/stream/abc/1/2/playlist-file",
        "/gradio_api/custom_component/1/client/component/x.js",
        "/svelte/x.js",
        "/file=/etc/passwd",
    ],
)
def test_c64_gradio_serves_no_file_even_from_a_folder_that_it_was_given(browser, home, path):
    answer = browser.get(path.format(folder=home, home=home))
    assert answer.status_code == 404
    assert SECRET not in answer.text


def test_c64_gradio_takes_no_file(browser):
    answer = browser.post(
        "/gradio_api/upload", files={"files": ("a.dcm", b"x")}, headers={"Origin": "http://testserver"}
    )
    assert answer.status_code == 404


@pytest.mark.parametrize(
    ("path", "is_closed"),
    [
        ("/gradio_api/queue/join", False),
        ("/gradio_api/queue/data", False),
        ("/gradio_api/heartbeat/k2j3", False),
        ("/gradio_api/theme.css", False),
        ("/gradio_api/heartbeat/../upload", True),
        ("/gradio_api/upload", True),
        ("/gradio_api/file=x", True),
        ("/gradio_api/proxy=x", True),
        ("/gradio_api/call/press", True),
        ("/gradio_api/runs", True),
        ("/gradio_api", True),
        ("/gradio_apis", True),
        ("/monitoring/summary", True),
        ("/config", False),
        ("/theme.css", False),
    ],
)
def test_of_gradios_addresses_only_what_its_page_calls_is_open(path, is_closed):
    assert is_closed_gradio_address(path) is is_closed


# --- other sites


@pytest.mark.parametrize(
    "headers",
    [
        {"X-CSRF-Token": ""},
        {"X-CSRF-Token": "guess"},
        {"Origin": "http://evil.example"},
        {"Origin": "https://testserver"},
        {"Origin": "http://testserver:81"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_a_changing_request_of_another_site_is_refused(browser, headers):
    answer = browser.delete("/api/session", headers=headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "cross_site_request")
    assert browser.get("/api/session").status_code == 200


@pytest.mark.parametrize(
    "headers",
    [{}, {"Origin": "http://testserver"}, {"Sec-Fetch-Site": "same-origin"}, {"Sec-Fetch-Site": "none"}],
)
def test_a_changing_request_of_our_page_passes(browser, headers):
    assert browser.delete("/api/session", headers=headers).status_code == 204


def test_the_pages_own_events_need_an_origin_instead_of_the_csrf_token(browser):
    for headers in ({}, {"Origin": "http://evil.example"}, {"Origin": "null"}):
        assert browser.post("/page-event", headers=headers).status_code == 403
    for headers in ({"Origin": "http://testserver"}, {"Origin": "null", "Sec-Fetch-Site": "same-origin"}):
        assert browser.post("/page-event", headers=headers).status_code == 200


def test_signing_in_from_another_site_is_refused(app):
    body = {"name": "anna", "password": "x"}
    for headers in ({"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        assert anonymous(app).post("/api/session", json=body, headers=headers).status_code == 403
    assert anonymous(app).post("/api/session", json=body).status_code == 401


def test_a_program_with_a_bearer_token_needs_no_csrf_token(app, make_actor, store, clock):
    token, _ = open_session(store, make_actor(), clock())
    client = TestClient(app, headers={"Authorization": f"Bearer {token}"})
    assert client.get("/api/session").status_code == 200
    assert client.delete("/api/session").status_code == 204


def test_a_public_origin_is_ours(store, settings, clock, make_actor):
    settings = settings.model_copy(update={"public_origins": ("https://serpens.example",)})
    browser = signed_in(create_app(settings, queue=RecordingQueue(), clock=clock), make_actor())
    headers = {"Host": "serpens.example", "Origin": "https://serpens.example"}
    assert browser.delete("/api/session", headers=headers).status_code == 204


@pytest.mark.parametrize(
    ("host", "is_ours"),
    [
        ("127.0.0.1:7860", True),
        ("localhost:9000", True),
        ("[::1]:7860", True),
        ("192.168.3.4:7860", True),
        ("testserver", True),
        ("evil.example", False),
        ("127.0.0.1.evil.example:7860", False),
        ("", False),
        ("[::1", False),
    ],
)
def test_a_name_that_somebody_elses_dns_points_at_us_is_refused(browser, host, is_ours):
    answer = browser.get("/api/session", headers={"Host": host})
    assert answer.status_code == (200 if is_ours else 421)


def test_a_web_socket_needs_a_session_and_our_origin(app, make_actor):
    actor = make_actor()
    browser = signed_in(app, actor)
    with browser.websocket_connect("/socket", headers={"Origin": "http://testserver"}) as socket:
        assert socket.receive_text() == actor.name
    for client, origin in (
        (browser, "http://evil.example"),
        (browser, None),
        (anonymous(app), "http://testserver"),
    ):
        headers = {"Origin": origin} if origin else {}
        with pytest.raises(WebSocketDisconnect), client.websocket_connect("/socket", headers=headers):
            pass


# --- answers


def test_every_answer_has_the_security_headers(app, browser):
    for answer in (browser.get("/"), browser.get("/api/session"), anonymous(app).get("/api/session")):
        policy = answer.headers["content-security-policy"]
        assert "default-src 'self'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "http" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"


def test_nothing_of_the_api_and_no_page_is_cached_and_files_may_be(browser):
    assert browser.get("/api/session").headers["cache-control"] == "no-store"
    assert browser.get("/api/nothing").headers["cache-control"] == "no-store"
    assert browser.get("/").headers["cache-control"] == "no-store"
    assert "etag" in browser.get("/assets/viewer/viewer.js").headers


def test_an_answer_streams_through_part_by_part(app, make_actor, store, clock):
    token, _ = open_session(store, make_actor(), clock())
    reached = asyncio.Event()

    @app.get("/slow")
    async def slow() -> StreamingResponse:
        async def parts():
            yield b"first"
            await asyncio.wait_for(reached.wait(), 5)
            yield b"second"

        return StreamingResponse(parts())

    # The page's mount takes every address, so the route goes before it.
    app.router.routes.insert(0, app.router.routes.pop())
    bodies = []

    async def send(message):
        if body := message.get("body"):
            bodies.append(body)
            reached.set()  # only who got the first part lets the second go

    async def receive():
        await asyncio.sleep(60)

    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": "/slow",
        "raw_path": b"/slow",
        "query_string": b"",
        "root_path": "",
        "headers": [(b"host", b"127.0.0.1"), (b"cookie", f"serpens_session={token}".encode())],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }
    asyncio.run(app(scope, receive, send))
    assert bodies == [b"first", b"second"]


def test_a_stream_of_events_is_cut_off_once_its_session_ended_and_keeps_no_session_alive(app, make_actor, store, clock):
    token, _ = open_session(store, make_actor(), clock())

    @app.get("/events")
    async def events() -> StreamingResponse:
        async def parts():
            for number in range(200):
                yield f"data: {number}\n\n"
                clock.advance(31)

        return StreamingResponse(parts(), media_type="text/event-stream")

    app.router.routes.insert(0, app.router.routes.pop())
    browser = TestClient(app, cookies={"serpens_session": token})
    began = clock()
    # An hour of idleness is 117 steps of 31 s; the last word within it is of second 3596.
    assert browser.get("/events").text.endswith("data: 116\n\n")
    assert (clock() - began).total_seconds() == 117 * 31
    assert browser.get("/api/session").status_code == 401


@pytest.mark.parametrize(
    ("method", "path", "is_limited"),
    [
        ("POST", "/api/studies", False),
        ("POST", "/api/uploads/abc/files", False),
        ("POST", "/api/uploads/abc/finish", True),
        ("POST", "/api/uploads", True),
        ("POST", "/api/studies/search", True),
        ("POST", "/api/uploads/a/b/files", True),
        ("PUT", "/api/studies", True),
        ("POST", "/gradio_api/run/predict", True),
        ("POST", "/api/session/password", True),
    ],
)
def test_only_the_routes_that_take_files_take_a_multipart_body_of_any_length(monkeypatch, method, path, is_limited):
    monkeypatch.setattr(guarding, "BODY_BYTES_AT_MOST", 10)
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "headers": [(b"content-type", b"multipart/form-data; boundary=x")],
        "state": {"signed_in": object()},
    }

    async def receive():
        return {"type": "http.request", "body": bytes(11), "more_body": True}

    if is_limited:
        with pytest.raises(HTTPException):
            asyncio.run(guarding._limited(scope, receive)())
    else:
        assert asyncio.run(guarding._limited(scope, receive)())["more_body"]


def test_a_multipart_body_to_a_json_route_is_stopped(browser, monkeypatch):
    monkeypatch.setattr(guarding, "BODY_BYTES_AT_MOST", 1000)
    answer = browser.post("/api/studies/search", files={"x": bytes(2000)})
    assert answer.status_code == 413
