"""Which calls wait for a person, and whether an answer fits them (wire-v1 §6.3). Pure: ``usecases/answering``
applies it."""

import json
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.cancellation import DENIED_ON_CANCEL
from holdfast.core.context import max_return_chars
from holdfast.core.expiry import is_expiry
from holdfast.core.messages import (
    CallState,
    Decision,
    Message,
    OpenCall,
    Role,
    Text,
    ToolCall,
    VisiblePart,
)
from holdfast.core.paging import Page
from holdfast.errors import AnswerMismatch, CallerError, Conflict, PendingApproval

NOTHING_PENDING = (
    "Cannot process approval response: No tool call is currently awaiting approval. "
    "Please send a regular message to interact with the agent."
)
NO_DECISIONS = (
    "Invalid approval response. Approval response message does not contain any approvals."
)
# What the model is told when an answer comes again and there is nothing else to say (wire-v1 §6.6).
KEEP_ALIVE = (
    "<system-alert>Automated keep-alive ping. Ignore this message and continue from where you "
    "stopped.</system-alert>"
)
# An answer that comes again is looked for among so many of the newest rows (wire-v1 §6.6).
RECENT_ROWS = 10

_HEARTBEAT = "request_heartbeat"


class ApprovalQuery(Struct, frozen=True, kw_only=True):
    """Which requests for a person's answer a list shows. Conditions combine with AND; None means any."""

    page: Page
    agent_id: str | None = None
    thread_id: str | None = None
    tool: str | None = None


class OverdueRequest(Struct, frozen=True):
    """A request of which some calls have waited for too long."""

    organization_id: str
    request_id: str


def held_calls(calls: Sequence[OpenCall]) -> list[OpenCall]:
    return [item for item in calls if item.state is CallState.HELD]


def held_request_id(calls: Sequence[OpenCall]) -> str:
    """The row that asks for a person's answer."""
    return next((item.message_id for item in held_calls(calls)), "")


def undecided_calls(
    calls: Sequence[OpenCall], before: Collection[str] = ()
) -> tuple[tuple[str, str], ...]:
    """Id and tool of each call that a person must decide on, and has not ``before``."""
    return tuple(
        (item.call.id, item.call.name) for item in held_calls(calls) if item.call.id not in before
    )


def pending_approval(calls: Sequence[OpenCall], before: Collection[str] = ()) -> PendingApproval:
    """What to tell who speaks while these calls wait."""
    return PendingApproval(held_request_id(calls), undecided_calls(calls, before))


def match_decisions(
    calls: Sequence[OpenCall],
    decisions: Sequence[Decision],
    before: Mapping[str, Decision] = MappingProxyType({}),
    *,
    partial: bool = False,
) -> tuple[Decision, ...]:
    """The decisions, each naming the call that it answers. Together with those from ``before`` they must cover
    the held calls, unless they are ``partial``; and must not contradict them."""
    if not decisions:
        raise CallerError(NO_DECISIONS)
    named = _decisions_by_call(calls, decisions, before)
    asked = {item.call.id for item in held_calls(calls)}
    for call_id in named.keys() & before.keys():
        if not _is_same_decision(named[call_id], before[call_id]):
            raise Conflict(f"It was decided before: {describe_decision(before[call_id])}.")
    covers = asked <= named.keys() | before.keys()
    if not (named.keys() <= asked and (covers or partial)):
        raise _mismatch(calls, list(named), before)
    return tuple(named.values())


def describe_decision(decision: Decision) -> str:
    """Who decided what, and when."""
    what = "denied"
    if decision.returned is not None:
        what = "answered by the client"
    elif decision.approve:
        what = "approved"
    who = decision.decided_by or decision.decided_by_id or "nobody that is on record"
    when = f" at {decision.decided_at.isoformat()}" if decision.decided_at else ""
    return f"{decision.call_id} was {what} by {who}{when}"


def describe_partial_answer(remaining: Sequence[str]) -> str:
    """What to say of a request while somebody's answer to others of its calls is on its way."""
    return f"is just being answered in part; try again in a moment for {', '.join(remaining)}"


def _is_same_decision(one: Decision, other: Decision) -> bool:
    return (one.approve, one.returned, one.arguments) == (
        other.approve,
        other.returned,
        other.arguments,
    )


