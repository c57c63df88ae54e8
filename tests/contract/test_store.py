"""What every Store guarantees for transactions, on each database."""

import asyncio
import threading
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from msgspec.structs import replace
from sqlalchemy import func, select
from tests.support.values import Make

from holdfast.adapters.store import tables
from holdfast.adapters.store.cipher import Cipher, FernetCipher, load_home_cipher
from holdfast.adapters.store.driver_errors import TransactionConflict
from holdfast.adapters.store.factory import open_store
from holdfast.adapters.store.sql_store import ATTEMPTS, SqlStore
from holdfast.adapters.store.sqlite import SqliteStore
from holdfast.core.agents import Agent, Secret
from holdfast.core.events import Event, MessageStored, TextStreamed
from holdfast.core.files import AgentFile, File
from holdfast.core.ids import DEFAULT_ORGANIZATION_ID
from holdfast.core.lifecycle import Signal
from holdfast.core.messages import CallState, OpenCall, ToolCall
from holdfast.core.models import ModelChoice
from holdfast.core.runs import IdempotencyKey, RunRequest
from holdfast.core.steps import Step
from holdfast.core.tools import Tool
from holdfast.core.traces import CallType, ProviderTrace
from holdfast.errors import (
    AlreadyExists,
    Bug,
    HoldfastError,
    InvalidArgument,
    NotFound,
    SettingInvalid,
    StoreUnavailable,
)
from holdfast.ports.store import Store, Transaction

ORG = DEFAULT_ORGANIZATION_ID
PATIENCE_SECONDS = 20


async def test_what_was_written_is_read_back_exactly(any_store: Store, make: Make) -> None:
    paris = timezone(timedelta(hours=1))
    agent = make.agent(
        name="Zoë ☂",
        metadata={"deep": [1, 2.5, None, {"a": "\x00"}], "big": 2**80},
        created_at=datetime(2026, 3, 1, 1, 2, 3, 456789, tzinfo=paris),
        hidden=False,
    )
    await any_store.write(lambda tx: tx.agents.add(agent))
    read = await any_store.read(lambda tx: tx.agents.get(ORG, agent.id))
    assert read == agent
    assert read.created_at.tzinfo is UTC


async def test_an_exception_undoes_everything(any_store: Store, make: Make) -> None:
    agent, block = make.agent(), make.block()

    def work(tx: Transaction) -> None:
        tx.agents.add(agent)
        tx.blocks.add(block)
        tx.agents.attach_blocks(agent.id, [block.id])
        raise LookupError("on purpose")

    with pytest.raises(LookupError, match="on purpose"):
        await any_store.write(work)
    with pytest.raises(NotFound):
        await any_store.read(lambda tx: tx.agents.get(ORG, agent.id))
    assert await any_store.read(lambda tx: tx.blocks.holder_ids(block.id)) == []


async def test_a_read_cannot_write(any_store: Store, make: Make) -> None:
    agent = make.agent()
    with pytest.raises(Bug, match="read transaction"):
        await any_store.read(lambda tx: tx.agents.add(agent))
    with pytest.raises(NotFound):
        await any_store.read(lambda tx: tx.agents.get(ORG, agent.id))


async def test_a_read_sees_one_moment(any_store: Store, make: Make) -> None:
    agent = make.agent(name="before")
    await any_store.write(lambda tx: tx.agents.add(agent))
    started, changed = threading.Event(), threading.Event()

    def look_twice(tx: Transaction) -> tuple[str, str]:
        first = tx.agents.get(ORG, agent.id).name
        started.set()
        assert changed.wait(PATIENCE_SECONDS)
        return first, tx.agents.get(ORG, agent.id).name

    reading = asyncio.create_task(any_store.read(look_twice))
    assert await asyncio.to_thread(started.wait, PATIENCE_SECONDS)
    await any_store.write(lambda tx: tx.agents.save(make.agent(id=agent.id, name="after")))
    changed.set()
    assert await reading == ("before", "before")


