"""The store, the cipher of the secrets in it, and the log of events."""

from contextlib import AsyncExitStack

from holdfast.adapters.event_log.factory import open_event_log
from holdfast.adapters.store import factory
from holdfast.adapters.store.cipher import FernetCipher, load_home_cipher
from holdfast.adapters.store.sql_store import VectorOptions
from holdfast.config import Settings
from holdfast.ports.bell import Bell
from holdfast.ports.event_log import EventLog
from holdfast.ports.store import Store


async def open_store(settings: Settings, stack: AsyncExitStack) -> Store:
    store = await factory.open_store(
        settings.database_url,
        cipher=_cipher(settings),
        home=settings.home,
        write_seconds=settings.write_seconds,
        survive_power_cut=settings.durability == "full",
        vectors=VectorOptions(settings.vector_cache_mb * 1024 * 1024, settings.message_embedding),
    )
    stack.push_async_callback(store.close)
    return store


def open_events(settings: Settings, stack: AsyncExitStack, store: Store, bell: Bell) -> EventLog:
    events = open_event_log(store, bell, settings.redis_url)
    stack.push_async_callback(events.aclose)
    return events


def _cipher(settings: Settings) -> FernetCipher:
    if settings.secret_key:
        return FernetCipher(settings.secret_key)
    return load_home_cipher(settings.home)
