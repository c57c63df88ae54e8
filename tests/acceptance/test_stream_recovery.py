"""A server that dies in mid-stream: what clients saw keeps its numbers, and they get the rest, once.

One crash hits runs that are told in different ways; each test then looks at all of them.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from letta_client import Letta, Stream
from letta_client.types.agents import LettaStreamingResponse
from tests.support.client_objects import as_dict, as_dicts, eventually, history, message_texts
from tests.support.server_process import ServerProcess
from tests.support.stream_items import (
    IGNORE_DEPRECATION,
    assert_ended,
    message_keys,
    seq_ids,
    text_of,
    without_dates,
)
from tests.support.tool_sources import SHOUT
from tests.support.wire_server import MODELS, connect, provider_variables

from holdfast.testing import Answer, Gate, ScriptedProvider, ToolCall

if TYPE_CHECKING:
    from tests.support.server_process import StartServer

pytestmark = [pytest.mark.slow, IGNORE_DEPRECATION]

# By name: the model, whether tokens are asked for, whether the last word is durable when the server dies.
SCENES = {
    "openai tokens": (MODELS["openai"], True, True),
    "anthropic tokens": (MODELS["anthropic"], True, True),
    "a word just told": (MODELS["openai"], True, False),
    "steps": (MODELS["openai"], False, True),
}


def last_durable(home: Path, run_id: str) -> int:
    """The number of the run's last event in the database: no client is ever told what is durable."""
    file = home / ".holdfast" / "holdfast.db"
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as database:
        query = "SELECT max(last_seq) FROM events WHERE run_id = ?"
        return int(database.execute(query, [run_id]).fetchone()[0] or 0)


@dataclass
class Reader:
    """A client that has seen a whole step and the beginning of another, which waits at a gate."""

    agent_id: str
    stream: Stream[LettaStreamingResponse]
    seen: list[dict[str, Any]]
    interrupted: Gate
    recovering: Gate

    @property
    def run_id(self) -> str:
        return str(self.seen[0]["run_id"])

    @property
    def cursor(self) -> int:
        return int(self.seen[-1]["seq_id"])

    @property
    def committed(self) -> list[dict[str, Any]]:
        """What it saw of the first step: all up to the tool's result."""
        result = [item["message_type"] for item in self.seen].index("tool_return_message")
        return self.seen[: result + 1]

    def resume(self, client: Letta, after: int) -> list[dict[str, Any]]:
        return as_dicts(client.runs.messages.stream(self.run_id, starting_after=after))


def begin(client: Letta, provider: ScriptedProvider, name: str) -> Reader:
    model, tokens, _ = SCENES[name]
    interrupted, recovering = Gate(f"{name}, interrupted"), Gate(f"{name}, recovering")
    provider.script(
        Answer("I shout.", ToolCall("shout", {"text": "hey"})),
        Answer("One two", interrupted, " three."),
        Answer("Second", recovering, " try."),
        when=lambda request: request.user_text == name,
    )
    tool = client.tools.upsert(source_code=SHOUT)
    agent = client.agents.create(model=model, include_base_tools=False, tool_ids=[tool.id])
    stream = client.agents.messages.stream(
        agent.id, input=name, stream_tokens=tokens, background=True
    )
    seen: list[dict[str, Any]] = []
    while "tool_return_message" not in [item["message_type"] for item in seen]:
        seen.append(as_dict(next(stream)))
    while tokens and not text_of(seen).endswith("One two"):
        seen.append(as_dict(next(stream)))
    interrupted.reached.block()
    return Reader(agent.id, stream, seen, interrupted, recovering)


def wait_until_durable(home: Path, reader: Reader) -> None:
    eventually(lambda: last_durable(home, reader.run_id), lambda last: last == reader.cursor)


@dataclass
class Crash:
    client: Letta
    readers: dict[str, Reader]
    rests: dict[str, list[dict[str, Any]]]