async def test_many_writes_at_once_all_happen(any_store: Store, make: Make) -> None:
    agents = [make.agent() for _ in range(40)]
    tool = make.tool()
    await any_store.write(lambda tx: tx.tools.add(tool))

    async def add(index: int) -> None:
        def work(tx: Transaction) -> None:
            tx.agents.add(agents[index])
            tx.agents.attach_tools(agents[index].id, [tool.id])

        await any_store.write(work)

    await asyncio.gather(*(add(index) for index in range(len(agents))))
    found = await any_store.read(lambda tx: tx.agents.tools([agent.id for agent in agents]))
    assert all(list(tools) == [tool] for tools in found.values())


async def test_writes_that_meet_on_one_row_both_count(any_store: Store, make: Make) -> None:
    agent, tools = make.agent(), [make.tool() for _ in range(8)]

    def prepare(tx: Transaction) -> None:
        tx.agents.add(agent)
        for tool in tools:
            tx.tools.add(tool)

    await any_store.write(prepare)

    async def attach(tool: Tool) -> None:
        await any_store.write(lambda tx: tx.agents.attach_tools(agent.id, [tool.id]))

    await asyncio.gather(*(attach(tool) for tool in [*tools, *tools]))
    found = await any_store.read(lambda tx: tx.agents.tools([agent.id]))
    assert {tool.id for tool in found[agent.id]} == {tool.id for tool in tools}


async def test_cancelling_the_caller_does_not_undo_its_write(
    store_url: str, cipher: Cipher, make: Make
) -> None:
    store = await open_store(store_url, cipher=cipher)
    first, second = make.agent(), make.agent()
    started, go_on = threading.Event(), threading.Event()

    def slow(tx: Transaction) -> None:
        tx.agents.add(first)
        started.set()
        assert go_on.wait(PATIENCE_SECONDS)

    running = asyncio.create_task(store.write(slow))
    assert await asyncio.to_thread(started.wait, PATIENCE_SECONDS)
    # On SQLite this one has not started yet when its caller is cancelled.
    waiting = asyncio.create_task(store.write(lambda tx: tx.agents.add(second)))
    await asyncio.sleep(0)
    for task in (running, waiting):
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    go_on.set()
    await store.close()

    again = await open_store(store_url, cipher=cipher)
    found = await again.read(lambda tx: [tx.agents.get(ORG, each.id) for each in (first, second)])
    await again.close()
    assert found == [first, second]


async def test_a_closed_store_says_so(store_url: str, cipher: Cipher) -> None:
    store = await open_store(store_url, cipher=cipher)
    await store.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        await store.write(lambda tx: None)
    with pytest.raises(StoreUnavailable, match="closed"):
        await store.read(lambda tx: None)


async def test_closing_twice_is_harmless(store_url: str, cipher: Cipher) -> None:
    store = await open_store(store_url, cipher=cipher)
    await store.close()
    await store.close()


async def test_work_that_conflicts_is_run_again(any_store: Store) -> None:
    tries: list[int] = []

    def work(tx: Transaction) -> str:
        tries.append(1)
        if len(tries) < ATTEMPTS:
            raise TransactionConflict("on purpose")
        return "done"

    assert await any_store.write(work) == "done"
    assert len(tries) == ATTEMPTS


async def test_work_that_always_conflicts_is_given_up(any_store: Store) -> None:
    tries: list[int] = []

    def work(tx: Transaction) -> None:
        tries.append(1)
        raise TransactionConflict("on purpose")

    with pytest.raises(StoreUnavailable, match="on purpose"):
        await any_store.write(work)
    assert len(tries) == ATTEMPTS


async def test_an_id_that_is_taken_already_exists(any_store: Store, make: Make) -> None:
    agent = make.agent()
    await any_store.write(lambda tx: tx.agents.add(agent))
    with pytest.raises(AlreadyExists):
        await any_store.write(lambda tx: tx.agents.add(agent))


async def test_a_row_cannot_refer_to_a_missing_row(any_store: Store, make: Make) -> None:
    thread = make.thread(make.agent())
    with pytest.raises(NotFound):
        await any_store.write(lambda tx: tx.threads.add(thread))


