"""Nothing without a session: the layer in front of every route, mount, stream and WebSocket, Gradio's included.

What it found is in `scope["state"]`: `actor` (an `Actor`) and `signed_in` (its `SignedIn`), both None on the few
addresses that are open. Routes and the pages' `auth_dependency` read it there and look nothing up again.
"""

import hmac
import ipaddress
import re
from datetime import timedelta
from urllib.parse import unquote, urlsplit

from anyio import CapacityLimiter, to_thread
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, cookie_parser
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from backend.api.deps import ACTOR_STATE, SESSION_STATE, STREAM_PROJECT_STATE
from backend.api.errors import platform_response
from backend.domain.account import SignedIn
from backend.domain.errors import CrossSiteRequest, NotFound, NotSignedIn, PlatformError, UnknownHost
from backend.services.context import Services
from backend.services.sessions import find_session
from backend.settings import MIB, Settings

SESSION_COOKIE = "serpens_session"
CSRF_HEADER = "X-CSRF-Token"
LOGIN_PAGE = "/login"

# What is served without a session: the page that signs in with its own files, the request it makes, the health check.
OPEN = frozenset(
    {("GET", LOGIN_PAGE), ("HEAD", LOGIN_PAGE), ("POST", "/api/session"), ("GET", "/healthz"), ("HEAD", "/healthz")}
)
OPEN_FOLDER = f"{LOGIN_PAGE}/"

# Of Gradio's own API, what its page calls. The rest (files, uploads, proxy, runs by name, monitoring) is not there:
# Gradio checks who signed in but not whose file it is.
GRADIO_API = "/gradio_api/"
GRADIO_OPEN = re.compile(
    r"/gradio_api/(info|startup-events|theme\.css|run/predict|queue/(join|data)|heartbeat/[^/]+|reset|cancel|component_server)/?"
)
# Beside it, what Gradio would answer at the root and the pages do not need.
GRADIO_CLOSED = re.compile(r"/(monitoring|svelte|logout|docs|redoc|openapi\.json|pwa_icon)(/.*)?")

# Bodies are read whole before a route sees them, but for the two that take files: they stream multipart bodies under
# limits of their own.
FILES_ADDRESS = re.compile(r"/api/studies|/api/uploads/[^/]+/files")
OPEN_BODY_BYTES_AT_MOST = 16 * 1024
BODY_BYTES_AT_MOST = 16 * MIB

STREAM_CHECKED_EVERY = timedelta(seconds=30)

_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_TOKEN_LENGTH_AT_MOST = 100
_DECODINGS = 4


