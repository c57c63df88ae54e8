"""The API keeps what its own description promises, also for input that a machine made up. A few examples per
operation: ``make fuzz`` also tries every boundary of every field, and goes on for as long as one likes."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.support.api_fuzzing import HEADERS, create_targets, fuzz, start_fuzzed_server
from tests.support.server_process import ServerProcess

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

LIMIT_SECONDS = 240
SEED = ("--seed", "1")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    started = start_fuzzed_server(tmp_path_factory.mktemp("home"))
    yield started
    started.stop()


def assert_no_fault(
    server: ServerProcess, folder: Path, *options: str, path_values: dict[str, str] | None = None
) -> None:
    ran = fuzz(
        server, folder, *SEED, *options, limit_seconds=LIMIT_SECONDS, path_values=path_values
    )
    assert ran.returncode == 0, f"{ran.stdout}\n{ran.stderr}\n{server.log}"
    assert httpx.get(f"{server.address}/v1/ready/").status_code == 200
    assert "Traceback" not in server.log


def test_operations_on_things_that_exist_answer_as_described(
    server: ServerProcess, tmp_path: Path
) -> None:
    assert_no_fault(
        server,
        tmp_path,
        *("--phases", "fuzzing", "--max-examples", "4", "--exclude-method", "DELETE"),
        path_values=create_targets(server),
    )


def test_operations_that_follow_one_another_answer_as_described(
    server: ServerProcess, tmp_path: Path
) -> None:
    """What is created is read, changed and deleted, and then it is gone."""
    assert_no_fault(server, tmp_path, "--phases", "stateful", "--max-examples", "12")


def test_the_description_says_that_the_password_is_needed(server: ServerProcess) -> None:
    """Else the check of ignored passwords has nothing to do."""
    document = httpx.get(f"{server.address}/openapi.json", headers=HEADERS).json()
    assert document["security"]
