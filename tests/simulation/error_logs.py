"""Errors that the code under test has caught and logged: those that were not injected are findings."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from tests.simulation.chance import InjectedError
from tests.simulation.ledger import Ledger

from holdfast.errors import BackendError

_LOGGER = logging.getLogger("holdfast")


def leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from leaves(inner)
    else:
        yield error


def is_bug(error: BaseException) -> bool:
    """Whether the error is a bug of the code under test."""
    return any(
        isinstance(leaf, Exception) and not isinstance(leaf, InjectedError | BackendError)
        for leaf in leaves(error)
    )


class _LogHandler(logging.Handler):
    def __init__(self, ledger: Ledger) -> None:
        super().__init__(logging.ERROR)
        self._ledger = ledger

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            self._ledger.expect(not is_bug(error), "{}: {!r}", record.getMessage(), error)


@contextmanager
def capture_errors(ledger: Ledger) -> Iterator[None]:
    """Send the error logs of the server to the ledger instead of the console: injected faults log a lot."""
    before = (_LOGGER.handlers, _LOGGER.level, _LOGGER.propagate)
    _LOGGER.handlers, _LOGGER.propagate = [_LogHandler(ledger)], False
    _LOGGER.setLevel(logging.ERROR)
    try:
        yield
    finally:
        _LOGGER.handlers, level, _LOGGER.propagate = before
        _LOGGER.setLevel(level)
