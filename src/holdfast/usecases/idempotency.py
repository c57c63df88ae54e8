"""Keys that senders give to their requests, so that a request that is sent again does not run again.

A key is stored in the transaction that stores its run, and is kept as long as the run. That two runs get the same key is
impossible: the store has a unique constraint.
"""

from typing import Final

from holdfast.core.agents import Actor
from holdfast.core.runs import IdempotencyKey, Run, RunStatus
from holdfast.errors import ThreadBusy, Unprocessable
from holdfast.ports.services import Services
from holdfast.ports.store import Transaction

MAX_KEY_CHARS: Final = 255


def check_key(key: str) -> None:
    """Raise Unprocessable if the key cannot be used."""
    if not 0 < len(key) <= MAX_KEY_CHARS:
        raise Unprocessable(f"An Idempotency-Key must have 1 to {MAX_KEY_CHARS} characters.")


async def find_run(services: Services, actor: Actor, key: IdempotencyKey | None) -> Run | None:
    """The run of an earlier request with this key. Unprocessable if that was another request."""
    if key is None:
        return None
    return await services.store.read(lambda tx: find_earlier(tx, actor.organization_id, key))


def find_earlier(tx: Transaction, organization_id: str, key: IdempotencyKey) -> Run | None:
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


async def refuse_withdrawn(services: Services, earlier: Run) -> None:
    """Raise ThreadBusy if the earlier request has withdrawn its run while this one waited for it."""
    if earlier.status is not RunStatus.QUEUED:
        return
    if await services.store.read(lambda tx: tx.runs.find(earlier.id)) is None:
        raise ThreadBusy(None)
