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
    # Whether a worker of this process executes the run.
    has_worker: bool = True
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