@pytest.mark.parametrize("name", ["a\x00b", "lone \ud800"])
async def test_a_name_that_is_no_text_is_refused(any_store: Store, make: Make, name: str) -> None:
    agent = make.agent(name=name)
    with pytest.raises(InvalidArgument):
        await any_store.write(lambda tx: tx.agents.add(agent))


async def test_a_lone_surrogate_deep_inside_is_refused(any_store: Store, make: Make) -> None:
    agent = make.agent(metadata={"a": ["\ud800"]})
    with pytest.raises(InvalidArgument):
        await any_store.write(lambda tx: tx.agents.add(agent))


async def test_a_number_that_does_not_fit_is_refused(any_store: Store, make: Make) -> None:
    agent = make.agent(last_run_duration_ms=2**70)
    with pytest.raises(InvalidArgument):
        await any_store.write(lambda tx: tx.agents.add(agent))


# What belongs to an organization and to no agent of it.
OF_ORGANIZATION = {
    "archives",
    "content_bytes",
    "content_texts",
    "contents",
    "files",
    "folders",
    "identities",
    "identities_blocks",
    "mcp_servers",
    "mcp_sessions",
    "passage_tags",
    "passage_vectors",
    "passages",
    "passages_to_embed",
    "providers",
}
# Not written by any repository yet.
OF_ORGANIZATION |= {
    "message_vectors",
    "messages_to_embed",
}


async def test_deleting_an_agent_leaves_no_row_of_it(any_store: SqlStore, make: Make) -> None:
    agent = make.agent()
    thread, conversation = make.thread(agent), make.thread(agent, id="conv-1")
    tool, block = make.tool(), make.block(tags=("kept",))
    archive, folder, content = make.archive(), make.folder(), make.content()
    file = make.file(folder, content)
    identity = make.identity()

    def fill(tx: Transaction) -> None:
        tx.tools.add(tool)
        tx.blocks.add(block)
        tx.agents.add(agent)
        tx.threads.add(thread)
        tx.threads.add(conversation)
        tx.agents.set_tags(agent.id, ["a"])
        tx.agents.attach_tools(agent.id, [tool.id])
        tx.agents.attach_blocks(agent.id, [block.id])
        tx.agents.set_secrets(agent.id, [Secret(id="agent-env-1", key="K", value="v")])
        tx.archives.add(archive)
        tx.archives.attach(agent.id, archive.id, agent.created_at)
        tx.identities.add(identity)
        tx.identities.agents.attach([identity.id], [agent.id], agent.created_at)
        tx.identities.blocks.attach([identity.id], [block.id], agent.created_at)
        tx.folders.add(folder)
        tx.contents.add(content)
        tx.files.add(file)
        tx.agent_files.attach_folder(agent.id, folder.id, agent.created_at)
        tx.agent_files.link([_link(agent, file)])
        tx.stale_prompts.mark([agent.id])
        run = make.run(thread, request=RunRequest(callback_url="https://hooks.example"))
        step = make.step(run, tags=("t",))
        tx.runs.add(run)
        tx.runs.add_key(run, IdempotencyKey("key", "hash"))
        tx.runs.record_tools(run.id, [tool.id])
        tx.steps.add(step)
        tx.traces.add([_trace(step)])
        tx.runs.transition(replace(run, completed_at=run.created_at), Signal.CANCEL)
        rows = tx.messages.append([make.message(thread), make.message(conversation)])
        tx.messages.share(thread.id, conversation.id, [rows[0].id])
        call = ToolCall(id="call_1", name="f", arguments="{}")
        tx.calls.put(thread.id, [OpenCall(call, rows[0].id, step.id, CallState.FRESH)])
        tx.events.append(
            [
                Event(run.id, 1, TextStreamed("message-1", "step-1", 0, "Hi")),
                Event(run.id, 2, MessageStored(rows[0])),
            ]
        )

    await any_store.write(fill)
    counts = await row_counts(any_store)
    empty = {name for name, count in counts.items() if not count}
    kept = {"archives", "contents", "files", "folders", "identities", "identities_blocks"}
    assert empty == OF_ORGANIZATION - kept, counts
    await any_store.write(lambda tx: tx.agents.delete(ORG, agent.id))
    remaining = {name: count for name, count in (await row_counts(any_store)).items() if count}
    assert remaining == dict.fromkeys({"tools", "blocks", "block_tags", *kept}, 1)


