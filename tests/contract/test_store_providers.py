"""User providers in the store: one per name, with encrypted keys."""

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace
from sqlalchemy import text
from tests.support.values import ident, moment

from holdfast.adapters.store.sqlite import SqliteStore
from holdfast.core.ids import DEFAULT_ORGANIZATION_ID
from holdfast.core.paging import Page
from holdfast.core.providers import Keys, Provider, ProviderQuery
from holdfast.errors import AlreadyExists, NotFound
from holdfast.ports.store import Store, Transaction

ORG = DEFAULT_ORGANIZATION_ID


def provider(number: int = 1, **fields: Any) -> Provider:
    values: dict[str, Any] = {
        "id": ident("provider", number),
        "organization_id": ORG,
        "name": f"mine-{number}",
        "provider_type": "openai",
        "keys": Keys(api_key="sk-very-secret", access_key="other-half"),
        "created_at": moment(number),
        "updated_at": moment(number),
    }
    return Provider(**values | fields)


async def test_a_provider_comes_back_with_all_its_fields(any_store: Store) -> None:
    stored = provider(
        base_url="https://api.example", region="eu", api_version="1", last_synced=moment(2)
    )
    await any_store.write(lambda tx: tx.providers.add(stored))

    assert await any_store.read(lambda tx: tx.providers.get(ORG, stored.id)) == stored
    assert await any_store.read(lambda tx: tx.providers.find_by_name(ORG, "mine-1")) == stored
    changed = replace(stored, keys=Keys(api_key="new"), updated_at=moment(3))
    await any_store.write(lambda tx: tx.providers.save(changed))
    assert await any_store.read(lambda tx: tx.providers.get(ORG, stored.id)) == changed


async def test_a_provider_of_another_organisation_is_not_found(any_store: Store) -> None:
    stored = provider()
    await any_store.write(lambda tx: tx.providers.add(stored))

    assert await any_store.read(lambda tx: tx.providers.find_by_name("org-other", "mine-1")) is None
    for work in (
        lambda tx: tx.providers.get("org-other", stored.id),
        lambda tx: tx.providers.delete("org-other", stored.id),
        lambda tx: tx.providers.save(replace(stored, organization_id="org-other")),
    ):
        with pytest.raises(NotFound):
            await any_store.write(work)


async def test_a_providers_name_is_unique_in_its_organisation(any_store: Store) -> None:
    await any_store.write(lambda tx: tx.providers.add(provider(1)))

    with pytest.raises(AlreadyExists, match="provider with this name"):
        await any_store.write(lambda tx: tx.providers.add(provider(2, name="mine-1")))
    await any_store.write(lambda tx: tx.providers.delete(ORG, provider(1).id))
    await any_store.write(lambda tx: tx.providers.add(provider(2, name="mine-1")))


async def test_providers_are_listed_newest_first_and_by_each_filter(any_store: Store) -> None:
    rows = [provider(1), provider(2, provider_type="anthropic"), provider(3)]

    def add_all(tx: Transaction) -> None:
        for row in rows:
            tx.providers.add(row)

    await any_store.write(add_all)

    async def list_names(**query: Any) -> list[str]:
        asked = ProviderQuery(page=Page(limit=10), **query)
        return [row.name for row in await any_store.read(lambda tx: tx.providers.list(ORG, asked))]

    assert await list_names() == ["mine-3", "mine-2", "mine-1"]
    assert await list_names(name="mine-2") == ["mine-2"]
    assert await list_names(provider_type="openai") == ["mine-3", "mine-1"]


async def test_keys_are_readable_neither_in_the_database_nor_in_a_log(store: SqliteStore) -> None:
    stored = provider(last_synced=moment(1) + timedelta(seconds=1))
    await store.write(lambda tx: tx.providers.add(stored))

    def dump(tx: Transaction) -> str:
        connection = tx.providers._connection  # type: ignore[attr-defined]  # what a thief would see
        return str(connection.execute(text("SELECT * FROM providers")).all())

    seen = await store.read(dump)
    assert "mine-1" in seen
    assert "sk-very-secret" not in seen + repr(stored)
    assert "other-half" not in seen + repr(stored)
