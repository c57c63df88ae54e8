"""Whatever a page tells a reader to run is run here, as it stands, against a real server."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.server_process import StartServer
from tests.support.waiting import try_until_done

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
DEFAULT_ADDRESS = "http://127.0.0.1:8283"
RUN_SECONDS = 100.0

# Typed after each block, so that the output can be split into what each block printed.
MARK = 'print("\\0", end="")\n'
PROMPTS = re.compile(r"^(>>> |\.\.\. )+", re.MULTILINE)


def blocks(page: str, language: str) -> list[str]:
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def paste_into_python(code: list[str], address: str) -> list[str]:
    """Paste the blocks into an interactive Python, line by line; return what each block prints.

    The interactive interpreter is stricter than a file: a blank line must end each indented block, and the value of
    a bare expression is printed. It writes prompts and errors to stderr, so stdout holds only the output.
    """
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONSTARTUP"}
    session = subprocess.run(
        [sys.executable, "-i", "-q"],
        input="".join(block + MARK for block in code).replace(DEFAULT_ADDRESS, address),
        env=environment | {"PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        encoding="utf-8",
        timeout=RUN_SECONDS,
        check=False,
    )
    assert PROMPTS.sub("", session.stderr).strip() == ""
    assert session.returncode == 0
    return session.stdout.split("\0")[:-1]


def test_the_example_that_the_server_prints_is_the_one_of_the_readme_and_works(
    run_server_command: StartServer,
) -> None:
    server = run_server_command()
    (example,) = blocks("README.md", "python")

    assert server.greeting.endswith("\n\n" + example.replace(DEFAULT_ADDRESS, server.address))

    (printed,) = paste_into_python([example], server.address)
    text, run = printed.splitlines()
    rolled = re.search(r"\b(\d+)\b", text)
    assert rolled is not None, text
    assert 1 <= int(rolled.group(1)) <= 16
    assert re.fullmatch(r"run-[0-9a-f-]{36} completed end_turn", run)


@pytest.mark.parametrize("page", ["docs/tutorial.md", "docs/tutorial-memory.md"])
def test_a_tutorial_prints_what_it_shows_when_it_is_pasted_into_python(
    run_server_command: StartServer, page: str
) -> None:
    server = run_server_command()

    assert paste_into_python(blocks(page, "python"), server.address) == blocks(page, "text")


@pytest.fixture
def garden() -> Iterator[Path]:
    """The files of the page about MCP servers, where the user that tools run as can read them."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        page = (ROOT / "docs/mcp.md").read_text(encoding="utf-8")
        for file, text in re.findall(
            r"^```\w+ file=(\S+)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL
        ):
            (folder / file).write_text(text.replace("/home/you", name), encoding="utf-8")
        yield folder


def test_the_page_about_mcp_servers_prints_what_it_shows(
    run_server_command: StartServer, garden: Path
) -> None:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    server = run_server_command(
        PATH=path,
        HOLDFAST_MCP_CONFIG=str(garden / "mcp.json"),
        HOLDFAST_MCP_APPROVE="destructive",
        HOLDFAST_LOG_LEVEL="info",
    )
    try_until_done(lambda: "mcp.configured_read" in server.log or None, seconds=RUN_SECONDS)

    assert paste_into_python(blocks("docs/mcp.md", "python"), server.address) == blocks(
        "docs/mcp.md", "text"
    )


def test_the_page_about_testing_is_a_test_file_that_passes(tmp_path: Path) -> None:
    code = blocks("docs/testing-agents.md", "python")
    (tmp_path / "test_agents.py").write_text("\n\n".join(code), encoding="utf-8")

    with subprocess.Popen(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_agents.py"],
        cwd=tmp_path,
        # As without an activated venv: no program of ours is on the path.
        env=os.environ | {"PATH": os.defpath},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            printed, _ = process.communicate(timeout=RUN_SECONDS)
        finally:
            # Its server too, should it not have come to the end.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    assert process.returncode == 0, printed
    assert f"{sum(block.count('def test_') for block in code)} passed" in printed
