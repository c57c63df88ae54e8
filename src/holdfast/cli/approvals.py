"""``holdfast approvals``: list, show and decide requests for approval. Returns text for people, or with ``as_json`` the
server's JSON for scripts."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from holdfast.cli.text import to_json

if TYPE_CHECKING:
    from holdfast.cli.api import Api

Approval = Mapping[str, Any]


def render_list(
    api: "Api", *, agent: str | None, tool: str | None, limit: int, as_json: bool
) -> str:
    """List the pending requests, the oldest first."""
    approvals = api.get("approvals", "", agent_id=agent, tool_name=tool, limit=limit)
    if as_json:
        return to_json(approvals)
    return (
        "\n\n".join(map(_render_approval, approvals))
        if approvals
        else "Nothing waits for a person."
    )


def render_one(api: "Api", request_id: str, *, as_json: bool) -> str:
    approval = api.get("approvals", request_id)
    return to_json(approval) if as_json else _render_approval(approval)


def decide(
    api: "Api", request_id: str, *, approve: bool, reason: str | None, by: str | None, as_json: bool
) -> str:
    """Approve or deny every call of the request."""
    body = {"approve": approve, "reason": reason, "decided_by": by}
    run = api.post("approvals", request_id, body=body)
    if as_json:
        return to_json(run)
    return f"{request_id} is {'approved' if approve else 'denied'}; {run['id']} goes on with it."


def _render_approval(approval: Approval) -> str:
    return "\n  ".join([f"{approval['id']} ({approval['status']})", *_approval_lines(approval)])


def _approval_lines(approval: Approval) -> Iterator[str]:
    yield f"since {approval['created_at']}"
    yield f"agent {approval['agent_id']}"
    if approval["conversation_id"]:
        yield f"conversation {approval['conversation_id']}"
    if approval["expires_at"]:
        yield f"until {approval['expires_at']}"
    for call in approval["tool_calls"]:
        yield f"call {call['tool_call_id']}: {call['name']} {call['arguments']}"
    for entry in approval["approvals"]:
        who = entry.get("decided_by") or entry.get("decided_by_id") or "unknown"
        yield f"{_outcome(entry)} {entry['tool_call_id']} by {who}"


def _outcome(entry: Mapping[str, Any]) -> str:
    if entry["type"] == "tool":
        return "answered"
    return "approved" if entry["approve"] else "denied"
