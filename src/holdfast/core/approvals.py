"""Which calls wait for a person, and whether an answer fits them (wire-v1 §6.3). Pure:
``usecases/approval_answers`` applies it."""

import json
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.cancellation import DENIED_ON_CANCEL
from holdfast.core.context import max_return_chars
from holdfast.core.expiry import is_expiry
from holdfast.core.json_depth import load_json
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
from holdfast.core.tools import HEARTBEAT
from holdfast.errors import AnswerMismatch, CallerError, Conflict, PendingApproval

NOTHING_PENDING = (
    "Cannot process approval response: No tool call is currently awaiting approval. "
    "Please send a regular message to interact with the agent."
)
NO_DECISIONS = (
    "Invalid approval response. Approval response message does not contain any approvals."
)
# The message to the model when an answer is repeated without any other message (wire-v1 §6.6).
KEEP_ALIVE = (
    "<system-alert>Automated keep-alive ping. Ignore this message and continue from where you "
    "stopped.</system-alert>"
)
# A repeated answer is recognised among this many of the newest rows (wire-v1 §6.6).
RECENT_ROWS = 10


class ApprovalQuery(Struct, frozen=True, kw_only=True):
    """Which requests for approval a list shows. Conditions combine with AND; None means any."""

    page: Page
    agent_id: str | None = None
    thread_id: str | None = None
    tool: str | None = None


class OverdueRequest(Struct, frozen=True):
    """A request some of whose calls have passed their deadline."""

    organization_id: str
    request_id: str


def held_calls(calls: Sequence[OpenCall]) -> list[OpenCall]:
    return [item for item in calls if item.state is CallState.HELD]


def held_request_id(calls: Sequence[OpenCall]) -> str:
    """The id of the row that asks for the decisions."""
    return next((item.message_id for item in held_calls(calls)), "")


def undecided_calls(
    calls: Sequence[OpenCall], before: Collection[str] = ()
) -> tuple[tuple[str, str], ...]:
    """Id and tool of each held call; ``before`` has the ids of those that are decided."""
    return tuple(
        (item.call.id, item.call.name) for item in held_calls(calls) if item.call.id not in before
    )


def pending_approval(calls: Sequence[OpenCall], before: Collection[str] = ()) -> PendingApproval:
    """The error for a message that is sent while these calls wait."""
    return PendingApproval(held_request_id(calls), undecided_calls(calls, before))


def match_decisions(
    calls: Sequence[OpenCall],
    decisions: Sequence[Decision],
    before: Mapping[str, Decision] = MappingProxyType({}),
    *,
    partial: bool = False,
) -> tuple[Decision, ...]:
    """The decisions, each with the id of its call. Together with the earlier ones (``before``) they must cover all
    held calls, unless they are ``partial``. They must not contradict the earlier ones."""
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
    """Who made which decision, and when, in words."""
    what = "denied"
    if decision.returned is not None:
        what = "answered by the client"
    elif decision.approve:
        what = "approved"
    who = decision.decided_by or decision.decided_by_id or "an unknown user"
    when = f" at {decision.decided_at.isoformat()}" if decision.decided_at else ""
    return f"{decision.call_id} was {what} by {who}{when}"


def describe_partial_answer(remaining: Sequence[str]) -> str:
    """The words for a request while an answer to other calls of it is being executed."""
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
            # Older clients send the id of the row instead of the call, which is unambiguous with one call.
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
    """The first decision in these rows that conflicts with the given ones: a different one, one by expiry, or any at
    all if an answer may not be repeated. A denial by a cancel is not a decision."""
    given = {_resolve_call_id(rows, item.call_id): item for item in decisions}
    for made in (item for row in rows for item in row.decisions):
        wanted = given.get(made.call_id)
        if wanted is None or made.reason == DENIED_ON_CANCEL:
            continue
        if not may_repeat or is_expiry(made) or _comparison_key(made) != _comparison_key(wanted):
            return made
    return None


def _comparison_key(decision: Decision) -> tuple[bool, bool, object]:
    """What two decisions are compared by. The content of a client's result is not: it is stored in another form."""
    return decision.approve, decision.returned is None, decision.arguments


def was_given_before(rows: Sequence[Message], decisions: Sequence[Decision]) -> bool:
    """Whether these rows have the results of all calls that the decisions name, so that the answer is a repetition.
    A denial by a cancel does not count."""
    wanted = {_resolve_call_id(rows, decision.call_id) for decision in decisions}
    cancelled = {
        item.call_id for row in rows for item in row.decisions if item.reason == DENIED_ON_CANCEL
    }
    results = [{item.call_id for item in row.tool_returns} for row in rows if row.role is Role.TOOL]
    return any(wanted <= given and not given & cancelled for given in results)


def _resolve_call_id(rows: Sequence[Message], name: str) -> str:
    """The id of the call; ``name`` may be the id of the row that asks for one call."""
    asked = next((row.tool_calls for row in rows if row.id == name), ())
    return asked[0].id if len(asked) == 1 else name


def clip_decision(decision: Decision, context_window: int) -> Decision:
    """The decision with a client's result that is short enough for the model's window."""
    if decision.returned is None:
        return decision
    limit = max_return_chars(context_window)
    parts: list[VisiblePart] = []
    for part in decision.returned.content:
        if isinstance(part, Text):
            parts.append(Text(_truncate(part.text, limit)))
            limit = max(0, limit - len(part.text))
        else:
            parts.append(part)
    return replace(decision, returned=replace(decision.returned, content=tuple(parts)))


def _truncate(text: str, limit: int) -> str:
    excess = len(text) - limit
    return text if excess <= 0 else f"{text[:limit]}… [truncated {excess} chars]"


def without_heartbeat(call: ToolCall, properties: Collection[str]) -> ToolCall:
    """The call as it is shown to a person: without an argument that some models add although the tool does not have
    it (wire-v1 §6.2)."""
    if HEARTBEAT not in call.arguments or HEARTBEAT in properties:
        return call
    try:
        arguments = load_json(call.arguments)
    except ValueError:
        return call
    if not isinstance(arguments, dict) or HEARTBEAT not in arguments:
        return call
    del arguments[HEARTBEAT]
    return replace(call, arguments=json.dumps(arguments, ensure_ascii=False))
