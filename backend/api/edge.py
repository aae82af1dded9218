"""The outermost layer: security headers on every answer, one log line a request, and what nobody expected.

Pure ASGI, so that answers stream. An exception's text may hold what a file or a request said, so of an unexpected one
the log gets its type and the places it passed, under an id that the answer names.
"""

import secrets
import time
import traceback

import structlog
from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from backend.api.errors import CODE_STATE, error_response

log = structlog.get_logger(__name__)

# 'unsafe-inline' and 'unsafe-eval' are what Gradio's page and the codecs of the viewer need; all else is our origin.
CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'self'",
        "script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' blob: data:",
        "media-src 'self' blob: data:",
        "font-src 'self' data:",
        "connect-src 'self' blob: data:",
        "worker-src 'self' blob:",
        "object-src 'none'",
        "base-uri 'self'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    )
)
SECURITY_HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}


class Edge:
    """Wraps the whole application."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, whatever happens inside."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        answer = _Answer(scope, send)
        started_s = time.perf_counter()
        try:
            await self.app(scope, receive, answer.send)
        except ClientDisconnect:
            answer.status = 499  # who asked went away, or is signed in no more; nobody is there to answer
        # Not re-raised: the server would log it with its text. An answer that has begun is cut off by returning.
        except Exception as error:  # noqa: BLE001
            await answer.fail(error, receive)
        finally:
            if scope["type"] == "http":
                log.info(
                    "request",
                    method=scope["method"],
                    route=route_template(scope),
                    status=answer.status,
                    code=scope["state"].get(CODE_STATE),
                    duration_ms=round((time.perf_counter() - started_s) * 1000, 1),
                )


def route_template(scope: Scope) -> str:
    """The route as written in the code, or where the application it reached is mounted: never what was sent."""
    template = getattr(scope.get("route"), "path", None)
    return template or scope.get("root_path") or "(none)"


def describe_without_text(error: BaseException) -> list[str]:
    """The chain of an exception: its types, and the place (file, line, function) that each was raised at and passed."""
    lines: list[str] = []
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        lines.append(type(current).__qualname__)
        frames = traceback.extract_tb(current.__traceback__)
        lines += [f"  {frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)
    return lines


class _Answer:
    """Watches one answer go out and gives it its headers."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self.status: int | None = None
        self._scope, self._send = scope, send
        scope.setdefault("state", {})

    async def send(self, message: Message) -> None:
        """Pass a message on."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            headers.update(SECURITY_HEADERS)
            is_page = headers.get("content-type", "").startswith("text/html")
            if is_page or self._scope["path"].startswith("/api/"):
                headers["Cache-Control"] = "no-store"
        await self._send(message)

    async def fail(self, error: Exception, receive: Receive) -> None:
        """Answer 500 with an id that the log has too."""
        error_id = secrets.token_hex(6)
        log.error(
            "unexpected_error",
            error_id=error_id,
            route=route_template(self._scope),
            trace=describe_without_text(error),
        )
        if self._scope["type"] == "http" and self.status is None:
            response = error_response(
                self._scope,
                status=500,
                code="internal_error",
                message=f"something went wrong that nobody expected; the log has it as {error_id}",
                details={"id": error_id},
            )
            await response(self._scope, receive, self.send)
