"""Streams: golden transcripts of both modes, readers that resume or leave, and what is refused (wire-v1 §4).

How to read a transcript is said in ``support.stream_transcripts``.
"""

import asyncio
import re
from collections.abc import Callable, Coroutine, Sequence
from typing import Any
from uuid import uuid4

import pytest
from fastapi import FastAPI
from httpx import AsyncClient
from tests.support.http_turns import ROLL
from tests.support.stream_transcripts import StreamReader, items, transcript

from holdfast.core.agents import Actor
from holdfast.core.ids import DEFAULT_ORGANIZATION_ID, DEFAULT_USER_ID, UUID4
from holdfast.core.messages import Thinking, ToolCall
from holdfast.errors import ModelRateLimited
from holdfast.http.letta_v1.streams import resume_stream, stream_from_start
from holdfast.http.sse import KEEP_ALIVE_COMMENT
from holdfast.ports.services import Services
from holdfast.usecases import runs

Stream = Callable[..., Coroutine[Any, Any, str]]

ASK = ToolCall(id="call_2", name="ask", arguments='{"what": 7}')
MODES = pytest.mark.parametrize("tokens", [False, True], ids=["steps", "tokens"])


@pytest.fixture
def stream(client: AsyncClient, agent_id: str) -> Stream:
    async def stream(path: str = "messages/stream", **options: Any) -> str:
        body = {"input": "hi"} | options
        answer = await client.post(f"/v1/agents/{agent_id}/{path}", json=body)
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
        return answer.text

    return stream


def usage(steps: int) -> str:
    return (
        f'usage_statistics {{"completion_tokens": {2 * steps}, "context_tokens": 12, '
        f'"prompt_tokens": {10 * steps}, "step_count": {steps}, "total_tokens": {12 * steps}}}'
    )


async def test_each_item_is_one_line_of_json_and_a_blank_one(model: Any, stream: Stream) -> None:
    model.says("Hello!")
    text = await stream(stream_tokens=True)
    [said, stop, used] = items(text)
    events = text.split("\n\n")
    assert [event[:7] for event in events[:3]] == ["data: {"] * 3
    assert events[3:] == ["data: [DONE]", ""]
    assert sorted(said) == [
        "content", "date", "id", "is_err", "message_type", "name", "otid", "run_id", "sender_id",
        "seq_id", "step_id",
    ]  # fmt: skip
    assert stop == {"message_type": "stop_reason", "stop_reason": "end_turn"}
    assert used["message_type"] == "usage_statistics"


async def test_a_plain_answer_in_steps(model: Any, stream: Stream) -> None:
    model.says("Hello there!")
    assert transcript(await stream()) == [
        'M1.0 S1 R1 assistant_message {"content": "Hello there!"}',
        'stop_reason {"stop_reason": "end_turn"}',
        usage(1),
        "data: [DONE]",
    ]


async def test_a_plain_answer_in_tokens(model: Any, stream: Stream) -> None:
    model.says("Hello there!")
    assert transcript(await stream(stream_tokens=True)) == [
        'M1.0 S1 R1 assistant_message {"content": "Hello "}',
        'M1.0 S1 R1 assistant_message {"content": "there!"}',
        'stop_reason {"stop_reason": "end_turn"}',
        usage(1),
        "data: [DONE]",
    ]


async def test_thoughts_and_words_in_steps(model: Any, stream: Stream) -> None:
    model.says(Thinking("I see."), Thinking("", signature="x", redacted=True), "Hello!")
    assert transcript(await stream()) == [
        'M1.0 S1 R1 reasoning_message {"reasoning": "I see."}',
        'M1.1 S1 R1 hidden_reasoning_message {"hidden_reasoning": "x", "state": "redacted"}',
        'M1.2 S1 R1 assistant_message {"content": "Hello!"}',
        'stop_reason {"stop_reason": "end_turn"}',
        usage(1),
        "data: [DONE]",
    ]


async def test_thoughts_and_words_in_tokens(model: Any, stream: Stream) -> None:
    model.says(Thinking("", id="rs_1"), Thinking("I see."), "Hello!")
    assert transcript(await stream(stream_tokens=True)) == [
        'M1.0 S1 R1 hidden_reasoning_message {"state": "omitted"}',
        'M1.1 S1 R1 reasoning_message {"reasoning": "I "}',
        'M1.1 S1 R1 reasoning_message {"reasoning": "see."}',
        'M1.2 S1 R1 assistant_message {"content": "Hello!"}',
        'stop_reason {"stop_reason": "end_turn"}',
        usage(1),
        "data: [DONE]",
    ]


