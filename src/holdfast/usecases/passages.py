"""Storing passages in archives. Searching them is in ``passage_search``."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct

from holdfast.core.agents import Actor, Agent
from holdfast.core.archives import DEFAULT_DESCRIPTION, Archive, default_archive_name
from holdfast.core.ids import Kind
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
from holdfast.errors import InvalidArgument, Unprocessable
from holdfast.ports.services import Services
from holdfast.ports.store import Transaction


class NewPassage(Struct, frozen=True, kw_only=True):
    text: str
    tags: Sequence[str] = ()
    metadata: Mapping[str, Any] = {}
    # None: now.
    created_at: datetime | None = None
    # What wrote it, if a tool of an agent did.
    run_id: str | None = None
    step_id: str | None = None


async def insert(
    services: Services,
    actor: Actor,
    archive_id: str,
    items: Sequence[NewPassage],
    *,
    deduplicate: bool | None = None,
) -> Sequence[Passage]:
    """Store passages in the archive, all or none; return them in the same order. ``deduplicate``: a text that is there
    already is not stored again, and its passage is returned; None: as the archive says."""
    _check_amount(items)
    for item in items:
        check(item)

    def work(tx: Transaction) -> Sequence[Passage]:
        archive = tx.archives.get(actor.organization_id, archive_id)
        return _store(tx, services, actor, archive, items, deduplicate=deduplicate)

    return await services.store.write(work)


async def insert_for_agent(
    services: Services,
    actor: Actor,
    agent_id: str,
    item: NewPassage,
    *,
    deduplicate: bool | None = None,
) -> Passage:
    """Store a passage in the default archive of the agent, which the first one creates."""
    check(item)

    def work(tx: Transaction) -> Passage:
        agent = tx.agents.get(actor.organization_id, agent_id)
        archive = _find_or_create_archive(tx, services, actor, agent)
        (stored,) = _store(tx, services, actor, archive, [item], deduplicate=deduplicate)
        return stored

    return await services.store.write(work)


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
) -> Sequence[Passage]:
    if not (archive.deduplicate if deduplicate is None else deduplicate):
        return tx.passages.add([_build(services, actor, archive, item) for item in items])
    # The same text may be stored by somebody else at this moment: one waits for the other.
    tx.archives.get_for_update(archive.organization_id, archive.id)
    stored = []
    for item in items:
        # One by one: two of the items may be the same.
        same = tx.passages.find_same(archive.id, item.text)
        stored.append(same or tx.passages.add([_build(services, actor, archive, item)])[0])
    return stored


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
