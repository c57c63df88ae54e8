"""Handles: which provider each one reaches, with which key, and the errors for unusable ones."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.support.model_questions import (
    FLIP,
    GOOGLE,
    HELLO,
    ask_for_answer,
    call_rows,
    make_question,
)

from holdfast import errors, testing
from holdfast.adapters.models.accounts import ProviderSettings
from holdfast.adapters.models.providers import row
from holdfast.adapters.models.providers.table import PROVIDERS
from holdfast.adapters.models.router import ModelRouter
from holdfast.core.messages import Text
from holdfast.core.models import ModelChoice
from holdfast.ports.model import Question
from holdfast.testing import ScriptedProvider

KEY = "a-secret-key"


def _openai_compatible_case(handle: str) -> tuple[str, dict[str, str], str, tuple[str, str]]:
    """A provider that speaks OpenAI's chat completions."""
    given = {"api_key": KEY, "base_url": "{url}/v1"}
    return handle, given, "/v1/chat/completions", ("authorization", f"Bearer {KEY}")


# handle; the settings that open it, with {url} for the provider; the path, and the header with the key
REACHED: list[tuple[str, dict[str, str], str, tuple[str, str]]] = [
    (
        "openai/gpt-4o",
        {"api_key": KEY, "base_url": "{url}/v1"},
        "/v1/chat/completions",
        ("authorization", f"Bearer {KEY}"),
    ),
    (
        "openai/o3",
        {"api_key": KEY, "base_url": "{url}/v1"},
        "/v1/responses",
        ("authorization", f"Bearer {KEY}"),
    ),
    (
        "openai-proxy/gpt-5",
        {"api_key": KEY, "base_url": "{url}/v1"},
        "/v1/chat/completions",
        ("authorization", f"Bearer {KEY}"),
    ),
    (
        "anthropic/claude-opus-4-5",
        {"api_key": KEY, "base_url": "{url}"},
        "/v1/messages",
        ("authorization", f"Bearer {KEY}"),
    ),
    (
        "google_ai/gemini-2.5-pro",
        {"api_key": KEY, "base_url": "{url}"},
        "/v1/models/gemini-2.5-pro:streamGenerateContent",
        ("x-goog-api-key", KEY),
    ),
    (
        "google_vertex/gemini-2.5-pro",
        {
            "project": "my-project",
            "location": "europe-west4",
            "base_url": "{url}",
        },
        "/v1beta1/projects/my-project/locations/europe-west4/publishers/google/models/gemini-2.5-pro:streamGenerateContent",
        ("authorization", "Bearer token-of-the-machine"),
    ),
    (
        "azure/my-deployment",
        {"api_key": KEY, "base_url": "{url}/"},
        "/openai/v1/chat/completions",
        ("api-key", KEY),
    ),
    (
        "azure/my deployment",
        {"api_key": KEY, "base_url": "{url}", "api_version": "2024-10-21"},
        "/openai/deployments/my%20deployment/chat/completions",
        ("api-key", KEY),
    ),
    (
        "azure/gpt-5",
        {"api_key": KEY, "base_url": "{url}/openai/v1"},
        "/openai/v1/responses",
        ("api-key", KEY),
    ),
    (
        "bedrock/anthropic.claude-haiku-4-5-20251001-v1:0",
        {
            "region": "eu-west-1",
            "access_key": "AKIDEXAMPLE",
            "secret_key": KEY,
            "base_url": "{url}",
        },
        "/model/anthropic.claude-haiku-4-5-20251001-v1%3A0/converse-stream",
        ("content-type", "application/json"),
    ),
    (
        "groq/openai/gpt-oss-120b",
        {"api_key": KEY, "base_url": "{url}/openai/v1"},
        "/openai/v1/chat/completions",
        ("authorization", f"Bearer {KEY}"),
    ),
    (
        "mistral/mistral-large-latest",
        {"api_key": KEY, "base_url": "{url}"},
        "/v1/chat/completions",
        ("authorization", f"Bearer {KEY}"),
    ),
    (
        "openrouter/meta-llama/llama-4-scout",
        {"api_key": KEY, "base_url": "{url}/api/v1"},
        "/api/v1/chat/completions",
        ("authorization", f"Bearer {KEY}"),
    ),
    _openai_compatible_case("xai/grok-4.5"),
    (
        "deepseek/deepseek-chat",
        {"api_key": KEY, "base_url": "{url}"},
        "/chat/completions",
        ("authorization", f"Bearer {KEY}"),
    ),
    _openai_compatible_case("together/moonshotai/Kimi-K2"),
    (
        "ollama/llama3.2:3b",
        {"base_url": "{url}"},
        "/v1/chat/completions",
        ("authorization", "Bearer no-key-needed"),
    ),
    (
        "ollama/llama3.2",
        {"base_url": "{url}/v1/", "api_key": KEY},
        "/v1/chat/completions",
        ("authorization", f"Bearer {KEY}"),
    ),
    (
        "lmstudio_openai/qwen2.5-7b-instruct",
        {"base_url": "{url}"},
        "/v1/chat/completions",
        ("authorization", "Bearer no-key-needed"),
    ),
    _openai_compatible_case("vllm/Qwen/Qwen3-8B"),
]


