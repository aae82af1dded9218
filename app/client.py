"""The page's way to the API: a request inside the process that carries the caller's own session.

The app owns no credential: what a person may not do over HTTP they may not do here either.
"""

from typing import Any

import gradio as gr
import httpx
from starlette.types import ASGIApp

_TIMEOUT_S = 60.0


class ApiProblem(Exception):
    """The API refused; `code` is its stable one and the message is for people."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class ApiClient:
    """Calls `/api` of the application that the pages are mounted on."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def get(self, caller: gr.Request, path: str) -> Any:
        """The JSON at a path, as the caller sees it. Raises `ApiProblem`."""
        async with self._as(caller) as http:
            return _answer(await http.get(path))

    async def change(self, caller: gr.Request, method: str, path: str, json: dict[str, Any] | None = None) -> Any:
        """Change something as the caller; returns the answer's JSON, or None where it has none. Raises `ApiProblem`."""
        async with self._as(caller) as http:
            csrf_token = _answer(await http.get("/api/session"))["csrf_token"]
            return _answer(await http.request(method, path, json=json, headers={"X-CSRF-Token": csrf_token}))

    def _as(self, caller: gr.Request) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            transport=httpx.ASGITransport(app=self._app),
            base_url="http://localhost",
            headers={"cookie": caller.headers.get("cookie", "")},
            timeout=_TIMEOUT_S,
        )


def _answer(response: httpx.Response) -> Any:
    if response.is_success:
        return response.json() if response.content else None
    error = response.json()["error"]
    raise ApiProblem(error["code"], error["message"])
