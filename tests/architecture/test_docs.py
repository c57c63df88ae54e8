"""The pages agree with the code and with each other.

Three blocks are made from code. If one of them fails, its text is in the failure: paste it into the page.
"""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.adapters.models.providers.table import PROVIDERS
from holdfast.config import SPECS, default_text, has_option, option_name
from holdfast.core.lifecycle import FINAL, TRANSITIONS
from holdfast.core.runs import RunStatus
from holdfast.core.tool_source.parsing import parse

ROOT = Path(__file__).parents[2]

# What the tools of this repository make, and what git does not keep.
NOT_OURS = {
    ".coverage",
    ".git",
    ".hypothesis",
    ".import_linter_cache",
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
    ".venv",
    "__pycache__",
    "build",
    "dist",
    "htmlcov",
    "results",
}

LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)

# Written apart, so that this file does not name them itself.
FOREIGN = [
    "../" + "shared",
    "CONTRACT" + ".md",
    "DESIGN" + ".md",
    "STYLE" + ".md",
    "/" + "work/",
    "/" + "root/",
]


def files_of_the_repository() -> Iterator[Path]:
    folders = [ROOT]
    while folders:
        for path in folders.pop().iterdir():
            if path.name in NOT_OURS or path.name.endswith(".egg-info"):
                continue
            if path.is_dir():
                folders.append(path)
            else:
                yield path


def pages() -> list[Path]:
    return sorted(path for path in files_of_the_repository() if path.suffix == ".md")


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def anchors(page: Path) -> set[str]:
    """The names that GitHub gives to the headings of a page."""
    headings = HEADING.findall(FENCED.sub("", page.read_text(encoding="utf-8")))
    plain = [re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings]
    return {heading.replace(" ", "-") for heading in plain}


def links(page: Path) -> list[str]:
    return LINK.findall(FENCED.sub("", page.read_text(encoding="utf-8")))


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_every_link_leads_somewhere(page: Path) -> None:
    lost = []
    for link in links(page):
        if link.startswith(("https://", "http://", "mailto:")):
            continue
        target, _, anchor = link.partition("#")
        path = (page.parent / target).resolve() if target else page
        if not path.exists() or (anchor and anchor not in anchors(path)):
            lost.append(link)

    assert lost == []


def test_every_page_under_docs_can_be_reached_from_its_index() -> None:
    index = ROOT / "docs" / "README.md"
    listed = {(index.parent / link).resolve() for link in links(index)}
    top = {path for path in (ROOT / "docs").iterdir() if path != index}

    assert {name_of(path) for path in top if path.resolve() not in listed} == set()


def test_the_repository_stands_alone() -> None:
    named = []
    for path in files_of_the_repository():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        named += [f"{name_of(path)}: {word}" for word in FOREIGN if word in text]

    assert named == []


def settings_table() -> str:
    rows = ["| variable | option | default | meaning |", "|---|---|---|---|"]
    for name, about in SPECS.items():
        variables = " or ".join(f"`{variable}`" for variable in about.variables)
        shown = f"`{option_name(name)}`" if has_option(name) else ""
        rows.append(f"| {variables} | {shown} | {default_text(name)} | {about.description} |")
    return "\n".join(rows)


def providers_table() -> str:
    rows = ["| handle | set | extra |", "|---|---|---|"]
    for row in PROVIDERS.values():
        setup = re.sub(r"\b[A-Z]+(?:_[A-Z]+)+\b", r"`\g<0>`", row.setup_text)
        extra = f"`{row.extra}`" if row.extra else ""
        rows.append(f"| `{row.name}/…` | {setup} | {extra} |")
    return "\n".join(rows)


def run_diagram() -> str:
    lines = ["```mermaid", "stateDiagram-v2", "    [*] --> queued"]
    lines += [f"    {old} --> {new}: {signal}" for (old, signal), new in TRANSITIONS.items()]
    lines += [f"    {status} --> [*]" for status in RunStatus if status in FINAL]
    return "\n".join([*lines, "```"])


