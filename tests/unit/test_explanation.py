"""Every state of a run has an explanation: what it is doing and what can be done."""

from datetime import timedelta
from typing import Any

import pytest
from tests.support.values import Make, moment

from holdfast.core.budgets import Overrun
from holdfast.core.cancellation import Action, Cancellation
from holdfast.core.deadlines import Deadline, OnTimeout
from holdfast.core.explanation import (
    Cancel,
    Decide,
    Facts,
    Owner,
    Phase,
    Remedy,
    SendResults,
    explain,
)
from holdfast.core.messages import CallState, Decision, OpenCall, Outcome, ToolCall
from holdfast.core.runs import ClientTool, Run, RunFailure, RunRequest, RunStatus, StopReason
from holdfast.core.steps import COMPACTION, Attempt

make = Make()
THREAD = make.thread(make.agent())
NOW = moment(10_000)
AGO = NOW - timedelta(seconds=5)
LONG_AGO = NOW - timedelta(hours=3)


def run(status: RunStatus, **fields: Any) -> Run:
    values = {"created_at": AGO, "started_at": AGO, "num_steps": 2}
    return make.run(THREAD, id="run-1", status=status, **values | fields)


def call(number: int, state: CallState, **fields: Any) -> OpenCall:
    asked = ToolCall(id=f"call_{number}", name=f"tool_{number}", arguments="{}")
    return OpenCall(call=asked, message_id="message-1", step_id="step-1", state=state, **fields)


def ended_run(status: RunStatus, reason: StopReason, **fields: Any) -> Run:
    spent: dict[str, Any] = {"completed_at": NOW, "total_duration_ns": 1_500_000_000}
    return run(status, stop_reason=reason, **spent | fields)


STEP = make.step(run(RunStatus.RUNNING), created_at=AGO)
HELD = call(1, CallState.HELD)
PAUSED = ended_run(RunStatus.PAUSED, StopReason.REQUIRES_APPROVAL, completed_at=LONG_AGO)
STOP_SECONDS = "It fails if it makes no progress for 900 seconds."
WAITS_ON = "Nothing: it waits until somebody answers or cancels it."

