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
from typing import Any, Final, TextIO

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

# The events of an outage: it goes on, it is over. The store logs the second.
STILL_FAILING: Final = "store.still_unreachable"
RECOVERED: Final = "store.recovered"
# How long after the first line of an outage the failures since then are counted in a line, and the longest such pause.
FIRST_PAUSE_SECONDS: Final = 10.0
LONGEST_PAUSE_SECONDS: Final = 600.0
# A failure that comes later than this after the last one belongs to another outage.
SEPARATE_OUTAGES_SECONDS: Final = 60.0

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


class OutageHandler(logging.StreamHandler[TextIO]):
    """Counts the failures of an outage instead of logging all of them: while the store is down, every request fails.

    Each kind of failure is logged when it happens first, with the traceback only for the first of all. Afterwards there is
    a line with the count, after a pause that doubles each time, and one when the store works again (``RECOVERED``). An
    outage that begins soon after another is its continuation: a store may come and go.
    """

    def __init__(self, errors: tuple[type[BaseException], ...] = ()) -> None:
        super().__init__()
        self._errors = errors
        self._outage: _Outage | None = None

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if record.msg == RECOVERED and self._outage is not None:
            line = self._outage.end(record)
        elif error is not None and _is_caused_by(error, self._errors):
            if self._outage is None or self._outage.is_past(record.created):
                self._outage = _Outage(record.created)
            line = self._outage.count(record, error)
        else:
            line = record
        if line is not None:
            super().emit(line)


class _Outage:
    def __init__(self, began_at: float) -> None:
        self._began_at = began_at
        self._last_at = began_at
        self._kinds: set[str] = set()
        self._failures = 0
        self._uncounted = 0
        self._pause_seconds = FIRST_PAUSE_SECONDS
        self._next_line_at = began_at + FIRST_PAUSE_SECONDS
        self._has_new_lines = False

    def is_past(self, now: float) -> bool:
        return now - self._last_at > SEPARATE_OUTAGES_SECONDS

    def count(self, record: logging.LogRecord, error: BaseException) -> logging.LogRecord | None:
        """Return the line for this failure; None if it is only counted."""
        self._last_at = record.created
        self._failures += 1
        kind = f"{record.getMessage()} {vars(record).get('while', '')}"
        is_first = not self._kinds
        if kind not in self._kinds:
            self._kinds.add(kind)
            line = record if is_first else _with(record, exc_info=None, why=str(error))
        else:
            self._uncounted += 1
            if record.created < self._next_line_at:
                return None
            line = self._summarise(record)
        self._has_new_lines = True
        return line

    def end(self, record: logging.LogRecord) -> logging.LogRecord | None:
        """Return the line for the end; None if nothing was logged since the last one."""
        if not self._has_new_lines:
            return None
        self._has_new_lines = False
        self._uncounted = 0
        return _with(record, failures=self._failures, seconds=self._seconds(record))

    def _summarise(self, record: logging.LogRecord) -> logging.LogRecord:
        self._pause_seconds = min(2 * self._pause_seconds, LONGEST_PAUSE_SECONDS)
        self._next_line_at = record.created + self._pause_seconds
        fields = {"count": self._uncounted, "seconds": self._seconds(record)}
        self._uncounted = 0
        summary = logging.makeLogRecord({"msg": STILL_FAILING, "name": _OUR_LOGGER, **fields})
        return _with(
            summary, levelno=record.levelno, levelname=record.levelname, created=record.created
        )

    def _seconds(self, record: logging.LogRecord) -> int:
        return round(record.created - self._began_at)


def _is_caused_by(error: BaseException | None, errors: tuple[type[BaseException], ...]) -> bool:
    while error is not None:
        if isinstance(error, errors):
            return True
        error = error.__cause__
    return False


def _with(record: logging.LogRecord, **fields: Any) -> logging.LogRecord:
    return logging.makeLogRecord(vars(record) | fields)


def set_up(
    level: str,
    log_format: str = TEXT,
    secrets: Collection[str] = (),
    outage_errors: tuple[type[BaseException], ...] = (),
) -> None:
    """Log to the standard error. ``secrets`` are replaced in every line, whatever logs them. Lines about
    ``outage_errors`` are counted (``OutageHandler``)."""
    handler = OutageHandler(outage_errors)
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
