"""Tools to create, to change and to run from their source (wire-v1 §2.5)."""

from msgspec.structs import replace

from holdfast.http.letta_v1.schemas.tools import Requirement, ToolCreate, ToolRun, ToolUpdate
from holdfast.usecases.tool_forms import ToolForm


def new_tool(body: ToolCreate) -> ToolForm:
    return _form(body)


def tool_changes(body: ToolUpdate) -> ToolForm:
    return replace(_form(body), metadata=body.metadata_)


def source_to_run(body: ToolRun) -> ToolForm:
    return ToolForm(
        source_code=body.source_code,
        source_type=body.source_type,
        json_schema=body.json_schema,
        args_json_schema=body.args_json_schema,
        pip_requirements=_requirements(body.pip_requirements),
        npm_requirements=_requirements(body.npm_requirements),
    )


def _form(body: ToolCreate | ToolUpdate) -> ToolForm:
    return ToolForm(
        source_code=body.source_code,
        source_type=body.source_type,
        json_schema=body.json_schema,
        args_json_schema=body.args_json_schema,
        description=body.description,
        tags=None if body.tags is None else tuple(dict.fromkeys(body.tags)),
        return_char_limit=body.return_char_limit,
        default_requires_approval=body.default_requires_approval,
        enable_parallel_execution=body.enable_parallel_execution,
        pip_requirements=_requirements(body.pip_requirements),
        npm_requirements=_requirements(body.npm_requirements),
    )


def _requirements(given: list[Requirement] | None) -> list[dict[str, str | None]] | None:
    return None if given is None else [item.model_dump() for item in given]