@pytest.mark.usefixtures("roll_id")
async def test_a_tool_loop_in_steps(model: Any, stream: Stream) -> None:
    model.says("Rolling.", calls=[ROLL])
    model.says("A four.")
    assert transcript(await stream()) == [
        'M1.0 S1 R1 assistant_message {"content": "Rolling."}',
        'M1.1 S1 R1 tool_call_message {"tool_calls": [{"arguments": "{\\"sides\\": 6}", "name": "roll", "tool_call_id": "call_1"}]}',
        'M2.0 S1 R1 tool_return_message {"name": "roll", "status": "success", "tool_call_id": "call_1", "tool_return": "4"}',
        'M3.0 S2 R1 assistant_message {"content": "A four."}',
        'stop_reason {"stop_reason": "end_turn"}',
        usage(2),
        "data: [DONE]",
    ]


@pytest.mark.usefixtures("roll_id")
async def test_a_tool_loop_in_tokens(model: Any, stream: Stream) -> None:
    model.says("Rolling.", calls=[ROLL])
    model.says("A four.")
    assert transcript(await stream(stream_tokens=True)) == [
        'M1.0 S1 R1 assistant_message {"content": "Rolling."}',
        'M1.1 S1 R1 tool_call_message {"tool_calls": {"arguments": null, "name": "roll", "tool_call_id": "call_1"}}',
        'M1.1 S1 R1 tool_call_message {"tool_calls": {"arguments": "{\\"sides\\": ", "name": "roll", "tool_call_id": "call_1"}}',
        'M1.1 S1 R1 tool_call_message {"tool_calls": {"arguments": "6}", "name": "roll", "tool_call_id": "call_1"}}',
        'M2.0 S1 R1 tool_return_message {"name": "roll", "status": "success", "tool_call_id": "call_1", "tool_return": "4"}',
        'M3.0 S2 R1 assistant_message {"content": "A "}',
        'M3.0 S2 R1 assistant_message {"content": "four."}',
        'stop_reason {"stop_reason": "end_turn"}',
        usage(2),
        "data: [DONE]",
    ]


async def test_a_held_call_in_steps(model: Any, stream: Stream) -> None:
    model.says(Thinking("Ask."), calls=[ASK])
    assert transcript(await stream(client_tools=[{"name": "ask"}])) == [
        'M1.0 S1 R1 reasoning_message {"reasoning": "Ask."}',
        'M1 S1 R1 approval_request_message {"tool_calls": [{"arguments": "{\\"what\\": 7}", "name": "ask", "tool_call_id": "call_2"}]}',
        'stop_reason {"stop_reason": "requires_approval"}',
        usage(1),
        "data: [DONE]",
    ]


async def test_a_held_call_in_tokens(model: Any, stream: Stream) -> None:
    model.says(Thinking("Ask."), calls=[ASK])
    assert transcript(await stream(stream_tokens=True, client_tools=[{"name": "ask"}])) == [
        'M1.0 S1 R1 reasoning_message {"reasoning": "Ask."}',
        'M1 S1 R1 approval_request_message {"tool_calls": {"arguments": null, "name": "ask", "tool_call_id": "call_2"}}',
        'M1 S1 R1 approval_request_message {"tool_calls": {"arguments": "{\\"what\\": ", "name": "ask", "tool_call_id": "call_2"}}',
        'M1 S1 R1 approval_request_message {"tool_calls": {"arguments": "7}", "name": "ask", "tool_call_id": "call_2"}}',
        'stop_reason {"stop_reason": "requires_approval"}',
        usage(1),
        "data: [DONE]",
    ]


@pytest.fixture
async def parallel(client: AsyncClient, agent_id: str, roll_id: str) -> None:
    answer = await client.patch(f"/v1/agents/{agent_id}", json={"parallel_tool_calls": True})
    assert answer.status_code == 200


