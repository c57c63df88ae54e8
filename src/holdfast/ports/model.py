"""Asking a language model. One call is one answer; the adapter knows every provider's ways."""

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
    """A tool as the model is told of it."""

    name: str
    description: str
    parameters: dict[str, Any]


class Exchange(Struct, frozen=True, kw_only=True):
    """A request to a provider and what came back: the bodies as they were, no headers, no keys. ``status_code``
    None means that no answer began; ``error`` says why it did not end well."""

    request: dict[str, Any]
    response: dict[str, Any]
    status_code: int | None
    error: str | None
    latency_ms: int


class Question(Struct, frozen=True, kw_only=True):
    """All that the model is given. The rows begin with the system message, and every call has its result."""

    choice: ModelChoice
    history: tuple[Message, ...]
    tools: tuple[ToolOffer, ...] = ()
    # The model must call one of ``tools``.
    force_tool: bool = False
    parallel_tool_calls: bool = False
    call_type: CallType = CallType.AGENT_STEP
    # The user's own account, for a model of a provider that a user brought.
    account: Provider | None = None
    # Where each exchange with the provider is added when it is over, however it ended. None: nobody wants to know.
    exchanges: list[Exchange] | None = None


class ThinkingDelta(Struct, frozen=True):
    text: str


class HiddenThinking(Struct, frozen=True):
    """The model thought something that it does not show; what it sent instead, if it was redacted."""

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
    """What the provider says that it has counted so far. Some say it early, some only with the answer."""

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

        Raises ModelError (see ``errors``) for whatever the provider does wrong, UnknownModel if no
        provider of that handle is configured.
        """
        ...


class Catalogue(Protocol):
    """Which models there are."""

    async def list_models(self) -> Sequence[ModelInfo]:
        """What the configured providers and servers have, by handle: as they say it, else as it is published.

        They are asked side by side, for two seconds at most; what they say is kept for a minute.
        """
        ...

    async def list_embeddings(self) -> Sequence[EmbeddingInfo]:
        """The embedding models of all configured providers, asked in the same way."""
        ...

    async def prepare(self, handle: str, *, settings: bool = False) -> None:
        """Learn what must be known of this model before it is chosen: above all what context its server
        really serves; if ``settings`` will be judged, what is needed for that. Raises nothing."""
        ...

    def find(self, handle: str) -> ModelInfo:
        """The model of this handle. InvalidArgument if it is not ``provider/name``; UnknownModel if
        its provider is not configured."""
        ...

    def check(self, choice: ModelChoice) -> None:
        """Whether the choice can be asked now: raises as ``find`` does, and if its address is not allowed."""
        ...

    def with_warnings(self, choice: ModelChoice) -> ModelChoice:
        """The choice with its address judged (InvalidArgument if the operator did not allow it; None if the
        provider as configured is meant), and with a sentence for each setting that the model cannot heed."""
        ...

    def find_embedding(self, handle: str) -> EmbeddingInfo | None:
        """The embedding model of this handle, configured or not (V1 clients always name one); None if
        it is not known."""
        ...

    def with_user_provider(self, provider: Provider) -> "Catalogue":
        """The same, and the models of a provider that a user brought; ``models`` lists only those.
        InvalidArgument if Holdfast cannot reach it, or may not."""
        ...

    async def verify(self, provider: Provider) -> None:
        """See whether the provider takes the user's keys. ModelAuthFailed if it does not, another ModelError if
        it does not answer, InvalidArgument if it cannot be asked."""
        ...

    def default_handle(self) -> str | None:
        """The model for agents that name none, if the operator chose one."""
        ...
