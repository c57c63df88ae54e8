"""How a log line reads: a named event, then its fields."""

import logging
from typing import Final

_PLAIN: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message"}


class EventFormatter(logging.Formatter):
    """``2026-01-29 20:44:04 INFO run.failed run_id=run-…``"""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s", "%Y-%m-%d %H:%M:%S")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        fields = [f"{key}={value}" for key, value in vars(record).items() if key not in _PLAIN]
        return " ".join([super().formatMessage(record), *fields])


def set_up(level: str) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(EventFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # What they tell on the way is their own business; what goes wrong reaches us as an error.
    for name in (
        "alembic",
        "uvicorn",
        "httpx",
        "httpx2",
        "httpcore",
        "httpcore2",
        "openai",
        "anthropic",
    ):
        logging.getLogger(name).setLevel(logging.WARNING)