@pytest.mark.usefixtures("parallel")
async def test_held_and_automatic_calls_in_steps(model: Any, stream: Stream) -> None:
    model.says(Thinking("Both."), calls=[ASK, ROLL])
    assert transcript(await stream(client_tools=[{"name": "ask"}])) == [
        'M1.0 S1 R1 reasoning_message {"reasoning": "Both."}',
        'M1.1 S1 R1 tool_call_message {"tool_calls": [{"arguments": "{\\"sides\\": 6}", "name": "roll", "tool_call_id": "call_1"}]}',
        'M2 S1 R1 approval_request_message {"tool_calls": [{"arguments": "{\\"what\\": 7}", "name": "ask", "tool_call_id": "call_2"}]}',
        'stop_reason {"stop_reason": "requires_approval"}',
        usage(1),
        "data: [DONE]",
    ]


@pytest.mark.usefixtures("parallel")
async def test_held_and_automatic_calls_in_tokens(model: Any, stream: Stream) -> None:
    model.says(Thinking("Both."), calls=[ASK, ROLL])
    assert transcript(await stream(stream_tokens=True, client_tools=[{"name": "ask"}])) == [
        'M1.0 S1 R1 reasoning_message {"reasoning": "Both."}',
        'M1.1 S1 R1 tool_call_message {"tool_calls": {"arguments": null, "name": "roll", "tool_call_id": "call_1"}}',
        'M1.1 S1 R1 tool_call_message {"tool_calls": {"arguments": "{\\"sides\\": ", "name": "roll", "tool_call_id": "call_1"}}',
        'M1.1 S1 R1 tool_call_message {"tool_calls": {"arguments": "6}", "name": "roll", "tool_call_id": "call_1"}}',
        'M2 S1 R1 approval_request_message {"tool_calls": {"arguments": null, "name": "ask", "tool_call_id": "call_2"}}',
        'M2 S1 R1 approval_request_message {"tool_calls": {"arguments": "{\\"what\\": ", "name": "ask", "tool_call_id": "call_2"}}',
        'M2 S1 R1 approval_request_message {"tool_calls": {"arguments": "7}", "name": "ask", "tool_call_id": "call_2"}}',
        'stop_reason {"stop_reason": "requires_approval"}',
        usage(1),
        "data: [DONE]",
    ]


@pytest.mark.usefixtures("parallel")
@pytest.mark.parametrize("calls", [[ROLL], [ASK], [ASK, ROLL]], ids=["auto", "held", "mixed"])
@MODES
async def test_what_is_streamed_has_the_ids_and_otids_of_what_is_stored(
    client: AsyncClient, agent_id: str, model: Any, stream: Stream, calls: Any, tokens: bool
) -> None:
    model.says(Thinking("So."), "Well.", calls=calls)
    model.says("Done.")
    text = await stream(stream_tokens=tokens, client_tools=[{"name": "ask"}])
    stored = (await client.get(f"/v1/agents/{agent_id}/messages")).json()

    def message_keys(messages: list[dict[str, Any]]) -> list[tuple[str, ...]]:
        keys = ("message_type", "id", "otid", "step_id", "run_id")
        # Chunks of one message follow each other.
        return list(
            dict.fromkeys(tuple(item[key] for key in keys) for item in messages if "id" in item)
        )

    assert message_keys(items(text)) == message_keys(stored)[2:]


FAILED = [
    'stop_reason {"stop_reason": "llm_api_error"}',
    'event: error R1 error_message {"detail": "slow down, please", "error_type": "llm_rate_limit", "message": "Rate limit exceeded for LLM model provider. Please wait before making another request."}',
    "data: [DONE]",
]


@MODES
async def test_a_failure_before_the_first_token(model: Any, stream: Stream, tokens: bool) -> None:
    model.fails(ModelRateLimited("slow down, please"))
    assert transcript(await stream(stream_tokens=tokens)) == FAILED


async def test_a_failure_in_the_middle_in_steps(model: Any, stream: Stream) -> None:
    model.fails(ModelRateLimited("slow down, please"), after="I was about")
    assert transcript(await stream()) == FAILED


async def test_a_failure_in_the_middle_in_tokens(model: Any, stream: Stream) -> None:
    model.fails(ModelRateLimited("slow down, please"), after="I was")
    text = await stream(stream_tokens=True)
    assert transcript(text) == [
        'M1.0 S1 R1 assistant_message {"content": "I "}',
        'M1.0 S1 R1 assistant_message {"content": "was"}',
        *FAILED,
    ]


