"""The format of log lines: an event's name and its fields, as text or as JSON.

Code logs with ``log.info("run.ended", extra={…})``. Fields that say which run or caller a line is about are bound once,
by the code that starts to work for it (``bind``), and appear in each line of that task.
"""

import logging
import re
from collections.abc import Collection, Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final

import msgspec

TEXT: Final = "text"
JSON: Final = "json"
FORMATS: Final = (TEXT, JSON)

_STANDARD_FIELDS: Final = frozenset(vars(logging.makeLogRecord({}))) | {
    "message",
    "asctime",
    "color_message",
}
_OUR_LOGGER: Final = "holdfast"
_HIDDEN: Final = "[hidden]"
# A shorter secret would match half of each line.
_MIN_SECRET_CHARS: Final = 4
_NEEDS_NO_QUOTES: Final = re.compile(r"[^\s\"=\x00-\x1f\x7f-\x9f]+")

_bound_fields: ContextVar[Mapping[str, str]] = ContextVar("bound", default=MappingProxyType({}))


def bind(**fields: str | None) -> None:
    """Add the fields to each line of this task, and of the tasks that it starts. None removes a field."""
    bound = {**_bound_fields.get(), **fields}
    _bound_fields.set({key: value for key, value in bound.items() if value is not None})


class EventFormatter(logging.Formatter):
    """``2026-01-29T20:44:04.123Z INFO run.ended run_id=run-… status=completed``"""

    def __init__(self, secrets: Collection[str] = ()) -> None:
        super().__init__()
        hidden = [secret for secret in secrets if len(secret) >= _MIN_SECRET_CHARS]
        self._secrets = re.compile("|".join(map(re.escape, hidden))) if hidden else None

    def format(self, record: logging.LogRecord) -> str:
        line = self._format_line(_event_name(record), _fields(record), record)
        return self._secrets.sub(_HIDDEN, line) if self._secrets else line

    def _format_line(self, event: str, fields: dict[str, Any], record: logging.LogRecord) -> str:
        text = " ".join(f"{key}={_quote(value)}" for key, value in fields.items())
        line = f"{_timestamp(record)} {record.levelname} {event} {text}".rstrip()
        traceback = self._format_exception(record)
        return f"{line}\n{traceback}" if traceback else line

    def _format_exception(self, record: logging.LogRecord) -> str:
        return self.formatException(record.exc_info) if record.exc_info else ""


class JsonFormatter(EventFormatter):
    """One JSON object per line; a traceback is the field ``exception``."""

    def _format_line(self, event: str, fields: dict[str, Any], record: logging.LogRecord) -> str:
        head = {"time": _timestamp(record), "level": record.levelname.lower(), "event": event}
        traceback = self._format_exception(record)
        tail = {"exception": traceback} if traceback else {}
        return msgspec.json.encode({**fields, **head, **tail}, enc_hook=str).decode()


def _event_name(record: logging.LogRecord) -> str:
    """The name of the event; libraries log sentences, which become the field ``message``."""
    return record.getMessage() if _is_ours(record) else f"library.{record.name}"


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    own = {key: value for key, value in vars(record).items() if key not in _STANDARD_FIELDS}
    if not _is_ours(record):
        own = {"message": record.getMessage()}
    return {**_bound_fields.get(), **own}


def _is_ours(record: logging.LogRecord) -> bool:
    return record.name.partition(".")[0] == _OUR_LOGGER


def _timestamp(record: logging.LogRecord) -> str:
    return f"{_format_second(int(record.created))}.{int(record.msecs):03d}Z"


@lru_cache(maxsize=1)
def _format_second(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _quote(value: object) -> str:
    """The value as one word; quoted as JSON if it has spaces, quotes or line breaks."""
    text = str(value)
    return text if _NEEDS_NO_QUOTES.fullmatch(text) else msgspec.json.encode(text).decode()


def set_up(level: str, log_format: str = TEXT, secrets: Collection[str] = ()) -> None:
    """Log to the standard error. ``secrets`` are replaced in every line, whatever logs them."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter(secrets) if log_format == JSON else EventFormatter(secrets))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # Their information is of no use to operators; their failures reach us as exceptions.
    for name in (
        "alembic",
        "uvicorn",
        "httpx",
        "httpx2",
        "httpcore",
        "httpcore2",
        "openai",
        "anthropic",
        "asyncio",
    ):
        logging.getLogger(name).setLevel(logging.WARNING)
