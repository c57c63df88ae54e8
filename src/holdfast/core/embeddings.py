"""Vectors: texts as numbers, so that texts that mean the same can be found."""

import math
import sys
from array import array
from collections.abc import Iterable, Sequence

from msgspec import Struct

_BYTES_PER_NUMBER = 4


class Vector(Struct, frozen=True):
    """Numbers of four bytes each, the lowest byte first."""

    data: bytes

    @property
    def dimensions(self) -> int:
        return len(self.data) // _BYTES_PER_NUMBER


class QueryVector(Struct, frozen=True):
    """What a query means to one model. It is compared with vectors of the same model and length only."""

    model: str
    vector: Vector


class Embeddings(Struct, frozen=True, kw_only=True):
    """The vectors of some texts in their order, and what they cost in the unit of ``money``; None if that is not known."""

    vectors: tuple[Vector, ...]
    tokens: int = 0
    cost: int | None = None


def to_vector(numbers: Iterable[float]) -> Vector:
    """ValueError if they are no direction: none, all zero, or a number that is not finite."""
    values = array("f", numbers)
    if not any(values) or not all(map(math.isfinite, values)):
        raise ValueError("The numbers are no vector.")
    if sys.byteorder == "big":
        values.byteswap()
    return Vector(values.tobytes())


def to_numbers(vector: Vector) -> Sequence[float]:
    values = array("f", vector.data)
    if sys.byteorder == "big":
        values.byteswap()
    return values.tolist()