@pytest.mark.usefixtures("roll_id")
@MODES
async def test_the_last_step_ends_with_its_results(
    model: Any, stream: Stream, tokens: bool
) -> None:
    model.says(calls=[ROLL])
    lines = transcript(await stream(stream_tokens=tokens, max_steps=1))
    assert lines[-4:] == [
        'M2.0 S1 R1 tool_return_message {"name": "roll", "status": "success", "tool_call_id": "call_1", "tool_return": "4"}',
        'stop_reason {"stop_reason": "max_steps"}',
        usage(1),
        "data: [DONE]",
    ]


@MODES
async def test_an_approval_streams_its_result_first(
    model: Any, stream: Stream, tokens: bool
) -> None:
    model.says(calls=[ASK])
    await stream(client_tools=[{"name": "ask"}])
    model.says("Thanks.")
    answer = {"type": "tool", "tool_call_id": "call_2", "tool_return": "8", "status": "success"}
    lines = transcript(
        await stream(
            input=None,
            messages=[{"type": "approval", "approvals": [answer]}],
            stream_tokens=tokens,
        )
    )
    assert lines[:2] == [
        'M1.0 S1 R1 tool_return_message {"status": "success", "tool_call_id": "call_2", "tool_return": "8"}',
        'M2.0 S2 R1 assistant_message {"content": "Thanks."}',
    ]


@pytest.mark.usefixtures("roll_id")
@MODES
async def test_a_filter_holds_for_messages_and_nothing_else(
    model: Any, stream: Stream, tokens: bool
) -> None:
    options = {"include_return_message_types": ["tool_return_message"], "stream_tokens": tokens}
    model.says("Rolling.", calls=[ROLL])
    model.says("A four.")
    types = [item["message_type"] for item in items(await stream(**options))]
    assert types == ["tool_return_message", "stop_reason", "usage_statistics"]
    model.fails(ModelRateLimited("slow down"))
    types = [item["message_type"] for item in items(await stream(**options))]
    assert types == ["stop_reason", "error_message"]


@pytest.mark.usefixtures("roll_id")
@MODES
async def test_only_a_background_stream_is_numbered(
    model: Any, stream: Stream, tokens: bool
) -> None:
    for _ in range(2):
        model.says("Rolling.", calls=[ROLL])
        model.says("A four.")
    foreground = items(await stream(stream_tokens=tokens))
    assert {item.get("seq_id") for item in foreground} == {None}
    background = items(await stream(stream_tokens=tokens, background=True))
    numbers = [item["seq_id"] for item in background if "seq_id" in item]
    assert numbers == list(range(1, len(background) - 1))
    model.fails(ModelRateLimited("slow down"))
    assert items(await stream(stream_tokens=tokens, background=True))[-1]["seq_id"] == 1


@pytest.mark.parametrize(
    ("path", "options", "run_type", "background"),
    [
        ("messages/stream", {}, "send_message_streaming", False),
        ("messages/stream", {"streaming": False}, "send_message_streaming", False),
        ("messages/stream", {"background": True}, "send_message_streaming", True),
        ("messages", {"streaming": True}, "send_message", False),
        ("messages", {"streaming": True, "background": True}, "send_message", True),
    ],
)
async def test_a_run_says_how_it_was_begun(
    client: AsyncClient,
    model: Any,
    stream: Stream,
    path: str,
    options: dict[str, Any],
    run_type: str,
    background: bool,
) -> None:
    model.says("Hello!")
    [said, *_] = items(await stream(path, **options))
    [run] = (await client.get("/v1/runs/")).json()
    assert run["id"] == said["run_id"]
    assert (run["status"], run["stop_reason"]) == ("completed", "end_turn")
    assert run["metadata"] == {"run_type": run_type}
    assert run["background"] is background


# Readers come, resume, leave and stop reading; the run does not mind.


async def load_only_run(client: AsyncClient) -> dict[str, Any]:
    [run] = (await client.get("/v1/runs/")).json()
    assert isinstance(run, dict)
    return run


async def read_resumed_stream(client: AsyncClient, run_id: str, /, **body: Any) -> str:
    answer = await client.post(f"/v1/runs/{run_id}/stream", json=body)
    assert answer.status_code == 200, answer.text
    assert answer.text.endswith("data: [DONE]\n\n")
    return answer.text


def without_dates_and_numbers(stream: str) -> list[dict[str, Any]]:
    """Without what differs between readings of a log: dates of tokens, and numbers where none are shown."""
    return [
        {key: value for key, value in item.items() if key not in {"date", "seq_id"}}
        for item in items(stream)
    ]


