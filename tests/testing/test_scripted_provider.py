"""The script, the records, and the ways to run the provider."""

import asyncio
import subprocess
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest

from holdfast.testing import (
    Answer,
    Gate,
    HttpError,
    NoAnswer,
    Pause,
    ProviderRequest,
    Scripted,
    ScriptedProvider,
    ScriptMismatch,
    SlowHeaders,
    Text,
    ToolCall,
)

DEFAULT = "Hello from the scripted provider."


def make_client(provider: ScriptedProvider) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=provider.openai_url, api_key="sk-test", max_retries=0)


async def say(client: openai.AsyncOpenAI, text: str = "hi", model: str = "gpt") -> str | None:
    completion = await client.chat.completions.create(
        model=model, messages=[{"role": "user", "content": text}]
    )
    return completion.choices[0].message.content


async def test_answers_come_in_their_order_and_then_the_default(
    provider: ScriptedProvider, openai_client: openai.AsyncOpenAI
) -> None:
    provider.script("One.", Answer("Two."))
    assert [await say(openai_client) for _ in range(3)] == ["One.", "Two.", DEFAULT]
    provider.default = Answer("Something else.")
    assert await say(openai_client) == "Something else."


async def test_each_lane_gets_what_is_meant_for_it(
    provider: ScriptedProvider, openai_client: openai.AsyncOpenAI
) -> None:
    provider.script("A1", "A2", when=lambda request: request.model == "a")
    provider.script("B1", when=lambda request: request.model == "b")
    provider.script("For anyone.")
    said = [await say(openai_client, model=model) for model in ("b", "a", "b", "a", "b")]
    assert said == ["B1", "A1", "For anyone.", "A2", DEFAULT]


async def test_what_was_not_asked_for_can_be_seen(
    provider: ScriptedProvider, openai_client: openai.AsyncOpenAI
) -> None:
    provider.script("One.", "Two.")
    await say(openai_client)
    assert provider.unused_answers == [Answer("Two.")]


async def test_a_function_may_decide(
    provider: ScriptedProvider, openai_client: openai.AsyncOpenAI
) -> None:
    def respond(request: ProviderRequest) -> Scripted | str | None:
        return f"You said: {request.user_text}" if request.user_text != "pass" else None

    provider.respond_with(respond)
    provider.script("Queued.")
    said = [await say(openai_client, text) for text in ("first", "echo", "pass")]
    assert said == ["Queued.", "You said: echo", DEFAULT]


async def test_a_request_is_recorded_as_it_came(
    provider: ScriptedProvider, openai_client: openai.AsyncOpenAI
) -> None:
    await say(openai_client, "What now?", model="gpt-4o")
    (request,) = provider.requests
    assert (request.wire, request.path) == ("openai-chat", "/v1/chat/completions")
    assert (request.model, request.stream, request.user_text) == ("gpt-4o", False, "What now?")
    assert request.messages == [{"role": "user", "content": "What now?"}]
    assert request.headers["content-type"] == "application/json"
    await request.finished.wait(10)
    assert (request.closed_early, request.closed_at, request.refused) == (False, None, None)


async def test_requests_can_be_waited_for(
    provider: ScriptedProvider, openai_client: openai.AsyncOpenAI
) -> None:
    with pytest.raises(TimeoutError, match="the arrival of request 1"):
        await provider.wait_for_request(1, timeout=0)
    second = asyncio.create_task(provider.wait_for_request(2))
    await say(openai_client, "one")
    assert not second.done()
    await say(openai_client, "two")
    assert (await second).user_text == "two"
    assert (await provider.wait_for_request(1)).user_text == "one"


async def test_a_reset_forgets_script_function_and_records(
    provider: ScriptedProvider, openai_client: openai.AsyncOpenAI
) -> None:
    provider.respond_with(lambda _request: "Decided.")
    await say(openai_client, "before")
    provider.script("Queued.")
    provider.reset()
    assert (provider.requests, provider.unused_answers) == ([], [])
    assert await say(openai_client, "after") == DEFAULT
    assert (await provider.wait_for_request(1)).user_text == "after"


async def test_no_minted_id_comes_twice_not_even_after_a_reset(
    provider: ScriptedProvider, openai_client: openai.AsyncOpenAI
) -> None:
    minted: list[str] = []
    for _ in range(2):
        provider.script(Answer(ToolCall("look"), ToolCall("look")))
        completion = await openai_client.chat.completions.create(
            model="gpt", messages=[{"role": "user", "content": "hi"}]
        )
        minted += [call.id for call in completion.choices[0].message.tool_calls or ()]
        provider.reset()
    assert minted == ["call_00000001", "call_00000002", "call_00000003", "call_00000004"]


async def test_a_client_that_gives_up_waiting_is_noticed(
    provider: ScriptedProvider, openai_client: openai.AsyncOpenAI
) -> None:
    provider.script(NoAnswer())
    asking = asyncio.create_task(say(openai_client))
    request = await provider.wait_for_request()
    asking.cancel()
    await request.finished.wait(10)
    assert request.closed_early


async def test_a_gate_holds_an_answer_that_is_not_streamed(
    provider: ScriptedProvider, openai_client: openai.AsyncOpenAI
) -> None:
    gate = Gate()
    provider.script(Answer("Now.", gate))
    asking = asyncio.create_task(say(openai_client))
    await gate.reached.wait()
    assert not asking.done()
    gate.release()
    assert await asking == "Now."


async def test_a_gate_that_nobody_opens_breaks_the_connection(
    provider: ScriptedProvider, openai_client: openai.AsyncOpenAI
) -> None:
    provider.script(Answer("Never.", Gate(limit_seconds=0.001)))
    with pytest.raises(openai.APIConnectionError):
        await say(openai_client)
    assert not provider.requests[0].closed_early


