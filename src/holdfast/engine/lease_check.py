"""The last look at the lease before something happens that cannot be undone."""

from holdfast.errors import LeaseLost, RunFenced
from holdfast.ports.services import Services


def check_lease(services: Services) -> None:
    """Raise LeaseLost if other servers may have taken this one's runs: a process that was paused, or cut off from the
    database, must start nothing more."""
    if not services.lease.is_valid:
        raise LeaseLost("The lease of this server has expired.")


def is_lost(error: Exception) -> bool:
    """Whether the error says that the run is another server's: then it is no failure of the run."""
    if isinstance(error, ExceptionGroup):
        return any(is_lost(inner) for inner in error.exceptions)
    return isinstance(error, LeaseLost | RunFenced)