def _settings(provider: ScriptedProvider, handle: str, given: dict[str, str]) -> ProviderSettings:
    row = PROVIDERS[handle.partition("/")[0]]
    filled = {name: text.format(url=provider.url) for name, text in given.items()}
    return ProviderSettings({row.variables_of or row.name: filled})


@asynccontextmanager
async def _router(settings: ProviderSettings) -> AsyncIterator[ModelRouter]:
    router = ModelRouter(settings)
    yield router
    await router.aclose()


@pytest.fixture
def _signed_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Google's SDK finds the credentials of the machine."""
    import google.auth
    from google.oauth2.credentials import Credentials

    found = Credentials(token="token-of-the-machine"), "my-project"  # type: ignore[no-untyped-call]  # the SDK has no types
    monkeypatch.setattr(google.auth, "default", lambda **_: found)


@pytest.mark.usefixtures("_signed_in")
@pytest.mark.parametrize(("handle", "given", "path", "header"), REACHED, ids=lambda value: None)
async def test_every_handle_reaches_its_provider(
    provider: ScriptedProvider,
    handle: str,
    given: dict[str, str],
    path: str,
    header: tuple[str, str],
) -> None:
    provider.script(testing.Answer("It is I."))
    async with _router(_settings(provider, handle, given)) as router:
        answer = await ask_for_answer(router, make_question(handle))
    assert [part.text for part in answer.content if isinstance(part, Text)] == ["It is I."]
    (request,) = provider.requests
    assert request.refused is None
    assert request.path == path
    assert request.model == handle.partition("/")[2]
    assert request.headers[header[0]] == header[1]


@pytest.mark.usefixtures("_signed_in")
@pytest.mark.parametrize(("handle", "given"), [row[:2] for row in REACHED], ids=lambda value: None)
async def test_every_handle_can_call_tools_after_others_did(
    provider: ScriptedProvider, handle: str, given: dict[str, str]
) -> None:
    # Mistral sends all calls in one piece, the scripted provider each in one at best.
    at_once = handle.startswith("mistral/")
    coins = ("dime",) if at_once else ("dime", "cent")
    calls = [testing.ToolCall("flip_coin", {"coin": coin}, at_once=at_once) for coin in coins]
    provider.script(testing.Answer("I do.", *calls))
    async with _router(_settings(provider, handle, given)) as router:
        rows = (HELLO, *call_rows("toolu_of_another_provider"), HELLO)
        answer = await ask_for_answer(router, make_question(handle, *rows, tools=(FLIP,)))
    assert provider.requests[0].refused is None
    assert provider.requests[0].tool_names == ["flip_coin"]
    assert [(call.name, call.arguments) for call in answer.tool_calls] == [
        (call.name, call.arguments_text) for call in calls
    ]


async def test_mistral_gets_ids_of_its_own_kind(provider: ScriptedProvider) -> None:
    settings = ProviderSettings({"mistral": {"api_key": KEY, "base_url": provider.url}})
    async with _router(settings) as router:
        rows = (HELLO, *call_rows("toolu_of_another_provider"), HELLO)
        await ask_for_answer(
            router, make_question("mistral/mistral-large-latest", *rows, tools=(FLIP,))
        )
    called, returned = provider.requests[0].messages[2:4]
    given = called["tool_calls"][0]["id"]
    assert re.fullmatch("[a-zA-Z0-9]{9}", given)
    assert returned["tool_call_id"] == given


@pytest.mark.usefixtures("_signed_in")
@pytest.mark.parametrize(("handle", "given"), [row[:2] for row in REACHED], ids=lambda value: None)
async def test_leaving_closes_every_providers_socket(
    provider: ScriptedProvider, handle: str, given: dict[str, str]
) -> None:
    provider.script(testing.Answer("One", testing.Hang()))
    async with _router(_settings(provider, handle, given)) as router:
        async with router.ask(make_question(handle)) as events:
            await asyncio.wait_for(anext(events), 10)
        (request,) = provider.requests
        await request.finished.wait(10)
    assert request.closed_early


