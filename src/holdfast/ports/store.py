"""What Holdfast remembers. A transaction is a plain function, run whole or not at all.

    agent = await store.read(lambda tx: tx.agents.get(actor.organization_id, agent_id))

Every object belongs to an organisation: one of another organisation is simply not found. Lists follow
``Page``: sorted by ``order_by`` with the id as tie-breaker, ``after`` is the next page in sort order, ``before``
the previous one (still returned in sort order); an unknown cursor raises NotFound
``No <Kind> found with id <cursor>`` unless a docstring says otherwise.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol, TypeVar

from holdfast.core.agents import Agent, AgentQuery, Secret
from holdfast.core.approvals import ApprovalQuery, OverdueRequest
from holdfast.core.blocks import Block, BlockQuery
from holdfast.core.callbacks import CallbackOutcome, ClaimedCallback, DueCallback
from holdfast.core.deadlines import Deadline
from holdfast.core.events import Event
from holdfast.core.lifecycle import Signal
from holdfast.core.messages import Message, OpenCall
from holdfast.core.paging import Page
from holdfast.core.prices import Costs
from holdfast.core.providers import Provider, ProviderQuery
from holdfast.core.runs import Run, RunQuery
from holdfast.core.steps import Step, StepQuery
from holdfast.core.threads import Thread, ThreadQuery
from holdfast.core.tools import Tool, ToolQuery
from holdfast.core.traces import ProviderTrace

T = TypeVar("T")


class Agents(Protocol):
    def add(self, agent: Agent) -> None: ...

    def get(self, organization_id: str, agent_id: str) -> Agent:
        """NotFound: ``Agent with ID <id> not found``."""
        ...

    def save(self, agent: Agent) -> None:
        """Replace the whole agent; its relations and last-run fields are not part of it."""
        ...

    def delete(self, organization_id: str, agent_id: str) -> None:
        """The agent with its threads, messages, runs, steps, events, links and secrets."""
        ...

    def list(self, organization_id: str, query: AgentQuery) -> Sequence[Agent]:
        """An unknown cursor is ignored (wire-v1 §1.10)."""
        ...

    def count(self, organization_id: str, query: AgentQuery) -> int: ...

    def record_run_end(self, run: Run) -> None:
        """What the agent's last run was, from one that has ended; a run that only compacts is none (wire-v1 §7.9)."""
        ...

    def set_last_run(
        self,
        agent_id: str,
        *,
        stop_reason: str | None,
        completed_at: datetime | None,
        duration_ms: int | None,
    ) -> None:
        """Set the agent's last_stop_reason, last_run_completion and last_run_duration_ms."""
        ...

    def tags(self, agent_ids: Collection[str]) -> Mapping[str, Sequence[str]]:
        """Tags per agent, sorted; an agent without tags has no entry."""
        ...

    def set_tags(self, agent_id: str, tags: Collection[str]) -> None: ...

    def all_tags(self, organization_id: str) -> Sequence[str]:
        """Every tag on an agent or a block of the organisation, sorted, each once."""
        ...

    def tools(self, agent_ids: Collection[str]) -> Mapping[str, Sequence[Tool]]:
        """Attached tools per agent, in the order of attachment."""
        ...

    def attach_tools(self, agent_id: str, tool_ids: Sequence[str]) -> None:
        """Idempotent."""
        ...

    def detach_tools(self, agent_id: str, tool_ids: Collection[str]) -> None: ...

    def blocks(self, agent_ids: Collection[str]) -> Mapping[str, Sequence[Block]]:
        """Attached blocks per agent, in the order of attachment."""
        ...

    def attach_block(self, agent_id: str, block_id: str) -> None:
        """Idempotent. AlreadyExists if another attached block has the same label."""
        ...

    def detach_block(self, agent_id: str, block_id: str) -> bool:
        """Whether it was attached."""
        ...

    def secrets(self, agent_ids: Collection[str]) -> Mapping[str, Sequence[Secret]]: ...

    def set_secrets(self, agent_id: str, secrets: Sequence[Secret]) -> None:
        """Replace all. Values are encrypted at rest."""
        ...


class Tools(Protocol):
    def add(self, tool: Tool) -> None:
        """AlreadyExists if the organisation has a tool of that name."""
        ...

    def get(self, organization_id: str, tool_id: str) -> Tool:
        """NotFound: ``Tool with ID <id> not found``."""
        ...

    def find(self, organization_id: str, names: Collection[str]) -> Sequence[Tool]:
        """The tools of these names; unknown names are left out."""
        ...

    def save(self, tool: Tool) -> None: ...

    def delete(self, organization_id: str, tool_id: str) -> None:
        """Also detaches it from every agent."""
        ...

    def list(self, organization_id: str, query: ToolQuery) -> Sequence[Tool]: ...

    def count(self, organization_id: str, query: ToolQuery) -> int: ...


