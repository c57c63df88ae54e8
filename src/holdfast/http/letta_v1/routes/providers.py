"""User providers: providers whose key a user stored (wire-v1 §2.10)."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response

from holdfast.core.ids import Kind
from holdfast.core.paging import Page
from holdfast.core.providers import ProviderQuery
from holdfast.http.dependencies import ActorDep, ServicesDep
from holdfast.http.json_body import JsonRoute
from holdfast.http.json_response import describe_response, json_response, list_response
from holdfast.http.letta_v1.from_wire.providers import provider_form
from holdfast.http.letta_v1.parameters.ids import ProviderId
from holdfast.http.letta_v1.parameters.paging import paging
from holdfast.http.letta_v1.schemas.providers import (
    Provider,
    ProviderCheck,
    ProviderCreate,
    ProviderMessage,
    ProviderUpdate,
)
from holdfast.http.letta_v1.to_wire.providers import provider_state
from holdfast.usecases import providers

router = APIRouter(prefix="/v1/providers", tags=["providers"], route_class=JsonRoute)


@router.get("/", responses=describe_response(list[Provider]))
async def list_providers(
    services: ServicesDep,
    actor: ActorDep,
    page: Annotated[Page, Depends(paging(Kind.PROVIDER, limit=50))],
    name: Annotated[str | None, Query(description="The whole name.")] = None,
    provider_type: str | None = None,
) -> Response:
    query = ProviderQuery(page=page, name=name, provider_type=provider_type)
    found = await providers.list_page(services, actor, query)
    return await list_response(found, provider_state)


@router.post("/", responses=describe_response(Provider))
async def create_provider(body: ProviderCreate, services: ServicesDep, actor: ActorDep) -> Response:
    """Create a provider. Its models are `<name>/<model>`. Its keys are stored encrypted and never shown."""
    return json_response(
        provider_state(await providers.create(services, actor, provider_form(body)))
    )


@router.post("/check", responses=describe_response(ProviderMessage))
async def check_provider(body: ProviderCheck, services: ServicesDep, actor: ActorDep) -> Response:
    """Check whether a key works, without storing it."""
    checked = await providers.check(services, actor, provider_form(body))
    return json_response(_valid_key_message(checked.provider_type))


@router.get("/{provider_id}", responses=describe_response(Provider))
async def retrieve_provider(
    provider_id: ProviderId, services: ServicesDep, actor: ActorDep
) -> Response:
    return json_response(provider_state(await providers.retrieve(services, actor, provider_id)))


@router.patch("/{provider_id}", responses=describe_response(Provider))
async def modify_provider(
    provider_id: ProviderId, body: ProviderUpdate, services: ServicesDep, actor: ActorDep
) -> Response:
    changed = await providers.update(services, actor, provider_id, provider_form(body))
    return json_response(provider_state(changed))


@router.delete("/{provider_id}", responses=describe_response(ProviderMessage))
async def delete_provider(
    provider_id: ProviderId, services: ServicesDep, actor: ActorDep
) -> Response:
    await providers.delete(services, actor, provider_id)
    return json_response(ProviderMessage(f"Provider id={provider_id} successfully deleted"))


@router.post("/{provider_id}/check", responses=describe_response(ProviderMessage))
async def check_stored_provider(
    provider_id: ProviderId, services: ServicesDep, actor: ActorDep
) -> Response:
    """Check whether the stored key works."""
    checked = await providers.refresh(services, actor, provider_id)
    return json_response(_valid_key_message(checked.provider_type))


@router.patch("/{provider_id}/refresh", responses=describe_response(Provider))
async def refresh_provider(
    provider_id: ProviderId, services: ServicesDep, actor: ActorDep
) -> Response:
    """Check whether the stored key works, and store when it was checked."""
    return json_response(provider_state(await providers.refresh(services, actor, provider_id)))


def _valid_key_message(provider_type: str) -> ProviderMessage:
    return ProviderMessage(f"Valid api key for provider_type={provider_type}")
