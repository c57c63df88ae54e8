"""Folders and files of agents: attach, open, close, and what the model sees (memory-v1 §5.6 to §5.8)."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from letta_client import (
    BadRequestError,
    Letta,
    NotFoundError,
    UnprocessableEntityError,
)
from tests.support.client_objects import as_dict, eventually
from tests.support.wire_files import (
    MakeFolder,
    folders_of_test,
    open_names,
    recompiled,
    upload,
)

from holdfast.testing import Answer, ScriptedProvider, ToolCall

if TYPE_CHECKING:
    from tests.support.wire_server import MakeAgent

pytestmark = [pytest.mark.slow, pytest.mark.both_databases]

UNKNOWN_FOLDER = "source-99999999-9999-4999-8999-999999999999"
UNKNOWN_FILE = "file-99999999-9999-4999-8999-999999999999"
UNKNOWN_AGENT = "agent-99999999-9999-4999-8999-999999999999"
FILE_TOOLS = {"open_files", "grep_files", "semantic_search_files"}


@pytest.fixture
def make_folder(client: Letta) -> Iterator[MakeFolder]:
    with folders_of_test(client) as make:
        yield make


def tool_names(client: Letta, agent_id: str) -> set[str | None]:
    return {tool.name for tool in client.agents.tools.list(agent_id)}


def file_names(client: Letta, agent_id: str, **query: Any) -> list[str]:
    return [item.file_name for item in client.agents.files.list(agent_id, **query)]


def last_prompt(provider: ScriptedProvider) -> str:
    """The system message of the last model request."""
    return str(provider.requests[-1].body["messages"][0]["content"])


@pytest.mark.memory(56)
def test_the_file_tools_come_with_the_first_folder_and_go_with_the_last(
    client: Letta, make_agent: "MakeAgent", make_folder: MakeFolder
) -> None:
    agent, first, second = make_agent(), make_folder(), make_folder()

    assert client.agents.folders.attach(first.id, agent_id=agent.id) is None
    assert tool_names(client, agent.id) == FILE_TOOLS
    tools = client.agents.tools.list(agent.id).items
    assert {tool.tool_type for tool in tools} == {"letta_files_core"}
    client.agents.folders.attach(second.id, agent_id=agent.id)
    client.agents.folders.attach(second.id, agent_id=agent.id)
    assert tool_names(client, agent.id) == FILE_TOOLS
    attached = client.agents.folders.list(agent.id).items
    assert [folder.id for folder in attached] == [second.id, first.id]
    assert client.agents.folders.detach(first.id, agent_id=agent.id) is None
    assert tool_names(client, agent.id) == FILE_TOOLS
    client.agents.folders.detach(second.id, agent_id=agent.id)
    assert tool_names(client, agent.id) == set()
    assert client.agents.folders.detach(second.id, agent_id=agent.id) is None
    assert client.agents.folders.list(agent.id).items == []


@pytest.mark.memory(57)
def test_an_attached_folder_shows_its_file_to_the_agent(
    client: Letta, make_agent: "MakeAgent", make_folder: MakeFolder, provider: ScriptedProvider
) -> None:
    agent, folder = make_agent(context_window_limit=32_000), make_folder()
    file_id = upload(client, folder, "test.txt", "test")

    client.agents.folders.attach(folder.id, agent_id=agent.id)

    (item,) = client.agents.files.list(agent.id).files
    assert (item.file_id, item.folder_id, item.folder_name) == (file_id, folder.id, folder.name)
    assert (item.file_name, item.is_open) == (f"{folder.name}/test.txt", True)
    assert item.visible_content == "[Viewing file start (out of 1 lines)]\n1: test"
    assert (item.start_line, item.end_line) == (None, None)
    section = f"""<directories>