@pytest.mark.usefixtures("roll_id")
@pytest.mark.parametrize("background", [False, True])
@pytest.mark.parametrize("tokens", [False, True])
async def test_any_ended_run_can_be_read_from_any_number(
    client: AsyncClient, agent_id: str, model: Any, background: bool, tokens: bool
) -> None:
    model.says("Rolling it.", calls=[ROLL])
    model.says("A four.")
    body = {"input": "hi", "background": background, "stream_tokens": tokens}
    first = (await client.post(f"/v1/agents/{agent_id}/messages/stream", json=body)).text
    run_id = items(first)[0]["run_id"]
    again = await read_resumed_stream(client, run_id)
    assert without_dates_and_numbers(again) == without_dates_and_numbers(first)
    told = items(again)
    numbers = [item["seq_id"] for item in told if "seq_id" in item]
    assert numbers == list(range(1, len(told) - 1))
    for number in numbers:
        rest = without_dates_and_numbers(
            await read_resumed_stream(client, run_id, starting_after=number)
        )
        assert rest == without_dates_and_numbers(again)[number:]
    # After the end there is nothing, and that is no reason to wait.
    end = numbers[-1] + 1
    for beyond in (end, end + 1, 10**9):
        assert (
            await read_resumed_stream(client, run_id, starting_after=beyond) == "data: [DONE]\n\n"
        )


async def test_a_failed_run_fails_again_for_each_reader(
    client: AsyncClient, agent_id: str, model: Any
) -> None:
    model.fails(ModelRateLimited("slow down"), after="I was")
    body = {"input": "hi", "stream_tokens": True}
    first = (await client.post(f"/v1/agents/{agent_id}/messages/stream", json=body)).text
    again = await read_resumed_stream(client, items(first)[0]["run_id"])
    assert without_dates_and_numbers(again) == without_dates_and_numbers(first)
    assert items(again)[-1]["detail"] == "slow down"
    assert items(again)[-1]["seq_id"] == 3
    assert "usage_statistics" not in again


async def test_a_resumed_stream_keeps_the_runs_filter(
    client: AsyncClient, agent_id: str, model: Any
) -> None:
    model.says("Hello!")
    body = {"input": "hi", "include_return_message_types": ["tool_return_message"]}
    await client.post(f"/v1/agents/{agent_id}/messages/stream", json=body)
    again = await read_resumed_stream(client, (await load_only_run(client))["id"])
    assert [item["message_type"] for item in items(again)] == ["stop_reason", "usage_statistics"]


@pytest.mark.parametrize("cursor", [-1, "x", "1", 1.5, True, [], {}, 2**63, 10**40])
async def test_a_bad_cursor_is_refused_in_words(client: AsyncClient, cursor: object) -> None:
    path = f"/v1/runs/run-{uuid4()}/stream"
    answer = await client.post(path, json={"starting_after": cursor})
    assert answer.status_code == 400
    assert answer.json()["detail"].startswith("INVALID_ARGUMENT: 'starting_after' must be")


async def test_a_run_that_is_not_there_cannot_be_read(client: AsyncClient) -> None:
    assert (await client.post(f"/v1/runs/run-{uuid4()}/stream", json={})).status_code == 404
    assert (await client.post(f"/v1/runs/run-{uuid4()}/stream")).status_code == 404
    malformed = await client.post("/v1/runs/nonsense/stream", json={})
    assert malformed.status_code == 400
    assert "Invalid run ID format" in malformed.json()["detail"]
    wrong = await client.post(f"/v1/runs/run-{uuid4()}/stream", json={"include_pings": "maybe"})
    assert wrong.status_code == 422


async def test_hints_are_accepted_and_not_needed(
    client: AsyncClient, agent_id: str, model: Any
) -> None:
    model.says("Hello!")
    await client.post(f"/v1/agents/{agent_id}/messages/stream", json={"input": "hi"})
    hints = {"poll_interval": 5, "batch_size": 1, "agent_id": "x", "run_id": "y", "otid": "z"}
    run_id = (await load_only_run(client))["id"]
    assert without_dates_and_numbers(
        await read_resumed_stream(client, run_id, **hints)
    ) == without_dates_and_numbers(await read_resumed_stream(client, run_id, starting_after=None))