def test_every_provider_is_reached_above() -> None:
    assert {row[0].partition("/")[0] for row in REACHED} == set(PROVIDERS)


@asynccontextmanager
async def _refusing_server(requests: list[bytes]) -> AsyncIterator[str]:
    """A server that refuses every request."""

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(await reader.readuntil(b"\r\n\r\n"))
        body = b'{"message": "You may not."}'
        head = b"HTTP/1.1 403 Forbidden\r\nx-amzn-errortype: AccessDeniedException\r\nconnection: close\r\n"
        writer.write(head + b"content-length: %d\r\n\r\n" % len(body) + body)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_bedrock_is_reached_with_a_signature() -> None:
    heard: list[bytes] = []
    keys = {"access_key": "AKIDEXAMPLE", "secret_key": KEY}
    async with _refusing_server(heard) as url:
        settings = ProviderSettings({"bedrock": {"region": "eu-west-1", "base_url": url, **keys}})
        async with _router(settings) as router:
            with pytest.raises(errors.ModelAuthFailed, match="You may not") as raised:
                await ask_for_answer(router, make_question("bedrock/amazon.nova-lite-v1:0"))
    (request,) = heard  # only the engine retries
    line, *headers = request.decode().splitlines()
    assert line == "POST /model/amazon.nova-lite-v1%3A0/converse-stream HTTP/1.1"
    pairs = (header.partition(": ") for header in headers)
    sent = {name.lower(): value for name, _, value in pairs}
    assert sent["authorization"].startswith("AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/")
    assert KEY not in str(raised.value)


async def test_bedrocks_key_is_not_sent_in_the_clear() -> None:
    heard: list[bytes] = []
    async with _refusing_server(heard) as url:
        settings = ProviderSettings(
            {"bedrock": {"region": "eu-west-1", "base_url": url, "api_key": KEY}}
        )
        async with _router(settings) as router:
            with pytest.raises(errors.ModelError, match="requires an HTTPS endpoint"):
                await ask_for_answer(router, make_question("bedrock/amazon.nova-lite-v1:0"))
    assert heard == []


async def test_a_provider_that_cannot_be_set_up_does_not_stop_the_start(
    caplog: pytest.LogCaptureFixture,
) -> None:
    settings = ProviderSettings({"bedrock": {"region": "no region!", "api_key": KEY}})
    async with _router(settings) as router:
        await router.warm_up()
        with pytest.raises(errors.ModelError, match="no region!"):
            await ask_for_answer(router, make_question("bedrock/amazon.nova-lite-v1:0"))
    assert "model.not_loaded" in caplog.text


@pytest.mark.parametrize(
    ("handle", "variable"),
    [
        ("openai/gpt-4o", "OPENAI_API_KEY"),
        ("openai-proxy/llama", "OPENAI_BASE_URL"),
        ("anthropic/claude-opus-4-5", "ANTHROPIC_API_KEY"),
        ("google_ai/gemini-2.5-pro", "GEMINI_API_KEY"),
        ("google_vertex/gemini-2.5-pro", "GOOGLE_CLOUD_PROJECT"),
        ("azure/gpt-4o", "AZURE_OPENAI_ENDPOINT"),
        ("bedrock/amazon.nova-lite-v1:0", "AWS_REGION"),
        ("groq/llama", "GROQ_API_KEY"),
        ("mistral/mistral-large-latest", "MISTRAL_API_KEY"),
        ("openrouter/x/y", "OPENROUTER_API_KEY"),
        ("xai/grok-4", "XAI_API_KEY"),
        ("deepseek/deepseek-chat", "DEEPSEEK_API_KEY"),
        ("together/x/y", "TOGETHER_API_KEY"),
        ("ollama/llama3", "OLLAMA_BASE_URL"),
        ("lmstudio_openai/x", "LMSTUDIO_BASE_URL"),
        ("vllm/x", "VLLM_BASE_URL"),
        ("nobody/x", "The providers are openai, anthropic"),
    ],
)
async def test_a_provider_that_is_not_configured_names_its_variable(
    handle: str, variable: str
) -> None:
    router = ModelRouter(ProviderSettings())
    with pytest.raises(errors.UnknownModel, match=variable):
        await ask_for_answer(router, make_question(handle))


