"""PostgreSQL databases as earlier versions left them."""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, create_engine, make_url

from holdfast.adapters.store import schema_upgrade


@contextmanager
def connect(url: str) -> Iterator[Connection]:
    engine = create_engine(make_url(url).set(drivername="postgresql+psycopg"))
    try:
        with engine.connect() as connection:
            yield connection
    finally:
        engine.dispose()


def migrate(url: str, revision: str) -> None:
    """Bring an empty database to this revision, as a version of that time did."""
    with connect(url) as connection:
        schema_upgrade.run_migrations(connection, revision)
        connection.commit()


def read_revision(url: str) -> str | None:
    with connect(url) as connection:
        stored = schema_upgrade.read_revision(connection)
    return None if stored is None else stored.number
