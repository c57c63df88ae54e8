"""Memory blocks, shared ones and those of a single conversation."""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from holdfast.core.blocks import Block, BlockQuery


class Blocks(Protocol):
    def add(self, *blocks: Block) -> None:
        """Store new blocks."""
        ...

    def get(self, organization_id: str, block_id: str) -> Block:
        """Return the block. NotFound: ``Block with ID <id> not found``."""
        ...

    def find(self, organization_id: str, block_ids: Sequence[str]) -> Sequence[Block]:
        """Return these blocks in this order. NotFound, as for ``get``, if one of them does not exist."""
        ...

    def save(self, block: Block) -> None:
        """Replace the block."""
        ...

    def delete(self, organization_id: str, block_id: str) -> None:
        """Delete the block and detach it from every agent."""
        ...

    def list(self, organization_id: str, query: BlockQuery) -> Sequence[Block]:
        """Return one page of the blocks that match. An unknown cursor is ignored (wire-v1 §1.10)."""
        ...

    def count(self, organization_id: str, query: BlockQuery) -> int:
        """Count the blocks that match, on all pages."""
        ...

    def holder_ids(self, block_id: str) -> Sequence[str]:
        """Return the ids of the agents that have the block attached, or whose conversation owns it."""
        ...

    def thread_blocks(self, thread_ids: Collection[str]) -> Mapping[str, Sequence[Block]]:
        """Return the blocks that each conversation owns, oldest first. They are deleted with the conversation."""
        ...
