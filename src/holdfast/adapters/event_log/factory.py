"""Opening the event log that the settings ask for."""

from holdfast.adapters.event_log.sql import SqlEventLog
from holdfast.errors import SettingInvalid
from holdfast.ports.bell import Bell
from holdfast.ports.store import Store


def open_event_log(store: Store, bell: Bell, redis_url: str | None) -> SqlEventLog:
    """Open the event log on the store, with Redis if there is a URL for it."""
    if redis_url is None:
        return SqlEventLog(store, bell)
    try:
        # Imported here because Redis is an optional extra.
        from holdfast.adapters.event_log.redis import RedisEventLog  # noqa: PLC0415 - see above
    except ModuleNotFoundError as error:
        raise SettingInvalid(
            "HOLDFAST_REDIS_URL needs the Redis client: pip install 'holdfast[redis]'"
        ) from error
    return RedisEventLog.connect(store, bell, redis_url)
