"""Providers that users bring: their keys go in and never come out (wire-v1 §2.10)."""

import asyncio
import re
from collections.abc import Sequence

from msgspec import Struct, structs

from holdfast.core.agents import Actor
from holdfast.core.ids import Kind
from holdfast.core.models import ModelInfo
from holdfast.core.paging import Page
from holdfast.core.providers import (
    KNOWN,
    NAME_PATTERN,
    Keys,
    Provider,
    ProviderQuery,
    is_brought,
)
from holdfast.errors import AlreadyExists, InvalidArgument
from holdfast.ports.house import House
from holdfast.ports.model import Catalogue
from holdfast.ports.store import Transaction

# Of an organisation's own: a list of models asks them all.
MAX_PROVIDERS = 50

_ALL = ProviderQuery(page=Page(limit=MAX_PROVIDERS))


class ProviderForm(Struct, frozen=True, kw_only=True):
    """What a caller says of a provider. None leaves what is stored as it is."""

    name: str | None = None
    provider_type: str | None = None
    api_key: str | None = None
    access_key: str | None = None
    base_url: str | None = None
    region: str | None = None
    api_version: str | None = None


async def create(house: House, actor: Actor, form: ProviderForm) -> Provider:
    provider = _drafted(house, actor, form)
    _check_name(provider.name)
    house.catalogue.including(provider)

    def work(tx: Transaction) -> None:
        if len(tx.providers.list(actor.organization_id, _ALL)) >= MAX_PROVIDERS:
            raise InvalidArgument(
                f"There are {MAX_PROVIDERS} providers already, and no more than that. Delete one first."
            )
        tx.providers.add(provider)

    await house.store.write(work)
    return provider


async def retrieve(house: House, actor: Actor, provider_id: str) -> Provider:
    return await house.store.read(lambda tx: tx.providers.get(actor.organization_id, provider_id))


async def list_page(house: House, actor: Actor, query: ProviderQuery) -> Sequence[Provider]:
    return await house.store.read(lambda tx: tx.providers.list(actor.organization_id, query))


async def update(house: House, actor: Actor, provider_id: str, form: ProviderForm) -> Provider:
    """Its name and type stay: agents name its models by the one, and its keys belong to the other."""
    now = house.clock.now()

    def work(tx: Transaction) -> Provider:
        before = tx.providers.get(actor.organization_id, provider_id)
        changed = structs.replace(_with(before, form), updated_at=now, last_synced=None)
        house.catalogue.including(changed)
        tx.providers.save(changed)
        return changed

    return await house.store.write(work)


async def delete(house: House, actor: Actor, provider_id: str) -> None:
    """Agents that use its models say so when they are next spoken to."""

    def work(tx: Transaction) -> None:
        tx.providers.delete(actor.organization_id, provider_id)

    await house.store.write(work)


async def check(house: House, actor: Actor, form: ProviderForm) -> Provider:
    """See whether keys work that are not stored."""
    provider = _drafted(house, actor, form)
    await house.catalogue.verify(provider)
    return provider


async def refresh(house: House, actor: Actor, provider_id: str) -> Provider:
    """See whether the stored keys work, and note when they did."""
    provider = await retrieve(house, actor, provider_id)
    await house.catalogue.verify(provider)
    now = house.clock.now()

    def work(tx: Transaction) -> Provider:
        seen = structs.replace(
            tx.providers.get(actor.organization_id, provider_id), last_synced=now
        )
        tx.providers.save(seen)
        return seen

    return await house.store.write(work)


async def models(house: House, actor: Actor) -> list[ModelInfo]:
    """What all providers that the organisation brought have; they are asked side by side."""
    found = await list_page(house, actor, _ALL)
    listed = await asyncio.gather(*(_models_of(house, provider) for provider in found))
    return [info for infos in listed for info in infos]


async def _models_of(house: House, provider: Provider) -> Sequence[ModelInfo]:
    try:
        return await house.catalogue.including(provider).models()
    except InvalidArgument:
        # It could be reached when it was brought; the operator has changed what is allowed.
        return ()


async def catalogue_for(house: House, actor: Actor, handle: str | None) -> Catalogue:
    """The catalogue in which the handle can be found: with the provider that a user brought, if it names one."""
    if handle is None or not is_brought(handle):
        return house.catalogue
    return await house.store.read(lambda tx: catalogue_in(tx, house, actor.organization_id, handle))


def catalogue_in(tx: Transaction, house: House, organization_id: str, handle: str) -> Catalogue:
    """The same within a transaction."""
    if not is_brought(handle):
        return house.catalogue
    provider = tx.providers.named(organization_id, handle.partition("/")[0])
    return house.catalogue if provider is None else house.catalogue.including(provider)


def _drafted(house: House, actor: Actor, form: ProviderForm) -> Provider:
    now = house.clock.now()
    if not form.provider_type or not form.api_key:
        raise InvalidArgument("A provider needs its provider_type and its api_key.")
    return Provider(
        id=house.ids.mint(Kind.PROVIDER),
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


def _with(provider: Provider, form: ProviderForm) -> Provider:
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


def _check_name(name: str) -> None:
    if name in KNOWN:
        raise AlreadyExists(
            f"'{name}' is the name of a provider that the server has. Give yours another name."
        )
    if re.fullmatch(NAME_PATTERN, name) is None:
        raise InvalidArgument(
            "A provider's name has letters, digits, '_', '-' and '.', at most 50, and begins with a letter "
            "or a digit: it is the first part of its models' handles."
        )
