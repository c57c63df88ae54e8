"""Vectors: texts as numbers, so that texts that mean the same can be found."""

import math
import sys
from array import array
from collections.abc import Iterable, Sequence
from datetime import datetime
from zlib import crc32

from msgspec import Struct

_BYTES_PER_NUMBER = 4
# The wait before a text is tried again after its first failure; each further wait is so many times as long, up to the
# longest. A provider that is down for days is still asked when it is back.
FIRST_WAIT_SECONDS = 2.0
WAIT_GROWTH = 2.0
LONGEST_WAIT_SECONDS = 600.0


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


class EmbeddedText(Struct, frozen=True):
    """The vector that a model has made of a stored text. ``position``: that of the passage or message."""

    position: int
    model: str
    vector: Vector


class DueText(Struct, frozen=True, kw_only=True):
    """A stored text of which a vector is to be made. If it is claimed, ``attempts`` contains this one, and ``due_at`` is when
    the claim expires."""

    position: int
    model: str
    # The archive or folder of a passage, the agent of a message.
    container_id: str
    attempts: int
    due_at: datetime
    text: str


class EmbeddingProgress(Struct, frozen=True, kw_only=True):
    """How many texts there are, and how many of them have a vector of the model, were not tried yet, or failed: these are
    tried again unless they were given up."""

    total: int
    embedded: int
    untried: int
    failed: int
    given_up: int = 0
    # Why one of them failed.
    error: str | None = None


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


def retry_wait_seconds(attempts: int, *, requested_seconds: float | None, seed: str) -> float:
    """How long to wait after so many attempts. A wait that the provider has requested is never shortened. There is a random
    part, so that texts which failed together do not all come back together; it comes from the seed."""
    chance = crc32(f"{seed} {attempts}".encode()) / 2**32
    growth = WAIT_GROWTH ** min(attempts - 1, 30)
    wait = min(FIRST_WAIT_SECONDS * growth, LONGEST_WAIT_SECONDS) * (1 + chance) / 2
    return wait if requested_seconds is None else max(wait, requested_seconds)


def describe_mixing(model: str, *, stored: int, new: int) -> str:
    """Why a vector is refused."""
    return (
        f"The model {model} has made a vector of {new} numbers, but its other vectors here have {stored}: mixing is "
        "refused. Change the model of an archive with `holdfast archives reembed`."
    )
