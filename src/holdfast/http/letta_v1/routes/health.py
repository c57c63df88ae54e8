"""Is the server alive, and can it work (wire-v1 §2.1)? Never needs a password."""

from fastapi import APIRouter, Response
from msgspec import Struct

from holdfast import __version__
from holdfast.errors import StoreUnavailable
from holdfast.http.dependencies import ServicesDep
from holdfast.http.json_response import describe_response, json_response

router = APIRouter(tags=["health"])


class Health(Struct, frozen=True):
    version: str
    status: str


@router.get("/health/", responses=describe_response(Health))
async def check_health() -> Response:
    return json_response(Health(__version__, "ok"))


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
