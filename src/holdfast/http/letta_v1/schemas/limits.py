"""How many entries the lists and objects of a request may have. The table in ``docs/wire-v1.md`` is made from these.

They are far above what clients send. Together with the most names and values of a body (``http/json_body``) they bound
the work of one request: checking it, storing it, and showing it to the model.
"""

from typing import Annotated, Any

from pydantic import Field

from holdfast.http.letta_v1.schemas.names import Tag

# Of one send, and of a new agent.
MAX_MESSAGES = 1_000
# Of one message or tool result: texts and images.
MAX_CONTENT_PARTS = 1_000
# Decisions and results of tool calls in one item.
MAX_APPROVALS = 1_000
# Of each stream of a tool result.
MAX_OUTPUT_LINES = 10_000
MAX_CLIENT_TOOLS = 1_000
# Of one agent. Fewer than a database accepts in one query.
MAX_TOOLS = 1_000
MAX_BLOCKS = 1_000
MAX_TOOL_RULES = 1_000
# Tools that one rule names.
MAX_RULE_CHILDREN = 1_000
MAX_TAGS = 1_000
# Of all blocks of a new agent together.
MAX_BLOCK_TAGS = 10_000
# Variables that tools see in their environment.
MAX_SECRETS = 1_000
# Packages that one tool needs.
MAX_REQUIREMENTS = 200
# Of a context that is set by hand.
MAX_MESSAGE_IDS = 10_000
# Ids and names in other lists, and the values of one query parameter.
MAX_NAMES = 1_000
# Of each object with free keys: metadata, JSON schemas, arguments.
MAX_OBJECT_KEYS = 10_000

JsonObject = Annotated[dict[str, Any], Field(max_length=MAX_OBJECT_KEYS)]
Names = Annotated[list[str], Field(max_length=MAX_NAMES)]
Tags = Annotated[list[Tag], Field(max_length=MAX_TAGS)]
OutputLines = Annotated[list[str], Field(max_length=MAX_OUTPUT_LINES)]
