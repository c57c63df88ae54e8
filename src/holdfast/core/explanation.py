"""What a run is doing, what it waits for, what would help: the facts in, one answer out.

Every run has an explanation in every state; ``usecases/explaining`` gathers the facts.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.cancellation import Action, Cancellation
from holdfast.core.deadlines import Deadline, OnTimeout
from holdfast.core.lifecycle import HOLDING
from holdfast.core.messages import CallState, Decision, OpenCall
from holdfast.core.runs import Run, RunStatus, StopReason
from holdfast.core.steps import COMPACTION, Step


class Phase(StrEnum):
    QUEUED = "queued"
    STARTING = "starting"
    ASKING_MODEL = "asking_model"
    COMPACTING = "compacting"
    RUNNING_TOOLS = "running_tools"
    WAITING_FOR_APPROVAL = "waiting_for_approval"
    CANCELLING = "cancelling"
    ENDED = "ended"


class Facts(Struct, frozen=True, kw_only=True):
    """What was true at one moment, ``now``."""

    run: Run
    now: datetime
    # The runs of the thread that come before this one while it is queued, the one that holds the thread first.
    runs_ahead: tuple[str, ...] = ()
    # There are more of them than are named.
    has_more_ahead: bool = False
    # The step whose answer is awaited.
    step: Step | None = None
    # The thread's calls without a result row; when the model asked for them; what was decided on them so far.
    calls: tuple[OpenCall, ...] = ()
    calls_requested_at: datetime | None = None
    decisions: Mapping[str, Decision] = {}
    # The run that took this one's place, once somebody had answered.
    followed_by: str | None = None
    # Whether a worker of the process that was asked carries the run.
    has_worker: bool = True
    # The operator's bounds.
    stall_seconds: float
    tool_timeout_seconds: float


class AwaitedCall(Struct, frozen=True, kw_only=True):
    id: str
    name: str
    # Whether its result is there, and only others are waited for.
    has_result: bool = False
    # Only the client that offered the tool can run it.
    runs_on_client: bool = False
    deadline: Deadline | None = None


class Cancel(Struct, frozen=True):
    """Stop this run."""

    run_id: str
    effect: str


class Decide(Struct, frozen=True):
    """Answer what a request asks for."""

    request_id: str
    approve: bool
    effect: str


class SendResults(Struct, frozen=True):
    """Send the results of calls that only the client can run, and approve the others."""

    request_id: str
    call_ids: tuple[str, ...]
    approved_ids: tuple[str, ...]
    effect: str


Remedy = Cancel | Decide | SendResults


class Explanation(Struct, frozen=True, kw_only=True):
    """``by_itself`` is what happens if nobody does anything; ``remedies`` is what somebody can do, the likeliest
    first."""

    phase: Phase
    summary: str
    since: datetime | None = None
    runs_ahead: tuple[str, ...] = ()
    model: str | None = None
    calls: tuple[AwaitedCall, ...] = ()
    request_id: str | None = None
    by_itself: str | None = None
    remedies: tuple[Remedy, ...] = ()


def explain(facts: Facts) -> Explanation:
    explanation = _explain_status(facts)
    if facts.has_worker or facts.run.status not in HOLDING:
        return explanation
    return replace(
        explanation,
        summary=f"{explanation.summary} No worker of this server carries it.",
        by_itself="Whoever carries it goes on; if its process died, the next start takes it up.",
    )


def _explain_status(facts: Facts) -> Explanation:
    match facts.run.status:
        case RunStatus.QUEUED:
            return _explain_queued(facts)
        case RunStatus.RUNNING:
            return _explain_running(facts)
        case RunStatus.CANCELLING:
            return _explain_cancelling(facts)
        case RunStatus.PAUSED:
            return _explain_paused(facts)
        case _:
            return _explain_ended(facts)


def _explain_queued(facts: Facts) -> Explanation:
    run = facts.run
    waited = _format_duration(facts, run.created_at)
    if not facts.runs_ahead:
        return Explanation(
            phase=Phase.QUEUED,
            summary=f"The run is the next of its conversation and waits {waited} to be taken.",
            since=run.created_at,
            by_itself="A worker takes it as soon as one is free; after a restart too.",
            remedies=(Cancel(run.id, "ends the run before it has begun"),),
        )
    holder, *others = facts.runs_ahead
    count = f"more than {len(others)}" if facts.has_more_ahead else f"{len(others)} more"
    more = f", with {count} before it" if others else ""
    return Explanation(
        phase=Phase.QUEUED,
        summary=f"The run waits {waited} for its turn in the conversation, which {holder} holds{more}.",
        since=run.created_at,
        runs_ahead=facts.runs_ahead,
        by_itself="It begins once those before it have ended.",
        remedies=(
            Cancel(holder, "ends the run that holds the conversation"),
            Cancel(run.id, "ends the run before it has begun"),
        ),
    )


def _explain_running(facts: Facts) -> Explanation:
    if facts.step is not None:
        return _explain_model_call(facts, facts.step)
    if any(item.state is CallState.STARTED for item in facts.calls):
        return _explain_tools(facts)
    since = facts.run.started_at
    return Explanation(
        phase=Phase.STARTING,
        summary=f"The run has been taken and decides what comes next, {_format_duration(facts, since)}.",
        since=since,
        by_itself=_describe_stall(facts),
        remedies=(_cancel_remedy(facts),),
    )


def _explain_model_call(facts: Facts, step: Step) -> Explanation:
    asked = _format_duration(facts, step.created_at)
    compacts = step.origin == COMPACTION
    doing = f"asking {step.model.handle} {asked}, in its step {facts.run.num_steps}."
    if compacts:
        doing = f"making its context smaller {asked}, by a summary of what was said first."
    return Explanation(
        phase=Phase.COMPACTING if compacts else Phase.ASKING_MODEL,
        summary=f"The run has been {doing}{_describe_failed_attempts(facts, step)}",
        since=step.created_at,
        # Which model writes a summary is known when it is written.
        model=None if compacts else step.model.handle,
        by_itself=_describe_stall(facts),
        remedies=(_cancel_remedy(facts),),
    )


def _describe_failed_attempts(facts: Facts, step: Step) -> str:
    if not step.attempts:
        return ""
    times = "once" if len(step.attempts) == 1 else f"{len(step.attempts)} times"
    last = step.attempts[-1]
    wait = timedelta(seconds=last.wait_seconds or 0) - (facts.now - last.at)
    again = f"in {_format_span(wait)}" if wait > timedelta(0) else "now"
    return f" Its provider failed {times} ({last.kind}); it is asked again {again}."


def _explain_tools(facts: Facts) -> Explanation:
    calls = tuple(_awaited_call(facts, item) for item in facts.calls)
    running = [call for call in calls if not call.has_result]
    since = max(filter(None, (facts.calls_requested_at, facts.run.started_at)), default=None)
    returned = len(calls) - len(running)
    rest = f"; {returned} of {len(calls)} calls returned" if returned else ""
    return Explanation(
        phase=Phase.RUNNING_TOOLS,
        summary=f"The run has been running {_list_calls(running)} {_format_duration(facts, since)}{rest}.",
        since=since,
        calls=calls,
        by_itself=f"A custom tool is killed after {facts.tool_timeout_seconds:g} seconds, and the model is told.",
        remedies=(Cancel(facts.run.id, "kills the tools and ends the run"),),
    )


def _explain_paused(facts: Facts) -> Explanation:
    run = facts.run
    held = [item for item in facts.calls if item.state is CallState.HELD]
    calls = tuple(
        _awaited_call(facts, item) for item in held if item.call.id not in facts.decisions
    )
    by_client = [call for call in calls if call.runs_on_client]
    by_person = [call for call in calls if not call.runs_on_client]
    wanted = [
        f"a person's decision on {_list_calls(by_person)}" if by_person else "",
        f"the client's result of {_list_calls(by_client)}" if by_client else "",
    ]
    request_id = held[0].message_id if held else None
    return Explanation(
        phase=Phase.WAITING_FOR_APPROVAL,
        summary=(
            f"The run has waited {_format_duration(facts, run.completed_at)} for "
            f"{' and '.join(filter(None, wanted)) or 'an answer'}."
        ),
        since=run.completed_at,
        calls=calls,
        request_id=request_id,
        by_itself=_describe_expiry(calls),
        remedies=(
            *_answer_remedies(request_id, by_person, by_client),
            Cancel(run.id, "denies the calls and frees the conversation"),
        ),
    )


def _answer_remedies(
    request_id: str | None, by_person: Sequence[AwaitedCall], by_client: Sequence[AwaitedCall]
) -> tuple[Remedy, ...]:
    if request_id is None:
        return ()
    if by_client:
        return (
            SendResults(
                request_id,
                tuple(call.id for call in by_client),
                tuple(call.id for call in by_person),
                effect="hands the results to the model; the run goes on",
            ),
        )
    if by_person:
        return (
            Decide(request_id, approve=True, effect="runs the calls; the run goes on"),
            Decide(request_id, approve=False, effect="refuses the calls; the model is told"),
        )
    return ()


def _explain_cancelling(facts: Facts) -> Explanation:
    receipt = facts.run.cancellation
    since = receipt.requested_at if receipt else None
    who = f" by {receipt.requested_by}" if receipt else ""
    doing = _explain_running(facts)
    return Explanation(
        phase=Phase.CANCELLING,
        summary=f"The run was cancelled{who} {_format_ago(facts, since)}; what is under way is being stopped.",
        since=since,
        model=doing.model,
        calls=doing.calls,
        by_itself="It ends as cancelled as soon as its model call or its tools have stopped.",
    )


# Why a run ended that has no failure which says it, in words.
_STOP_REASON_TEXTS: Final = {
    StopReason.END_TURN: "the model had said all it had to say",
    StopReason.TOOL_RULE: "a rule of one of its tools ended it",
    StopReason.MAX_STEPS: "it had taken all the steps that it was allowed",
    StopReason.REQUIRES_APPROVAL: "it asked for an approval",
    StopReason.MAX_TOKENS_EXCEEDED: "the model's answer was cut off, as long as it may be (max_output_tokens)",
    StopReason.INVALID_TOOL_CALL: "a tool rule sets arguments that its tool does not have",
}


def _explain_ended(facts: Facts) -> Explanation:
    run = facts.run
    return Explanation(
        phase=Phase.ENDED,
        summary=_describe_end(facts),
        since=run.completed_at,
        remedies=_remedies_after_end(facts),
    )


def _describe_end(facts: Facts) -> str:
    run = facts.run
    steps = f"{run.num_steps} step{'' if run.num_steps == 1 else 's'}"
    spent = f"after {_format_run_time(run)} and {steps}"
    if run.status is RunStatus.CANCELLED:
        return _describe_cancellation(run.cancellation, spent)
    if run.failure is not None:
        why = " ".join(filter(None, (run.failure.message, run.failure.detail)))
        return f"The run failed {spent} ({run.failure.kind}): {why}"
    if run.status is RunStatus.ANSWERED:
        by = f"; {facts.followed_by} went on with it" if facts.followed_by else ""
        return f"The run paused {spent}, since it asked for an approval. It was answered{by}."
    return f"The run {run.status} {spent}: {_describe_stop_reason(run)}."


def _describe_stop_reason(run: Run) -> str:
    if (over := run.overrun) is not None:
        return f"its request allowed {over.limit}={over.value:g}, and it had used {over.used:g}"
    known = _STOP_REASON_TEXTS.get(run.stop_reason) if run.stop_reason else None
    return known or str(run.stop_reason)


def _describe_cancellation(receipt: Cancellation | None, spent: str) -> str:
    if receipt is None:
        return f"The run was cancelled {spent}."
    words = [f"The run was cancelled {spent}, by {receipt.requested_by}"]
    if receipt.reason:
        words.append(f" ({receipt.reason})")
    if receipt.phase:
        words.append(f", {_CANCEL_PHASE_TEXTS.get(receipt.phase, receipt.phase)}")
    if receipt.calls:
        told = ", ".join(f"{call_id} {outcome}" for call_id, outcome in receipt.calls.items())
        words.append(f"; its calls: {told}")
    kept = receipt.action is not Action.ROLLBACK
    words.append(". What it said was kept." if kept else ". What it said was taken back.")
    return "".join(words)


# The phases of a receipt: see ``engine/checkpoint`` and ``usecases/cancellation``.
_CANCEL_PHASE_TEXTS: Final = {
    "tools": "while its tools ran",
    "model": "while it asked the model",
    "compaction": "while its context was made smaller",
    "start": "before it had done anything",
    "queue": "while it waited for its turn",
    "approval": "while it waited for an approval",
}


def _remedies_after_end(facts: Facts) -> tuple[Remedy, ...]:
    """A run that failed since somebody else's calls wait: those can be answered."""
    failure = facts.run.failure
    if failure is None or failure.pending_request_id is None:
        return ()
    waits = any(item.message_id == failure.pending_request_id for item in facts.calls)
    effect = "answers what stands in the way; then send the message again"
    return (Decide(failure.pending_request_id, approve=True, effect=effect),) if waits else ()


