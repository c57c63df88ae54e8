"""Golden transcripts of both modes (wire-v1 §4.1-§4.6). How to read one is said in ``transcripts``."""

from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from httpx import AsyncClient
from tests.http.turns.transcripts import items, transcript

from holdfast.core.messages import Thinking, ToolCall
from holdfast.errors import ModelRateLimited

Stream = Callable[..., Coroutine[Any, Any, str]]

ROLL = ToolCall(id="call_1", name="roll", arguments='{"sides": 6}')
ASK = ToolCall(id="call_2", name="ask", arguments='{"what": 7}')
MODES = pytest.mark.parametrize("tokens", [False, True], ids=["steps", "tokens"])


@pytest.fixture
def stream(client: AsyncClient, agent_id: str) -> Stream:
    async def stream(path: str = "messages/stream", **wishes: Any) -> str:
        body = {"input": "hi"} | wishes
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

    def places(messages: list[dict[str, Any]]) -> list[tuple[str, ...]]:
        keys = ("message_type", "id", "otid", "step_id", "run_id")
        # Chunks of one message follow each other.
        return list(
            dict.fromkeys(tuple(item[key] for key in keys) for item in messages if "id" in item)
        )

    assert places(items(text)) == places(stored)[2:]


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
    wishes = {"include_return_message_types": ["tool_return_message"], "stream_tokens": tokens}
    model.says("Rolling.", calls=[ROLL])
    model.says("A four.")
    types = [item["message_type"] for item in items(await stream(**wishes))]
    assert types == ["tool_return_message", "stop_reason", "usage_statistics"]
    model.fails(ModelRateLimited("slow down"))
    types = [item["message_type"] for item in items(await stream(**wishes))]
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
    ("path", "wishes", "run_type", "background"),
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
    wishes: dict[str, Any],
    run_type: str,
    background: bool,
) -> None:
    model.says("Hello!")
    [said, *_] = items(await stream(path, **wishes))
    [run] = (await client.get("/v1/runs/")).json()
    assert run["id"] == said["run_id"]
    assert (run["status"], run["stop_reason"]) == ("completed", "end_turn")
    assert run["metadata"] == {"run_type": run_type}
    assert run["background"] is background
