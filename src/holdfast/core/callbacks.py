"""Callbacks that report the end of a run: their state, and the signed headers of the request (wire-v1 §5.6)."""

import base64
import hashlib
import hmac
from collections.abc import Mapping
from datetime import datetime

from msgspec import Struct

# As in the Standard Webhooks specification: a secret with this prefix is base64, any other is text.
_ENCODED_SECRET = "whsec_"  # noqa: S105 - a prefix


class CallbackOutcome(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result so far. ``sent_at`` and ``status_code`` are those of the last attempt that got a response; ``error``
    says why the last attempt failed."""

    sent_at: datetime | None = None
    status_code: int | None = None
    error: str | None = None


class DueCallback(Struct, frozen=True, kw_only=True):
    """A callback that is due for an attempt. A claim succeeds only if the row still has these values."""

    run_id: str
    host: str
    # The number of attempts so far.
    attempts: int
    due_at: datetime


class ClaimedCallback(Struct, frozen=True, kw_only=True):
    """A callback that is being delivered. No other worker takes it before the claim ends."""

    run_id: str
    host: str
    # The number of attempts, including this one.
    attempts: int


def build_headers(run_id: str, body: bytes, at: datetime, secret: str | None) -> Mapping[str, str]:
    """The request's headers. The idempotency key is the same for every attempt; with a secret there are also the
    time and the signature of the Standard Webhooks specification."""
    key = f"callback-{run_id}"
    sent = {"Content-Type": "application/json", "Idempotency-Key": key}
    if secret is None:
        return sent
    seconds = str(int(at.timestamp()))
    signed = b".".join((key.encode(), seconds.encode(), body))
    digest = hmac.new(_signing_key(secret), signed, hashlib.sha256).digest()
    return sent | {
        "Webhook-Id": key,
        "Webhook-Timestamp": seconds,
        "Webhook-Signature": f"v1,{base64.b64encode(digest).decode()}",
    }


def _signing_key(secret: str) -> bytes:
    """The bytes of the secret. ValueError if it has the prefix and is not base64."""
    if secret.startswith(_ENCODED_SECRET):
        return base64.b64decode(secret.removeprefix(_ENCODED_SECRET), validate=True)
    return secret.encode()


def is_usable_secret(secret: str) -> bool:
    try:
        return bool(_signing_key(secret))
    except ValueError:
        return False
