"""Providers that users bring: an account of a provider that Holdfast knows, under a name and with keys of their own.

A brought provider has its type's public address or one that the operator allows; so nobody makes the server reach
into a private network.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from holdfast.adapters.models import handles
from holdfast.adapters.models.handles import Account
from holdfast.adapters.models.providers.table import AZURE, BEDROCK, PROVIDERS, VERTEX
from holdfast.core.models import EmbeddingInfo, ModelChoice, ModelInfo
from holdfast.core.providers import Provider
from holdfast.errors import InvalidArgument
from holdfast.ports.model import Catalogue


def build_account(provider: Provider, settings: handles.ProviderSettings) -> Account:
    """How the user's account is reached. InvalidArgument if it cannot be, or may not."""
    row = PROVIDERS.get(provider.provider_type)
    if row is None:
        raise InvalidArgument(
            f"There is no provider_type '{provider.provider_type}'. There are: {', '.join(sorted(PROVIDERS))}."
        )
    if provider.provider_type == VERTEX:
        raise InvalidArgument(
            "google_vertex signs in as the server does, so nobody can bring a key for it. Use google_ai."
        )
    if not row.is_installed:
        raise InvalidArgument(row.setup_hint)
    if provider.base_url is None and row.address is None and provider.provider_type != BEDROCK:
        raise InvalidArgument(f"A provider of type '{row.name}' needs its base_url.")
    return Account(
        # Of two halves the secret one signs; whoever is asked must not see it.
        "" if _has_key_pair(provider) else provider.keys.api_key,
        _check_address(provider, settings),
        provider.provider_type,
        options=_account_options(provider),
        owner=f"{provider.id}@{provider.updated_at.isoformat()}",
    )


def _check_address(provider: Provider, settings: handles.ProviderSettings) -> str | None:
    named = (provider.base_url or "").rstrip("/")
    row = PROVIDERS[provider.provider_type]
    allowed = {address.rstrip("/") for address in settings.allowed_model_endpoints}
    if not named or named == row.address:
        return None
    if named not in allowed:
        raise InvalidArgument(
            f"base_url {named} is not {row.name}'s own: the operator must allow it with "
            "HOLDFAST_ALLOWED_MODEL_ENDPOINTS."
        )
    return named


def _account_options(provider: Provider) -> dict[str, str | None]:
    if provider.provider_type == AZURE:
        return {"api_version": provider.api_version}
    if provider.provider_type == BEDROCK:
        if not provider.region:
            raise InvalidArgument("A provider of type 'bedrock' needs its region.")
        # Either one key, or the two halves of one that AWS issued.
        halves = _has_key_pair(provider)
        return {
            "region": provider.region,
            "access": provider.keys.access_key if halves else None,
            "secret": provider.keys.api_key if halves else None,
            "session": None,
        }
    return {}


def _has_key_pair(provider: Provider) -> bool:
    return provider.provider_type == BEDROCK and bool(provider.keys.access_key)


def with_provider_type(choice: ModelChoice, provider: Provider) -> ModelChoice:
    """The choice in the name of the provider's type, as those know it who ask the model."""
    return replace(choice, handle=f"{provider.provider_type}/{choice.name}", endpoint=None)


class UserProviderCatalogue:
    """A catalogue and the models of one provider more."""

    def __init__(self, catalogue: Catalogue, user_catalogue: Catalogue, provider: Provider) -> None:
        self._catalogue = catalogue
        # Has the user's account in the place of the type's own.
        self._user_catalogue = user_catalogue
        self._provider = provider

    async def list_models(self) -> Sequence[ModelInfo]:
        kind = self._provider.provider_type
        return [
            self._to_user_info(info)
            for info in await self._user_catalogue.list_models()
            if info.provider == kind
        ]

    async def list_embeddings(self) -> Sequence[EmbeddingInfo]:
        return await self._catalogue.list_embeddings()

    async def prepare(self, handle: str, *, settings: bool = False) -> None:
        if self._is_user_handle(handle):
            await self._user_catalogue.prepare(self._to_type_handle(handle), settings=settings)
        else:
            await self._catalogue.prepare(handle, settings=settings)

    def find(self, handle: str) -> ModelInfo:
        if not self._is_user_handle(handle):
            return self._catalogue.find(handle)
        return self._to_user_info(self._user_catalogue.find(self._to_type_handle(handle)))

    def check(self, choice: ModelChoice) -> None:
        if self._is_user_handle(choice.handle):
            self._user_catalogue.check(with_provider_type(choice, self._provider))
        else:
            self._catalogue.check(choice)

    def with_warnings(self, choice: ModelChoice) -> ModelChoice:
        if not self._is_user_handle(choice.handle):
            return self._catalogue.with_warnings(choice)
        judged = self._user_catalogue.with_warnings(with_provider_type(choice, self._provider))
        return replace(judged, handle=choice.handle, provider_type=self._provider.provider_type)

    def find_embedding(self, handle: str) -> EmbeddingInfo | None:
        return self._catalogue.find_embedding(handle)

    def with_user_provider(self, provider: Provider) -> Catalogue:
        return self._catalogue.with_user_provider(provider)

    async def verify(self, provider: Provider) -> None:
        await self._catalogue.verify(provider)

    def default_handle(self) -> str | None:
        return self._catalogue.default_handle()

    def _is_user_handle(self, handle: str) -> bool:
        return handles.split_handle(handle)[0] == self._provider.name

    def _to_type_handle(self, handle: str) -> str:
        return f"{self._provider.provider_type}/{handles.split_handle(handle)[1]}"

    def _to_user_info(self, info: ModelInfo) -> ModelInfo:
        return replace(
            info,
            handle=f"{self._provider.name}/{info.name}",
            provider=self._provider.name,
            provider_type=self._provider.provider_type,
        )
