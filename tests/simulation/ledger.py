"""What clients have seen so far, and the invariants that hold after every commit."""

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field

from tests.simulation.disk import load_runs
from tests.simulation.hosts import CLAIM, Host
from tests.simulation.ownership import check_outside_change
from tests.simulation.streamed import assert_streamed_is_stored

from holdfast.core.approvals import held_request_id
from holdfast.core.cancellation import Action
from holdfast.core.deadlines import Deadline
from holdfast.core.events import Event, Fact, MessageStored, RunEnded
from holdfast.core.expiry import first_deadline, is_expiry
from holdfast.core.ids import DEFAULT_ORGANIZATION_ID
from holdfast.core.lifecycle import FINAL, HOLDING, LIVE, TRANSITIONS
from holdfast.core.messages import (
    CallState,
    Decision,
    Message,
    OpenCall,
    Outcome,
    Role,
    decisions_by_call,
)
from holdfast.core.open_calls import owns_calls
from holdfast.core.paging import Order, Page
from holdfast.core.runs import Run, RunQuery, RunStatus, StopReason
from holdfast.core.servers import Claim
from holdfast.core.steps import StepQuery, StepStatus
from holdfast.ports.store import Transaction

_ALL_ROWS = Page(limit=1_000, order=Order.ASC)
_NEXT = {
    status: {after for (before, _), after in TRANSITIONS.items() if before is status}
    for status in RunStatus
}


class Violation(BaseException):
    """An invariant was broken. Not an Exception, so that no handler in the code under test catches it."""


@dataclass
class Log:
    """The events of one run: as they were published, and as the store has them."""

    shown: dict[int, Fact] = field(default_factory=dict)
    durable: dict[int, Fact] = field(default_factory=dict)
    # Those that a server has shown to its own readers after another one took the run over.
    stale: dict[int, Fact] = field(default_factory=dict)
    last_shown: int = 0
    # How often the run had been picked up when an event was shown, or written: a gap tells of one more.
    shown_in: dict[int, int] = field(default_factory=dict)
    durable_in: int = 0

    def find(self, seq: int) -> Fact | None:
        """The fact that somebody has seen under this number."""
        for known in (self.shown, self.durable, self.stale):
            if seq in known:
                return known[seq]
        return None


