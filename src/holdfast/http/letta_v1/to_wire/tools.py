"""Tools as V1 shows them (wire-v1 §3.4)."""

from holdfast.core import tools
from holdfast.core.tool_search import ToolMatch
from holdfast.http.letta_v1.schemas.tools import Tool, ToolSearchResult


def tool_state(tool: tools.Tool) -> Tool:
    return Tool(
        id=tool.id,
        name=tool.name,
        description=tool.description,
        tool_type=tool.kind,
        source_type=tool.source_type,
        source_code=tool.source_code,
        json_schema=tool.json_schema,
        args_json_schema=tool.args_json_schema,
        return_char_limit=tool.return_char_limit,
        default_requires_approval=tool.default_requires_approval,
        enable_parallel_execution=tool.enable_parallel_execution,
        pip_requirements=tool.pip_requirements,
        npm_requirements=tool.npm_requirements,
        tags=tool.tags,
        metadata_=tool.metadata,
        project_id=tool.project_id,
        created_by_id=tool.created_by_id,
        last_updated_by_id=tool.last_updated_by_id,
    )


def tool_search_result(found: ToolMatch) -> ToolSearchResult:
    return ToolSearchResult(
        tool=tool_state(found.tool),
        embedded_text=found.text,
        fts_rank=found.rank,
        vector_rank=None,
        combined_score=found.score,
    )
