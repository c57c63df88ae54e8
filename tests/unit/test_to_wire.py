"""Messages, runs and steps in V1's JSON (wire-v1 §3.5-§3.9)."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from letta_client.types import Step as SdkStep
from letta_client.types.agents import LettaResponse as SdkResponse
from letta_client.types.agents import Message as SdkMessage
from letta_client.types.agents import Run as SdkRun
from msgspec.structs import replace
from pydantic import TypeAdapter

from holdfast.core.events import RunEnded
from holdfast.core.ids import derived_otid
from holdfast.core.messages import (
    Decision,
    Image,
    Message,
    Outcome,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolReturn,
)
from holdfast.core.models import ModelChoice
from holdfast.core.prices import Costs
from holdfast.core.runs import Run, RunFailure, RunRequest, RunStatus, StopReason, Usage
from holdfast.core.steps import Step, StepStatus
from holdfast.http.letta_v1.schemas import messages as wire
from holdfast.http.letta_v1.to_wire.messages import (
    AssistantMessageTool,
    api_listing,
    api_messages,
    message_type,
)
from holdfast.http.letta_v1.to_wire.replies import error_type, letta_response
from holdfast.http.letta_v1.to_wire.runs import api_run, run_metrics, token_usage
from holdfast.http.letta_v1.to_wire.steps import api_step, step_metrics
from holdfast.usecases.messages import Reply

AGENT = "agent-3f2b8c1e-7a44-4d0b-9e61-5c2a7d9f10c5"
ROW = "message-3f2b8c1e-7a44-4d0b-9e61-5c2a7d9f10c5"
OTID = "3f2b8c1e-7a44-4d0b-9e61-5c2a7d9f10"
NOW = datetime(2026, 1, 29, 20, 44, 4, 123_456, tzinfo=UTC)


def a_row(role: Role, **fields: Any) -> Message:
    row = Message(
        id=ROW,
        agent_id=AGENT,
        thread_id=AGENT,
        role=role,
        created_at=NOW,
        run_id="run-1",
        step_id="step-1",
    )
    return replace(row, **fields)


def a_run(**fields: Any) -> Run:
    run = Run(
        id="run-1",
        organization_id="org-1",
        agent_id=AGENT,
        thread_id=AGENT,
        status=RunStatus.QUEUED,
        kind="send_message",
        created_at=NOW,
    )
    return replace(run, **fields)


def encode_and_decode(value: object) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))


def render_message(
    row: Message, speech: AssistantMessageTool | None = None
) -> list[dict[str, Any]]:
    """The API messages without the fields that are the same in each."""
    common = {"id", "date", "name", "sender_id", "step_id", "run_id", "is_err", "seq_id"}
    return [
        {key: value for key, value in message.items() if key not in common}
        for message in encode_and_decode(api_messages(row, speech))
    ]


def call(number: int, name: str = "roll", arguments: str = "{}") -> ToolCall:
    return ToolCall(id=f"call_{number}", name=name, arguments=arguments)


def wire_call(number: int, name: str = "roll", arguments: str = "{}") -> dict[str, str]:
    return {"name": name, "arguments": arguments, "tool_call_id": f"call_{number}"}


def tool_return(number: int, text: str = "4", **fields: Any) -> ToolReturn:
    item = ToolReturn(f"call_{number}", "roll", Outcome.FINISHED, (Text(text),))
    return replace(item, **fields)


def test_every_message_has_all_common_fields_and_whole_seconds() -> None:
    [message] = encode_and_decode(api_messages(a_row(Role.USER, content=(Text("hi"),), otid="o")))
    assert message == {
        "message_type": "user_message",
        "id": ROW,
        "date": "2026-01-29T20:44:04+00:00",
        "name": None,
        "otid": "o",
        "sender_id": None,
        "step_id": "step-1",
        "run_id": "run-1",
        "is_err": None,
        "seq_id": None,
        "content": "hi",
    }


def test_a_system_row_is_its_text() -> None:
    assert render_message(a_row(Role.SYSTEM, content=(Text("be kind"),))) == [
        {"message_type": "system_message", "content": "be kind", "otid": None}
    ]


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        ((Text("hi"),), "hi"),
        ((), ""),
        ((Text('{"type": "user_message", "message": "hi", "time": "now"}'),), "hi"),
        ((Text('{"type": "system_alert"}'),), '{"type": "system_alert"}'),
        ((Text('{"say": "user_message"'),), '{"say": "user_message"'),
        (
            (Text("look"), Image("image/png", "aGk=")),
            [
                {"type": "text", "text": "look", "signature": None},
                {
                    "type": "image",
                    "source": {
                        "type": "base64",
                        "media_type": "image/png",
                        "data": "aGk=",
                        "detail": None,
                    },
                },
            ],
        ),
    ],
)
@pytest.mark.parametrize("role", [Role.USER, Role.SUMMARY])
def test_a_users_content_is_plain_text_if_that_is_all_it_is(
    stored: Any, expected: Any, role: Role
) -> None:
    [message] = render_message(a_row(role, content=stored))
    assert message["message_type"] == "user_message"
    assert message["content"] == expected


def test_an_answer_shows_thoughts_words_and_calls_in_order_with_counted_otids() -> None:
    row = a_row(
        Role.ASSISTANT,
        content=(
            Thinking("I need ", signature="s1"),
            Thinking("a die."),
            Thinking("", signature="secret", redacted=True),
            Thinking("", id="rs_1"),
            Text("Let me "),
            Text("roll."),
        ),
        tool_calls=(call(1), call(2)),
    )
    assert render_message(row) == [
        {
            "message_type": "reasoning_message",
            "reasoning": "I need a die.",
            "source": "reasoner_model",
            "signature": "s1",
            "otid": f"{OTID}80",
        },
        {
            "message_type": "hidden_reasoning_message",
            "state": "redacted",
            "hidden_reasoning": "secret",
            "otid": f"{OTID}81",
        },
        {
            "message_type": "hidden_reasoning_message",
            "state": "omitted",
            "hidden_reasoning": None,
            "otid": f"{OTID}82",
        },
        {"message_type": "assistant_message", "content": "Let me roll.", "otid": f"{OTID}83"},
        {
            "message_type": "tool_call_message",
            "tool_call": wire_call(1),
            "tool_calls": [wire_call(1), wire_call(2)],
            "otid": f"{OTID}84",
        },
    ]


def test_an_empty_text_beside_a_call_shows_nothing() -> None:
    row = a_row(Role.ASSISTANT, content=(Text(""),), tool_calls=(call(1),))
    assert [message["message_type"] for message in render_message(row)] == ["tool_call_message"]


def test_an_approval_request_carries_its_rows_id_as_otid() -> None:
    row = a_row(Role.APPROVAL, content=(Text("May I?"),), tool_calls=(call(1), call(2)))
    assert render_message(row) == [
        {"message_type": "assistant_message", "content": "May I?", "otid": f"{OTID}80"},
        {
            "message_type": "approval_request_message",
            "tool_call": wire_call(1),
            "tool_calls": [wire_call(1), wire_call(2)],
            "otid": ROW,
        },
    ]


def test_an_approval_response_repeats_its_first_decision() -> None:
    row = a_row(
        Role.APPROVAL,
        otid="mine",
        decisions=(
            Decision("call_3", approve=False, returned=tool_return(3, "7")),
            Decision("call_1", approve=False, reason="no"),
            Decision("call_2", approve=True),
        ),
    )
    [message] = render_message(row)
    assert [entry["type"] for entry in message["approvals"]] == ["tool", "approval", "approval"]
    assert message["approvals"][0]["tool_return"] == "7"
    assert message["approvals"][2] == {
        "type": "approval",
        "tool_call_id": "call_2",
        "approve": True,
        "reason": None,
    }
    assert (message["approve"], message["approval_request_id"]) == (False, "call_1")
    assert (message["reason"], message["otid"]) == ("no", "mine")


def test_an_answer_by_the_client_alone_decides_nothing() -> None:
    row = a_row(
        Role.APPROVAL, decisions=(Decision("call_1", approve=False, returned=tool_return(1)),)
    )
    [message] = render_message(row)
    assert (message["approve"], message["approval_request_id"]) == (None, None)


def test_a_tool_row_mirrors_its_first_return() -> None:
    row = a_row(
        Role.TOOL,
        tool_returns=(
            tool_return(1, "4", stdout=("rolling",)),
            tool_return(2, "too many sides", outcome=Outcome.FAILED),
        ),
    )
    [message] = encode_and_decode(api_messages(row))
    assert message["name"] == "roll"
    assert message["otid"] == f"{OTID}80"
    assert (message["tool_return"], message["status"]) == ("4", "success")
    assert (message["tool_call_id"], message["stdout"]) == ("call_1", ["rolling"])
    assert message["tool_returns"] == [
        {
            "type": "tool",
            "tool_return": "4",
            "status": "success",
            "tool_call_id": "call_1",
            "stdout": ["rolling"],
            "stderr": [],
        },
        {
            "type": "tool",
            "tool_return": "too many sides",
            "status": "error",
            "tool_call_id": "call_2",
            "stdout": [],
            "stderr": [],
        },
    ]


@pytest.mark.parametrize("outcome", sorted(set(Outcome) - {Outcome.FINISHED}))
def test_only_a_finished_call_succeeded(outcome: Outcome) -> None:
    [message] = render_message(a_row(Role.TOOL, tool_returns=(tool_return(1, outcome=outcome),)))
    assert message["status"] == "error"


def test_a_returned_picture_is_a_part_and_a_note_in_the_text() -> None:
    pictures = (Text("two:"), Image("image/png", "aGk="), Image("image/png", "aGk="))
    [message] = render_message(a_row(Role.TOOL, tool_returns=(tool_return(1, content=pictures),)))
    assert message["tool_return"] == "two:\n[2 images omitted]"
    assert [part["type"] for part in message["tool_returns"][0]["tool_return"]] == [
        "text",
        "image",
        "image",
    ]


def test_a_note_to_the_model_is_not_shown() -> None:
    assert api_messages(a_row(Role.USER, content=(Text("nudge"),), hidden=True)) == []


def test_a_listing_shows_the_speech_tool_as_words_and_hides_its_return() -> None:
    said = call(1, "send_message", '{"message": "hello"}')
    row = a_row(Role.ASSISTANT, content=(Thinking("greet"),), tool_calls=(said, call(2)))
    answer = a_row(Role.TOOL, tool_returns=(tool_return(1, name="send_message"), tool_return(2)))
    assert [message["message_type"] for message in render_message(row, AssistantMessageTool())] == [
        "reasoning_message",
        "assistant_message",
        "tool_call_message",
    ]
    assert render_message(row, AssistantMessageTool())[1]["content"] == "hello"
    assert render_message(row, AssistantMessageTool())[2]["tool_calls"] == [wire_call(2)]
    [left] = render_message(answer, AssistantMessageTool())
    assert left["tool_call_id"] == "call_2"
    assert (
        render_message(
            replace(answer, tool_returns=answer.tool_returns[:1]), AssistantMessageTool()
        )
        == []
    )


@pytest.mark.parametrize("arguments", ["{", "[]", '{"text": "x"}', '{"message": 1}'])
def test_a_speech_without_words_stays_a_call(arguments: str) -> None:
    row = a_row(Role.ASSISTANT, tool_calls=(call(1, "send_message", arguments),))
    assert [message["message_type"] for message in render_message(row, AssistantMessageTool())] == [
        "tool_call_message"
    ]


def test_outside_listings_the_speech_tool_is_a_tool() -> None:
    row = a_row(Role.ASSISTANT, tool_calls=(call(1, "send_message", '{"message": "x"}'),))
    assert [message["message_type"] for message in render_message(row)] == ["tool_call_message"]


def test_a_filter_leaves_only_what_was_asked_for() -> None:
    rows = [
        a_row(Role.USER, content=(Text("hi"),)),
        a_row(Role.ASSISTANT, content=(Thinking("hm"), Text("ho"))),
    ]
    assert len(api_listing(rows)) == 3
    [only] = api_listing(rows, ["assistant_message"])
    assert isinstance(only, wire.AssistantMessage)
    assert api_listing(rows, ()) == []


@pytest.mark.parametrize(
    ("status", "name"),
    [
        (RunStatus.QUEUED, "created"),
        (RunStatus.RUNNING, "running"),
        (RunStatus.CANCELLING, "running"),
        (RunStatus.PAUSED, "completed"),
        (RunStatus.ANSWERED, "completed"),
        (RunStatus.COMPLETED, "completed"),
        (RunStatus.FAILED, "failed"),
        (RunStatus.CANCELLED, "cancelled"),
    ],
)
def test_v1_knows_five_statuses(status: RunStatus, name: str) -> None:
    assert api_run(a_run(status=status)).status == name


def test_a_run_shows_what_was_asked_of_it() -> None:
    run = encode_and_decode(
        api_run(
            a_run(
                input=(a_row(Role.USER, content=(Text("hi"),)),),
                metadata={"mine": 1},
                request=RunRequest(
                    include_return_message_types=("assistant_message",), callback_url="http://x"
                ),
            )
        )
    )
    assert [message["content"] for message in run["input"]] == ["hi"]
    assert run["metadata"] == {"run_type": "send_message", "mine": 1}
    assert run["request_config"] == {
        "use_assistant_message": True,
        "assistant_message_tool_name": "send_message",
        "assistant_message_tool_kwarg": "message",
        "include_return_message_types": ["assistant_message"],
    }
    assert run["callback_url"] == "http://x"
    assert run["conversation_id"] is None
    assert run["created_at"] == "2026-01-29T20:44:04.123456Z"


def test_a_run_on_a_thread_of_its_own_names_the_conversation() -> None:
    assert api_run(a_run(thread_id="conv-1")).conversation_id == "conv-1"


def test_a_failed_run_says_why_in_its_metadata() -> None:
    failure = RunFailure("llm_timeout", "The LLM request timed out.", "after 3 s")
    run = encode_and_decode(api_run(a_run(status=RunStatus.FAILED, failure=failure)))
    assert run["metadata"]["error"] == {
        "message_type": "error_message",
        "run_id": "run-1",
        "error_type": "llm_timeout",
        "message": "The LLM request timed out.",
        "detail": "after 3 s",
        "seq_id": None,
    }


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("llm_timeout", "llm_timeout"),
        ("llm_rate_limit", "llm_rate_limit"),
        ("llm_authentication", "llm_authentication"),
        ("llm_empty_response", "llm_empty_response"),
        ("llm_bad_request", "llm_error"),
        ("llm_overloaded", "llm_error"),
        ("llm_insufficient_credits", "llm_error"),
        (
            "context_window_overflow_in_system_prompt",
            "context_window_overflow_in_system_prompt",
        ),
        ("internal_error", "internal_error"),
        ("store_broke", "internal_error"),
    ],
)
def test_each_failure_has_an_error_type_that_clients_know(kind: str, expected: str) -> None:
    assert error_type(kind) == expected


def test_metrics_count_from_the_epoch() -> None:
    metrics = run_metrics(a_run(num_steps=2, total_duration_ns=5))
    assert metrics.run_start_ns == 1_769_719_444_123_456_000
    assert (metrics.run_ns, metrics.num_steps, metrics.tools_used) == (5, 2, None)
    assert run_metrics(a_run(tools_used=("tool-1",))).tools_used == ["tool-1"]


def test_usage_details_stay_null_until_a_provider_reports_them() -> None:
    costs = Costs(cost=1_500_000, steps=3, unpriced=1)
    assert encode_and_decode(token_usage(Usage(10, 2), costs)) == {
        "completion_tokens": 2,
        "prompt_tokens": 10,
        "total_tokens": 12,
        "prompt_tokens_details": None,
        "completion_tokens_details": None,
        "cost": 0.0015,
        "unpriced_steps": 1,
    }
    used = Usage(10, 2, cached_input_tokens=0, reasoning_tokens=1)
    reported = encode_and_decode(token_usage(used, costs))
    assert reported["prompt_tokens_details"] == {
        "cached_tokens": 0,
        "cache_read_tokens": 0,
        "cache_creation_tokens": None,
    }
    assert reported["completion_tokens_details"] == {"reasoning_tokens": 1}


def a_step(**fields: Any) -> Step:
    step = Step(
        id="step-1",
        organization_id="org-1",
        agent_id=AGENT,
        run_id="run-1",
        model=ModelChoice(handle="openai/gpt-x", context_window=1000),
        created_at=NOW,
    )
    return replace(step, **fields)


def test_a_step_names_its_model_and_its_tokens() -> None:
    step = encode_and_decode(api_step(a_step(usage=Usage(3, 4), tags=("a",))))
    assert (step["model"], step["model_handle"]) == ("gpt-x", "openai/gpt-x")
    assert (step["provider_name"], step["context_window_limit"]) == ("openai", 1000)
    assert (step["prompt_tokens"], step["completion_tokens"], step["total_tokens"]) == (3, 4, 7)
    assert (step["status"], step["stop_reason"], step["messages"]) == ("pending", None, [])
    assert (step["error_type"], step["error_data"], step["tags"]) == (None, None, ["a"])


def test_a_failed_step_says_why_without_a_traceback() -> None:
    failure = RunFailure("llm_error", "It broke.", "teapot")
    step = api_step(a_step(status=StepStatus.FAILED, failure=failure))
    assert step.error_type == "llm_error"
    assert step.error_data == {"message": "It broke.", "details": "teapot"}


def test_a_step_that_asked_no_model_has_no_request_start() -> None:
    assert step_metrics(a_step()).llm_request_start_ns is None
    asked = step_metrics(a_step(llm_request_ns=7))
    assert asked.llm_request_start_ns == asked.step_start_ns


def test_a_reply_has_the_filtered_messages_and_the_whole_usage() -> None:
    rows = (
        a_row(Role.SUMMARY, content=(Text("{}"),)),
        a_row(Role.ASSISTANT, content=(Thinking("hm"), Text("ho"))),
    )
    ended = RunEnded(RunStatus.COMPLETED, StopReason.END_TURN, Usage(10, 2), 1, 12)
    run = a_run(request=RunRequest(include_return_message_types=("assistant_message",)))
    response = encode_and_decode(letta_response(Reply(run, rows, ended)))
    assert [message["content"] for message in response.pop("messages")] == ["ho"]
    assert response == {
        "stop_reason": {"message_type": "stop_reason", "stop_reason": "end_turn"},
        "usage": {
            "message_type": "usage_statistics",
            "completion_tokens": 2,
            "prompt_tokens": 10,
            "total_tokens": 12,
            "step_count": 1,
            "run_ids": None,
            "cached_input_tokens": None,
            "cache_write_tokens": None,
            "reasoning_tokens": None,
            "context_tokens": 12,
        },
        "logprobs": None,
        "turns": None,
    }


@pytest.mark.parametrize("wanted", [True, False])
def test_a_reply_tells_of_a_compaction_only_who_asked_for_it(*, wanted: bool) -> None:
    """Also for a callback, which has all messages of the run."""
    rows = (a_row(Role.SUMMARY, content=(Text("They met."),)),)
    ended = RunEnded(RunStatus.COMPLETED, StopReason.END_TURN, Usage(10, 2), 1, 12)
    run = a_run(request=RunRequest(include_compaction_messages=wanted))
    response = encode_and_decode(letta_response(Reply(run, rows, ended)))
    shown = [message["message_type"] for message in response["messages"]]
    assert shown == ["summary_message"] * wanted


texts = st.text(max_size=20)
visible = st.builds(Text, texts) | st.builds(Image, st.just("image/png"), st.just("aGk="))
thinking = st.builds(Thinking, texts, signature=st.none() | texts, redacted=st.booleans())
calls = st.builds(ToolCall, id=texts, name=texts | st.just("send_message"), arguments=texts)
returns = st.builds(
    ToolReturn,
    call_id=texts,
    name=st.none() | texts | st.just("send_message"),
    outcome=st.sampled_from(Outcome),
    content=st.lists(visible, max_size=3).map(tuple),
)
decisions = st.builds(Decision, call_id=texts, approve=st.booleans(), returned=st.none() | returns)
rows = st.builds(
    Message,
    id=st.uuids(version=4).map(lambda number: f"message-{number}"),
    agent_id=st.just(AGENT),
    thread_id=st.just(AGENT),
    role=st.sampled_from(Role),
    created_at=st.datetimes(timezones=st.just(UTC), min_value=datetime(2000, 1, 1)),  # noqa: DTZ001 - hypothesis wants it naive
    content=st.lists(visible | thinking, max_size=5).map(tuple),
    tool_calls=st.lists(calls, max_size=3).map(tuple),
    tool_returns=st.lists(returns, max_size=3).map(tuple),
    decisions=st.lists(decisions, max_size=3).map(tuple),
    otid=st.none() | st.uuids().map(str),
    hidden=st.booleans(),
)
listing = msgspec.json.Decoder(list[wire.ApiMessage])


@given(row=rows, speech=st.none() | st.just(AssistantMessageTool()))
def test_any_row_is_shown_with_its_id_and_otids_that_follow_the_rule(
    row: Message, speech: AssistantMessageTool | None
) -> None:
    messages = api_messages(row, speech)
    assert listing.decode(msgspec.json.encode(messages)) == messages
    for index, message in enumerate(messages):
        assert message.id == row.id
        assert datetime.fromisoformat(message.date) == row.created_at.replace(microsecond=0)
        match message_type(message):
            case "user_message" | "system_message" | "approval_response_message":
                assert message.otid == row.otid
            case "approval_request_message":
                assert message.otid == row.id
            case _:
                assert message.otid == derived_otid(row.id, index)
                assert UUID(message.otid).int % 128 == index


sdk_listing: TypeAdapter[list[SdkMessage]] = TypeAdapter(list[SdkMessage])


@given(row=rows)
def test_the_official_client_reads_what_any_row_shows(row: Message) -> None:
    messages = api_messages(row)
    read = sdk_listing.validate_python(encode_and_decode(messages))
    assert [item.message_type for item in read] == [message_type(item) for item in messages]


def test_the_official_client_reads_runs_steps_and_replies() -> None:
    run = a_run(input=(a_row(Role.USER, content=(Text("hi"),)),), stop_reason=StopReason.END_TURN)
    assert SdkRun.model_validate(encode_and_decode(api_run(run))).id == run.id
    assert SdkStep.model_validate(encode_and_decode(api_step(a_step()))).api_model_handle
    ended = RunEnded(RunStatus.COMPLETED, StopReason.END_TURN, Usage(10, 2), 1, 12)
    reply = Reply(run, (a_row(Role.ASSISTANT, content=(Text("ho"),)),), ended)
    read = SdkResponse.model_validate(encode_and_decode(letta_response(reply)))
    assert read.usage.total_tokens == 12
