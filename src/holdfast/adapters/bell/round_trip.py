"""One notification from the database to itself, to find out whether it arrives."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from holdfast.adapters.bell.listener import NotificationsMissing, describe_error
from holdfast.adapters.bell.notify_connection import FAILURES, NotifyConnection
from holdfast.errors import SettingInvalid

# Nobody else listens there, so no server is disturbed.
_CHANNEL: Final = "holdfast_doctor"


def find_fault(url: str, listen_url: str, *, seconds: float) -> str | None:
    """Return why a notification that is sent at one address does not arrive at the other; None if it does."""
    try:
        with _open_connection(listen_url) as receiver, _open_connection(url) as sender:
            _send_and_receive(sender, receiver, seconds)
    except (*FAILURES, NotificationsMissing, SettingInvalid) as error:
        return describe_error(error)
    return None


@contextmanager
def _open_connection(url: str) -> Iterator[NotifyConnection]:
    connection = NotifyConnection(url, name="holdfast-doctor")
    try:
        connection.connect()
        yield connection
    finally:
        connection.drop()


def _send_and_receive(sender: NotifyConnection, receiver: NotifyConnection, seconds: float) -> None:
    payload = secrets.token_hex()
    with receiver.limit(seconds):
        receiver.connect().execute(f"LISTEN {_CHANNEL}".encode())
    with sender.limit(seconds):
        sender.connect().execute("SELECT pg_notify(%s, %s)", (_CHANNEL, payload))
    notifications = receiver.connect().notifies(timeout=seconds)
    if not any(item.payload == payload for item in notifications):
        raise NotificationsMissing
