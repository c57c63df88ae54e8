"""Keys that senders give to their requests, so that a request that is sent again does not run again.

A key is stored in the transaction that stores its run, and is kept as long as the run. That two runs get the same key is
impossible: the store has a unique constraint.
"""

from typing import Final

from holdfast.core.runs import IdempotencyKey, Run, RunStatus
from holdfast.errors import ThreadBusy, Unprocessable
from holdfast.ports.services import Services
from holdfast.ports.store import Transaction

MAX_KEY_CHARS: Final = 255


def check_key(key: str) -> None:
    """Raise Unprocessable if the key cannot be used."""
    if not 0 < len(key) <= MAX_KEY_CHARS:
        raise Unprocessable(f"An Idempotency-Key must have 1 to {MAX_KEY_CHARS} characters.")


def find_run(tx: Transaction, organization_id: str, key: IdempotencyKey) -> Run | None:
    """The run of an earlier request with this key. Unprocessable if that was another request."""
    found = tx.runs.find_by_key(organization_id, key.key)
    if found is None:
        return None
    run, fingerprint = found
    if fingerprint != key.fingerprint:
        raise Unprocessable(
            f"This Idempotency-Key belongs to another request, which started the run {run.id}. Use a new key for "
            "each message; send the same path and body again to get the answer to the first request."
        )
    return run


async def refuse_withdrawn(services: Services, run: Run) -> None:
    """Raise ThreadBusy if the run, which was queued, is gone: it was withdrawn."""
    if run.status is not RunStatus.QUEUED:
        return
    if await services.store.read(lambda tx: tx.runs.find(run.id)) is None:
        raise ThreadBusy(None)
