"""The ids of tool calls: what every provider accepts, and what is sent for one that not all would."""

import re
from hashlib import sha256

# OpenAI takes no more than 40 characters, Anthropic no others.
_USABLE = re.compile(r"[a-zA-Z0-9_-]{1,40}")


def is_usable(call_id: str) -> bool:
    return _USABLE.fullmatch(call_id) is not None


def to_usable_id(call_id: str) -> str:
    """The id, or always the same one in its place: a history may come from elsewhere."""
    if is_usable(call_id):
        return call_id
    return f"call_{sha256(call_id.encode(errors='surrogatepass')).hexdigest()[:24]}"
