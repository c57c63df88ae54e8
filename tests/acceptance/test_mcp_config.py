"""The operator's MCP servers as people use them: from a file, through a real server and the official client."""

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import psutil  # type: ignore[import-untyped]  # it brings no types
import pytest
from letta_client import Letta
from letta_client.types import Tool
from tests.support.npm_servers import NPM_SECONDS, install_npm_servers, npm_problem, run_over_http
from tests.support.server_process import Command, ServerProcess
from tests.support.stdio_programs import SDK_SERVER
from tests.support.waiting import WAIT_SECONDS, try_until_done
from tests.support.wire_server import connect_plainly

from holdfast.adapters.sandbox.isolation import Isolation, isolation_problem
from holdfast.adapters.sandbox.landlock import is_supported

pytestmark = [pytest.mark.slow, pytest.mark.timeout(NPM_SECONDS)]

PATIENCE_SECONDS = 3 * WAIT_SECONDS

FACTS_SERVER = """
import json, os, urllib.error, urllib.request
from mcp.server import MCPServer

server = MCPServer("facts")

@server.tool()
def facts(address: str) -> str:
    try:
        with urllib.request.urlopen(address + "/v1/agents/") as answer:
            status = answer.status
    except urllib.error.HTTPError as error:
        status = error.code
    except OSError as error:
        status = 0
    return json.dumps({"environment": dict(os.environ), "status": status, "pid": os.getpid()})

server.run("stdio")
"""


def python_server(source: str, **env: str) -> dict[str, Any]:
    return {"command": sys.executable, "args": ["-c", source], "env": env}


