"""Uploads: a file is stored with its bytes, and processed later (``engine/ingestion``).

The bytes are stored in many small transactions before the file, so that a large one holds up nobody. Bytes that are
there already are not stored again.
"""

import asyncio
import hashlib
import mimetypes
from datetime import timedelta
from functools import partial
from typing import BinaryIO, Final

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.agents import Actor
from holdfast.core.file_names import (
    MAX_FILE_NAME_CHARS,
    DuplicateHandling,
    choose_free_name,
    clean_file_name,
    split_extension,
)
from holdfast.core.files import Content, ContentStatus, File, FileStatus, Folder
from holdfast.core.ids import Kind
from holdfast.errors import InvalidArgument, NotFound, TooLarge, UnsupportedFileType
from holdfast.ports.bell import FILES, REMOVALS
from holdfast.ports.services import Services
from holdfast.ports.store import Transaction

# Bytes that one transaction stores.
PART_BYTES: Final = 512 * 1024
_TICK: Final = timedelta(microseconds=1)
# What is enough to recognise a format.
HEAD_BYTES: Final = 8 * 1024


class Upload(Struct, frozen=True, kw_only=True):
    """A file that has come. ``name``: the name that the caller chose, else that of ``file_name`` is used. ``data``: its
    bytes, from their beginning."""

    file_name: str
    data: BinaryIO
    size: int
    media_type: str | None = None
    name: str | None = None
    on_duplicate: DuplicateHandling = DuplicateHandling.SUFFIX


class Uploaded(Struct, frozen=True, kw_only=True):
    """``is_skipped``: nothing was stored, because ``file`` was there already."""

    file: File
    folder: Folder
    is_skipped: bool = False


class _Bytes(Struct, frozen=True):
    """What the bytes of an upload are."""

    digest: str
    format: str
    size: int


async def upload(services: Services, actor: Actor, folder_id: str, new: Upload) -> Uploaded:
    """Store a file, which is then processed. Its bytes are only stored if they are needed."""
    if new.size > services.limits.max_file_bytes:
        raise TooLarge(
            f"The file is larger than {services.limits.max_file_mb} MiB, the limit of this server. The operator sets it "
            "with HOLDFAST_MAX_FILE_MB."
        )
    name = clean_file_name(new.file_name) if new.name is None else _check_given_name(new.name)
    found = await _recognise(services, new, name)
    file = _build(services, actor, folder_id, new, name)
    received: Content | None = None
    while True:
        stored = await services.store.write(
            partial(
                _store, file=file, found=found, on_duplicate=new.on_duplicate, received=received
            )
        )
        if stored is not None:
            services.bell.ring(FILES)
            services.bell.ring(REMOVALS)
            return stored
        received = await _store_bytes(services, actor, new, found)


def _check_given_name(name: str) -> str:
    if not name.strip() or len(name) > MAX_FILE_NAME_CHARS:
        raise InvalidArgument(
            f"The name of a file has at least one and at most {MAX_FILE_NAME_CHARS} characters."
        )
    return name


async def _recognise(services: Services, new: Upload, name: str) -> _Bytes:
    def read() -> tuple[bytes, str]:
        head = new.data.read(HEAD_BYTES)
        digest = hashlib.sha256(head)
        while data := new.data.read(PART_BYTES):
            digest.update(data)
        return head, digest.hexdigest()

    head, digest = await asyncio.to_thread(read)
    declared = (new.media_type or "").partition(";")[0].strip().lower() or None
    found = services.documents.find_format(name, declared, head)
    if found is None:
        raise UnsupportedFileType(services.documents.describe_refusal(name, declared))
    return _Bytes(digest, found, new.size)


