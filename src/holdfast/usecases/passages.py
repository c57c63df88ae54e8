"""Storing passages in archives. Searching them is in ``passage_search``."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec
from msgspec import Struct

from holdfast import system_message
from holdfast.core.agents import Actor, Agent
from holdfast.core.archives import DEFAULT_DESCRIPTION, Archive, default_archive_name
from holdfast.core.embeddings import DueText, Vector
from holdfast.core.ids import Kind
from holdfast.core.lifecycle import FINAL
from holdfast.core.messages import default_thread_id
from holdfast.core.passages import (
    MAX_CHARS_AT_ONCE,
    MAX_METADATA_BYTES,
    MAX_PASSAGES_AT_ONCE,
    MAX_TAG_CHARS,
    MAX_TAGS,
    MAX_TEXT_CHARS,
    Passage,
    distinct_tags,
)
from holdfast.errors import (
    BackendError,
    Conflict,
    InvalidArgument,
    ModelError,
    UnknownModel,
    Unprocessable,
)
from holdfast.ports.bell import EMBEDDINGS
from holdfast.ports.services import Services
from holdfast.ports.store import Transaction
from holdfast.vector_writes import save_vectors

log = logging.getLogger(__name__)

# How long an insert waits for vectors (memory-v1 §4.6). Then they are made in the background, but not while it may still
# be waiting.
REQUEST_SECONDS: Final = 10.0
REQUEST_TIME: Final = timedelta(seconds=REQUEST_SECONDS + 5.0)
# Of more passages the vectors are made in the background.
MAX_EMBEDDED_AT_ONCE: Final = 32


class NewPassage(Struct, frozen=True, kw_only=True):
    text: str
    tags: Sequence[str] = ()
    metadata: Mapping[str, Any] = {}
    # None: now.
    created_at: datetime | None = None
    # What wrote it, if a tool of an agent did. The system message of the thread then shows it at once.
    run_id: str | None = None
    step_id: str | None = None
    thread_id: str | None = None


class StoredPassage(Struct, frozen=True):
    """A passage, with its vector if it was made at once."""

    passage: Passage
    vector: Vector | None = None


class _Inserted(Struct, frozen=True):
    """All passages that the caller gets, and the new ones among them, with the model that is to make their vectors."""

    passages: Sequence[Passage]
    fresh: Sequence[Passage]
    model: str | None
    due_at: datetime


async def insert(
    services: Services,
    actor: Actor,
    archive_id: str,
    items: Sequence[NewPassage],
    *,
    deduplicate: bool | None = None,
) -> Sequence[StoredPassage]:
    """Store passages in the archive, all or none; return them in the same order. ``deduplicate``: a text that is there
    already is not stored again, and its passage is returned; None: as the archive says.

    If the archive has a model, vectors of a few passages are made at once if its provider is quick. They are stored after
    the passages, so that no provider can make an insert fail; what is missing is made later (``engine.embedding``)."""
    _check_amount(items)
    for item in items:
        check(item)

    def work(tx: Transaction) -> _Inserted:
        archive = tx.archives.get(actor.organization_id, archive_id)
        return _store(tx, services, actor, archive, items, deduplicate=deduplicate)

    return await _add_vectors(services, await services.store.write(work))


async def insert_for_agent(
    services: Services,
    actor: Actor,
    agent_id: str,
    item: NewPassage,
    *,
    deduplicate: bool | None = None,
) -> StoredPassage:
    """Store a passage in the default archive of the agent, which the first one creates."""
    check(item)

    def work(tx: Transaction) -> _Inserted:
        if item.run_id is not None:
            _refuse_after_end(tx, actor, item.run_id)
        agent = tx.agents.get(actor.organization_id, agent_id)
        archive = _find_or_create_archive(tx, services, actor, agent)
        inserted = _store(tx, services, actor, archive, [item], deduplicate=deduplicate)
        if item.thread_id is not None:
            shown = (item.thread_id, default_thread_id(agent.id))
            system_message.rewrite_threads(tx, agent, shown, services.clock.now())
        return inserted

    (stored,) = await _add_vectors(services, await services.store.write(work))
    return stored


def _check_amount(items: Sequence[NewPassage]) -> None:
    if len(items) > MAX_PASSAGES_AT_ONCE:
        raise Unprocessable(f"At most {MAX_PASSAGES_AT_ONCE} passages can be stored at once.")
    if sum(len(item.text) for item in items) > MAX_CHARS_AT_ONCE:
        raise Unprocessable(
            f"Passages that are stored at once have at most {MAX_CHARS_AT_ONCE} characters together. Send fewer at once."
        )


def check(item: NewPassage) -> None:
    if len(item.text) > MAX_TEXT_CHARS:
        raise InvalidArgument(
            f"Archival memory content exceeds limit of {MAX_TEXT_CHARS} characters (found {len(item.text)})"
        )
    if not item.text.replace("\0", "").strip():
        raise Unprocessable("The text of a passage must not be blank.")
    if len(item.tags) > MAX_TAGS or any(len(tag) > MAX_TAG_CHARS for tag in item.tags):
        raise Unprocessable(
            f"A passage has at most {MAX_TAGS} tags of at most {MAX_TAG_CHARS} characters."
        )
    if item.metadata and len(msgspec.json.encode(item.metadata)) > MAX_METADATA_BYTES:
        raise Unprocessable(
            f"The metadata of a passage has at most {MAX_METADATA_BYTES} bytes of JSON."
        )


def _refuse_after_end(tx: Transaction, actor: Actor, run_id: str) -> None:
    """Lock the run. A tool may still be at work when its run has ended, and a rollback has deleted by then what the run
    had written."""
    if tx.runs.get_for_update(actor.organization_id, run_id).status in FINAL:
        raise Conflict(f"The run {run_id} has ended; nothing was stored.")


def _find_or_create_archive(
    tx: Transaction, services: Services, actor: Actor, agent: Agent
) -> Archive:
    """The default archive. Two at the same moment cannot both create one: an agent owns one archive at most."""
    archives = tx.archives.list_of_agents([agent.id])[agent.id]
    if archives:
        return archives[0]
    now = services.clock.now()
    archive = Archive(
        id=services.ids.new_id(Kind.ARCHIVE),
        organization_id=agent.organization_id,
        name=default_archive_name(agent.name),
        description=DEFAULT_DESCRIPTION,
        embedding=agent.embedding,
        embedding_config=agent.embedding_config,
        created_at=now,
        updated_at=now,
        created_by_id=actor.user_id,
        last_updated_by_id=actor.user_id,
    )
    tx.archives.add(archive)
    tx.archives.attach(agent.id, archive.id, now, is_owner=True)
    return archive


def _store(
    tx: Transaction,
    services: Services,
    actor: Actor,
    archive: Archive,
    items: Sequence[NewPassage],
    *,
    deduplicate: bool | None,
) -> _Inserted:
    is_distinct = archive.deduplicate if deduplicate is None else deduplicate
    # The same text may be stored by somebody else at this moment: one waits for the other. Otherwise many may store at a
    # time, but not while the archive changes its model.
    keep = tx.archives.get_for_update if is_distinct else tx.archives.hold
    model = keep(archive.organization_id, archive.id).embedding
    if model is not None and not services.embedder.is_configured(model):
        model = None
    # By the clock of the database: one that is wrong must not let them wait for an hour.
    now = services.clock.now() if model is None else tx.servers.now()
    due_at = now + REQUEST_TIME if len(items) <= MAX_EMBEDDED_AT_ONCE else now

    def add(new: Sequence[NewPassage]) -> Sequence[Passage]:
        built = [_build(services, actor, archive, item) for item in new]
        return tx.passages.add(built, model=model, due_at=due_at)

    if not is_distinct:
        added = add(items)
        return _Inserted(added, added, model, due_at)
    stored, fresh = [], []
    for item in items:
        # One by one: two of the items may be the same.
        same = tx.passages.find_same(archive.id, item.text)
        if same is None:
            (same,) = add([item])
            fresh.append(same)
        stored.append(same)
    return _Inserted(stored, fresh, model, due_at)


async def _add_vectors(services: Services, inserted: _Inserted) -> Sequence[StoredPassage]:
    """Make vectors of the new passages, if they are few and the provider is quick. The others wait in the store."""
    vectors: Mapping[int, Vector] = {}
    if inserted.model is not None and inserted.fresh:
        if len(inserted.fresh) <= MAX_EMBEDDED_AT_ONCE:
            vectors = await _embed(services, inserted, inserted.model)
        if not vectors:
            services.bell.ring(EMBEDDINGS)
    return [StoredPassage(item, vectors.get(item.position)) for item in inserted.passages]


async def _embed(services: Services, inserted: _Inserted, model: str) -> Mapping[int, Vector]:
    texts = [
        DueText(
            position=item.position,
            model=model,
            container_id=item.container_id,
            attempts=0,
            due_at=inserted.due_at,
            text=item.text,
        )
        for item in inserted.fresh
    ]
    try:
        async with asyncio.timeout(REQUEST_SECONDS):
            made = await services.embedder.embed(model, [text.text for text in texts])
        saved = await services.store.write(
            lambda tx: save_vectors(tx.passage_vectors, texts, made.vectors)
        )
    except (ModelError, UnknownModel, TimeoutError, BackendError) as error:
        # The passages are stored and wait for their vectors.
        log.info("embedding.postponed", extra={"model": model, "why": str(error) or "too slow"})
        return {}
    except Exception:
        # The caller must not be told that nothing was stored.
        log.exception("embedding.failed", extra={"model": model})
        return {}
    return {item.position: item.vector for item in saved}


def _build(services: Services, actor: Actor, archive: Archive, item: NewPassage) -> Passage:
    now = services.clock.now()
    return Passage(
        id=services.ids.new_id(Kind.PASSAGE),
        organization_id=archive.organization_id,
        archive_id=archive.id,
        text=item.text,
        tags=distinct_tags(item.tags),
        metadata=dict(item.metadata),
        created_at=item.created_at or now,
        updated_at=now,
        run_id=item.run_id,
        step_id=item.step_id,
        created_by_id=actor.user_id,
        last_updated_by_id=actor.user_id,
    )
