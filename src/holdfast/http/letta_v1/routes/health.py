"""Is the server alive, and can it work (wire-v1 §2.1)? These routes never need a password."""

from typing import Literal

from fastapi import APIRouter, Request, Response

from holdfast import __version__
from holdfast.errors import DiskFull
from holdfast.http.dependencies import ServicesDep
from holdfast.http.json_response import describe_response, json_response
from holdfast.http.letta_v1.schemas.health import Health
from holdfast.http.readiness import Readiness
from holdfast.ports.services import Services

router = APIRouter(prefix="/v1", tags=["health"])
# The same under the path that old clients use.
latest_router = APIRouter(prefix="/latest", include_in_schema=False)


@latest_router.get("/health/")
@router.get("/health/", responses=describe_response(Health))
async def check_health(services: ServicesDep) -> Response:
    return _answer(services, "ok")


@latest_router.get("/ready/")
@router.get(
    "/ready/", responses=describe_response(Health) | describe_response(Health, 503, "Not ready")
)
async def check_ready(request: Request, services: ServicesDep) -> Response:
    """Ready means that the store can be read and written."""
    readiness: Readiness = request.app.state.readiness
    match await readiness.find_fault(services.store):
        case None:
            return _answer(services, "ok")
        case DiskFull():
            return _answer(services, "disk full", 503)
        case _:
            return _answer(services, "unavailable", 503)


def _answer(services: Services, status: str, code: int = 200) -> Response:
    notifications: Literal["ok", "polling"] = "ok" if services.bell.is_connected else "polling"
    return json_response(Health(__version__, status, notifications), code)
