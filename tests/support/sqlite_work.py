"""How much SQLite has to do, told without a clock."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection


@contextmanager
def count_instructions(connection: Connection) -> Iterator[list[None]]:
    """The instructions that SQLite carries out meanwhile: what is done by index is few, and always as many."""
    done: list[None] = []
    driver: Any = connection.connection.driver_connection
    driver.set_progress_handler(lambda: done.append(None), 1)
    try:
        yield done
    finally:
        driver.set_progress_handler(None, 0)
