"""Built-in tools with which an agent opens and searches the files of its folders (memory-v1 §5.9 to §5.11)."""

import asyncio
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import islice
from typing import Final

from holdfast.adapters.toolbox.line_search import (
    LineSearch,
    Pattern,
    compile_name_pattern,
    compile_pattern,
)
from holdfast.adapters.toolbox.specs import (
    Arguments,
    Builtin,
    ToolServices,
    in_transaction,
    parameters,
    string_schema,
    tool_actor,
)
from holdfast.core.agent_files import AttachedFile, files_open_limit, find_by_name
from holdfast.core.file_tools import (
    DEFAULT_CONTEXT_LINES,
    DEFAULT_PASSAGES,
    MAX_CONTEXT_LINES,
    MAX_MATCHES,
    MAX_PASSAGES,
    GrepResult,
    Hit,
    OpenRequest,
    ShownLines,
    check_range,
    choose_page,
    not_attached,
    parse_integer,
    parse_open_requests,
    render_grep,
    render_opened,
    render_passages,
)
from holdfast.core.files import TextPart
from holdfast.core.passages import PassageFilter
from holdfast.core.tools import ToolKind
from holdfast.errors import ToolError
from holdfast.ports.services import Services
from holdfast.ports.store import Transaction
from holdfast.ports.toolbox import BuiltinSpec, ToolContext
from holdfast.usecases import agent_files, passage_search

# Of one file, and of all files of one search. Characters of the text, not bytes of the file.
MAX_FILE_CHARS: Final = 50_000_000
MAX_TOTAL_CHARS: Final = 200_000_000
MAX_GREP_SECONDS: Final = 30
# How many parts of a text are read at once.
_PARTS_AT_ONCE: Final = 8
# Characters of the lines around a hit that are read.
_MAX_SHOWN_CHARS: Final = 50_000


def _open(tx: Transaction, context: ToolContext, arguments: Arguments, now: datetime) -> str:
    """Check all requests, then open all files."""
    tx.agent_files.lock([context.agent_id])
    agent = tx.agents.get(context.organization_id, context.agent_id)
    requests = parse_open_requests(arguments["file_requests"], files_open_limit(agent))
    files = tx.agent_files.list_of_agents([agent.id])[agent.id]
    opened: dict[str, tuple[OpenRequest, AttachedFile]] = {}
    for wanted in requests:
        found = find_by_name(files, wanted.name)
        if found is None:
            raise not_attached(wanted.name, files)
        opened[found.file.id] = (check_range(wanted, found), found)
    ranges = {file_id: (wanted.start, wanted.end) for file_id, (wanted, _) in opened.items()}
    close_others = arguments.get("close_all_others") in {True, "true"}
    closed = agent_files.open_ranges(tx, agent, files, ranges, now, close_others=close_others)
    return render_opened(list(opened.values()), closed.on_request, closed.evicted)


async def _grep(tool_services: ToolServices, context: ToolContext, arguments: Arguments) -> str:
    text = str(arguments["pattern"]).strip()
    if not text:
        raise ToolError("Empty search pattern provided")
    include = str(arguments.get("include") or "").strip()
    context_lines = parse_integer(arguments, "context_lines")
    around = DEFAULT_CONTEXT_LINES if context_lines is None else context_lines
    offset = max(parse_integer(arguments, "offset") or 0, 0)
    pattern = compile_pattern(text)
    services = tool_services.services
    files = await services.store.read(
        lambda tx: tx.agent_files.list_of_agents([context.agent_id])[context.agent_id]
    )
    if not files:
        return "No files are currently attached to search"
    chosen = _filter_by_name(files, include)
    if not chosen:
        return f"No files match the filename pattern '{include}' (filtered {len(files)} files)"
    result = await _FileSearch(services, pattern).run(chosen)
    await agent_files.touch(
        services, context.agent_id, sorted({hit.file_id for hit in result.hits})
    )
    page = choose_page(result, offset)
    around = min(max(around, 0), MAX_CONTEXT_LINES)
    shown = await services.store.read(lambda tx: _load_lines(tx, page, chosen, around))
    return render_grep(result, shown, text, include, offset)


def _filter_by_name(files: Sequence[AttachedFile], include: str) -> Sequence[AttachedFile]:
    if not include:
        return files
    pattern = compile_name_pattern(include)
    return [item for item in files if pattern.search(item.name)]


