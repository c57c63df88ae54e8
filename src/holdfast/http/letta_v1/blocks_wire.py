"""Memory blocks between wire and core."""

from holdfast.core.blocks import Block
from holdfast.http.letta_v1.schemas.blocks import BlockCreate, BlockResponse
from holdfast.usecases.blocks import NewBlock


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


def new_block(body: BlockCreate) -> NewBlock:
    return NewBlock(
        label=body.label,
        value=body.value,
        limit=body.limit,
        description=body.description,
        read_only=body.read_only,
        metadata=body.metadata or {},
        tags=tuple(dict.fromkeys(body.tags or ())),
        is_template=body.is_template,
        template_name=body.template_name,
        hidden=body.hidden,
        project_id=body.project_id,
    )
