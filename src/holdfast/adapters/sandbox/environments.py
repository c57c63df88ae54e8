"""Virtual environments for tools with requirements: built once per set of requirements, and reused.

An environment is complete when its mark file exists; the mark is written last, and its modification time is the last
use. To build or remove an environment a process holds the kernel's lock (flock) on a lock file, which is released when
the process and the installer that it started have died; so a folder without a mark and without a lock is a leftover.

The environment of the empty set contains pip, which installs into all others.
"""

import asyncio
import contextlib
import fcntl
import hashlib
import logging
import os
import platform
import shutil
import signal
import stat
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio

from holdfast.errors import ToolError

log = logging.getLogger(__name__)

MAX_ERROR_LINES: Final = 8
"""How many of pip's last lines go into the error."""

RETRY_SECONDS: Final = 60.0
"""A failed installation is not tried again within this time: models repeat failed calls at once."""

MAX_BUILDS: Final = 2
"""Builds at once in this process. The install time of others begins when they have a slot."""

ENVIRONMENTS: Final = "environments"
"""The folder in the home that contains them."""

MAX_ENVIRONMENTS: Final = 100
"""How many are kept. Before one more is built, those used longest ago are removed."""

IN_USE_SECONDS: Final = 3600.0
"""An environment that was used within this time may still be in use, and is not removed."""

MAX_FAILURES: Final = 1000
"""How many failures are remembered, the latest ones."""

