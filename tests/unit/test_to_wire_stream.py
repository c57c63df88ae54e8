"""Events as the items of a stream (wire-v1 §4.4-§4.6)."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from letta_client.types.agents import LettaStreamingResponse
from pydantic import TypeAdapter

from holdfast.core.compaction import CompactionStats
from holdfast.core.events import (
    CallStreamed,
    CompactionBegan,
    Event,
    Fact,
    HiddenReasoningStreamed,
    MessageStored,
    ReasoningStreamed,
    RunEnded,
    TextStreamed,
    ToolProgressed,
)
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
from holdfast.core.pieces import pieces
from holdfast.core.runs import Run, RunFailure, RunRequest, RunStatus, StopReason, Usage
from holdfast.core.summaries import pack
from holdfast.errors import PendingApproval
from holdfast.http.letta_v1.schemas import messages as wire
from holdfast.http.letta_v1.to_wire.messages import api_messages
from holdfast.http.letta_v1.to_wire.stream import (
    StreamView,
    ping,
    refusal_items,
    stream_items,
    view_of,
)

ROW = "message-3f2b8c1e-7a44-4d0b-9e61-5c2a7d9f10c5"
OTID = "3f2b8c1e-7a44-4d0b-9e61-5c2a7d9f10"
PLAIN = StreamView()
NOW = datetime(2026, 1, 29, 20, 44, 4, 123_456, tzinfo=UTC)

_texts = st.text(max_size=3)
_thoughts = st.builds(Thinking, _texts, signature=st.none() | _texts, redacted=st.booleans())
_parts = st.lists(
    st.builds(Text, _texts) | st.just(Image("image/png", "aGk=")) | _thoughts, max_size=6
).map(tuple)
_calls = st.lists(st.builds(ToolCall, _texts, _texts, _texts), max_size=3).map(tuple)
_returns = st.lists(
    st.builds(
        ToolReturn,
        _texts,
        st.none() | _texts,
        st.sampled_from(Outcome),
        st.builds(Text, _texts).map(lambda text: (text,)),
    ),
    max_size=3,
).map(tuple)
rows = st.builds(
    Message,
    id=st.just(ROW),
    agent_id=st.just("agent-1"),
    thread_id=st.just("agent-1"),
    role=st.sampled_from(Role),
    created_at=st.just(NOW),
    content=_parts,
    tool_calls=_calls,
    tool_returns=_returns,
    decisions=st.just((Decision("call_1", approve=True),)),
    run_id=st.none() | st.just("run-1"),
    hidden=st.booleans(),
)


def render_fact(fact: Fact, view: StreamView = PLAIN, seq: int = 7) -> list[dict[str, Any]]:
    found = list(stream_items([Event("run-1", seq, fact)], view, NOW))
    decoded: list[dict[str, Any]] = msgspec.json.decode(msgspec.json.encode(found))
    return decoded


def run_ended(failure: RunFailure | None = None) -> RunEnded:
    status, reason = RunStatus.COMPLETED, StopReason.END_TURN
    if failure:
        status, reason = RunStatus.FAILED, StopReason.LLM_API_ERROR
    return RunEnded(status, reason, Usage(10, 2), 1, 12, failure)


@given(row=rows)
def test_each_piece_of_a_row_is_one_api_message(row: Message) -> None:
    assert len(api_messages(row)) == len(pieces(row))


@given(row=rows.filter(lambda row: row.role is not Role.SUMMARY))
def test_a_stored_row_is_streamed_as_it_is_listed(row: Message) -> None:
    facts = [MessageStored(row, piece) for piece in range(len(pieces(row)))]
    events = [Event("run-1", seq, fact) for seq, fact in enumerate(facts, 1)]
    streamed = list(stream_items(events, StreamView(numbered=True), NOW))
    assert streamed == [
        msgspec.structs.replace(message, run_id="run-1", seq_id=seq)
        for seq, message in enumerate(api_messages(row), 1)
    ]


def test_a_compaction_is_an_event_and_a_summary() -> None:
    stats = CompactionStats(
        trigger="manual", context_window=10, messages_count_before=5, messages_count_after=2
    )
    text = pack("They met.", 3, "then", stats, some_stay=False)
    row = Message(
        id=ROW,
        agent_id="a",
        thread_id="a",
        role=Role.SUMMARY,
        created_at=NOW,
        content=(Text(text),),
    )
    (began,) = render_fact(CompactionBegan("some-uuid", "manual", 12, 10))
    (summary,) = render_fact(MessageStored(row))
    assert (began["message_type"], began["id"]) == ("event_message", "some-uuid")
    assert (began["event_type"], began["event_data"]) == (
        "compaction",
        {"trigger": "manual", "context_token_estimate": 12, "context_window": 10},
    )
    assert (summary["message_type"], summary["id"]) == ("summary_message", ROW)
    assert summary["summary"].endswith(" They met.")
    assert summary["compaction_stats"]["messages_count_after"] == 2


def test_progress_of_a_tool_is_an_event() -> None:
    progressed = ToolProgressed("some-uuid", "call_1", "count", 1, 3.5, "one")
    (shown,) = render_fact(progressed)
    assert (shown["message_type"], shown["id"]) == ("event_message", "some-uuid")
    assert (shown["event_type"], shown["event_data"]) == (
        "tool_progress",
        {
            "tool_call_id": "call_1",
            "tool_name": "count",
            "progress": 1,
            "total": 3.5,
            "message": "one",
        },
    )
    event = Event("run-1", 7, progressed)
    view = StreamView(types=("assistant_message",), numbered=True)
    assert list(stream_items([event], view, NOW)) == []
    (numbered,) = stream_items([event], StreamView(types=("event_message",), numbered=True), NOW)
    assert msgspec.to_builtins(numbered)["seq_id"] == 7


def test_a_token_has_the_ids_of_the_row_that_it_will_be_part_of() -> None:
    [token] = render_fact(TextStreamed(ROW, "step-1", 2, "Hel"))
    assert token == {
        "message_type": "assistant_message",
        "id": ROW,
        "date": "2026-01-29T20:44:04+00:00",
        "name": None,
        "otid": f"{OTID}82",
        "sender_id": None,
        "step_id": "step-1",
        "run_id": "run-1",
        "is_err": None,
        "seq_id": None,
        "content": "Hel",
    }
    [thought] = render_fact(ReasoningStreamed(ROW, "step-1", 0, "hm"))
    assert (thought["otid"], thought["reasoning"]) == (f"{OTID}80", "hm")
    assert (thought["source"], thought["signature"]) == ("reasoner_model", None)


@pytest.mark.parametrize(
    ("held", "kind", "otid"),
    [
        (False, "tool_call_message", f"{OTID}81"),
        (True, "approval_request_message", ROW),
    ],
)
@pytest.mark.parametrize(("arguments", "fragment"), [("", None), ('{"si', '{"si')])
def test_a_call_is_a_delta_twice(
    held: bool, kind: str, otid: str, arguments: str, fragment: str | None
) -> None:
    [chunk] = render_fact(CallStreamed(ROW, "step-1", 1, "call_1", "roll", arguments, held))
    delta = {"name": "roll", "arguments": fragment, "tool_call_id": "call_1"}
    assert (chunk["tool_call"], chunk["tool_calls"]) == (delta, delta)
    assert (chunk["message_type"], chunk["otid"], chunk["id"]) == (kind, otid, ROW)


@pytest.mark.parametrize(
    ("redacted", "state", "hidden"), [(True, "redacted", "xyz"), (False, "omitted", None)]
)
def test_a_hidden_thought_says_only_how_it_is_hidden(
    redacted: bool, state: str, hidden: str | None
) -> None:
    [chunk] = render_fact(HiddenReasoningStreamed(ROW, "step-1", 0, redacted, "xyz"))
    assert (chunk["state"], chunk["hidden_reasoning"]) == (state, hidden)


def test_an_ending_is_a_stop_reason_and_the_usage() -> None:
    stop, usage = render_fact(run_ended(), StreamView(types=(), numbered=True))
    assert stop == {"message_type": "stop_reason", "stop_reason": "end_turn"}
    assert (usage["message_type"], usage["total_tokens"]) == ("usage_statistics", 12)


@pytest.mark.parametrize(("numbered", "seq"), [(True, 7), (False, None)])
def test_a_failure_is_a_stop_reason_and_the_error(numbered: bool, seq: int | None) -> None:
    failure = RunFailure("llm_timeout", "The LLM request timed out.", "after 3 s")
    stop, error = render_fact(run_ended(failure), StreamView(types=(), numbered=numbered))
    assert stop["stop_reason"] == "llm_api_error"
    assert error == {
        "message_type": "error_message",
        "run_id": "run-1",
        "error_type": "llm_timeout",
        "message": "The LLM request timed out.",
        "detail": "after 3 s",
        "seq_id": seq,
    }


def test_a_filter_drops_messages_of_other_types() -> None:
    view = StreamView(types=("reasoning_message",))
    assert render_fact(TextStreamed(ROW, "step-1", 0, "x"), view) == []
    assert len(render_fact(ReasoningStreamed(ROW, "step-1", 0, "x"), view)) == 1


@pytest.mark.parametrize(
    ("background", "resumed", "numbered"),
    [(False, False, False), (True, False, True), (False, True, True), (True, True, True)],
)
def test_numbers_are_shown_where_they_are_of_use(
    background: bool, resumed: bool, numbered: bool
) -> None:
    run = Run(
        id="run-1",
        organization_id="org-1",
        agent_id="agent-1",
        thread_id="agent-1",
        status=RunStatus.RUNNING,
        kind="send_message",
        created_at=NOW,
        background=background,
        request=RunRequest(include_return_message_types=("ping",)),
    )
    assert view_of(run, resumed=resumed) == StreamView(types=("ping",), numbered=numbered)


def test_a_ping_is_a_message_without_content() -> None:
    here = NOW.astimezone(timezone(timedelta(hours=2)))
    item = msgspec.to_builtins(ping("run-1", "0-1", here, 7))
    assert {key: value for key, value in item.items() if value is not None} == {
        "message_type": "ping",
        "id": "ping-0-1",
        "date": "2026-01-29T22:44:04+02:00",
        "run_id": "run-1",
        "seq_id": 7,
    }


def test_a_refusal_has_the_sentence_twice_and_no_run() -> None:
    stop, error = refusal_items(PendingApproval(ROW))
    assert stop == wire.StopReasonItem(StopReason.ERROR)
    assert isinstance(error, wire.ErrorMessage)
    assert (error.run_id, error.error_type) == (None, "internal_error")
    assert error.message == error.detail == str(PendingApproval(ROW))


def test_the_sdk_reads_every_item() -> None:
    """The SDK guesses unknown types, so each item must be parsed as the type that it names."""
    adapter: TypeAdapter[Any] = TypeAdapter(LettaStreamingResponse)
    facts: list[Fact] = [
        TextStreamed(ROW, "step-1", 0, "x"),
        ReasoningStreamed(ROW, "step-1", 0, "x"),
        HiddenReasoningStreamed(ROW, "step-1", 0, redacted=True, data="x"),
        CallStreamed(ROW, "step-1", 0, "call_1", "roll"),
        CallStreamed(ROW, "step-1", 0, "call_1", "roll", "{}", held=True),
        run_ended(),
        run_ended(RunFailure("llm_timeout", "m", "d")),
    ]
    events = [Event("run-1", seq, fact) for seq, fact in enumerate(facts)]
    told = [*stream_items(events, StreamView(), NOW), ping("run-1", "0", NOW, None)]
    for item in told:
        read = adapter.validate_json(msgspec.json.encode(item))
        assert read.message_type == item.__struct_config__.tag
        assert type(read).__name__ not in {"SystemMessage", "dict"}
    assert len({type(item) for item in told}) == len(facts) + 2
