"""A supervisor with processes that only say what happens to them, one line each: ``python -m tests.support.supervised``.

The arguments are what the processes do, and how many there are.
"""

import os
import signal
import sys
from collections.abc import Callable

from holdfast import logs
from holdfast.cli.supervisor import RestartDelays, Supervisor
from holdfast.errors import CannotStart

ADDRESS = "http://127.0.0.1:1"
SENTENCE = "The database does not answer."
BAD_EXIT = 7
SIGNALS = {signal.SIGINT, signal.SIGTERM}
DELAYS = RestartDelays(first_seconds=0.01, longest_seconds=0.04)


def say(*words: object) -> None:
    """One write, which a pipe passes on whole, however many processes write."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def wait_for_signal(report_ready: Callable[[str], None]) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    say("up", os.getpid())
    report_ready(ADDRESS)
    say("got", os.getpid(), signal.Signals(signal.sigwait(SIGNALS)).name)
    # Blocked ones come together at most; another one that is already here would be said too.
    for number in signal.sigpending() & SIGNALS:
        say("got", os.getpid(), signal.Signals(number).name)


def wait_for_two_signals(report_ready: Callable[[str], None]) -> None:
    wait_for_signal(report_ready)
    say("got", os.getpid(), signal.Signals(signal.sigwait(SIGNALS)).name)


def end_badly(report_ready: Callable[[str], None]) -> None:
    wait_for_signal(report_ready)
    os._exit(BAD_EXIT)


def die_when_ready(report_ready: Callable[[str], None]) -> None:
    report_ready(ADDRESS)
    os._exit(BAD_EXIT)


def fail_to_start(report_ready: Callable[[str], None]) -> None:
    del report_ready
    say("up", os.getpid())
    raise CannotStart(SENTENCE)


def die_before_ready(report_ready: Callable[[str], None]) -> None:
    del report_ready
    os._exit(BAD_EXIT)


def never_be_ready(report_ready: Callable[[str], None]) -> None:
    del report_ready
    say("up", os.getpid())
    signal.pause()


class StartOnce:
    """The first process starts; all later ones cannot."""

    __name__ = "start_once"

    def __init__(self) -> None:
        self._starts, mark = os.pipe()
        os.write(mark, b"x")
        os.close(mark)

    def __call__(self, report_ready: Callable[[str], None]) -> None:
        if not os.read(self._starts, 1):
            raise CannotStart(SENTENCE)
        wait_for_signal(report_ready)


RUNS = (
    wait_for_signal,
    wait_for_two_signals,
    end_badly,
    die_when_ready,
    fail_to_start,
    die_before_ready,
    never_be_ready,
    StartOnce(),
)


def main(name: str, count: int) -> int:
    logs.set_up("info", logs.JSON)
    supervisor = Supervisor(
        next(run for run in RUNS if run.__name__ == name),
        count,
        on_ready=lambda address: say("ready", address),
        on_stop=lambda: say("stopping"),
        delays=DELAYS,
    )
    try:
        return 0 if supervisor.serve() else 1
    except CannotStart as error:
        say("error", error)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
