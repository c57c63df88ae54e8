"""The models that can be used, as V1 lists them. An agent's own model is in ``to_wire.model_settings``."""

from holdfast.core.models import EmbeddingInfo, ModelInfo
from holdfast.http.letta_v1.schemas.models import EmbeddingModel, Model


def model_state(info: ModelInfo) -> Model:
    return Model(
        model=info.name,
        name=info.name,
        handle=info.handle,
        display_name=info.display_name,
        model_endpoint_type=info.provider_type or info.provider,
        provider_type=info.provider_type or info.provider,
        provider_name=info.provider,
        provider_category="byok" if info.provider_type else "base",
        context_window=info.context_window,
        max_context_window=info.context_window,
    )


def embedding_state(info: EmbeddingInfo) -> EmbeddingModel:
    return EmbeddingModel(
        embedding_model=info.name,
        name=info.name,
        handle=info.handle,
        display_name=info.display_name,
        embedding_endpoint_type=info.provider,
        provider_type=info.provider,
        provider_name=info.provider,
        embedding_dim=info.dimensions,
    )