class Guard:
    """Admits a request or refuses it before anything else sees it."""

    def __init__(self, app: ASGIApp, *, services: Services) -> None:
        self.app = app
        self._services = services
        self._own = _OwnAddresses(services.settings)
        # Looking a session up must not wait behind the slow requests that fill the common thread pool.
        self._lookups = CapacityLimiter(8)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or answer in its place."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        state = scope.setdefault("state", {})
        state[SESSION_STATE] = state[ACTOR_STATE] = None
        try:
            await self._admit(scope)
        except PlatformError as refusal:
            await _refuse(scope, receive, send, refusal)
            return
        await self.app(scope, _limited(scope, receive), self._while_signed_in(scope, send))

    async def _admit(self, scope: Scope) -> None:
        headers, path = Headers(scope=scope), scope["path"]
        is_open = scope["type"] == "http" and is_open_address(scope["method"], path)
        if path != "/healthz":
            self._own.require_host(headers.get("host", ""))
        token, is_cookie = _token_of(headers)
        if token and not is_open:
            signed_in = await self._find(token, is_use=True)
            if signed_in is not None:
                scope["state"].update({SESSION_STATE: signed_in, ACTOR_STATE: signed_in.actor})
        signed_in = scope["state"][SESSION_STATE]
        if signed_in is None and not is_open:
            raise NotSignedIn("sign in first")
        require_plain_path(scope)
        if scope["type"] == "websocket" or scope["method"] not in _SAFE_METHODS:
            self._require_same_site(scope, headers, signed_in if is_cookie else None, is_bearer=not is_cookie)
        if is_closed_gradio_address(path):
            raise NotFound("there is nothing at this address")

    async def _find(self, token: str, *, is_use: bool) -> SignedIn | None:
        services = self._services
        return await to_thread.run_sync(
            lambda: find_session(
                token, store=services.store, settings=services.settings, clock=services.clock, is_use=is_use
            ),
            limiter=self._lookups,
        )

    def _while_signed_in(self, scope: Scope, send: Send) -> Send:
        """Cut a stream of events off soon after its session ended, or its person left the project that it is about.

        An open stream is no use of the session.
        """
        token, _ = _token_of(Headers(scope=scope))
        if scope["type"] != "http" or scope["state"][SESSION_STATE] is None or token is None:
            return send
        checked_at, is_events = self._services.clock(), False

        async def send_while_signed_in(message: Message) -> None:
            nonlocal checked_at, is_events
            if message["type"] == "http.response.start":
                is_events = Headers(raw=message["headers"]).get("content-type", "").startswith("text/event-stream")
            elif is_events and self._services.clock() - checked_at >= STREAM_CHECKED_EVERY:
                checked_at = self._services.clock()
                signed_in = await self._find(token, is_use=False)
                project_id = scope["state"].get(STREAM_PROJECT_STATE)
                if signed_in is None or (project_id and project_id not in signed_in.actor.project_ids):
                    await send({"type": "http.response.body", "body": b"", "more_body": False})
                    raise ClientDisconnect
            await send(message)

        return send_while_signed_in

    def _require_same_site(
        self, scope: Scope, headers: Headers, cookie_session: SignedIn | None, *, is_bearer: bool
    ) -> None:
        """Refuse what another site makes a browser send. Raises `CrossSiteRequest`."""
        origin, fetched_from = headers.get("origin"), headers.get("sec-fetch-site")
        # The browser's own word, which no page can write: it stands in for an Origin that the referrer policy hid.
        is_same_origin = fetched_from == "same-origin"
        if origin is not None and not (origin == "null" and is_same_origin):
            if not self._own.is_own_origin(origin, scope, headers):
                raise CrossSiteRequest("the request comes from another origin than this address or a public origin")
        elif fetched_from not in (None, "same-origin", "none"):
            raise CrossSiteRequest("the request comes from another site")
        if cookie_session is None:
            return  # signing in, or a program that sends its token itself: nothing rides on a cookie
        if scope["path"].startswith("/api/"):
            sent = headers.get(CSRF_HEADER, "")
            if not hmac.compare_digest(sent.encode(), cookie_session.csrf_token.encode()):
                raise CrossSiteRequest(f"a changing request needs the session's token in {CSRF_HEADER}")
        elif origin is None and not is_same_origin:
            raise CrossSiteRequest("a changing request needs an Origin")


class _OwnAddresses:
    """Under which names this server may be spoken to.

    A name that an attacker's DNS points at us would make the attacker's page our own origin, so a name counts only if
    it is set up. Literal addresses and localhost cannot be pointed elsewhere.
    """

    def __init__(self, settings: Settings) -> None:
        self._origins = frozenset(origin.rstrip("/").lower() for origin in settings.public_origins)
        names = {urlsplit(origin).hostname for origin in self._origins} | {settings.host.lower(), "localhost"}
        self._names = frozenset(name for name in names if name)

    def require_host(self, host: str) -> None:
        """Refuse a request to a name that is not ours. Raises `UnknownHost`."""
        try:
            name = urlsplit(f"//{host}").hostname or ""
            if name in self._names:
                return
            ipaddress.ip_address(name)
        except ValueError:
            raise UnknownHost(
                "this server does not go by the name in the request's Host header; SERPENS_PUBLIC_ORIGINS lists"
                " the origins under which it is reached"
            ) from None

    def is_own_origin(self, origin: str, scope: Scope, headers: Headers) -> bool:
        """Whether a page of this origin is one of ours: the address that the request was sent to, or a public one."""
        scheme = {"ws": "http", "wss": "https"}.get(scope["scheme"], scope["scheme"])
        return origin.lower() in self._origins or origin.lower() == f"{scheme}://{headers.get('host', '')}".lower()