_COMPLETE_MARK: Final = "holdfast-complete"
_REMOVAL_MARK: Final = "holdfast-leaving"
_VENV: Final = (sys.executable, "-I", "-m", "venv")
# Before a command: tools may run as another user. A shell sets the umask because uvloop has no argument for it.
_WITH_READABLE_FILES: Final = ("/bin/sh", "-c", 'umask 022; exec "$@"', "sh")
_LOCK_PAUSE_SECONDS: Final = 0.2
_MAX_LINE_CHARS: Final = 400
# Environment variables that pip may need: its own settings, and the proxy.
_PIP_VARIABLES: Final = ("PATH", "HOME", "LANG", "TMPDIR", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
_PROXY_VARIABLES: Final = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
_PROGRESS_WORDS: Final = ("Collecting", "Downloading", "Installing", "Successfully")


class Environments:
    def __init__(
        self, folder: Path, *, install_seconds: float, max_environments: int = MAX_ENVIRONMENTS
    ) -> None:
        self._folder = folder
        self._max_environments = max_environments
        self._slots = asyncio.Semaphore(MAX_BUILDS)
        self._install_seconds = install_seconds
        self._builds: dict[Path, asyncio.Task[None]] = {}
        self._failures: dict[Path, tuple[float, str]] = {}

    async def prepare(self, requirements: Sequence[str]) -> Path:
        """Return the environment with exactly these requirements; build it if need be, once for all that wait. Raises
        ToolError if that fails."""
        path = self._folder / _environment_key(requirements)
        if _mark_used(path):
            return path
        self._refuse_early_retry(path)
        build = self._builds.get(path)
        if build is None:
            build = self._builds[path] = asyncio.create_task(self._build(path, requirements))
            build.add_done_callback(lambda _: self._builds.pop(path, None))
        # The build goes on if one of those that wait is cancelled.
        await asyncio.shield(build)
        return path

    async def close(self) -> None:
        builds = list(self._builds.values())
        for build in builds:
            build.cancel()
        await asyncio.gather(*builds, return_exceptions=True)

    async def _build(self, path: Path, requirements: Sequence[str]) -> None:
        # Other builds wait for the empty set while they hold a slot, so it needs none itself.
        slot = self._slots if requirements else contextlib.nullcontext()
        try:
            async with slot, asyncio.timeout(self._install_seconds), self._hold_lock(path) as lock:
                if not _mark_used(path):
                    await self._install(path, requirements, lock)
        except TimeoutError:
            failure = f"{_describe_install(requirements)} took longer than {self._install_seconds:g} seconds."
            raise self._record_failure(path, failure) from None
        except OSError as error:
            raise self._record_failure(
                path, f"{_describe_install(requirements)} failed: {error}"
            ) from error

    @contextlib.asynccontextmanager
    async def _hold_lock(self, path: Path) -> AsyncIterator[int]:
        # The parent is the home folder, which only its owner may read.
        self._folder.parent.mkdir(mode=stat.S_IRWXU, parents=True, exist_ok=True)
        self._folder.mkdir(exist_ok=True)
        descriptor = _open_lock(path)
        try:
            while not _try_lock(descriptor):  # noqa: ASYNC110 - flock has no asynchronous form
                await asyncio.sleep(_LOCK_PAUSE_SECONDS)
            yield descriptor
        finally:
            os.close(descriptor)

    async def _install(self, path: Path, requirements: Sequence[str], lock: int) -> None:
        fields = {"requirements": ",".join(requirements) or "pip"}
        log.info("packages.installing", extra=fields)
        started_at = time.monotonic()
        run = partial(self._run_command, path, requirements, lock)
        try:
            await _remove(path)
            if requirements:
                await self._make_room(path, requirements)
                installer = await self.prepare(())
                await run(*_VENV, "--without-pip", str(path))
                await run(*_pip_command(installer, path, requirements))
            else:
                await run(*_VENV, str(path))
            (path / _COMPLETE_MARK).write_text("\n".join(requirements), encoding="utf-8")
        except BaseException:
            await _remove(path)
            raise
        duration = {"milliseconds": round((time.monotonic() - started_at) * 1000)}
        log.info("packages.installed", extra={**fields, **duration})

    async def _make_room(self, path: Path, requirements: Sequence[str]) -> None:
        remaining = await asyncio.to_thread(
            remove_surplus, self._folder, self._max_environments - 1
        )
        if remaining >= self._max_environments:
            failure = f"This server keeps {remaining} sets of packages, and all were used lately."
            raise self._record_failure(path, f"{_describe_install(requirements)} failed: {failure}")

    async def _run_command(
        self, path: Path, requirements: Sequence[str], lock: int, *command: str
    ) -> None:
        last: deque[str] = deque(maxlen=MAX_ERROR_LINES)
        process = await asyncio.create_subprocess_exec(
            *_WITH_READABLE_FILES,
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=_pip_environment(),
            start_new_session=True,
            # If this process is killed, the command goes on and writes to the folder: nobody may use that meanwhile.
            pass_fds=[lock],
        )
        try:
            async for line in _read_lines(process):
                last.append(line)
                if line.startswith(_PROGRESS_WORDS):
                    log.info("packages.progress", extra={"pip": line})
            code = await process.wait()
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
        if code != 0:
            raise self._record_failure(
                path, f"{_describe_install(requirements)} failed:\n" + "\n".join(last)
            )

    def _record_failure(self, path: Path, text: str) -> ToolError:
        log.warning("packages.failed", extra={"reason": text})
        self._failures[path] = (time.monotonic() + RETRY_SECONDS, text)
        if len(self._failures) > MAX_FAILURES:
            del self._failures[next(iter(self._failures))]
        return ToolError(text)

    def _refuse_early_retry(self, path: Path) -> None:
        until, text = self._failures.get(path, (0.0, ""))
        if time.monotonic() < until:
            raise ToolError(text)
        self._failures.pop(path, None)


def _pip_command(installer: Path, path: Path, requirements: Sequence[str]) -> list[str]:
    return [
        *(str(installer / "bin" / "python"), "-I", "-m", "pip"),
        *("--python", str(path / "bin" / "python"), "--no-input", "--disable-pip-version-check"),
        *("install", "--progress-bar", "off", "--", *requirements),
    ]


def _environment_key(requirements: Sequence[str]) -> str:
    """A hash of the requirements and of the interpreter, on which compiled packages depend."""
    python = (sys.implementation.cache_tag, platform.machine(), sys.base_prefix)
    text = "\n".join([*sorted(requirements), *map(str, python)])
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _describe_install(requirements: Sequence[str]) -> str:
    return f"Installing {', '.join(requirements) or 'pip'}"


def _mark_used(path: Path) -> bool:
    """Whether the environment is complete. Updates the time of its last use, so that it is not removed."""
    try:
        os.utime(path / _COMPLETE_MARK)
    except FileNotFoundError:
        return False
    except OSError:  # it exists and belongs to another user, who also removes it
        return True
    return True


def remove_surplus(folder: Path, max_environments: int) -> int:
    """Remove leftovers and the environments used longest ago until ``max_environments`` are left, but none that may be in
    use. Returns how many are left."""
    environments = sorted((path for path in folder.iterdir() if path.is_dir()), key=_last_used_at)
    surplus = environments[: max(0, len(environments) - max_environments)]
    return len(environments) - sum(_remove_unused(path) for path in surplus)


def _last_used_at(path: Path, mark: str = _COMPLETE_MARK) -> float:
    """0.0 if it is not complete."""
    try:
        return (path / mark).stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _remove_unused(path: Path) -> bool:
    """Renames the mark before reading its time: a process that looks later finds none, and waits for the lock."""
    descriptor = _open_lock(path)
    try:
        if not _try_lock(descriptor):
            return False
        with contextlib.suppress(FileNotFoundError):
            (path / _COMPLETE_MARK).rename(path / _REMOVAL_MARK)
        if _last_used_at(path, _REMOVAL_MARK) > time.time() - IN_USE_SECONDS:
            (path / _REMOVAL_MARK).rename(path / _COMPLETE_MARK)
            return False
        shutil.rmtree(path, ignore_errors=True)
    finally:
        os.close(descriptor)
    return True


async def _remove(path: Path) -> None:
    await finish_despite_cancel(asyncio.to_thread(shutil.rmtree, path, ignore_errors=True))


def _open_lock(path: Path) -> int:
    return os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


async def _read_lines(process: asyncio.subprocess.Process) -> AsyncIterator[str]:
    """The output of the process, line by line. Lines that are too long are split, so that memory stays bounded."""
    assert process.stdout is not None  # noqa: S101 - the process was started with a pipe
    rest = b""
    while chunk := await process.stdout.read(_MAX_LINE_CHARS):
        *complete, rest = (rest + chunk).split(b"\n")
        for line in (*complete, *((rest,) if len(rest) > _MAX_LINE_CHARS else ())):
            if text := line.decode(errors="replace").strip():
                yield text[:_MAX_LINE_CHARS]
        rest = b"" if len(rest) > _MAX_LINE_CHARS else rest
    if rest.strip():
        yield rest.decode(errors="replace").strip()[:_MAX_LINE_CHARS]


def _pip_environment() -> dict[str, str]:
    """Environment variables for pip, without the server's secrets. Wheels only, unless the operator sets
    ``PIP_ONLY_BINARY``: building a package would run its code outside of the sandbox."""
    variables = {
        name: value
        for name, value in os.environ.items()
        if name in _PIP_VARIABLES
        or name.upper() in _PROXY_VARIABLES
        or name.startswith(("PIP_", "LC_"))
    }
    return {"PIP_ONLY_BINARY": ":all:", **variables}


async def finish_despite_cancel(work: Coroutine[Any, Any, None]) -> None:
    """Await the work to its end even if this task is cancelled; raise the cancellation afterwards."""
    task = asyncio.create_task(work)
    cancelled: asyncio.CancelledError | None = None
    # A scope of anyio that was cancelled would cancel this task again in each round of the loop.
    with anyio.CancelScope(shield=True):
        while not task.done():
            try:
                await asyncio.shield(task)
            except asyncio.CancelledError as error:
                cancelled = error
    if cancelled is not None:
        raise cancelled
