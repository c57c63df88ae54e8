"""The command line as an operator meets it."""

import json
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.support.client_objects import eventually, message_texts
from tests.support.server_process import Command, ServerProcess, StartServer
from tests.support.tool_gate import ToolGate
from tests.support.tool_sources import SHOUT, WAIT_AT_GATE
from tests.support.wire_server import MODELS, connect, provider_variables

from holdfast import __version__
from holdfast.config import SPECS, option_name
from holdfast.testing import HttpError, ScriptedProvider

pytestmark = pytest.mark.slow


@pytest.fixture
def taken_port() -> Iterator[str]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield str(listener.getsockname()[1])


def test_the_version_is_printed(run_command: Command) -> None:
    assert run_command("--version").stdout == f"holdfast {__version__}\n"


def test_the_help_names_every_option_with_its_variable_and_no_secret_is_an_option(
    holdfast: Command,
) -> None:
    text = holdfast("server", "--help", COLUMNS="200").stdout

    for name, about in SPECS.items():
        if about.variables[0].startswith("HOLDFAST_"):
            assert about.variables[0] in text
            assert (f"{option_name(name)} " in text) is not about.secret


def test_a_bad_setting_ends_the_command_with_one_sentence(run_command: Command) -> None:
    refused = run_command("server", "--port", "http")

    assert refused.returncode == 2
    assert refused.stderr == "holdfast: --port is 'http'; it must be a number from 0 to 65535.\n"


def test_an_open_address_without_a_password_is_refused(holdfast: Command) -> None:
    refused = holdfast("server", "--host", "0.0.0.0", "--port", "0")

    assert refused.returncode == 2
    assert "Set HOLDFAST_PASSWORD" in refused.stderr


def test_a_port_in_use_is_reported_in_one_sentence(holdfast: Command, taken_port: str) -> None:
    refused = holdfast("server", "--port", taken_port)

    assert refused.returncode == 1
    assert refused.stderr == (
        f"holdfast: Cannot listen on 127.0.0.1, port {taken_port}: another program listens there. "
        "Stop it, or choose another port with --port.\n"
    )


def test_a_home_that_cannot_be_used_is_reported_in_one_sentence(
    holdfast: Command, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()

    refused = holdfast("server", "--port", "0", "--home", str(tmp_path / "file" / "home"))

    assert refused.returncode == 1
    assert refused.stderr.startswith(
        f"holdfast: Cannot use {tmp_path}/file/home as the home folder: "
    )
    assert refused.stderr.count("\n") == 1


def test_a_database_folder_outside_the_home_is_not_created(
    holdfast: Command, tmp_path: Path
) -> None:
    folder = tmp_path / "nope" / "dir"

    refused = holdfast("server", "--port", "0", "--database-url", f"sqlite:///{folder}/x.db")

    assert refused.returncode == 2
    assert refused.stderr == (
        f"holdfast: The folder {folder} of the database does not exist. Create it (mkdir -p {folder}), or choose "
        "another place with HOLDFAST_DATABASE_URL.\n"
    )
    assert not folder.parent.exists()


def test_other_users_cannot_read_the_home_of_a_server(
    run_server_command: StartServer, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o755)

    run_server_command("--home", str(home))

    assert not home.stat().st_mode & 0o077
    assert {
        path.name for path in home.iterdir() if path.is_file() and path.stat().st_mode & 0o077
    } == set()


def test_a_missing_database_is_reported_in_one_sentence(
    holdfast: Command,
) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"postgresql://me:hunter2@127.0.0.1:{closed.getsockname()[1]}/none"
        refused = holdfast("server", "--port", "0", HOLDFAST_DATABASE_URL=url)

    assert refused.returncode == 1
    assert "Traceback" not in refused.stderr
    assert "hunter2" not in refused.stderr


def test_a_second_server_on_the_same_home_is_refused(
    run_server_command: StartServer, holdfast: Command, tmp_path: Path
) -> None:
    run_server_command()

    refused = holdfast("server", "--port", "0")

    assert refused.returncode == 1
    assert "Traceback" not in refused.stderr
    assert str(tmp_path) in refused.stderr


def test_the_server_says_where_it_is_and_ends_in_order(run_server_command: StartServer) -> None:
    server = run_server_command()

    health = httpx.get(f"{server.address}/v1/health/")

    assert health.json() == {"version": __version__, "status": "ok", "notifications": "ok"}
    assert server.stop() == 0


def test_a_server_with_a_password_says_how_to_give_it_and_never_shows_it(
    run_server_command: StartServer,
) -> None:
    server = run_server_command("--host", "0.0.0.0", HOLDFAST_PASSWORD="hunter2")
    address = server.address.replace("0.0.0.0", "127.0.0.1")

    assert "LETTA_API_KEY" in server.greeting
    assert "hunter2" not in server.greeting
    assert f'Letta(base_url="{address}")' in server.greeting
    assert httpx.get(f"{address}/v1/agents/").status_code == 401


def test_the_help_answers_without_what_only_the_commands_need() -> None:
    heavy = "{'fastapi', 'sqlalchemy', 'urllib.request', 'uvicorn'}"
    code = f"import sys, holdfast.cli.main; print({heavy} & set(sys.modules))"

    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )

    assert loaded.stdout == "set()\n"


