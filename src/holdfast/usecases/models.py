"""Which models there are."""

from collections.abc import Sequence

from holdfast.core.models import EmbeddingInfo, ModelInfo
from holdfast.ports.house import House


async def list_models(house: House, provider: str | None = None) -> Sequence[ModelInfo]:
    models = await house.catalogue.models()
    return [model for model in models if provider is None or model.provider == provider]


async def list_embeddings(house: House) -> Sequence[EmbeddingInfo]:
    return await house.catalogue.embeddings()