async def test_an_async_send_answers_with_its_run_at_once(
    client: AsyncClient, agent_id: str, model: Any
) -> None:
    model.gate.clear()
    model.says("Hello there!")
    body = {"input": "hi", "stream_tokens": True, "include_pings": False}
    run = (await client.post(f"/v1/agents/{agent_id}/messages/async", json=body)).json()
    assert (run["status"], run["stop_reason"], run["background"]) == ("created", None, True)
    assert run["metadata"] == {"run_type": "send_message_async", "lettuce": None}
    model.gate.set()
    told = items(await read_resumed_stream(client, run["id"]))
    assert [item.get("content") for item in told] == ["Hello there!", None, None]
    assert (await load_only_run(client))["status"] == "completed"


async def open_gated_stream(
    model: Any, app: FastAPI, agent_id: str, **options: Any
) -> StreamReader:
    """A stream that stops after its first word until the model is fluent again."""
    model.stream_gate.clear()
    model.says("One two three.")
    body = {"input": "hi", "stream_tokens": True} | options
    return StreamReader(app, f"/v1/agents/{agent_id}/messages/stream", body)


def words(stream: str) -> Sequence[str]:
    return [item["content"] for item in items(stream) if "content" in item]


async def test_a_token_is_shown_before_the_next_one_exists(
    app: FastAPI, agent_id: str, model: Any
) -> None:
    async with await open_gated_stream(model, app, agent_id) as reader:
        await reader.wait_for("One ")
        assert words(reader.text) == ["One "]
        model.stream_gate.set()
        assert words(await reader.read_all()) == ["One ", "two ", "three."]


@pytest.mark.parametrize("background", [False, True])
async def test_a_reader_that_leaves_changes_nothing(
    app: FastAPI, client: AsyncClient, agent_id: str, model: Any, background: bool
) -> None:
    async with await open_gated_stream(model, app, agent_id, background=background) as reader:
        await reader.wait_for("One ")
    assert not reader.is_over
    run = await load_only_run(client)
    assert run["status"] == "running"
    async with StreamReader(app, f"/v1/runs/{run['id']}/stream", {"starting_after": 1}) as second:
        model.stream_gate.set()
        assert words(await second.read_all()) == ["two ", "three."]
    assert (await load_only_run(client))["status"] == "completed"


async def test_a_run_may_be_cancelled_when_its_reader_disconnects(
    app: FastAPI, client: AsyncClient, agent_id: str, model: Any
) -> None:
    async with await open_gated_stream(model, app, agent_id, on_disconnect="cancel") as reader:
        await reader.wait_for("One ")
        run_id = (await load_only_run(client))["id"]
    told = items(await read_resumed_stream(client, run_id))
    assert told[-2]["stop_reason"] == "cancelled"
    assert (await load_only_run(client))["status"] == "cancelled"


async def test_a_reader_that_got_the_end_cancels_nothing(
    app: FastAPI, client: AsyncClient, agent_id: str, model: Any
) -> None:
    model.says(calls=[ToolCall(id="call_2", name="ask", arguments="{}")])
    body = {"input": "hi", "client_tools": [{"name": "ask"}], "on_disconnect": "cancel"}
    async with StreamReader(app, f"/v1/agents/{agent_id}/messages/stream", body) as reader:
        await reader.read_all()
    assert (await load_only_run(client))["stop_reason"] == "requires_approval"


async def test_two_readers_get_the_same_events(app: FastAPI, agent_id: str, model: Any) -> None:
    async with await open_gated_stream(model, app, agent_id) as one:
        await one.wait_for("One ")
        path = f"/v1/runs/{items(one.text)[0]['run_id']}/stream"
        async with StreamReader(app, path, {}) as two:
            await two.wait_for("One ")
            model.stream_gate.set()
            assert without_dates_and_numbers(await two.read_all()) == without_dates_and_numbers(
                await one.read_all()
            )


async def test_a_stopping_server_ends_a_stream_without_an_ending(
    app: FastAPI, services: Services, agent_id: str, model: Any
) -> None:
    async with await open_gated_stream(model, app, agent_id) as reader:
        await reader.wait_for("One ")
        services.events.disconnect_readers()
        text = await reader.read_all()
    assert words(text) == ["One "]
    assert "stop_reason" not in text
    assert "[DONE]" not in text
    model.stream_gate.set()


