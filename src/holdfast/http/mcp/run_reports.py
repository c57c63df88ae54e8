"""What became of a run: loaded, waited for, and told in words."""

import asyncio
from contextlib import aclosing
from typing import Final

from msgspec import structs

from holdfast.core.events import MessageStored, RunEnded
from holdfast.core.lifecycle import is_over
from holdfast.core.messages import Message, Role, sent_texts
from holdfast.core.paging import Page
from holdfast.core.runs import Run, RunStatus
from holdfast.errors import ServerStopping
from holdfast.http.mcp.caller import Answer, Caller
from holdfast.http.mcp.summaries import (
    MAX_ANSWER_CHARS,
    ApprovalSummary,
    RunSummary,
    approval_summary,
    cut,
    run_summary,
)
from holdfast.usecases import approvals, explanation, runs
from holdfast.usecases.approvals import ApprovalRequest

# The text of a run is that of its newest messages, so many at most.
_MAX_MESSAGES: Final = 200
_MAX_PROGRESS_CHARS: Final = 500


class RunReport(RunSummary, frozen=True, kw_only=True, omit_defaults=True):
    # What the run is doing, or how it ended.
    summary: str
    # What the agent has said.
    answer: str = ""
    # What the run waits for.
    approval: ApprovalSummary | None = None


async def load_report(caller: Caller, run_id: str) -> RunReport:
    services, actor = caller.services, caller.actor
    explained = await explanation.explain_run(services, actor, run_id)
    run = explained.run
    rows = await runs.list_messages(services, actor, run_id, Page(limit=_MAX_MESSAGES))
    approval = None
    if run.status is RunStatus.PAUSED and run.approval_id is not None:
        request = await approvals.retrieve(services, actor, run.approval_id)
        approval = summarize_request(request)
    said = "\n\n".join(text for row in reversed(rows) if (text := _spoken_text(row)))
    return RunReport(
        **structs.asdict(run_summary(run)),
        summary=explained.explanation.summary,
        answer=cut(said, MAX_ANSWER_CHARS),
        approval=approval,
    )


def summarize_request(request: ApprovalRequest) -> ApprovalSummary:
    run = request.run
    return approval_summary(
        request.row,
        run_id=run.id if run else None,
        decisions=request.decisions,
        deadlines={item.call.id: item.deadline for item in request.open_calls if item.deadline},
        client_tools=[tool.name for tool in run.request.client_tools] if run else (),
    )


async def wait_and_tell(caller: Caller, run: Run, seconds: float) -> Answer:
    """Wait for the end of the run, but no longer than this, and say what became of it. A run that still waits for its turn
    goes on waiting afterwards: it may be another client's, and whoever sent it was told that it is stored."""
    await caller.report(f"This is the run {run.id}.")
    try:
        async with asyncio.timeout(seconds):
            await _wait_for_end(caller, run)
    except TimeoutError:
        pass
    return tell(await load_report(caller, run.id))


async def _wait_for_end(caller: Caller, run: Run) -> None:
    seen: set[str] = set()
    async with aclosing(caller.services.events.follow(run.id)) as batches:
        async for events in batches:
            for event in events:
                if isinstance(event.fact, RunEnded):
                    return
                if isinstance(event.fact, MessageStored):
                    row = event.fact.message
                    # A message is stored in pieces.
                    if row.id not in seen and (text := _progress_text(row)):
                        seen.add(row.id)
                        await caller.report(text)
    raise ServerStopping(run.id)


def tell(report: RunReport) -> Answer:
    """The agent's words, or what is in their place."""
    text = _tell_status(report)
    is_error = report.status in (RunStatus.FAILED, RunStatus.CANCELLED)
    return Answer(text=text, is_error=is_error, run_id=report.id)


def _tell_status(report: RunReport) -> str:
    match RunStatus(report.status):
        case RunStatus.COMPLETED if report.answer:
            ended = "" if report.stop_reason == "end_turn" else f"({report.summary})"
            return _join(report.answer, ended)
        case RunStatus.COMPLETED:
            return f"The agent ended its turn without an answer. {report.summary}"
        case RunStatus.PAUSED if report.approval is not None:
            return _join(report.answer, _tell_approval(report.id, report.approval))
        case status if is_over(status):
            return _join(report.answer, f"{report.summary} (run {report.id})")
        case _:
            return _join(
                report.answer,
                f"The run {report.id} has not ended yet. {report.summary} It goes on without this call, so do not "
                "send the message again: call get_run to look again, or cancel_run to stop it.",
            )


def _tell_approval(run_id: str, approval: ApprovalSummary) -> str:
    lines = [f"The run {run_id} waits for a person's decision on these tool calls:"]
    for call in approval.calls:
        state = f" ({call.decision})" if call.decision else ""
        lines.append(f"- {call.tool} with {call.arguments} (id {call.id}){state}")
    if any(call.needs_result and not call.decision for call in approval.calls):
        lines.append("The client that offered these tools must send their results by the API.")
    else:
        lines.append(
            f"To go on, call decide_approval with approval_id {approval.id} and approve true or false."
        )
    return "\n".join(lines)


def _join(*parts: str) -> str:
    return "\n\n".join(part for part in parts if part)


def _spoken_text(row: Message) -> str:
    """What the agent said in a message to the user. A message with held calls may have words too."""
    if row.hidden or row.role not in (Role.ASSISTANT, Role.APPROVAL) or row.decisions:
        return ""
    return "\n".join(text for text in (row.text, *sent_texts(row)) if text.strip())


def _progress_text(row: Message) -> str:
    parts = [_spoken_text(row)]
    parts += [f"Calls {call.name}." for call in row.tool_calls]
    parts += [f"{item.name or 'A tool'}: {item.outcome}." for item in row.tool_returns]
    return cut("\n".join(part for part in parts if part), _MAX_PROGRESS_CHARS)
