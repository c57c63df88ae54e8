"""Asks models through pydantic-ai, always streaming.

Importing this module imports pydantic-ai (0.7 s), and the first model of a provider imports its SDK (another 0.3 to
0.9 s): the router does both in a thread.
"""

import warnings
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from enum import Enum
from functools import lru_cache
from importlib import import_module
from typing import TypeAlias, cast

import httpx2
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.profiles.openai import OpenAIJsonSchemaTransformer, OpenAIModelProfile
from pydantic_ai.tools import ToolDefinition

from holdfast.adapters.models.accounts import Account, ProviderSettings
from holdfast.adapters.models.handles import wire_name
from holdfast.adapters.models.providers.table import WIRES
from holdfast.adapters.models.pydantic_ai.answers import answer_events
from holdfast.adapters.models.pydantic_ai.errors import translate_errors
from holdfast.adapters.models.pydantic_ai.exchange_recorder import (
    record_exchanges,
    record_request,
    record_response,
)
from holdfast.adapters.models.pydantic_ai.history import to_messages
from holdfast.adapters.models.pydantic_ai.http_clients import HttpClients, close_responses
from holdfast.adapters.models.pydantic_ai.wires.wire import Wire
from holdfast.core.strict_schemas import require_all
from holdfast.ports.model import ModelEvent, Question, ToolOffer

# Provider, base URL, owner of the account, and the name of the wire.
_WireKey: TypeAlias = tuple[str, str | None, str, str]

# Callers may name any model; this many are cached.
_MAX_MODELS = 256
# The wires of user providers that are cached.
_MAX_USER_WIRES = 512

# V1 clients always send a temperature. That reasoning models ignore it is no reason for a warning.
warnings.filterwarnings("ignore", message="Sampling parameters", category=UserWarning)


class PydanticAiBridge:
    def __init__(self, settings: ProviderSettings) -> None:
        self._secrets = tuple(
            secret for account in settings.accounts.values() for secret in account.secrets
        )
        self._clients = HttpClients(
            settings.silence_seconds, on_request=record_request, on_response=record_response
        )
        self._wires: dict[_WireKey, Wire] = {}
        self._model = lru_cache(maxsize=_MAX_MODELS)(self._make_model)

    def is_loaded(self, account: Account) -> bool:
        """Whether the account can be asked without loading anything."""
        return all(key in self._wires for key in _wire_keys(account))

    def load(self, account: Account) -> None:
        """Import the provider's SDK and build its clients. It blocks."""
        if account.owner:
            self._drop_old_user_wires()
        for key in _wire_keys(account):
            if key not in self._wires:
                *_, wire = key
                module, name = WIRES[wire]
                wire_class = getattr(import_module(module), name)
                build = cast("Callable[[Account, httpx2.AsyncClient], Wire]", wire_class)
                with translate_errors(account.secrets, wire_class.failures):
                    self._wires[key] = build(account, self._clients.find_or_build(account))

    def _drop_old_user_wires(self) -> None:
        """Each key that a user stores is another account: the oldest are dropped."""
        owned = [key for key in self._wires if key[2]]
        for key in owned[:-_MAX_USER_WIRES]:
            self._wires.pop(key, None)

    @asynccontextmanager
    async def ask(
        self, question: Question, account: Account, *, supports_images: bool = True
    ) -> AsyncIterator[AsyncIterator[ModelEvent]]:
        """``supports_images``: whether the model accepts images."""
        choice = question.choice
        key = (
            account.provider,
            account.base_url,
            account.owner,
            wire_name(account.provider, choice.name),
        )
        secrets = (*self._secrets, *account.secrets) if account.owner else self._secrets
        wire = self._wires[key]
        rewrites_schemas = bool(choice.settings.strict or choice.settings.response_format)
        model = self._model(key, choice.name, rewrites_schemas)
        async with AsyncExitStack() as stack:
            stack.enter_context(record_exchanges(question.exchanges, secrets))
            await stack.enter_async_context(close_responses())
            with translate_errors(secrets, wire.failures):
                output = wire.output_definition(model, question)
                parameters = _parameters(question, output, _find_strictness(question, model))
                messages = to_messages(
                    question.history, wire.owns_thinking, supports_images=supports_images
                )
                history = _prepare_history(model, messages, parameters)
                settings = wire.settings(model, question, history)
                request = model.request_stream(history, settings, parameters)
                stream = await stack.enter_async_context(request)
            events = answer_events(stream, question.history, secrets, wire.failures)
            yield await stack.enter_async_context(aclosing(events))

    async def aclose(self) -> None:
        await self._clients.aclose()

    def _make_model(self, key: _WireKey, name: str, strict: bool) -> Model:
        return self._wires[key].model(name, strict=strict)


def _wire_keys(account: Account) -> list[_WireKey]:
    wires = account.row.wires
    return [(account.provider, account.base_url, account.owner, wire) for wire in wires]


def _prepare_history(
    model: Model, history: list[ModelMessage], parameters: ModelRequestParameters
) -> list[ModelMessage]:
    """The history with tool call ids that this model accepts."""
    if model.profile.get("tool_call_id_length"):
        # Mistral's models accept only ids of nine characters.
        return model.prepare_messages(history, parameters)
    return history


def _parameters(
    question: Question, output: OutputObjectDefinition | None, strictness: "_Strictness"
) -> ModelRequestParameters:
    has_format = output is not None and not question.force_tool
    return ModelRequestParameters(
        output_mode="native" if has_format else "text",
        output_object=output if has_format else None,
        function_tools=[_definition(tool, strictness) for tool in question.tools],
        # Where a provider cannot be forced (Anthropic while it thinks), pydantic-ai then lets it choose.
        allow_text_output=not (question.force_tool and question.tools),
    )


class _Strictness(Enum):
    """How the schemas of tools are sent. OpenAI's strict ones require every property, so that what is optional must be
    allowed to be null; those of others keep optional properties."""

    OFF = "off"
    STRICT = "strict"
    ALL_REQUIRED = "all required"


def _find_strictness(question: Question, model: Model) -> _Strictness:
    if not question.choice.settings.strict:
        return _Strictness.OFF
    profile = cast("OpenAIModelProfile", model.profile)
    transformer = profile.get("json_schema_transformer")
    requires_all = transformer is not None and issubclass(transformer, OpenAIJsonSchemaTransformer)
    if requires_all and profile.get("openai_supports_strict_tool_definition", True):
        return _Strictness.ALL_REQUIRED
    return _Strictness.STRICT


def _definition(tool: ToolOffer, strictness: _Strictness) -> ToolDefinition:
    strict = strictness is not _Strictness.OFF and tool.allows_strict
    parameters = tool.parameters
    if strict and strictness is _Strictness.ALL_REQUIRED:
        parameters = require_all(parameters)
    return ToolDefinition(
        name=tool.name,
        description=tool.description,
        parameters_json_schema=parameters,
        strict=strict,
    )
