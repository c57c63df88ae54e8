"""What an agent sees of its files: views, eviction, the section of the system message."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.agent_files import (
    AttachedFile,
    FileView,
    choose_evicted,
    escape_name,
    find_by_name,
    render_directories,
    render_view,
)
from holdfast.core.files import AgentFile, File, Folder

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def folder(name: str = "test_source", **fields: Any) -> Folder:
    values: dict[str, Any] = {"id": f"source-{name}", "organization_id": "org-1", "name": name}
    return Folder(**values | {"created_at": NOW, "updated_at": NOW} | fields)


def attached(name: str, folder_name: str = "test_source", lines: int = 1) -> AttachedFile:
    file = File(
        id=f"file-{name}",
        organization_id="org-1",
        folder_id=f"source-{folder_name}",
        name=name,
        original_name=name,
        content_id="content-1",
        created_at=NOW,
        updated_at=NOW,
    )
    state = agent_file(file.id)
    return AttachedFile(state=state, file=file, folder_name=folder_name, lines=lines, characters=0)


def agent_file(file_id: str, accessed: int = 0, *, is_open: bool = True) -> AgentFile:
    return AgentFile(
        id=f"file_agent-{file_id}",
        agent_id="agent-1",
        file_id=file_id,
        created_at=NOW,
        last_accessed_at=NOW + timedelta(seconds=accessed),
        is_open=is_open,
    )


@pytest.mark.parametrize(
    ("start", "end", "header"),
    [
        (None, None, "[Viewing file start (out of 100 lines)]"),
        (50, 54, "[Viewing lines 50 to 54 (out of 100 lines)]"),
        (51, None, "[Viewing lines 51 to end (out of 100 lines)]"),
        (90, 200, "[Viewing lines 90 to 100 (out of 100 lines)]"),
    ],
)
def test_a_view_begins_with_the_lines_that_it_shows(
    start: int | None, end: int | None, header: str
) -> None:
    first, last = start or 1, min(end or 100, 100)
    lines = ["  a ", "", *(f"line {number}" for number in range(first + 2, last + 1))]
    text = render_view(lines, 100, start, end, 10_000)
    assert text.split("\n")[:4] == [
        header,
        f"{first}:   a",
        f"{first + 1}: ",
        f"{first + 2}: line {first + 2}",
    ]
    assert text.endswith(f"\n{last}: line {last}")


def test_a_view_of_which_only_the_beginning_was_read_says_that_it_is_cut() -> None:
    text = render_view(["a", " " * 500], 100, None, None, 500)
    assert text.startswith("[Viewing file start (out of 100 lines)]\n1: a\n2: ...[TRUNCATED]\n")


def test_an_empty_file_has_no_view() -> None:
    assert render_view([], 0, None, None, 1_000) == ""


@settings(deadline=None)
@given(
    lines=st.lists(st.text(st.characters(exclude_characters="\n\r"), max_size=50), min_size=1),
    limit=st.integers(min_value=0, max_value=500),
)
def test_a_view_is_never_longer_than_its_limit(lines: list[str], limit: int) -> None:
    text = render_view(lines, len(lines), None, None, limit)
    whole = render_view(lines, len(lines), None, None, 1_000_000)
    assert len(text) <= limit or text == whole
    if len(whole) <= limit:
        assert text == whole
    elif limit >= 100:
        assert text.endswith("use functions to view the full content.")
        assert whole.startswith(text.split("...[TRUNCATED]\n# NOTE", 1)[0])


@settings(deadline=None)
@given(st.data())
def test_eviction_closes_the_least_recently_used_and_no_more_than_needed(
    data: st.DataObject,
) -> None:
    times = data.draw(st.lists(st.integers(0, 5), max_size=12))
    files = [
        agent_file(f"file-{number}", time, is_open=data.draw(st.booleans()))
        for number, time in enumerate(times)
    ]
    limit = data.draw(st.integers(0, 8))
    ids = [item.file_id for item in files]
    opening = data.draw(st.lists(st.sampled_from(ids), unique=True)) if ids else []
    evicted = choose_evicted(files, opening, limit)
    others = [item for item in files if item.is_open and item.file_id not in opening]
    kept = [item for item in others if item not in evicted]
    assert all(item in others for item in evicted)
    assert len(kept) + len(opening) <= limit or not kept
    assert not evicted or len(kept) + len(opening) >= limit
    for item in evicted:
        assert all(item.last_accessed_at <= other.last_accessed_at for other in kept)


def test_the_section_of_the_system_message_shows_folders_and_files_by_name() -> None:
    text = render_view(["test"], 1, None, None, 15_000)
    views = [FileView(attached("test.txt"), text), FileView(attached("b.txt"))]
    shown = render_directories(
        [folder("z", description="Last."), folder(instructions="Read it.")], views, 5, 15_000
    )
    assert (
        shown
        == """<directories>
<file_limits>
- current_files_open=1
- max_files_open=5
</file_limits>
<directory name="test_source">
<instructions>Read it.</instructions>
<file status="closed" name="test_source/b.txt">
<metadata>
- read_only=true
- chars_current=0
- chars_limit=15000
</metadata>
</file>
<file status="open" name="test_source/test.txt">
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
<directory name="z">
<description>Last.</description>
</directory>
</directories>"""
    )


def test_without_a_folder_there_is_no_section() -> None:
    assert render_directories([], [], 5, 15_000) == ""


@settings(deadline=None)
@given(st.text())
def test_no_name_ends_the_attribute_that_it_is_in(name: str) -> None:
    assert not set(escape_name(name)) & set('"<>\n')


def test_a_file_is_found_by_its_name_with_or_without_the_folder_and_as_it_is_shown() -> None:
    files = [attached("a.txt"), attached("a.txt", "other"), attached('b & "c".txt')]
    assert find_by_name(files, "other/a.txt") is files[1]
    assert find_by_name(files, "a.txt") is None
    assert find_by_name(files, 'b & "c".txt') is files[2]
    assert find_by_name(files, "test_source/b &amp; &quot;c&quot;.txt") is files[2]
    assert find_by_name(files, "") is None
