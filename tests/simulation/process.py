"""One process of the server. A crash ends everything in here; the disk and the ledger survive."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from functools import partial
from random import Random
from uuid import UUID

from tests.simulation.breaking_checkpoints import BreakingCheckpoints
from tests.simulation.chance import Chance
from tests.simulation.disk import Disk, SteppedStore
from tests.simulation.ledger import Ledger
from tests.simulation.provider import Provider, Toolbox

from holdfast.adapters.bell.local import LocalBell
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
from holdfast.core.ids import DEFAULT_ORGANIZATION_ID, DEFAULT_USER_ID, Kind
from holdfast.core.runs import Run, RunStatus
from holdfast.core.servers import Role, Server, ServerProcess
from holdfast.engine.approval_expiry import ApprovalExpiry
from holdfast.engine.worker import Worker
from holdfast.errors import (
    AnswerUnavailable,
    BackendError,
    CallerError,
    ServerStopping,
    StoreUnavailable,
)
from holdfast.ports.bell import Bell
from holdfast.ports.services import Limits, Services
from holdfast.ports.store import Store
from holdfast.ports.telemetry import NO_TELEMETRY
from holdfast.usecases import approvals, compaction, messages, runs
from holdfast.usecases.messages import NewSend

ACTOR = Actor(DEFAULT_USER_ID, DEFAULT_ORGANIZATION_ID)
# How late a reply may be that waits for nothing but the store.
REPLY_SECONDS = 4.0
_CATALOGUE = ProviderCatalogue(ProviderSettings())
_DAWN = datetime(2026, 1, 1, tzinfo=UTC)


class LoopClock:
    """The virtual time of the loop; no two calls return the same instant."""

    def __init__(self) -> None:
        self._looks = 0

    def now(self) -> datetime:
        self._looks += 1
        seconds = asyncio.get_running_loop().time()
        return _DAWN + timedelta(seconds=seconds, microseconds=self._looks)

    def monotonic_ns(self) -> int:
        return int(asyncio.get_running_loop().time() * 1e9)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def _new_server(ids: "SeededIds") -> Server:
    return Server(
        id=f"server-{ids.new_otid()}",
        host="simulated",
        process=ServerProcess(pid=1),
        version="0",
        role=Role.ALL,
        max_runs=1000,
        started_at=_DAWN,
        heartbeat_at=_DAWN,
    )


class SeededIds:
    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def new_id(self, kind: Kind) -> str:
        return f"{kind}-{self.new_otid()}"

    def new_otid(self) -> str:
        return str(UUID(int=self._random.getrandbits(128), version=4))


class RecordedLog(SqlEventLog):
    """The real event log; the ledger sees what its readers see."""

    def __init__(self, store: Store, bell: Bell, show: Callable[[Sequence[Event]], None]) -> None:
        super().__init__(store, bell)
        self._show = show

    def publish(self, events: Sequence[Event]) -> None:
        self._show(events)
        super().publish(events)


class Process:
    def __init__(
        self, disk: Disk, chance: Chance, ledger: Ledger, clock: LoopClock, ids: SeededIds
    ) -> None:
        self._ledger = ledger
        self._disk = disk
        self._chance = chance
        self._store = SteppedStore(disk, chance, self._check_commit)
        bell = LocalBell()
        lease = ExclusiveLease(self._store, _new_server(ids))
        self.services = Services(
            store=self._store,
            events=RecordedLog(self._store, bell, self._show),
            dispatch=QueueDispatch(self._store, bell, lease, NO_TELEMETRY, max_runs=1000),
            bell=bell,
            lease=lease,
            model=Provider(chance, ledger),
            catalogue=_CATALOGUE,
            toolbox=Toolbox(chance, ledger),
            outgoing=GuardedOutgoing(AllowedAddresses()),
            prices=GenaiPrices({}, clock),
            clock=clock,
            ids=ids,
            limits=Limits(busy_wait_seconds=20, max_recoveries=3),
        )
        self._worker = Worker(self.services)
        self._worker._runner._checkpoints = BreakingCheckpoints(clock, ids, chance, ledger)
        self._expiry = ApprovalExpiry(self.services, approvals.expire)
        # Whoever starts a process is none of its tasks.
        self._outlives_it = asyncio.current_task()
        self.clients: set[asyncio.Task[None]] = set()
        self._served_so_far = 0
        self._stopping = False

    async def start(self) -> None:
        """Start the server: requests are accepted after it is registered."""
        calm, self._chance.is_calm = self._chance.is_calm, True
        await self.services.lease.register()
        self._chance.is_calm = calm
        self._working = asyncio.create_task(self._worker.run(), name="worker")
        self._expiring = asyncio.create_task(self._expiry.run(), name="expiry")

    def _check_commit(self) -> None:
        self._disk.read(self._ledger.check_commit)

    def _show(self, events: Sequence[Event]) -> None:
        if not self._store.dead:
            self._ledger.show(events)

    # -- its end -----------------------------------------------------------------------------

    async def crash(self) -> None:
        """End the process at once: nothing that its tasks still do has an effect."""
        self._stopping = True
        self._store.die()
        self._ledger.process_ended()
        await self._cancel_all_tasks()
        self._ledger.process_ended()

    async def stop(self) -> None:
        """Stop as on SIGTERM: runs stay unfinished, accepted transactions are committed."""
        self._stopping = True
        self._expiring.cancel()
        self._worker.drain(self._chance.random.choice([0.0, 0.5, 10.0]))
        await asyncio.wait([self._working])
        self.services.events.disconnect_readers()
        self._ledger.expect(not self._ledger.running, "tools outlive the worker")
        for client in self.clients:
            client.cancel()
        if self.clients:
            await asyncio.wait(self.clients)
        await self._store.close()
        self._store.dead = True
        self._ledger.process_ended()
        await self._cancel_all_tasks()

    async def _cancel_all_tasks(self) -> None:
        alive = {asyncio.current_task(), self._outlives_it}
        for _ in range(100):
            left = [task for task in asyncio.all_tasks() if task not in alive]
            if not left:
                return
            for task in left:
                task.cancel()
            await asyncio.wait(left, timeout=0.01)
        self._ledger.expect(None, f"tasks that cannot be cancelled: {left}")

    def check(self) -> None:
        for task in (self._working, self._expiring):
            if task.done() and not self._stopping:
                why = None if task.cancelled() else task.exception()
                self._ledger.expect(None, f"the {task.get_name()} has ended: {why!r}")

    # -- its clients -------------------------------------------------------------------------

    def send(self, new: NewSend, send_kind: str) -> None:
        self._start_client(partial(self._send, new, send_kind), f"send {send_kind}")

    def cancel(self, run_id: str, action: Action) -> None:
        self._start_client(partial(self._cancel, run_id, action), f"cancel {run_id}")

    def compact(self, thread_id: str) -> None:
        self._start_client(partial(self._compact, thread_id), f"compact {thread_id}")

    def _start_client(self, client: Callable[[], Awaitable[None]], name: str) -> None:
        self._served_so_far += 1
        name = f"client {self._served_so_far}: {name}"
        task = asyncio.create_task(self._run_client(client, name), name=name)
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

    async def _compact(self, thread_id: str) -> None:
        started = await compaction.start(self.services, ACTOR, thread_id)
        done = (
            await compaction.wait(self.services, started) if isinstance(started, Run) else started
        )
        self._ledger.note(f"compact of {thread_id}: {done}")

    def _is_prompt(self) -> bool:
        """Whether no injected fault explains a late reply."""
        return not self._stopping and not self._chance.outages
