"""What tools leave behind: huge folders, too many files, and processes whose server was killed. Nothing stays."""

import asyncio
import sys
import tempfile
import textwrap
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.waiting import WAIT_SECONDS, eventually

from holdfast.adapters.sandbox.subprocess import SubprocessSandbox
from holdfast.ports.sandbox import SandboxCall, SandboxLimits, SandboxResult

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="Only Linux can adopt orphans."),
]


LIMITS = SandboxLimits(file_bytes=16 * 1024**2, folder_bytes=8 * 1024**2, folder_files=2000)


def call(source: str, **arguments: Any) -> SandboxCall:
    return SandboxCall(
        source=textwrap.dedent(source),
        function="tool",
        arguments=arguments,
        timeout_seconds=WAIT_SECONDS,
        env={},
    )


def entries(folder: Path) -> list[Path]:
    return list(folder.iterdir())


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the folders of calls are."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
async def sandbox(
    temporary: Path, request: pytest.FixtureRequest
) -> AsyncIterator[SubprocessSandbox]:
    made = SubprocessSandbox(limits=getattr(request, "param", None))
    yield made
    await made.close()
    assert entries(temporary) == []


async def run(sandbox: SubprocessSandbox, source: str) -> SandboxResult:
    async with asyncio.timeout(3 * WAIT_SECONDS):
        return await sandbox.run(call(source))


DEEP = """
import os
def tool():
    for _ in range(3000):
        os.mkdir("deeper")
        os.chdir("deeper")
    return "made"
"""

UNREADABLE = """
import os
def tool():
    os.makedirs("a/b/c")
    for path in ("a/b/c", "a/b", "a", "."):
        os.chmod(path, 0)
    return "made"
"""

MANY = """
def tool():
    for number in range(10_000):
        open(str(number), "w").close()
    return "made"
"""


@pytest.mark.parametrize("source", [DEEP, UNREADABLE, MANY], ids=["deep", "unreadable", "many"])
async def test_the_folder_of_a_call_is_removed(
    sandbox: SubprocessSandbox, temporary: Path, source: str
) -> None:
    result = await run(sandbox, source)
    assert (result.status, result.value) == ("finished", "made")
    (root,) = entries(temporary)
    await eventually(lambda: entries(root) == [])


ONE_LARGE_FILE = """
import time
def tool():
    with open("large", "wb") as file:
        file.write(bytes(10 * 1024**2))
    time.sleep(60)
"""

MANY_DEEP_FILES = """
import os, time
def tool():
    for _ in range(150):
        os.mkdir("deeper")
        os.chdir("deeper")
    for number in range(2000):
        open(str(number), "w").close()
    time.sleep(60)
"""

SPARSE_AND_SMALL = """
import time
def tool():
    with open("sparse", "wb") as file:
        file.truncate(15 * 1024**2)
    for number in range(500):
        open(str(number), "w").close()
    time.sleep(1)
    return "made"
"""


@pytest.mark.parametrize("sandbox", [LIMITS], ids=["limited"], indirect=True)
@pytest.mark.parametrize(
    ("source", "error"),
    [
        (ONE_LARGE_FILE, "The tool's files took more than 8388608 bytes and it was killed."),
        (MANY_DEEP_FILES, "The tool made more than 2000 files and was killed."),
        (SPARSE_AND_SMALL, None),
    ],
    ids=["bytes", "files", "little"],
)
async def test_the_folder_of_a_call_is_limited(
    sandbox: SubprocessSandbox, source: str, error: str | None
) -> None:
    result = await run(sandbox, source)
    assert (result.status, result.error) == ("failed" if error else "finished", error)
