"""A sentence encoder: words to tokens, a BERT over them, the mean of its answers. Importing this module imports numpy."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file
from threadpoolctl import threadpool_limits
from tokenizers import Tokenizer

from holdfast.adapters.embedder.local.bert import Array, Bert
from holdfast.core.embeddings import Vector
from holdfast.errors import ModelError

# Tokens that are worked on at once: this bounds memory (20 MB), and more is slower: it does not fit the processor's cache.
_MAX_TOKENS_AT_ONCE: Final = 512
# Of a longer text only the beginning is split into tokens.
_MAX_CHARS: Final = 50_000


class SentenceEncoder:
    def __init__(self, tokenizer: Tokenizer, bert: Bert, max_tokens: int) -> None:
        tokenizer.no_padding()
        tokenizer.enable_truncation(max_tokens)
        self._tokenizer = tokenizer
        self._bert = bert

    @classmethod
    def load(cls, folder: Path, max_tokens: int) -> "SentenceEncoder":
        """ModelError if the files are not those of a BERT."""
        # For the whole process. With a thread for each processor, threads that wait for each other in a busy loop take
        # the processors away from the server: with other work on the machine that was up to ten times slower, too.
        threadpool_limits(1, user_api="blas")
        try:
            config = msgspec.json.decode((folder / "config.json").read_bytes())
            weights = load_file(folder / "model.safetensors")
            tokenizer = _read_tokenizer(folder / "tokenizer.json")
            bert = Bert(
                weights,
                heads=config["num_attention_heads"],
                layers=config["num_hidden_layers"],
                epsilon=config["layer_norm_eps"],
            )
        except (OSError, KeyError, ValueError, SafetensorError) as error:
            problem = f"{type(error).__name__}: {error}"
            raise ModelError(f"The model in {folder} cannot be loaded ({problem}).") from None
        return cls(tokenizer, bert, max_tokens)

    def encode(self, texts: Sequence[str]) -> tuple[list[Vector], int]:
        """A vector of length 1 for each text, in their order, and the number of tokens. It blocks."""
        tokens = [self._tokenizer.encode(text[:_MAX_CHARS]).ids for text in texts]
        vectors = []
        for group in _split(tokens):
            vectors += [_pool(found) for found in self._bert.encode(group)]
        return vectors, sum(map(len, tokens))


def _read_tokenizer(path: Path) -> Tokenizer:
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # noqa: BLE001 - the library raises nothing more specific
        raise ValueError(f"{path.name}: {error}") from None


def _split(tokens: Sequence[Sequence[int]]) -> Iterator[list[Sequence[int]]]:
    """Groups of texts with at most so many tokens together."""
    group: list[Sequence[int]] = []
    size = 0
    for one in tokens:
        if group and size + len(one) > _MAX_TOKENS_AT_ONCE:
            yield group
            group, size = [], 0
        group.append(one)
        size += len(one)
    if group:
        yield group


def _pool(found: Array) -> Vector:
    """The mean of the tokens, with length 1."""
    mean = found.mean(axis=0)
    length = np.maximum(np.linalg.norm(mean), np.float32(1e-12))
    return Vector((mean / length).astype("<f4").tobytes())
