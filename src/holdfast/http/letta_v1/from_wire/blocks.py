"""Memory blocks to create and to change (wire-v1 §2.6)."""

from holdfast.http.letta_v1.schemas.blocks import BlockCreate, BlockUpdate
from holdfast.usecases.blocks import NewBlock

# Null clears these fields and leaves all others unchanged.
_CLEARABLE = frozenset({"description", "template_name", "hidden", "project_id"})


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


def block_changes(body: BlockUpdate) -> dict[str, object]:
    """The fields that an update changes, by their names in ``core.blocks.Block``."""
    given = body.model_dump(exclude_unset=True)
    changes = {
        name: value for name, value in given.items() if value is not None or name in _CLEARABLE
    }
    return changes | ({"tags": _tags(body.tags)} if body.tags is not None else {})


def _tags(given: list[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(given))
