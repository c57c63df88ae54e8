"""The servers that share the database. Not in V1."""

from fastapi import APIRouter, Response

from holdfast.http.dependencies import ServicesDep
from holdfast.http.json_response import describe_response, json_response
from holdfast.http.letta_v1.schemas.servers import Deployment
from holdfast.http.letta_v1.to_wire.servers import api_deployment
from holdfast.usecases import servers

router = APIRouter(prefix="/v1/servers", tags=["servers"])


@router.get("/", responses=describe_response(Deployment))
async def list_servers(services: ServicesDep) -> Response:
    """All servers of the deployment, also those that died within the last hour, and the queue of runs."""
    return json_response(api_deployment(await servers.load_deployment(services)))