@pytest.mark.parametrize(
    "slow",
    [
        SlowHeaders(0.001, Answer("Late.")),
        Answer(Pause(0.001), "Late."),
        Answer(Text("Late.", delay_seconds=0.001)),
    ],
    ids=["headers", "pause", "delay"],
)
async def test_a_slow_answer_comes_in_the_end(
    provider: ScriptedProvider, openai_client: openai.AsyncOpenAI, slow: Scripted
) -> None:
    provider.script(slow)
    assert await say(openai_client) == "Late."


async def test_slow_headers_come_before_the_default_when_nothing_else_is_said(
    provider: ScriptedProvider, openai_client: openai.AsyncOpenAI
) -> None:
    provider.script(SlowHeaders(0))
    assert await say(openai_client) == DEFAULT


async def test_a_lenient_provider_refuses_nothing() -> None:
    async with (
        ScriptedProvider(strict=False, default="Hello.") as provider,
        openai.AsyncOpenAI(base_url=provider.openai_url, api_key="k", max_retries=0) as client,
    ):
        message: Any = {"role": "tool", "tool_call_id": "a", "content": "7"}
        await client.chat.completions.create(model="gpt", messages=[message])
        assert provider.requests[0].refused is None


async def test_leaving_ends_answers_that_still_wait() -> None:
    gate = Gate()
    async with ScriptedProvider() as provider:
        provider.script(Answer(gate, "Never."))
        client = openai.AsyncOpenAI(base_url=provider.openai_url, api_key="k", max_retries=0)
        asking = asyncio.create_task(say(client))
        await gate.reached.wait()
    with pytest.raises(openai.APIConnectionError):
        await asking
    await client.close()
    (request,) = provider.requests
    assert request.finished.happened
    assert not request.closed_early


def ask_without_sdk(url: str) -> str:
    with openai.OpenAI(base_url=url, api_key="k", max_retries=0, timeout=20) as client:
        completion = client.chat.completions.create(
            model="gpt", messages=[{"role": "user", "content": "hi"}]
        )
        return completion.choices[0].message.content or ""


def test_a_provider_in_a_thread_serves_code_without_a_loop() -> None:
    with ScriptedProvider.in_thread() as provider:
        provider.script("From the thread.", HttpError(500))
        assert ask_without_sdk(provider.openai_url) == "From the thread."
        with pytest.raises(openai.InternalServerError):
            ask_without_sdk(provider.openai_url)
        assert provider.block_for_request(2).user_text == "hi"


def test_a_gate_in_a_thread_is_worked_from_outside() -> None:
    gate = Gate()
    with ScriptedProvider.in_thread() as provider, ThreadPoolExecutor(1) as pool:
        provider.script(Answer(gate, "Through."))
        asking = pool.submit(ask_without_sdk, provider.openai_url)
        gate.reached.block()
        assert not asking.done()
        gate.release()
        assert asking.result(20) == "Through."
        provider.requests[0].finished.block()


def test_a_port_that_is_taken_raises_an_error() -> None:
    with ScriptedProvider.in_thread() as provider:
        port = int(provider.url.rsplit(":", 1)[1])
        with (
            pytest.raises(OSError, match="address already in use"),
            ScriptedProvider.in_thread(port=port),
        ):
            pass


@pytest.mark.slow
def test_as_a_process_it_prints_its_address_first_and_ends_on_a_signal() -> None:
    command = [sys.executable, "-m", "holdfast.testing", "--reply", "From the process."]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            assert url.startswith("http://127.0.0.1:")
            assert ask_without_sdk(f"{url}/v1") == "From the process."
            with urllib.request.urlopen(f"{url}/v1/models", timeout=20) as listed:
                assert b'"scripted-model"' in listed.read()
        finally:
            process.terminate()
        assert process.wait(20) == 0


async def test_an_answer_that_was_not_asked_for_fails_the_test() -> None:
    async def test() -> None:
        async with ScriptedProvider() as provider, make_client(provider) as client:
            provider.script("One.", "Two.")
            assert await say(client) == "One."

    with pytest.raises(ScriptMismatch, match=r"1 answer was not asked for: .*Two\."):
        await test()


async def test_a_request_for_which_nothing_is_scripted_fails_the_test() -> None:
    async def test() -> None:
        async with ScriptedProvider() as provider, make_client(provider) as client:
            with pytest.raises(openai.BadRequestError, match="Nothing is scripted"):
                await say(client, "Hello?")
            assert [request.user_text for request in provider.unscripted_requests] == ["Hello?"]

    with pytest.raises(
        ScriptMismatch, match=r"1 request found nothing scripted: 'Hello\?' for gpt"
    ):
        await test()


def test_a_provider_in_a_thread_checks_its_script_as_well() -> None:
    with (
        pytest.raises(ScriptMismatch, match="1 answer was not asked for"),
        ScriptedProvider.in_thread() as provider,
    ):
        provider.script("One.")


async def test_a_test_that_fails_keeps_its_own_error() -> None:
    async def test() -> None:
        async with ScriptedProvider() as provider:
            provider.script("One.")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await test()


async def test_a_script_can_be_checked_test_by_test() -> None:
    async with ScriptedProvider() as provider, make_client(provider) as client:
        provider.script("One.")
        with pytest.raises(ScriptMismatch):
            provider.check()
        provider.reset()
        provider.check()
        with pytest.raises(openai.BadRequestError):
            await say(client)
        provider.reset()
        provider.check()


async def test_the_check_of_the_script_can_be_switched_off() -> None:
    async with ScriptedProvider(check_script=False) as provider:
        provider.script("One.")
    with ScriptedProvider.in_thread(check_script=False) as provider:
        provider.script("One.")
