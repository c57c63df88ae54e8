"""Core values for tests, each different from the others in id, name and time."""

import itertools
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from holdfast.core.agents import Agent
from holdfast.core.archives import Archive
from holdfast.core.blocks import Block
from holdfast.core.files import (
    Content,
    ContentStatus,
    File,
    FileStatus,
    Folder,
    count_lines,
    split_into_parts,
)
from holdfast.core.identities import Identity, IdentityType
from holdfast.core.ids import DEFAULT_ORGANIZATION_ID, Kind
from holdfast.core.messages import Message, Role, Text
from holdfast.core.models import ModelChoice
from holdfast.core.passages import Passage
from holdfast.core.runs import Run, RunStatus
from holdfast.core.steps import Step
from holdfast.core.threads import Thread
from holdfast.core.tools import Tool
from holdfast.ports.clock import Clock, Ids
from holdfast.ports.store import Store, Transaction

MODEL = ModelChoice(handle="openai/gpt-x", context_window=32_000)


def ident(kind: str, number: int) -> str:
    return f"{kind}-{UUID(int=number, version=4)}"


def moment(number: int) -> datetime:
    return datetime(2026, 1, 1, 12, tzinfo=UTC) + timedelta(seconds=number, microseconds=7)


def make_tool(name: str, ids: Ids, clock: Clock) -> Tool:
    """A custom tool without source. Those whose name begins with "fast" may run side by side."""
    now = clock.now()
    return Tool(
        id=ids.new_id(Kind.TOOL),
        organization_id=DEFAULT_ORGANIZATION_ID,
        name=name,
        description=name,
        json_schema={"name": name, "parameters": {"type": "object", "properties": {}}},
        created_at=now,
        updated_at=now,
        source_code="",
        enable_parallel_execution=name.startswith("fast"),
    )


class Make:
    """Builds values. Each one is a second younger than the one before."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def agent(self, **fields: Any) -> Agent:
        return Agent(
            **self._common_fields("agent") | {"system": "Be kind.", "model": MODEL} | fields
        )

    def tool(self, **fields: Any) -> Tool:
        schema = {"name": "tool", "parameters": {"type": "object", "properties": {}}}
        values = self._common_fields("tool") | {"description": "Does it.", "json_schema": schema}
        return Tool(**values | fields)

    def block(self, **fields: Any) -> Block:
        values = self._common_fields("block")
        values["label"] = values.pop("name")
        return Block(**values | {"value": "What I know."} | fields)

    def archive(self, **fields: Any) -> Archive:
        return Archive(**self._common_fields("archive") | fields)

    def identity(self, **fields: Any) -> Identity:
        values = self._common_fields("identity") | {"identity_type": IdentityType.USER}
        return Identity(**values | {"identifier_key": values["name"]} | fields)

    def passage(self, archive: Archive, text: str = "A fact.", **fields: Any) -> Passage:
        values = self._common_fields("passage")
        del values["name"]
        return Passage(**values | {"archive_id": archive.id, "text": text} | fields)

    def folder(self, **fields: Any) -> Folder:
        return Folder(**self._common_fields("source") | fields)

    def content(self, **fields: Any) -> Content:
        """A content whose bytes are stored."""
        number = next(self._numbers)
        values: dict[str, Any] = {
            "id": ident("content", number),
            "organization_id": DEFAULT_ORGANIZATION_ID,
            "format": "text",
            "created_at": moment(number),
            "status": ContentStatus.STORED,
            "digest": f"{number:064x}",
        }
        return Content(**values | fields)

    def file(self, folder: Folder, content: Content, **fields: Any) -> File:
        values = self._common_fields("file")
        values["name"] = f"{values['name']}.txt"
        values |= {
            "folder_id": folder.id,
            "content_id": content.id,
            "original_name": fields.get("name", values["name"]),
            "size": content.size,
        }
        return File(**values | fields)

    def thread(self, agent: Agent, **fields: Any) -> Thread:
        """The agent's default thread unless another id is given."""
        values: dict[str, Any] = {
            "id": agent.id,
            "organization_id": agent.organization_id,
            "agent_id": agent.id,
            "created_at": agent.created_at,
            "updated_at": agent.created_at,
        }
        return Thread(**values | fields)

    def message(self, thread: Thread, text: str = "Hello", **fields: Any) -> Message:
        number = next(self._numbers)
        values: dict[str, Any] = {
            "id": ident("message", number),
            "agent_id": thread.agent_id,
            "thread_id": thread.id,
            "role": Role.USER,
            "created_at": moment(number),
            "content": (Text(text),),
        }
        return Message(**values | fields)

    def run(self, thread: Thread, **fields: Any) -> Run:
        number = next(self._numbers)
        values: dict[str, Any] = {
            "id": ident("run", number),
            "organization_id": thread.organization_id,
            "agent_id": thread.agent_id,
            "thread_id": thread.id,
            "status": RunStatus.QUEUED,
            "kind": "message",
            "created_at": moment(number),
        }
        return Run(**values | fields)

    def step(self, run: Run, **fields: Any) -> Step:
        number = next(self._numbers)
        values: dict[str, Any] = {
            "id": ident("step", number),
            "organization_id": run.organization_id,
            "agent_id": run.agent_id,
            "run_id": run.id,
            "model": MODEL,
            "created_at": moment(number),
        }
        return Step(**values | fields)

    def _common_fields(self, kind: str) -> dict[str, Any]:
        number = next(self._numbers)
        return {
            "id": ident(kind, number),
            "organization_id": DEFAULT_ORGANIZATION_ID,
            "name": f"{kind}_{number}",
            "created_at": moment(number),
            "updated_at": moment(number),
        }


async def add_file(store: Store, make: Make, folder: Folder, text: str, **fields: Any) -> File:
    """A file of a folder that is stored, with its text, as if it had been processed. It has no passages."""
    content = make.content(
        status=ContentStatus.EXTRACTED,
        size=len(text.encode()),
        text_parts=1,
        lines=count_lines(text),
        characters=len(text),
    )
    file = make.file(
        folder, content, **{"status": FileStatus.COMPLETED, "total_chunks": 0} | fields
    )

    def work(tx: Transaction) -> None:
        tx.contents.add(content)
        tx.contents.add_text(content.id, list(split_into_parts(text, max(1, len(text)))))
        tx.files.add(file)

    await store.write(work)
    return file


async def add_thread(store: Store, make: Make) -> Thread:
    agent = make.agent()
    thread = make.thread(agent)

    def work(tx: Transaction) -> None:
        tx.agents.add(agent)
        tx.threads.add(thread)

    await store.write(work)
    return thread