@pytest.fixture(scope="module")
def crash(
    running_provider: ScriptedProvider, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Crash]:
    """Clients who saw the server die and came back, each to its last number, while the run went on."""
    home = tmp_path_factory.mktemp("home")
    server = ServerProcess.start(home, **provider_variables(running_provider))
    # The last one begun is the one whose last word is not waited for.
    names = sorted(SCENES, key=lambda name: not SCENES[name][2])
    readers = {name: begin(connect(server.address), running_provider, name) for name in names}
    for name, reader in readers.items():
        if SCENES[name][2]:
            wait_until_durable(home, reader)
    server.kill()
    for reader in readers.values():
        reader.interrupted.release()
        with pytest.raises(httpx.TransportError):
            next(reader.stream)
    server = ServerProcess.start(home, **provider_variables(running_provider))
    client = connect(server.address)
    rests = {}
    for name, reader in readers.items():
        reader.recovering.reached.block()
        resumed = client.runs.messages.stream(reader.run_id, starting_after=reader.cursor)
        reader.recovering.release()
        rests[name] = as_dicts(resumed)
    yield Crash(client, readers, rests)
    server.stop()


@pytest.mark.parametrize("name", SCENES)
def test_a_client_that_comes_back_gets_the_rest_once_and_the_recovered_ending(
    crash: Crash, name: str
) -> None:
    reader, rest = crash.readers[name], crash.rests[name]

    assert text_of(rest) == "Second try."
    assert_ended(rest, "end_turn")
    first, *others = seq_ids(rest)
    assert first is not None
    assert first > reader.cursor
    # One jump, over all numbers that anybody may have seen; after it no gap.
    assert others == list(range(first + 1, first + 1 + len(others)))
    assert reader.resume(crash.client, after=first)[-2:] == rest[-2:]


@pytest.mark.parametrize("name", SCENES)
def test_a_replay_tells_what_was_kept_under_the_numbers_that_clients_saw(
    crash: Crash, name: str
) -> None:
    reader, rest = crash.readers[name], crash.rests[name]

    replayed = reader.resume(crash.client, after=0)

    kept = replayed[: -len(rest)]
    assert without_dates(replayed[-len(rest) :]) == without_dates(rest)
    assert without_dates(kept) == without_dates(reader.seen[: len(kept)])
    assert len(kept) >= len(reader.committed)
    if SCENES[name][2]:
        assert len(kept) == len(reader.seen)


@pytest.mark.parametrize("name", SCENES)
def test_the_history_has_the_steps_that_were_completed_and_nothing_of_the_interrupted_one(
    crash: Crash, name: str
) -> None:
    reader, rest = crash.readers[name], crash.rests[name]

    assert message_texts(crash.client, reader.agent_id) == [name, "I shout.", "Second try."]
    rows = history(crash.client, reader.agent_id)
    assert message_keys(rows[1:]) == message_keys(reader.committed) + message_keys(rest)
    run = crash.client.runs.retrieve(reader.run_id)
    assert (run.status, run.stop_reason) == ("completed", "end_turn")


def test_a_server_that_is_stopped_in_order_keeps_every_word_that_it_has_shown(
    start_server: "StartServer", running_provider: ScriptedProvider
) -> None:
    # The run hangs on purpose and need not be waited for.
    variables = provider_variables(running_provider) | {"HOLDFAST_DRAIN_SECONDS": "0"}
    server = start_server(**variables)
    reader = begin(connect(server.address), running_provider, "a word just told")

    assert server.stop() == 0

    # It ends without an ending: any would be a lie.
    assert as_dicts(reader.stream) == []
    reader.interrupted.release()
    client = connect(start_server(**variables).address)
    reader.recovering.release()
    rest = reader.resume(client, after=reader.cursor)
    assert text_of(rest) == "Second try."
    assert_ended(rest, "end_turn")
    assert without_dates(reader.resume(client, after=0)) == without_dates(reader.seen + rest)
