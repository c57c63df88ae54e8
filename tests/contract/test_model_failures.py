"""Failures of providers, and the errors that they become."""

from urllib.parse import urlsplit

import google.auth
import pytest
from google.oauth2.credentials import Credentials
from tests.support.model_questions import (
    KEYS,
    OPENAI,
    ask_for_answer,
    collect,
    make_question,
    provider_settings,
    refusal,
    row,
    text_deltas,
)

from holdfast import errors, testing
from holdfast.adapters.models.accounts import ProviderSettings
from holdfast.adapters.models.pydantic_ai.errors import translate_errors
from holdfast.adapters.models.router import ModelRouter
from holdfast.core.messages import (
    Role,
)
from holdfast.ports.model import (
    ModelEvent,
)
from holdfast.testing import ScriptedProvider


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (400, errors.ModelRejectedRequest),
        (401, errors.ModelAuthFailed),
        (402, errors.ModelOutOfCredits),
        (403, errors.ModelAuthFailed),
        (404, errors.ModelRejectedRequest),
        (408, errors.ModelTimedOut),
        (409, errors.ModelError),
        (413, errors.ModelRejectedRequest),
        (422, errors.ModelRejectedRequest),
        (429, errors.ModelRateLimited),
        (500, errors.ModelError),
        (502, errors.ModelError),
        (503, errors.ModelOverloaded),
        (504, errors.ModelTimedOut),
        (529, errors.ModelOverloaded),
    ],
)
async def test_each_status_has_its_error_and_keeps_the_providers_words(
    provider: ScriptedProvider,
    model: ModelRouter,
    handle: str,
    status: int,
    expected: type[errors.ModelError],
) -> None:
    refused = await refusal(provider, model, handle, status)
    assert type(refused) is expected
    assert refused.transient is (status in (408, 409, 429) or status >= 500)


async def test_a_provider_may_say_when_to_ask_again(
    provider: ScriptedProvider, model: ModelRouter, handle: str
) -> None:
    provider.script(testing.HttpError(429, "Slow down.", headers={"retry-after": "7"}))
    with pytest.raises(errors.ModelRateLimited) as raised:
        await ask_for_answer(model, make_question(handle))
    assert (raised.value.transient, raised.value.retry_after_seconds) == (True, 7)


async def test_an_account_without_credit_is_not_asked_again(
    provider: ScriptedProvider, model: ModelRouter
) -> None:
    provider.script(
        testing.HttpError(429, "You exceeded your quota.", code="insufficient_quota"),
    )
    with pytest.raises(errors.ModelOutOfCredits) as raised:
        await ask_for_answer(model, make_question(OPENAI))
    assert not raised.value.transient


@pytest.mark.parametrize(
    "words",
    [
        "This model's maximum context length is 128000 tokens.",
        "prompt is too long: 210000 tokens > 200000 maximum",
        "input length and `max_tokens` exceed context limit: 199000 + 4096 > 200000",
    ],
)
async def test_a_history_that_does_not_fit_has_its_own_error(
    provider: ScriptedProvider, model: ModelRouter, handle: str, words: str
) -> None:
    provider.script(testing.HttpError(400, words))
    with pytest.raises(errors.ContextWindowExceeded) as raised:
        await ask_for_answer(model, make_question(handle))
    assert raised.value.detail == words


async def test_a_key_never_shows_in_an_error(
    provider: ScriptedProvider, model: ModelRouter, handle: str
) -> None:
    provider.script(testing.HttpError(401, f"Incorrect API key provided: {KEYS[handle]}."))
    with pytest.raises(errors.ModelAuthFailed) as raised:
        await ask_for_answer(model, make_question(handle))
    assert KEYS[handle] not in str(raised.value)
    assert "Incorrect API key provided" in raised.value.detail


@pytest.mark.parametrize(
    "fault",
    [
        testing.MalformedJson(),
        testing.MalformedSse(),
        testing.EmptyAnswer(),
        testing.ResetConnection(),
        testing.Answer("Half an", testing.HangUp()),
        testing.TruncatedStream(3, testing.Answer("One two three four.")),
    ],
    ids=["no stream", "malformed", "nothing", "reset", "hung up", "truncated"],
)
async def test_a_broken_stream_is_a_model_error(
    provider: ScriptedProvider, model: ModelRouter, handle: str, fault: testing.Scripted
) -> None:
    provider.script(fault)
    with pytest.raises(errors.ModelError) as raised:
        await ask_for_answer(model, make_question(handle))
    assert type(raised.value) is errors.ModelError
    assert raised.value.detail
    assert raised.value.transient
    assert len(provider.requests) == 1


