"""The last look at the lease before something happens that cannot be undone."""

from holdfast.core.runs import Run
from holdfast.errors import LeaseLost, RunFenced
from holdfast.ports.services import Services


def check_lease(services: Services, run: Run) -> None:
    """Raise LeaseLost if other servers may have taken the run: a process that was paused, or cut off from the database,
    must start nothing more for it, not even under a new lease."""
    claimant = services.lease.claimant
    if claimant is None or claimant.server_id != run.owner_id:
        raise LeaseLost("The lease under which the run was claimed has expired.")


def is_lost(error: Exception) -> bool:
    """Whether the error says that the run is another server's: then it is no failure of the run."""
    if isinstance(error, ExceptionGroup):
        return any(is_lost(inner) for inner in error.exceptions)
    return isinstance(error, LeaseLost | RunFenced)
