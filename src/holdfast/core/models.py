"""Which model answers, and how it is asked to."""

from typing import Any, Final

from msgspec import Struct

# The scripted model that needs no key; no provider can have its name.
GUIDE_PROVIDER: Final = "holdfast"
GUIDE_HANDLE: Final = f"{GUIDE_PROVIDER}/guide"

# An agent never plans with more than this unless told to: prompts grow dear long before they break.
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
    # An address that the operator allowed, instead of the provider's as it is configured.
    endpoint: str | None = None
    # Of which provider that we know this is an account, if a user brought it under a name of its own.
    provider_type: str | None = None
    # What was asked for and this model cannot do, in sentences.
    ignored: tuple[str, ...] = ()
    # The caller's own words, echoed back as they came (wire-v1 §3.11).
    model_settings: dict[str, Any] | None = None
    llm_config: dict[str, Any] | None = None

    @property
    def provider(self) -> str:
        return self.handle.split("/", 1)[0]

    @property
    def name(self) -> str:
        return self.handle.split("/", 1)[1]


class ModelInfo(Struct, frozen=True, kw_only=True):
    """A model that a configured provider offers, or one that a user brought: then ``provider_type`` says which
    of the providers that we know that is."""

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
