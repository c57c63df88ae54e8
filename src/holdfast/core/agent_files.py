"""The files of an agent: which of them it has open, and the text that it sees of each. Tools are in ``core.file_tools``."""

import html
from collections.abc import Collection, Iterable, Sequence

from msgspec import Struct

from holdfast.core.agents import Agent
from holdfast.core.files import AgentFile, File, Folder, path_name

# For an agent that was stored without limits.
_DEFAULT_FILES_OPEN = 5
_DEFAULT_VIEW_CHARS = 50_000

_TRUNCATED = (
    "...[TRUNCATED]\n# NOTE: This block is truncated, use functions to view the full content."
)
_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "\n": "&#10;"})


class AttachedFile(Struct, frozen=True, kw_only=True):
    """A file of one of the agent's folders, and what the agent sees of it."""

    state: AgentFile
    file: File
    folder_name: str
    # Of its text.
    lines: int
    characters: int

    @property
    def name(self) -> str:
        """As agents see it."""
        return path_name(self.folder_name, self.file.name)


class FileView(Struct, frozen=True):
    """A file with the text that the agent sees of it, which is empty if it is closed."""

    attached: AttachedFile
    text: str = ""


def files_open_limit(agent: Agent) -> int:
    """How many files the agent may have open; 0: none, ever."""
    return _DEFAULT_FILES_OPEN if agent.max_files_open is None else agent.max_files_open


def view_limit(agent: Agent) -> int:
    """How many characters the agent sees of one file."""
    return agent.per_file_view_window_char_limit or _DEFAULT_VIEW_CHARS


def default_folder_name(agent_name: str) -> str:
    """The folder that an agent gets at its creation if the caller wants so."""
    return f"{agent_name} External Data Source"


def choose_evicted(
    files: Iterable[AgentFile], opening: Collection[str], limit: int
) -> Sequence[AgentFile]:
    """The open files to close so that those in ``opening``, which are ids of files, can be open too: the ones that were
    used least recently."""
    others = [item for item in files if item.is_open and item.file_id not in opening]
    others.sort(key=lambda item: (item.last_accessed_at, item.created_at, item.id))
    return others[: max(len(others) + len(opening) - limit, 0)]


def render_view(
    lines: Sequence[str], total: int, start: int | None, end: int | None, limit: int
) -> str:
    """The text that an agent sees of a file with ``total`` lines. ``lines`` are those from ``start`` on, up to ``end`` or as many
    as fit into ``limit`` characters; an empty file has no text."""
    if not total:
        return ""
    first, last = start or 1, min(end or total, total)
    numbered = (f"{number}: {line.rstrip()}" for number, line in enumerate(lines, first))
    text = "\n".join([_view_header(total, start, end), *numbered])
    is_whole = len(lines) > last - first
    return text if is_whole and len(text) <= limit else _truncate(text, limit)


def _view_header(total: int, start: int | None, end: int | None) -> str:
    if start is None and end is None:
        return f"[Viewing file start (out of {total} lines)]"
    last = "end" if end is None else min(end, total)
    return f"[Viewing lines {start or 1} to {last} (out of {total} lines)]"


def _truncate(text: str, limit: int) -> str:
    return f"{text[: max(limit - len(_TRUNCATED), 0)]}{_TRUNCATED}"[:limit]


def render_directories(
    folders: Sequence[Folder], views: Iterable[FileView], files_limit: int, chars_limit: int
) -> str:
    """The section of the system message about the agent's folders and files; empty if it has no folder."""
    if not folders:
        return ""
    shown: dict[str, list[FileView]] = {folder.id: [] for folder in folders}
    for view in sorted(views, key=lambda view: view.attached.file.name):
        # A folder that was attached just now is shown from the next time on.
        if view.attached.file.folder_id in shown:
            shown[view.attached.file.folder_id].append(view)
    open_count = sum(bool(view.text) for group in shown.values() for view in group)
    limits = [f"- current_files_open={open_count}", f"- max_files_open={files_limit}"]
    parts = ["<directories>", "<file_limits>", *limits, "</file_limits>"]
    parts += [
        _render_folder(folder, shown[folder.id], chars_limit)
        for folder in sorted(folders, key=lambda folder: folder.name)
    ]
    return "\n".join([*parts, "</directories>"])


def _render_folder(folder: Folder, views: Iterable[FileView], chars_limit: int) -> str:
    parts = [f'<directory name="{escape_name(folder.name)}">']
    if folder.description:
        parts.append(f"<description>{folder.description}</description>")
    if folder.instructions:
        parts.append(f"<instructions>{folder.instructions}</instructions>")
    parts += [_render_file(view, chars_limit) for view in views]
    return "\n".join([*parts, "</directory>"])


def _render_file(view: FileView, chars_limit: int) -> str:
    status = "open" if view.text else "closed"
    parts = [
        f'<file status="{status}" name="{escape_name(view.attached.name)}">',
        "<metadata>",
        "- read_only=true",
        f"- chars_current={len(view.text)}",
        f"- chars_limit={chars_limit}",
        "</metadata>",
    ]
    if view.text:
        parts += ["<value>", view.text, "</value>"]
    return "\n".join([*parts, "</file>"])


def escape_name(name: str) -> str:
    """The name for an attribute of the system message: it must not end the attribute."""
    return name.translate(_ESCAPES)


def find_by_name(files: Sequence[AttachedFile], name: str) -> AttachedFile | None:
    """The file with this name, with its folder or, if only one is called so, without. The model may write a name as the
    system message shows it, escaped."""
    for wanted in dict.fromkeys((name, html.unescape(name))):
        found = [item for item in files if item.name == wanted]
        found = found or [item for item in files if item.file.name == wanted]
        if len(found) == 1:
            return found[0]
    return None
