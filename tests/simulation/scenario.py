"""A few minutes of a server, derived from a seed: what clients do, what fails, and when."""

import asyncio
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from tests.simulation import loop
from tests.simulation.bus import Bus
from tests.simulation.chance import Chance
from tests.simulation.clock import LoopClock, SeededIds
from tests.simulation.disk import Disk
from tests.simulation.error_logs import capture_errors
from tests.simulation.ledger import Ledger, Violation
from tests.simulation.memory import MANY, REFUSED, Memory
from tests.simulation.process import ACTOR, Equipment, Process, World
from tests.simulation.provider import CLIENT_TOOL, TOOLS
from tests.support.values import make_tool

from holdfast.core import tool_rules
from holdfast.core.agents import Agent
from holdfast.core.cancellation import Action
from holdfast.core.deadlines import OnTimeout
from holdfast.core.ids import UUID4, Kind
from holdfast.core.lifecycle import LIVE
from holdfast.core.messages import Decision, Message, OpenCall, Outcome, Role, Text, ToolReturn
from holdfast.core.models import ModelChoice, ModelSettings
from holdfast.core.runs import ClientTool, RunRequest, StopReason
from holdfast.core.threads import Thread
from holdfast.core.tools import Tool
from holdfast.engine.approval_expiry import POLL_SECONDS
from holdfast.errors import BackendError, CallerError
from holdfast.ports.store import Transaction
from holdfast.usecases.approval_answers import AnswerOptions
from holdfast.usecases.messages import ApprovalInput, Input, MessageInput, NewSend

# In the time of the loop: much longer than the slowest tool.
PATIENCE_SECONDS = 300
# How long a call that does not wait for ever waits at most.
LONGEST_PATIENCE_SECONDS = 5.0
_MODEL = "holdfast/guide"


class ViolationFound(AssertionError):
    """The violation that a seed has found, with the trace of its scenario."""


def play(seed: int, disk: Disk, kind: "type[Scenario] | None" = None) -> None:
    """Run the scenario of this seed; ViolationFound if an invariant was broken."""
    disk.wipe()
    scenario = (kind or Scenario)(seed, disk)
    try:
        loop.run(scenario.play())
    except (Violation, loop.Stuck) as error:
        scenario.note(f"{type(error).__name__} {error}")
    if scenario.ledger.violations or "Stuck" in scenario.trace[-1]:
        story = re.sub(UUID4, lambda found: found.group()[:4], "\n".join(scenario.trace))
        raise ViolationFound(
            f"{scenario.kind} {seed}; again with: make simulate SEED={seed}\n{story}"
        )


def _is_abandoned_request(task: object, error: BaseException) -> bool:
    """Whether a request was refused, or met an outage, whose client has gone."""
    if not isinstance(task, asyncio.Task) or not isinstance(error, CallerError | BackendError):
        return False
    module = getattr(task.get_coro(), "cr_code", None)
    return module is not None and "/usecases/" in module.co_filename


