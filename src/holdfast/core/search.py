"""Search by words: how a text becomes the terms that are indexed, and how ranked lists become one. Where the terms are
stored and looked up is in ``adapters/store``."""

import math
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain, pairwise, zip_longest
from typing import Final

from msgspec import Struct

# Of a longer text only the beginning is indexed: to index a text takes time from all other writes.
MAX_INDEXED_CHARS: Final = 200_000
# PostgreSQL refuses longer ones. No word is so long; what is (base64, a checksum) is cut.
MAX_TERM_CHARS: Final = 64
# Of a longer query only the first terms count.
MAX_QUERY_TERMS: Final = 64
# Of a longer query without words only the beginning is compared. SQLite refuses patterns of 50,000 bytes.
MAX_LITERAL_CHARS: Final = 1_000
# The constant of reciprocal rank fusion, and how much each of the two lists counts (memory-v1 §1.8).
_FUSION_CONSTANT: Final = 60
_FUSION_WEIGHT: Final = 0.5
# The constants of BM25 that nearly all use: how much further occurrences of a word count, and how much a long text loses.
_BM25_K1: Final = 1.2
_BM25_B: Final = 0.75

# At least so many of each list are fused, however few are wanted.
MIN_FUSED: Final = 50

# Scripts that are written without spaces between words, or whose words have many endings: Thai, Lao, Myanmar, Khmer, kana,
# Han, Hangul. Their words are not known, so every two neighbouring characters are a term.
_UNSPACED: Final = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u2fdf\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U000323af"
)
# Vowel signs that belong to the word although they are no letters: combining accents, Hebrew, Arabic, Indic scripts.
_MARKS: Final = (
    "\u0300-\u036f\u0483-\u0487\u0591-\u05bd\u05bf\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06dc"
    "\u0900-\u0903\u093a-\u094f\u0981-\u0983\u09bc-\u09cd\u0a01-\u0a03\u0a3c-\u0a4d\u0a81-\u0a83"
    "\u0abc-\u0acd\u0b01-\u0b03\u0b3c-\u0b4d\u0b82\u0bbe-\u0bcd\u0c00-\u0c04\u0c3e-\u0c4d"
    "\u0c81-\u0c83\u0cbc-\u0ccd\u0d00-\u0d03\u0d3b-\u0d4d\u0dca-\u0ddf"
)
_WORD: Final = re.compile(f"([{_UNSPACED}]+)|((?:[^\\W_{_UNSPACED}]|[{_MARKS}])+)")
# The same words, if all characters are ASCII.
_ASCII_WORD: Final = re.compile(f"([a-zA-Z0-9]{{1,{MAX_TERM_CHARS}}})[a-zA-Z0-9]*")
_ACCENT: Final = re.compile("[\u0300-\u036f]")
# The parts of a name in code: ``HTTPServer2`` has ``HTTP``, ``Server`` and ``2``.
_NAME_PART: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_IS_PLAIN_WORD: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|\d+").fullmatch


def index_terms(text: str) -> Iterator[str]:
    """The terms of a text in their order, each as often as it occurs. They contain letters, digits and vowel signs only."""
    text = _bound(text)
    if text.isascii():
        # Every message is indexed when it is stored, and most are of this kind: this takes a fifth of the time.
        return chain.from_iterable(map(_word_terms, _ASCII_WORD.findall(text)))
    return _other_terms(text)


def _other_terms(text: str) -> Iterator[str]:
    for is_unspaced, word in _split_words(text):
        if is_unspaced:
            yield from _pairs(word)
            # A query of one character is compared with the beginning of each pair.
            yield word[-1]
        else:
            yield from _word_terms(word)


@lru_cache(maxsize=20_000)
def _word_terms(word: str) -> tuple[str, ...]:
    """The word, and its parts if it is a name in code."""
    if not word.isascii() or _IS_PLAIN_WORD(word):
        return (fold_word(word),)
    return (fold_word(word), *map(fold_word, _NAME_PART.findall(word)))


class QueryTerm(Struct, frozen=True):
    """A term to look for. ``is_prefix``: terms that begin so are meant too."""

    text: str
    is_prefix: bool = False


def query_terms(text: str) -> Sequence[QueryTerm]:
    """The different terms of a query. None if it has no words."""
    found: dict[str, QueryTerm] = {}
    for is_unspaced, word in _split_words(_bound(text)):
        if is_unspaced and len(word) == 1:
            terms = [QueryTerm(word, is_prefix=True)]
        elif is_unspaced:
            terms = [QueryTerm(pair) for pair in _pairs(word)]
        else:
            terms = [QueryTerm(fold_word(word))]
        found |= {term.text: term for term in terms if term.text not in found}
        if len(found) >= MAX_QUERY_TERMS:
            break
    return list(found.values())[:MAX_QUERY_TERMS]


