"""Several processes with one home: what they make there at the same time is made once, and whole."""

import fcntl
import json
import os
import select
import subprocess
import sys
import zipfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TextIO

import pytest
from tests.support.waiting import eventually

from holdfast.adapters.sandbox.environments import _environment_key

pytestmark = pytest.mark.slow

WAIT_SECONDS = 100

# Says that it is there, and goes on when all of them are.
BEGIN = """
import json, os, sys
from pathlib import Path
def begin():
    print("there", flush=True)
    sys.stdin.readline()
def tell(value):
    print(json.dumps(value), flush=True)
"""

INSTALL = f"""{BEGIN}
import asyncio, logging
from holdfast.adapters.sandbox import environments
installed = []
class Handler(logging.Handler):
    def emit(self, record):
        if record.getMessage() == "packages.installing":
            installed.append(record.requirements)
logging.basicConfig(level=logging.INFO, handlers=[Handler()])
if "wait" in sys.argv:
    environments._VENV = ("sh", "-c", f"echo begun; echo x > {{sys.argv[2]}}; read _ < {{sys.argv[3]}}", "sh")
async def main():
    made = environments.Environments(Path(sys.argv[1]), install_seconds=100)
    return await made.prepare(("greeting==1.0",) if "wait" not in sys.argv else ())
begin()
path = asyncio.run(main())
tell([str(path), installed, os.listdir(path)])
"""

LOAD_KEY = f"""{BEGIN}
from holdfast.adapters.store.cipher import load_home_cipher
begin()
tell(load_home_cipher(Path(sys.argv[1]))._key)
"""


def start_script(
    stack: ExitStack, script: str, *arguments: object, **variables: str
) -> "subprocess.Popen[str]":
    process = subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **variables},
    )
    stack.enter_context(process)
    stack.callback(process.kill)
    return process


def wait_until_there(process: "subprocess.Popen[str]") -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == "there\n"


def go_on(process: "subprocess.Popen[str]") -> None:
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


def run_at_once(script: str, count: int, home: Path, **variables: str) -> list[Any]:
    """What each of the processes says; they begin together."""
    with ExitStack() as stack:
        processes = [start_script(stack, script, home, **variables) for _ in range(count)]
        for process in processes:
            wait_until_there(process)
        for process in processes:
            go_on(process)
        return [json.loads(process.communicate(timeout=WAIT_SECONDS)[0]) for process in processes]


def test_two_processes_install_the_same_packages_once(tmp_path: Path) -> None:
    info = "greeting-1.0.dist-info"
    with zipfile.ZipFile(tmp_path / "greeting-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("greeting.py", "")
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: greeting\nVersion: 1.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    pip = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path)}

    results = run_at_once(INSTALL, 2, tmp_path / "home" / "environments", **pip)

    (path, _, names), (other_path, _, other_names) = results
    assert path == other_path
    assert "holdfast-complete" in names
    assert "holdfast-complete" in other_names
    assert list(Path(path).glob("lib/*/site-packages/greeting.py"))
    installed = [name for _, names, _ in results for name in names]
    assert sorted(installed) == ["greeting==1.0", "pip"]


async def test_while_an_installer_writes_nobody_else_builds_even_if_its_server_was_killed(
    tmp_path: Path,
) -> None:
    begun, gate, folder = tmp_path / "begun", tmp_path / "gate", tmp_path / "home" / "environments"
    for fifo in (begun, gate):
        os.mkfifo(fifo)
    # Open for both, so that no opening waits.
    begun_fd, gate_fd = (os.open(fifo, os.O_RDWR) for fifo in (begun, gate))
    with ExitStack() as stack:
        for fd in (begun_fd, gate_fd):
            stack.callback(os.close, fd)
        server = start_script(stack, INSTALL, folder, begun, gate, "wait")
        wait_until_there(server)
        go_on(server)
        assert select.select([begun_fd], [], [], WAIT_SECONDS)[0]
        server.kill()
        server.wait(WAIT_SECONDS)
        lock = stack.enter_context((folder / f"{_environment_key(())}.lock").open())

        assert not can_lock(lock)
        os.write(gate_fd, b"\n")
        await eventually(lambda: can_lock(lock), seconds=WAIT_SECONDS)


def can_lock(file: TextIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def test_processes_that_start_at_once_in_a_new_home_have_the_same_key(tmp_path: Path) -> None:
    keys = run_at_once(LOAD_KEY, 4, tmp_path / "home")

    assert len(set(keys)) == 1
    assert keys[0]
    assert [path.name for path in (tmp_path / "home").iterdir()] == ["secret.key"]