def _decisions_by_call(
    calls: Sequence[OpenCall], decisions: Sequence[Decision], before: Collection[str]
) -> dict[str, Decision]:
    asked = {item.call.id for item in held_calls(calls)}
    request_id = held_request_id(calls)
    named: dict[str, Decision] = {}
    for decision in decisions:
        call_id = decision.call_id
        if len(asked) == 1 and call_id == request_id:
            # Older clients name the row instead of the call; with one call there is no doubt.
            (call_id,) = asked
        given = _with_call_id(decision, call_id)
        if named.setdefault(call_id, given) != given:
            raise _mismatch(calls, [item.call_id for item in decisions], before)
    return named


def _with_call_id(decision: Decision, call_id: str) -> Decision:
    returned = decision.returned
    if returned is not None:
        returned = replace(returned, call_id=call_id)
    return replace(decision, call_id=call_id, returned=returned)


def _mismatch(
    calls: Sequence[OpenCall], received: list[str], before: Collection[str]
) -> AnswerMismatch:
    expected = [call_id for call_id, _ in undecided_calls(calls, before)]
    return AnswerMismatch(
        f"Invalid tool call IDs. Expected '{expected}', but received '{received}'.",
        held_request_id(calls),
        undecided_calls(calls, before),
    )


def find_contrary_decision(
    rows: Sequence[Message], decisions: Sequence[Decision], *, may_repeat: bool = True
) -> Decision | None:
    """What these rows have of a decision, if somebody else made it: the answer is not the same again, or may not be,
    but comes too late. The clock repeats nobody, and a cancel decides nothing."""
    given = {_resolve_call_id(rows, item.call_id): item for item in decisions}
    for made in (item for row in rows for item in row.decisions):
        wanted = given.get(made.call_id)
        if wanted is None or made.reason == DENIED_ON_CANCEL:
            continue
        if not may_repeat or is_expiry(made) or _comparison_key(made) != _comparison_key(wanted):
            return made
    return None


def _comparison_key(decision: Decision) -> tuple[bool, bool, object]:
    """A client's result is kept in another form than it came in."""
    return decision.approve, decision.returned is None, decision.arguments


def was_given_before(rows: Sequence[Message], decisions: Sequence[Decision]) -> bool:
    """Whether these rows have the results of just the calls that the decisions name: the answer came before.
    What was denied because its run was cancelled was answered by nobody."""
    wanted = {_resolve_call_id(rows, decision.call_id) for decision in decisions}
    cancelled = {
        item.call_id for row in rows for item in row.decisions if item.reason == DENIED_ON_CANCEL
    }
    results = [{item.call_id for item in row.tool_returns} for row in rows if row.role is Role.TOOL]
    return any(wanted <= given and not given & cancelled for given in results)


def _resolve_call_id(rows: Sequence[Message], name: str) -> str:
    """The call that is meant by the id of the row that asked for it alone."""
    asked = next((row.tool_calls for row in rows if row.id == name), ())
    return asked[0].id if len(asked) == 1 else name


def clip_decision(decision: Decision, context_window: int) -> Decision:
    """The decision with no more of a client's result than the model's window can bear."""
    if decision.returned is None:
        return decision
    room = max_return_chars(context_window)
    parts: list[VisiblePart] = []
    for part in decision.returned.content:
        if isinstance(part, Text):
            parts.append(Text(_truncate(part.text, room)))
            room = max(0, room - len(part.text))
        else:
            parts.append(part)
    return replace(decision, returned=replace(decision.returned, content=tuple(parts)))


def _truncate(text: str, room: int) -> str:
    lost = len(text) - room
    return text if lost <= 0 else f"{text[:room]}… [truncated {lost} chars]"


def without_heartbeat(call: ToolCall, properties: Collection[str]) -> ToolCall:
    """The call as a person is asked about it: without a key that some models add from habit, and that is never
    the tool's own (wire-v1 §6.2)."""
    if _HEARTBEAT not in call.arguments or _HEARTBEAT in properties:
        return call
    try:
        arguments = json.loads(call.arguments)
    except ValueError:
        return call
    if not isinstance(arguments, dict) or _HEARTBEAT not in arguments:
        return call
    del arguments[_HEARTBEAT]
    return replace(call, arguments=json.dumps(arguments, ensure_ascii=False))