class ServerWithCli:
    """A server with agents that can be told to do something, and the command line beside it."""

    def __init__(self, server: ServerProcess, home: Path) -> None:
        self.server = server
        self.home = home
        self.client = connect(server.address)

    def agent(self, *sources: str, model: str = "holdfast/guide") -> str:
        tools = [self.client.tools.upsert(source_code=source).id for source in sources]
        return self.client.agents.create(model=model, include_base_tools=False, tool_ids=tools).id

    def send_async(self, agent_id: str, text: str) -> str:
        """Send and go."""
        run = self.client.agents.messages.create_async(agent_id, input=text)
        return run.id

    def run(self, run_id: str) -> dict[str, Any]:
        shown: dict[str, Any] = httpx.get(f"{self.server.address}/v1/runs/{run_id}").json()
        return shown

    def wait_for_end(self, run_id: str) -> str:
        eventually(lambda: self.run(run_id), lambda run: run["completed_at"] is not None)
        return run_id


@pytest.fixture(scope="module")
def server_with_cli(
    running_provider: ScriptedProvider, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerWithCli]:
    home = tmp_path_factory.mktemp("home")
    variables = {"HOLDFAST_DRAIN_SECONDS": "0", "HOLDFAST_MODEL_ATTEMPTS": "2"}
    server = ServerProcess.run_command(home, **provider_variables(running_provider) | variables)
    yield ServerWithCli(server, home)
    server.stop()


PrintRuns = Callable[..., str]


@pytest.fixture
def print_runs(holdfast: Command, server_with_cli: ServerWithCli) -> PrintRuns:
    """What ``holdfast runs …`` prints about that server."""

    def run(*arguments: str) -> str:
        done = holdfast("runs", *arguments, HOLDFAST_URL=server_with_cli.server.address)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def facts(text: str) -> dict[str, str]:
    """The lines of ``runs show``: a label, two spaces or more, what is known."""
    return dict(re.split(r" {2,}", line, maxsplit=1) for line in text.splitlines())


def test_runs_are_listed_in_columns_the_newest_first(
    server_with_cli: ServerWithCli, print_runs: PrintRuns
) -> None:
    agent_id = server_with_cli.agent()
    first, second = (
        server_with_cli.wait_for_end(server_with_cli.send_async(agent_id, text))
        for text in ("One", "Two")
    )

    heading, *rows = print_runs("list", "--agent", agent_id).splitlines()

    assert [row.split()[0] for row in rows] == [second, first]
    for row in rows:
        assert row[heading.index("STATUS") :].startswith("completed ")
        assert row[heading.index("STOP REASON") :].startswith("end_turn ")
        assert row[heading.index("AGENT") :] == agent_id


def test_a_list_can_be_narrowed_and_read_by_scripts(
    server_with_cli: ServerWithCli, print_runs: PrintRuns
) -> None:
    agent_id = server_with_cli.agent()
    runs = [
        server_with_cli.wait_for_end(server_with_cli.send_async(agent_id, text))
        for text in ("One", "Two")
    ]
    of_agent = ("list", "--agent", agent_id)

    assert print_runs(*of_agent, "--status", "failed") == "There are no such runs.\n"
    assert json.loads(print_runs(*of_agent, "--status", "failed", "--json")) == []
    (newest,) = json.loads(print_runs(*of_agent, "--limit", "1", "--json"))
    assert newest == server_with_cli.run(runs[1])


def test_a_run_is_shown_with_what_it_used(
    server_with_cli: ServerWithCli, print_runs: PrintRuns
) -> None:
    agent_id = server_with_cli.agent()
    run_id = server_with_cli.wait_for_end(server_with_cli.send_async(agent_id, "Hello"))

    shown = facts(print_runs("show", run_id))

    assert (shown["run"], shown["agent"]) == (run_id, agent_id)
    assert (shown["status"], shown["stop reason"]) == ("completed", "end_turn")
    assert re.fullmatch(r"\d+\.\d\d s", shown["duration"])
    assert re.fullmatch(r"\d+ in, \d+ out", shown["tokens"])
    assert shown.keys().isdisjoint({"waits for", "error", "cancelled"})
    assert json.loads(print_runs("show", run_id, "--json")).keys() == {
        *server_with_cli.run(run_id),
        "usage",
        "steps",
    }