def literal_text(query: str) -> str:
    """A query without words, as it is compared with texts."""
    return _bound(query).strip()[:MAX_LITERAL_CHARS]


def _bound(text: str) -> str:
    """The part of a text or query that counts. No text is stored with NUL."""
    return text[:MAX_INDEXED_CHARS].replace("\x00", "")


def _split_words(text: str) -> Iterator[tuple[bool, str]]:
    """The words of a text, and whether each is of a script without spaces."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    for match in _WORD.finditer(text):
        unspaced, word = match.groups()
        if unspaced is not None:
            yield True, unspaced
        else:
            yield False, word[:MAX_TERM_CHARS]


def _pairs(word: str) -> Iterator[str]:
    return map("".join, pairwise(word))


@lru_cache(maxsize=20_000)
def fold_word(word: str) -> str:
    """The word without case, accents and the ``s`` of its plural."""
    if word.isascii():
        return _singular(word.lower())
    bare = _ACCENT.sub("", unicodedata.normalize("NFD", word.casefold()))
    return _singular(unicodedata.normalize("NFC", bare))[:MAX_TERM_CHARS] or word


def _singular(word: str) -> str:
    """Harman's weak stemmer: it joins most plurals of English, French, Spanish and Portuguese with their singulars, and
    leaves other languages nearly alone."""
    if len(word) < 4 or word[-1] != "s":
        return word
    # Not of ties and pies.
    if word.endswith("ies") and len(word) > 4 and word[-4] not in "ae":
        return f"{word[:-3]}y"
    if word.endswith("es") and word[-3] not in "aeo":
        return word[:-1]
    return word if word[-2] in "us" else word[:-1]


class Candidate(Struct, frozen=True):
    """A text that has some of the terms. ``hits``: the weight of each of them, and how often the text has it."""

    position: int
    length: int
    hits: tuple[tuple[float, int], ...]


def weigh_term(rows: float, total: float) -> float:
    """How much a term counts that so many of all rows have: its inverse document frequency, as BM25 defines it."""
    return math.log(1 + (max(total - rows, 0.0) + 0.5) / (rows + 0.5))


def rank_candidates(candidates: Sequence[Candidate]) -> Sequence[int]:
    """Their positions, best first, by BM25. Equal scores: the higher position, which is the newer, comes first."""
    if not candidates:
        return []
    average = sum(candidate.length for candidate in candidates) / len(candidates)
    scores = {each.position: _score(each, each.length / max(average, 1.0)) for each in candidates}
    return sorted(scores, key=lambda position: (-scores[position], -position))


def _score(candidate: Candidate, relative_length: float) -> float:
    damping = _BM25_K1 * (1 - _BM25_B + _BM25_B * relative_length)
    return sum(
        weight * count * (_BM25_K1 + 1) / (count + damping) for weight, count in candidate.hits
    )


class Match(Struct, frozen=True):
    """Something that was found, its score, and its rank in each list in which it was; ranks count from 1."""

    position: int
    score: float
    word_rank: int | None = None
    vector_rank: int | None = None


def fuse_ranks(by_words: Sequence[int], by_vector: Sequence[int] = ()) -> Sequence[Match]:
    """Reciprocal rank fusion of two lists of positions, best first: ranks can be compared, scores of different kinds
    cannot. Equal scores: the higher position, which is the newer, comes first."""
    word_ranks = _number(by_words)
    vector_ranks = _number(by_vector)
    matches = [
        Match(
            position,
            _reciprocal(word_ranks.get(position)) + _reciprocal(vector_ranks.get(position)),
            word_ranks.get(position),
            vector_ranks.get(position),
        )
        for position in word_ranks | vector_ranks
    ]
    return sorted(matches, key=lambda match: (-match.score, -match.position))


def interleave(lists: Sequence[Sequence[int]]) -> Sequence[int]:
    """One list of several: the first of each, then the second of each. For what different models have found, whose
    similarities cannot be compared."""
    rows = zip_longest(*lists)
    return list(dict.fromkeys(item for row in rows for item in row if item is not None))


def _number(positions: Iterable[int]) -> dict[int, int]:
    return {position: rank for rank, position in enumerate(positions, 1)}


def _reciprocal(rank: int | None) -> float:
    return 0.0 if rank is None else _FUSION_WEIGHT / (_FUSION_CONSTANT + rank)
