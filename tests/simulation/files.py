"""A few minutes of several servers to which files are uploaded, while they are paused, cut off, stopped and killed: every file
that was accepted is processed, and nothing is there twice."""

import asyncio
import io
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from msgspec import structs
from sqlalchemy import func, select
from tests.simulation.chance import Chance
from tests.simulation.disk import Disk
from tests.simulation.many_servers import ManyServers
from tests.simulation.memory import MODEL
from tests.simulation.process import ACTOR
from tests.simulation.scenario import PATIENCE_SECONDS

from holdfast.adapters.store import tables
from holdfast.core.chunks import split_text
from holdfast.core.file_names import DuplicateHandling
from holdfast.core.files import ContentStatus, File, FileStatus, Folder
from holdfast.core.ids import Kind
from holdfast.core.paging import Order, Page
from holdfast.core.passages import PassageFilter
from holdfast.engine import content_text, file_ingestion
from holdfast.engine.file_ingestion import MAX_ATTEMPTS
from holdfast.errors import BackendError, DocumentUnreadable
from holdfast.ports.documents import Extracted
from holdfast.ports.services import Services
from holdfast.ports.store import Transaction
from holdfast.usecases import files, folders, uploads
from holdfast.usecases.uploads import Upload

# Few, so that the same bytes come again; the last one cannot be read.
TEXTS = [
    "".join(f"Paragraph {number} of the text {text} is here.\n\n" for number in range(9))
    for text in range(3)
]
UNREADABLE = "cannot be read"
NAMES = ("a.txt", "b.txt")
# Small, so that a file has many transactions.
SIZES: list[tuple[Any, str, int]] = [
    (uploads, "PART_BYTES", 150),
    (content_text, "PART_CHARS", 100),
    (content_text, "PARTS_AT_ONCE", 2),
    (file_ingestion, "PASSAGES_AT_ONCE", 2),
]
_ALL = Page(limit=1_000, order=Order.ASC)


class SimulatedDocuments:
    """Every file is text. It takes its chance how long that takes, and whether the machine can do it at all."""

    def __init__(self, chance: Chance) -> None:
        self._chance = chance

    def find_format(self, name: str, media_type: str | None, head: bytes) -> str | None:
        return "text"

    def describe_refusal(self, name: str, media_type: str | None) -> str:
        return f"Unsupported file type: {media_type} (filename: {name})."

    async def extract(self, path: Path, format: str) -> Extracted:  # noqa: A002 - as in the port
        text = await asyncio.to_thread(path.read_text, encoding="utf-8")
        await self._chance.pause()
        if self._chance.happens(0.1):
            raise BackendError("No process can be started.")
        await asyncio.sleep(self._chance.random.choice([0.0, 0.5, 5.0]))
        if text == UNREADABLE:
            raise DocumentUnreadable("It cannot be read.")
        return Extracted(text=text)


def open_in_agents(tx: Transaction, _services: Services, file: File) -> None:
    """Stands for the agents, and counts: in the store, so that it is undone with the transaction."""
    folder = tx.folders.get(file.organization_id, file.folder_id)
    opened = folder.metadata or {}
    counted = opened | {file.id: opened.get(file.id, 0) + 1}
    tx.folders.save(structs.replace(folder, metadata=counted))


