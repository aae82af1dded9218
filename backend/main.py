"""The web process's application: every route under `/api`, behind the guard."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from starlette.types import Receive, Scope, Send

from backend.api.edge import Edge
from backend.api.errors import add_error_handlers, platform_response
from backend.api.events import EventHub
from backend.api.guard import Guard
from backend.api.routes import accounts, feedback, masks, projects, runs, series, session, studies, system, uploads
from backend.doctor import examine
from backend.domain.errors import NotFound
from backend.domain.segmenter import Segmenter
from backend.queue import Queue
from backend.services.accounts import SAMPLE_PEOPLE, require_safe_demo
from backend.services.context import Clock, open_services, utc_now
from backend.settings import Settings


def create_app(
    settings: Settings, *, queue: Queue | None = None, segmenter: Segmenter | None = None, clock: Clock = utc_now
) -> FastAPI:
    """Put the application together. `app.main` mounts the pages on it.

    Raises:
        Misconfigured: Demo mode on an address that is not loopback.
    """
    require_safe_demo(settings)
    services = open_services(settings, queue=queue, segmenter=segmenter, clock=clock)
    hub = EventHub(services.notifier)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        hub.start()
        yield
        hub.stop()
        services.store.close()

    app = FastAPI(
        title="Serpens",
        description="Research use, not for diagnosis.",
        lifespan=lifespan,
        # The description of the API is for signed-in programs; the pages that show it load scripts from elsewhere.
        openapi_url="/api/openapi.json",
        docs_url=None,
        redoc_url=None,
        # FastAPI's own would hand request bodies and exception texts to whatever exporter the environment names.
        telemetry={
            "tracing": False,
            "metrics": False,
            "logs": False,
            "operation_spans": False,
            "auto_configure": False,
        },
    )
    app.state.services = services
    app.state.event_hub = hub
    # The sign-in page offers them; their passwords are public.
    app.state.sample_people = SAMPLE_PEOPLE if settings.demo else ()
    for router in (
        session.router,
        accounts.router,
        projects.router,
        system.system_router(examine),
        uploads.router,
        studies.router,
        series.router,
        runs.router,
        masks.router,
        feedback.router,
    ):
        app.include_router(router)
    app.mount("/api", _nothing_here)
    add_error_handlers(app)
    app.add_middleware(Guard, services=services)
    app.add_middleware(Edge)  # added last: the outermost
    return app


async def _nothing_here(scope: Scope, receive: Receive, send: Send) -> None:
    """An unknown address under `/api` is ours to answer, and not that of the pages mounted on the root."""
    await platform_response(scope, NotFound("there is nothing at this address"))(scope, receive, send)
