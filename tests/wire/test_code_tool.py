"""Programs of the model in the sandbox (wire-v1 §7.3), and the truncation of tool returns (§7.4)."""

import json
from typing import TYPE_CHECKING, Any

import pytest
from letta_client import Letta
from tests.support.client_objects import as_dicts
from tests.support.server_process import ServerProcess

from holdfast.adapters.sandbox.landlock import is_supported
from holdfast.testing import Answer, ScriptedProvider, ToolCall

if TYPE_CHECKING:
    from letta_client.types import AgentState
    from tests.support.wire_server import MakeAgent, MakeTool

pytestmark = pytest.mark.slow

REPEAT = '''
def repeat(text: str, times: int) -> str:
    """Say it again and again.

    Args:
        text: What to say.
        times: How often.
    """
    return text * times
'''


@pytest.fixture
def coder(make_agent: "MakeAgent") -> "AgentState":
    return make_agent(tools=["run_code"])


def result_of(
    client: Letta, provider: ScriptedProvider, agent: "AgentState", name: str, **arguments: Any
) -> tuple[str, str]:
    provider.script(Answer(ToolCall(name, arguments)), "Done.")
    reply = client.agents.messages.create(agent.id, input="Go on")
    (row,) = [row for row in as_dicts(reply.messages) if "tool_return" in row]
    return row["status"], row["tool_return"]


def test_a_program_tells_what_it_printed_and_its_last_value(
    client: Letta, provider: ScriptedProvider, coder: "AgentState"
) -> None:
    code = "import math\nprint('hello')\nmath.factorial(5)"

    status, text = result_of(client, provider, coder, "run_code", code=code, language="python")

    assert status == "success"
    told = json.loads(text)
    assert told["results"] == ["120"]
    assert "hello" in "".join(told["logs"]["stdout"])


@pytest.mark.parametrize(
    ("code", "language", "says"),
    [
        ("1 / 0", "python", "ZeroDivisionError"),
        ("def", "python", "line 1"),
        ("console.log(1)", "js", "only python"),
    ],
)
def test_code_that_cannot_be_run_is_reported(
    client: Letta,
    provider: ScriptedProvider,
    coder: "AgentState",
    code: str,
    language: str,
    says: str,
) -> None:
    status, text = result_of(client, provider, coder, "run_code", code=code, language=language)

    assert status == "error"
    assert says in text


def test_a_program_sees_the_agents_secrets_and_not_the_servers(
    client: Letta, provider: ScriptedProvider, make_agent: "MakeAgent"
) -> None:
    agent = make_agent(tools=["run_code"], secrets={"MY_TOKEN": "t0ken"})
    code = "import os\n(os.environ['MY_TOKEN'], 'OPENAI_API_KEY' in os.environ)"

    _, text = result_of(client, provider, agent, "run_code", code=code, language="python")

    assert json.loads(text)["results"] == ["('t0ken', False)"]


@pytest.mark.wire(151)
def test_a_long_return_is_cut_and_says_so_but_a_search_is_not(
    client: Letta, provider: ScriptedProvider, make_agent: "MakeAgent", make_tool: "MakeTool"
) -> None:
    tool = make_tool(REPEAT, return_char_limit=10)
    search = client.tools.list(name="conversation_search").items[0]
    client.tools.update(search.id, return_char_limit=10)
    agent = make_agent(tool_ids=[tool.id, search.id])

    _, cut = result_of(client, provider, agent, "repeat", text="ab", times=8)
    _, whole = result_of(client, provider, agent, "conversation_search", query="Go on")

    note = (
        "... [NOTE: function output was truncated since it exceeded the character limit (16 > 10)]"
    )
    assert cut == "ababababab" + note
    assert json.loads(whole)["results"]


@pytest.mark.skipif(not is_supported(), reason="this kernel has no Landlock (Linux 5.13 and newer)")
def test_a_program_cannot_reach_the_home_of_the_server(
    client: Letta, provider: ScriptedProvider, coder: "AgentState", server: ServerProcess
) -> None:
    home = server.home / ".holdfast"
    # A server on PostgreSQL that is given its key keeps nothing there before its first tool process.
    home.mkdir(exist_ok=True)
    code = f"import os\nos.listdir({str(home)!r})"

    status, text = result_of(client, provider, coder, "run_code", code=code, language="python")

    assert status == "error"
    # Where the server runs as root, its tools do not even see it.
    assert "PermissionError" in text or "FileNotFoundError" in text
