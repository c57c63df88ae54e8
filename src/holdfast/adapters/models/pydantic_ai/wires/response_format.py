"""The response format, from what callers send to pydantic-ai's definition."""

from typing import Any

from pydantic_ai.output import OutputObjectDefinition

from holdfast.core.models import ModelSettings as Asked


def to_output_definition(
    asked: Asked, any_object: dict[str, Any] | None = None
) -> OutputObjectDefinition | None:
    """The schema that was asked for; ``anything`` is the schema of any JSON object, if the provider takes one."""
    wanted = asked.response_format or {}
    match wanted.get("type"):
        case "json_schema":
            given = wanted.get("json_schema") or {}
            schema = given.get("schema") or given
            return OutputObjectDefinition(
                schema, given.get("name"), given.get("description"), given.get("strict")
            )
        case "json_object" if any_object is not None:
            return OutputObjectDefinition(any_object)
        case _:
            return None
