"""A house with a real store and engine; the model and the tools are scripted at their ports."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from tests.doubles.model import ScriptedModel
from tests.doubles.prices import ScriptedPrices
from tests.doubles.toolbox import ScriptedToolbox
from tests.support.servers import make_server
from tests.support.values import make_tool

from holdfast import __version__
from holdfast.adapters.bell.local import LocalBell
from holdfast.adapters.clock import RandomIds, SystemClock
from holdfast.adapters.dispatch.queue import QueueDispatch
from holdfast.adapters.event_log.sql import SqlEventLog
from holdfast.adapters.lease.exclusive import ExclusiveLease
from holdfast.adapters.models.accounts import ProviderSettings
from holdfast.adapters.models.catalogue import ProviderCatalogue
from holdfast.adapters.outgoing.guarded import GuardedOutgoing
from holdfast.core.addresses import AllowedAddresses
from holdfast.core.agents import Actor, Agent
from holdfast.core.approvals import OverdueRequest
from holdfast.core.ids import DEFAULT_ORGANIZATION_ID, DEFAULT_USER_ID, Kind
from holdfast.core.messages import Message, Role, Text
from holdfast.core.models import ModelChoice, ModelSettings
from holdfast.core.runs import Run, RunRequest
from holdfast.core.threads import Thread
from holdfast.core.tool_rules import ToolRule
from holdfast.core.tools import Tool
from holdfast.engine.approval_expiry import ApprovalExpiry
from holdfast.engine.worker import Worker
from holdfast.ports.clock import Clock
from holdfast.ports.services import Limits, Services
from holdfast.ports.store import Store, Transaction
from holdfast.ports.telemetry import NO_TELEMETRY
from holdfast.usecases import approvals, messages
from holdfast.usecases.messages import MessageInput, NewSend, Reply

T = TypeVar("T")

ACTOR = Actor(DEFAULT_USER_ID, DEFAULT_ORGANIZATION_ID)
WAIT_SECONDS = 20


class Rig:
    """One process's worth of Holdfast over a store that outlives it."""

    def __init__(
        self, store: Store, limits: Limits | None = None, clock: Clock | None = None
    ) -> None:
        self.model = ScriptedModel()
        self.toolbox = ScriptedToolbox()
        self.prices = ScriptedPrices()
        self.expired: asyncio.Queue[Run] = asyncio.Queue()
        bell = LocalBell()
        self.lease = ExclusiveLease(store, make_server(version=__version__))
        self.services = Services(
            store=store,
            events=SqlEventLog(store, bell),
            dispatch=QueueDispatch(store, bell, self.lease, NO_TELEMETRY, max_runs=1_000),
            bell=bell,
            lease=self.lease,
            model=self.model,
            catalogue=ProviderCatalogue(ProviderSettings()),
            toolbox=self.toolbox,
            outgoing=GuardedOutgoing(AllowedAddresses()),
            prices=self.prices,
            clock=clock or SystemClock(),
            ids=RandomIds(),
            limits=limits or Limits(),
        )

    @asynccontextmanager
    async def run_worker(self) -> AsyncIterator[None]:
        worker = Worker(self.services)
        timekeeper = ApprovalExpiry(self.services, self._expire)
        tasks = [asyncio.create_task(worker.run()), asyncio.create_task(timekeeper.run())]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            # Gathered, so that how it ended is known to somebody: a worker may have been made to die.
            await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), WAIT_SECONDS)

    async def _expire(self, services: Services, overdue: OverdueRequest) -> None:
        self.expired.put_nowait(await approvals.expire(services, overdue))

    async def wait_for_expiry(self) -> Run:
        """The next run that answers what nobody did, once it has ended."""
        return await self.wait_for_end(await asyncio.wait_for(self.expired.get(), WAIT_SECONDS))

    async def make_agent(
        self, *tools: str, rules: tuple[ToolRule, ...] = (), parallel: bool = True, **fields: Any
    ) -> Agent:
        services, now = self.services, self.services.clock.now()
        agent = Agent(
            id=services.ids.new_id(Kind.AGENT),
            organization_id=ACTOR.organization_id,
            name="tester",
            system="You are a test.",
            model=ModelChoice(
                handle="holdfast/guide",
                context_window=128_000,
                settings=ModelSettings(parallel_tool_calls=parallel),
            ),
            created_at=now,
            updated_at=now,
            tool_rules=rules,
            **fields,
        )
        made = [make_tool(name, services.ids, services.clock) for name in tools]
        await services.store.write(lambda tx: _store_agent(tx, agent, made, self))
        return agent

    async def submit(self, agent: Agent, text: str = "Hi", **request: Any) -> Run:
        item = MessageInput(role=Role.USER, content=(Text(text),))
        new = NewSend(agent_id=agent.id, input=(item,), request=RunRequest(**request))
        return await messages.send(self.services, ACTOR, new)

    async def say(self, agent: Agent, text: str = "Hi", **request: Any) -> Reply:
        run = await self.submit(agent, text, **request)
        return await asyncio.wait_for(messages.wait(self.services, run), WAIT_SECONDS)

    async def read(self, work: Callable[[Transaction], T]) -> T:
        return await self.services.store.read(work)

    async def context(self, agent: Agent) -> list[Message]:
        return list(await self.read(lambda tx: tx.messages.context(agent.id)))

    async def wait_for_end(self, run: Run) -> Run:
        """The run once its last event is out."""
        async with asyncio.timeout(WAIT_SECONDS):
            async for _ in self.services.events.follow(run.id):
                pass
        return await self.read(lambda tx: tx.runs.get(ACTOR.organization_id, run.id))


def _store_agent(tx: Transaction, agent: Agent, tools: list[Tool], rig: Rig) -> None:
    tx.agents.add(agent)
    thread = Thread(
        id=agent.id,
        organization_id=agent.organization_id,
        agent_id=agent.id,
        created_at=agent.created_at,
        updated_at=agent.created_at,
    )
    tx.threads.add(thread)
    system = Message(
        id=rig.services.ids.new_id(Kind.MESSAGE),
        agent_id=agent.id,
        thread_id=thread.id,
        role=Role.SYSTEM,
        created_at=agent.created_at,
        content=(Text(agent.system),),
    )
    tx.messages.append([system])
    for tool in tools:
        tx.tools.add(tool)
    tx.agents.attach_tools(agent.id, [tool.id for tool in tools])
