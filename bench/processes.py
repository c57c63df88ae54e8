"""The processes of a bench: servers, the provider, the load generator. Each is stopped by its starter."""

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Timer
from typing import IO

import psutil  # type: ignore[import-untyped]  # it brings no types

from bench.client import Client

ROOT = Path(__file__).parents[1]
HOLDFAST = Path(sys.executable).with_name("holdfast")
START_SECONDS = 60.0
STOP_SECONDS = 15.0
LOAD_GRACE_SECONDS = 60.0

# A process is idle when it used no more than this share of a core for this long.
_IDLE_SHARE = 0.03
_IDLE_SECONDS = 0.4
_IDLE_LIMIT_SECONDS = 30.0

_ADDRESS = re.compile(r"http://[\w.]+:\d+")
_MB = 1_000_000


@dataclass(frozen=True, slots=True)
class RunningProcess:
    process: subprocess.Popen[str]
    address: str
    # On the clock of ``time.perf_counter``.
    started_at: float

    def memory_mb(self) -> float:
        """Resident memory of the process itself, without the tool sandbox's fork server."""
        return float(psutil.Process(self.process.pid).memory_info().rss) / _MB

    def peak_memory_mb(self) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii")
        line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024 / _MB

    def cpu_ms(self) -> float:
        return measure_cpu_ms(self.process.pid)

    def family_cpu_ms(self) -> float:
        """CPU time with all of its processes, for a server that has several."""
        process = psutil.Process(self.process.pid)
        times = [one.cpu_times() for one in (process, *process.children(recursive=True))]
        return float(sum(spent.user + spent.system for spent in times)) * 1000

    async def wait_for_children(self, count: int) -> list[int]:
        """The pids of its own processes, once there are so many and all are idle."""
        process = psutil.Process(self.process.pid)
        async with asyncio.timeout(START_SECONDS):
            while True:
                pids = [child.pid for child in process.children()]
                if len(pids) >= count:
                    break
                await asyncio.sleep(_IDLE_SECONDS)
            for pid in pids:
                await _wait_until_idle(pid)
        return pids

    def kill(self) -> None:
        """Let it die without a chance to clean up."""
        self.process.kill()
        self.process.wait(STOP_SECONDS)

    async def wait_until_idle(self) -> None:
        """Wait until the process is idle, which means that its providers are loaded."""
        await _wait_until_idle(self.process.pid)


def measure_cpu_ms(pid: int) -> float:
    """CPU time of a process so far, in steps of 10 ms, so only differences over much work are meaningful."""
    spent = psutil.Process(pid).cpu_times()
    return float(spent.user + spent.system) * 1000


@contextmanager
def start_process(
    command: Sequence[str | Path], stderr: IO[str] | None = None, **variables: str
) -> Iterator[RunningProcess]:
    """A process whose first line of output names its address."""
    started_at = time.perf_counter()
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env=_environment() | variables,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
    )
    try:
        yield RunningProcess(process, _read_address(process), started_at)
    finally:
        _stop(process)


@contextmanager
def provider() -> Iterator[RunningProcess]:
    with start_process([sys.executable, "-m", "bench.provider"]) as process:
        yield process


@contextmanager
def server(
    home: Path, provider_address: str, database_url: str | None, variables: Mapping[str, str]
) -> Iterator[RunningProcess]:
    """A Holdfast server as an operator starts it, with one provider configured."""
    options = ["--port", "0", "--home", str(home)]
    # Extra output of the server must not be mixed with the results.
    log = (home / "server.log").open("w") if variables else None
    if database_url is not None:
        options += ["--database-url", database_url]
    with start_process(
        [HOLDFAST, "server", *options],
        OPENAI_API_KEY="sk-bench",
        OPENAI_BASE_URL=f"{provider_address}/v1",
        stderr=log,
        **{"HOLDFAST_LOG_LEVEL": "warning", **variables},
    ) as process:
        yield process


@asynccontextmanager
async def open_client(address: str) -> AsyncIterator[Client]:
    client = await Client.connect(address)
    try:
        yield client
    finally:
        client.close()


async def seconds_to_first_answer(process: RunningProcess, path: str) -> float:
    """From the start of the process to its first status 200."""
    async with open_client(process.address) as client:
        status, _ = await client.request("GET", path)
    if status != 200:
        raise RuntimeError(f"GET {path}: {status}")
    return time.perf_counter() - process.started_at


def run_to_end(command: Sequence[str], seconds: float) -> str:
    """The output of a process that ends by itself about this many seconds after its start."""
    ended = subprocess.run(
        command,
        cwd=ROOT,
        env=_environment(),
        stdout=subprocess.PIPE,
        text=True,
        timeout=seconds + LOAD_GRACE_SECONDS,
        check=True,
    )
    return ended.stdout


async def _wait_until_idle(pid: int) -> None:
    give_up_at = time.monotonic() + _IDLE_LIMIT_SECONDS
    while time.monotonic() < give_up_at:
        before = measure_cpu_ms(pid)
        await asyncio.sleep(_IDLE_SECONDS)
        spent_ms = measure_cpu_ms(pid) - before
        if spent_ms <= _IDLE_SHARE * _IDLE_SECONDS * 1000 and not _is_runnable(pid):
            return
    raise TimeoutError("The server did not come to rest.")


def _is_runnable(pid: int) -> bool:
    """Whether a thread of the process is ready to run. On a busy machine such a process may seem idle."""
    states = [
        stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[0]
        for stat in Path(f"/proc/{pid}/task").glob("*/stat")
    ]
    return any(state != "S" for state in states)


def _environment() -> dict[str, str]:
    """The environment of a process, without the Holdfast settings of the user."""
    inherited = {key: os.environ[key] for key in ("PATH", "LANG", "HOME") if key in os.environ}
    return inherited | {"PYTHONUNBUFFERED": "1"}


def _read_address(process: subprocess.Popen[str]) -> str:
    if process.stdout is None:
        raise RuntimeError("The process has no output to read.")
    # A pipe cannot be read with a timeout, so a process without output is killed instead.
    limit = Timer(START_SECONDS, process.kill)
    limit.start()
    try:
        named = _ADDRESS.search(process.stdout.readline())
    finally:
        limit.cancel()
    if named is None:
        raise RuntimeError(f"The process {process.args!r} did not start.")
    return named[0]


def _stop(process: subprocess.Popen[str]) -> None:
    with suppress(ProcessLookupError):
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(STOP_SECONDS)
    if process.stdout is not None:
        process.stdout.close()
