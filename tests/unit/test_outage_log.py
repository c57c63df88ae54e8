"""An outage is logged once and then counted."""

import io
import logging

import pytest

from holdfast import logs
from holdfast.errors import AnswerUnavailable, StoreUnavailable


class Log:
    """A log whose clock the test sets."""

    def __init__(self) -> None:
        self.now = 1_769_719_444.0
        self._text = io.StringIO()
        self._handler = logs.OutageHandler((StoreUnavailable,))
        self._handler.setStream(self._text)
        self._handler.setFormatter(logs.EventFormatter())

    def fail(self, error: BaseException, event: str = "request.failed", **fields: str) -> None:
        self.write(event, exc_info=(type(error), error, None), **fields)

    def write(self, event: str, **fields: object) -> None:
        record = {"name": "holdfast.test", "levelno": logging.ERROR, "levelname": "ERROR"}
        made = logging.makeLogRecord({**record, "msg": event, "created": self.now, **fields})
        self._handler.handle(made)

    def take(self) -> list[str]:
        """The lines since the last time, without time and level."""
        text = self._text.getvalue()
        self._text.seek(0)
        self._text.truncate()
        return [line.partition("ERROR ")[2] or line for line in text.splitlines()]


@pytest.fixture
def log() -> Log:
    return Log()


DOWN = StoreUnavailable("no answer")


def test_the_first_failure_has_a_traceback_and_later_ones_are_counted(log: Log) -> None:
    log.fail(DOWN, path="/one")
    assert log.take() == ["request.failed path=/one", "holdfast.errors.StoreUnavailable: no answer"]
    for _ in range(1_000):
        log.fail(DOWN, path="/two")
    assert log.take() == []
    log.now += logs.FIRST_PAUSE_SECONDS
    log.fail(DOWN)
    assert log.take() == ["store.still_unreachable count=1001 seconds=10"]


def test_the_pauses_between_the_counts_grow(log: Log) -> None:
    for _ in range(4_000):
        log.fail(DOWN)
        log.now += 1
    counts = [line for line in log.take() if line.startswith(logs.STILL_FAILING)]
    seconds = [int(line.rpartition("=")[2]) for line in counts]
    assert seconds == [10, 30, 70, 150, 310, 630, 1230, 1830, 2430, 3030, 3630]


def test_each_kind_of_failure_has_one_line_of_its_own(log: Log) -> None:
    log.fail(DOWN)
    log.take()
    for _ in range(3):
        log.fail(DOWN, "store.unreachable", **{"while": "looking for cancels"})
        log.fail(DOWN, "store.unreachable", **{"while": "executing a run"})
    assert log.take() == [
        'store.unreachable while="looking for cancels" why="no answer"',
        'store.unreachable while="executing a run" why="no answer"',
    ]


def test_an_error_that_the_outage_has_caused_belongs_to_it(log: Log) -> None:
    log.fail(DOWN)
    log.take()
    error = AnswerUnavailable("run-1", "not now")
    error.__cause__ = DOWN
    log.fail(error)
    log.fail(error)
    assert log.take() == []


def test_other_errors_are_always_logged(log: Log) -> None:
    log.fail(DOWN)
    log.take()
    for _ in range(2):
        log.fail(LookupError("ours"))
        log.write("run.ended")
    assert [line for line in log.take() if line.startswith("r")] == [
        "request.failed",
        "run.ended",
    ] * 2


def test_the_end_says_how_many_failures_there_were(log: Log) -> None:
    log.write(logs.RECOVERED)
    assert log.take() == ["store.recovered"]
    for _ in range(5):
        log.fail(DOWN)
    log.take()
    log.now += 7
    log.write(logs.RECOVERED)
    assert log.take() == ["store.recovered failures=5 seconds=7"]


def test_a_store_that_comes_and_goes_is_one_outage(log: Log) -> None:
    for _ in range(1_000):
        log.fail(DOWN)
        log.write(logs.RECOVERED)
        log.now += 0.1
    # The first failure with its traceback, the first end, and a count and an end at 10, 30 and 70 s.
    assert len(log.take()) == 3 + 6
    log.now += logs.SEPARATE_OUTAGES_SECONDS + 1
    log.fail(DOWN)
    assert log.take() == ["request.failed", "holdfast.errors.StoreUnavailable: no answer"]