def _awaited_call(facts: Facts, item: OpenCall) -> AwaitedCall:
    names = {tool.name for tool in facts.run.request.client_tools}
    return AwaitedCall(
        id=item.call.id,
        name=item.call.name,
        has_result=item.state is CallState.SETTLED,
        runs_on_client=item.call.name in names,
        deadline=item.deadline if item.state is CallState.HELD else None,
    )


_TIMEOUT_TEXTS: Final = {
    OnTimeout.DENY: "denied",
    OnTimeout.APPROVE: "approved",
    OnTimeout.FAIL: "given up, and the model is told",
}


def _describe_expiry(calls: Sequence[AwaitedCall]) -> str:
    due = sorted(
        (call.deadline.at, call.name, call.deadline.outcome) for call in calls if call.deadline
    )
    if not due:
        return "Nothing: it waits until somebody answers or cancels it."
    return " ".join(
        f"At {at.isoformat(timespec='seconds')} the call of {name} is {_TIMEOUT_TEXTS[outcome]}."
        for at, name, outcome in due
    )


def _describe_stall(facts: Facts) -> str:
    return f"It is ended as failed if nothing is heard for {facts.stall_seconds:g} seconds."


def _cancel_remedy(facts: Facts) -> Cancel:
    return Cancel(facts.run.id, "stops it and keeps what has been said")


def _list_calls(calls: Sequence[AwaitedCall]) -> str:
    return ", ".join(f"{call.name} ({call.id})" for call in calls)


def _format_duration(facts: Facts, since: datetime | None) -> str:
    return "for a moment" if since is None else f"for {_format_span(facts.now - since)}"


def _format_ago(facts: Facts, since: datetime | None) -> str:
    return "just now" if since is None else f"{_format_span(facts.now - since)} ago"


def _format_run_time(run: Run) -> str:
    return _format_span(timedelta(microseconds=(run.total_duration_ns or 0) // 1_000))


def _format_span(span: timedelta) -> str:
    """Two digits are enough to know where one is."""
    seconds = max(span.total_seconds(), 0.0)
    for unit, length in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} seconds" if seconds >= 10 else f"{seconds:.1f} seconds"
