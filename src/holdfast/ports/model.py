"""Asking a language model. One call is one answer; the differences between providers are the adapter's."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from msgspec import Struct

from holdfast.core.messages import Message, Part, ToolCall
from holdfast.core.models import EmbeddingInfo, ModelChoice, ModelInfo
from holdfast.core.providers import Provider
from holdfast.core.runs import Usage
from holdfast.core.traces import CallType
from holdfast.core.turn import Finish


class ToolOffer(Struct, frozen=True):
    """A tool as it is described to the model."""

    name: str
    description: str
    parameters: dict[str, Any]
    # Whether its parameters may be made strict, if the model's settings ask for that.
    allows_strict: bool = True


class Exchange(Struct, frozen=True, kw_only=True):
    """A request to a provider and its response: the bodies without headers and keys. ``status_code`` None means that
    there was no response; ``error`` says why it failed."""

    request: dict[str, Any]
    response: dict[str, Any]
    status_code: int | None
    error: str | None
    latency_ms: int


class Question(Struct, frozen=True, kw_only=True):
    """Everything that the model is given. The history begins with the system message, and every call has its result."""

    choice: ModelChoice
    history: tuple[Message, ...]
    tools: tuple[ToolOffer, ...] = ()
    # The model must call one of ``tools``.
    force_tool: bool = False
    parallel_tool_calls: bool = False
    call_type: CallType = CallType.AGENT_STEP
    # The user's account, for a model of a user provider.
    account: Provider | None = None
    # A list to which each exchange with the provider is added when it has ended, however it ended. None: not recorded.
    exchanges: list[Exchange] | None = None


class ThinkingDelta(Struct, frozen=True):
    text: str


class HiddenThinking(Struct, frozen=True):
    """Thinking that the provider does not show; ``data`` is what it sent instead, if it was redacted."""

    redacted: bool
    data: str | None = None


class TextDelta(Struct, frozen=True):
    text: str


class ToolCallDelta(Struct, frozen=True):
    """The first delta of a call has id and name; later ones add to the arguments."""

    call_id: str
    name: str
    arguments: str


class UsageUpdate(Struct, frozen=True):
    """The tokens that the provider has reported so far. Some providers report early, some only with the answer."""

    usage: Usage


class Answer(Struct, frozen=True, kw_only=True):
    """The whole answer; always the last item of a stream that was not cut off.

    No call has an id that occurs in the history, and no two have the same.
    """

    content: tuple[Part, ...]
    tool_calls: tuple[ToolCall, ...]
    usage: Usage
    finish: Finish


ModelEvent = ThinkingDelta | HiddenThinking | TextDelta | ToolCallDelta | UsageUpdate | Answer


class Model(Protocol):
    def ask(self, question: Question) -> AbstractAsyncContextManager[AsyncIterator[ModelEvent]]:
        """Stream one answer. Leaving the context, or cancelling, closes the provider's socket at once.

        Raises ModelError (see ``errors``) for every failure of the provider, UnknownModel if the handle's
        provider is not configured.
        """
        ...


class Catalogue(Protocol):
    """Which models there are."""

    async def list_models(self) -> Sequence[ModelInfo]:
        """The models of the configured providers, by handle: from the provider's list, else as published.

        The providers are asked in parallel, for two seconds at most; their answers are cached for a minute.
        """
        ...

    async def list_embeddings(self) -> Sequence[EmbeddingInfo]:
        """The embedding models of all configured providers and of this machine, by handle, asked in the same way. A model
        whose dimensions nobody knows is left out."""
        ...

    async def prepare(self, handle: str, *, settings: bool = False) -> None:
        """Load what ``find`` and ``with_warnings`` need for this model: above all the context window that its server
        really serves, and for ``settings`` what is known about the model's settings. Raises nothing."""
        ...

    def find(self, handle: str, *, must_be_listed: bool = False) -> ModelInfo:
        """The model of this handle. InvalidArgument if it is not ``provider/name``; UnknownModel if its provider is
        not configured. ``must_be_listed`` is for a handle that a caller has just chosen: UnknownModel also if the
        provider's list of models is known and lacks it."""
        ...

    def check(self, choice: ModelChoice) -> None:
        """Check that the choice can be asked now. Raises as ``find`` does, and if its address is not allowed."""
        ...

    def with_warnings(self, choice: ModelChoice) -> ModelChoice:
        """The choice with its address checked (InvalidArgument if the operator did not allow it; None if the
        provider as configured is meant), and with a sentence for each setting that has no effect on the model.
        InvalidArgument if its handle is not ``provider/name``."""
        ...

    async def find_embedding(self, handle: str) -> EmbeddingInfo | None:
        """The embedding model of this handle, configured or not (V1 clients always name one); None if nothing is known
        about it. Its provider may be asked, for two seconds at most."""
        ...

    def with_user_provider(self, provider: Provider) -> "Catalogue":
        """The same catalogue with the models of a user provider; ``list_models`` lists only those.
        InvalidArgument if the provider cannot be reached, or its address is not allowed."""
        ...

    async def verify(self, provider: Provider) -> None:
        """Check that the provider accepts the user's keys. ModelAuthFailed if it does not, another ModelError if
        it does not answer, InvalidArgument if it cannot be asked."""
        ...

    def default_handle(self) -> str | None:
        """The model for agents that name none, if the operator chose one."""
        ...

    def default_embedding(self) -> str | None:
        """The embedding model for what names none, if the operator chose one."""
        ...

    def summary_handle(self, handle: str) -> str:
        """The model that writes summaries for agents with this model, unless another is chosen (wire-v1 §7.9)."""
        ...

    def is_reserved(self, name: str) -> bool:
        """Whether this is the name of a provider that Holdfast knows. A user provider cannot have it."""
        ...
