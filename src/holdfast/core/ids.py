"""The format of ids, and ids that are derived from others. New random ids come from ``ports.clock``."""

import re
from enum import StrEnum
from functools import cache

UUID4 = "[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"

# The low bits of a message's UUID that hold the index of an API message within it (wire-v1 §1.8).
OTID_INDEX_BITS = 7

DEFAULT_USER_ID = "user-00000000-0000-4000-8000-000000000000"
DEFAULT_ORGANIZATION_ID = "org-00000000-0000-4000-8000-000000000000"


class Kind(StrEnum):
    """The prefix of an id, by type of object (wire-v1 §1.8)."""

    AGENT = "agent"
    TOOL = "tool"
    BLOCK = "block"
    MESSAGE = "message"
    RUN = "run"
    STEP = "step"
    PROVIDER_TRACE = "provider_trace"
    CONVERSATION = "conv"
    USER = "user"
    ORGANIZATION = "org"
    SOURCE = "source"
    FILE = "file"
    FILE_AGENT = "file_agent"
    CONTENT = "content"
    ARCHIVE = "archive"
    PASSAGE = "passage"
    IDENTITY = "identity"
    GROUP = "group"
    PROVIDER = "provider"
    MODEL = "model"
    MCP_SERVER = "mcp_server"
    MCP_SESSION = "mcp-oauth"
    AGENT_SECRET = "agent-env"  # noqa: S105 - a prefix, not a password


@cache
def id_pattern(kind: Kind) -> str:
    return f"^{kind}-{UUID4}$"


def is_id(kind: Kind, text: str) -> bool:
    return re.fullmatch(id_pattern(kind), text) is not None


def sibling_id(message_id: str) -> str:
    """The id of the second row of an answer, which has its held calls, from the id of the first (wire-v1 §1.8)."""
    prefix, digits = message_id.split("-", 1)
    return f"{prefix}-{_uuid(int(digits.replace('-', ''), 16) - 1)}"


def derived_otid(message_id: str, index: int) -> str:
    """The offline threading id of the ``index``-th API message of a stored message (wire-v1 §1.8)."""
    if index < 0:
        return message_id
    digits = message_id.split("-", 1)[1].replace("-", "")
    number = (int(digits, 16) >> OTID_INDEX_BITS << OTID_INDEX_BITS) | index
    return _uuid(number)


def _uuid(number: int) -> str:
    text = f"{number:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
