"""Is the server alive, and can it work (wire-v1 §2.1)? These routes never need a password."""

from fastapi import APIRouter, Response

from holdfast import __version__
from holdfast.errors import StoreUnavailable
from holdfast.http.dependencies import ServicesDep
from holdfast.http.json_response import describe_response, json_response
from holdfast.http.letta_v1.schemas.health import Health

router = APIRouter(prefix="/v1", tags=["health"])
# The same under the path that old clients use.
latest_router = APIRouter(prefix="/latest", include_in_schema=False)


@latest_router.get("/health/")
@router.get("/health/", responses=describe_response(Health))
async def check_health() -> Response:
    return json_response(Health(__version__, "ok"))


@latest_router.get("/ready/")
@router.get(
    "/ready/", responses=describe_response(Health) | describe_response(Health, 503, "Not ready")
)
async def check_ready(services: ServicesDep) -> Response:
    """Ready means that the store answers."""
    try:
        await services.store.read(lambda _tx: None)
    except StoreUnavailable:
        return json_response(Health(__version__, "unavailable"), 503)
    return json_response(Health(__version__, "ok"))