# The facts; then the phase, the summary, what happens without any action, and the remedies.
CASES: dict[str, tuple[dict[str, Any], Phase, str, str | None, list[Remedy]]] = {
    "queued, the next": (
        {"run": run(RunStatus.QUEUED)},
        Phase.QUEUED,
        "The run is next in its conversation and has waited for 5.0 seconds for a server with room.",
        "The next server with room starts it, also after a restart.",
        [Cancel("run-1", "cancels the run before it starts")],
    ),
    "queued behind others": (
        {"run": run(RunStatus.QUEUED), "runs_ahead": ("run-8", "run-9")},
        Phase.QUEUED,
        "The run has waited for 5.0 seconds for its turn in the conversation, behind run-8 and 1 more.",
        "It starts when the runs before it have ended.",
        [
            Cancel("run-8", "cancels the run that it waits for"),
            Cancel("run-1", "cancels the run before it starts"),
        ],
    ),
    "queued behind more than are named": (
        {"run": run(RunStatus.QUEUED), "runs_ahead": ("run-8", "run-9"), "has_more_ahead": True},
        Phase.QUEUED,
        (
            "The run has waited for 5.0 seconds for its turn in the conversation, behind run-8 and more than 1 "
            "other."
        ),
        "It starts when the runs before it have ended.",
        [
            Cancel("run-8", "cancels the run that it waits for"),
            Cancel("run-1", "cancels the run before it starts"),
        ],
    ),
    "starting": (
        {"run": run(RunStatus.RUNNING)},
        Phase.STARTING,
        "The run has been deciding on its next step for 5.0 seconds.",
        STOP_SECONDS,
        [Cancel("run-1", "stops the run and keeps its messages so far")],
    ),
    "asking the model": (
        {"run": run(RunStatus.RUNNING), "step": STEP},
        Phase.ASKING_MODEL,
        "The run has been asking openai/gpt-x for 5.0 seconds, in its step 2.",
        STOP_SECONDS,
        [Cancel("run-1", "stops the run and keeps its messages so far")],
    ),
    "asking the model again": (
        {
            "run": run(RunStatus.RUNNING),
            "step": make.step(
                run(RunStatus.RUNNING),
                created_at=LONG_AGO,
                attempts=(
                    Attempt(number=1, kind="llm_timeout", at=LONG_AGO, wait_seconds=1),
                    Attempt(number=2, kind="llm_overloaded", at=AGO, wait_seconds=12),
                ),
            ),
        },
        Phase.ASKING_MODEL,
        (
            "The run has been asking openai/gpt-x for 3 hours, in its step 2. Its provider failed 2 times "
            "(llm_overloaded); it is asked again in 7.0 seconds."
        ),
        STOP_SECONDS,
        [Cancel("run-1", "stops the run and keeps its messages so far")],
    ),
    "compacting": (
        {
            "run": run(RunStatus.RUNNING),
            "step": make.step(run(RunStatus.RUNNING), created_at=AGO, origin=COMPACTION),
        },
        Phase.COMPACTING,
        "The run has been compacting its context for 5.0 seconds, with a summary of the oldest messages.",
        STOP_SECONDS,
        [Cancel("run-1", "stops the run and keeps its messages so far")],
    ),
    "running tools": (
        {
            "run": run(RunStatus.RUNNING, started_at=LONG_AGO),
            "calls": (call(1, CallState.STARTED), call(2, CallState.SETTLED)),
            "calls_requested_at": AGO,
        },
        Phase.RUNNING_TOOLS,
        "The run has been running tool_1 (call_1) for 5.0 seconds; 1 of 2 calls returned.",
        "A custom tool is killed after 180 seconds, and the model is told.",
        [Cancel("run-1", "kills the tools and ends the run")],
    ),
    "waiting for a person": (
        {"run": PAUSED, "calls": (HELD, call(2, CallState.READY))},
        Phase.WAITING_FOR_APPROVAL,
        "The run has waited for 3 hours for a person's decision on tool_1 (call_1).",
        WAITS_ON,
        [
            Decide("message-1", approve=True, effect="runs the calls; the run continues"),
            Decide("message-1", approve=False, effect="denies the calls and tells the model"),
            Cancel("run-1", "denies the calls and frees the conversation"),
        ],
    ),
    "waiting for the rest, until some time": (
        {
            "run": PAUSED,
            "calls": (HELD, call(2, CallState.HELD, deadline=Deadline(NOW, OnTimeout.DENY))),
            "decisions": {"call_1": Decision("call_1", approve=True)},
        },
        Phase.WAITING_FOR_APPROVAL,
        "The run has waited for 3 hours for a person's decision on tool_2 (call_2).",
        f"At {NOW.isoformat(timespec='seconds')} the call of tool_2 is denied.",
        [
            Decide("message-1", approve=True, effect="runs the calls; the run continues"),
            Decide("message-1", approve=False, effect="denies the calls and tells the model"),
            Cancel("run-1", "denies the calls and frees the conversation"),
        ],
    ),
    "waiting for the client and a person": (
        {
            "run": ended_run(
                RunStatus.PAUSED,
                StopReason.REQUIRES_APPROVAL,
                completed_at=LONG_AGO,
                request=RunRequest(client_tools=(ClientTool("tool_2"),)),
            ),
            "calls": (HELD, call(2, CallState.HELD)),
        },
        Phase.WAITING_FOR_APPROVAL,
        (
            "The run has waited for 3 hours for a person's decision on tool_1 (call_1) and the client's result of "
            "tool_2 (call_2)."
        ),
        WAITS_ON,
        [
            SendResults(
                "message-1",
                ("call_2",),
                ("call_1",),
                effect="sends the results to the model; the run continues",
            ),
            Cancel("run-1", "denies the calls and frees the conversation"),
        ],
    ),
    "cancelling": (
        {
            "run": run(
                RunStatus.CANCELLING,
                cancellation=Cancellation(requested_at=AGO, requested_by="user-1"),
            ),
            "step": STEP,
        },
        Phase.CANCELLING,
        "The run was cancelled by user-1 5.0 seconds ago; its model call or its tools are being stopped.",
        "It ends as cancelled as soon as its model call or its tools have stopped.",
        [],
    ),
    "completed": (
        {"run": ended_run(RunStatus.COMPLETED, StopReason.END_TURN)},
        Phase.ENDED,
        "The run completed after 1.5 seconds and 2 steps: the model ended its turn.",
        None,
        [],
    ),
    "out of its budget": (
        {
            "run": ended_run(
                RunStatus.FAILED,
                StopReason.MAX_TOKENS_EXCEEDED,
                overrun=Overrun("max_total_tokens", 100, 112),
            )
        },
        Phase.ENDED,
        (
            "The run failed after 1.5 seconds and 2 steps: its request allowed max_total_tokens=100, and it had "
            "used 112."
        ),
        None,
        [],
    ),
    "answered": (
        {
            "run": ended_run(RunStatus.ANSWERED, StopReason.REQUIRES_APPROVAL, num_steps=1),
            "followed_by": "run-2",
        },
        Phase.ENDED,
        (
            "The run paused after 1.5 seconds and 1 step, because it needed an approval. It was answered; run-2 continued "
            "it."
        ),
        None,
        [],
    ),
    "failed": (
        {
            "run": ended_run(
                RunStatus.FAILED,
                StopReason.LLM_API_ERROR,
                failure=RunFailure("llm_timeout", "It took too long.", "60 s"),
            )
        },
        Phase.ENDED,
        "The run failed after 1.5 seconds and 2 steps (llm_timeout): It took too long. 60 s",
        None,
        [],
    ),
    "cut off": (
        {"run": ended_run(RunStatus.FAILED, StopReason.MAX_TOKENS_EXCEEDED)},
        Phase.ENDED,
        (
            "The run failed after 1.5 seconds and 2 steps: the model's answer was cut off at its maximum length "
            "(max_output_tokens)."
        ),
        None,
        [],
    ),
    "ended by a rule that does not fit its tool": (
        {"run": ended_run(RunStatus.FAILED, StopReason.INVALID_TOOL_CALL)},
        Phase.ENDED,
        (
            "The run failed after 1.5 seconds and 2 steps: a tool rule sets arguments that its tool does not "
            "have."
        ),
        None,
        [],
    ),
    "cancelled while it compacted": (
        {
            "run": ended_run(
                RunStatus.CANCELLED,
                StopReason.CANCELLED,
                cancellation=Cancellation(
                    requested_at=AGO, requested_by="user-1", phase="compaction"
                ),
            )
        },
        Phase.ENDED,
        (
            "The run was cancelled after 1.5 seconds and 2 steps, by user-1, while its context was compacted. "
            "Its messages were kept."
        ),
        None,
        [],
    ),
    "failed, since others wait": (
        {
            "run": ended_run(
                RunStatus.FAILED,
                StopReason.ERROR,
                failure=RunFailure("pending_approval", "Something waits.", "", "message-1"),
            ),
            "calls": (HELD,),
        },
        Phase.ENDED,
        "The run failed after 1.5 seconds and 2 steps (pending_approval): Something waits.",
        None,
        [
            Decide(
                "message-1",
                approve=True,
                effect="approves the pending calls; then send the message again",
            )
        ],
    ),
    "cancelled": (
        {
            "run": ended_run(
                RunStatus.CANCELLED,
                StopReason.CANCELLED,
                cancellation=Cancellation(
                    requested_at=AGO,
                    requested_by="user-1",
                    reason="too slow",
                    action=Action.ROLLBACK,
                    phase="tools",
                    calls={"call_1": Outcome.KILLED, "call_2": Outcome.NOT_STARTED},
                ),
            )
        },
        Phase.ENDED,
        (
            "The run was cancelled after 1.5 seconds and 2 steps, by user-1 (too slow), while its tools ran; its calls: "
            "call_1 killed, call_2 not_started. Its messages were removed."
        ),
        None,
        [],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_run_explains_itself(name: str) -> None:
    facts, phase, summary, by_itself, remedies = CASES[name]
    # The only server of its database executes it, unless it waits.
    is_queued = facts["run"].status is RunStatus.QUEUED
    owner = None if is_queued else Owner(server_id="server-1", host="here", is_this=True)
    told = explain(
        Facts(now=NOW, owner=owner, stall_seconds=900, tool_timeout_seconds=180, **facts)
    )
    assert (told.phase, told.summary) == (phase, summary)
    assert told.by_itself == by_itself
    assert list(told.remedies) == remedies
    assert told.since is not None


def test_every_status_and_every_phase_has_its_case() -> None:
    assert {facts["run"].status for facts, *_ in CASES.values()} == set(RunStatus)
    assert {phase for _, phase, *_ in CASES.values()} == set(Phase)


@pytest.mark.parametrize("reason", StopReason)
@pytest.mark.parametrize(
    "status", [RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED, RunStatus.ANSWERED]
)
def test_however_a_run_ends_the_words_say_it(status: RunStatus, reason: StopReason) -> None:
    """Also for runs with fewer fields than the engine writes."""
    told = explain(
        Facts(run=ended_run(status, reason), now=NOW, stall_seconds=1, tool_timeout_seconds=1)
    )
    assert told.phase is Phase.ENDED
    assert "None" not in told.summary


STARTING = "The run has been deciding on its next step for 5.0 seconds."
NEXT = "The run is next in its conversation and has waited for 5.0 seconds for a server with room."
ALIVE = Owner(
    server_id="server-2",
    host="elsewhere",
    lease_ends_at=NOW + timedelta(seconds=7),
    lease_seconds=7,
)
THIS = Owner(server_id="server-1", is_this=True, lease_ends_at=NOW, lease_seconds=7)
DEAD = Owner(server_id="server-2", host="elsewhere", lease_ends_at=AGO, lease_seconds=-5)
DELETED = Owner(server_id="server-2", lease_seconds=0)

# The owner, how many servers that execute runs are alive, and what is said of the run.
OWNERS: dict[str, tuple[RunStatus, Owner | None, int, str, str]] = {
    "this server": (
        RunStatus.RUNNING,
        THIS,
        2,
        f"{STARTING} This server executes it.",
        STOP_SECONDS,
    ),
    "another server": (
        RunStatus.RUNNING,
        ALIVE,
        2,
        f"{STARTING} The server server-2 on elsewhere executes it.",
        f"{STOP_SECONDS} If that server has died, another one takes the run over within 9 seconds.",
    ),
    "another server, which has not started it": (
        RunStatus.QUEUED,
        ALIVE,
        1,
        f"{NEXT} The server server-2 on elsewhere has claimed it.",
        (
            "That server starts it at once. "
            "If that server has died, another one takes the run over within 9 seconds."
        ),
    ),
    "a dead server": (
        RunStatus.RUNNING,
        DEAD,
        1,
        f"{STARTING} Its server server-2 on elsewhere is dead: its lease ended 5.0 seconds ago.",
        "Another server takes it over within 2 seconds.",
    ),
    "a dead server, and there is no other": (
        RunStatus.RUNNING,
        DEAD,
        0,
        f"{STARTING} Its server server-2 on elsewhere is dead: its lease ended 5.0 seconds ago.",
        "No server that executes runs is alive. The first one that is started executes it.",
    ),
    "a server that died long ago": (
        RunStatus.RUNNING,
        DELETED,
        1,
        f"{STARTING} Its server server-2 is dead, and no longer listed.",
        "Another server takes it over within 2 seconds.",
    ),
    "nobody, after it was begun": (
        RunStatus.RUNNING,
        None,
        1,
        f"{STARTING} No server executes it now: it waits in the queue.",
        "The next server with room goes on with it, also after a restart.",
    ),
    "nobody, and nobody could": (
        RunStatus.QUEUED,
        None,
        0,
        NEXT,
        "No server that executes runs is alive. The first one that is started executes it.",
    ),
}


@pytest.mark.parametrize("name", OWNERS)
def test_it_is_said_who_executes_a_run_and_what_happens_if_nobody_does(name: str) -> None:
    status, owner, alive_workers, summary, by_itself = OWNERS[name]
    told = explain(
        Facts(
            run=run(status),
            now=NOW,
            owner=owner,
            alive_workers=alive_workers,
            stall_seconds=900,
            tool_timeout_seconds=180,
        )
    )
    assert (told.summary, told.by_itself) == (summary, by_itself)


def test_an_ended_run_has_no_server() -> None:
    """Not even if its last one has died."""
    over = ended_run(RunStatus.COMPLETED, StopReason.END_TURN)
    told = explain(
        Facts(run=over, now=NOW, owner=DEAD, stall_seconds=900, tool_timeout_seconds=180)
    )
    assert "server" not in told.summary
    assert told.by_itself is None
