"""Provider traces: what was sent to a provider and received, without secrets and with a maximum length."""

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

# Shorter values are not hidden: replacing them everywhere would make the text unreadable.
MIN_SECRET_CHARS = 4


class CallType(StrEnum):
    """What a model was asked for (wire-v1 §3.6)."""

    AGENT_STEP = "agent_step"
    SUMMARIZATION = "summarization"


class ProviderTrace(Struct, frozen=True, kw_only=True):
    """One call of a provider, also one that failed or was cancelled. A step can have several."""

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
    # A stream is merged into one object; what was not received is missing.
    response: dict[str, Any]
    # None: the provider did not answer.
    status_code: int | None = None
    error: str | None = None


def remove_secrets(value: Any, secrets: Collection[str]) -> Any:
    """The JSON value with every secret replaced in all texts, also in texts that contain JSON."""
    hide = _spellings(secrets)
    return _replace_secrets(value, hide) if hide and _may_contain(value, secrets) else value


def truncate(value: dict[str, Any], limit_bytes: int) -> dict[str, Any]:
    """The object; if it is too long, its beginning as text, and its length."""
    text = msgspec.json.encode(value)
    if len(text) <= limit_bytes:
        return value
    beginning = text[:limit_bytes].decode(errors="ignore")
    return {"truncated": True, "size_bytes": len(text), "beginning": beginning}


def _may_contain(value: Any, secrets: Collection[str]) -> bool:
    """Whether the value may contain a secret. Letters and digits are never escaped, so a value without a secret's longest
    run of them does not contain the secret. This check costs a tenth of a walk through the value."""
    text = msgspec.json.encode(value)
    runs = (max(_PLAIN.findall(secret), key=len, default="") for secret in secrets)
    return any(run.encode() in text for run in runs)


def _spellings(secrets: Collection[str]) -> list[str]:
    """The ways in which a secret can be written, the longest first: one can be part of another."""
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
