"""Memory blocks as V1 shows them (wire-v1 §3.3)."""

from holdfast.core.blocks import Block
from holdfast.http.letta_v1.schemas.blocks import BlockResponse


def block_state(block: Block) -> BlockResponse:
    return BlockResponse(
        id=block.id,
        label=block.label,
        value=block.value,
        limit=block.limit,
        description=block.description,
        read_only=block.read_only,
        metadata=block.metadata,
        tags=block.tags,
        is_template=block.is_template,
        template_name=block.template_name,
        hidden=block.hidden,
        project_id=block.project_id,
        created_by_id=block.created_by_id,
        last_updated_by_id=block.last_updated_by_id,
    )
