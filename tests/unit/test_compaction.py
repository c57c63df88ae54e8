"""Which messages may be evicted from any history, and how a summary is made."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core import compaction, context, summaries
from holdfast.core.compaction import CompactionStats, Eviction, Trigger, choose_eviction
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
    unanswered_calls,
)
from holdfast.core.runs import Progress, StopReason
from holdfast.core.turn import AskModel, Compact, EndTurn, Policy, Turn, next_command

NOW = datetime(2026, 1, 29, 20, 44, 4, tzinfo=UTC)
WIDE = 1_000_000
ALL = {"mode": "all"}
SLIDING = {"mode": "sliding_window", "sliding_window_percentage": 0.3}
MODES = (
    ALL,
    SLIDING,
    {"mode": "self_compact_all"},
    {"mode": "self_compact_sliding_window", "sliding_window_percentage": 0.0},
    {"mode": "sliding_window", "sliding_window_percentage": 1.0},
)
STATS = CompactionStats(
    trigger=Trigger.FULL, context_window=10, messages_count_before=5, messages_count_after=2
)


class Rows:
    """Builds a history, message by message."""

    def __init__(self) -> None:
        self.rows: list[Message] = []
        self._calls = 0
        self.add(Role.SYSTEM, "You are.")

    def add(self, role: Role, text: str = "", **fields: Any) -> Message:
        row = Message(
            id=f"message-{len(self.rows)}",
            agent_id="agent-1",
            thread_id="agent-1",
            role=role,
            created_at=NOW,
            content=(Text(text),) if text else (),
            **fields,
        )
        self.rows.append(row)
        return row

    def calls(self, count: int) -> tuple[ToolCall, ...]:
        self._calls += count
        first = self._calls - count
        return tuple(ToolCall(f"call_{first + n}", "roll", "{}") for n in range(count))

    def returns(self, calls: tuple[ToolCall, ...]) -> None:
        made = tuple(
            ToolReturn(item.id, item.name, Outcome.FINISHED, (Text("done"),)) for item in calls
        )
        self.add(Role.TOOL, tool_returns=made)

    def approval(self, automatic: int, held: int) -> tuple[ToolCall, ...]:
        """An answer with some held calls, in one message or in two."""
        step = f"step-{len(self.rows)}"
        ready, waiting = self.calls(automatic), self.calls(held)
        if ready:
            self.add(Role.ASSISTANT, "both", tool_calls=ready, step_id=step)
        self.add(Role.APPROVAL, tool_calls=waiting, step_id=step)
        return ready + waiting

    def decide(self, calls: tuple[ToolCall, ...]) -> None:
        self.add(Role.APPROVAL, decisions=tuple(Decision(c.id, approve=True) for c in calls))


@st.composite
def histories(draw: st.DrawFn) -> list[Message]:
    """Any history that the engine can produce: rounds of messages and tool calls, possibly with open calls at the end."""
    rows = Rows()
    if draw(st.booleans()):
        text = summaries.pack("Long ago.", 3, "now", STATS, some_stay=True)
        rows.add(Role.SUMMARY, text)
    kinds = st.sampled_from(["talk", "tools", "approved", "user", "hidden", "cut"])
    for kind in draw(st.lists(kinds, max_size=12)):
        if kind == "talk":
            rows.add(Role.USER, "hello " * draw(st.integers(1, 30)))
            rows.add(Role.ASSISTANT, "hi " * draw(st.integers(1, 30)))
        elif kind == "tools":
            calls = rows.calls(draw(st.integers(1, 3)))
            rows.add(Role.ASSISTANT, tool_calls=calls)
            rows.returns(calls)
        elif kind == "approved":
            calls = rows.approval(draw(st.integers(0, 2)), draw(st.integers(1, 2)))
            rows.decide(calls)
            rows.returns(calls)
        elif kind == "hidden":
            rows.add(Role.USER, "You must call roll.", hidden=True)
        else:
            rows.add(Role.USER if kind == "user" else Role.ASSISTANT, "cut")
    if draw(st.booleans()):
        calls = rows.approval(draw(st.integers(0, 2)), draw(st.integers(1, 2)))
        if draw(st.booleans()):
            rows.decide(calls[-1:])
    return rows.rows


def assert_valid(rows: list[Message]) -> None:
    """What every provider requires of a history: no result without its call or before it."""
    seen: set[str] = set()
    for row in rows:
        for item in row.tool_returns:
            assert item.call_id in seen, f"{item.call_id} has a result and no call"
        seen |= {call.id for call in row.tool_calls}


@settings(max_examples=200, deadline=None)
@given(rows=histories(), chosen=st.sampled_from(MODES), room=st.integers(0, 400))
def test_whatever_leaves_what_stays_is_valid(
    rows: list[Message], chosen: dict[str, Any], room: int
) -> None:
    planned = choose_eviction(rows, settings=chosen, available_tokens=room)
    waiting = [call.id for call in unanswered_calls(rows)]
    if planned is None:
        free = [row for row in rows[1:] if row.role is not Role.SUMMARY and not row.tool_calls]
        assert waiting or not free
        return
    assert list(planned.evicted + planned.kept) == rows[1:]
    assert any(row.role is not Role.SUMMARY for row in planned.evicted)
    assert_valid(list(planned.kept))
    assert_valid(list(planned.evicted))
    # Held calls stay: neither the approval request nor the other message of the answer is evicted.
    assert [call.id for call in unanswered_calls(planned.kept)] == waiting
    assert unanswered_calls(planned.evicted) == []
    if planned.kept:
        first = planned.kept[0]
        assert first.role is Role.ASSISTANT or first.tool_calls


@settings(max_examples=100, deadline=None)
@given(rows=histories(), chosen=st.sampled_from(MODES), new=st.integers(0, 3))
def test_what_nobody_has_answered_yet_stays(
    rows: list[Message], chosen: dict[str, Any], new: int
) -> None:
    extra = Rows()
    asked = [extra.add(Role.USER, f"new {number}") for number in range(new)]
    planned = choose_eviction([*rows, *asked], settings=chosen, available_tokens=10, new_count=new)
    assert (planned is None) == (compaction.evictable_count([*rows, *asked], new) == 0)
    if planned is not None and new:
        assert list(planned.kept[-new:]) == asked


def make_conversation(rounds: int) -> list[Message]:
    rows = Rows()
    for number in range(rounds):
        rows.add(Role.USER, f"question {number}")
        rows.add(Role.ASSISTANT, f"answer {number}")
    return rows.rows


def plan_eviction(
    rows: list[Message], settings: dict[str, Any], available_tokens: int = WIDE
) -> Eviction:
    planned = choose_eviction(rows, settings=settings, available_tokens=available_tokens)
    assert planned is not None
    return planned


def test_all_hides_everything_that_was_said() -> None:
    planned = plan_eviction(make_conversation(4), ALL)
    assert (len(planned.evicted), planned.kept) == (8, ())


def test_a_sliding_window_lets_forty_per_cent_go_and_begins_with_an_answer() -> None:
    planned = plan_eviction(make_conversation(5), SLIDING)
    assert len(planned.evicted) == 5
    assert planned.kept[0].text == "answer 2"


def test_a_sliding_window_slides_until_the_rest_fits() -> None:
    rows = make_conversation(10)
    tail = sum(map(context.message_tokens, rows[1 + 15 :]))
    planned = plan_eviction(rows, SLIDING, available_tokens=tail)
    assert planned.kept[0].text == "answer 7"
    assert plan_eviction(rows, SLIDING, available_tokens=0).kept == ()


def test_a_window_too_small_to_slide_falls_back_to_all() -> None:
    planned = plan_eviction(make_conversation(1), SLIDING)
    assert len(planned.evicted) == 2


@pytest.mark.parametrize("rows", [[], make_conversation(0)])
def test_a_system_message_alone_has_nothing_to_spare(rows: list[Message]) -> None:
    assert compaction.evictable_count(rows) == 0


def test_a_summary_alone_is_not_summarised_again() -> None:
    rows = Rows()
    rows.add(Role.SUMMARY, "old")
    assert choose_eviction(rows.rows, settings=ALL, available_tokens=WIDE) is None


# -- when ------------------------------------------------------------------------------------


def make_turn(tokens: int, *, rows: list[Message] | None = None, **fields: Any) -> Turn:
    progress = Progress(steps_taken=1, context_tokens=tokens, ending=fields.pop("ending", None))
    return Turn(history=tuple(rows or make_conversation(2)), progress=progress, **fields)


POLICY = Policy(max_steps=5, context_window=100)


def test_a_step_that_leaves_little_room_is_followed_by_a_compaction() -> None:
    assert next_command(make_turn(90), POLICY) == EndTurn(StopReason.END_TURN)
    full = Compact(Trigger.FULL, ending=StopReason.END_TURN)
    assert next_command(make_turn(91), POLICY) == full
    asked = make_turn(91, rows=[*make_conversation(2), Rows().add(Role.USER, "more")])
    assert next_command(asked, POLICY) == Compact(Trigger.FULL)


def test_it_is_tried_once_and_the_run_ends_as_it_was_going_to() -> None:
    assert next_command(make_turn(91, is_compaction_done=True), POLICY) == EndTurn(
        StopReason.END_TURN
    )
    left = make_turn(91, ending=StopReason.MAX_STEPS)
    assert next_command(left, POLICY) == Compact(Trigger.FULL, ending=StopReason.MAX_STEPS)
    shown = [*make_conversation(0), Rows().add(Role.SUMMARY, "all of it")]
    done = make_turn(20, rows=shown, ending=StopReason.TOOL_RULE, is_compaction_done=True)
    assert next_command(done, POLICY) == EndTurn(StopReason.TOOL_RULE)


def test_a_window_full_of_the_system_message_is_not_helped() -> None:
    rows = make_conversation(2)
    rows[0] = Rows().add(Role.SYSTEM, "long " * 100)
    assert next_command(make_turn(99, rows=rows), POLICY) == EndTurn(StopReason.END_TURN)


def test_a_refused_question_is_made_smaller_and_asked_again() -> None:
    rows = [*make_conversation(2), Rows().add(Role.USER, "more")]
    assert next_command(make_turn(0, rows=rows, overflows=1), POLICY) == Compact(Trigger.OVERFLOW)
    again = next_command(make_turn(0, rows=rows, overflows=1, is_compaction_done=True), POLICY)
    assert isinstance(again, AskModel)


def test_a_run_that_only_compacts_does_it_once() -> None:
    policy = Policy(max_steps=5, only_compacts=True)
    assert next_command(make_turn(0), policy) == Compact(Trigger.REQUESTED)
    for done in (make_turn(0, is_compaction_done=True), make_turn(0, rows=make_conversation(0))):
        assert next_command(done, policy) == EndTurn(StopReason.END_TURN)


# -- the summary -----------------------------------------------------------------------------


def test_a_transcript_tells_who_said_and_did_what() -> None:
    rows = Rows()
    rows.add(Role.SUMMARY, summaries.pack("Long ago.", 3, "now", STATS, some_stay=True))
    asked = rows.add(Role.USER, "Roll")
    rows.rows[-1] = Message(
        **{name: getattr(asked, name) for name in ("id", "agent_id", "thread_id", "role")},
        created_at=NOW,
        content=(Text("Roll"), Image("image/png", "eA==")),
    )
    rows.add(Role.USER, "You must.", hidden=True)
    calls = rows.calls(1)
    rows.add(Role.APPROVAL, "Shall I?", tool_calls=calls)
    rows.decide(calls)
    rows.returns(calls)
    rows.rows.append(
        Message(
            id="message-x",
            agent_id="agent-1",
            thread_id="agent-1",
            role=Role.ASSISTANT,
            created_at=NOW,
            content=(Thinking("secret"), Text("Done.")),
        )
    )
    told = summaries.render_transcript(rows.rows[1:], 10_000)
    assert told.splitlines()[1:-1:2] == [
        "summary of what was said before: Long ago.",
        "user: Roll [1 pictures]",
        "assistant: Shall I?",
        "assistant calls roll: {}",
        "roll finished: done",
        "assistant: Done.",
    ]


@settings(max_examples=30, deadline=None)
@given(sizes=st.lists(st.integers(0, 5_000), max_size=8), chars=st.integers(0, 6_000))
def test_a_transcript_fits(sizes: list[int], chars: int) -> None:
    rows = Rows()
    for size in sizes:
        rows.add(Role.USER, "x" * size)
    note = len("<transcript>\n [… 10000 characters left out …] \n</transcript>") + 10
    assert len(summaries.render_transcript(rows.rows[1:], chars)) <= chars + note


@pytest.mark.parametrize("some_stay", [True, False])
def test_a_summary_is_packed_and_can_be_read_again(*, some_stay: bool) -> None:
    text = summaries.pack("They met.\nThey talked.", 4, "then", STATS, some_stay=some_stay)
    row = Rows().add(Role.SUMMARY, text)
    packed = summaries.unpack(row)
    assert packed.message.startswith("Note: 4 messages" if some_stay else "Note: prior messages")
    assert "The following is a summary of the previous messages:\n They met." in packed.message
    assert packed.summary == "They met.\nThey talked."
    assert (packed.type, packed.time, packed.compaction_stats) == ("system_alert", "then", STATS)
    assert summaries.latest_summary([row, row]) == packed.summary


def test_a_summary_from_elsewhere_is_its_own_text() -> None:
    assert summaries.latest_summary([Rows().add(Role.SUMMARY, "plain words")]) == "plain words"
    assert summaries.latest_summary([]) == ""


@pytest.mark.parametrize(
    ("chars", "left"),
    [(None, "abcdefgh"), (0, "abcdefgh"), (8, "abcdefgh"), (3, "abc…"), (100, "abcdefgh")],
)
def test_a_summary_is_clipped_as_asked(chars: int | None, left: str) -> None:
    assert summaries.clip_summary(" abcdefgh\n", chars, WIDE) == left


def test_a_summary_leaves_room_for_a_talk() -> None:
    # A quarter of the window, at four characters per token.
    assert summaries.clip_summary("abcdefgh", 50_000, 4) == "abcd…"


def test_half_a_character_is_replaced() -> None:
    assert summaries.clip_summary("a\ud800b", None, WIDE) == "a?b"