async def test_a_reader_that_waits_for_its_turn_is_kept_waiting_and_not_refused(
    app: FastAPI, client: AsyncClient, agent_id: str, model: Any
) -> None:
    async with await open_gated_stream(model, app, agent_id) as first:
        await first.wait_for("One ")
        model.says("Mine.")
        path = f"/v1/agents/{agent_id}/messages/stream"
        second = asyncio.create_task(client.post(path, json={"input": "and?"}))
        async with asyncio.timeout(10):
            while len((await client.get("/v1/runs/active")).json()) < 2:
                pass
        model.stream_gate.set()
        await first.read_all()
        assert words((await asyncio.wait_for(second, 10)).text) == ["Mine."]


async def test_a_silence_is_filled_with_pings_or_comments_as_the_reader_wishes(
    client: AsyncClient, services: Services, agent_id: str, model: Any
) -> None:
    model.says("Hello!")
    body = {"input": "hi", "include_pings": False}
    await client.post(f"/v1/agents/{agent_id}/messages/stream", json=body)
    actor = Actor(DEFAULT_USER_ID, DEFAULT_ORGANIZATION_ID)
    run = await runs.retrieve(services, actor, (await load_only_run(client))["id"])
    assert stream_from_start(services, actor, run)._keep_alive() == KEEP_ALIVE_COMMENT
    assert resume_stream(services, run, include_pings=False)._keep_alive() == KEEP_ALIVE_COMMENT
    for after, seq in ((0, None), (1, 1)):
        text = resume_stream(services, run, after=after)._keep_alive().decode()
        [ping] = items(text)
        assert (ping["message_type"], ping["run_id"], ping["seq_id"]) == ("ping", run.id, seq)
        assert re.fullmatch(f"ping-{UUID4}", ping["id"])


# What cannot be streamed: an HTTP error, or one in the stream where V1's loop found it.

PENDING = (
    "Cannot send a new message: The agent is waiting for approval on a tool call. "
    "Please approve or deny the pending request before continuing."
)
NOTHING_PENDING = "Cannot process approval response: No tool call is currently awaiting approval."


def approval(call_id: str) -> dict[str, Any]:
    entry = {"type": "approval", "approve": True, "tool_call_id": call_id}
    return {"messages": [{"type": "approval", "approvals": [entry]}]}


@pytest.fixture
async def paused(client: AsyncClient, agent_id: str, model: Any) -> str:
    """The run that waits for a person."""
    model.says(calls=[ASK])
    body = {"input": "hi", "client_tools": [{"name": "ask"}]}
    answer = await client.post(f"/v1/agents/{agent_id}/messages/stream", json=body)
    return str(items(answer.text)[0]["run_id"])


@pytest.mark.parametrize(
    ("body", "status", "phrase"),
    [
        ({}, 422, "Must specify either 'input' or 'messages'."),
        ({"messages": []}, 422, "Messages must not be empty"),
        ({"input": "a", "max_steps": 0}, 422, "max_steps"),
        ({"input": "a", "on_disconnect": "panic"}, 422, "on_disconnect"),
        ({"input": "a", "override_model": "nobody/nothing"}, 404, "nobody/nothing not found"),
    ],
)
@pytest.mark.parametrize("path", ["messages/stream", "messages/async", "messages"])
async def test_what_is_wrong_with_the_request_is_an_http_error(
    client: AsyncClient, agent_id: str, path: str, body: dict[str, Any], status: int, phrase: str
) -> None:
    streaming = {"streaming": True} if path == "messages" else {}
    answer = await client.post(f"/v1/agents/{agent_id}/{path}", json=body | streaming)
    assert answer.status_code == status
    assert phrase in answer.json()["detail"]
    assert (await client.get("/v1/runs/")).json() == []


