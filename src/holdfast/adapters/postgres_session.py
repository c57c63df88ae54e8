"""What all connections to PostgreSQL have in common: each side notices within half a minute that the other has vanished."""

from typing import Any, Final

import psycopg

# Options in the URL take precedence.
KEEPALIVE_OPTIONS: Final = {
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 4,
    "tcp_user_timeout": 30_000,
}
# What PostgreSQL calls them on its side.
_SETTINGS: Final = {
    "keepalives_idle": "tcp_keepalives_idle",
    "keepalives_interval": "tcp_keepalives_interval",
    "keepalives_count": "tcp_keepalives_count",
    "tcp_user_timeout": "tcp_user_timeout",
}


def copy_keepalive(connection: psycopg.Connection[Any]) -> None:
    """Give PostgreSQL the limits of this side. By its own defaults it would keep the connections of a server that has
    lost its power for two hours."""
    options = connection.info.get_parameters()
    set_session(
        connection, {name: options[own] for own, name in _SETTINGS.items() if own in options}
    )


def set_session(connection: psycopg.Connection[Any], settings: dict[str, int | str]) -> None:
    """Set these settings of PostgreSQL for as long as the connection lasts. The connections of a pooler are shared with
    others, so they keep the settings of their user."""
    if is_pooled(connection):
        return
    # In one message: each would cost a round trip.
    connection.execute("; ".join(f"SET {name} = {settings[name]}" for name in settings).encode())
    if not connection.autocommit:
        # Otherwise a rollback would reset them.
        connection.commit()


def is_pooled(connection: psycopg.Connection[Any]) -> bool:
    """Whether a pooler is in between: the process that it names at the start is not the one that answers."""
    with connection.cursor() as cursor:
        row = cursor.execute("SELECT pg_backend_pid()").fetchone()
    connection.rollback()
    return row != (connection.info.backend_pid,)
