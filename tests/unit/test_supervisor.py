"""The supervisor of several processes: who is started when, what a signal does, and what is left when somebody dies.

The processes are stand-ins that write what happens to them (``tests/support/supervised.py``).
"""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.supervised import ADDRESS, DELAYS, SENTENCE

from holdfast.cli.supervisor import (
    FIRST_DELAY_SECONDS,
    HEALTHY_SECONDS,
    LONGEST_DELAY_SECONDS,
    RestartDelays,
)

ROOT = Path(__file__).parents[2]
# Far more than any of this takes, also on a machine that has other things to do.
WAIT_SECONDS = 60.0
END = ""


class Supervised:
    """A supervisor in a session of its own, and the lines that it and its processes write."""

    def __init__(self, run: str, count: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.supervised", run, str(count)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.pid = self._process.pid
        self._queues = [queue.Queue[str](), queue.Queue[str]()]
        self._readers = [
            threading.Thread(target=self._read, args=pair, daemon=True)
            for pair in zip((self._process.stdout, self._process.stderr), self._queues, strict=True)
        ]
        for reader in self._readers:
            reader.start()

    @staticmethod
    def _read(stream: Iterator[str], lines: "queue.Queue[str]") -> None:
        for line in stream:
            lines.put(line.rstrip())
        lines.put(END)

    def line(self) -> str:
        """The next line; END when the supervisor and all processes have ended."""
        return self._queues[0].get(timeout=WAIT_SECONDS)

    def lines(self, count: int) -> list[str]:
        return [self.line() for _ in range(count)]

    def rest(self) -> list[str]:
        return list(iter(self.line, END))

    def log_line(self, event: str) -> dict[str, object]:
        while (line := self._queues[1].get(timeout=WAIT_SECONDS)) != END:
            entry: dict[str, object] = json.loads(line)
            if entry["event"] == event:
                return entry
        raise AssertionError(f"The supervisor ended without the line {event}.")

    def exit_code(self) -> int:
        return self._process.wait(WAIT_SECONDS)

    def wait_until_up(self, count: int) -> list[int]:
        """The pids of the processes. The supervisor says once that the first one is ready."""
        said = self.lines(count + 1)
        assert said.count(f"ready {ADDRESS}") == 1
        assert said[0].startswith("up ")
        return [int(line.removeprefix("up ")) for line in said if line.startswith("up ")]

    def close(self) -> None:
        self._process.kill()
        self._process.wait(WAIT_SECONDS)
        for reader in self._readers:
            reader.join(WAIT_SECONDS)
        for stream in (self._process.stdout, self._process.stderr):
            assert stream is not None
            stream.close()


Supervise = Callable[[str, int], Supervised]


@pytest.fixture
def supervise() -> Iterator[Supervise]:
    started: list[Supervised] = []

    def start(run: str, count: int) -> Supervised:
        started.append(Supervised(run, count))
        return started[-1]

    yield start
    for supervised in started:
        supervised.close()


def test_the_delay_of_restarts_doubles_up_to_its_limit() -> None:
    delays, last, found = RestartDelays(), None, []
    for _ in range(9):
        last = delays.next_delay(last, lived_seconds=0.1)
        found.append(last)

    assert found == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]
    assert (found[0], found[-1]) == (FIRST_DELAY_SECONDS, LONGEST_DELAY_SECONDS)


def test_a_process_that_was_healthy_is_started_again_soon() -> None:
    assert RestartDelays().next_delay(30.0, HEALTHY_SECONDS - 1) == LONGEST_DELAY_SECONDS
    assert RestartDelays().next_delay(30.0, HEALTHY_SECONDS) == FIRST_DELAY_SECONDS


@pytest.mark.slow
def test_a_process_that_is_killed_is_started_again_and_the_others_go_on(
    supervise: Supervise,
) -> None:
    supervised = supervise("wait_for_signal", 3)
    first, second, third = supervised.wait_until_up(3)

    os.kill(second, signal.SIGKILL)
    word, pid = supervised.line().split()

    assert word == "up"
    assert int(pid) not in (first, second, third)
    ended = supervised.log_line("process.ended")
    assert (ended["pid"], ended["how"]) == (second, "was killed by signal 9 (Killed)")
    os.kill(supervised.pid, signal.SIGTERM)
    stopped = {f"got {pid} SIGTERM" for pid in (first, third, int(pid))}
    assert set(supervised.rest()) == {"stopping", *stopped}
    assert supervised.exit_code() == 0