class Blocks(Protocol):
    def add(self, block: Block) -> None: ...

    def get(self, organization_id: str, block_id: str) -> Block:
        """NotFound: ``Block with ID <id> not found``."""
        ...

    def save(self, block: Block) -> None: ...

    def delete(self, organization_id: str, block_id: str) -> None: ...

    def list(self, organization_id: str, query: BlockQuery) -> Sequence[Block]:
        """An unknown cursor is ignored (wire-v1 §1.10)."""
        ...

    def count(self, organization_id: str, query: BlockQuery) -> int: ...

    def holder_ids(self, block_id: str) -> Sequence[str]:
        """Ids of the agents that hold the block, also if only one of their conversations does."""
        ...

    def thread_blocks(self, thread_ids: Collection[str]) -> Mapping[str, Sequence[Block]]:
        """The blocks that are a conversation's own, by age. They go with it."""
        ...


class Providers(Protocol):
    """Accounts with providers of models that users brought. Their keys are encrypted at rest."""

    def add(self, provider: Provider) -> None:
        """AlreadyExists if the organisation has one of that name."""
        ...

    def get(self, organization_id: str, provider_id: str) -> Provider:
        """NotFound if there is none."""
        ...

    def find_by_name(self, organization_id: str, name: str) -> Provider | None: ...

    def save(self, provider: Provider) -> None: ...

    def delete(self, organization_id: str, provider_id: str) -> None: ...

    def list(self, organization_id: str, query: ProviderQuery) -> Sequence[Provider]: ...


class Threads(Protocol):
    def add(self, thread: Thread) -> None: ...

    def get(self, organization_id: str, thread_id: str) -> Thread:
        """NotFound: ``Conversation with ID <id> not found``."""
        ...

    def save(self, thread: Thread) -> None: ...

    def record_request(self, thread_id: str, now: datetime) -> None:
        """Set ``last_message_at``. NotFound if the thread was deleted, also by a transaction that is just
        being committed: whoever has noted a request may rely on the thread until its own commit."""
        ...

    def delete(self, organization_id: str, thread_id: str, now: datetime) -> None:
        """The conversation with its runs and the messages that no fork shows any more."""
        ...

    def list(self, organization_id: str, query: ThreadQuery) -> Sequence[Thread]:
        """Conversations. Those without the value that the list is sorted by come last."""
        ...

    def list_of_agent(self, agent_id: str) -> Sequence[Thread]:
        """All threads of the agent, the default one first."""
        ...


