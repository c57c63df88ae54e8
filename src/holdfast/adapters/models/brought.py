"""Providers that users bring: an account of a provider that Holdfast knows, under a name and with keys of their own.

A brought provider has its type's public address or one that the operator allows; so nobody makes the server reach
into a private network.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from holdfast.adapters.models import handles
from holdfast.adapters.models.handles import Account
from holdfast.adapters.models.providers import AZURE, BEDROCK, PROVIDERS, VERTEX
from holdfast.core.models import EmbeddingInfo, ModelChoice, ModelInfo
from holdfast.core.providers import Provider
from holdfast.errors import InvalidArgument
from holdfast.ports.model import Catalogue


def account_of(provider: Provider, settings: handles.ProviderSettings) -> Account:
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
        raise InvalidArgument(row.hint)
    if provider.base_url is None and row.address is None and provider.provider_type != BEDROCK:
        raise InvalidArgument(f"A provider of type '{row.name}' needs its base_url.")
    return Account(
        # Of two halves the secret one signs; whoever is asked must not see it.
        "" if _has_halves(provider) else provider.keys.api_key,
        _allowed_address(provider, settings),
        provider.provider_type,
        more=_more(provider),
        owner=f"{provider.id}@{provider.updated_at.isoformat()}",
    )


def _allowed_address(provider: Provider, settings: handles.ProviderSettings) -> str | None:
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


def _more(provider: Provider) -> dict[str, str | None]:
    if provider.provider_type == AZURE:
        return {"api_version": provider.api_version}
    if provider.provider_type == BEDROCK:
        if not provider.region:
            raise InvalidArgument("A provider of type 'bedrock' needs its region.")
        # Either one key, or the two halves of one that AWS issued.
        halves = _has_halves(provider)
        return {
            "region": provider.region,
            "access": provider.keys.access_key if halves else None,
            "secret": provider.keys.api_key if halves else None,
            "session": None,
        }
    return {}


def _has_halves(provider: Provider) -> bool:
    return provider.provider_type == BEDROCK and bool(provider.keys.access_key)


def as_known(choice: ModelChoice, provider: Provider) -> ModelChoice:
    """The choice in the name of the provider's type, as those know it who ask the model."""
    return replace(choice, handle=f"{provider.provider_type}/{choice.name}", endpoint=None)


class CatalogueWith:
    """A catalogue and the models of one provider more."""

    def __init__(self, known: Catalogue, own: Catalogue, provider: Provider) -> None:
        self._known = known
        # Has the user's account in the place of the type's own.
        self._own = own
        self._provider = provider

    async def models(self) -> Sequence[ModelInfo]:
        kind = self._provider.provider_type
        return [self._mine(info) for info in await self._own.models() if info.provider == kind]

    async def embeddings(self) -> Sequence[EmbeddingInfo]:
        return await self._known.embeddings()

    async def prepare(self, handle: str, *, settings: bool = False) -> None:
        if self._is_mine(handle):
            await self._own.prepare(self._type_handle(handle), settings=settings)
        else:
            await self._known.prepare(handle, settings=settings)

    def find(self, handle: str) -> ModelInfo:
        if not self._is_mine(handle):
            return self._known.find(handle)
        return self._mine(self._own.find(self._type_handle(handle)))

    def check(self, choice: ModelChoice) -> None:
        if self._is_mine(choice.handle):
            self._own.check(as_known(choice, self._provider))
        else:
            self._known.check(choice)

    def judged(self, choice: ModelChoice) -> ModelChoice:
        if not self._is_mine(choice.handle):
            return self._known.judged(choice)
        judged = self._own.judged(as_known(choice, self._provider))
        return replace(judged, handle=choice.handle, provider_type=self._provider.provider_type)

    def find_embedding(self, handle: str) -> EmbeddingInfo | None:
        return self._known.find_embedding(handle)

    def including(self, provider: Provider) -> Catalogue:
        return self._known.including(provider)

    async def verify(self, provider: Provider) -> None:
        await self._known.verify(provider)

    def default_handle(self) -> str | None:
        return self._known.default_handle()

    def _is_mine(self, handle: str) -> bool:
        return handles.split(handle)[0] == self._provider.name

    def _type_handle(self, handle: str) -> str:
        return f"{self._provider.provider_type}/{handles.split(handle)[1]}"

    def _mine(self, info: ModelInfo) -> ModelInfo:
        return replace(
            info,
            handle=f"{self._provider.name}/{info.name}",
            provider=self._provider.name,
            provider_type=self._provider.provider_type,
        )
