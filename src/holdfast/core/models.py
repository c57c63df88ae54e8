"""Models: which one is chosen, with which settings, and what is known about it."""

from typing import Any, Final

from msgspec import Struct

# The scripted model that needs no key; no provider can have its name.
GUIDE_PROVIDER: Final = "holdfast"
GUIDE_HANDLE: Final = f"{GUIDE_PROVIDER}/guide"

# The context window of an agent unless another is chosen: longer prompts are expensive long before they fail.
DEFAULT_CONTEXT_WINDOW = 128_000


class ModelSettings(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the caller asked of the model; None leaves it to the provider."""

    max_output_tokens: int | None = None
    temperature: float | None = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: str | None = None
    thinking: bool | None = None
    thinking_budget: int | None = None
    response_format: dict[str, Any] | None = None
    strict: bool | None = None
    verbosity: str | None = None
    frequency_penalty: float | None = None


class ModelChoice(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A handle (``provider/name``) with its settings, as an agent, a thread or a request chose it."""

    handle: str
    context_window: int
    settings: ModelSettings = ModelSettings()
    # An address that the operator allowed, instead of the provider's configured one.
    endpoint: str | None = None
    # For a user provider: the known provider that it is an account of.
    provider_type: str | None = None
    # A sentence for each setting that has no effect on this model.
    ignored: tuple[str, ...] = ()
    # The caller's own objects, echoed as they came (wire-v1 §3.11).
    model_settings: dict[str, Any] | None = None
    llm_config: dict[str, Any] | None = None

    @property
    def provider(self) -> str:
        return self.handle.split("/", 1)[0]

    @property
    def name(self) -> str:
        return self.handle.split("/", 1)[1]


class ModelInfo(Struct, frozen=True, kw_only=True):
    """A model of a configured provider, or of a user provider: then ``provider_type`` is the known provider that it is
    an account of."""

    handle: str
    provider: str
    name: str
    context_window: int
    display_name: str
    provider_type: str | None = None


class EmbeddingInfo(Struct, frozen=True, kw_only=True):
    handle: str
    provider: str
    name: str
    dimensions: int
    display_name: str
