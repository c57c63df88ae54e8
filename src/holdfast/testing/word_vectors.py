"""Vectors for tests: texts that share words are near. The same text always gets the same vector. Pure."""

import math
from collections.abc import Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import Final

from holdfast.core.search import fold_word, index_terms

DEFAULT_DIMENSIONS: Final = 256

# How many numbers of a vector each word changes: few, so that making a vector is cheap.
_NUMBERS_PER_WORD: Final = 8
_BYTES_PER_NUMBER: Final = 4


def embed_words(
    text: str, dimensions: int = DEFAULT_DIMENSIONS, *, synonyms: Mapping[str, str] | None = None
) -> list[float]:
    """A vector of length 1. The cosine of two is about the share of words that their texts have in common; case, accents
    and plurals do not count. `synonyms` names a word that stands for another."""
    same = synonyms or {}
    numbers = [0.0] * dimensions
    for word in [same.get(term, term) for term in index_terms(text)] or [text]:
        for hashed in _word_hashes(word):
            numbers[(hashed >> 1) % dimensions] += 1.0 if hashed & 1 else -1.0
    length = math.hypot(*numbers)
    if not length:
        # The words cancel each other out, which happens with very few dimensions.
        return [1.0, *numbers[1:]]
    return [number / length for number in numbers]


def fold_synonyms(words: tuple[str, ...]) -> dict[str, str]:
    """Each of the words, and the first of them, which stands for all."""
    terms = [fold_word(word) for word in words]
    return dict.fromkeys(terms, terms[0])


@lru_cache(maxsize=20_000)
def _word_hashes(word: str) -> tuple[int, ...]:
    size = _NUMBERS_PER_WORD * _BYTES_PER_NUMBER
    digest = blake2b(word.encode(errors="surrogatepass"), digest_size=size).digest()
    return tuple(
        int.from_bytes(digest[start : start + _BYTES_PER_NUMBER], "little")
        for start in range(0, size, _BYTES_PER_NUMBER)
    )
