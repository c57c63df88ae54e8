"""User providers. Their keys are encrypted by ``cipher``."""

from collections.abc import Sequence
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Connection, delete, insert, select, update

from holdfast.adapters.store import tables
from holdfast.adapters.store.cipher import Cipher
from holdfast.adapters.store.columns import to_json
from holdfast.adapters.store.paging import PagedList
from holdfast.adapters.store.row_mapper import RowMapper
from holdfast.core.providers import Keys, Provider, ProviderQuery
from holdfast.errors import NotFound

_providers = tables.providers

PROVIDER = RowMapper(Provider, _providers, stored_elsewhere=("keys",))
_columns = (*PROVIDER.columns, _providers.c.encrypted_keys)

_paged_list = PagedList(
    "Provider",
    _providers.c.id,
    organization_id=_providers.c.organization_id,
    orders={"created_at": _providers.c.created_at},
)


class SqlProviders:
    def __init__(self, connection: Connection, cipher: Cipher) -> None:
        self._connection = connection
        self._cipher = cipher

    def add(self, provider: Provider) -> None:
        self._connection.execute(insert(_providers), self._to_row(provider))

    def get(self, organization_id: str, provider_id: str) -> Provider:
        row = self._connection.execute(
            select(*_columns).where(*_has_id(organization_id, provider_id))
        ).first()
        if row is None:
            raise _not_found(provider_id)
        return self._from_row(row)

    def find_by_name(self, organization_id: str, name: str) -> Provider | None:
        row = self._connection.execute(
            select(*_columns).where(
                _providers.c.organization_id == organization_id, _providers.c.name == name
            )
        ).first()
        return None if row is None else self._from_row(row)

    def save(self, provider: Provider) -> None:
        saved = self._connection.execute(
            update(_providers)
            .where(*_has_id(provider.organization_id, provider.id))
            .values(self._to_row(provider))
        )
        if saved.rowcount == 0:
            raise _not_found(provider.id)

    def delete(self, organization_id: str, provider_id: str) -> None:
        deleted = self._connection.execute(
            delete(_providers).where(*_has_id(organization_id, provider_id))
        )
        if deleted.rowcount == 0:
            raise _not_found(provider_id)

    def list(self, organization_id: str, query: ProviderQuery) -> Sequence[Provider]:
        selected = select(*_columns)
        if query.name is not None:
            selected = selected.where(_providers.c.name == query.name)
        if query.provider_type is not None:
            selected = selected.where(_providers.c.provider_type == query.provider_type)
        rows = _paged_list.select_page(self._connection, selected, organization_id, query.page)
        return [self._from_row(row) for row in rows]

    def _to_row(self, provider: Provider) -> dict[str, Any]:
        encrypted = self._cipher.encrypt(to_json(provider.keys))
        return PROVIDER.to_row(provider) | {"encrypted_keys": encrypted}

    def _from_row(self, row: Sequence[Any]) -> Provider:
        keys = msgspec.json.decode(self._cipher.decrypt(row[-1]), type=Keys)
        return PROVIDER.from_row(row, keys=keys)


def _has_id(organization_id: str, provider_id: str) -> tuple[ColumnElement[bool], ...]:
    return _providers.c.organization_id == organization_id, _providers.c.id == provider_id


def _not_found(provider_id: str) -> NotFound:
    return NotFound(f"Provider with ID {provider_id} not found")