class Operator:
    """Somebody with a file of MCP servers. Not in /tmp, of which an isolated process has its own."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.file = home / "mcp.json"
        self._started: list[ServerProcess] = []

    def write(self, **servers: dict[str, Any]) -> None:
        self.file.write_text(json.dumps({"mcpServers": servers}))
        self.file.chmod(0o600)

    def start(self, **variables: str) -> ServerProcess:
        settings = {"HOLDFAST_MCP_CONFIG": str(self.file), "HOLDFAST_LOG_LEVEL": "info"}
        started = ServerProcess.start(self.home, **{**settings, **variables})
        self._started.append(started)
        return started

    def close(self) -> None:
        for server in self._started:
            server.kill()


@pytest.fixture
def operator() -> Iterator[Operator]:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        made = Operator(Path(folder))
        yield made
        made.close()


def connect(server: ServerProcess) -> Letta:
    return Letta(base_url=server.address, api_key="none", timeout=PATIENCE_SECONDS, max_retries=0)


def wait_for_tools(server: ServerProcess, client: Letta, name: str) -> tuple[str, dict[str, str]]:
    """The id of the MCP server, and of its tools by name, once they were read in after the start."""

    def find() -> tuple[str, dict[str, str]] | None:
        rows = cast("list[Any]", client.mcp_servers.list())
        row = next((row for row in rows if row.server_name == name), None)
        if row is None:
            return None
        tools: list[Tool] = client.mcp_servers.tools.list(row.id)
        return (row.id, {str(tool.name): str(tool.id) for tool in tools}) if tools else None

    try:
        return try_until_done(find, seconds=PATIENCE_SECONDS)
    except AssertionError:
        raise AssertionError(server.log) from None


def run(client: Letta, server_id: str, tool_id: str, **arguments: Any) -> str:
    result = client.mcp_servers.tools.run(tool_id, mcp_server_id=server_id, args=arguments)
    assert result.status == "success", result
    return str(result.func_return)


@pytest.mark.parametrize("level", ["plain", "isolated"])
def test_a_program_of_the_file_is_used_in_the_sandbox(operator: Operator, level: str) -> None:
    if level == "isolated" and (problem := isolation_problem(Isolation(network=True))):
        pytest.skip(problem)
    operator.write(
        facts=python_server(FACTS_SERVER, COLOUR="{{ COLOUR | blue }}", KEY="${THE_KEY}")
    )
    server = operator.start(
        HOLDFAST_SANDBOX=level, HOLDFAST_SANDBOX_NETWORK="true", THE_KEY="swordfish"
    )
    client = connect(server)
    server_id, tools = wait_for_tools(server, client, "facts")

    facts = json.loads(run(client, server_id, tools["facts"], address=server.address))

    environment = facts["environment"]
    assert (environment["COLOUR"], environment["KEY"]) == ("blue", "swordfish")
    assert not any(name.startswith(("HOLDFAST", "THE_KEY")) for name in environment)
    # It counts as a tool: a server without a password refuses it.
    assert facts["status"] == 403
    retrieved = client.mcp_servers.retrieve(server_id)
    assert "swordfish" not in retrieved.model_dump_json()
    assert "swordfish" not in server.log


@pytest.mark.tools(4)
def test_callers_may_name_programs_if_the_operator_says_so_in_v1s_words(operator: Operator) -> None:
    operator.write()
    server = operator.start(MCP_DISABLE_STDIO="false")
    client = connect(server)

    made: Any = client.mcp_servers.create(
        server_name="facts",
        config={
            "mcp_server_type": "stdio",
            "command": sys.executable,
            "args": ["-c", FACTS_SERVER],
        },
    )
    (tool,) = client.mcp_servers.tools.list(made.id)

    said = json.loads(run(client, made.id, str(tool.id), address=server.address))
    assert said["pid"] != server.pid


def test_programs_end_with_a_server_that_is_killed(operator: Operator) -> None:
    operator.write(small=python_server(SDK_SERVER))
    server = operator.start()
    client = connect(server)
    server_id, tools = wait_for_tools(server, client, "small")
    assert run(client, server_id, tools["add"], a=2, b=3) == "5"
    below = psutil.Process(server.pid).children(recursive=True)
    programs = [process for process in below if SDK_SERVER in process.cmdline()]
    assert programs

    server.kill()

    _, alive = psutil.wait_procs(below, timeout=WAIT_SECONDS)
    assert alive == []


def test_programs_end_with_a_server_that_is_stopped(operator: Operator) -> None:
    operator.write(small=python_server(SDK_SERVER))
    server = operator.start()
    wait_for_tools(server, connect(server), "small")
    below = psutil.Process(server.pid).children(recursive=True)
    assert server.stop() == 0
    _, alive = psutil.wait_procs(below, timeout=WAIT_SECONDS)
    assert alive == []


def test_a_server_that_leaves_the_file_keeps_its_tools_which_say_so(operator: Operator) -> None:
    operator.write(small=python_server(SDK_SERVER))
    first = operator.start()
    server_id, tools = wait_for_tools(first, connect(first), "small")
    first.stop()
    operator.write()
    second = operator.start()
    client = connect(second)

    answer = client.mcp_servers.with_raw_response.list().http_response.json()
    assert [row["id"] for row in answer] == [server_id]
    with pytest.raises(Exception, match="no longer in the operator's file"):
        run(client, server_id, tools["add"], a=2, b=3)
    client.mcp_servers.delete(server_id)
    assert client.mcp_servers.list() == []


def test_a_start_waits_for_no_program(operator: Operator) -> None:
    operator.write(
        slow=python_server("import time; time.sleep(600)"),
        missing={"command": "no-such-program"},
        small=python_server(SDK_SERVER),
    )
    server = operator.start()
    wait_for_tools(server, connect(server), "small")
    assert "mcp.configured_unavailable" in server.log
    assert "no-such-program" in server.log
    assert server.stop() == 0


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "cannot be read: No such file or directory."),
        ("{", "is no JSON: "),
        ('{"mcpServers": {"one": {"args": []}}}', "the server 'one' needs either a command or"),
    ],
)
def test_a_file_that_cannot_be_used_stops_the_start_and_the_doctor_says_the_same(
    holdfast: Command, tmp_path: Path, content: str | None, words: str
) -> None:
    file = tmp_path / "mcp.json"
    if content is not None:
        file.write_text(content)
    refused = holdfast("server", "--port", "0", "--mcp-config", str(file))
    told = holdfast("doctor", "--mcp-config", str(file))
    assert refused.returncode == 2
    assert refused.stderr.startswith(f"holdfast: HOLDFAST_MCP_CONFIG: {file} ")
    assert words in refused.stderr
    assert told.returncode == 1
    assert "WRONG  mcp servers" in told.stdout
    assert words in " ".join(told.stdout.split())


def test_the_doctor_looks_at_the_file(holdfast: Command, tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    servers = {
        "one": {"command": "no-such-program", "env": {"KEY": "swordfish"}, "timeout": 5},
        "two": {"url": "http://127.0.0.1:1/mcp"},
    }
    file.write_text(json.dumps({"mcpServers": servers}))
    file.chmod(0o644)
    told = holdfast("doctor", "--mcp-config", str(file))
    text = " ".join(told.stdout.split())
    assert told.returncode == 0
    assert f"{file} names 2: one, two." in text
    assert "'timeout' of the server 'one' is not used." in text
    assert f"Other users of this machine can read {file}" in text
    assert "The command of the server 'one' was not found: no-such-program" in text
    assert "swordfish" not in text


@pytest.mark.skipif(not is_supported(), reason="This kernel has no Landlock.")
def test_tools_cannot_read_the_file(operator: Operator) -> None:
    """It may contain secrets, and plain tools may read what their user may."""
    operator.write(one={"command": "no-such-program", "env": {"KEY": "swordfish"}})
    operator.file.chmod(0o644)
    operator.home.chmod(0o755)
    server = operator.start()
    source = (
        'def look(path: str) -> str:\n    """Look.\n\n    Args:\n        path: Where.\n    """\n'
        "    return open(path).read()\n"
    )
    body = {"source_code": source, "args": {"path": str(operator.file)}}
    with connect_plainly(server.address) as http:
        told = http.post("/v1/tools/run", json=body).text
    assert "PermissionError" in told
    assert "swordfish" not in told


@pytest.mark.skipif(npm_problem() is not None, reason=npm_problem() or "")
def test_servers_from_npm_are_used_through_the_api(operator: Operator) -> None:
    npm = install_npm_servers()
    folder = operator.home / "documents"
    folder.mkdir()
    (folder / "note.txt").write_text("Remember the milk.")
    for path in (operator.home, folder):
        path.chmod(0o755)
    with run_over_http(npm.everything) as url:
        operator.write(
            everything={"command": "node", "args": [npm.everything]},
            files={"command": "node", "args": [npm.filesystem, str(folder)]},
        )
        first = operator.start()
        client = connect(first)
        server_id, tools = wait_for_tools(first, client, "everything")
        assert run(client, server_id, tools["echo"], message="hello") == "Echo: hello"
        files_id, files = wait_for_tools(first, client, "files")
        note = str(folder / "note.txt")
        assert run(client, files_id, files["read_text_file"], path=note) == "Remember the milk."
        first.stop()

        # The same name, now over the network: the ids stay.
        operator.write(everything={"type": "http", "url": url})
        second = operator.start()
        client = connect(second)
        assert wait_for_tools(second, client, "everything") == (server_id, tools)
        assert run(client, server_id, tools["echo"], message="again") == "Echo: again"
