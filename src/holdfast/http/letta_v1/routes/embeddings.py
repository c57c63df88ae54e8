"""How much space vectors take (memory-v1 §4)."""

from typing import Annotated

from fastapi import APIRouter, Header, Response

from holdfast.errors import InvalidArgument
from holdfast.http.dependencies import ActorDep, ServicesDep
from holdfast.http.json_response import describe_response, json_response
from holdfast.usecases import vector_size

router = APIRouter(prefix="/v1/embeddings", tags=["embeddings"])

_UNITS = {"B": 1, "KB": 2**10, "MB": 2**20, "GB": 2**30, "TB": 2**40}


@router.get("/total_storage_size", responses=describe_response(float))
async def retrieve_total_storage_size(
    services: ServicesDep,
    actor: ActorDep,
    unit: Annotated[
        str, Header(alias="storage_unit", description=f"One of {', '.join(_UNITS)}.")
    ] = "GB",
) -> Response:
    """The size of all vectors."""
    if unit not in _UNITS:
        raise InvalidArgument(f"Unknown storage_unit {unit}; possible are: {', '.join(_UNITS)}.")
    size = await vector_size.count_bytes(services, actor)
    return json_response(size / _UNITS[unit])
