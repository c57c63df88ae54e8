"""Explaining a run that has not ended: queued, running, cancelling or paused."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from holdfast.core.deadlines import OnTimeout
from holdfast.core.explanation.durations import format_ago, format_duration, format_span
from holdfast.core.explanation.owner import describe_next_start
from holdfast.core.explanation.types import (
    AwaitedCall,
    Cancel,
    Decide,
    Explanation,
    Facts,
    Phase,
    Remedy,
    SendResults,
)
from holdfast.core.messages import CallState, OpenCall
from holdfast.core.steps import COMPACTION, Step


def explain_queued(facts: Facts) -> Explanation:
    run = facts.run
    waited = format_duration(facts, run.created_at)
    if not facts.runs_ahead:
        return Explanation(
            phase=Phase.QUEUED,
            summary=f"The run is next in its conversation and has waited {waited} for a server with room.",
            since=run.created_at,
            by_itself=describe_next_start(facts, "starts"),
            remedies=(Cancel(run.id, "cancels the run before it starts"),),
        )
    holder, *others = facts.runs_ahead
    count = f"more than {len(others)} other" if facts.has_more_ahead else f"{len(others)} more"
    more = f" and {count}" if others else ""
    return Explanation(
        phase=Phase.QUEUED,
        summary=f"The run has waited {waited} for its turn in the conversation, behind {holder}{more}.",
        since=run.created_at,
        runs_ahead=facts.runs_ahead,
        by_itself="It starts when the runs before it have ended.",
        remedies=(
            Cancel(holder, "cancels the run that it waits for"),
            Cancel(run.id, "cancels the run before it starts"),
        ),
    )


def explain_running(facts: Facts) -> Explanation:
    if facts.step is not None:
        return _explain_model_call(facts, facts.step)
    if any(item.state is CallState.STARTED for item in facts.calls):
        return _explain_tools(facts)
    since = facts.run.started_at
    return Explanation(
        phase=Phase.STARTING,
        summary=f"The run has been deciding on its next step {format_duration(facts, since)}.",
        since=since,
        by_itself=_describe_stall(facts),
        remedies=(_cancel_remedy(facts),),
    )


def _explain_model_call(facts: Facts, step: Step) -> Explanation:
    asked = format_duration(facts, step.created_at)
    compacts = step.origin == COMPACTION
    doing = f"asking {step.model.handle} {asked}, in its step {facts.run.num_steps}."
    if compacts:
        doing = f"compacting its context {asked}, with a summary of the oldest messages."
    return Explanation(
        phase=Phase.COMPACTING if compacts else Phase.ASKING_MODEL,
        summary=f"The run has been {doing}{_describe_failed_attempts(facts, step)}",
        since=step.created_at,
        # Which model writes the summary is only known once it is written.
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
    again = f"in {format_span(wait)}" if wait > timedelta(0) else "now"
    return f" Its provider failed {times} ({last.kind}); it is asked again {again}."


def _explain_tools(facts: Facts) -> Explanation:
    calls = tuple(_awaited_call(facts, item) for item in facts.calls)
    running = [call for call in calls if not call.has_result]
    since = max(filter(None, (facts.calls_requested_at, facts.run.started_at)), default=None)
    returned = len(calls) - len(running)
    rest = f"; {returned} of {len(calls)} calls returned" if returned else ""
    return Explanation(
        phase=Phase.RUNNING_TOOLS,
        summary=f"The run has been running {_list_calls(running)} {format_duration(facts, since)}{rest}.",
        since=since,
        calls=calls,
        by_itself=f"A custom tool is killed after {facts.tool_timeout_seconds:g} seconds, and the model is told.",
        remedies=(Cancel(facts.run.id, "kills the tools and ends the run"),),
    )


def explain_paused(facts: Facts) -> Explanation:
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
            f"The run has waited {format_duration(facts, run.completed_at)} for "
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
                effect="sends the results to the model; the run continues",
            ),
        )
    if by_person:
        return (
            Decide(request_id, approve=True, effect="runs the calls; the run continues"),
            Decide(request_id, approve=False, effect="denies the calls and tells the model"),
        )
    return ()


def explain_cancelling(facts: Facts) -> Explanation:
    receipt = facts.run.cancellation
    since = receipt.requested_at if receipt else None
    who = f" by {receipt.requested_by}" if receipt else ""
    doing = explain_running(facts)
    return Explanation(
        phase=Phase.CANCELLING,
        summary=f"The run was cancelled{who} {format_ago(facts, since)}; its model call or its tools are being stopped.",
        since=since,
        model=doing.model,
        calls=doing.calls,
        by_itself="It ends as cancelled as soon as its model call or its tools have stopped.",
    )


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
    OnTimeout.FAIL: "ended as failed, and the model is told",
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
    return f"It fails if it makes no progress for {facts.stall_seconds:g} seconds."


def _cancel_remedy(facts: Facts) -> Cancel:
    return Cancel(facts.run.id, "stops the run and keeps its messages so far")


def _list_calls(calls: Sequence[AwaitedCall]) -> str:
    return ", ".join(f"{call.name} ({call.id})" for call in calls)
