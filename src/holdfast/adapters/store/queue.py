"""The queue of runs as use cases and engine see it. How it is stored is in ``table_queue`` and ``procrastinate_queue``."""

from collections.abc import Collection, Sequence
from typing import Protocol

from holdfast.adapters.store.runs import SqlRuns
from holdfast.adapters.store.servers import SqlServers
from holdfast.core.runs import Run, RunStatus
from holdfast.core.servers import Claim, Claimant
from holdfast.errors import Bug
from holdfast.ports.store import QueueDepth


class StoredQueue(Protocol):
    """The queue in one kind of database."""

    def enter(self, run: Run, claimant: Claimant | None) -> Run: ...

    def lock(self, run_id: str) -> None: ...

    def leave(self, run: Run) -> None: ...

    def claim_next(self, claimant: Claimant) -> str | None: ...

    def is_empty(self) -> bool: ...

    def measure(self) -> QueueDepth: ...

    def find_holder(self, thread_id: str) -> str | None: ...

    def list_owners(self) -> Sequence[str]: ...

    def release(self, server_ids: Collection[str], keep: Collection[str] = ()) -> int: ...


class SqlQueue:
    def __init__(self, stored: StoredQueue, runs: SqlRuns, servers: SqlServers) -> None:
        self._stored = stored
        self._runs = runs
        self._servers = servers
        self.is_empty = stored.is_empty
        self.measure = stored.measure
        self.find_holder = stored.find_holder

    def claim_next(self, claimant: Claimant) -> Claim | None:
        run_id = self._stored.claim_next(claimant)
        if run_id is None:
            return None
        run = self._runs.find(run_id)
        if run is None or run.owner_id != claimant.server_id:
            raise Bug(f"The queue has given out the run {run_id}, which cannot be claimed.")
        return _to_claim(run)

    def list_claims(self, server_id: str) -> Sequence[Claim]:
        return [_to_claim(run) for run in self._runs.list_live() if run.owner_id == server_id]

    def release(self, server_id: str, *, keep: Collection[str] = ()) -> int:
        return self._stored.release([server_id], keep)

    def release_expired(self) -> int:
        # In this order: a server registers before it claims, so one that joins meanwhile is not taken for a dead one.
        owners = self._stored.list_owners()
        dead = {*owners} - {*self._servers.list_alive_ids()} if owners else set()
        return self._stored.release(dead) if dead else 0


def _to_claim(run: Run) -> Claim:
    return Claim(
        run_id=run.id,
        thread_id=run.thread_id,
        fence=run.fence,
        last_seq=run.highest_seq,
        is_recovery=run.status is not RunStatus.QUEUED,
    )