class Ledger:
    def __init__(self, threads: Collection[str], note: Callable[[str], None]) -> None:
        self._threads = threads
        self.note = note
        self.runs: dict[str, Run] = {}
        self.logs: dict[str, Log] = {}
        # By thread: the calls that wait for a person, and those beside them that do no more.
        self.held: dict[str, Sequence[OpenCall]] = {}
        self.answered: dict[str, Sequence[OpenCall]] = {}
        # By call: the answer that was accepted, and until when it could be.
        self.decided: dict[str, Decision] = {}
        self.deadlines: dict[str, Deadline | None] = {}
        # By thread: what its model was shown last. And what a summary stands for since.
        self.shown_rows: dict[str, Sequence[str]] = {}
        self.hidden: set[str] = set()
        # By call: what the toolboxes did. ``running``: the run, and the host of the tool.
        self.started: dict[str, str] = {}
        self.running: dict[str, tuple[str, Host | None]] = {}
        self.returned: dict[str, Outcome] = {}
        self.killed: set[str] = set()
        self.broken: set[str] = set()
        self.asking: set[tuple[Host | None, str]] = set()
        # Runs of which a checkpoint broke: they are given up, and what only their process knew is lost.
        self.broken_runs: set[str] = set()
        self.ended_at: dict[str, float] = {}
        # By run: how often it was resumed. The run itself counts only since its last progress.
        self.resumed: dict[str, int] = {}
        # Runs whose server has lost them before their end: what only that server knew is lost.
        self.orphaned: set[str] = set()
        # Runs whose client was told that they are stored.
        self.acknowledged: set[str] = set()
        # By run: its place among all runs, in the order in which they were stored.
        self._places: dict[str, int] = {}
        self.violations: list[str] = []

    # -- what is seen outside the store ------------------------------------------------------

    def expect(self, holds: object, what: str, *values: object) -> None:
        """``values`` are formatted into ``what`` only on failure, because large ones take long."""
        if not holds:
            what = what.format(*values) if values else what
            self.violations.append(what)
            self.note(f"VIOLATION {what}")
            raise Violation(what)

    def show(self, events: Sequence[Event]) -> None:
        """Record events that the readers of one process get."""
        claim = CLAIM.get()
        for event in events:
            log = self.logs.setdefault(event.run_id, Log())
            known = log.find(event.seq)
            self.expect(
                known is None or is_same_fact(known, event.fact),
                "number {0.seq} of {0.run_id} was {1}, is {0.fact}",
                event,
                known,
            )
            if self._is_stale(claim):
                log.stale[event.seq] = event.fact
            elif event.seq not in log.shown:
                self._show_next(log, event)

    def _show_next(self, log: Log, event: Event) -> None:
        picked_up = self.count_resumed(event.run_id)
        follows = event.seq == log.last_shown + 1
        again = log.shown_in.get(log.last_shown, 0) != picked_up or event.run_id in self.broken_runs
        self.expect(follows or again, f"{event.run_id}: {event.seq} after {log.last_shown}")
        log.shown[event.seq] = event.fact
        log.shown_in[event.seq] = picked_up
        log.last_shown = event.seq

    def _is_stale(self, claim: Claim | None) -> bool:
        """Whether the run of this claim was taken from its server."""
        run = self.runs.get(claim.run_id) if claim else None
        return run is not None and claim is not None and run.fence != claim.fence

    def tool_begins(self, host: Host | None, call_id: str, name: str, run_id: str | None) -> None:
        self.expect(call_id not in self.started, f"{call_id} was started twice")
        run, claim = self.runs.get(run_id or ""), CLAIM.get()
        self.expect(claim is not None and host is not None, f"{call_id} was started by nobody")
        self.expect(
            not self._is_stale(claim), f"{call_id} was started, but {run_id} was taken over"
        )
        self.expect(run is not None and run.status in HOLDING, f"{call_id} started without a run")
        decision = self.decided.get(call_id)
        self.expect(
            decision.approve if decision else not name.startswith("held"),
            f"{call_id} was started and nobody approved it",
        )
        self.started[call_id] = run_id or ""
        self.running[call_id] = (run_id or "", host)

    def tool_returns(self, call_id: str, outcome: Outcome) -> None:
        self.returned[call_id] = outcome
        self.running.pop(call_id, None)

    def tool_dies(self, call_id: str) -> None:
        self.killed.add(call_id)
        self.running.pop(call_id, None)

    def tool_breaks(self, call_id: str) -> None:
        self.broken.add(call_id)
        self.running.pop(call_id, None)

    def record_question(
        self, host: Host | None, thread_id: str, history: Sequence[Message]
    ) -> None:
        self.expect(history[0].role is Role.SYSTEM, "a history begins without its system message")
        self.expect(
            not self._find_unanswered_calls(history), f"a question on {thread_id} with open calls"
        )
        is_asked = (host, thread_id) in self.asking
        self.expect(not is_asked, f"two questions at once on {thread_id}")
        self.asking.add((host, thread_id))

    def process_ended(self, host: Host) -> None:
        owner = host.server_id
        self.orphaned |= {run_id for run_id in self.live() if self.runs[run_id].owner_id == owner}
        for call_id in self.running_on(host):
            self.tool_dies(call_id)
        self.asking -= {key for key in self.asking if key[0] is host}

    def running_on(self, host: Host) -> list[str]:
        return [call_id for call_id, (_, owner) in self.running.items() if owner is host]

    def list_begun(self, host: Host) -> list[str]:
        """The runs that this server has begun and not given back."""
        begun = [run for run in self.runs.values() if run.status in LIVE - {RunStatus.QUEUED}]
        return [run.id for run in begun if _is_owner(run, [host])]

    def live(self) -> list[str]:
        return [run.id for run in self.runs.values() if run.status in LIVE]

    # -- what is in the store ----------------------------------------------------------------

    def check_commit(
        self, tx: Transaction, host: Host | None = None, claim: Claim | None = None
    ) -> None:
        """Check the invariants after a commit of this host, for the run of this claim if it is one's."""
        self.expect(not self._is_stale(claim), "{} wrote, but its run was taken over", claim)
        runs = {run.id: run for run in load_runs(tx)}
        for run_id, gone in list(self.runs.items()):
            if run_id not in runs:
                self.expect(gone.status is RunStatus.QUEUED, f"{run_id} is gone: {gone.status}")
                del self.runs[run_id]
        changed = [run for run in runs.values() if self.runs.get(run.id) != run]
        for run in changed:
            if (before := self.runs.get(run.id)) is not None:
                is_own = claim is not None or (
                    host is not None and before.owner_id == host.server_id
                )
                check_outside_change(self, before, run, is_own=is_own)
            self._check_change(tx, before, run)
        holding = [run.thread_id for run in runs.values() if run.status in HOLDING]
        self.expect(len(holding) == len(set(holding)), "two runs hold one thread")
        # A commit that changes no run may have changed any thread.
        for thread_id in {run.thread_id for run in changed} or self._threads:
            self._check_thread(tx, thread_id)

    def _check_change(self, tx: Transaction, before: Run | None, after: Run) -> None:
        was = before.status if before else RunStatus.QUEUED
        if before is None:
            self._places[after.id] = len(self._places)
            for decision in (item for row in after.input for item in row.decisions):
                self._check_decision(after, decision)
        self.expect(was not in FINAL, f"{after.id} has ended {was} and changed")
        self.expect(
            after.status in _reachable_statuses(was), f"{after.id}: {was} became {after.status}"
        )
        if was is not after.status:
            self.note(f"{after.id}: {was} → {after.status} {after.stop_reason or ''}")
        self._check_owner(before, after)
        if after.progress.recoveries > (before.progress.recoveries if before else 0):
            self.resumed[after.id] = self.count_resumed(after.id) + 1
        self.runs[after.id] = after
        self._read_log(tx, after)
        if after.status in LIVE:
            return
        self.expect(
            not tx.steps.list_pending(after.id), f"{after.id} has ended with a pending step"
        )
        rows = tx.messages.list(DEFAULT_ORGANIZATION_ID, _ALL_ROWS, run_id=after.id)
        self._check_ended(after, rows)
        if was in LIVE:
            self.ended_at[after.id] = asyncio.get_running_loop().time()
            query = StepQuery(page=_ALL_ROWS, run_id=after.id)
            steps = tx.steps.list(DEFAULT_ORGANIZATION_ID, query)
            self.expect(len(steps) == after.num_steps, f"{after.id} miscounts its steps")
            self._check_found_by_tools(tx, after)
            cut_short = {step.id for step in steps if step.status is StepStatus.CANCELLED}
            self._check_end(after, rows, cut_short)
        if after.status is RunStatus.CANCELLED:
            self._check_cancelled(after, rows, tx.messages.context(after.thread_id))

    def _check_owner(self, before: Run | None, after: Run) -> None:
        if before is None:
            return
        if before.status is RunStatus.QUEUED and after.status is RunStatus.RUNNING:
            self._check_order(after)
        if before.owner_id not in (None, after.owner_id) and after.status in LIVE:
            self.note(f"{after.id} is taken from {before.owner_id}")
            self.orphaned.add(after.id)
        elif after.owner_id is not None and after.owner_id != before.owner_id:
            self.note(f"{after.id} is claimed by {after.owner_id}")

    def _check_order(self, run: Run) -> None:
        """Runs of a thread begin in the order in which they were stored."""
        place = self._places[run.id]
        passed = [
            other.id
            for other in self.runs.values()
            if other.thread_id == run.thread_id
            and other.status is RunStatus.QUEUED
            and self._places[other.id] < place
        ]
        self.expect(not passed, f"{run.id} begins before {passed}")

    def _check_decision(self, run: Run, new: Decision) -> None:
        """The first decision on a call counts. A person may repeat it, an expiry may not."""
        old = self.decided.setdefault(new.call_id, new)
        same_again = (old.approve, old.returned, old.arguments) == (
            new.approve,
            new.returned,
            new.arguments,
        )
        nobody = is_expiry(old) or is_expiry(new)
        self.expect(
            old is new or (same_again and not nobody),
            "{} was decided twice: {}, {}",
            run.id,
            old,
            new,
        )
        deadline = self.deadlines.get(new.call_id)
        if is_expiry(new):
            in_time = deadline is not None and run.created_at >= deadline.at
            self.expect(in_time, "{} expired too early: {}", new, deadline)
        self.note(f"{new.call_id} is decided by {new.decided_by or 'a person'}: {new.approve}")

    def _check_found_by_tools(self, tx: Transaction, run: Run) -> None:
        for tool_id in run.tools_used:
            query = RunQuery(page=_ALL_ROWS, run_id=run.id, tools_used=(tool_id,))
            found = tx.runs.list(DEFAULT_ORGANIZATION_ID, query)
            self.expect(len(found) == 1, f"{run.id} is not found by {tool_id}")

    def _read_log(self, tx: Transaction, run: Run) -> None:
        log = self.logs.setdefault(run.id, Log())
        for event in tx.events.list_after(run.id, max(log.durable, default=0), 100_000):
            last = max(log.durable, default=0)
            known = log.find(event.seq)
            self.expect(
                known is None or is_same_fact(known, event.fact),
                "number {0.seq} of {0.run_id} was shown as {1}, is {0.fact}",
                event,
                known,
            )
            self.expect(
                event.seq == last + 1
                or log.durable_in != self.count_resumed(run.id)
                or run.id in self.broken_runs,
                f"{run.id}: {event.seq} is stored after {last}",
            )
            self.expect(not isinstance(log.durable.get(last), RunEnded), "after its end: {}", event)
            log.durable[event.seq] = event.fact
            log.durable_in = self.count_resumed(run.id)

    def _check_ended(self, run: Run, rows: Sequence[Message]) -> None:
        facts = self.logs[run.id].durable
        last = facts[max(facts)] if facts else None
        ended = isinstance(last, RunEnded)
        self.expect(ended, "{0.id} is {0.status} and its log says {1}", run, last)
        if not run.progress.input_stored:
            # An answer was given, even if nothing comes of it.
            inputs = {row.id for row in run.input if not row.decisions} & {row.id for row in rows}
            self.expect(not inputs, f"{run.id} produced nothing and its input is stored")
        for row in rows:
            for item in row.tool_returns:
                self._check_outcome(run, item.call_id, item.outcome)

    def _check_outcome(self, run: Run, call_id: str, outcome: Outcome) -> None:
        began = call_id in self.started
        # An outage of the store is no excuse.
        crashed = run.id in self.orphaned | self.broken_runs or call_id in self.broken
        match outcome:
            case Outcome.FINISHED | Outcome.FAILED:
                true = self._result_of(call_id) is outcome
            case Outcome.NOT_STARTED | Outcome.DENIED:
                true = not began
            case Outcome.KILLED:
                true = crashed or (call_id in self.killed and call_id not in self.returned)
            case Outcome.UNKNOWN:
                true = crashed or bool(self.broken) or self._result_of(call_id) is outcome
        self.expect(true, f"{run.id}: {call_id} is told as {outcome}, started: {began}")

    def _result_of(self, call_id: str) -> Outcome | None:
        """The outcome that the tool or the client returned."""
        given = self.decided[call_id].returned if call_id in self.decided else None
        return given.outcome if given else self.returned.get(call_id)

    def _check_end(self, run: Run, rows: Sequence[Message], cut_short: Collection[str]) -> None:
        hosts = {host for host, thread_id in self.asking if thread_id == run.thread_id}
        self.expect(
            not _is_owner(run, hosts) or run.started_at is None,
            f"{run.id} has ended and the model talks",
        )
        running = [
            call_id
            for call_id, (run_id, host) in self.running.items()
            if run_id == run.id and _is_owner(run, {host})
        ]
        self.expect(not running, f"{run.id} has ended and {running} are running")
        if run.id in self.broken_runs:
            return
        log = self.logs[run.id]
        # What an earlier process has shown is kept if it was the step that the cancel has cut short.
        facts = [
            fact
            for seq, fact in sorted((log.durable | log.shown).items())
            if log.shown_in.get(seq) == self.count_resumed(run.id)
            or (seq in log.durable and getattr(fact, "step_id", None) in cut_short)
        ]
        try:
            assert_streamed_is_stored(run, facts, rows)
        except AssertionError as error:
            self.expect(None, f"{run.id}: {error}")

    def _check_cancelled(
        self, run: Run, rows: Sequence[Message], context: Sequence[Message]
    ) -> None:
        receipt = run.cancellation
        if receipt is None or run.stop_reason is not StopReason.CANCELLED:
            return self.expect(None, f"{run.id} is cancelled without a receipt")
        outcomes = {item.call_id: item.outcome for row in rows for item in row.tool_returns}
        told = {call_id: outcomes.get(call_id) for call_id in receipt.calls}
        self.expect(told == receipt.calls, f"{run.id}: receipt {receipt.calls}, rows {told}")
        own = {call.id for row in rows for call in row.tool_calls}
        shown = {row.id for row in context}
        for row in rows:
            if row.id in self.hidden:
                continue
            answers = {item.call_id for item in row.tool_returns}
            answers |= {decision.call_id for decision in row.decisions}
            stays = receipt.action is Action.KEEP or answers - own or row.role is Role.SUMMARY
            self.expect(
                (row.id in shown) == bool(stays),
                f"{run.id}: {receipt.action}, but {row.role} {row.id} in context: {row.id in shown}",
            )
        return None

    def _check_thread(self, tx: Transaction, thread_id: str) -> None:
        context = tx.messages.context(thread_id)
        ids = [row.id for row in context]
        self.expect(
            ids == list(tx.messages.context_ids([thread_id])[thread_id]),
            f"{thread_id} shows rows that are not there",
        )
        self.expect(len(ids) == len(set(ids)), f"{thread_id} shows a row twice")
        self.expect(context[0].role is Role.SYSTEM, f"{thread_id} lost its system message")
        self._check_summary(tx, thread_id, context)
        calls = tx.calls.list_open(thread_id)
        unanswered = self._find_unanswered_calls(context)
        self.expect(
            unanswered == {item.call.id for item in calls},
            "{}: unanswered {}, on record {}",
            thread_id,
            unanswered,
            calls,
        )
        held = [item for item in calls if item.state is CallState.HELD]
        owners = [r for r in self.runs.values() if r.thread_id == thread_id and owns_calls(r)]
        if calls:
            self.expect(len(owners) == 1, "{}: {} own {}", thread_id, owners, calls)
            waits = owners[0].status in (RunStatus.PAUSED, RunStatus.QUEUED)
            self.expect(waits == bool(held), "{}: {} owns {}", thread_id, owners[0], calls)
        paused = tx.runs.find_paused(thread_id)
        if paused is not None:
            told = (paused.approval_id, paused.expires_at)
            true = (held_request_id(calls), first_deadline(calls))
            self.expect(told == true, "{} waits for {}, not {}", paused.id, told, true)
        waits = paused is not None
        made = decisions_by_call(context)
        self.held[thread_id] = [i for i in held if waits and i.call.id not in made]
        self.answered[thread_id] = [i for i in held if waits and i.call.id in made]
        for item in calls:
            self._check_deadline(item)

    def _check_deadline(self, item: OpenCall) -> None:
        """A deadline does not change until the call is answered, which removes it."""
        call_id = item.call.id
        wanted = self.deadlines.setdefault(call_id, item.deadline)
        if call_id in self.decided or item.state is not CallState.HELD:
            wanted = None
        self.expect(item.deadline == wanted, "{}: {} became {}", call_id, wanted, item.deadline)

    def _check_summary(self, tx: Transaction, thread_id: str, context: Sequence[Message]) -> None:
        """A context has at most one summary, in the place of the rows that it replaces, and those are still stored."""
        before, now = self.shown_rows.get(thread_id, ()), [row.id for row in context]
        self.shown_rows[thread_id] = now
        places = [place for place, row in enumerate(context) if row.role is Role.SUMMARY]
        self.expect(places in ([], [1]), f"{thread_id} has summaries at {places}")
        if not places or now[1] in before:
            return
        gone = set(before) - set(now)
        self.expect(gone, f"{thread_id} has a summary of nothing")
        self.hidden |= gone
        page = Page(limit=1_000, order=Order.ASC)
        rows = tx.messages.list(DEFAULT_ORGANIZATION_ID, page, thread_id=thread_id)
        self.expect(gone <= {row.id for row in rows}, f"{thread_id} lost rows for good")

    def _find_unanswered_calls(self, rows: Iterable[Message]) -> set[str]:
        """The calls without a result: only those of the last answer may have none."""
        waiting: dict[str, str | None] = {}
        seen: set[str] = set()
        for row in rows:
            speaks = row.role in (Role.USER, Role.SYSTEM, Role.ASSISTANT)
            siblings = set(waiting.values()) <= {row.step_id}
            self.expect(not (speaks and waiting) or siblings, "{} have no result", waiting)
            for call in row.tool_calls:
                self.expect(call.id not in seen, f"{call.id} is called twice")
                seen.add(call.id)
                waiting[call.id] = row.step_id
            for item in row.tool_returns:
                self.expect(item.call_id in waiting, f"{item.call_id} has a result and no call")
                del waiting[item.call_id]
        return set(waiting)

    def count_resumed(self, run_id: str) -> int:
        return self.resumed.get(run_id, 0)


def is_same_fact(one: Fact, other: Fact) -> bool:
    """Compare facts without the position of rows, which only stored rows have."""
    if isinstance(one, MessageStored) and isinstance(other, MessageStored):
        return (one.message.id, one.piece) == (other.message.id, other.piece)
    return one == other


def _is_owner(run: Run, hosts: Iterable[Host | None]) -> bool:
    return any(host is not None and host.server_id == run.owner_id for host in hosts)


def _reachable_statuses(status: RunStatus) -> set[RunStatus]:
    """The statuses after one checkpoint, which may claim a run and end it at once."""
    once = _NEXT[status]
    return {status} | once | {after for between in once - FINAL for after in _NEXT[between]}
