"""The web process: the API of `backend.main` with the pages mounted on it."""

from pathlib import Path
from typing import Any

import gradio as gr
import structlog
import uvicorn
from fastapi import FastAPI, Request
from fastapi.staticfiles import StaticFiles
from starlette.responses import Response
from starlette.routing import Mount
from starlette.types import Scope

from app.client import ApiClient
from app.login import OfferedLogin, add_login
from app.pages import build_pages
from app.shell import ShellPage
from app.theme import serpens_theme
from backend.domain.errors import Misconfigured
from backend.main import create_app
from backend.settings import Settings
from backend.telemetry import configure_logging

BUNDLE = Path(__file__).parent / "static" / "viewer"
GRACE_S = 3

log = structlog.get_logger(__name__)


def create_web(settings: Settings, *, api: FastAPI | None = None) -> FastAPI:
    """The whole application of the web process.

    Args:
        settings: As read by the entry point.
        api: The API to mount the pages on; made from the settings where None.

    Raises:
        Misconfigured: The browser's bundle is not built, or demo mode on an address that is not loopback.
    """
    if not (BUNDLE / "shell.js").is_file():
        raise Misconfigured("the browser's bundle is not built: run .ci/bundle")
    app = api or create_app(settings)
    app.mount("/assets/viewer", Bundle(directory=BUNDLE), name="bundle")
    add_login(app, offered=[OfferedLogin(one.name, one.display_name, one.password) for one in app.state.sample_people])
    gr.mount_gradio_app(
        app,
        build_pages(ApiClient(app)),
        path="/",
        auth_dependency=_signed_in_user,
        theme=serpens_theme(),
        js="() => document.body.classList.add('dark')",
        run_history=False,
        footer_links=[],
        ssr_mode=False,
        pwa=False,
        mcp_server=False,
        enable_monitoring=False,
        # Files go through `/api/uploads`; what Gradio would take in itself may be no larger than this.
        max_file_size=1,
        app_kwargs={"docs_url": None, "redoc_url": None, "openapi_url": None},
    )
    # Gradio mounts itself last; there is no argument to put something before it.
    pages = next(route for route in reversed(app.router.routes) if isinstance(route, Mount))
    pages.app = ShellPage(pages.app)
    return app


class Bundle(StaticFiles):
    """The browser's files. Their names stay the same from build to build, so the browser asks whether they changed."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        """One file, or 304."""
        response = await super().get_response(path, scope)
        response.headers["Cache-Control"] = "no-cache"
        return response


def web_command() -> None:
    """Serve the pages and the API: one process, no reload, no access log but ours."""
    settings = Settings()
    configure_logging(as_json=settings.log_json)
    uvicorn.run(
        create_web(settings),
        host=settings.host,
        port=settings.port,
        log_config=None,
        access_log=False,
        server_header=False,
        # What a proxy says of the client is not believed: anybody could say it.
        proxy_headers=False,
        timeout_graceful_shutdown=GRACE_S,
    )


def _signed_in_user(request: Request) -> str | None:
    actor: Any = request.scope["state"]["actor"]
    return None if actor is None else str(actor.user_id)
