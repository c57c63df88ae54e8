"""The official TypeScript client on the same wire: send, stream, disconnect, resume, cancel (wire-v1 §4)."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.support.server_process import ServerProcess
from tests.support.stream_items import (
    assert_ended,
    kinds_in_turn,
    message_keys,
    seq_ids,
    text_of,
    without_dates,
)

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).with_name("typescript")
PACKAGE = Path("node_modules", "@letta-ai", "letta-client", "package.json")
# Both well below the limit of a test.
INSTALL_SECONDS = 60
RUN_SECONDS = 45


@pytest.fixture(scope="module")
def program(pytestconfig: pytest.Config) -> Path:
    """The script and its client, fetched once and kept in pytest's cache."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        pytest.skip("node and npm are not installed")
    assert pytestconfig.cache is not None
    folder = Path(pytestconfig.cache.mkdir("typescript"))
    shutil.copytree(SCRIPT, folder, dirs_exist_ok=True)
    if not _is_installed(folder):
        _install(npm, folder)
    return folder / "smoke.mjs"


def _is_installed(folder: Path) -> bool:
    wanted = json.loads((folder / "package.json").read_text())["dependencies"]
    found = folder / PACKAGE
    return found.exists() and json.loads(found.read_text())["version"] in wanted.values()


def _install(npm: str, folder: Path) -> None:
    command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=INSTALL_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        pytest.skip("npm could not fetch @letta-ai/letta-client in time")
    if done.returncode != 0:
        pytest.skip(f"npm could not fetch @letta-ai/letta-client: {done.stderr[-500:]}")


def test_the_typescript_client_sends_streams_leaves_and_resumes(
    program: Path, server: ServerProcess
) -> None:
    done = subprocess.run(
        ["node", program, server.address],
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)

    assert told["sent"]["messages"][0]["message_type"] == "assistant_message"
    assert told["sent"]["stop_reason"]["stop_reason"] == "end_turn"
    for mode in ("steps", "tokens"):
        assert kinds_in_turn(told[mode]) == ["assistant_message", "stop_reason", "usage_statistics"]
        assert_ended(told[mode], "end_turn")
    assert text_of(told["tokens"]) == "1, 2, 3."
    assert len(message_keys(told["tokens"])) == 1

    # A client that disconnected after two events gets the rest once; the run was not affected.
    assert seq_ids(told["begun"]) == [1, 2]
    assert text_of(told["begun"] + told["resumed"]) == "1, 2, 3, 4."
    assert_ended(told["resumed"], "end_turn")
    assert without_dates(told["replayed"]) == without_dates(told["begun"] + told["resumed"])
    assert told["run"]["status"] == "completed"

    assert list(told["cancelled"].values()) == ["cancelled"]
    assert_ended(told["stopped"], "cancelled")
    assert told["refused"] == 400
