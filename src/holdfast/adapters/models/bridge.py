"""The bridge to pydantic-ai: one for every provider, always streaming.

Importing this module imports pydantic-ai (0.7 s), and the first model of a provider its SDK (another 0.3 to
0.9 s): the router does both in a thread.
"""

import warnings
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from contextvars import ContextVar
from functools import lru_cache
from importlib import import_module
from typing import TypeAlias, cast
from urllib.request import getproxies

import httpx2
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.tools import ToolDefinition

from holdfast.adapters.models.answers import answer_events
from holdfast.adapters.models.errors import translation
from holdfast.adapters.models.handles import Account, ProviderSettings, spoken
from holdfast.adapters.models.history import to_messages
from holdfast.adapters.models.providers import PROVIDERS, WIRES
from holdfast.adapters.models.transport import StreamTransport
from holdfast.adapters.models.wires.wire import Wire
from holdfast.adapters.models.wiretap import listening, tap_request, tap_response
from holdfast.ports.model import ModelEvent, Question, ToolOffer

# Who is spoken to, where, in whose name, and in which language.
_Line: TypeAlias = tuple[str, str | None, str, str]

# Callers name any model they like; this many are kept ready.
_MODELS_KEPT = 256
# Ways to ask the accounts that users brought.
_BROUGHT_KEPT = 512

_CONNECT_SECONDS = 10.0

# V1 clients always send a temperature; that reasoning models ignore it is not news.
warnings.filterwarnings("ignore", message="Sampling parameters", category=UserWarning)


# What the task's question has opened, so that it is closed at once: some SDKs leave that to the garbage collector.
_opened: ContextVar[list[httpx2.Response]] = ContextVar("opened")


class PydanticAiBridge:
    def __init__(self, settings: ProviderSettings) -> None:
        self._settings = settings
        self._secrets = tuple(
            secret for account in settings.accounts.values() for secret in account.secrets
        )
        self._clients: dict[tuple[bool, bool], httpx2.AsyncClient] = {}
        self._wires: dict[_Line, Wire] = {}
        self._model = lru_cache(maxsize=_MODELS_KEPT)(self._make_model)

    def has(self, account: Account) -> bool:
        """Whether the account can be asked at once."""
        return all(line in self._wires for line in _lines(account))

    def load(self, account: Account) -> None:
        """Import the provider's SDK and make its clients; blocks."""
        if account.owner:
            self._forget_old_accounts()
        for line in _lines(account):
            if line not in self._wires:
                *_, spoken = line
                module, name = WIRES[spoken]
                kind = getattr(import_module(module), name)
                make = cast("Callable[[Account, httpx2.AsyncClient], Wire]", kind)
                with translation(account.secrets, kind.failures):
                    self._wires[line] = make(account, self._client(account))

    def _forget_old_accounts(self) -> None:
        """Users come and go, and each new key is another account; those that were made first go first."""
        brought = [line for line in self._wires if line[2]]
        for line in brought[:-_BROUGHT_KEPT]:
            self._wires.pop(line, None)

    @asynccontextmanager
    async def ask(
        self, question: Question, account: Account, *, sees: bool = True
    ) -> AsyncIterator[AsyncIterator[ModelEvent]]:
        """``sees``: whether the model can be shown pictures."""
        choice = question.choice
        line = (
            account.provider,
            account.base_url,
            account.owner,
            spoken(account.provider, choice.name),
        )
        secrets = (*self._secrets, *account.secrets) if account.owner else self._secrets
        wire = self._wires[line]
        rewritten = bool(choice.settings.strict or choice.settings.response_format)
        model = self._model(line, choice.name, rewritten)
        async with AsyncExitStack() as stack:
            stack.enter_context(listening(question.exchanges, secrets))
            opened: list[httpx2.Response] = []
            _opened.set(opened)
            stack.push_async_callback(_close, opened)
            with translation(secrets, wire.failures):
                parameters = _parameters(question, wire.form(model, question))
                said = to_messages(question.history, wire.thought, sees=sees)
                history = _readable(model, said, parameters)
                settings = wire.settings(model, question, history)
                request = model.request_stream(history, settings, parameters)
                stream = await stack.enter_async_context(request)
            events = answer_events(stream, question.history, secrets, wire.failures)
            yield await stack.enter_async_context(aclosing(events))

    async def aclose(self) -> None:
        for client in self._clients.values():
            await client.aclose()

    def _make_model(self, line: _Line, name: str, strict: bool) -> Model:
        return self._wires[line].model(name, strict=strict)

    def _client(self, account: Account) -> httpx2.AsyncClient:
        """Providers share a client where they can: loading certificates takes 20 ms."""
        kind = (account.is_plain_http, account.is_loopback)
        if kind not in self._clients:
            self._clients[kind] = httpx2.AsyncClient(
                transport=_transport(account),
                trust_env=not account.is_loopback,
                event_hooks={"request": [tap_request], "response": [_note, tap_response]},
                timeout=httpx2.Timeout(self._settings.silence_seconds, connect=_CONNECT_SECONDS),
            )
        return self._clients[kind]


async def _note(response: httpx2.Response) -> None:
    _opened.get([]).append(response)


async def _close(responses: list[httpx2.Response]) -> None:
    for response in responses:
        await response.aclose()


def _lines(account: Account) -> list[_Line]:
    speaks = PROVIDERS[account.provider].speaks
    return [(account.provider, account.base_url, account.owner, spoken) for spoken in speaks]


def _readable(
    model: Model, history: list[ModelMessage], parameters: ModelRequestParameters
) -> list[ModelMessage]:
    """The history as this model can take it."""
    if model.profile.get("tool_call_id_length"):
        # Mistral's models accept no ids but their own kind's.
        return model.prepare_messages(history, parameters)
    return history


def _transport(account: Account) -> httpx2.AsyncBaseTransport | None:
    """Ours, which makes little work of a token; httpx's own where a proxy leads out."""
    # A proxy from the environment is for the world outside, not for this machine.
    if getproxies() and not account.is_loopback:
        return None
    # Plain HTTP has nothing to verify, and redirects are not followed.
    return StreamTransport(None if account.is_plain_http else httpx2.create_ssl_context())


def _parameters(question: Question, form: OutputObjectDefinition | None) -> ModelRequestParameters:
    strict = bool(question.choice.settings.strict)
    formed = form is not None and not question.force_tool
    return ModelRequestParameters(
        output_mode="native" if formed else "text",
        output_object=form if formed else None,
        function_tools=[_definition(tool, strict=strict) for tool in question.tools],
        # Where a provider cannot be forced (Anthropic while it thinks), pydantic-ai then lets it choose.
        allow_text_output=not (question.force_tool and question.tools),
    )


def _definition(tool: ToolOffer, *, strict: bool) -> ToolDefinition:
    return ToolDefinition(
        name=tool.name,
        description=tool.description,
        parameters_json_schema=tool.parameters,
        strict=strict,
    )
