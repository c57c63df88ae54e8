"""`holdfast doctor` as an operator meets it, and the sandbox that it speaks of."""

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from letta_client import Letta
from tests.support.python_homes import homes_of_python
from tests.support.server_process import Command, StartServer

from holdfast.adapters.sandbox.isolation import Isolation, isolation_problem

pytestmark = pytest.mark.slow

WHY_NOT_ISOLATED = isolation_problem(Isolation(network=False))

LOOK = '''
def look() -> dict:
    """See where the tool is."""
    import os
    return {"here": os.getcwd(), "home": os.listdir("/home") if os.path.exists("/home") else []}
'''


@pytest.fixture
def home_outside_tmp() -> Iterator[Path]:
    """Isolated tools have a /tmp of their own, so a server's home cannot be in it."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        yield Path(folder)


def test_a_fresh_machine_is_well(run_command: Command, tmp_path: Path) -> None:
    told = run_command("doctor", HOLDFAST_TYPO="1")

    assert told.returncode == 0
    assert (
        "note   settings         HOLDFAST_TYPO is set, but there is no such setting." in told.stdout
    )
    assert "note   sandbox          Level plain: " in told.stdout
    assert told.stdout.endswith("\nNothing is wrong.\n")
    assert not (tmp_path / ".holdfast").exists()


def test_all_bad_settings_are_reported_at_once(holdfast: Command) -> None:
    told = holdfast("doctor", "--port", "http", HOLDFAST_LOG_LEVEL="loud", OPENAI_API_KEY="the-key")

    assert told.returncode == 1
    assert "WRONG  settings  --port is 'http'" in told.stdout
    assert "WRONG  settings  HOLDFAST_LOG_LEVEL is 'loud'" in told.stdout
    assert told.stdout.endswith("\n2 things are wrong.\n")
    assert "the-key" not in told.stdout


def test_what_cannot_be_isolated_does_not_start_and_the_doctor_says_the_same(
    holdfast: Command, home_outside_tmp: Path, tmp_path: Path
) -> None:
    reason = "HOLDFAST_SANDBOX=isolated is not possible here: bubblewrap (the program bwrap) is not"
    settings = {
        "HOLDFAST_SANDBOX": "isolated",
        "PATH": str(tmp_path),
        "HOLDFAST_HOME": str(home_outside_tmp),
    }

    refused = holdfast("server", "--port", "0", **settings)
    told = holdfast("doctor", **settings)

    assert (refused.returncode, refused.stderr.startswith(f"holdfast: {reason}")) == (1, True)
    assert told.returncode == 1
    assert reason in " ".join(told.stdout.split())


def test_tools_cannot_be_allowed_to_write_to_the_home_and_the_doctor_says_the_same(
    holdfast: Command, tmp_path: Path
) -> None:
    settings = {"HOLDFAST_SANDBOX_WRITABLE": str(tmp_path), "HOLDFAST_HOME": str(tmp_path / "home")}

    refused = holdfast("server", "--port", "0", **settings)
    told = holdfast("doctor", **settings)

    reason = (
        f"HOLDFAST_SANDBOX_WRITABLE names {tmp_path}, but tools may not write to Holdfast's own"
    )
    assert (refused.returncode, refused.stderr.startswith(f"holdfast: {reason}")) == (1, True)
    assert told.returncode == 1
    assert reason in " ".join(told.stdout.split())


@pytest.mark.skipif(os.geteuid() != 0, reason="The tests do not run as root.")
def test_a_server_that_runs_as_root_says_whom_its_tools_run_as(
    run_server_command: StartServer, run_command: Command
) -> None:
    server = run_server_command()
    told = run_command("doctor")

    assert server.log.count("sandbox.plain_as_root") == 1
    assert "The server runs as root. Plain tools run as " in server.log
    assert "note   tool user " in told.stdout


@pytest.mark.skipif(WHY_NOT_ISOLATED is not None, reason=str(WHY_NOT_ISOLATED))
def test_a_server_that_isolates_runs_tools_that_see_nothing(
    run_server_command: StartServer, home_outside_tmp: Path
) -> None:
    server = run_server_command(
        HOLDFAST_SANDBOX="isolated",
        HOLDFAST_HOME=str(home_outside_tmp),
        HOLDFAST_SANDBOX_WRITABLE="",  # else a folder in /tmp
    )
    client = Letta(base_url=server.address, api_key="none")

    tool = client.tools.create(source_code=LOOK)
    agent = client.agents.create(model="holdfast/guide", tool_ids=[tool.id])
    answer = client.agents.messages.create(agent.id, input="Please call look.")

    returned = [
        message.tool_return
        for message in answer.messages
        if message.message_type == "tool_return_message"
    ]
    homes = [Path(home).name for home in homes_of_python()]
    assert returned == [json.dumps({"here": "/tmp", "home": homes})]
