"""The ids of tool calls: which ones every provider accepts, and what is sent instead of the others."""

import re
from hashlib import sha256

# OpenAI accepts at most 40 characters, Anthropic only these.
_USABLE = re.compile(r"[a-zA-Z0-9_-]{1,40}")


def is_usable(call_id: str) -> bool:
    return _USABLE.fullmatch(call_id) is not None


def to_usable_id(call_id: str) -> str:
    """The id, or a hash of it if not every provider accepts it: a history may come from another server."""
    if is_usable(call_id):
        return call_id
    return f"call_{sha256(call_id.encode(errors='surrogatepass')).hexdigest()[:24]}"
