"""Changing the embedding model of an archive, step by step. What is done so far is in the store: the vectors of the new
model. So it can be stopped at any time, and goes on where it was.

The archive is searched with its old vectors until all new ones are there. Then one transaction changes the model and
deletes the old vectors."""

from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.agents import Actor
from holdfast.core.embeddings import EmbeddingProgress
from holdfast.errors import InvalidArgument
from holdfast.ports.bell import EMBEDDINGS
from holdfast.ports.services import Services
from holdfast.ports.store import Transaction
from holdfast.usecases import embedding_choice

# How many passages one step schedules: a transaction that no turn notices.
STEP_PASSAGES: Final = 2_000


class Reembedding(Struct, frozen=True):
    """``is_complete``: the archive has this model, and all of its passages have vectors of it or were skipped."""

    archive_id: str
    model: str
    progress: EmbeddingProgress
    is_complete: bool


async def advance(
    services: Services,
    actor: Actor,
    archive_id: str,
    model: str,
    *,
    retry_failed: bool = False,
    skip_failed: bool = False,
) -> Reembedding:
    """Do the next step. ``retry_failed``: passages that were given up are tried again. ``skip_failed``: the model is changed
    although some were given up; these are found by their words then."""
    embedding_choice.check_handle(model)
    if not services.embedder.is_configured(model):
        raise InvalidArgument(f"The embedding model {model} is not configured.")
    organization_id = actor.organization_id

    def find_missing(tx: Transaction) -> list[int]:
        tx.archives.get(organization_id, archive_id)
        return list(tx.passages.list_without_vector(archive_id, model, STEP_PASSAGES))

    missing = await services.store.read(find_missing)
    if missing or retry_failed:
        now = services.clock.now()

        def schedule(tx: Transaction) -> None:
            tx.passage_vectors.schedule_missing(archive_id, model, missing, now)
            if retry_failed:
                tx.passage_vectors.retry_given_up(archive_id, model, now)

        await services.store.write(schedule)
        services.bell.ring(EMBEDDINGS)
    progress = await services.store.read(lambda tx: tx.passages.archive_progress(archive_id, model))
    if not _is_done(progress, skip_failed=skip_failed):
        return Reembedding(archive_id, model, progress, is_complete=False)
    return await _switch(services, actor, archive_id, model, skip_failed=skip_failed)


async def _switch(
    services: Services, actor: Actor, archive_id: str, model: str, *, skip_failed: bool
) -> Reembedding:
    choice = await embedding_choice.choose(services, model)

    def work(tx: Transaction) -> Reembedding:
        # Nobody stores passages until this is committed; those that were stored last may have no vector yet.
        archive = tx.archives.get_for_update(actor.organization_id, archive_id)
        progress = tx.passages.archive_progress(archive_id, model)
        is_complete = _is_done(progress, skip_failed=skip_failed)
        if is_complete:
            changed = replace(
                archive,
                embedding=model,
                embedding_config=choice.config,
                updated_at=services.clock.now(),
                last_updated_by_id=actor.user_id,
            )
            tx.archives.save(archive if archive.embedding == model else changed)
            tx.passage_vectors.delete_other_models(archive_id, model)
        return Reembedding(archive_id, model, progress, is_complete=is_complete)

    return await services.store.write(work)


def _is_done(progress: EmbeddingProgress, *, skip_failed: bool) -> bool:
    skipped = progress.given_up if skip_failed else 0
    return progress.embedded + skipped >= progress.total
