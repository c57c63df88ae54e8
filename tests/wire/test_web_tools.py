"""The tools for the web (wire-v1 §7.3), through the client: which server may be asked, and what comes back."""

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from letta_client import Letta
from tests.doubles.http_receiver import CannedResponse, Receiver, run_receiver_in_thread
from tests.support.client_objects import as_dicts
from tests.support.server_process import ServerProcess
from tests.support.wire_server import connect, provider_variables

from holdfast.testing import Answer, ScriptedProvider, ToolCall

if TYPE_CHECKING:
    from tests.support.wire_server import MakeAgent

pytestmark = pytest.mark.slow

# V1's words.
NO_KEY = (
    "EXA_API_KEY is not set in environment or on agent_state tool execution environment variables."
)
BAD_SCHEME = (
    "Invalid URL scheme 'file'. Only 'http' and 'https' URLs are supported. Local file paths (file://) and other "
    "protocols cannot be fetched."
)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with run_receiver_in_thread() as running:
        yield running


@pytest.fixture(scope="module")
def searxng() -> Iterator[Receiver]:
    with run_receiver_in_thread() as running:
        page = {"title": "Rome", "url": "https://rome.example/", "content": "A city."}
        body = json.dumps({"results": [page]}).encode()
        running.answers = [CannedResponse(200, {"Content-Type": "application/json"}, body)]
        yield running


@pytest.fixture(scope="module")
def guarded_server(
    running_provider: ScriptedProvider, searxng: Receiver, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    """It allows no private addresses, and has a search engine at one."""
    given = provider_variables(running_provider) | {"HOLDFAST_SEARXNG_URL": searxng.url}
    started = ServerProcess.start(tmp_path_factory.mktemp("home"), **given)
    yield started
    started.stop()


@pytest.fixture
def guarded(guarded_server: ServerProcess, provider: ScriptedProvider) -> Iterator[Letta]:
    with connect(guarded_server.address) as letta:
        yield letta


def call(
    client: Letta, provider: ScriptedProvider, agent_id: str, name: str, **arguments: Any
) -> tuple[str, str]:
    provider.script(Answer(ToolCall(name, arguments)), "Done.")
    reply = client.agents.messages.create(agent_id, input="Go on")
    (row,) = [row for row in as_dicts(reply.messages) if "tool_return" in row]
    return row["status"], row["tool_return"]


def make_reader(client: Letta) -> str:
    return client.agents.create(
        model="openai/gpt-4o-mini",
        include_base_tools=False,
        tools=["web_search", "fetch_webpage"],
    ).id


@pytest.mark.tools(66)
def test_a_search_without_an_engine_says_that_the_key_is_missing(
    client: Letta, provider: ScriptedProvider, make_agent: "MakeAgent"
) -> None:
    agent = make_agent(tools=["web_search"])

    status, text = call(client, provider, agent.id, "web_search", query="Rome")

    assert status == "error"
    assert f"Error executing function web_search: ValueError: {NO_KEY}" in text


@pytest.mark.tools(66)
@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("file:///etc/passwd", BAD_SCHEME),
        ("http://127.0.0.1", "127.0.0.1 is not a public address"),
        ("http://localhost:8283/v1/agents/", "localhost is not a public address"),
        ("http://169.254.169.254/latest/meta-data/", "169.254.169.254 is not a public address"),
    ],
)
def test_a_page_that_is_not_public_is_a_tool_error(
    guarded: Letta, provider: ScriptedProvider, url: str, says: str
) -> None:
    status, text = call(guarded, provider, make_reader(guarded), "fetch_webpage", url=url)

    assert status == "error"
    assert says in text


def test_the_operators_search_engine_may_be_at_a_private_address(
    guarded: Letta, provider: ScriptedProvider
) -> None:
    status, text = call(
        guarded, provider, make_reader(guarded), "web_search", query="Rome", user_location="it"
    )

    assert status == "success"
    assert json.loads(text) == {
        "query": "Rome",
        "results": [
            {
                "title": "Rome",
                "url": "https://rome.example/",
                "published_date": None,
                "author": None,
                "highlights": ["A city."],
            }
        ],
        "ignored": ["user_location"],
    }


def test_half_a_surrogate_pair_in_a_result_does_the_run_no_harm(
    guarded: Letta, provider: ScriptedProvider, searxng: Receiver
) -> None:
    body = rb'{"results": [{"url": "https://rome.example/", "content": "cut \ud83d"}]}'
    searxng.answers = [CannedResponse(200, {}, body), *searxng.answers]

    status, text = call(guarded, provider, make_reader(guarded), "web_search", query="Rome")

    assert status == "success"
    assert json.loads(text)["results"][0]["highlights"] == ["cut \ufffd"]


def test_a_page_of_an_allowed_host_is_read_as_markdown(
    client: Letta, provider: ScriptedProvider, make_agent: "MakeAgent", receiver: Receiver
) -> None:
    """Redirects are followed, each under the same rule."""
    page = b"<title>Home</title><h1>Hello</h1><p>See <a href='/more'>more</a>."
    receiver.answers = [
        CannedResponse(302, {"Location": "/page"}, b""),
        CannedResponse(200, {"Content-Type": "text/html"}, page),
    ]
    agent = make_agent(tools=["fetch_webpage"])

    status, text = call(client, provider, agent.id, "fetch_webpage", url=f"{receiver.url}/start")

    assert (status, text) == (
        "success",
        f"# Home\n\n# Hello\n\nSee [more]({receiver.url}/more).\n",
    )


def test_a_redirect_to_a_private_address_is_a_tool_error(
    client: Letta, provider: ScriptedProvider, make_agent: "MakeAgent", receiver: Receiver
) -> None:
    receiver.answers = [CannedResponse(302, {"Location": "http://169.254.169.254/"}, b"")]
    agent = make_agent(tools=["fetch_webpage"])

    status, text = call(client, provider, agent.id, "fetch_webpage", url=f"{receiver.url}/start")

    assert status == "error"
    assert "169.254.169.254 is not a public address" in text


def test_the_tools_are_offered_by_name_and_are_no_base_tools(client: Letta) -> None:
    names = {"web_search", "fetch_webpage", "run_code_with_tools"}
    agent = client.agents.create(model="openai/gpt-4o-mini", include_base_tools=True)

    tools = {tool.name: tool for tool in client.tools.list(limit=1000) if tool.name in names}

    assert tools.keys() == names
    assert {tool.tool_type for tool in tools.values()} == {"letta_builtin"}
    assert {tool.name for tool in agent.tools}.isdisjoint(names)
    schema: Any = tools["web_search"].json_schema
    assert schema["parameters"]["required"] == ["query"]
    client.agents.delete(agent.id)
