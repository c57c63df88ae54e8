"""A catalogue of two models and one embedding."""

from collections.abc import Sequence

from holdfast.core.models import EmbeddingInfo, ModelChoice, ModelInfo
from holdfast.core.providers import Provider
from holdfast.errors import InvalidArgument, UnknownModel
from holdfast.ports.model import Catalogue

_MODELS = ("anthropic/claude-x", 200_000), ("openai/gpt-x", 128_000)


class FixedCatalogue:
    async def list_models(self) -> Sequence[ModelInfo]:
        return [_model(handle, window) for handle, window in _MODELS]

    async def list_embeddings(self) -> Sequence[EmbeddingInfo]:
        return [_EMBEDDING]

    async def prepare(self, handle: str, *, settings: bool = False) -> None: ...

    def find(self, handle: str, *, must_be_listed: bool = False) -> ModelInfo:
        del must_be_listed
        if "/" not in handle:
            raise InvalidArgument("The model handle should be in the format provider/model-name")
        for known, window in _MODELS:
            if known == handle:
                return _model(handle, window)
        raise UnknownModel(f"Handle {handle} not found, must be one of []")

    def check(self, choice: ModelChoice) -> None:
        self.find(choice.handle)

    def with_warnings(self, choice: ModelChoice) -> ModelChoice:
        return choice

    async def find_embedding(self, handle: str) -> EmbeddingInfo | None:
        return _EMBEDDING if handle == _EMBEDDING.handle else None

    def with_user_provider(self, provider: Provider) -> Catalogue:
        raise AssertionError(provider)

    async def verify(self, provider: Provider) -> None:
        raise AssertionError(provider)

    def default_embedding(self) -> str | None:
        return None

    def summary_handle(self, handle: str) -> str:
        return _SUMMARY_HANDLES.get(handle.partition("/")[0], handle)

    def is_reserved(self, name: str) -> bool:
        return name in {"anthropic", "openai"}

    def default_handle(self) -> str | None:
        return "openai/gpt-x"


_SUMMARY_HANDLES = {"anthropic": "anthropic/claude-haiku-4-5", "openai": "openai/gpt-5-mini"}
_EMBEDDING = EmbeddingInfo(
    handle="openai/embed-x",
    provider="openai",
    name="embed-x",
    dimensions=1536,
    display_name="Embed X",
)


def _model(handle: str, window: int) -> ModelInfo:
    provider, name = handle.split("/")
    return ModelInfo(
        handle=handle,
        provider=provider,
        name=name,
        context_window=window,
        display_name=name.title(),
    )
