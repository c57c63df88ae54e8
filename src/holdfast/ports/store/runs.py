"""Runs. Their status changes here alone, as compare-and-set by the table in ``core.lifecycle``.

A run has a fence, which grows with each claim. ``transition``, ``save``, ``reserve_seq`` and ``lock`` raise RunFenced if
it is no longer the one of the given run: then somebody else has the run, and the transaction must write nothing.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from holdfast.core.lifecycle import Signal
from holdfast.core.runs import IdempotencyKey, Run, RunQuery
from holdfast.core.servers import Claimant


class Runs(Protocol):
    def add(self, run: Run, claimant: Claimant | None = None) -> Run:
        """Store a new run and queue it. Its ``input`` and ``request`` are written here and never change. If no other run
        is before it in its thread, the claimant gets it at once; return the run as it is stored."""
        ...

    def get(self, organization_id: str, run_id: str) -> Run:
        """Return the run. NotFound: ``Run with ID <id> not found``."""
        ...

    def find(self, run_id: str) -> Run | None:
        """Return the run of any organisation; None if there is none."""
        ...

    def get_for_update(self, organization_id: str, run_id: str) -> Run:
        """Return the run as ``get`` does and lock it: no other transaction changes it before this one ends. Needed to
        change a run from outside its worker, so that what the worker writes meanwhile is not overwritten."""
        ...

    def transition(self, run: Run, signal: Signal) -> Run:
        """Advance the status by the lifecycle table, and write the run's other fields as they are given.

        ``run.status`` is the status that the caller saw: StaleRun if it is another by now, or if the run would take
        a thread that another run holds. When a run with a ``callback_url`` ends, a callback becomes due."""
        ...

    def save(self, run: Run) -> None:
        """Write progress, usage and similar fields. StaleRun if the status is no longer ``run.status``."""
        ...

    def record_tools(self, run_id: str, tool_ids: Sequence[str]) -> None:
        """Record tools that the run calls for the first time, so that lists of runs can be filtered by them."""
        ...

    def add_metadata(self, organization_id: str, run_id: str, metadata: Mapping[str, Any]) -> Run:
        """Add the keys to the run's metadata, or replace them. ``save`` and ``transition`` do not write metadata, so
        this is safe while a worker executes the run."""
        ...

    def delete(self, organization_id: str, run_id: str) -> None:
        """Delete the run with its steps and events. Its messages stay."""
        ...

    def reserve_seq(self, run: Run, seq: int) -> None:
        """Set the run's ``reserved_seq`` and nothing else. NotFound if the run is gone."""
        ...

    def lock(self, run: Run) -> bool:
        """Keep the run from being claimed by others until this transaction ends. For a transaction that writes what
        belongs to the run, but not the run itself. NotFound if the run is gone.

        Return whether the system message of its thread is stale (``StalePrompts``): every checkpoint needs to know, and
        none should have to ask the database once more."""
        ...

    def delete_if_waiting(self, run_id: str) -> bool:
        """Delete the run if it still waits to be claimed, as if it had never been sent; return whether it did."""
        ...

    def list(self, organization_id: str, query: RunQuery) -> Sequence[Run]:
        """Return one page of the runs that match."""
        ...

    def list_live(self) -> Sequence[Run]:
        """Return the runs of all organisations that are queued, running or cancelling, oldest first."""
        ...

    def cancelling_ids(self) -> Sequence[str]:
        """Return the ids of the runs whose cancellation is stored and that have not ended."""
        ...

    def find_paused(self, thread_id: str) -> Run | None:
        """Return the run whose held calls the thread waits for; None if it waits for none."""
        ...

    def paused_run_ids(self, thread_ids: Collection[str]) -> Mapping[str, str]:
        """Return by thread the id of the run whose held calls it waits for. Only threads that wait have an entry."""
        ...

    def find_by_request_key(self, thread_id: str, request_key: str) -> Run | None:
        """Return the run that the request with this key started. A second run with the same key cannot be added."""
        ...

    def add_key(self, run: Run, key: IdempotencyKey) -> None:
        """Record that the request with this key got this run. A key belongs to one run of its organisation, and is
        deleted with it."""
        ...

    def find_by_key(self, organization_id: str, key: str) -> tuple[Run, str] | None:
        """Return the run of the request with this key, and the request's fingerprint."""
        ...

    def find_by_otid(self, thread_id: str, otid: str) -> Run | None:
        """Return the newest run of the thread whose input has this otid."""
        ...