class Scenario:
    kind = "seed"
    # How long nobody may do the periodic work.
    leaderless_seconds = 0.0

    def __init__(self, seed: int, disk: Disk, chance: Chance | None = None) -> None:
        self._disk = disk
        self._chance = chance or Chance(seed)
        self._random = self._chance.random
        self._clock = LoopClock()
        self._ids = SeededIds(seed)
        self._threads: dict[str, Agent] = {}
        self.trace: list[str] = []
        self.ledger = Ledger(self._threads, self.note)
        self._memory = Memory(disk, self.ledger)
        self._world = World(
            disk=disk,
            chance=self._chance,
            ledger=self.ledger,
            ids=self._ids,
            bus=Bus(self._chance, loss=0.0),
            memory=self._memory,
        )

    def note(self, text: str) -> None:
        try:
            now = asyncio.get_running_loop().time()
        except RuntimeError:
            now = float("inf")
        self.trace.append(f"{now:9.4f}  {text}")

    async def play(self) -> None:
        asyncio.get_running_loop().set_exception_handler(self._on_task_error)
        with capture_errors(self.ledger):
            await self._play()

    def _on_task_error(self, _: object, context: dict[str, Any]) -> None:
        """The error of a task that was never awaited: nobody hears of it, so it is a finding whatever it is."""
        error = context.get("exception")
        if error is None or _is_abandoned_request(context.get("future"), error):
            return
        with suppress(Violation):
            self.ledger.expect(None, "{}: {!r}", context.get("message"), error)

    async def _play(self) -> None:
        self._create_agents()
        self._memory.create()
        await self._start()
        try:
            for _ in range(self._random.randint(3, 16 if self._chance.breaks_runs else 8)):
                await self._act()
                self._remember()
                await self._wait()
            await self._settle()
        finally:
            await self._end_all()

    async def _end_all(self) -> None:
        await self._process.crash()

    @property
    def _process(self) -> Process:
        """The process that gets the next request."""
        return self._only

    async def _start(self) -> None:
        self.note("START")
        self._only = Process(self._world, Equipment())
        await self._only.start()

    # -- what happens ------------------------------------------------------------------------

    async def _act(self) -> None:
        if self.ledger.live() and self._random.random() < 0.12:
            await self._restart()
        elif self._chance.has_outages and self._random.random() < 0.2:
            self.note(f"ACT {self._chance.begin_outage()}")
        else:
            self._ask()

    def _ask(self) -> None:
        """A client sends a request to the process."""
        kind = self._random.random()
        held = [thread for thread, calls in self.ledger.held.items() if calls]
        if held and kind < (0.5 if self._chance.prefers_held_tools else 0.35):
            self._answer(self._random.choice(held))
        elif kind < (0.2 if self._chance.prefers_tools else 0.65) and self.ledger.runs:
            self._cancel()
        elif kind < (0.3 if self._chance.prefers_tools else 0.7) and self._list_waiting():
            self._hang_up()
        elif kind < (0.35 if self._chance.prefers_tools else 0.78):
            self._compact()
        else:
            self._send(self._random.choice(list(self._threads)))

    def _remember(self) -> None:
        """In some scenarios a client also stores passages: one, or many at once."""
        if not self._chance.has_memory or self._random.random() < 0.5:
            return
        count = self._random.choice([1, 1, 2, MANY])
        texts = [f"Fact {self._random.randrange(100)}." for _ in range(count)]
        if self._random.random() < 0.2:
            texts[self._random.randrange(count)] = REFUSED
        self.note(f"ACT insert {count} passages")
        self._process.insert(texts)

    def _compact(self) -> None:
        # The one that has most to tell: of too little there is no summary.
        thread_id = max(self._threads, key=lambda it: len(self.ledger.shown_rows.get(it, ())))
        self.note(f"ACT compact {thread_id}")
        self._process.compact(thread_id)

    def _hang_up(self) -> None:
        self._process.hang_up(self._random)

    async def _wait(self) -> None:
        """Wait for a random time before the next action."""
        kind = self._random.random()
        in_haste = 0.4 if self._chance.prefers_held_tools or self._chance.prefers_tools else 0.8
        if kind < in_haste:
            for _ in range(self._random.randrange(6 if kind < 0.4 else 50)):
                await asyncio.sleep(0)
        else:
            await asyncio.sleep(self._random.uniform(0.01, 3))
        self._check()

    def _check(self) -> None:
        self._raise_violation()
        self._process.check()

    def _raise_violation(self) -> None:
        if self.ledger.violations:
            raise Violation(self.ledger.violations[0])

    def _send(self, thread_id: str) -> None:
        said = MessageInput(role=Role.USER, content=(Text("Hi"),))
        self.note(f"ACT send to {thread_id}")
        self._process.send(self._make_send(thread_id, said), self._choose_reader())

    def _answer(self, thread_id: str) -> None:
        """Answer all open calls, some of them, or repeat an earlier answer."""
        calls = list(self.ledger.held[thread_id])
        partial = self._chance.happens(0.5)
        if partial:
            calls += self.ledger.answered[thread_id]
            calls = self._random.sample(calls, self._random.randint(1, len(calls)))
        decisions = tuple(self._decision(item) for item in calls)
        items: list[Input] = [
            ApprovalInput(decisions=decisions, options=AnswerOptions(partial=partial))
        ]
        if self._chance.happens(0.2):
            items.append(MessageInput(role=Role.USER, content=(Text("and"),)))
        told = [(d.call_id, d.approve) for d in decisions]
        self.note(f"ACT answer on {thread_id}: {told}{' in part' * partial}")
        self._process.send(self._make_send(thread_id, *items), self._choose_reader())

    def _decision(self, item: OpenCall) -> Decision:
        call = item.call
        if self._chance.happens(0.1):
            given = ToolReturn(call.id, call.name, Outcome.FINISHED, (Text("by the client"),))
            return Decision(call.id, approve=False, returned=given)
        approve = self._random.random() < 0.7
        edited: dict[str, Any] | None = {} if approve and self._chance.happens(0.1) else None
        return Decision(call.id, approve=approve, reason="because", arguments=edited)

    def _make_send(self, thread_id: str, *items: Input) -> NewSend:
        request = RunRequest(
            stream_tokens=self._random.random() < 0.5,
            max_steps=self._random.randint(2, 6),
            client_tools=(ClientTool(CLIENT_TOOL),) if self._chance.happens(0.2) else (),
            approval_timeout_seconds=self._random_timeout(0.2),
            approval_on_timeout=self._random.choice([None, OnTimeout.DENY, OnTimeout.APPROVE]),
        )
        agent = self._threads[thread_id]
        return NewSend(agent_id=agent.id, thread_id=thread_id, input=items, request=request)

    def _random_timeout(self, probability: float) -> float | None:
        """A time limit in virtual time, short enough to pass before the scenario ends."""
        longest = LONGEST_PATIENCE_SECONDS
        return self._random.uniform(0.05, longest) if self._random.random() < probability else None

    def _choose_reader(self) -> str:
        return self._random.choice(["wait", "follow", "go"])

    def _cancel(self) -> None:
        runs = list(self.ledger.runs.values())
        # Also what the inbox names: the run that asked, when another waits in its place.
        asked = {item.message_id for calls in self.ledger.held.values() for item in calls}
        open_ones = [run for run in runs if run.status in LIVE or run.approval_id in asked]
        # Most are still there to be cancelled.
        run = self._random.choice(open_ones if open_ones and self._random.random() < 0.9 else runs)
        action = Action.ROLLBACK if self._random.random() < 0.3 else Action.KEEP
        self.note(f"ACT cancel {run.id} ({run.status}), {action}")
        self._process.cancel(run.id, action)

    async def _restart(self) -> None:
        if self._random.random() < 0.7:
            self.note("ACT crash")
            await self._process.crash()
        else:
            self.note("ACT stop")
            stopping = asyncio.create_task(self._process.stop())
            if self._random.random() < 0.5:
                await self._wait()
                self._ask()
            await stopping
        await self._start()

    # -- how it ends -------------------------------------------------------------------------

    async def _settle(self) -> None:
        """Without further faults every run must end and every thread must answer."""
        self.note("CALM")
        self._chance.is_calm = True
        if self._random.random() < 0.5:
            await self._drain()
        await self._restart()
        await self._drain()
        if self._random.random() < 0.5:
            await self._let_time_pass()
        for thread_id in self._threads:
            while self.ledger.held[thread_id]:
                self._answer(thread_id)
                await self._drain()
            await self._check_thread_answers(thread_id)
        await self._read_all_logs()
        await self._memory.settle()
        await self._finish()

    async def _finish(self) -> None:
        await self._process.stop()

    async def _drain(self) -> None:
        """Wait until no run is live and no client waits."""
        deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
        while self.ledger.live() or self._list_waiting():
            self._check()
            in_time = asyncio.get_running_loop().time() < deadline
            waiting = self._list_waiting()
            self.ledger.expect(in_time, f"live: {self.ledger.live()}, waiting: {waiting}")
            await asyncio.sleep(0.5)
        self._check()

    def _list_waiting(self) -> list[str]:
        """The clients that have no answer yet."""
        return [client.get_name() for client in self._process.clients]

    async def _let_time_pass(self) -> None:
        """Let all deadlines pass: in the end only calls without a deadline wait."""
        if not self._list_timed():
            return
        await asyncio.sleep(LONGEST_PATIENCE_SECONDS + POLL_SECONDS + self.leaderless_seconds)
        await self._drain()
        left = self._list_timed()
        self.ledger.expect(not left, "{} have not expired", left)

    def _list_timed(self) -> list[OpenCall]:
        return [item for calls in self.ledger.held.values() for item in calls if item.deadline]

    async def _check_thread_answers(self, thread_id: str) -> None:
        before = set(self.ledger.runs)
        self._send(thread_id)
        await self._drain()
        new = [run for key, run in self.ledger.runs.items() if key not in before]
        new = [run for run in new if run.thread_id == thread_id]
        self.ledger.expect(len(new) == 1, f"{len(new)} runs of one message to {thread_id}")
        (run,) = new
        answered = run.stop_reason is StopReason.END_TURN
        self.ledger.expect(
            answered, f"{thread_id} does not answer: {run.stop_reason} {run.failure}"
        )
        context = self._disk.read(lambda tx: tx.messages.context(thread_id))
        asked = {row.id for row in run.input} <= {row.id for row in context}
        self.ledger.expect(
            asked and context[-1].run_id == run.id, f"{run.id} is not in its history"
        )

    async def _read_all_logs(self) -> None:
        gone = self.ledger.acknowledged - self.ledger.runs.keys()
        self.ledger.expect(not gone, f"{gone} were accepted and are gone")
        for run in self.ledger.runs.values():
            process = self._process
            await process.host.create_task(process.follow(run))
            log = self.ledger.logs[run.id]
            ends = [fact for fact in log.durable.values() if type(fact).__name__ == "RunEnded"]
            self.ledger.expect(len(ends) == 1, f"{run.id} has {len(ends)} ends")
            if not self.ledger.count_resumed(run.id) and run.id not in self.ledger.broken_runs:
                lost = sorted(log.shown.keys() - log.durable.keys())
                self.ledger.expect(not lost, f"{run.id}: {lost} were shown and are not stored")

    # -- the set -----------------------------------------------------------------------------

    def _create_agents(self) -> None:
        tools = [make_tool(name, self._ids, self._clock) for name in TOOLS]

        def store(tx: Transaction) -> None:
            for tool in tools:
                tx.tools.add(tool)
            for _ in range(self._random.randint(1, 2)):
                self._add_agent(tx, tools)

        self._disk.write(store)
        self._disk.read(self.ledger.check_commit)

    def _add_agent(self, tx: Transaction, tools: Sequence[Tool]) -> None:
        now = self._clock.now()
        settings = ModelSettings(parallel_tool_calls=self._random.random() < 0.7)
        agent = Agent(
            id=self._ids.new_id(Kind.AGENT),
            organization_id=ACTOR.organization_id,
            name="tester",
            system="You are a test.",
            model=ModelChoice(handle=_MODEL, context_window=128_000, settings=settings),
            created_at=now,
            updated_at=now,
            tool_rules=tuple(self._rule(name) for name in TOOLS if "held" in name),
            message_buffer_autoclear=self._random.random() < 0.15,
            compaction_settings={"mode": self._random.choice(["all", "sliding_window"])},
        )
        tx.agents.add(agent)
        tx.agents.attach_tools(agent.id, [tool.id for tool in tools])
        self._add_thread(tx, agent, agent.id)
        if self._random.random() < 0.4:
            self._add_thread(tx, agent, self._ids.new_id(Kind.CONVERSATION))

    def _rule(self, name: str) -> tool_rules.RequiresApproval:
        outcome = self._random.choice([OnTimeout.DENY, OnTimeout.APPROVE])
        seconds = self._random_timeout(0.5)
        if seconds is None:
            return tool_rules.RequiresApproval(tool_name=name)
        return tool_rules.RequiresApproval(
            tool_name=name, approval_timeout_seconds=seconds, approval_on_timeout=outcome
        )

    def _add_thread(self, tx: Transaction, agent: Agent, thread_id: str) -> None:
        now = self._clock.now()
        thread = Thread(
            id=thread_id,
            organization_id=agent.organization_id,
            agent_id=agent.id,
            created_at=now,
            updated_at=now,
        )
        tx.threads.add(thread)
        system = Message(
            id=self._ids.new_id(Kind.MESSAGE),
            agent_id=agent.id,
            thread_id=thread_id,
            role=Role.SYSTEM,
            created_at=now,
            content=(Text(agent.system),),
        )
        tx.messages.append([system])
        self._threads[thread_id] = agent
