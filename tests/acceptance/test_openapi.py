"""The API keeps what its own description promises, also for input that a machine made up."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.support.server_process import ServerProcess
from tests.support.tool_sources import SHOUT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SCHEMATHESIS = Path(sys.executable).with_name("schemathesis")
LIMIT_SECONDS = 240

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
)
# 501 is how a later release is announced; every other 5xx is a fault.
SETTINGS = """
[checks]
not_a_server_error.expected-statuses = ["2xx", "3xx", "4xx", 501]

[parameters]
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server without keys: agents get the built-in guide."""
    started = ServerProcess.start(tmp_path_factory.mktemp("home"))
    yield started
    started.stop()


def schemathesis(server: ServerProcess, folder: Path, settings: str, *options: str) -> str:
    (folder / "settings.toml").write_text(SETTINGS + settings, encoding="utf-8")
    ran = subprocess.run(
        [
            SCHEMATHESIS,
            *("--config-file", folder / "settings.toml"),
            *("run", f"{server.address}/openapi.json"),
            *("--checks", ",".join(CHECKS)),
            *("--seed", "1", "--generation-database", "none"),
            *("--no-color", "--warnings", "off"),
            *options,
        ],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    assert ran.returncode == 0, f"{ran.stdout}\n{ran.stderr}\n{server.log}"
    return ran.stdout


def assert_healthy(server: ServerProcess) -> bool:
    return httpx.get(f"{server.address}/v1/ready/").status_code == 200 and (
        "Traceback" not in server.log
    )


def test_every_operation_stands_up_to_every_kind_of_value(
    server: ServerProcess, tmp_path: Path
) -> None:
    schemathesis(server, tmp_path, "", "--phases", "coverage")

    assert assert_healthy(server)


def test_operations_on_things_that_exist_answer_as_described(
    server: ServerProcess, tmp_path: Path
) -> None:
    with httpx.Client(base_url=f"{server.address}/v1", timeout=60) as http:
        tool = http.post("/tools/", json={"source_code": SHOUT}).json()["id"]
        block = http.post("/blocks/", json={"label": "notes", "value": "x"}).json()["id"]
        agent = http.post("/agents/", json={"tool_ids": [tool], "block_ids": [block]}).json()["id"]
        said = http.post(f"/agents/{agent}/messages", json={"input": "Hello?"}).json()
    message = said["messages"][0]
    names = {
        "agent_id": agent,
        "tool_id": tool,
        "block_id": block,
        "block_label": "notes",
        "tool_name": "shout",
        "message_id": message["id"],
        "run_id": message["run_id"],
        "step_id": message["step_id"],
    }
    settings = "".join(f'"path.{name}" = "{value}"\n' for name, value in names.items())

    schemathesis(
        server,
        tmp_path,
        settings,
        *("--phases", "fuzzing", "--max-examples", "10", "--exclude-method", "DELETE"),
    )

    assert assert_healthy(server)
