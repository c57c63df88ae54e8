"""``holdfast runs``: list, show, explain and cancel runs. Returns text for people, or with ``as_json`` the server's
JSON for scripts."""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from holdfast.cli.text import align_columns, to_json

if TYPE_CHECKING:
    from holdfast.cli.api import Api

Run = Mapping[str, Any]

_HEADINGS = ("RUN", "STATUS", "STOP REASON", "CREATED", "DURATION", "AGENT")
_EMPTY_CELL = "-"


def render_list(
    api: "Api", *, agent: str | None, statuses: Sequence[str], limit: int, as_json: bool
) -> str:
    """List runs, the newest first."""
    runs = api.get("runs", "", agent_id=agent, statuses=statuses or None, limit=limit)
    if as_json:
        return to_json(runs)
    return align_columns([_HEADINGS, *map(_list_row, runs)]) if runs else "There are no such runs."


def render_one(api: "Api", run_id: str, *, as_json: bool) -> str:
    """Show a run with its usage and its steps."""
    run = api.get("runs", run_id)
    usage = api.get("runs", run_id, "usage")
    steps = api.get("runs", run_id, "steps", order="asc")
    if as_json:
        return to_json({**run, "usage": usage, "steps": steps})
    return align_columns([*_run_rows(api, run, usage), *_attempt_rows(steps)])


def render_explanation(api: "Api", run_id: str, *, as_json: bool) -> str:
    """Explain what the run is doing or how it ended, and what would unblock it."""
    explained = api.get("runs", run_id, "explain")
    if as_json:
        return to_json(explained)
    parts = [explained["summary"], align_columns(list(_explanation_rows(explained)))]
    if explained["by_itself"]:
        parts.append(f"By itself: {explained['by_itself']}")
    return "\n\n".join([*parts, *map(_render_request, explained["unblock"])])


def cancel(api: "Api", run_id: str, *, reason: str | None, rollback: bool, as_json: bool) -> str:
    """Cancel the run, and describe the result."""
    body = {"reason": reason, "action": "rollback" if rollback else "keep"}
    run = api.post("runs", run_id, "cancel", body=body)
    if as_json:
        return to_json(run)
    match run["status"]:
        case "cancelled":
            receipt = align_columns(list(_cancellation_rows(api, run)))
            return f"{run['id']} is cancelled.\n{receipt}"
        case "created" | "running":
            return f"The cancel of {run['id']} is on record; the run is about to end."
        case ended:
            return (
                f"{run['id']} had ended before: {ended}, {run['stop_reason']}. Nothing was changed."
            )


