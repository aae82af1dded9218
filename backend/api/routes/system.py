"""What state the installation is in."""

from collections.abc import Callable
from typing import Any

from fastapi import APIRouter

from backend.api.deps import CurrentServices, requires
from backend.domain.access import Permission
from backend.settings import Settings


def system_router(examine: Callable[[Settings], dict[str, Any]]) -> APIRouter:
    """The routes over an examination of the installation, which `backend.main` brings from the layer above."""
    router = APIRouter(tags=["system"])

    @router.get("/api/system", dependencies=[requires(Permission.SEE_SYSTEM)])
    def show_system(services: CurrentServices) -> dict[str, Any]:
        """Which bodies are active, what is wrong, and the mend."""
        return examine(services.settings)

    @router.get("/healthz")
    async def healthz() -> dict[str, str]:
        """The process answers."""
        return {"status": "ok"}

    return router
