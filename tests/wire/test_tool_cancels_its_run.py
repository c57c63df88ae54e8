"""A tool that uses the API of its own server, with a key like everybody (wire-v1 §4.10, §5.5)."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from letta_client import Letta
from tests.support.client_objects import as_dicts
from tests.support.server_process import ServerProcess
from tests.support.stream_items import IGNORE_DEPRECATION, assert_ended
from tests.support.wire_checks import assert_answers, assert_cancelled
from tests.support.wire_server import connect, provider_variables

from holdfast.testing import Answer, ScriptedProvider, ToolCall

if TYPE_CHECKING:
    from tests.support.wire_server import MakeAgent, MakeTool

pytestmark = [pytest.mark.slow, IGNORE_DEPRECATION]

PASSWORD = "open-sesame"

GIVE_UP = '''
def give_up(url: str) -> str:
    """Cancel the run that runs this.

    Args:
        url: Where runs of this agent are cancelled.
    """
    import os
    import urllib.request

    headers = {
        "content-type": "application/json",
        "authorization": "Bearer " + os.environ["SERVER_PASSWORD"],
    }
    request = urllib.request.Request(url, data=b"{}", headers=headers)
    with urllib.request.urlopen(request) as answer:
        return answer.read().decode()
'''


@pytest.fixture(scope="module")
def server(
    running_provider: ScriptedProvider, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    variables = provider_variables(running_provider) | {"HOLDFAST_PASSWORD": PASSWORD}
    started = ServerProcess.start(tmp_path_factory.mktemp("home"), **variables)
    yield started
    started.stop()


@pytest.fixture
def client(server: ServerProcess, provider: ScriptedProvider) -> Iterator[Letta]:
    with connect(server.address, api_key=PASSWORD) as letta:
        yield letta


@pytest.mark.wire(27, 28)
@pytest.mark.parametrize("stream_tokens", [False, True], ids=["steps", "tokens"])
def test_a_tool_may_cancel_the_run_that_runs_it(
    client: Letta,
    provider: ScriptedProvider,
    server: ServerProcess,
    make_agent: "MakeAgent",
    make_tool: "MakeTool",
    stream_tokens: bool,
) -> None:
    tool = make_tool(GIVE_UP)
    agent = make_agent(tool_ids=[tool.id], secrets={"SERVER_PASSWORD": PASSWORD})
    url = f"{server.address}/v1/agents/{agent.id}/messages/cancel"
    provider.script(Answer(ToolCall("give_up", {"url": url})))

    stream = client.agents.messages.stream(agent.id, input="Give up", stream_tokens=stream_tokens)

    items = as_dicts(stream)
    assert items[-3]["message_type"] == "tool_return_message"
    assert items[-3]["status"] == "error"
    assert_ended(items, "cancelled")
    assert_cancelled(client, items[0]["run_id"])
    assert len(provider.requests) == 1
    assert_answers(client, provider, agent.id)
