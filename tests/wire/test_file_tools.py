"""The tools open_files, grep_files and semantic_search_files (memory-v1 §5.9 to §5.11)."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from letta_client import Letta
from letta_client.types import Folder
from tests.support.wire_files import MakeFolder, folders_of_test, open_names, run_tool, upload

if TYPE_CHECKING:
    from tests.support.wire_server import MakeAgent

pytestmark = [pytest.mark.slow, pytest.mark.both_databases]

LONG = "".join(f"line {number}\n" for number in range(1, 101))


@pytest.fixture
def make_folder(client: Letta) -> Iterator[MakeFolder]:
    with folders_of_test(client) as make:
        yield make


@pytest.fixture
def folder(make_folder: MakeFolder) -> Folder:
    return make_folder()


def open_files(client: Letta, agent_id: str, *requests: Any, **others: Any) -> tuple[str, str]:
    return run_tool(client, agent_id, "open_files", file_requests=list(requests), **others)


def test_files_are_opened_by_name_with_a_range_and_others_are_closed(
    client: Letta, make_agent: "MakeAgent", folder: Folder
) -> None:
    for name in ("a.txt", "b.txt", "c.txt", "d.txt"):
        upload(client, folder, name, LONG)
    agent = make_agent(folder_ids=[folder.id], max_files_open=2)
    a, b, c, d = (f"{folder.name}/{letter}.txt" for letter in "abcd")
    client.agents.files.close_all(agent.id)

    assert open_files(client, agent.id, {"file_name": a}) == ("success", f"* Opened {a}")
    status, text = open_files(client, agent.id, {"file_name": "a.txt", "offset": 0, "length": 50})
    assert (status, text) == ("success", f"* Opened {a} (lines 1-50) (previously full file)")
    _, text = open_files(client, agent.id, {"file_name": a, "offset": 90, "length": 50})
    assert text == f"* Opened {a} (lines 91-100) (previously lines 1-50)"
    _, text = open_files(client, agent.id, {"file_name": a, "offset": "98"}, {"file_name": b})
    assert text == f"* Opened 2 files: {a} (lines 99-end) (previously lines 91-100), {b}"
    _, text = open_files(client, agent.id, {"file_name": a}, {"file_name": c, "length": 3})
    assert text == (
        f"* Opened 2 files: {a} (previously lines 99-end), {c} (lines 1-3)\n"
        f"Note: Closed 1 least recently used file(s) due to open file limit: {b}"
    )
    _, text = open_files(client, agent.id, {"file_name": d}, close_all_others=True)
    assert text == (f"* Opened {d}\nNote: Closed 2 file(s) due to close_all_others=True: {a}, {c}")
    assert open_names(client, agent.id) == [d]


@pytest.mark.memory(61)
def test_a_bad_request_is_refused_and_no_file_is_opened(
    client: Letta, make_agent: "MakeAgent", folder: Folder
) -> None:
    upload(client, folder, "a.txt", LONG)
    upload(client, folder, "b.txt", LONG)
    agent = make_agent(folder_ids=[folder.id], max_files_open=2)
    client.agents.files.close_all(agent.id)
    a, b = f"{folder.name}/a.txt", f"{folder.name}/b.txt"
    for requests, problem in (
        ([], "No file requests provided"),
        ("a.txt", "No file requests provided"),
        (
            [{"file_name": a}] * 3,
            "Cannot open 3 files: exceeds configured maximum limit of 2 files",
        ),
        (["a.txt"], "Each file request needs a file_name."),
        ([{"offset": 1}], "Each file request needs a file_name."),
        ([{"file_name": 5}], "Each file request needs a file_name."),
        (
            [{"file_name": a, "offset": -1}],
            f"Offset for file {a} must be >= 0 (0-indexed), got -1",
        ),
        ([{"file_name": a, "length": 0}], f"Length for file {a} must be >= 1, got 0"),
        ([{"file_name": a, "offset": "x"}], "offset must be a whole number."),
        ([{"file_name": a, "length": [1]}], "length must be a whole number."),
        (
            [{"file_name": a, "offset": 100}],
            f"File {a} has only 100 lines, but requested offset 101 is out of range",
        ),
        # The first is fine, and is not opened either.
        (
            [{"file_name": a}, {"file_name": "nope.txt"}],
            (
                "nope.txt not attached - did you get the filename correct? "
                f"Currently you have the following files attached: ['{a}', '{b}']"
            ),
        ),
    ):
        result = run_tool(client, agent.id, "open_files", file_requests=requests)
        assert result == ("error", problem)
    assert run_tool(client, agent.id, "open_files") == ("error", "Missing arguments: file_requests")
    assert open_names(client, agent.id) == []


@pytest.mark.memory(62)
def test_grep_shows_a_page_of_matches_with_their_real_line_numbers(
    client: Letta, make_agent: "MakeAgent", folder: Folder
) -> None:
    lines = [
        f"  TODO number {number // 2}" if number % 2 == 0 and number <= 90 else ""
        for number in range(1, 101)
    ]
    upload(client, folder, "a.txt", "\n".join(lines))
    upload(client, folder, "b.txt", "nothing")
    agent = make_agent(folder_ids=[folder.id], max_files_open=1)
    name = f"{folder.name}/a.txt"

    status, text = run_tool(client, agent.id, "grep_files", pattern=" todo number")

    assert status == "success"
    shown = text.split("\n")
    assert shown[:8] == [
        "Found 45 total matches across 1 files (showing matches 1-20 of 45)",
        "=" * 80,
        "",
        "Files with matches:",
        f"  - {name}: 45 matches",
        "",
        "",
        f"=== {name}:2 ===",
    ]
    assert shown[8:12] == ["  1: ", ">" + " 2:   TODO number 1", "  3: ", ""]
    assert shown[-2:] == [
        "",
        'To see more matches, call: grep_files(pattern="todo number", offset=20)',
    ]
    _, last = run_tool(client, agent.id, "grep_files", pattern="todo", offset=40, context_lines=0)
    assert "(showing matches 41-45 of 45)" in last
    assert f"=== {name}:90 ===\n> 90:   TODO number 45\n\nNo more matches to show." in last
    _, beyond = run_tool(client, agent.id, "grep_files", pattern="todo", offset=45)
    assert beyond == "No more matches to show."
    _, wide = run_tool(client, agent.id, "grep_files", pattern="number 45$", context_lines=99)
    assert "  70:   TODO number 35\n" in wide
    assert "  69: " not in wide


@pytest.mark.memory(63)
def test_an_expression_that_other_engines_never_finish_is_searched_at_once(
    client: Letta, make_agent: "MakeAgent", folder: Folder
) -> None:
    upload(client, folder, "a.txt", "a" * 100_000 + "b")
    agent = make_agent(folder_ids=[folder.id])
    with ThreadPoolExecutor(1) as pool:
        searching = pool.submit(run_tool, client, agent.id, "grep_files", pattern="(a+)+$")
        assert client.agents.retrieve(agent.id).id == agent.id
        result = searching.result(35)
    assert result == ("success", "No matches found for pattern: '(a+)+$'")


@pytest.mark.memory(63)
def test_bad_arguments_of_grep_are_refused_with_a_reason(
    client: Letta, make_agent: "MakeAgent", folder: Folder
) -> None:
    upload(client, folder, "a.txt", "text")
    agent = make_agent(folder_ids=[folder.id])
    for arguments, problem in (
        ({"pattern": "["}, "Invalid regex pattern: missing ]: ["),
        ({"pattern": "(?=a)"}, "Invalid regex pattern: invalid perl operator: (?="),
        ({"pattern": r"(a)\1"}, r"Invalid regex pattern: invalid escape sequence: \1"),
        ({"pattern": "  "}, "Empty search pattern provided"),
        ({"pattern": "a" * 1001}, "Pattern too complex: 1001 chars > 1000 limit"),
        ({"pattern": "a", "include": "["}, "Invalid include pattern: missing ]: ["),
        ({"pattern": "a", "offset": "x"}, "offset must be a whole number."),
        ({"pattern": "a", "context_lines": {}}, "context_lines must be a whole number."),
    ):
        assert run_tool(client, agent.id, "grep_files", **arguments) == ("error", problem)


def test_grep_searches_the_files_whose_names_match(
    client: Letta, make_agent: "MakeAgent", folder: Folder
) -> None:
    for name in ("a.py", "b.txt"):
        upload(client, folder, name, "def needle():\n    pass\n")
    agent = make_agent(folder_ids=[folder.id], max_files_open=0)

    def grep(**arguments: Any) -> str:
        status, text = run_tool(client, agent.id, "grep_files", **arguments)
        assert status == "success"
        return text

    assert "across 2 files" in grep(pattern="needle", offset=-3)
    assert f"- {folder.name}/a.py: 1 matches" in grep(pattern="needle", include="*.py")
    assert "across 1 files" in grep(pattern="needle", include=r"\.txt$")
    assert grep(pattern="x", include="*.md") == (
        "No files match the filename pattern '*.md' (filtered 2 files)"
    )
    assert grep(pattern="x", include="*.py") == (
        "No matches found for pattern: 'x' in files matching '*.py'"
    )
    client.agents.folders.detach(folder.id, agent_id=agent.id)
    for tool in client.tools.list(name="grep_files"):
        client.agents.tools.attach(tool.id, agent_id=agent.id)
    assert grep(pattern="x") == "No files are currently attached to search"


def test_more_matches_than_are_collected_are_said_to_be_more(
    client: Letta, make_agent: "MakeAgent", folder: Folder
) -> None:
    upload(client, folder, "a.txt", "x\n" * 1500)
    agent = make_agent(folder_ids=[folder.id])

    _, first = run_tool(client, agent.id, "grep_files", pattern="x")
    _, last = run_tool(client, agent.id, "grep_files", pattern="x", offset=980)

    assert first.startswith(
        "Found 1000+ total matches across 1 files (showing matches 1-20 of 1000+)"
    )
    assert first.endswith(
        "Note: Only the first 1000 matches were collected. There may be more matches beyond this limit."
    )
    assert last.endswith(
        "Showing last page of collected matches. There may be more matches beyond the collection limit."
    )


@pytest.mark.memory(64)
def test_passages_are_found_by_a_word_without_an_embedding_model(
    client: Letta, make_agent: "MakeAgent", folder: Folder
) -> None:
    upload(client, folder, "test.txt", "The budget of the zoo.\nIt is small.")
    upload(client, folder, "other.txt", "Nothing about money.")
    agent = make_agent(folder_ids=[folder.id])

    status, text = run_tool(client, agent.id, "semantic_search_files", query="budget", limit=3)

    title = "Found 1 semantic matches in 1 file for query: 'budget'"
    assert status == "success"
    assert text == (
        f"{title}\n{'=' * len(title)}\n\n=== {folder.name}/test.txt (passage #1) ===\n"
        "  The budget of the zoo.\n  It is small."
    )
    for query in ("unicorn", '"AND NEAR('):
        result = run_tool(client, agent.id, "semantic_search_files", query=query)
        assert result == ("success", f"No semantic matches found for query: '{query}'")
    status, _ = run_tool(client, agent.id, "semantic_search_files", query="x" * 100_000)
    assert status == "success"
    for arguments, problem in (
        ({"query": " "}, "Empty search query provided"),
        ({"query": "a", "limit": "many"}, "limit must be a whole number."),
    ):
        assert run_tool(client, agent.id, "semantic_search_files", **arguments) == (
            "error",
            problem,
        )


def test_a_file_that_was_searched_is_kept_open_longer(
    client: Letta, make_agent: "MakeAgent", folder: Folder
) -> None:
    ids = [upload(client, folder, f"{letter}.txt", f"word{letter}") for letter in "abc"]
    agent = make_agent(folder_ids=[folder.id], max_files_open=2)
    names = [f"{folder.name}/{letter}.txt" for letter in "abc"]
    assert open_names(client, agent.id) == names[:2]
    run_tool(client, agent.id, "grep_files", pattern="worda")
    assert client.agents.files.open(ids[2], agent_id=agent.id) == [names[1]]
    run_tool(client, agent.id, "semantic_search_files", query="worda")
    assert client.agents.files.open(ids[1], agent_id=agent.id) == [names[2]]
