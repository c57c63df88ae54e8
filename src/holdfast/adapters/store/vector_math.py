"""Arithmetic with many vectors at once. The only module of the store that imports numpy: it is imported when the first
vector is needed, since numpy takes memory and a tenth of a second."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float32]
Integers: TypeAlias = NDArray[np.int64]


class Block:
    """Some vectors, scaled to the length 1, and the numbers of their rows."""

    __slots__ = ("matrix", "numbers")

    def __init__(self, numbers: Integers, matrix: Floats) -> None:
        self.numbers = numbers
        self.matrix = matrix

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def size_bytes(self) -> int:
        return self.matrix.nbytes + self.numbers.nbytes

    @property
    def last_number(self) -> int:
        return int(self.numbers[-1])

    def join(self, other: "Block") -> "Block":
        return Block(
            np.concatenate((self.numbers, other.numbers)),
            np.concatenate((self.matrix, other.matrix)),
        )


def to_block(rows: Sequence[tuple[int, bytes]], dimensions: int) -> Block:
    """A block of rows with a number and a vector each. All vectors have so many dimensions."""
    numbers = np.fromiter((row[0] for row in rows), np.int64, len(rows))
    stored = np.frombuffer(b"".join(row[1] for row in rows), "<f4").reshape(-1, dimensions)
    matrix = stored.astype(np.float32)
    matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
    return Block(numbers, matrix)


def to_unit(data: bytes) -> Floats:
    """The vector of a query, scaled to the length 1."""
    vector = np.frombuffer(data, "<f4").astype(np.float32)
    return vector / np.linalg.norm(vector)


def rank(
    blocks: Sequence[Block], query: Floats, most: int, among: Sequence[int] | None = None
) -> list[tuple[float, int]]:
    """The cosines and numbers of the nearest rows, nearest first; of equal ones the newer first. ``among``: only these
    numbers count."""
    if not blocks:
        return []
    numbers = np.concatenate([block.numbers for block in blocks])
    cosines = np.concatenate([block.matrix @ query for block in blocks])
    if among is not None:
        chosen = np.isin(numbers, np.asarray(among, np.int64))
        numbers, cosines = numbers[chosen], cosines[chosen]
    if len(numbers) > most:
        nearest = np.argpartition(cosines, len(cosines) - most)[len(cosines) - most :]
        numbers, cosines = numbers[nearest], cosines[nearest]
    order: Any = np.lexsort((-numbers, -cosines))
    return list(zip(cosines[order].tolist(), numbers[order].tolist(), strict=True))
