"""What every Model does, tested on Bedrock's binary wire."""

from datetime import UTC, datetime

import pytest
from tests.support.model_questions import (
    FLIP,
    HELLO,
    ROLL,
    answer_rows,
    ask_for_answer,
    ask_for_events,
    cancel_after_first_event,
    make_question,
    provider_settings,
    refusal,
)

from holdfast import errors, testing
from holdfast.adapters.models.router import ModelRouter
from holdfast.core.messages import Text, Thinking
from holdfast.core.models import ModelSettings
from holdfast.core.providers import Keys, Provider
from holdfast.core.runs import Usage
from holdfast.core.turn import Finish
from holdfast.ports.model import Answer, TextDelta, ThinkingDelta
from holdfast.testing import ScriptedProvider

HANDLE = "bedrock/anthropic.claude-haiku-4-5-20251001-v1:0"
THINKING = ModelSettings(thinking=True)


async def test_an_answer_comes_in_pieces_and_then_whole(
    provider: ScriptedProvider, model: ModelRouter
) -> None:
    usage = testing.Usage(100, 40, cached_input_tokens=60, cache_write_tokens=30)
    scripted = testing.Answer(
        testing.Thinking("Let me see.", signature="c2lnbmVk"),
        "I do both.",
        testing.ToolCall("roll_dice", {"num_sides": 6}),
        testing.ToolCall("flip_coin"),
        usage=usage,
    )
    provider.script(scripted)
    question = make_question(
        HANDLE, tools=(ROLL, FLIP), settings=THINKING, parallel_tool_calls=True
    )
    events = await ask_for_events(model, question)
    answer = events[-1]
    assert isinstance(answer, Answer)
    thoughts = [event.text for event in events if isinstance(event, ThinkingDelta)]
    assert "".join(thoughts) == "Let me see."
    words = [event.text for event in events if isinstance(event, TextDelta)]
    assert (len(words) > 1, "".join(words)) == (True, "I do both.")
    thought, text = answer.content
    assert isinstance(thought, Thinking)
    assert isinstance(text, Text)
    assert (thought.text, thought.signature) == ("Let me see.", "c2lnbmVk")
    assert [(call.name, call.arguments) for call in answer.tool_calls] == [
        ("roll_dice", '{"num_sides":6}'),
        ("flip_coin", "{}"),
    ]
    assert answer.finish is Finish.TOOL_CALLS
    assert answer.usage == Usage(100, 40, 60, 30, None)


async def test_a_thought_goes_back_to_bedrock(
    provider: ScriptedProvider, model: ModelRouter
) -> None:
    thought = testing.Thinking("Hm.", signature="c2lnbmVk")
    provider.script(testing.Answer(thought, testing.ToolCall("flip_coin")))
    first = await ask_for_answer(model, make_question(HANDLE, tools=(FLIP,), settings=THINKING))
    rows = (HELLO, *answer_rows(first))
    await ask_for_answer(model, make_question(HANDLE, *rows, tools=(FLIP,), settings=THINKING))
    second = provider.requests[1]
    assert second.refused is None
    assert "c2lnbmVk" in str(second.messages)


async def test_bedrock_requests_have_cache_markers(
    provider: ScriptedProvider, model: ModelRouter
) -> None:
    await ask_for_answer(model, make_question(HANDLE, tools=(FLIP,)))
    body = provider.requests[0].body
    for place in (body["system"], body["toolConfig"]["tools"], body["messages"][-1]["content"]):
        assert "cachePoint" in place[-1]


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (400, errors.ModelRejectedRequest),
        (403, errors.ModelAuthFailed),
        (429, errors.ModelRateLimited),
        (500, errors.ModelError),
        (503, errors.ModelOverloaded),
    ],
)
async def test_each_status_has_its_error(
    provider: ScriptedProvider, model: ModelRouter, status: int, expected: type[errors.ModelError]
) -> None:
    assert type(await refusal(provider, model, HANDLE, status)) is expected


@pytest.mark.parametrize(
    "fault",
    [
        testing.EmptyAnswer(),
        testing.MalformedSse(),
        testing.ResetConnection(),
        testing.Answer("Half an", testing.HangUp()),
        testing.Answer("Half an", testing.HttpError(500, "No more.")),
    ],
    ids=["nothing", "malformed", "reset", "hung up", "failed"],
)
async def test_a_broken_stream_is_a_model_error(
    provider: ScriptedProvider, model: ModelRouter, fault: testing.Scripted
) -> None:
    provider.script(fault)
    with pytest.raises(errors.ModelError) as raised:
        await ask_for_answer(model, make_question(HANDLE))
    assert raised.value.transient


async def test_a_provider_that_says_nothing_times_out(provider: ScriptedProvider) -> None:
    impatient = ModelRouter(provider_settings(provider, silence_seconds=0.05))
    for fault in (testing.NoAnswer(), testing.Answer("Well", testing.Hang())):
        provider.script(fault)
        with pytest.raises(errors.ModelTimedOut) as raised:
            await ask_for_answer(impatient, make_question(HANDLE))
        assert raised.value.transient
    await impatient.aclose()


async def test_a_provider_that_is_not_there_may_come_back() -> None:
    async with ScriptedProvider() as gone:
        settings = provider_settings(gone)
    router = ModelRouter(settings)
    with pytest.raises(errors.ModelError) as raised:
        await ask_for_answer(router, make_question(HANDLE))
    assert raised.value.transient
    await router.aclose()


async def test_cancelling_closes_the_socket(provider: ScriptedProvider, model: ModelRouter) -> None:
    provider.script(testing.Answer("One", testing.Hang()))
    await cancel_after_first_event(model, make_question(HANDLE))
    await provider.requests[0].finished.wait(10)
    assert provider.requests[0].closed_early


async def test_a_users_key_pair_signs_and_its_secret_half_is_never_sent(
    provider: ScriptedProvider,
) -> None:
    then = datetime(2026, 1, 1, tzinfo=UTC)
    mine = Provider(
        id="provider-1",
        organization_id="org-1",
        name="mine",
        provider_type="bedrock",
        keys=Keys(api_key="aws-secret-half", access_key="AKIDBROUGHT"),
        created_at=then,
        updated_at=then,
        base_url=provider.url,
        region="eu-west-1",
    )
    router = ModelRouter(provider_settings(provider, allowed_model_endpoints=(provider.url,)))
    try:
        question = make_question(HANDLE.replace("bedrock/", "mine/"), account=mine)
        await ask_for_answer(router, question)
    finally:
        await router.aclose()
    headers = provider.requests[0].headers
    assert headers["authorization"].startswith("AWS4-HMAC-SHA256 Credential=AKIDBROUGHT/")
    assert "aws-secret-half" not in str(headers)