@pytest.mark.parametrize("path", ["messages/stream", "messages/async"])
async def test_an_agent_that_is_not_there_is_not_found(client: AsyncClient, path: str) -> None:
    answer = await client.post(f"/v1/agents/agent-{uuid4()}/{path}", json={"input": "hi"})
    assert (answer.status_code, answer.json()) == (404, {"detail": "Agent not found"})
    assert (await client.post(f"/v1/agents/nope/{path}", json={"input": "hi"})).status_code == 422


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ({"input": "and?"}, PENDING),
        (
            approval("nope"),
            "Invalid tool call IDs. Expected '['call_2']', but received '['nope']'.",
        ),
    ],
)
@pytest.mark.parametrize("background", [False, True])
async def test_a_paused_thread_refuses_in_the_stream_and_makes_no_run(
    client: AsyncClient,
    agent_id: str,
    paused: str,
    body: dict[str, Any],
    sentence: str,
    background: bool,
) -> None:
    path = f"/v1/agents/{agent_id}/messages/stream"
    answer = await client.post(path, json=body | {"background": background})
    assert answer.status_code == 200
    [stop, error] = items(answer.text)
    assert stop == {"message_type": "stop_reason", "stop_reason": "error"}
    # After V1's sentence comes the way out.
    assert error["message"].startswith(f"{sentence} Waiting: ask (call_2). ")
    assert error == {
        "message_type": "error_message",
        "run_id": None,
        "error_type": "internal_error",
        "message": error["message"],
        "detail": error["message"],
        "seq_id": None,
    }
    assert "\n\nevent: error\ndata: " in answer.text
    assert answer.text.endswith("\n\ndata: [DONE]\n\n")
    assert [run["id"] for run in (await client.get("/v1/runs/")).json()] == [paused]


async def test_an_answer_to_nothing_is_refused_in_the_stream(
    client: AsyncClient, agent_id: str
) -> None:
    answer = await client.post(f"/v1/agents/{agent_id}/messages/stream", json=approval("call_2"))
    assert answer.status_code == 200
    assert items(answer.text)[1]["message"].startswith(NOTHING_PENDING)
    assert (await client.get("/v1/runs/")).json() == []


async def test_a_run_that_finds_the_thread_paused_at_its_turn_says_so_in_its_stream(
    app: FastAPI, client: AsyncClient, agent_id: str, model: Any
) -> None:
    model.gate.clear()
    model.says(calls=[ASK])
    path, tools = f"/v1/agents/{agent_id}/messages/stream", [{"name": "ask"}]
    async with (
        StreamReader(app, path, {"input": "hi", "client_tools": tools}) as first,
        StreamReader(app, path, {"input": "and?"}) as second,
    ):
        async with asyncio.timeout(10):
            while len((await client.get("/v1/runs/active")).json()) < 2:
                pass
        model.gate.set()
        assert items(await first.read_all())[-2]["stop_reason"] == "requires_approval"
        [stop, error] = items(await second.read_all())
    assert stop["stop_reason"] == "error"
    assert (error["error_type"], error["message"]) == ("internal_error", PENDING)


@pytest.mark.parametrize("busy_wait_seconds", [0.05])
async def test_a_busy_thread_refuses_a_stream_before_it_begins(
    app: FastAPI, client: AsyncClient, agent_id: str, model: Any
) -> None:
    model.gate.clear()
    model.says("Hello!")
    path = f"/v1/agents/{agent_id}/messages/stream"
    async with StreamReader(app, path, {"input": "one"}) as first:
        await asyncio.wait_for(model.asked.wait(), 10)
        refused = await client.post(path, json={"input": "two"})
        assert refused.status_code == 409
        holder = refused.json()["run_id"]
        assert f"Another request (run_id={holder}) is currently being processed" in refused.text
        model.gate.set()
        assert items(await first.read_all())[0]["run_id"] == holder
    assert [run["id"] for run in (await client.get("/v1/runs/")).json()] == [holder]


@pytest.mark.parametrize("busy_wait_seconds", [0.0])
async def test_in_the_background_there_is_no_hurry(
    app: FastAPI, client: AsyncClient, agent_id: str, model: Any
) -> None:
    model.gate.clear()
    for text in ("One.", "Two.", "Three."):
        model.says(text)
    path = f"/v1/agents/{agent_id}/messages"
    async with StreamReader(app, f"{path}/stream", {"input": "1", "background": True}) as first:
        await asyncio.wait_for(model.asked.wait(), 10)
        async with StreamReader(
            app, f"{path}/stream", {"input": "2", "background": True}
        ) as second:
            await second.wait_for_start()
            sent = await client.post(f"{path}/async", json={"input": "3"})
            assert sent.status_code == 200
            model.gate.set()
            assert items(await first.read_all())[0]["content"] == "One."
            assert items(await second.read_all())[0]["content"] == "Two."
    last = await client.post(f"/v1/runs/{sent.json()['id']}/stream", json={})
    assert items(last.text)[0]["content"] == "Three."