def test_a_failed_run_shows_why(
    server_with_cli: ServerWithCli, print_runs: PrintRuns, running_provider: ScriptedProvider
) -> None:
    running_provider.respond_with(lambda _request: HttpError(400, "TEST: no such thing"))
    run_id = server_with_cli.wait_for_end(
        server_with_cli.send_async(server_with_cli.agent(model=MODELS["openai"]), "Hello")
    )

    shown = facts(print_runs("show", run_id))

    assert shown["status"] == "failed"
    assert shown["error"].startswith("llm_error: The LLM model provider rejected the request.")
    assert "TEST: no such thing" in shown["error"]


def test_a_run_shows_when_its_model_was_asked_again(
    server_with_cli: ServerWithCli, print_runs: PrintRuns, running_provider: ScriptedProvider
) -> None:
    running_provider.respond_with(None)
    running_provider.script(
        HttpError(429, "TEST: not now", headers={"retry-after": "0"}), "Here I am."
    )
    run_id = server_with_cli.wait_for_end(
        server_with_cli.send_async(server_with_cli.agent(model=MODELS["openai"]), "Hello")
    )

    shown = facts(print_runs("show", run_id))

    assert shown["status"] == "completed"
    assert shown["asked again"].endswith("llm_rate_limit: TEST: not now")
    (step,) = json.loads(print_runs("show", run_id, "--json"))["steps"]
    (attempt,) = step["attempts"]
    assert (attempt["number"], attempt["error_type"]) == (1, "llm_rate_limit")


def test_a_run_that_waits_for_a_person_shows_for_what_until_somebody_decides(
    server_with_cli: ServerWithCli, print_runs: PrintRuns
) -> None:
    agent_id = server_with_cli.agent(SHOUT)
    tools = server_with_cli.client.agents.tools
    tools.update_approval("shout", agent_id=agent_id, body_requires_approval=True)
    run_id = server_with_cli.wait_for_end(
        server_with_cli.send_async(agent_id, "call shout with text hey")
    )
    (call_id,) = re.findall(r"\((.+)\)", facts(print_runs("show", run_id))["waits for"])
    assert facts(print_runs("show", run_id))["waits for"] == f"an approval of shout ({call_id})"
    sentence, *explained = print_runs("explain", run_id).splitlines()
    assert f"a person's decision on shout ({call_id})" in sentence
    assert "By itself: Nothing: it waits until somebody answers or cancels it." in explained
    (approval_id,) = {
        line.split("/")[-1].split()[0]
        for line in explained
        if line.startswith("POST /v1/approvals")
    }
    assert f'POST /v1/approvals/{approval_id} {{"approve": true}}' in explained

    decision: Any = {"type": "approval", "approve": True, "tool_call_id": call_id}
    server_with_cli.client.agents.messages.create(
        agent_id, messages=[{"type": "approval", "approvals": [decision]}]
    )

    assert "waits for" not in facts(print_runs("show", run_id))


def test_a_run_is_cancelled_with_a_receipt_and_the_next_in_line_goes_on(
    server_with_cli: ServerWithCli, print_runs: PrintRuns
) -> None:
    agent_id = server_with_cli.agent(WAIT_AT_GATE)
    with ToolGate() as door:
        text = f"call wait_at_gate with port {door.port} and log entries"
        running = server_with_cli.send_async(agent_id, text)
        with door.wait_for_tool():
            queued = server_with_cli.send_async(agent_id, "Hello")
            assert facts(print_runs("show", queued))["waits for"] == f"its turn, after {running}"
            assert f"behind {running}" in print_runs("explain", queued)
            assert "wait_at_gate" in print_runs("explain", running).splitlines()[0]

            sentence, *receipt = print_runs("cancel", running, "--reason", "too slow").splitlines()

    assert sentence == f"{running} is cancelled."
    told = facts("\n".join(receipt))
    assert (told["reason"], told["messages"]) == ("too slow", "kept")
    assert re.fullmatch(r"\S+ wait_at_gate: killed", told["call"])
    shown = facts(print_runs("show", running))
    assert (shown["status"], shown["stop reason"]) == ("cancelled", "cancelled")
    assert told.items() <= shown.items()
    assert server_with_cli.run(server_with_cli.wait_for_end(queued))["status"] == "completed"


