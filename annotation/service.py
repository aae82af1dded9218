"""The `segmenter` process: pictures once by their hash, prompts by hash, masks back. `serpens segmenter` runs it.

Every route wants the shared token. Pictures are in memory only; logs hold counts, times and codes.
"""

import asyncio
import hmac
import json
import re
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Annotated, Any

import structlog
from fastapi import Depends, FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from annotation.cache import PictureCache
from annotation.prompt_queue import PromptQueue
from backend.domain import segmenter_wire as wire
from backend.domain.errors import FileTooLarge, InvalidRequest, NotSignedIn, PlatformError
from backend.domain.segmenter import CanonicalPicture, PictureUnknown, Segmenter, SegmenterBusy
from backend.settings import Settings
from backend.telemetry import configure_logging

log = structlog.get_logger(__name__)

_MAX_PROMPT_BYTES = 64 * 1024
_SHA256 = re.compile(r"[0-9a-f]{64}")


def create_service(segmenter: Segmenter, settings: Settings, *, warm_up: Callable[[], None] | None = None) -> FastAPI:
    """The service around one segmenter.

    Args:
        warm_up: Done once beside serving, so that the first box does not wait for the weights. That it fails is logged
            and shown by /healthz; what does not need the model goes on.
    """
    service = _Service(segmenter, settings)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        if warm_up is not None:
            threading.Thread(target=service.warm_up, args=(warm_up,), name="warm-up", daemon=True).start()
        yield
        service.queue.close()

    app = FastAPI(
        title="Serpens segmenter",
        lifespan=lifespan,
        dependencies=[Depends(_token_check(settings.segmenter_secret()))],
        openapi_url=None,
    )
    app.add_exception_handler(PlatformError, _on_platform_error)
    app.add_exception_handler(HTTPException, _on_http_error)
    app.add_exception_handler(RequestValidationError, _on_invalid_request)
    app.add_exception_handler(Exception, _on_unexpected)
    app.add_api_route("/healthz", service.health, methods=["GET"])
    app.add_api_route("/bodies", service.bodies, methods=["GET"])
    app.add_api_route("/concepts", service.concepts, methods=["GET"])
    app.add_api_route("/pictures", service.put_picture, methods=["POST"])
    app.add_api_route("/pictures/{sha256}/prepare", service.prepare, methods=["POST"])
    app.add_api_route("/pictures/{sha256}/segment", service.segment, methods=["POST"], response_class=Response)
    return app


def segmenter_command() -> None:
    """The segmenter process: turns boxes, points and names into masks."""
    import uvicorn

    from annotation.segmenters.embedded import EmbeddedSegmenter

    settings = Settings()
    configure_logging(as_json=settings.log_json)
    embedded = EmbeddedSegmenter()
    app = create_service(embedded, settings, warm_up=embedded.model.warm_up)
    log.info("segmenter_starting", port=settings.segmenter_port)
    uvicorn.run(
        app, host=settings.segmenter_host, port=settings.segmenter_port, log_config=None, access_log=False, workers=1
    )