def is_open_address(method: str, path: str) -> bool:
    """Whether nobody needs to be signed in."""
    return (method, path) in OPEN or (method in ("GET", "HEAD") and path.startswith(OPEN_FOLDER))


def is_closed_gradio_address(path: str) -> bool:
    """Whether Gradio would answer and must not."""
    if path.startswith(GRADIO_API.rstrip("/")):
        return GRADIO_OPEN.fullmatch(path) is None
    return GRADIO_CLOSED.fullmatch(path) is not None


def require_plain_path(scope: Scope) -> None:
    """Refuse a path that, decoded once or again, climbs, starts over at a root, or holds a backslash or a control.

    Raises:
        NotFound: No address of ours looks like that, so nothing is there.
    """
    path: str = scope["path"]
    raw = scope.get("raw_path") or path.encode()
    candidates = [path, raw.decode("latin-1").split("?", 1)[0]]
    for candidate in candidates:
        for _ in range(_DECODINGS):
            if _climbs(candidate):
                raise NotFound("there is nothing at this address")
            candidate, before = unquote(candidate), candidate
            if candidate == before:
                break
        else:
            raise NotFound("there is nothing at this address")


def _climbs(path: str) -> bool:
    segments = path.split("/")
    has_root_inside = "//" in path or re.search(r"(^|/)[A-Za-z]:(/|$)", path) is not None
    has_control = any(ord(letter) < 32 or ord(letter) == 127 for letter in path)
    return "\\" in path or has_root_inside or has_control or "." in segments or ".." in segments


def _limited(scope: Scope, receive: Receive) -> Receive:
    """Stop taking a body that is larger than any request of its kind."""
    is_known = scope["state"][SESSION_STATE] is not None
    if scope["type"] != "http" or (is_known and _takes_files(scope)):
        return receive
    at_most = BODY_BYTES_AT_MOST if is_known else OPEN_BODY_BYTES_AT_MOST
    taken = 0

    async def receive_limited() -> Message:
        nonlocal taken
        message = await receive()
        taken += len(message.get("body", b""))
        if taken > at_most:
            raise HTTPException(413)  # what FastAPI passes on from where it reads the body
        return message

    return receive_limited


def _takes_files(scope: Scope) -> bool:
    """Whether the route streams this body."""
    is_multipart = Headers(scope=scope).get("content-type", "").lower().startswith("multipart/form-data")
    return is_multipart and scope["method"] == "POST" and FILES_ADDRESS.fullmatch(scope["path"]) is not None


def _token_of(headers: Headers) -> tuple[str | None, bool]:
    """The session token that the request carries, and whether a browser sent it by itself."""
    kind, _, value = headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer" and value:
        token, is_cookie = value.strip(), False
    else:
        token, is_cookie = cookie_parser("; ".join(headers.getlist("cookie"))).get(SESSION_COOKIE, ""), True
    return (token if 0 < len(token) <= _TOKEN_LENGTH_AT_MOST else None), is_cookie


async def _refuse(scope: Scope, receive: Receive, send: Send, refusal: PlatformError) -> None:
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": 1008})
        return
    response: Response = platform_response(scope, refusal)
    if isinstance(refusal, NotSignedIn) and _is_page_request(scope):
        response = RedirectResponse(scope.get("root_path", "") + LOGIN_PAGE, status_code=303)
    await response(scope, receive, send)


def _is_page_request(scope: Scope) -> bool:
    is_api = scope["path"].startswith(("/api/", GRADIO_API))
    return scope["method"] == "GET" and not is_api and "text/html" in Headers(scope=scope).get("accept", "")