class Messages(Protocol):
    """Rows and the contexts that show them. ``message_ids`` is computed from the context, nowhere stored."""

    def append(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Store rows at the end of their thread and of its context; returns them with their positions."""
        ...

    def rewrite(self, message: Message) -> None:
        """Replace the content of a stored row in place (the compiled system message alone)."""
        ...

    def get(self, organization_id: str, message_id: str) -> Message:
        """NotFound: ``Message with ID <id> not found``."""
        ...

    def context(self, thread_id: str) -> Sequence[Message]:
        """The rows that the model is shown, in order, the system message first."""
        ...

    def context_ids(self, thread_ids: Collection[str]) -> Mapping[str, Sequence[str]]:
        """The ids of each thread's context, in order."""
        ...

    def set_context(self, thread_id: str, message_ids: Sequence[str]) -> None:
        """Show just these rows from now on, in this order. Rows stay in the history."""
        ...

    def replace_in_context(self, message: Message, message_ids: Sequence[str]) -> Message:
        """Store a row that is shown in the place of these, which are neighbours in its thread's context. They stay in
        the history. What others add or hide meanwhile stays so: of these rows those leave that are still shown,
        and if none is, the new row is not shown either."""
        ...

    def hide(self, thread_id: str, message_ids: Sequence[str]) -> None:
        """Show these rows no more. They stay in the history; what else others do to the context stays done."""
        ...

    def share(self, source_id: str, thread_id: str, message_ids: Sequence[str]) -> None:
        """Make rows that the source shows part of this thread's history too, for as long as it lives."""
        ...

    def list(
        self,
        organization_id: str,
        page: Page,
        *,
        agent_id: str | None = None,
        thread_id: str | None = None,
        run_id: str | None = None,
        step_id: str | None = None,
    ) -> Sequence[Message]:
        """Rows by position; of a thread also those that it shares. ``page.order`` is the sort order; ``after`` means newer rows and ``before``
        older ones, whatever the order (the newest of them first when descending)."""
        ...

    def list_approval_messages(self, step_ids: Collection[str]) -> Sequence[Message]:
        """The rows with the decisions on what these steps asked for, by position; the rows that ask are among them."""
        ...

    def count(self, agent_id: str, thread_id: str | None = None) -> int: ...

    def search(
        self,
        agent_id: str,
        text: str,
        *,
        roles: Collection[str],
        limit: int,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> Sequence[Message]:
        """Newest rows of the agent that contain the text, ignoring case, and were stored in that time."""
        ...


class Calls(Protocol):
    """Tool calls whose result row is not written yet: the write-ahead of every tool."""

    def list_open(self, thread_id: str) -> Sequence[OpenCall]:
        """In the order of the answer."""
        ...

    def put(self, thread_id: str, calls: Sequence[OpenCall]) -> None:
        """Insert calls, or replace their state, result and deadline."""
        ...

    def close(self, thread_id: str) -> None:
        """Every open call of the thread now has its result row."""
        ...

    def list_requests(self, organization_id: str, query: ApprovalQuery) -> Sequence[Message]:
        """The rows that ask for a person, of all threads whose run is paused, by age or by ``expires_at``: the first
        deadline among the calls; those without one come last."""
        ...

    def count_requests(self, organization_id: str, query: ApprovalQuery) -> int:
        """How many there are on all pages."""
        ...

    def deadlines(self, thread_ids: Collection[str]) -> Mapping[str, Mapping[str, Deadline]]:
        """By thread and call: until when they wait. What waits for ever has no entry."""
        ...

    def list_overdue(self, now: datetime) -> Sequence[OverdueRequest]:
        """Requests of all organisations that wait for a person and have calls whose deadline has come,
        the longest overdue first."""
        ...

    def next_deadline(self, now: datetime) -> datetime | None:
        """The first deadline of any request that is still to come."""
        ...


class Runs(Protocol):
    def add(self, run: Run) -> None:
        """Its ``input`` and ``request`` are written here once and never change."""
        ...

    def get(self, organization_id: str, run_id: str) -> Run:
        """NotFound: ``Run with ID <id> not found``."""
        ...

    def find(self, run_id: str) -> Run | None: ...

    def get_for_update(self, organization_id: str, run_id: str) -> Run:
        """Like ``get``; and nobody else changes the run before this transaction is over. For those who change
        a run that they do not carry: what its worker has written meanwhile must not be put back."""
        ...

    def transition(self, run: Run, signal: Signal) -> Run:
        """Advance the status by the lifecycle table as compare-and-set and write the run's other fields as
        they are given. ``run.status`` is the status that the caller saw: RunMoved if it is no longer that.
        A second run that claims a held thread cannot be written: RunMoved.
        A run that has a ``callback_url`` and is live no more has a callback due from then on."""
        ...

    def save(self, run: Run) -> None:
        """Write progress, usage and the like; the status must be what it was: else RunMoved."""
        ...

    def record_tools(self, run_id: str, tool_ids: Sequence[str]) -> None:
        """The run called these for the first time: it is found by them from now on."""
        ...

    def add_metadata(self, organization_id: str, run_id: str, metadata: Mapping[str, Any]) -> Run:
        """Add the keys to the run's metadata, or replace them. Nothing else writes it, so this is allowed while
        a worker carries the run."""
        ...

    def delete(self, organization_id: str, run_id: str) -> None:
        """Delete the run with its steps and events; its message rows stay."""
        ...

    def reserve_seq(self, run_id: str, seq: int) -> None:
        """Raise the run's ``reserved_seq``; nothing else of the run changes."""
        ...

    def delete_if_queued(self, run_id: str) -> bool:
        """Delete a run that is still queued, as if it had never been sent. Whether it was."""
        ...

    def list(self, organization_id: str, query: RunQuery) -> Sequence[Run]: ...

    def list_live(self) -> Sequence[Run]:
        """Runs of all organisations that are queued, running or cancelling, oldest first."""
        ...

    def cancelling_ids(self) -> Sequence[str]:
        """Ids of the runs whose cancel is on record and that have not ended."""
        ...

    def find_paused(self, thread_id: str) -> Run | None:
        """The run whose held calls the thread waits for."""
        ...

    def paused_run_ids(self, thread_ids: Collection[str]) -> Mapping[str, str]:
        """By thread the id of the run whose held calls it waits for; a thread that waits for none has no entry."""
        ...

    def find_by_request_key(self, thread_id: str, request_key: str) -> Run | None:
        """The run that this very request has started. A second one with the same key cannot be added."""
        ...

    def find_by_otid(self, thread_id: str, otid: str) -> Run | None:
        """The newest run of the thread whose input has this otid."""
        ...


class Callbacks(Protocol):
    """Ends of runs that somebody wants to be told of, one for each run at most: see ``Runs.change``."""

    def list_due(
        self, now: datetime, *, limit: int, per_host: int, in_flight: Mapping[str, int]
    ) -> Sequence[DueCallback]:
        """Up to ``limit`` that are due, the longest due first; of each host so many that with those that are
        ``under_way`` there are no more than ``per_host``. All that is due for a host with enough is passed over on
        the way: better while nobody else has to wait."""
        ...

    def claim(self, due: Sequence[DueCallback], until: datetime) -> Sequence[ClaimedCallback]:
        """Take of these what is still as it was seen. What one process has taken no other takes before ``until``."""
        ...

    def record_outcome(
        self, claimed: ClaimedCallback, outcome: CallbackOutcome, due_at: datetime | None
    ) -> None:
        """Note what came of a try, and when the next is due, if one is. Nothing happens if somebody else has
        taken it meanwhile, or the run is gone."""
        ...

    def release(self, claimed: ClaimedCallback, due_at: datetime) -> None:
        """It could not be tried to the end; it is due again, and nothing is known of it."""
        ...

    def next_due_at(self, after: datetime) -> datetime | None:
        """When the first after this moment is due."""
        ...


class Steps(Protocol):
    def add(self, step: Step) -> None: ...

    def save(self, step: Step) -> None:
        """All of it but ``feedback``, ``tags`` and ``transaction_id``: callers may set them while it is taken."""
        ...

    def set_feedback(
        self,
        organization_id: str,
        step_id: str,
        feedback: str | None,
        tags: tuple[str, ...] | None,
    ) -> Step:
        """Set what people think of the step, and nothing else of it; tags of None stay as they are. NotFound as by
        ``get``."""
        ...

    def set_transaction_id(self, organization_id: str, step_id: str, transaction_id: str) -> Step:
        """Set the step's ``transaction_id``, and nothing else of it. NotFound as by ``get``."""
        ...

    def get(self, organization_id: str, step_id: str) -> Step:
        """NotFound: ``Step with ID <id> not found``."""
        ...

    def list(self, organization_id: str, query: StepQuery) -> Sequence[Step]: ...

    def list_pending(self, run_id: str) -> Sequence[Step]: ...

    def sum_costs(self, organization_id: str, query: StepQuery) -> Costs:
        """What all steps that the query means cost, on whatever page they are."""
        ...


class Traces(Protocol):
    def add(self, traces: Sequence[ProviderTrace]) -> None: ...

    def list_of_step(self, organization_id: str, step_id: str) -> Sequence[ProviderTrace]:
        """In the order in which the provider was called. They go with the step."""
        ...


class Events(Protocol):
    def append(self, events: Sequence[Event]) -> None: ...

    def list_after(self, run_id: str, seq: int, limit: int) -> Sequence[Event]:
        """Durable events with a higher number, in order."""
        ...


class Transaction(Protocol):
    @property
    def agents(self) -> Agents: ...
    @property
    def tools(self) -> Tools: ...
    @property
    def blocks(self) -> Blocks: ...
    @property
    def providers(self) -> Providers: ...
    @property
    def threads(self) -> Threads: ...
    @property
    def messages(self) -> Messages: ...
    @property
    def calls(self) -> Calls: ...
    @property
    def runs(self) -> Runs: ...
    @property
    def callbacks(self) -> Callbacks: ...
    @property
    def steps(self) -> Steps: ...
    @property
    def traces(self) -> Traces: ...
    @property
    def events(self) -> Events: ...


class Store(Protocol):
    async def write(self, work: Callable[[Transaction], T]) -> T:
        """Run ``work`` in one read-write transaction: all of it is committed when it returns, nothing if it
        raises. It runs on a thread of the store's own and must neither await nor keep the transaction.
        When transactions collide it is run again, so it must have no other effects; an error of the store
        ends the transaction, so ``work`` lets it pass (RunMoved and NotFound excepted).
        Cancelling the caller does not undo it. StoreUnavailable if the database cannot be reached."""
        ...

    async def read(self, work: Callable[[Transaction], T]) -> T:
        """Run ``work`` on one consistent snapshot; nothing can be written."""
        ...

    async def close(self) -> None: ...
