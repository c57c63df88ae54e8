"""The facts that an explanation is made from, and the explanation itself."""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum

from msgspec import Struct

from holdfast.core.deadlines import Deadline
from holdfast.core.messages import Decision, OpenCall
from holdfast.core.runs import Run
from holdfast.core.steps import Step


class Phase(StrEnum):
    """What a run is doing; the values are part of the wire."""

    QUEUED = "queued"
    STARTING = "starting"
    ASKING_MODEL = "asking_model"
    COMPACTING = "compacting"
    RUNNING_TOOLS = "running_tools"
    WAITING_FOR_APPROVAL = "waiting_for_approval"
    CANCELLING = "cancelling"
    ENDED = "ended"


class Owner(Struct, frozen=True, kw_only=True):
    """The server that has claimed a run."""

    server_id: str
    # The name of its machine; None if the server is no longer listed.
    host: str | None = None
    # Whether it is the server that explains the run.
    is_this: bool = False
    # When its lease ends by the clock of the database, and in how many seconds; negative if it has ended. None: never.
    lease_ends_at: datetime | None = None
    lease_seconds: float | None = None

    @property
    def is_alive(self) -> bool:
        return self.lease_seconds is None or self.lease_seconds > 0


class Facts(Struct, frozen=True, kw_only=True):
    """The state of a run and its thread at the time ``now``."""

    run: Run
    now: datetime
    # For a queued run: the runs of the thread that come before it, the running one first.
    runs_ahead: tuple[str, ...] = ()
    # Whether there are more runs ahead than ``runs_ahead`` names.
    has_more_ahead: bool = False
    # The step that waits for the model's answer.
    step: Step | None = None
    # The thread's open calls, when the model requested them, and the decisions on them so far.
    calls: tuple[OpenCall, ...] = ()
    calls_requested_at: datetime | None = None
    decisions: Mapping[str, Decision] = {}
    # The run that continued this one after an approval was answered.
    followed_by: str | None = None
    # The server that has claimed the run, if it has not ended; None: it waits in the queue.
    owner: Owner | None = None
    # How many servers that execute runs are alive.
    alive_workers: int = 1
    # The operator's limits.
    stall_seconds: float
    tool_timeout_seconds: float


class AwaitedCall(Struct, frozen=True, kw_only=True):
    id: str
    name: str
    # Whether the call has returned and only other calls are awaited.
    has_result: bool = False
    # Whether the tool is a client tool, which only the client can run.
    runs_on_client: bool = False
    deadline: Deadline | None = None


class Cancel(Struct, frozen=True):
    """Cancel this run."""

    run_id: str
    effect: str


class Decide(Struct, frozen=True):
    """Approve or deny an approval request."""

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
    """``by_itself`` is what happens without any action; ``remedies`` are the actions that would help, the likeliest
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
