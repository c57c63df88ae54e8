"""One process of the server. A crash ends everything in here; the disk and the ledger survive."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from random import Random

from tests.simulation.breaking_checkpoints import BreakingCheckpoints
from tests.simulation.bus import Bus, BusBell
from tests.simulation.chance import Chance
from tests.simulation.clock import DAWN, LoopClock, SeededIds
from tests.simulation.disk import Disk, SteppedStore
from tests.simulation.hosts import CLAIM, Host
from tests.simulation.ledger import Ledger
from tests.simulation.memory import ARCHIVE, Memory, SimulatedEmbedder
from tests.simulation.provider import Provider, Toolbox
from tests.simulation.task_lease import TaskLease

from holdfast.adapters.dispatch.queue import QueueDispatch
from holdfast.adapters.event_log.sql import SqlEventLog
from holdfast.adapters.lease.exclusive import ExclusiveLease
from holdfast.adapters.models.accounts import ProviderSettings
from holdfast.adapters.models.catalogue import ProviderCatalogue
from holdfast.adapters.outgoing.guarded import GuardedOutgoing
from holdfast.adapters.prices.genai import GenaiPrices
from holdfast.core.addresses import AllowedAddresses
from holdfast.core.agents import Actor
from holdfast.core.cancellation import Action
from holdfast.core.events import Event, RunEnded
from holdfast.core.ids import DEFAULT_ORGANIZATION_ID, DEFAULT_USER_ID
from holdfast.core.runs import Run, RunStatus
from holdfast.core.servers import Claim, Role, Server, ServerProcess
from holdfast.engine.approval_expiry import ApprovalExpiry
from holdfast.engine.deployment_tasks import DeploymentTasks, Takeover
from holdfast.engine.embedding import Embedding
from holdfast.engine.file_ingestion import OpenInAgents
from holdfast.engine.file_removal import FileRemoval
from holdfast.engine.ingestion import Ingestion
from holdfast.engine.search_upkeep import SearchUpkeep
from holdfast.engine.worker import Worker
from holdfast.errors import (
    AnswerUnavailable,
    BackendError,
    CallerError,
    ServerStopping,
    StoreUnavailable,
)
from holdfast.ports.bell import Bell
from holdfast.ports.documents import NO_DOCUMENTS, Documents
from holdfast.ports.lease import Lease
from holdfast.ports.services import Limits, Services
from holdfast.ports.store import Store
from holdfast.ports.telemetry import NO_TELEMETRY
from holdfast.usecases import approvals, compaction, messages, passages, runs
from holdfast.usecases.messages import NewSend
from holdfast.usecases.passages import NewPassage

ACTOR = Actor(DEFAULT_USER_ID, DEFAULT_ORGANIZATION_ID)
# How late a reply may be that waits for nothing but the store.
REPLY_SECONDS = 4.0
_VERSION = "0"
_CATALOGUE = ProviderCatalogue(ProviderSettings())


@dataclass(frozen=True, kw_only=True)
class World:
    """What the processes of a scenario share."""

    disk: Disk
    chance: Chance
    ledger: Ledger
    ids: SeededIds
    bus: Bus
    memory: Memory
    # What reads files and shows them to agents, if files are uploaded.
    documents: Documents = NO_DOCUMENTS
    open_in_agents: OpenInAgents | None = None


@dataclass(frozen=True, kw_only=True)
class Equipment:
    """What one server among several is given."""

    name: str = "server"
    max_runs: int = 1000
    skew: timedelta = timedelta(0)
    # Whether no other server uses the database at the same time.
    is_alone: bool = True


class ClaimWorker(Worker):
    """The real worker; its runs know by which claim they are executed."""

    async def _run_to_end(self, claim: Claim) -> None:
        CLAIM.set(claim)
        await super()._run_to_end(claim)


class RecordedLog(SqlEventLog):
    """The real event log; the ledger sees what its readers see."""

    def __init__(self, store: Store, bell: Bell, show: Callable[[Sequence[Event]], None]) -> None:
        super().__init__(store, bell)
        self._show = show

    def publish(self, events: Sequence[Event]) -> None:
        self._show(events)
        super().publish(events)


class Process:
    """To be made, started and stopped by tasks outside of it: what it does itself is done by tasks of its host."""

    def __init__(self, world: World, equipment: Equipment) -> None:
        self._ledger = world.ledger
        self._disk = world.disk
        self._chance = world.chance
        self._equipment = equipment
        self._ids = world.ids
        self.host = Host(equipment.name)
        self._store = SteppedStore(world.disk, world.chance, self.host, self._check_commit)
        self._clock = LoopClock(equipment.skew)
        lease = self._make_lease()
        self._lease = lease
        self._bell = BusBell(world.bus, self.host, lambda: lease.has_peers)
        self.services = self._build_services(lease, world.documents)
        self._worker = ClaimWorker(self.services)
        self._worker._runner._checkpoints = BreakingCheckpoints(
            self._clock, world.ids, world.chance, world.ledger
        )
        expiry, takeover = ApprovalExpiry(self.services, approvals.expire), Takeover(self.services)
        self._memory = world.memory
        upkeep, embedding = SearchUpkeep(self.services, _VERSION), Embedding(self.services)
        tasks = [expiry.run, takeover.run, upkeep.run, embedding.run]
        if world.open_in_agents is not None:
            ingestion = Ingestion(self.services, world.open_in_agents)
            tasks += [ingestion.run, FileRemoval(self.services).run]
        self._deployment_tasks = DeploymentTasks(self.services, tasks)
        self.clients: set[asyncio.Task[None]] = set()
        self._served_so_far = 0
        self._stopping = False

    def _make_lease(self) -> ExclusiveLease | TaskLease:
        if not self._equipment.is_alone:
            return TaskLease(self._store, self.host, self._new_server, self._clock.compare)
        server = self._new_server()
        self.host.server_id = server.id
        return ExclusiveLease(self._store, server)

    def _new_server(self) -> Server:
        return Server(
            id=f"server-{self._ids.new_otid()}",
            host=self._equipment.name,
            process=ServerProcess(pid=1),
            version=_VERSION,
            role=Role.ALL,
            max_runs=self._equipment.max_runs,
            started_at=DAWN,
            heartbeat_at=DAWN,
        )

    def _build_services(self, lease: Lease, documents: Documents) -> Services:
        return Services(
            store=self._store,
            events=RecordedLog(self._store, self._bell, self._show),
            dispatch=QueueDispatch(
                self._store, self._bell, lease, NO_TELEMETRY, max_runs=self._equipment.max_runs
            ),
            bell=self._bell,
            lease=lease,
            model=Provider(self._chance, self._ledger),
            catalogue=_CATALOGUE,
            toolbox=Toolbox(self._chance, self._ledger),
            outgoing=GuardedOutgoing(AllowedAddresses()),
            prices=GenaiPrices({}, self._clock),
            clock=self._clock,
            ids=self._ids,
            embedder=SimulatedEmbedder(self._chance),
            documents=documents,
            limits=Limits(busy_wait_seconds=20, max_recoveries=3),
        )

    async def start(self) -> None:
        """Start the server. One that is alone accepts requests after it is registered."""
        if self._equipment.is_alone:
            calm, self._chance.is_calm = self._chance.is_calm, True
            await self.host.create_task(self.services.lease.register())
            self._chance.is_calm = calm
        self._working = self.host.create_task(self._worker.run(), "worker")
        self._deploying = self.host.create_task(self._deployment_tasks.run(), "deployment")

    def _check_commit(self, claim: Claim | None) -> None:
        self._disk.read(lambda tx: self._ledger.check_commit(tx, self.host, claim))

    def _show(self, events: Sequence[Event]) -> None:
        if not self.host.is_dead:
            self._ledger.show(events)

    # -- its misfortunes ---------------------------------------------------------------------

    def cut_off(self, seconds: float) -> None:
        """Neither the database nor other servers can be reached for a while."""
        self.host.is_cut_off = True
        asyncio.get_running_loop().call_later(seconds, self._reconnect)

    def deafen(self, seconds: float) -> None:
        """Its listening connection is dead for a while, and it knows that."""
        self._bell.is_deaf = True
        asyncio.get_running_loop().call_later(seconds, self._reconnect)

    def heal(self) -> None:
        """End all of this now."""
        self._reconnect()
        self.host.resume()

    def _reconnect(self) -> None:
        self.host.is_cut_off = self._bell.is_deaf = False
        asyncio.get_running_loop().call_soon(
            self._bell.ring_everything, context=self.host.context.copy()
        )

    # -- its end -----------------------------------------------------------------------------

    async def crash(self) -> None:
        """End the process at once: nothing that its tasks still do has an effect."""
        self._stopping = True
        self._store.die()
        self._ledger.process_ended(self.host)
        for task in list(self.host.tasks):
            task.cancel()
        self.host.resume()
        await self._cancel_all_tasks()
        self._ledger.process_ended(self.host)

    async def stop(self) -> None:
        """Stop as on SIGTERM: runs stay unfinished, accepted transactions are committed."""
        self._stopping = True
        stopping = self.host.create_task(self._stop(), "stop")
        await asyncio.wait([stopping])
        if not stopping.cancelled():
            stopping.result()
        await self._cancel_all_tasks()

    async def _stop(self) -> None:
        faults = self._store.faults
        self._deploying.cancel()
        self._worker.drain(self._chance.random.choice([0.0, 0.5, 10.0]))
        await asyncio.wait([self._working])
        self.services.events.disconnect_readers()
        self._ledger.expect(not self._ledger.running_on(self.host), "tools outlive the worker")
        left = self._ledger.list_begun(self.host)
        is_handed_over = not left or self._store.faults > faults or self._lease.claimant is None
        self._ledger.expect(is_handed_over, f"{left} are not handed over")
        for client in self.clients:
            client.cancel()
        if self.clients:
            await asyncio.wait(self.clients)
        await self._lease.aclose()
        await self._store.close()
        self.host.is_dead = True
        self._ledger.process_ended(self.host)

    async def _cancel_all_tasks(self) -> None:
        for _ in range(100):
            left = list(self.host.tasks)
            if not left:
                return
            for task in left:
                task.cancel()
            await asyncio.wait(left, timeout=0.01)
        self._ledger.expect(None, f"tasks that cannot be cancelled: {left}")

    def check(self) -> None:
        for task in (self._working, self._deploying):
            if task.done() and not self._stopping:
                why = None if task.cancelled() else task.exception()
                self._ledger.expect(None, f"the {task.get_name()} has ended: {why!r}")

    # -- its clients -------------------------------------------------------------------------

    def send(self, new: NewSend, send_kind: str) -> None:
        self._start_client(partial(self._send, new, send_kind), f"send {send_kind}")

    def cancel(self, run_id: str, action: Action) -> None:
        self._start_client(partial(self._cancel, run_id, action), f"cancel {run_id}")

    def insert(self, texts: Sequence[str]) -> None:
        self._start_client(partial(self._insert, texts), f"insert {len(texts)} passages")

    def compact(self, thread_id: str) -> None:
        self._start_client(partial(self._compact, thread_id), f"compact {thread_id}")

    def ask(self, work: Callable[[Services], Awaitable[None]], name: str) -> None:
        """Let a client do some work with the services. A client that hangs up does not end it: HTTP does not tell."""

        async def request() -> None:
            await self._run_client(partial(work, self.services), name)

        async def wait() -> None:
            await asyncio.shield(self.host.create_task(request(), name))

        self._start_client(wait, name)

    def _start_client(self, client: Callable[[], Awaitable[None]], name: str) -> None:
        self._served_so_far += 1
        name = f"client {self._served_so_far} of {self.host.name}: {name}"
        task = self.host.create_task(self._run_client(client, name), name)
        self.clients.add(task)
        task.add_done_callback(self.clients.discard)

    async def _run_client(self, client: Callable[[], Awaitable[None]], name: str) -> None:
        try:
            await client()
        except CallerError as error:
            self._ledger.note(f"{name}: refused, {type(error).__name__}: {error}")
        except StoreUnavailable as error:
            self._ledger.note(f"{name}: {error}")
        except ServerStopping as error:
            self._ledger.expect(self._stopping, f"{name}: {error}")
        except AnswerUnavailable as error:
            self._ledger.expect(self._chance.outages, f"{name}: {error}")
        except BackendError as error:
            self._ledger.expect(self._stopping, f"{name}: {error}")
        except Exception as error:  # noqa: BLE001 - whatever else a client meets with is a finding
            self._ledger.expect(self._stopping, f"{name}: {error!r}")

    async def _send(self, new: NewSend, send_kind: str) -> None:
        run = await messages.send(self.services, ACTOR, new)
        # One that was cancelled before anybody knew of it takes its turn all the same.
        prompt = run.id not in self._ledger.ended_at
        self._ledger.note(f"sent {run.id} on {run.thread_id}")
        if send_kind == "go":
            self._ledger.acknowledged.add(run.id)
        elif send_kind == "wait":
            reply = await messages.wait(self.services, run)
            self._ledger.note(f"{run.id} replied {reply.ended.stop_reason}")
        elif send_kind == "follow":
            await messages.wait_for_turn(self.services, run)
            await self.follow(run)
        if send_kind != "go" and prompt and self._is_prompt():
            late = asyncio.get_running_loop().time() - self._ledger.ended_at.get(run.id, 0.0)
            self._ledger.expect(late < REPLY_SECONDS, f"{run.id} is told {late} s after its end")

    def hang_up(self, random: Random) -> None:
        """A client disconnects, whatever it has received."""
        client = random.choice(sorted(self.clients, key=asyncio.Task.get_name))
        self._ledger.note(f"{client.get_name()} hangs up")
        client.cancel()

    async def follow(self, run: Run) -> None:
        """Read the run to its end, as a streaming client does."""
        last, fact = 0, None
        async with aclosing(self.services.events.follow(run.id)) as batches:
            async for events in batches:
                for event in events:
                    self._ledger.expect(event.seq > last, f"{run.id}: {event.seq} after {last}")
                    last, fact = event.seq, event.fact
        if not self._stopping:
            self._ledger.expect(isinstance(fact, RunEnded), f"{run.id} is read until {fact}")

    async def _cancel(self, run_id: str, action: Action) -> None:
        run = await runs.cancel(self.services, ACTOR, run_id, action=action)
        self._ledger.note(f"cancel of {run_id} found it {run.status}")
        over = run.status is not RunStatus.CANCELLING
        self._ledger.expect(over or not self._is_prompt(), f"the cancel of {run_id} is not heard")

    async def _insert(self, texts: Sequence[str]) -> None:
        items = [NewPassage(text=text) for text in texts]
        # A request goes on when its client has gone.
        inserting = self.host.create_task(
            passages.insert(self.services, ACTOR, ARCHIVE.id, items), "insert"
        )
        stored = await asyncio.shield(inserting)
        self._memory.accepted |= {item.passage.id for item in stored}

    async def _compact(self, thread_id: str) -> None:
        started = await compaction.start(self.services, ACTOR, thread_id)
        done = (
            await compaction.wait(self.services, started) if isinstance(started, Run) else started
        )
        self._ledger.note(f"compact of {thread_id}: {done}")

    def _is_prompt(self) -> bool:
        """Whether no injected fault explains a late reply."""
        return not self._stopping and not self._chance.outages
