"""Deriving a custom tool's schema (name, description, parameters) from its Python source.

The source is parsed, never executed (wire-v1 §2.5).
"""

from holdfast.core.tool_source.function import (
    MAX_SOURCE_CHARS,
    derive_schema,
    derive_schema_of,
    has_function,
    with_parameters,
    with_schema,
)
from holdfast.core.tool_source.schema import (
    MAX_NAME_CHARS,
    MAX_SCHEMA_CHARS,
    MAX_SCHEMA_DEPTH,
    MAX_SCHEMA_NODES,
    ToolSchema,
    check_json_schema,
    check_parameters,
)

__all__ = [
    "MAX_NAME_CHARS",
    "MAX_SCHEMA_CHARS",
    "MAX_SCHEMA_DEPTH",
    "MAX_SCHEMA_NODES",
    "MAX_SOURCE_CHARS",
    "ToolSchema",
    "check_json_schema",
    "check_parameters",
    "derive_schema",
    "derive_schema_of",
    "has_function",
    "with_parameters",
    "with_schema",
]
