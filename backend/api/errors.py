"""Every failure as `{"error": {"code", "message", "details"}}`, and nothing of what was submitted in it."""

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.types import Scope

from backend.domain.errors import InvalidRequest, NotFound, PlatformError, TooManyAttempts

# The code of a refusal, put into `scope["state"]` for the request log.
CODE_STATE = "error_code"

# One text for all: a message of its own would tell a thing that is hidden from one that does not exist (casebook C69).
NOTHING_HERE = "there is nothing here, or nothing that you may see"

_HTTP_CODES = {
    404: (NotFound.code, NOTHING_HERE),
    405: ("method_not_allowed", "this address does not take this method"),
    413: ("request_too_large", "the request's body is larger than this address takes"),
}


def error_response(
    scope: Scope,
    *,
    status: int,
    code: str,
    message: str,
    details: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    """The one form of an error; its code is noted for the request log."""
    scope.setdefault("state", {})[CODE_STATE] = code
    content = {"error": {"code": code, "message": message, "details": dict(details or {})}}
    return JSONResponse(content, status_code=status, headers=dict(headers or {}))


def platform_response(scope: Scope, error: PlatformError) -> JSONResponse:
    """What we raised on purpose."""
    if isinstance(error, NotFound):
        return error_response(scope, status=error.http_status, code=error.code, message=NOTHING_HERE)
    headers = {"Retry-After": str(error.details["retry_after_s"])} if isinstance(error, TooManyAttempts) else {}
    return error_response(
        scope,
        status=error.http_status,
        code=error.code,
        message=error.message,
        details=error.details,
        headers=headers,
    )


def add_error_handlers(app: FastAPI) -> None:
    """Translate what the routes raise. Anything unexpected is left to `backend.api.edge`."""
    app.add_exception_handler(PlatformError, _on_platform_error)
    app.add_exception_handler(RequestValidationError, _on_invalid_request)
    app.add_exception_handler(HTTPException, _on_http_error)


async def _on_platform_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, PlatformError)
    return platform_response(request.scope, error)


async def _on_invalid_request(request: Request, error: Exception) -> JSONResponse:
    """Names the fields and what is wrong with them by pydantic's own word for it; the values stay where they are."""
    assert isinstance(error, RequestValidationError)
    fields = [{"field": _field(problem), "problem": str(problem["type"])} for problem in error.errors()]
    named = "; ".join(f"{field['field']}: {field['problem']}" for field in fields)
    return error_response(
        request.scope,
        status=InvalidRequest.http_status,
        code=InvalidRequest.code,
        message=f"the request does not fit what this address takes: {named}",
        details={"fields": fields},
    )


def _field(problem: Mapping[str, Any]) -> str:
    """Where a problem is. An unknown field's name is the sender's own text, so its parent stands for it."""
    place = problem["loc"][:-1] if problem["type"] == "extra_forbidden" else problem["loc"]
    return ".".join(str(part) for part in place)


async def _on_http_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    code, message = _HTTP_CODES.get(error.status_code, ("http_error", "the request cannot be answered"))
    return error_response(
        request.scope, status=error.status_code, code=code, message=message, headers=error.headers or {}
    )
