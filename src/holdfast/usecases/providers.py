"""User providers, whose keys a user stored (BYOK). Stored keys are never returned (wire-v1 §2.10)."""

import re
from collections.abc import Sequence

from msgspec import Struct, structs

from holdfast.core.agents import Actor
from holdfast.core.ids import Kind
from holdfast.core.paging import Page
from holdfast.core.providers import (
    NAME_PATTERN,
    Keys,
    Provider,
    ProviderQuery,
)
from holdfast.errors import AlreadyExists, InvalidArgument
from holdfast.ports.model import Catalogue
from holdfast.ports.services import Services
from holdfast.ports.store import Transaction

# Per organization. Listing models sends a request to each of them.
MAX_PROVIDERS = 50

ALL_PROVIDERS = ProviderQuery(page=Page(limit=MAX_PROVIDERS))


class ProviderForm(Struct, frozen=True, kw_only=True):
    """The input for creating or updating a provider. None leaves a stored value unchanged."""

    name: str | None = None
    provider_type: str | None = None
    api_key: str | None = None
    access_key: str | None = None
    base_url: str | None = None
    region: str | None = None
    api_version: str | None = None


async def create(services: Services, actor: Actor, form: ProviderForm) -> Provider:
    provider = _build_provider(services, actor, form)
    _check_name(services, provider.name)
    services.catalogue.with_user_provider(provider)

    def work(tx: Transaction) -> None:
        if len(tx.providers.list(actor.organization_id, ALL_PROVIDERS)) >= MAX_PROVIDERS:
            raise InvalidArgument(
                f"There are {MAX_PROVIDERS} providers already, and no more than that. Delete one first."
            )
        tx.providers.add(provider)

    await services.store.write(work)
    return provider


async def retrieve(services: Services, actor: Actor, provider_id: str) -> Provider:
    return await services.store.read(
        lambda tx: tx.providers.get(actor.organization_id, provider_id)
    )


async def list_page(services: Services, actor: Actor, query: ProviderQuery) -> Sequence[Provider]:
    return await services.store.read(lambda tx: tx.providers.list(actor.organization_id, query))


async def update(
    services: Services, actor: Actor, provider_id: str, form: ProviderForm
) -> Provider:
    """Update a provider. Its name and type cannot change: handles contain the name, and the keys belong to the type."""
    now = services.clock.now()

    def work(tx: Transaction) -> Provider:
        before = tx.providers.get(actor.organization_id, provider_id)
        changed = structs.replace(_apply_form(before, form), updated_at=now, last_synced=None)
        services.catalogue.with_user_provider(changed)
        tx.providers.save(changed)
        return changed

    return await services.store.write(work)


async def delete(services: Services, actor: Actor, provider_id: str) -> None:
    """Delete a provider. The next message to an agent that uses one of its models fails."""

    def work(tx: Transaction) -> None:
        tx.providers.delete(actor.organization_id, provider_id)

    await services.store.write(work)


async def check(services: Services, actor: Actor, form: ProviderForm) -> Provider:
    """Check keys against the provider without storing them."""
    provider = _build_provider(services, actor, form)
    await services.catalogue.verify(provider)
    return provider


async def refresh(services: Services, actor: Actor, provider_id: str) -> Provider:
    """Check the stored keys against the provider, and store the time of the check."""
    provider = await retrieve(services, actor, provider_id)
    await services.catalogue.verify(provider)
    now = services.clock.now()

    def work(tx: Transaction) -> Provider:
        seen = structs.replace(
            tx.providers.get(actor.organization_id, provider_id), last_synced=now
        )
        tx.providers.save(seen)
        return seen

    return await services.store.write(work)


async def catalogue_for(services: Services, actor: Actor, handle: str | None) -> Catalogue:
    """The catalogue that knows this handle, including the user provider that the handle names, if any."""
    if handle is None or not _may_be_user_provider(services, handle):
        return services.catalogue
    return await services.store.read(
        lambda tx: find_catalogue(tx, services, actor.organization_id, handle)
    )


def find_catalogue(
    tx: Transaction, services: Services, organization_id: str, handle: str
) -> Catalogue:
    """The same as ``catalogue_for``, within a transaction."""
    if not _may_be_user_provider(services, handle):
        return services.catalogue
    provider = tx.providers.find_by_name(organization_id, handle.partition("/")[0])
    return (
        services.catalogue if provider is None else services.catalogue.with_user_provider(provider)
    )


def _may_be_user_provider(services: Services, handle: str) -> bool:
    return not services.catalogue.is_reserved(handle.partition("/")[0])


def _build_provider(services: Services, actor: Actor, form: ProviderForm) -> Provider:
    now = services.clock.now()
    if not form.provider_type or not form.api_key:
        raise InvalidArgument("A provider needs its provider_type and its api_key.")
    return Provider(
        id=services.ids.new_id(Kind.PROVIDER),
        organization_id=actor.organization_id,
        name=form.name or form.provider_type,
        provider_type=form.provider_type,
        keys=Keys(api_key=form.api_key, access_key=form.access_key),
        created_at=now,
        updated_at=now,
        base_url=form.base_url,
        region=form.region,
        api_version=form.api_version,
    )


def _apply_form(provider: Provider, form: ProviderForm) -> Provider:
    _check_keys_stay(provider, form)
    keys = Keys(
        api_key=form.api_key or provider.keys.api_key,
        access_key=form.access_key or provider.keys.access_key,
    )
    return structs.replace(
        provider,
        keys=keys,
        base_url=form.base_url or provider.base_url,
        region=form.region or provider.region,
        api_version=form.api_version or provider.api_version,
    )


def _check_keys_stay(provider: Provider, form: ProviderForm) -> None:
    """Whoever may change a provider need not know its keys, and must not get them sent to an address of their own."""
    before = (provider.base_url, provider.region)
    is_moved = (form.base_url or before[0], form.region or before[1]) != before
    has_keys = form.api_key and (form.access_key or not provider.keys.access_key)
    if is_moved and not has_keys:
        keys = "api_key and access_key" if provider.keys.access_key else "api_key"
        raise InvalidArgument(
            f"The stored keys are not sent to another address. To change base_url or region, send {keys} again too."
        )


def _check_name(services: Services, name: str) -> None:
    if services.catalogue.is_reserved(name):
        raise AlreadyExists(
            f"'{name}' is the name of a provider that the server has. Give yours another name."
        )
    if re.fullmatch(NAME_PATTERN, name) is None:
        raise InvalidArgument(
            "A provider's name has letters, digits, '_', '-' and '.', at most 50, and begins with a letter "
            "or a digit: it is the first part of its models' handles."
        )
