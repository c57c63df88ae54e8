"""The time limit of write transactions. One that takes too long is undone, because others wait for it."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from sqlalchemy import Connection, Engine, event

from holdfast.errors import WriteTimedOut

WRITE_SECONDS: Final = 10.0

TIMED_OUT: Final = (
    "Storing this took longer than this server allows. It was undone: nothing is stored. Send less at once. The operator "
    "sets the limit with HOLDFAST_WRITE_SECONDS."
)

# In a connection's ``info``: when its transaction must have ended.
_ENDS_AT: Final = "holdfast.ends_at"


@contextmanager
def limit_transaction(connection: Connection, seconds: float) -> Iterator[None]:
    """Make every statement on the connection raise WriteTimedOut once so many seconds have passed."""
    info = connection.info
    info[_ENDS_AT] = time.monotonic() + seconds
    try:
        yield
    finally:
        del info[_ENDS_AT]


def is_transaction_late(connection: Connection) -> bool:
    ends_at = connection.info.get(_ENDS_AT)
    return ends_at is not None and time.monotonic() > ends_at


def refuse_late_statement(connection: Connection) -> None:
    if is_transaction_late(connection):
        raise WriteTimedOut(TIMED_OUT)


def check_statements(engine: Engine) -> None:
    """Apply the limit to the statements that SQLAlchemy executes."""

    def refuse(connection: Connection, *_: Any) -> None:
        refuse_late_statement(connection)

    event.listen(engine, "before_cursor_execute", refuse)