@pytest.mark.parametrize(
    ("handle", "given", "extra"),
    [
        (GOOGLE, {"api_key": KEY}, "google"),
        ("google_vertex/gemini-2.5-pro", {"project": "p"}, "google"),
        ("mistral/mistral-large-latest", {"api_key": KEY}, "mistral"),
        ("bedrock/x", {"api_key": KEY, "region": "us-east-1"}, "bedrock"),
    ],
)
async def test_without_its_sdk_a_provider_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, handle: str, given: dict[str, Any], extra: str
) -> None:
    monkeypatch.setattr(row, "find_spec", lambda _name: None)
    router = ModelRouter(ProviderSettings({handle.partition("/")[0]: given}))
    await router.warm_up()
    with pytest.raises(errors.UnknownModel, match=rf"pip install 'holdfast\[{extra}\]'"):
        await ask_for_answer(router, make_question(handle))


async def test_a_loopback_server_needs_no_key(provider: ScriptedProvider) -> None:
    async with _router(ProviderSettings({"openai": {"base_url": provider.openai_url}})) as router:
        assert (await ask_for_answer(router, make_question("openai/llama"))).content


# URLs from callers


def _question_to_endpoint(handle: str, endpoint: str) -> Question:
    choice = ModelChoice(handle=handle, context_window=1000, endpoint=endpoint)
    return Question(choice=choice, history=make_question(handle).history)


@pytest.mark.parametrize(
    ("provider_name", "address"),
    [
        ("openai", None),
        ("openai", "https://api.openai.com/v1"),
        ("openai", "https://api.openai.com/v1/"),
        ("openai", "http://127.0.0.1:1/v1"),
        ("anthropic", "https://api.anthropic.com/v1"),
        ("anthropic", "https://api.anthropic.com"),
        ("google_ai", "https://generativelanguage.googleapis.com"),
        ("ollama", "http://127.0.0.1:2"),
        ("ollama", "http://127.0.0.1:2/v1"),
        ("holdfast", "http://anything.example"),
    ],
)
def test_a_providers_own_address_means_the_provider_as_it_is_configured(
    provider_name: str, address: str | None
) -> None:
    settings = ProviderSettings(
        {
            "openai": {"api_key": KEY, "base_url": "http://127.0.0.1:1/v1"},
            "ollama": {"base_url": "http://127.0.0.1:2"},
        }
    )
    assert settings.resolve_endpoint(provider_name, address) is None


@pytest.mark.parametrize(
    "address",
    [
        "https://elsewhere.example/v1",
        "https://api.openai.com.elsewhere.example/v1",
        "http://api.openai.com/v1",
        "https://api.openai.com@elsewhere.example/v1",
        "https://allowed.example/v1/../../other",
    ],
)
def test_another_address_is_refused_with_the_setting_that_allows_it(address: str) -> None:
    settings = ProviderSettings(
        {"openai": {"api_key": KEY}}, allowed_model_endpoints=("https://allowed.example/v1",)
    )
    with pytest.raises(errors.InvalidArgument, match="HOLDFAST_ALLOWED_MODEL_ENDPOINTS"):
        settings.resolve_endpoint("openai", address)


async def test_an_allowed_address_is_asked_with_the_providers_key(
    provider: ScriptedProvider,
) -> None:
    settings = ProviderSettings(
        {"openai": {"api_key": KEY, "base_url": "http://127.0.0.1:1/v1"}},
        allowed_model_endpoints=(provider.openai_url,),
    )
    async with _router(settings) as router:
        await ask_for_answer(router, _question_to_endpoint("openai/gpt-4o", provider.openai_url))
    assert provider.requests[0].api_key == KEY


async def test_an_allowed_server_of_a_provider_without_a_key_is_asked_without(
    provider: ScriptedProvider,
) -> None:
    settings = ProviderSettings(allowed_model_endpoints=(provider.openai_url,))
    async with _router(settings) as router:
        await ask_for_answer(router, _question_to_endpoint("vllm/qwen", f"{provider.openai_url}/"))
        with pytest.raises(errors.UnknownModel, match="ANTHROPIC_API_KEY"):
            await ask_for_answer(
                router, _question_to_endpoint("anthropic/claude", provider.openai_url)
            )
    assert provider.requests[0].api_key == "no-key-needed"


async def test_an_address_that_is_no_longer_allowed_is_not_asked(
    provider: ScriptedProvider,
) -> None:
    async with _router(ProviderSettings({"openai": {"api_key": KEY}})) as router:
        with pytest.raises(errors.InvalidArgument):
            await ask_for_answer(
                router, _question_to_endpoint("openai/gpt-4o", provider.openai_url)
            )
    assert provider.requests == []