@pytest.mark.slow
def test_ctrl_c_in_a_terminal_stops_all_processes_once(supervise: Supervise) -> None:
    supervised = supervise("wait_for_signal", 3)
    pids = supervised.wait_until_up(3)

    # A terminal sends it to the whole process group.
    os.killpg(supervised.pid, signal.SIGINT)

    assert sorted(supervised.rest()) == sorted(
        ["stopping", *(f"got {pid} SIGTERM" for pid in pids)]
    )
    assert supervised.exit_code() == 0


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_a_second_signal_asks_the_processes_to_hurry(
    supervise: Supervise, number: signal.Signals
) -> None:
    supervised = supervise("wait_for_two_signals", 2)
    pids = supervised.wait_until_up(2)

    os.kill(supervised.pid, number)
    assert set(supervised.lines(3)) == {"stopping", *(f"got {pid} SIGTERM" for pid in pids)}
    os.kill(supervised.pid, number)

    assert set(supervised.rest()) == {f"got {pid} SIGINT" for pid in pids}
    assert supervised.exit_code() == 0


@pytest.mark.slow
def test_a_process_that_does_not_end_well_shows_in_the_exit_code(supervise: Supervise) -> None:
    supervised = supervise("end_badly", 2)
    supervised.wait_until_up(2)

    os.kill(supervised.pid, signal.SIGTERM)

    assert supervised.exit_code() == 1


@pytest.mark.slow
def test_if_the_server_cannot_start_it_says_so_once_and_ends(supervise: Supervise) -> None:
    supervised = supervise("fail_to_start", 4)

    up, *rest = supervised.rest()

    assert up.startswith("up ")
    assert rest == [f"error {SENTENCE}"]
    assert supervised.exit_code() == 1


@pytest.mark.slow
def test_if_the_first_process_dies_before_it_is_ready_the_server_says_how_and_ends(
    supervise: Supervise,
) -> None:
    supervised = supervise("die_before_ready", 4)

    assert supervised.rest() == [
        "error The first process of the server ended with exit code 7 before it was ready."
    ]
    assert supervised.exit_code() == 1


@pytest.mark.slow
def test_a_process_that_cannot_start_later_is_tried_again_with_growing_delays(
    supervise: Supervise,
) -> None:
    supervised = supervise("start_once", 2)
    supervised.wait_until_up(1)

    ends = [supervised.log_line("process.ended") for _ in range(4)]

    assert {end["why"] for end in ends} == {SENTENCE}
    assert [end["restart_seconds"] for end in ends] == [0.01, 0.02, 0.04, DELAYS.longest_seconds]
    os.kill(supervised.pid, signal.SIGTERM)
    supervised.rest()
    assert supervised.exit_code() == 0


@pytest.mark.slow
def test_processes_that_die_as_soon_as_they_are_ready_do_not_keep_the_server_from_stopping(
    supervise: Supervise,
) -> None:
    supervised = supervise("die_when_ready", 2)
    for _ in range(6):
        supervised.log_line("process.ended")

    os.kill(supervised.pid, signal.SIGTERM)

    assert supervised.rest() == [f"ready {ADDRESS}", "stopping"]
    supervised.exit_code()


@pytest.mark.slow
def test_a_server_that_is_stopped_before_it_is_ready_ends_well(supervise: Supervise) -> None:
    supervised = supervise("never_be_ready", 2)
    assert supervised.line().startswith("up ")

    os.kill(supervised.pid, signal.SIGTERM)

    assert supervised.rest() == ["stopping"]
    assert supervised.exit_code() == 0


@pytest.mark.slow
@pytest.mark.skipif(
    sys.platform != "linux", reason="Only Linux tells a process that its parent died."
)
def test_the_processes_stop_if_the_supervisor_is_killed(supervise: Supervise) -> None:
    supervised = supervise("wait_for_signal", 3)
    pids = supervised.wait_until_up(3)

    os.kill(supervised.pid, signal.SIGKILL)

    assert set(supervised.rest()) == {f"got {pid} SIGTERM" for pid in pids}