async def test_what_came_before_the_break_is_handed_on(
    provider: ScriptedProvider, model: ModelRouter, handle: str
) -> None:
    provider.script(testing.Answer("Half an", testing.HangUp()))
    async with model.ask(make_question(handle)) as events:
        received: list[ModelEvent] = []
        with pytest.raises(errors.ModelError):
            await collect(events, received)
    assert "".join(text_deltas(received)) == "Half an"


async def test_a_provider_that_says_nothing_times_out(
    provider: ScriptedProvider, handle: str
) -> None:
    impatient = ModelRouter(provider_settings(provider, silence_seconds=0.05))
    for fault in (testing.NoAnswer(), testing.Answer("Well", testing.Hang())):
        provider.script(fault)
        with pytest.raises(errors.ModelTimedOut):
            await ask_for_answer(impatient, make_question(handle))
    await impatient.aclose()


async def test_a_provider_that_is_not_there_is_a_model_error(handle: str) -> None:
    async with ScriptedProvider() as gone:
        settings = provider_settings(gone)
    router = ModelRouter(settings)
    with pytest.raises(errors.ModelError) as raised:
        await ask_for_answer(router, make_question(handle))
    assert raised.value.detail
    assert raised.value.transient
    await router.aclose()


@pytest.mark.parametrize(
    "handle",
    [
        "openai/gpt-4o",
        "openai/o3",
        "anthropic/claude-haiku-4-5",
        "google_ai/gemini-2.5-flash",
        "mistral/mistral-large-latest",
        "openrouter/x/y",
        "groq/x",
        "bedrock/amazon.nova-lite-v1:0",
    ],
)
async def test_a_connection_error_names_the_host(handle: str) -> None:
    async with ScriptedProvider() as gone:
        settings = provider_settings(gone)
    router = ModelRouter(settings)
    with pytest.raises(errors.ModelError, match=f"127.0.0.1:{urlsplit(gone.url).port}"):
        await ask_for_answer(router, make_question(handle))
    await router.aclose()


async def test_an_error_of_the_caller_is_not_taken_for_the_providers(
    provider: ScriptedProvider, model: ModelRouter, handle: str
) -> None:
    with pytest.raises(ZeroDivisionError):
        async with model.ask(make_question(handle)):
            raise ZeroDivisionError


async def test_half_a_character_is_refused_not_a_crash(model: ModelRouter, handle: str) -> None:
    with pytest.raises(errors.ModelRejectedRequest):
        await ask_for_answer(model, make_question(handle, row(Role.USER, "\ud800")))


@pytest.mark.parametrize("is_unreachable", [True, False], ids=["no connection", "refused"])
async def test_a_machine_that_cannot_sign_in_may_do_so_later_unless_it_was_refused(
    provider: ScriptedProvider, monkeypatch: pytest.MonkeyPatch, is_unreachable: bool
) -> None:
    """Vertex requests a token before it calls the model."""
    async with ScriptedProvider() as gone:
        away = gone.url
    found = Credentials(  # type: ignore[no-untyped-call]  # the SDK has no types
        token=None,
        refresh_token="r",
        token_uri=f"{away if is_unreachable else provider.url}/token",
        client_id="c",
        client_secret="s",
    )
    monkeypatch.setattr(google.auth, "default", lambda **_: (found, "p"))
    router = ModelRouter(
        ProviderSettings({"google_vertex": {"project": "p", "base_url": provider.url}})
    )
    with pytest.raises(errors.ModelError) as raised:
        await ask_for_answer(router, make_question("google_vertex/gemini-2.5-pro"))
    assert raised.value.transient is is_unreachable
    await router.aclose()


def test_an_answer_that_the_sdk_trips_over_may_be_whole_the_next_time() -> None:
    with pytest.raises(errors.ModelError) as raised, translate_errors((), reading=True):
        raise AttributeError("'NoneType' object has no attribute 'delta'")
    assert raised.value.transient
    with pytest.raises(AttributeError), translate_errors(()):
        raise AttributeError("our own mistake")
