"""Errors that nobody meets with because somebody caught them: those that nature did not inject are findings."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from tests.simulation.ledger import Ledger
from tests.simulation.nature import Injected

from holdfast.errors import BackendError

_HOUSE = logging.getLogger("holdfast")


def leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from leaves(inner)
    else:
        yield error


def is_ours(error: BaseException) -> bool:
    """Whether it is a mistake of the code under test."""
    return any(
        isinstance(leaf, Exception) and not isinstance(leaf, Injected | BackendError)
        for leaf in leaves(error)
    )


class _Ear(logging.Handler):
    def __init__(self, ledger: Ledger) -> None:
        super().__init__(logging.ERROR)
        self._ledger = ledger

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            self._ledger.expect(not is_ours(error), "{}: {!r}", record.getMessage(), error)


@contextmanager
def heard(ledger: Ledger) -> Iterator[None]:
    """What the house logs goes to the ledger, and nowhere else: what goes wrong on purpose is logged at length."""
    before = (_HOUSE.handlers, _HOUSE.level, _HOUSE.propagate)
    _HOUSE.handlers, _HOUSE.propagate = [_Ear(ledger)], False
    _HOUSE.setLevel(logging.ERROR)
    try:
        yield
    finally:
        _HOUSE.handlers, level, _HOUSE.propagate = before
        _HOUSE.setLevel(level)
