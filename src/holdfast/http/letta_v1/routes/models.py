"""Models (wire-v1 §2.10)."""

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response
from pydantic import Field

from holdfast.http.dependencies import ActorDep, ServicesDep
from holdfast.http.json_response import describe_response, json_response, list_response
from holdfast.http.letta_v1.schemas.limits import MAX_NAMES
from holdfast.http.letta_v1.schemas.models import EmbeddingModel, Model
from holdfast.http.letta_v1.to_wire.models import embedding_state, model_state
from holdfast.usecases import models

router = APIRouter(prefix="/v1/models", tags=["models"])


@router.get("/", responses=describe_response(list[Model]))
async def list_models(
    services: ServicesDep,
    actor: ActorDep,
    provider_category: Annotated[
        Annotated[list[Literal["base", "byok"]], Field(max_length=MAX_NAMES)] | None, Query()
    ] = None,
    provider_name: str | None = None,
    provider_type: str | None = None,
) -> Response:
    wanted = provider_category or ["base", "byok"]
    found = list(await models.list_models(services)) if "base" in wanted else []
    if "byok" in wanted:
        found += await models.list_user_models(services, actor)
    shown = [model_state(info) for info in found if provider_name in (None, info.provider)]
    return json_response([state for state in shown if provider_type in (None, state.provider_type)])


@router.get("/embedding", responses=describe_response(list[EmbeddingModel]))
async def list_embedding_models(services: ServicesDep, _actor: ActorDep) -> Response:
    found = await models.list_embeddings(services)
    return await list_response(found, embedding_state)