class _Service:
    def __init__(self, segmenter: Segmenter, settings: Settings) -> None:
        self.segmenter = segmenter
        self.settings = settings
        self.pictures = PictureCache(settings.segmenter_cache_bytes)
        self.queue = PromptQueue(capacity=settings.segmenter_queue, timeout_s=settings.segmenter_timeout_s)
        self.warm_up_failure: str | None = None

    def warm_up(self, action: Callable[[], None]) -> None:
        """Run the warm-up and keep the code of its failure."""
        try:
            action()
        except PlatformError as error:
            self.warm_up_failure = error.code
            log.error("segmenter_warm_up_failed", code=error.code, message=error.message)

    async def health(self) -> dict[str, Any]:
        """Whether every body could be loaded."""
        return {"status": "ok" if self.warm_up_failure is None else "degraded", "code": self.warm_up_failure}

    async def bodies(self) -> dict[str, Any]:
        """Who would answer."""
        return {"bodies": [wire.body_to_json(body) for body in self.segmenter.bodies()]}

    async def concepts(self, modality: Annotated[str, Query(max_length=16)] = "") -> dict[str, Any]:
        """What can be found by name in pictures of a modality."""
        return {"concepts": list(self.segmenter.concepts(modality))}

    async def put_picture(self, request: Request) -> JSONResponse:
        """Keep a picture and say its name."""
        message = await _body(request, self.settings.segmenter_max_picture_bytes)
        sha256, picture = await asyncio.to_thread(_named_picture, message)
        self.pictures.put(sha256, picture, len(message))
        return JSONResponse({"sha256": sha256}, status_code=201)

    async def prepare(self, sha256: str) -> JSONResponse:
        """Encode a picture beside what else is done; left out where the queue is full."""
        picture = self._picture(sha256)
        try:
            self.queue.start(lambda: self.segmenter.prepare(picture))
        except SegmenterBusy:
            return JSONResponse({"state": "skipped"}, status_code=202)
        return JSONResponse({"state": "queued"}, status_code=202)

    async def segment(self, sha256: str, request: Request) -> Response:
        """Answer one prompt."""
        picture = self._picture(sha256)
        text = await _body(request, _MAX_PROMPT_BYTES)
        try:
            prompt = wire.prompt_from_json(json.loads(text))
        except ValueError as error:
            raise InvalidRequest("a prompt is JSON") from error
        answer = await self.queue.result(lambda: self.segmenter.segment(picture, prompt))
        log.info(
            "prompt_answered",
            prompt=type(prompt).__name__,
            body=answer.body.name,
            is_present=answer.is_present,
            duration_s=round(answer.seconds, 3),
        )
        return Response(await asyncio.to_thread(wire.encode_segmentation, answer), media_type=wire.MEDIA_TYPE)

    def _picture(self, sha256: str) -> CanonicalPicture:
        if _SHA256.fullmatch(sha256) is None:
            raise InvalidRequest("a picture is named by its SHA-256, 64 hex digits in lower case")
        picture = self.pictures.get(sha256)
        if picture is None:
            raise PictureUnknown(f"picture {sha256[:12]} is not held here: send it again", sha256=sha256)
        return picture


def _named_picture(message: bytes) -> tuple[str, CanonicalPicture]:
    return wire.picture_sha256(message), wire.decode_picture(message)


def _token_check(token: str) -> Callable[[Request], Awaitable[None]]:
    expected = f"Bearer {token}".encode()

    async def check(request: Request) -> None:
        given = request.headers.get("authorization", "").encode()
        if not hmac.compare_digest(given, expected):
            raise NotSignedIn("the segmenter answers calls that carry its token")

    return check


async def _body(request: Request, limit: int) -> bytes:
    """The request's body, refused as soon as it is over the limit."""
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > limit:
            raise FileTooLarge(f"this address takes at most {limit} bytes")
        parts.append(part)
    return b"".join(parts)


def _error(status: int, code: str, message: str, details: dict[str, Any] | None = None) -> JSONResponse:
    return JSONResponse({"error": {"code": code, "message": message, "details": details or {}}}, status_code=status)


async def _on_platform_error(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, PlatformError)
    if error.http_status >= 500:
        log.warning("prompt_failed", code=error.code)
    return _error(error.http_status, error.code, error.message, error.details)


async def _on_http_error(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    return _error(error.status_code, "not_found" if error.status_code == 404 else "invalid_request", str(error.detail))


async def _on_invalid_request(_request: Request, _error_: Exception) -> JSONResponse:
    return _error(InvalidRequest.http_status, InvalidRequest.code, "the request does not fit what this address takes")


async def _on_unexpected(_request: Request, error: Exception) -> JSONResponse:
    # uvicorn logs the traceback; the answer says no more than that.
    log.error("segmenter_error", kind=type(error).__name__)
    return _error(500, "internal_error", "the segmenter failed; its log says where")
