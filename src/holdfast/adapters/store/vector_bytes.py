"""How much space vectors take."""

from typing import Final

from sqlalchemy import Connection, Table, func, select

_BYTES_PER_NUMBER: Final = 4


def count_vector_bytes(
    connection: Connection, vectors: Table, texts: Table, organization_id: str
) -> int:
    """The bytes of all vectors in one table. ``texts``: the table of the texts that they are made of."""
    numbers = connection.execute(
        select(func.sum(vectors.c.dimensions))
        .join(texts, texts.c.position == vectors.c.position)
        .where(texts.c.organization_id == organization_id)
    ).scalar()
    return int(numbers or 0) * _BYTES_PER_NUMBER
