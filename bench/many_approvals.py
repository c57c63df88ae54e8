"""A store with many pending approval requests, each in its own thread with a history."""

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

from msgspec.structs import replace

from holdfast.core.deadlines import Deadline, OnTimeout
from holdfast.core.ids import DEFAULT_ORGANIZATION_ID
from holdfast.core.messages import CallState, Message, OpenCall, Role, Text, ToolCall
from holdfast.core.runs import Run, RunStatus
from holdfast.core.threads import Thread
from holdfast.ports.store import Store, Transaction

# Further messages and runs of each thread.
ROWS_BEFORE: Final = 10
RUNS_BEFORE: Final = 5
# One in this many has a deadline.
ONE_IN_SO_MANY_EXPIRES: Final = 4
AT_ONCE: Final = 500
FIRST_AT: Final = datetime(2026, 1, 1, tzinfo=UTC)
# Later than the end of any bench.
EXPIRES_AT: Final = datetime(2100, 1, 1, tzinfo=UTC)


async def fill(store: Store, agent_id: str, count: int) -> None:
    """Write the threads, all of one existing agent."""
    for first in range(0, count, AT_ONCE):
        await store.write(partial(_add, agent_id, range(first, min(first + AT_ONCE, count))))


def _add(agent_id: str, numbers: range, tx: Transaction) -> None:
    for number in numbers:
        _add_thread(tx, agent_id, number, FIRST_AT + timedelta(seconds=number))


def _add_thread(tx: Transaction, agent_id: str, number: int, now: datetime) -> None:
    thread_id = f"conv-00000000-0000-4000-8000-{number:012}"
    tx.threads.add(
        Thread(
            id=thread_id,
            organization_id=DEFAULT_ORGANIZATION_ID,
            agent_id=agent_id,
            created_at=now,
            updated_at=now,
        )
    )
    for earlier in range(RUNS_BEFORE):
        tx.runs.add(_run(agent_id, thread_id, f"{earlier}{number:011}", now, RunStatus.COMPLETED))
    deadline = None
    if number % ONE_IN_SO_MANY_EXPIRES == 0:
        deadline = Deadline(EXPIRES_AT + timedelta(seconds=number), OnTimeout.DENY)
    history = [
        _message(agent_id, thread_id, f"{place}{number:011}", now) for place in range(ROWS_BEFORE)
    ]
    call = ToolCall("call_1", "shout", '{"text":"hi"}')
    request = Message(
        id=f"message-00000000-0000-4000-9000-{number:012}",
        agent_id=agent_id,
        thread_id=thread_id,
        role=Role.APPROVAL,
        created_at=now,
        tool_calls=(call,),
    )
    tx.messages.append([*history, request])
    asking = _run(agent_id, thread_id, f"9{number:011}", now, RunStatus.PAUSED)
    expires_at = deadline.at if deadline else None
    tx.runs.add(replace(asking, approval_id=request.id, asked_at=now, expires_at=expires_at))
    held = OpenCall(call, request.id, "step-1", CallState.HELD, deadline=deadline)
    tx.calls.put(thread_id, [held])


def _run(agent_id: str, thread_id: str, name: str, now: datetime, status: RunStatus) -> Run:
    return Run(
        id=f"run-00000000-0000-4000-8000-{name}",
        organization_id=DEFAULT_ORGANIZATION_ID,
        agent_id=agent_id,
        thread_id=thread_id,
        status=status,
        kind="send_message",
        created_at=now,
    )


def _message(agent_id: str, thread_id: str, name: str, now: datetime) -> Message:
    return Message(
        id=f"message-00000000-0000-4000-8000-{name}",
        agent_id=agent_id,
        thread_id=thread_id,
        role=Role.USER,
        created_at=now,
        content=(Text("Something that was said before."),),
    )