def test_a_cancel_can_roll_back_and_its_answer_can_be_read_by_scripts(
    server_with_cli: ServerWithCli, print_runs: PrintRuns
) -> None:
    agent_id = server_with_cli.agent(WAIT_AT_GATE)
    with ToolGate() as door:
        text = f"call wait_at_gate with port {door.port} and log entries"
        run_id = server_with_cli.send_async(agent_id, text)
        with door.wait_for_tool():
            run = json.loads(print_runs("cancel", run_id, "--rollback", "--json"))

    assert (run["id"], run["status"]) == (run_id, "cancelled")
    assert run["metadata"]["cancellation"]["action"] == "rollback"
    assert facts(print_runs("show", run_id))["messages"] == "rolled back"


def test_to_cancel_what_has_ended_changes_nothing(
    server_with_cli: ServerWithCli, print_runs: PrintRuns
) -> None:
    agent_id = server_with_cli.agent()
    run_id = server_with_cli.wait_for_end(server_with_cli.send_async(agent_id, "Hello"))
    before = message_texts(server_with_cli.client, agent_id)

    assert print_runs("cancel", run_id) == (
        f"{run_id} had ended before: completed, end_turn. Nothing was changed.\n"
    )
    assert message_texts(server_with_cli.client, agent_id) == before


def test_a_refusal_of_the_server_is_printed_verbatim(
    holdfast: Command, server_with_cli: ServerWithCli
) -> None:
    unknown = "run-00000000-0000-4000-8000-000000000000"

    for command in (("show", unknown), ("cancel", unknown), ("list", "--status", "lost")):
        refused = holdfast("runs", *command, "--url", server_with_cli.server.address)

        assert (refused.returncode, refused.stdout) == (1, "")
        (sentence,) = refused.stderr.splitlines()
        assert command[-1] in sentence


def test_the_only_server_is_listed_with_its_runs(
    holdfast: Command, server_with_cli: ServerWithCli
) -> None:
    agent_id = server_with_cli.agent(WAIT_AT_GATE)
    with ToolGate() as door:
        text = f"call wait_at_gate with port {door.port} and log entries"
        running = server_with_cli.send_async(agent_id, text)
        with door.wait_for_tool():
            queued = server_with_cli.send_async(agent_id, "Hello")
            listed = holdfast("servers", "list", "--url", server_with_cli.server.address)
    for run_id in (running, queued):
        server_with_cli.wait_for_end(run_id)

    heading, row, _, queue = listed.stdout.splitlines()
    assert row[heading.index("PID") :].startswith(f"{server_with_cli.server.pid} ")
    assert row[heading.index("RUNS") :].startswith("1/1000 ")
    assert row[heading.index("STATE") :] == "alive, leader, answers"
    assert re.fullmatch(r"1 run waits in the queue, for \d+\.\d s\.", queue)


def test_commands_find_the_server_by_its_port(
    server_with_cli: ServerWithCli, run_command: Command
) -> None:
    run_id = server_with_cli.wait_for_end(
        server_with_cli.send_async(server_with_cli.agent(), "Hello")
    )
    port = server_with_cli.server.address.rpartition(":")[2]

    listed = run_command("runs", "list", HOLDFAST_PORT=port)
    waiting = run_command("approvals", "list", HOLDFAST_PORT=port)

    assert run_id in listed.stdout, listed.stderr
    assert waiting.returncode == 0, waiting.stderr


def test_an_unreachable_server_is_reported_in_one_sentence(holdfast: Command) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        refused = holdfast("runs", "list", "--url", url)

    assert refused.returncode == 1
    assert refused.stderr == (
        f"holdfast: No Holdfast answers at {url} (Connection refused). Start it with `holdfast server`, "
        "or name another address with --url or HOLDFAST_URL.\n"
    )


def test_an_invalid_address_is_reported_in_one_sentence(holdfast: Command) -> None:
    refused = holdfast("runs", "list", HOLDFAST_URL="localhost:8283")

    assert refused.returncode == 2
    assert refused.stderr == (
        "holdfast: The server's address is 'localhost:8283'; it must begin with http:// or https://.\n"
    )


def test_the_password_comes_from_the_environment(
    run_server_command: StartServer, holdfast: Command
) -> None:
    url = run_server_command(HOLDFAST_PASSWORD="сезам").address
    ask = ("runs", "list", "--url", url)

    refused = holdfast(*ask)

    assert refused.returncode == 1
    assert refused.stderr == "holdfast: The server wants its password: set HOLDFAST_PASSWORD.\n"
    assert holdfast(*ask, HOLDFAST_PASSWORD="сезам").returncode == 0
    assert holdfast(*ask, LETTA_API_KEY="сезам").returncode == 0
    assert holdfast(*ask, HOLDFAST_PASSWORD="wrong").returncode == 1
