"""Callbacks: who is told that a run has ended, what has come of it, and the proof that it was us (wire-v1 §5.6)."""

import base64
import hashlib
import hmac
from collections.abc import Mapping
from datetime import datetime

from msgspec import Struct

# Of the Standard Webhooks specification: a secret that begins so is base64, any other is text.
_ENCODED_SECRET = "whsec_"  # noqa: S105 - a prefix


class CallbackOutcome(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What has come of it until now. ``sent_at`` and ``status_code`` are of the last try that was answered;
    ``error`` says why the last try did not do."""

    sent_at: datetime | None = None
    status_code: int | None = None
    error: str | None = None


class DueCallback(Struct, frozen=True, kw_only=True):
    """A callback that may be tried, as it was seen: whoever claims it must find it so."""

    run_id: str
    host: str
    # How often it was tried.
    attempts: int
    due_at: datetime


class ClaimedCallback(Struct, frozen=True, kw_only=True):
    """A callback that is being delivered: nobody else's until the time that its claim names."""

    run_id: str
    host: str
    # How often it was tried, this time included.
    attempts: int


def build_headers(run_id: str, body: bytes, at: datetime, secret: str | None) -> Mapping[str, str]:
    """What a receiver needs to know a repetition (the key is the same for every try), and with a secret also
    who sent it and when, as in the Standard Webhooks specification."""
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
    """ValueError for one that says that it is base64 and is not."""
    if secret.startswith(_ENCODED_SECRET):
        return base64.b64decode(secret.removeprefix(_ENCODED_SECRET), validate=True)
    return secret.encode()


def is_usable_secret(secret: str) -> bool:
    try:
        return bool(_signing_key(secret))
    except ValueError:
        return False