def _explanation_rows(explained: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    values = {
        "run": explained["run_id"],
        "agent": explained["agent_id"],
        "conversation": explained["conversation_id"],
        "phase": explained["phase"].replace("_", " "),
        "since": explained["since"] and _format_time(explained["since"]),
        "status": explained["status"],
        "stop reason": explained["stop_reason"],
        "waits for": _describe_wait(explained),
        "server": _describe_server(explained["lease"]),
        "steps": str(explained["num_steps"]),
        "tokens": "{prompt_tokens} in, {completion_tokens} out".format_map(explained["usage"]),
        "cost": _format_cost(explained["usage"]),
        "recoveries": explained["recoveries"] and str(explained["recoveries"]),
    }
    yield from ((label, text) for label, text in values.items() if text)
    for call in explained["waits_for"]["tool_calls"]:
        if call["expires_at"]:
            yield (
                "expires",
                f"{_format_time(call['expires_at'])}: {call['name']}, {call['on_timeout']}",
            )
    for attempt in explained["failed_attempts"]:
        text = filter(None, (attempt["error_type"], attempt["detail"]))
        yield "failed try", f"{_format_time(attempt['at'])}: {' '.join(text)}"


def _render_request(call: Mapping[str, Any]) -> str:
    body = json.dumps(call["body"], ensure_ascii=False)
    return f"{call['method']} {call['path']} {body}\n  {call['effect']}"


def _list_row(run: Run) -> tuple[str, ...]:
    return (
        run["id"],
        run["status"],
        run["stop_reason"] or _EMPTY_CELL,
        _format_time(run["created_at"]),
        _format_duration(run) or _EMPTY_CELL,
        run["agent_id"],
    )


def _run_rows(api: "Api", run: Run, usage: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    explained = api.get("runs", run["id"], "explain")
    values = {
        "run": run["id"],
        "agent": run["agent_id"],
        "conversation": run["conversation_id"],
        "status": run["status"],
        "stop reason": run["stop_reason"],
        "waits for": _describe_wait(explained),
        "server": _describe_server(explained["lease"]),
        "created": _format_time(run["created_at"]),
        "ended": run["completed_at"] and _format_time(run["completed_at"]),
        "duration": _format_duration(run),
        "tokens": f"{usage['prompt_tokens']} in, {usage['completion_tokens']} out",
        "cost": _format_cost(usage),
        "callback": _describe_callback(run),
        "error": _describe_error(run),
    }
    yield from ((label, text) for label, text in values.items() if text)
    yield from _cancellation_rows(api, run)


def _attempt_rows(steps: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """Each retry of a model call. A failure that was not retried is the run's error."""
    for attempt in (attempt for step in steps for attempt in step["attempts"]):
        if (wait := attempt["wait_seconds"]) is not None:
            text = f"{attempt['error_type']}: {attempt['detail'] or _EMPTY_CELL}"
            yield "asked again", f"{wait:.1f} s after {_format_time(attempt['at'])}, {text}"


def _cancellation_rows(api: "Api", run: Run) -> Iterator[tuple[str, str]]:
    """Who cancelled the run, when, why and in which phase; and the outcome of each call that was open."""
    receipt = run["metadata"].get("cancellation")
    if receipt is None:
        return
    yield "cancelled", f"{_format_time(receipt['requested_at'])} by {receipt['requested_by']}"
    if reason := receipt.get("reason"):
        yield "reason", reason
    if phase := receipt.get("phase"):
        yield "stopped in", phase
    rolled_back = receipt.get("action") == "rollback"
    yield "messages", "rolled back" if rolled_back else "kept"
    calls = receipt.get("calls") or {}
    names = _tool_names(api.get("runs", run["id"], "messages", limit=1_000)) if calls else {}
    for call_id, outcome in calls.items():
        yield "call", f"{call_id} {names.get(call_id, '')}".strip() + f": {outcome}"


def _describe_wait(explained: Mapping[str, Any]) -> str | None:
    waits_for = explained["waits_for"]
    if explained["phase"] == "queued":
        runs = ", ".join(waits_for["runs"])
        return f"its turn, after {runs}" if runs else "a server with room"
    calls = ", ".join(
        f"{call['name']} ({call['tool_call_id']})" for call in waits_for["tool_calls"]
    )
    match explained["phase"]:
        case "waiting_for_approval":
            return f"an approval of {calls}"
        case "running_tools":
            return f"the tools {calls}"
        case "asking_model":
            return f"the model {waits_for['model']}"
        case _:
            return None


def _describe_server(lease: Mapping[str, Any]) -> str | None:
    """The server that executes the run, and until when it may; None if there is none."""
    if lease["server_id"] is None:
        return None
    where = f" on {lease['host']}" if lease["host"] else ""
    here = ", this one" if lease["held_here"] else ""
    if not lease["is_valid"]:
        return f"{lease['server_id']}{where}, which is dead"
    until = f", lease until {_format_time(lease['expires_at'])}" if lease["expires_at"] else ""
    return f"{lease['server_id']}{where}{here}{until} (fence {lease['fence']})"


def _tool_names(messages: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    return {
        call["tool_call_id"]: call["name"]
        for message in messages
        for call in message.get("tool_calls") or ()
    }


def _describe_error(run: Run) -> str | None:
    error = run["metadata"].get("error")
    if error is None:
        return None
    text = " ".join(filter(None, (error["message"], error.get("detail"))))
    return f"{error['error_type']}: {text}"


def _describe_callback(run: Run) -> str | None:
    if run["callback_url"] is None:
        return None
    if run["callback_error"]:
        return f"not taken by {run['callback_url']}: {run['callback_error']}"
    if run["callback_sent_at"]:
        return f"taken by {run['callback_url']} at {_format_time(run['callback_sent_at'])}"
    return f"owed to {run['callback_url']}"


def _format_cost(usage: Mapping[str, Any]) -> str | None:
    """None if no price is values, as of a local model."""
    if usage["cost"] is None:
        return None
    missing = usage["unpriced_steps"]
    missing_note = f", without {missing} of its steps, whose price is not known" if missing else ""
    return f"${usage['cost']:.9f}".rstrip("0").rstrip(".") + missing_note


def _format_duration(run: Run) -> str | None:
    spent = run["total_duration_ns"]
    return None if spent is None else f"{spent / 1e9:.2f} s"


def _format_time(text: str) -> str:
    return datetime.fromisoformat(text).astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")