def test_the_table_of_settings_is_the_one_of_the_code() -> None:
    assert settings_table() in (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")


def test_the_table_of_providers_is_the_one_of_the_code() -> None:
    assert providers_table() in (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")


def test_the_diagram_of_a_run_is_the_one_of_the_code() -> None:
    assert run_diagram() in (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")


PLACE = re.compile(
    r"(?<![\w/.-])(?:(?:adapters|assembly|cli|config|core|engine|http|ports|testing|usecases|tests|docs)/[\w/]*(?:\.\w+)*"
    r"|(?:errors|logs|run_end)\.py)"
)


def code_references(page: Path) -> set[str]:
    """What the page names of the code and of the tests, in its text and in its diagrams."""
    text = LINK.sub("", page.read_text(encoding="utf-8"))
    return {place.rstrip(".") for place in PLACE.findall(text)}


def reference_exists(place: str) -> bool:
    """A file, a folder, a module without its suffix, or a name in a module: ``core/turn.next_command``."""
    root = ROOT if place.startswith(("tests/", "docs/")) else ROOT / "src" / "holdfast"
    module, _, name = place.rpartition(".")
    if (root / place).exists() or (root / f"{place}.py").exists():
        return True
    file = root / f"{module}.py"
    return (
        file.exists()
        and re.search(
            rf"^(?:async )?(?:def|class) {name}\b", file.read_text(encoding="utf-8"), re.MULTILINE
        )
        is not None
    )


# The wire is V1's: its paths look like ours.
@pytest.mark.parametrize(
    "page", [page for page in pages() if page.name != "wire-v1.md"], ids=name_of
)
def test_every_place_in_the_code_that_a_page_names_is_there(page: Path) -> None:
    assert {place for place in code_references(page) if not reference_exists(place)} == set()


def layers() -> list[str]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    (layered,) = [item for item in contracts if item.get("containers") == ["holdfast"]]
    return [str(layer) for layer in layered["layers"]]


def test_the_layers_of_the_architecture_are_those_that_the_linter_checks() -> None:
    architecture = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    _, table = architecture.split("| layer | what it contains |\n|---|---|\n", 1)
    cells = re.findall(r"^\| ((?:`\w+`(?: \\\| )?)+) \|", table.split("\n\n")[0], re.MULTILINE)

    assert [cell.replace("`", "").replace("\\", "") for cell in cells] == layers()


def test_the_architecture_says_where_to_look() -> None:
    assert len(code_references(ROOT / "ARCHITECTURE.md")) > 40


def test_the_glossary_has_at_most_fifteen_words() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    _, glossary = text.split("## Glossary\n", 1)
    words = re.findall(r"^\| \*\*(.+?)\*\* \|", glossary.split("\n## ")[0], re.MULTILINE)

    assert 0 < len(words) <= 15


def test_every_log_event_is_in_the_table() -> None:
    """And every line of the table in the code; a name is written out where it is logged, so that it can be found."""
    page = (ROOT / "docs" / "watching.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([a-z_.]+)` \| (\w+) \|", page, re.MULTILINE)
    documented = dict(rows)
    assert len(documented) == len(rows)
    written = {(name, _LEVELS[method]) for name, method in log_events()}
    assert {*documented} == {name for name, _ in written}
    # One event may be grave or not: the table has one of its levels.
    assert {*documented.items()} <= written


_LEVELS = {
    "debug": "debug",
    "info": "info",
    "warning": "warning",
    "error": "error",
    "exception": "error",
}


def log_events() -> Iterator[tuple[str, str]]:
    for module in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(parse(module.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(
                    func=ast.Attribute(value=ast.Name(id="log" | "_log"), attr=method),
                    args=[ast.Constant(value=str(name)), *_],
                ):
                    yield name, method


def test_decisions_are_numbered_one_after_the_other() -> None:
    pages = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    files = [int(page.name[:4]) for page in pages]
    titles = [int(page.read_text(encoding="utf-8")[2:].split(".")[0]) for page in pages]
    assert files == titles == list(range(1, len(pages) + 1))