def _link(agent: Agent, file: File) -> AgentFile:
    return AgentFile(
        id="file_agent-1",
        agent_id=agent.id,
        file_id=file.id,
        created_at=agent.created_at,
        last_accessed_at=agent.created_at,
    )


def _trace(step: Step) -> ProviderTrace:
    return ProviderTrace(
        id="provider_trace-1",
        organization_id=step.organization_id,
        agent_id=step.agent_id,
        run_id=step.run_id,
        step_id=step.id,
        call_type=CallType.AGENT_STEP,
        model=ModelChoice(handle="openai/gpt-x", context_window=1),
        created_at=step.created_at,
        latency_ms=1,
        request={},
        response={},
    )


async def row_counts(store: SqlStore) -> dict[str, int]:
    def count() -> dict[str, int]:
        with store._reader.connect() as connection:
            return {
                name: connection.execute(select(func.count()).select_from(table)).scalar_one()
                for name, table in tables.metadata.tables.items()
                # These two are about the servers, whatever is stored.
                if name not in ("servers", "deployment")
            }

    return await asyncio.to_thread(count)


async def test_secrets_are_not_in_the_file_in_clear(
    store: SqliteStore, make: Make, tmp_path: Path
) -> None:
    agent = make.agent()
    secret = Secret(id="agent-env-1", key="TOKEN", value="correct horse battery", description="d")

    def fill(tx: Transaction) -> None:
        tx.agents.add(agent)
        tx.agents.set_secrets(agent.id, [secret])

    await store.write(fill)
    found = await store.read(lambda tx: tx.agents.secrets([agent.id]))
    assert found[agent.id] == [secret]
    await store.close()
    file = (tmp_path / "holdfast.db").read_bytes()
    assert b"TOKEN" in file
    assert b"correct horse" not in file


async def test_a_wrong_key_reads_no_secret(tmp_path: Path, make: Make) -> None:
    agent, path = make.agent(), tmp_path / "holdfast.db"
    store = await SqliteStore.open(path, cipher=FernetCipher("right"))

    def fill(tx: Transaction) -> None:
        tx.agents.add(agent)
        tx.agents.set_secrets(agent.id, [Secret(id="agent-env-1", key="K", value="v")])

    await store.write(fill)
    await store.close()
    store = await SqliteStore.open(path, cipher=FernetCipher("wrong"))
    with pytest.raises(StoreUnavailable, match="HOLDFAST_SECRET_KEY"):
        await store.read(lambda tx: tx.agents.secrets([agent.id]))
    await store.close()


def test_the_key_of_a_home_is_created_once_and_readable_by_its_owner_only(tmp_path: Path) -> None:
    text = load_home_cipher(tmp_path / "home").encrypt("secret")
    assert load_home_cipher(tmp_path / "home").decrypt(text) == "secret"
    key = tmp_path / "home" / "secret.key"
    assert key.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in key.parent.iterdir()] == ["secret.key"]


@pytest.mark.parametrize("url", ["mysql://x/y", "sqlite://", "nonsense"])
async def test_a_database_that_is_not_known_is_refused(url: str, cipher: Cipher) -> None:
    with pytest.raises(SettingInvalid):
        await open_store(url, cipher=cipher)


@pytest.mark.slow
async def test_a_database_that_does_not_answer_is_unavailable(cipher: Cipher) -> None:
    with pytest.raises(StoreUnavailable) as caught:
        await open_store("postgresql://me:hush@127.0.0.1:1/none", cipher=cipher)
    assert "hush" not in str(caught.value)


async def test_a_file_that_is_no_database_is_unavailable(tmp_path: Path, cipher: Cipher) -> None:
    path = tmp_path / "holdfast.db"
    path.write_bytes(b"This is a letter to my aunt. " * 100)
    with pytest.raises(HoldfastError, match="cannot be read as a store"):
        await SqliteStore.open(path, cipher=cipher)
    assert path.read_bytes().startswith(b"This is a letter")