class FileWork(ManyServers):
    kind = "files, seed"

    def __init__(self, seed: int, disk: Disk) -> None:
        super().__init__(seed, disk)
        self._world = replace(
            self._world,
            documents=SimulatedDocuments(self._chance),
            open_in_agents=open_in_agents,
        )
        self._folders: list[Folder] = []
        # Files whose upload was answered, without those that may be deleted since.
        self._kept: dict[str, File] = {}
        # The folders and names of uploads that may have replaced others, whenever they come to it.
        self._replaced: set[tuple[str, str]] = set()

    async def _play(self) -> None:
        with ExitStack() as patches:
            for module, name, value in SIZES:
                patches.enter_context(patch.object(module, name, value))
            await super()._play()

    # -- what happens ------------------------------------------------------------------------

    async def _act(self) -> None:
        if self._random.random() < self._fault_rate:
            await self._hurt_one()
        elif self._chance.has_outages and self._random.random() < 0.1:
            self.note(f"ACT {self._chance.begin_outage()}")
        else:
            self._ask()

    def _ask(self) -> None:
        kind = self._random.random()
        if kind < 0.65 and self._folders:
            self._upload(self._random.choice(self._folders))
        elif kind < 0.8 and self._kept:
            self._delete_file(self._kept[self._random.choice(sorted(self._kept))])
        elif kind < 0.84 and len(self._folders) > 1:
            self._delete_folder(self._random.choice(self._folders))
        else:
            super()._ask()

    def _upload(self, folder: Folder) -> None:
        data = self._random.choice([*TEXTS, UNREADABLE]).encode()
        new = Upload(
            file_name=self._random.choice(NAMES),
            data=io.BytesIO(data),
            size=len(data),
            on_duplicate=self._random.choice(list(DuplicateHandling)),
        )
        self.note(f"ACT upload {new.file_name} ({data[-15:]!r}), {new.on_duplicate}")
        if new.on_duplicate is DuplicateHandling.REPLACE:
            self._replaced.add((folder.id, new.file_name))

        async def upload(services: Services) -> None:
            uploaded = await uploads.upload(services, ACTOR, folder.id, new)
            self.note(f"uploaded {uploaded.file.id} as {uploaded.file.name}")
            if not uploaded.is_skipped:
                self._kept[uploaded.file.id] = uploaded.file

        self._process.ask(upload, f"upload {new.file_name}")

    def _delete_file(self, file: File) -> None:
        self.note(f"ACT delete {file.id}")
        del self._kept[file.id]

        async def delete(services: Services) -> None:
            await files.delete(services, ACTOR, file.id, file.folder_id)

        self._process.ask(delete, f"delete {file.id}")

    def _delete_folder(self, folder: Folder) -> None:
        self.note(f"ACT delete {folder.id}")
        self._folders.remove(folder)

        async def delete(services: Services) -> None:
            await folders.delete(services, ACTOR, folder.id)

        self._process.ask(delete, f"delete {folder.id}")

    # -- how it ends -------------------------------------------------------------------------

    async def _finish(self) -> None:
        await self._wait_for_files()
        self._disk.read(self._check_files)
        await super()._finish()

    async def _wait_for_files(self) -> None:
        deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
        while left := self._disk.read(_list_unfinished):
            self._check()
            in_time = asyncio.get_running_loop().time() < deadline
            self.ledger.expect(in_time, f"unfinished: {left}")
            await asyncio.sleep(0.5)

    def _check_files(self, tx: Transaction) -> None:
        alive = tx.folders.list_all(ACTOR.organization_id)
        found = [
            (folder, file)
            for folder in alive
            for file in tx.files.list(ACTOR.organization_id, folder.id, _ALL)
        ]
        for folder, file in found:
            self._check_file(tx, folder, file)
        places = [(file.folder_id, file.name) for _, file in found if file.replaces_id is None]
        self.ledger.expect(len(places) == len(set(places)), f"names are there twice: {places}")
        ids = {folder.id for folder in alive}
        there = {file.id for _, file in found}
        lost = {
            file.id
            for file in self._kept.values()
            if file.folder_id in ids
            and (file.folder_id, file.original_name) not in self._replaced
            and file.id not in there
        }
        self.ledger.expect(not lost, f"{lost} were accepted and are gone")
        used = {file.content_id for _, file in found}
        self._check_leftovers(tx, there, used)

    def _check_file(self, tx: Transaction, folder: Folder, file: File) -> None:
        parts: list[bytes] = []
        while part := tx.contents.read_bytes(file.content_id, len(parts)):
            parts.append(part)
        text = b"".join(parts).decode()
        self.ledger.expect(text in {*TEXTS, UNREADABLE}, f"{file.id} has other bytes: {text!r}")
        opened = (folder.metadata or {}).get(file.id, 0)
        where = PassageFilter(folder_ids=(folder.id,), file_id=file.id)
        passages = tx.passages.list(ACTOR.organization_id, where, _ALL)
        stored = [passage.text for passage in sorted(passages, key=lambda it: it.position)]
        if file.status is FileStatus.ERROR:
            is_explained = text == UNREADABLE or file.attempts >= MAX_ATTEMPTS
            self.ledger.expect(is_explained, f"{file.id}: {file.error_message}")
            return
        expected = [chunk.text for chunk in split_text(text, folder.chunk_chars)]
        self.ledger.expect(text != UNREADABLE, f"{file.id} has a text")
        self.ledger.expect(stored == expected, f"{file.id} has the passages {stored}")
        self.ledger.expect(
            tx.contents.read_text(file.content_id) == text, f"{file.id} has another text"
        )
        self.ledger.expect(opened == 1, f"{file.id} was opened {opened} times")

    def _check_leftovers(self, tx: Transaction, file_ids: set[str], used: set[str]) -> None:
        connection: Any = tx
        execute = connection._connection.execute
        passages = tables.passages
        orphans = execute(
            select(func.count())
            .select_from(passages)
            .where(passages.c.file_id.is_not(None), passages.c.file_id.not_in(file_ids))
        ).scalar_one()
        self.ledger.expect(orphans == 0, f"{orphans} passages belong to no file")
        contents = tables.contents
        # The bytes of uploads that broke off are removed later.
        stored = execute(
            select(contents.c.id).where(contents.c.status != ContentStatus.RECEIVING)
        ).scalars()
        unused = set(stored) - used
        self.ledger.expect(not unused, f"the contents {unused} belong to no file")

    # -- the set -----------------------------------------------------------------------------

    def _create_agents(self) -> None:
        super()._create_agents()
        now = self._clock.now()
        self._folders = [
            Folder(
                id=self._ids.new_id(Kind.SOURCE),
                organization_id=ACTOR.organization_id,
                name=f"folder {number}",
                created_at=now,
                updated_at=now,
                chunk_tokens=25,
                embedding=embedding,
            )
            for number, embedding in enumerate([None, MODEL])
        ]

        def store(tx: Transaction) -> None:
            for folder in self._folders:
                tx.folders.add(folder)

        self._disk.write(store)


def _list_unfinished(tx: Transaction) -> list[str]:
    """The files that are not processed, and what is deleted and still there."""
    connection: Any = tx
    execute = connection._connection.execute
    final = (FileStatus.COMPLETED, FileStatus.ERROR)
    left = [
        select(tables.files.c.id).where(tables.files.c.status.not_in(final)),
        select(tables.folders.c.id).where(tables.folders.c.deleted_at.is_not(None)),
        select(tables.contents.c.id).where(tables.contents.c.status == ContentStatus.DELETED),
    ]
    return [item for selected in left for item in execute(selected).scalars()]