def _build(services: Services, actor: Actor, folder_id: str, new: Upload, name: str) -> File:
    """The file, without its content, and with a name that may be taken."""
    now = services.clock.now()
    guessed, _ = mimetypes.guess_type(name)
    return File(
        id=services.ids.new_id(Kind.FILE),
        organization_id=actor.organization_id,
        folder_id=folder_id,
        name=name,
        original_name=name,
        content_id="",
        created_at=now,
        updated_at=now,
        media_type=guessed or new.media_type or "unknown",
        size=new.size,
        created_by_id=actor.user_id,
        last_updated_by_id=actor.user_id,
    )


def _store(
    tx: Transaction,
    file: File,
    found: _Bytes,
    on_duplicate: DuplicateHandling,
    received: Content | None,
) -> Uploaded | None:
    """Store the file; return None if its bytes must be stored first. The folder is locked, so that nobody else chooses a
    name in it meanwhile."""
    folder = tx.folders.lock(file.organization_id, file.folder_id)
    # The one that has the place comes first, then those that are to replace it.
    same = sorted(
        tx.files.list_by_original_name(folder.id, file.original_name),
        key=lambda other: (other.replaces_id is not None, other.name != file.name),
    )
    if same and on_duplicate is DuplicateHandling.ERROR:
        raise InvalidArgument(f"File '{file.name}' already exists in folder '{folder.name}'")
    if same and on_duplicate is DuplicateHandling.SKIP:
        if received is not None:
            tx.contents.delete(received.id)
        return Uploaded(file=same[0], folder=folder, is_skipped=True)
    content = _find_content(tx, file.organization_id, found, received)
    if content is None:
        return None
    if same and on_duplicate is DuplicateHandling.REPLACE:
        name, replaces_id = same[0].name, same[0].replaces_id or same[0].id
    else:
        base, _ = split_extension(file.name)
        name = choose_free_name(file.name, tx.files.list_names(folder.id, base))
        replaces_id = None
    # Of two files with one name the later one is the younger, whatever the clocks of their servers say.
    youngest_at = max((other.created_at + _TICK for other in same), default=file.created_at)
    stored = replace(
        file,
        created_at=max(file.created_at, youngest_at),
        name=name,
        replaces_id=replaces_id,
        content_id=content.id,
        status=FileStatus.PARSING,
    )
    tx.files.add(stored)
    return Uploaded(file=stored, folder=folder)


def _find_content(
    tx: Transaction, organization_id: str, found: _Bytes, received: Content | None
) -> Content | None:
    """The content with these bytes: one that was there already, or else the one that was received for this upload."""
    content = tx.contents.find(organization_id, found.digest, found.format)
    if content is not None:
        if received is not None:
            tx.contents.delete(received.id)
        if content.status is not ContentStatus.FAILED:
            return content
        # Tried again: what made it fail may have been changed by the operator.
        again = replace(content, status=ContentStatus.STORED, problem=None)
        tx.contents.save(again)
        return again
    if received is None:
        return None
    try:
        tx.contents.lock(received.id)
    except NotFound:
        # It took so long that it was taken for broken off.
        return None
    stored = replace(received, status=ContentStatus.STORED, digest=found.digest, size=found.size)
    tx.contents.save(stored)
    return stored


async def _store_bytes(services: Services, actor: Actor, new: Upload, found: _Bytes) -> Content:
    """Store the bytes in parts. If this breaks off, what is there is removed later."""
    content = Content(
        id=services.ids.new_id(Kind.CONTENT),
        organization_id=actor.organization_id,
        format=found.format,
        created_at=services.clock.now(),
    )
    await services.store.write(lambda tx: tx.contents.add(content))
    await asyncio.to_thread(new.data.seek, 0)
    number = 0
    while data := await asyncio.to_thread(new.data.read, PART_BYTES):
        await services.store.write(
            partial(_add_bytes, content_id=content.id, number=number, data=data)
        )
        number += 1
    return content


def _add_bytes(tx: Transaction, content_id: str, number: int, data: bytes) -> None:
    tx.contents.add_bytes(content_id, number, data)
