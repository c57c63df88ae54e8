"""What really went to a provider and came back, as it is kept: without secrets, and not without bounds."""

import json
import re
from collections.abc import Collection
from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec
from msgspec import Struct

from holdfast.core.models import ModelChoice

HIDDEN = "[secret hidden]"

_PLAIN = re.compile(r"[A-Za-z0-9]+")

# A shorter value is no secret, and hiding it everywhere would leave nothing to read.
MIN_SECRET_CHARS = 4


class CallType(StrEnum):
    """What a model was asked for (wire-v1 §3.6)."""

    AGENT_STEP = "agent_step"
    SUMMARIZATION = "summarization"


class ProviderTrace(Struct, frozen=True, kw_only=True):
    """One call of a provider, also one that failed or was cut short. A step may have had several."""

    id: str
    organization_id: str
    agent_id: str
    run_id: str
    step_id: str
    call_type: CallType
    model: ModelChoice
    created_at: datetime
    latency_ms: int
    request: dict[str, Any]
    # A stream is put together to what it says; what did not come is not there.
    response: dict[str, Any]
    # None: the provider did not answer.
    status_code: int | None = None
    error: str | None = None


def remove_secrets(value: Any, secrets: Collection[str]) -> Any:
    """The JSON value with no secret in any of its texts, not even inside JSON that is a text itself."""
    hide = _spellings(secrets)
    return _replace_secrets(value, hide) if hide and _may_contain(value, secrets) else value


def truncate(value: dict[str, Any], limit_bytes: int) -> dict[str, Any]:
    """The object, or its beginning as text and how much there was."""
    text = msgspec.json.encode(value)
    if len(text) <= limit_bytes:
        return value
    beginning = text[:limit_bytes].decode(errors="ignore")
    return {"truncated": True, "size_bytes": len(text), "beginning": beginning}


def _may_contain(value: Any, secrets: Collection[str]) -> bool:
    """Letters and digits are never escaped: where a secret's longest run of them is not, the secret is not. To look for
    that costs a tenth of a walk through the value."""
    text = msgspec.json.encode(value)
    runs = (max(_PLAIN.findall(secret), key=len, default="") for secret in secrets)
    return any(run.encode() in text for run in runs)


def _spellings(secrets: Collection[str]) -> list[str]:
    """How a secret may be written, the longest first: one may be part of another."""
    real = {secret for secret in secrets if len(secret) >= MIN_SECRET_CHARS}
    escaped = {
        json.dumps(secret, ensure_ascii=plain)[1:-1] for secret in real for plain in (True, False)
    }
    return sorted(real | escaped, key=len, reverse=True)


def _replace_secrets(value: Any, hide: list[str]) -> Any:
    match value:
        case str():
            for secret in hide:
                value = value.replace(secret, HIDDEN)
            return value
        case dict():
            return {
                _replace_secrets(key, hide): _replace_secrets(item, hide)
                for key, item in value.items()
            }
        case list():
            return [_replace_secrets(item, hide) for item in value]
        case _:
            return value
