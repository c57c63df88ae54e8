"""The check that all servers of a PostgreSQL database have the same secret key.

The database has a constant that the first server encrypted. A server that cannot decrypt it would store secrets that the
others cannot read.
"""

from typing import Final

from sqlalchemy import Connection, select, union_all
from sqlalchemy.dialects.postgresql import insert

from holdfast.adapters.store import tables
from holdfast.adapters.store.cipher import KEY_FILE, Cipher
from holdfast.adapters.store.schema_upgrade import read_fact
from holdfast.errors import SecretKeyDiffers, StoreUnavailable

CHECK_KEY: Final = "secret_key_check"
_CONSTANT: Final = "holdfast"


def check_secret_key(connection: Connection, cipher: Cipher, where: str) -> None:
    """SecretKeyDiffers if the database was written with another key. If it has no check value yet, it gets one."""
    token = read_fact(connection, CHECK_KEY)
    if token is None:
        secret = _find_secret(connection)
        if secret is not None:
            _decrypt(cipher, secret, where)
        _record(connection, cipher.encrypt(_CONSTANT))
        # Another server may have been first.
        token = read_fact(connection, CHECK_KEY) or ""
    _decrypt(cipher, token, where)


def _record(connection: Connection, token: str) -> None:
    connection.execute(
        insert(tables.deployment).values(key=CHECK_KEY, value=token).on_conflict_do_nothing()
    )
    connection.commit()


def _find_secret(connection: Connection) -> str | None:
    """Return any secret in a database that is older than its check value."""
    secrets = union_all(
        select(tables.agent_secrets.c.encrypted_value), select(tables.providers.c.encrypted_keys)
    )
    return connection.execute(secrets.limit(1)).scalar()


def _decrypt(cipher: Cipher, token: str, where: str) -> None:
    try:
        cipher.decrypt(token)
    except StoreUnavailable as error:
        raise SecretKeyDiffers(
            f"This server's secret key is not the one with which the database {where} was written. All servers of a "
            "database need the same HOLDFAST_SECRET_KEY. Without that setting each home has a key of its own, in its "
            f"file {KEY_FILE}; the content of that file can be given to other servers as HOLDFAST_SECRET_KEY."
        ) from error
