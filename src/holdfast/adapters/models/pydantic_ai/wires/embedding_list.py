"""The answer of OpenAI's embeddings API: vectors, each with the index of its text."""

from typing import Any, Final

import httpx2
import msgspec
from msgspec import Struct, structs

# A longer answer is not one to a request of ours: 32 vectors of 4096 numbers take 3 MB.
_MAX_BYTES: Final = 64 * 1024 * 1024


class _Item(Struct, frozen=True):
    embedding: list[float]
    # Some compatible servers leave it out, and keep the order.
    index: int | None = None


class _Usage(Struct, frozen=True):
    prompt_tokens: int = 0
    total_tokens: int = 0

    def model_dump(self, **_: Any) -> dict[str, int]:
        """pydantic-ai reads it like a model of the SDK."""
        return structs.asdict(self)


class EmbeddingList(Struct, frozen=True, kw_only=True):
    data: list[_Item]
    model: str = ""
    usage: _Usage | None = None


_decoder = msgspec.json.Decoder(EmbeddingList)


async def read_embeddings(response: httpx2.Response) -> EmbeddingList:
    """The vectors in the order of their texts. An HTTPError or DecodeError if the answer is something else."""
    body = bytearray()
    try:
        async for piece in response.aiter_bytes():
            body += piece
            if len(body) > _MAX_BYTES:
                raise httpx2.DecodingError("The answer is too long for vectors.")
    finally:
        await response.aclose()
    answer = _decoder.decode(body)
    return structs.replace(answer, data=_sort(answer.data))


def _sort(items: list[_Item]) -> list[_Item]:
    if all(item.index is None for item in items):
        return items
    by_index = {item.index: item for item in items}
    if by_index.keys() != set(range(len(items))):
        raise msgspec.ValidationError("The indexes of the vectors are not those of the texts.")
    return [by_index[index] for index in range(len(items))]
