"""Virtual environments for tools with requirements: built once per set, kept, and never used half-made.

An environment is whole when its mark is there; the mark is written last. Whoever builds holds the kernel's lock on
the set's lock file, which dies with the process, so what lies there unmarked and unlocked is a leftover.

The empty set is the environment that has pip, which fills all others.
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
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Final

from holdfast.errors import ToolError

log = logging.getLogger(__name__)

MAX_ERROR_LINES: Final = 8
"""Of pip's last words, for the model and whoever made the tool."""

RETRY_SECONDS: Final = 60.0
"""A set that could not be installed is not tried again before that: models repeat failed calls at once."""

_MARK: Final = "holdfast-complete"
_VENV: Final = (sys.executable, "-I", "-m", "venv")
_LOCK_PAUSE_SECONDS: Final = 0.2
_MAX_LINE_CHARS: Final = 400
# Names in our environment that pip itself may need: its own settings, and the way to the network.
_FOR_PIP: Final = ("PATH", "HOME", "LANG", "TMPDIR", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
_NETWORK: Final = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
_STEPS: Final = ("Collecting", "Downloading", "Installing", "Successfully")


class Environments:
    def __init__(self, folder: Path, *, install_seconds: float) -> None:
        self._folder = folder
        self._install_seconds = install_seconds
        self._builds: dict[Path, asyncio.Task[None]] = {}
        self._failures: dict[Path, tuple[float, str]] = {}

    async def ready(self, requirements: Sequence[str]) -> Path:
        """The environment with exactly these. However many ask, it is built once; ToolError if it cannot be."""
        path = self._folder / _key(requirements)
        if _is_whole(path):
            return path
        self._refuse_repetition(path)
        build = self._builds.get(path)
        if build is None:
            build = self._builds[path] = asyncio.create_task(self._build(path, requirements))
            build.add_done_callback(lambda _: self._builds.pop(path, None))
        # One who is cancelled does not take the others' environment away.
        await asyncio.shield(build)
        return path

    async def close(self) -> None:
        builds = list(self._builds.values())
        for build in builds:
            build.cancel()
        await asyncio.gather(*builds, return_exceptions=True)

    async def _build(self, path: Path, requirements: Sequence[str]) -> None:
        try:
            async with asyncio.timeout(self._install_seconds), self._locked(path):
                if not _is_whole(path):
                    await self._fill(path, requirements)
        except TimeoutError:
            failure = f"{_named(requirements)} took longer than {self._install_seconds:g} seconds."
            raise self._failed(path, failure) from None
        except OSError as error:
            raise self._failed(path, f"{_named(requirements)} failed: {error}") from error

    @contextlib.asynccontextmanager
    async def _locked(self, path: Path) -> AsyncIterator[None]:
        self._folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(
            path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
        )
        try:
            while not _lock(descriptor):  # noqa: ASYNC110 - the kernel rings no bell of ours
                await asyncio.sleep(_LOCK_PAUSE_SECONDS)
            yield
        finally:
            os.close(descriptor)

    async def _fill(self, path: Path, requirements: Sequence[str]) -> None:
        told = {"requirements": ",".join(requirements) or "pip"}
        log.info("packages.installing", extra=told)
        started_at = time.monotonic()
        try:
            await asyncio.to_thread(shutil.rmtree, path, ignore_errors=True)
            if requirements:
                installer = await self.ready(())
                await self._step(path, requirements, *_VENV, "--without-pip", str(path))
                await self._step(path, requirements, *_install(installer, path, requirements))
            else:
                await self._step(path, requirements, *_VENV, str(path))
            (path / _MARK).write_text("\n".join(requirements), encoding="utf-8")
        except BaseException:
            shutil.rmtree(path, ignore_errors=True)
            raise
        spent = {"milliseconds": round((time.monotonic() - started_at) * 1000)}
        log.info("packages.installed", extra={**told, **spent})

    async def _step(self, path: Path, requirements: Sequence[str], *command: str) -> None:
        last: deque[str] = deque(maxlen=MAX_ERROR_LINES)
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=_environment(),
            start_new_session=True,
        )
        try:
            async for line in _lines(process):
                last.append(line)
                if line.startswith(_STEPS):
                    log.info("packages.progress", extra={"pip": line})
            code = await process.wait()
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
        if code != 0:
            raise self._failed(path, f"{_named(requirements)} failed:\n" + "\n".join(last))

    def _failed(self, path: Path, text: str) -> ToolError:
        log.warning("packages.failed", extra={"reason": text})
        self._failures[path] = (time.monotonic() + RETRY_SECONDS, text)
        return ToolError(text)

    def _refuse_repetition(self, path: Path) -> None:
        until, text = self._failures.get(path, (0.0, ""))
        if time.monotonic() < until:
            raise ToolError(text)
        self._failures.pop(path, None)


def _install(installer: Path, path: Path, requirements: Sequence[str]) -> list[str]:
    return [
        *(str(installer / "bin" / "python"), "-I", "-m", "pip"),
        *("--python", str(path / "bin" / "python"), "--no-input", "--disable-pip-version-check"),
        *("install", "--progress-bar", "off", "--", *requirements),
    ]


def _key(requirements: Sequence[str]) -> str:
    """The set and what compiled packages depend on: another Python needs another environment."""
    python = (sys.implementation.cache_tag, platform.machine(), sys.base_prefix)
    text = "\n".join([*sorted(requirements), *map(str, python)])
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _named(requirements: Sequence[str]) -> str:
    return f"Installing {', '.join(requirements) or 'pip'}"


def _is_whole(path: Path) -> bool:
    return (path / _MARK).exists()


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


async def _lines(process: asyncio.subprocess.Process) -> AsyncIterator[str]:
    """What the process says, line by line; a line without end is cut, so that memory stays bounded."""
    assert process.stdout is not None  # noqa: S101 - asked for above
    rest = b""
    while chunk := await process.stdout.read(_MAX_LINE_CHARS):
        *whole, rest = (rest + chunk).split(b"\n")
        for line in (*whole, *((rest,) if len(rest) > _MAX_LINE_CHARS else ())):
            if text := line.decode(errors="replace").strip():
                yield text[:_MAX_LINE_CHARS]
        rest = b"" if len(rest) > _MAX_LINE_CHARS else rest
    if rest.strip():
        yield rest.decode(errors="replace").strip()[:_MAX_LINE_CHARS]


def _environment() -> dict[str, str]:
    """pip's own settings and no key. Wheels only, unless the operator says otherwise: building a package runs its
    code, here and outside of the sandbox."""
    taken = {
        name: value
        for name, value in os.environ.items()
        if name in _FOR_PIP or name.upper() in _NETWORK or name.startswith(("PIP_", "LC_"))
    }
    return {"PIP_ONLY_BINARY": ":all:", **taken}