class _FileSearch:
    """One search of files. Texts are read in parts and searched on a thread: neither the store nor the event loop waits for
    an expression."""

    def __init__(self, services: Services, pattern: Pattern) -> None:
        self._services = services
        self._pattern = pattern
        self._started_ns = services.clock.monotonic_ns()
        self._hits: list[Hit] = []

    async def run(self, files: Sequence[AttachedFile]) -> GrepResult:
        searched = skipped = characters = 0
        for item in files:
            if item.characters > MAX_FILE_CHARS or self._is_over():
                skipped += item.characters > MAX_FILE_CHARS
                continue
            characters += item.characters
            if characters > MAX_TOTAL_CHARS:
                skipped += len(files) - searched - skipped
                break
            searched += 1
            await self._search(item)
        return GrepResult(
            hits=self._hits,
            searched=searched,
            skipped=skipped,
            is_complete=len(self._hits) < MAX_MATCHES and not self._is_late(),
            is_out_of_time=self._is_late(),
        )

    async def _search(self, item: AttachedFile) -> None:
        search, number = LineSearch(self._pattern, self._is_late), 0
        while not self._is_over():
            parts = await self._read_parts(item.file.content_id, number)
            if not parts:
                await asyncio.to_thread(self._collect, item, search.finish())
                return
            number = parts[-1].number + 1
            text = "".join(part.text for part in parts)
            await asyncio.to_thread(self._collect, item, search.add(text))

    async def _read_parts(self, content_id: str, start: int) -> Sequence[TextPart]:
        return await self._services.store.read(
            lambda tx: tx.contents.read_text_parts(content_id, start, _PARTS_AT_ONCE)
        )

    def _collect(self, item: AttachedFile, numbers: Iterator[int]) -> None:
        room = MAX_MATCHES - len(self._hits)
        self._hits += [Hit(item.file.id, item.name, number) for number in islice(numbers, room)]

    def _is_over(self) -> bool:
        return len(self._hits) >= MAX_MATCHES or self._is_late()

    def _is_late(self) -> bool:
        passed_ns = self._services.clock.monotonic_ns() - self._started_ns
        return passed_ns > MAX_GREP_SECONDS * 1_000_000_000


def _load_lines(
    tx: Transaction, page: Sequence[Hit], files: Sequence[AttachedFile], around: int
) -> Sequence[ShownLines]:
    by_id = {item.file.id: item for item in files}
    shown = []
    for hit in page:
        item = by_id[hit.file_id]
        first, last = max(hit.number - around, 1), min(hit.number + around, item.lines)
        text = tx.contents.read_lines(item.file.content_id, first, last, _MAX_SHOWN_CHARS)
        shown.append(ShownLines(hit, first, text.removesuffix("\n").split("\n")))
    return shown


async def _search(tool_services: ToolServices, context: ToolContext, arguments: Arguments) -> str:
    query = str(arguments["query"]).strip()
    if not query:
        raise ToolError("Empty search query provided")
    limit = parse_integer(arguments, "limit")
    limit = DEFAULT_PASSAGES if limit is None else min(max(limit, 1), MAX_PASSAGES)
    services = tool_services.services
    files = await services.store.read(
        lambda tx: tx.agent_files.list_of_agents([context.agent_id])[context.agent_id]
    )
    names = {item.file.id: item.name for item in files}
    folder_ids = tuple(sorted({item.file.folder_id for item in files}))
    actor = tool_actor(context)
    where = PassageFilter(folder_ids=folder_ids)
    result = await passage_search.search(services, actor, where, query, limit)
    passages = [item.passage for item in result.found]
    found = [(item.file_id, item.text) for item in passages if item.file_id in names]
    await agent_files.touch(services, context.agent_id, sorted({file_id for file_id, _ in found}))
    text = render_passages(query, [(names[file_id], text) for file_id, text in found])
    return "\n\n".join([text, *(f"Note: {sentence}" for sentence in result.unused)])


_FILE_REQUEST = {
    "type": "object",
    "properties": {
        "file_name": string_schema("The name of the file as it is shown, with its folder."),
        "offset": {
            "type": "integer",
            "description": "How many lines to leave out at the beginning; none if left out.",
        },
        "length": {
            "type": "integer",
            "description": "How many lines to show; all that follow if left out.",
        },
    },
    "required": ["file_name"],
}

FILE_TOOLS = (
    Builtin(
        BuiltinSpec(
            name="open_files",
            description="Open files of your folders, or parts of them, so that you see their text. If too many are "
            "open, those that you have not used for the longest time are closed. To open a file that is open shows "
            "other lines of it.",
            kind=ToolKind.FILES,
            parameters=parameters(
                ["file_requests"],
                file_requests={
                    "type": "array",
                    "items": _FILE_REQUEST,
                    "description": "The files to open.",
                },
                close_all_others={
                    "type": "boolean",
                    "description": "Close all other files first.",
                    "default": False,
                },
            ),
        ),
        in_transaction(_open),
    ),
    Builtin(
        BuiltinSpec(
            name="grep_files",
            description="Search all files of your folders, open or closed, for lines that match a regular "
            "expression. Upper and lower case are the same.",
            kind=ToolKind.FILES,
            parallel=True,
            parameters=parameters(
                ["pattern"],
                pattern=string_schema(
                    "A regular expression without look-around and back-references."
                ),
                include=string_schema("Only files whose name matches, such as *.py."),
                context_lines={
                    "type": "integer",
                    "description": "How many lines to show before and after each match.",
                    "default": DEFAULT_CONTEXT_LINES,
                },
                offset={
                    "type": "integer",
                    "description": "How many matches to leave out: for the next page.",
                },
            ),
        ),
        _grep,
    ),
    Builtin(
        BuiltinSpec(
            name="semantic_search_files",
            description="Search all files of your folders for passages about something.",
            kind=ToolKind.FILES,
            parallel=True,
            parameters=parameters(
                ["query"],
                query=string_schema("What to look for."),
                limit={
                    "type": "integer",
                    "description": f"How many passages at most, up to {MAX_PASSAGES}.",
                    "default": DEFAULT_PASSAGES,
                },
            ),
        ),
        _search,
    ),
)
