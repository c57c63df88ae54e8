"""User providers: accounts of a known provider that users store under a name and with a key of their own (BYOK).

A user provider has its type's public address or one that the operator allows, so that users cannot make the server
connect to hosts in a private network.
"""

import re
from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from holdfast.adapters.models.accounts import Account, ProviderSettings
from holdfast.adapters.models.handles import split_handle
from holdfast.adapters.models.providers.row import ProviderRow
from holdfast.adapters.models.providers.table import PROVIDERS
from holdfast.core.models import EmbeddingInfo, ModelChoice, ModelInfo
from holdfast.core.providers import Provider
from holdfast.errors import InvalidArgument
from holdfast.ports.model import Catalogue

_REGION = "region"
# One label of a host name: a provider's address has the region in it.
_REGION_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")


def build_account(provider: Provider, settings: ProviderSettings) -> Account:
    """How the user's account is reached. InvalidArgument if it cannot be reached, or is not allowed."""
    row = PROVIDERS.get(provider.provider_type)
    if row is None:
        raise InvalidArgument(
            f"There is no provider_type '{provider.provider_type}'. There are: {', '.join(sorted(PROVIDERS))}."
        )
    if row.user_key_refusal is not None:
        raise InvalidArgument(row.user_key_refusal)
    if not row.is_installed:
        raise InvalidArgument(row.setup_hint)
    if provider.base_url is None and row.address is None and not row.has_regional_address:
        raise InvalidArgument(f"A provider of type '{row.name}' needs its base_url.")
    return Account(
        # A key pair signs requests; its secret half is never sent.
        "" if _has_key_pair(provider, row) else provider.keys.api_key,
        _check_address(provider, row, settings),
        row.name,
        options=_account_options(provider, row),
        owner=f"{provider.id}@{provider.updated_at.isoformat()}",
    )


def _check_address(provider: Provider, row: ProviderRow, settings: ProviderSettings) -> str | None:
    named = (provider.base_url or "").rstrip("/")
    allowed = {address.rstrip("/") for address in settings.allowed_model_endpoints}
    if not named or named == row.address:
        return None
    if named not in allowed:
        raise InvalidArgument(
            f"base_url {named} is not {row.name}'s own: the operator must allow it with "
            "HOLDFAST_ALLOWED_MODEL_ENDPOINTS."
        )
    return named


def _account_options(provider: Provider, row: ProviderRow) -> dict[str, str | None]:
    given: dict[str, str | None] = {
        "api_version": provider.api_version,
        _REGION: provider.region,
    }
    if row.key_pair is not None and _has_key_pair(provider, row):
        access, secret = row.key_pair
        given |= {access: provider.keys.access_key, secret: provider.keys.api_key}
    if _REGION in row.option_names:
        _check_region(provider, row)
    return {name: given.get(name) for name in row.option_names}


def _check_region(provider: Provider, row: ProviderRow) -> None:
    if not provider.region:
        raise InvalidArgument(f"A provider of type '{row.name}' needs its region.")
    if not _REGION_NAME.fullmatch(provider.region):
        raise InvalidArgument("A region has lower-case letters, digits and hyphens only.")


def _has_key_pair(provider: Provider, row: ProviderRow) -> bool:
    return row.key_pair is not None and bool(provider.keys.access_key)


def with_provider_type(choice: ModelChoice, provider: Provider) -> ModelChoice:
    """The choice with a handle of the provider's type, which the wires know."""
    return replace(choice, handle=f"{provider.provider_type}/{choice.name}", endpoint=None)


class UserProviderCatalogue:
    """A catalogue, and the models of one user provider."""

    def __init__(self, catalogue: Catalogue, user_catalogue: Catalogue, provider: Provider) -> None:
        self._catalogue = catalogue
        # Has the user's account in place of the operator's.
        self._user_catalogue = user_catalogue
        self._provider = provider

    async def list_models(self) -> Sequence[ModelInfo]:
        infos = await self._user_catalogue.list_models()
        kind = self._provider.provider_type
        return [self._to_user_info(info) for info in infos if info.provider == kind]

    async def list_embeddings(self) -> Sequence[EmbeddingInfo]:
        return await self._catalogue.list_embeddings()

    async def prepare(self, handle: str, *, settings: bool = False) -> None:
        if self._is_user_handle(handle):
            await self._user_catalogue.prepare(self._to_type_handle(handle), settings=settings)
        else:
            await self._catalogue.prepare(handle, settings=settings)

    def find(self, handle: str, *, must_be_listed: bool = False) -> ModelInfo:
        if not self._is_user_handle(handle):
            return self._catalogue.find(handle, must_be_listed=must_be_listed)
        type_handle = self._to_type_handle(handle)
        return self._to_user_info(
            self._user_catalogue.find(type_handle, must_be_listed=must_be_listed)
        )

    def check(self, choice: ModelChoice) -> None:
        if self._is_user_handle(choice.handle):
            self._user_catalogue.check(with_provider_type(choice, self._provider))
        else:
            self._catalogue.check(choice)

    def with_warnings(self, choice: ModelChoice) -> ModelChoice:
        if not self._is_user_handle(choice.handle):
            return self._catalogue.with_warnings(choice)
        checked = self._user_catalogue.with_warnings(with_provider_type(choice, self._provider))
        return replace(checked, handle=choice.handle, provider_type=self._provider.provider_type)

    async def find_embedding(self, handle: str) -> EmbeddingInfo | None:
        return await self._catalogue.find_embedding(handle)

    def with_user_provider(self, provider: Provider) -> Catalogue:
        return self._catalogue.with_user_provider(provider)

    async def verify(self, provider: Provider) -> None:
        await self._catalogue.verify(provider)

    def default_handle(self) -> str | None:
        return self._catalogue.default_handle()

    def default_embedding(self) -> str | None:
        return self._catalogue.default_embedding()

    def summary_handle(self, handle: str) -> str:
        return self._catalogue.summary_handle(handle)

    def is_reserved(self, name: str) -> bool:
        return self._catalogue.is_reserved(name)

    def _is_user_handle(self, handle: str) -> bool:
        return split_handle(handle)[0] == self._provider.name

    def _to_type_handle(self, handle: str) -> str:
        return f"{self._provider.provider_type}/{split_handle(handle)[1]}"

    def _to_user_info(self, info: ModelInfo) -> ModelInfo:
        return replace(
            info,
            handle=f"{self._provider.name}/{info.name}",
            provider=self._provider.name,
            provider_type=self._provider.provider_type,
        )