<file_limits>
- current_files_open=1
- max_files_open=5
</file_limits>
<directory name="{folder.name}">
<file status="open" name="{folder.name}/test.txt">
<metadata>
- read_only=true
- chars_current=45
- chars_limit=15000
</metadata>
<value>
[Viewing file start (out of 1 lines)]
1: test
</value>
</file>
</directory>
</directories>"""
    assert f"\n\n{section}\n\n<memory_metadata>" in recompiled(client, agent.id)
    client.agents.messages.create(agent.id, input="What do you see?")
    assert section in last_prompt(provider)


@pytest.mark.memory(58)
def test_a_file_is_closed_and_opened_again(
    client: Letta, make_agent: "MakeAgent", make_folder: MakeFolder
) -> None:
    agent, folder = make_agent(), make_folder()
    file_id = upload(client, folder, "test.txt", "test")
    client.agents.folders.attach(folder.id, agent_id=agent.id)
    name = f"{folder.name}/test.txt"

    for _ in range(2):
        closed = client.agents.files.close(file_id, agent_id=agent.id)
        assert closed == {"message": f"File id={file_id} successfully closed"}
    assert f'<file status="closed" name="{name}">' in recompiled(client, agent.id)
    (item,) = client.agents.files.list(agent.id).files
    assert (item.is_open, item.visible_content) == (False, None)
    assert client.agents.files.open(file_id, agent_id=agent.id) == []
    assert f'<file status="open" name="{name}">' in recompiled(client, agent.id)
    assert client.agents.files.close_all(agent.id) == [name]
    assert client.agents.files.close_all(agent.id) == []
    assert f'<file status="closed" name="{name}">' in recompiled(client, agent.id)


@pytest.mark.memory(59)
def test_no_more_files_are_open_than_the_agent_may_have(
    client: Letta, make_agent: "MakeAgent", make_folder: MakeFolder
) -> None:
    agent, folder = make_agent(max_files_open=2), make_folder()
    ids = [upload(client, folder, f"{letter}.txt", letter) for letter in "abc"]
    names = [f"{folder.name}/{letter}.txt" for letter in "abc"]
    client.agents.folders.attach(folder.id, agent_id=agent.id)

    assert open_names(client, agent.id) == names[:2]
    assert client.agents.files.open(ids[2], agent_id=agent.id) == [names[0]]
    assert open_names(client, agent.id) == names[1:]
    assert client.agents.files.open(ids[1], agent_id=agent.id) == []
    assert client.agents.files.open(ids[0], agent_id=agent.id) == [names[2]]
    assert open_names(client, agent.id) == names[:2]
    client.agents.update(agent.id, max_files_open=1)
    assert open_names(client, agent.id) == names[:1]


@pytest.mark.memory(59)
def test_an_agent_that_may_open_no_file_never_does(
    client: Letta, make_agent: "MakeAgent", make_folder: MakeFolder
) -> None:
    agent, folder = make_agent(max_files_open=0), make_folder()
    file_id = upload(client, folder, "a.txt", "text")
    client.agents.folders.attach(folder.id, agent_id=agent.id)
    upload(client, folder, "b.txt", "text")

    assert client.agents.retrieve(agent.id).max_files_open == 0
    eventually(lambda: len(file_names(client, agent.id)), lambda count: count == 2)
    assert open_names(client, agent.id) == []
    assert "- max_files_open=0" in recompiled(client, agent.id)
    with pytest.raises(BadRequestError, match="max_files_open of the agent is 0"):
        client.agents.files.open(file_id, agent_id=agent.id)


@pytest.mark.memory(60)
def test_the_next_model_request_of_the_same_turn_sees_what_was_opened(
    client: Letta, make_agent: "MakeAgent", make_folder: MakeFolder, provider: ScriptedProvider
) -> None:
    agent, folder = make_agent(), make_folder()
    upload(client, folder, "x.py", "".join(f"line {number}\n" for number in range(1, 101)))
    client.agents.folders.attach(folder.id, agent_id=agent.id)
    wanted = {"file_name": f"{folder.name}/x.py", "offset": 49, "length": 5}
    provider.script(Answer(ToolCall("open_files", {"file_requests": [wanted]})), "Done.")

    reply = client.agents.messages.create(agent.id, input="Look at line 50")

    (returned,) = [row for row in map(as_dict, reply.messages) if "tool_return" in row]
    opened = f"* Opened {folder.name}/x.py (lines 50-54) (previously full file)"
    assert (returned["status"], returned["tool_return"]) == ("success", opened)
    before, after = [str(request.body["messages"][0]) for request in provider.requests[-2:]]
    assert "[Viewing file start (out of 100 lines)]" in before
    view = "[Viewing lines 50 to 54 (out of 100 lines)]\\n50: line 50\\n"
    assert view in after
    assert "54: line 54\\n</value>" in after
    # What the model got is what is stored.
    (system,) = [
        row
        for row in map(as_dict, client.agents.messages.list(agent.id).items)
        if row["message_type"] == "system_message"
    ]
    assert system["content"] == last_prompt(provider)
    (item,) = client.agents.files.list(agent.id).files
    assert (item.start_line, item.end_line) == (50, 54)


@pytest.mark.memory(65)
def test_a_file_that_is_deleted_is_gone_from_agents_and_a_folder_with_its_tools(
    client: Letta, make_agent: "MakeAgent", make_folder: MakeFolder, provider: ScriptedProvider
) -> None:
    agent, folder = make_agent(), make_folder()
    ids = [upload(client, folder, f"{letter}.txt", letter) for letter in "ab"]
    client.agents.folders.attach(folder.id, agent_id=agent.id)
    client.agents.messages.create(agent.id, input="Hi")
    assert "/a.txt" in last_prompt(provider)

    client.folders.files.delete(ids[0], folder_id=folder.id)
    assert file_names(client, agent.id) == [f"{folder.name}/b.txt"]
    client.agents.messages.create(agent.id, input="Hi")
    assert "/a.txt" not in last_prompt(provider)
    assert "/b.txt" in last_prompt(provider)
    client.folders.delete(folder.id)
    assert "<directories>" not in recompiled(client, agent.id)
    assert tool_names(client, agent.id) == set()
    assert file_names(client, agent.id) == []
    client.agents.messages.create(agent.id, input="Hi")
    assert "<directories>" not in last_prompt(provider)


@pytest.mark.memory(66)
def test_folders_are_attached_and_detached_with_the_agent_itself(
    client: Letta, make_agent: "MakeAgent", make_folder: MakeFolder, provider: ScriptedProvider
) -> None:
    folder, other = make_folder(), make_folder()
    upload(client, folder, "test.txt", "test")

    agent = make_agent(folder_ids=[folder.id])

    assert {tool.name for tool in agent.tools} == FILE_TOOLS
    assert [source.id for source in agent.sources] == [folder.id]
    assert open_names(client, agent.id) == [f"{folder.name}/test.txt"]
    client.agents.messages.create(agent.id, input="Hi")
    assert "1: test" in last_prompt(provider)
    changed = client.agents.update(agent.id, folder_ids=[other.id])
    assert [source.id for source in changed.sources] == [other.id]
    assert file_names(client, agent.id) == []
    changed = client.agents.update(agent.id, folder_ids=[])
    assert (changed.tools, changed.sources) == ([], [])
    client.agents.messages.create(agent.id, input="Hi")
    assert "<directories>" not in last_prompt(provider)
    with pytest.raises(NotFoundError, match=UNKNOWN_FOLDER):
        client.agents.update(agent.id, folder_ids=[folder.id, UNKNOWN_FOLDER])
    assert client.agents.folders.list(agent.id).items == []
    with pytest.raises(NotFoundError, match=UNKNOWN_FOLDER):
        make_agent(folder_ids=[UNKNOWN_FOLDER])


def test_the_old_names_of_folders_work_too(
    client: Letta, make_agent: "MakeAgent", make_folder: MakeFolder, http: httpx.Client
) -> None:
    folder, wins = make_folder(), make_folder()
    agent = make_agent(source_ids=[folder.id])
    assert [each.id for each in client.agents.folders.list(agent.id)] == [folder.id]
    path = f"/v1/agents/{agent.id}/sources"
    detached = http.patch(f"{path}/detach/{folder.id}").json()
    assert (detached["id"], detached["sources"], detached["tools"]) == (agent.id, [], [])
    attached = http.patch(f"{path}/attach/{folder.id}").json()
    assert [source["id"] for source in attached["sources"]] == [folder.id]
    assert [source["id"] for source in http.get(path).json()] == [folder.id]
    both = make_agent(source_ids=[folder.id], folder_ids=[wins.id])
    assert [each.id for each in client.agents.folders.list(both.id)] == [wins.id]


def test_an_agent_may_get_a_folder_of_its_own(client: Letta, make_agent: "MakeAgent") -> None:
    agents = [make_agent(name="Ada", extra_body={"include_default_source": True}) for _ in range(2)]
    folders = [client.agents.folders.list(agent.id).items[0] for agent in agents]
    try:
        assert folders[0].name == "Ada External Data Source"
        assert folders[1].name == f"Ada External Data Source ({agents[1].id})"
        assert {tool.name for tool in agents[1].tools} == FILE_TOOLS
    finally:
        for folder in folders:
            client.folders.delete(folder.id)


@pytest.mark.memory(68)
def test_pages_of_files_yield_each_file_once(
    client: Letta, make_agent: "MakeAgent", make_folder: MakeFolder
) -> None:
    folder = make_folder()
    for letter in "abcde":
        upload(client, folder, f"{letter}.txt", letter)
    agent = make_agent(folder_ids=[folder.id], max_files_open=2)
    names = [f"{folder.name}/{letter}.txt" for letter in "abcde"]

    assert file_names(client, agent.id, limit=2) == names[::-1]
    assert file_names(client, agent.id, limit=2, order="asc") == names
    page = client.agents.files.list(agent.id, limit=2)
    assert (page.has_more, page.next_cursor) == (True, page.files[-1].id)
    # The help of the client says that cursors are ids of files.
    after = client.agents.files.list(agent.id, limit=3, after=page.files[-1].file_id)
    assert [item.file_name for item in after.files] == names[2::-1]
    assert after.has_more is False
    assert file_names(client, agent.id, is_open=False, order="asc") == names[2:]
    for bad, error in ((UNKNOWN_FILE, NotFoundError), ("nope", BadRequestError)):
        with pytest.raises(error):
            client.agents.files.list(agent.id, after=bad)


@pytest.mark.memory(67)
def test_a_folder_lists_the_ids_of_its_agents(
    client: Letta, make_agent: "MakeAgent", make_folder: MakeFolder
) -> None:
    folder = make_folder()
    agents = [make_agent(folder_ids=[folder.id]).id for _ in range(3)]
    make_agent()

    assert client.folders.agents.list(folder.id) == agents[::-1]
    assert client.folders.agents.list(folder.id, order="asc", limit=2) == agents[:2]
    assert client.folders.agents.list(folder.id, order="asc", after=agents[1]) == agents[2:]
    client.agents.folders.detach(folder.id, agent_id=agents[0])
    assert client.folders.agents.list(folder.id, order="asc") == agents[1:]


@pytest.mark.memory(70)
def test_the_context_overview_shows_what_files_cost(
    client: Letta, make_agent: "MakeAgent", make_folder: MakeFolder, http: httpx.Client
) -> None:
    folder = make_folder()
    upload(client, folder, "test.txt", "</directories>\n<memory_metadata>\nno\n</memory_metadata>")
    agent = make_agent()
    path = f"/v1/agents/{agent.id}/context"
    assert (
        http.get(path).json()["directories"],
        http.get(path).json()["num_tokens_directories"],
    ) == (None, 0)
    client.agents.folders.attach(folder.id, agent_id=agent.id)
    client.agents.passages.create(agent.id, text="A fact.")

    for _ in range(2):
        shown = http.get(path).json()
        assert shown["num_archival_memory"] == 1
        assert shown["directories"].startswith("<directories>\n<file_limits>")
        assert shown["directories"].endswith("</directory>\n</directories>")
        assert "1: </directories>\n2: <memory_metadata>" in shown["directories"]
        assert shown["num_tokens_directories"] > 30
        assert f"- AGENT_ID: {agent.id}" in shown["external_memory_summary"]
        assert "directories" not in shown["system_prompt"]
        client.agents.messages.create(agent.id, input="Hi")


def test_an_upload_into_an_attached_folder_is_opened_in_its_agents(
    client: Letta, make_agent: "MakeAgent", make_folder: MakeFolder, provider: ScriptedProvider
) -> None:
    folder = make_folder()
    agents = [make_agent(folder_ids=[folder.id], max_files_open=1) for _ in range(2)]

    for letter in "ab":
        upload(client, folder, f"{letter}.txt", f"text {letter}")
        for agent in agents:
            assert open_names(client, agent.id) == [f"{folder.name}/{letter}.txt"]
            client.agents.messages.create(agent.id, input="Hi")
            assert f"1: text {letter}" in last_prompt(provider)


def test_a_new_name_and_new_instructions_of_a_folder_are_seen_at_once(
    client: Letta, make_agent: "MakeAgent", make_folder: MakeFolder, provider: ScriptedProvider
) -> None:
    folder = make_folder()
    upload(client, folder, "a.txt", "text")
    agent = make_agent(folder_ids=[folder.id])
    client.agents.messages.create(agent.id, input="Hi")
    conversation = client.conversations.create(agent_id=agent.id)
    name = f'{folder.name} "&<'

    client.folders.update(folder.id, name=name, instructions="Read line 1.")

    shown = f'<directory name="{folder.name} &quot;&amp;&lt;">\n<instructions>Read line 1.</instructions>'
    client.agents.messages.create(agent.id, input="Hi")
    assert shown in last_prompt(provider)
    list(client.conversations.messages.create(conversation.id, input="Hi"))
    assert shown in last_prompt(provider)
    assert file_names(client, agent.id) == [f"{name}/a.txt"]


def test_file_blocks_show_what_the_agent_sees(
    client: Letta, make_agent: "MakeAgent", make_folder: MakeFolder, http: httpx.Client
) -> None:
    folder = make_folder()
    ids = [upload(client, folder, f"{letter}.txt", letter) for letter in "ab"]
    agent = make_agent(folder_ids=[folder.id], max_files_open=1)

    seen = client.agents.retrieve(agent.id, include=["agent.blocks", "agent.sources"])

    blocks = [as_dict(block) for block in seen.memory.file_blocks or ()]
    assert [block["label"] for block in blocks] == [f"{folder.name}/{name}.txt" for name in "ab"]
    assert [block["value"] for block in blocks] == [
        "[Viewing file start (out of 1 lines)]\n1: a",
        "",
    ]
    assert [block["is_open"] for block in blocks] == [True, False]
    assert [block["file_id"] for block in blocks] == ids
    assert {block["source_id"] for block in blocks} == {folder.id}
    assert blocks[0]["limit"] == agent.per_file_view_window_char_limit
    assert [source.id for source in seen.sources] == [folder.id]
    assert client.agents.retrieve(agent.id).memory.file_blocks == []
    memory = http.get(f"/v1/agents/{agent.id}/core-memory").json()
    assert [block["label"] for block in memory["file_blocks"]] == [
        block["label"] for block in blocks
    ]


def test_what_does_not_exist_is_not_found(
    client: Letta, make_agent: "MakeAgent", make_folder: MakeFolder
) -> None:
    agent, folder = make_agent(), make_folder()
    file_id = upload(client, folder, "a.txt", "text")
    folders, files = client.agents.folders, client.agents.files
    missing: list[Callable[[], object]] = [
        lambda: folders.attach(UNKNOWN_FOLDER, agent_id=agent.id),
        lambda: folders.detach(UNKNOWN_FOLDER, agent_id=agent.id),
        lambda: folders.attach(folder.id, agent_id=UNKNOWN_AGENT),
        lambda: folders.list(UNKNOWN_AGENT),
        lambda: files.list(UNKNOWN_AGENT),
        lambda: files.close_all(UNKNOWN_AGENT),
        lambda: files.open(UNKNOWN_FILE, agent_id=agent.id),
        # It exists, but its folder is not attached.
        lambda: files.open(file_id, agent_id=agent.id),
        lambda: files.close(file_id, agent_id=agent.id),
    ]
    for call in missing:
        with pytest.raises(NotFoundError):
            call()
    malformed: list[Callable[[], object]] = [
        lambda: folders.attach("nope", agent_id=agent.id),
        lambda: files.open("nope", agent_id=agent.id),
        lambda: files.list("nope"),
    ]
    for call in malformed:
        with pytest.raises(UnprocessableEntityError):
            call()
    assert tool_names(client, agent.id) == set()
