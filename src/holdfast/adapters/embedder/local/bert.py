"""The forward pass of a BERT encoder (Devlin et al., 2018) in numpy.

The tokens of all texts are the rows of one matrix. Only attention looks at one text at a time, so nothing is padded and
nothing is masked.
"""

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any, Final, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, np.dtype[np.float32]]

# Abramowitz and Stegun, 7.1.26: the error function to 1.5e-7, which is what float32 can tell apart.
_ERF_P: Final = np.float32(0.3275911)
_ERF_A: Final = tuple(
    map(np.float32, (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429))
)
_HALF: Final = np.float32(0.5)
_ONE: Final = np.float32(1)
_ROOT_HALF: Final = np.float32(0.5**0.5)


class _Layer:
    """The weights of one layer, transposed once so that each product is ``rows @ weights``."""

    def __init__(self, weights: Mapping[str, Array], prefix: str) -> None:
        def pair(name: str) -> tuple[Array, Array]:
            return weights[f"{prefix}.{name}.weight"], weights[f"{prefix}.{name}.bias"]

        parts = [pair(f"attention.self.{name}") for name in ("query", "key", "value")]
        # One product instead of three.
        self.mix = np.concatenate([weight for weight, _ in parts]).T.copy()
        self.mix_bias = np.concatenate([bias for _, bias in parts])
        self.out, self.out_bias = _transpose(pair("attention.output.dense"))
        self.out_norm = pair("attention.output.LayerNorm")
        self.wide, self.wide_bias = _transpose(pair("intermediate.dense"))
        self.narrow, self.narrow_bias = _transpose(pair("output.dense"))
        self.narrow_norm = pair("output.LayerNorm")


class Bert:
    """KeyError if a weight is missing."""

    def __init__(
        self, weights: Mapping[str, Array], *, heads: int, layers: int, epsilon: float
    ) -> None:
        self._words = weights["embeddings.word_embeddings.weight"]
        # There is one kind of segment here, so its row belongs to every position.
        kinds = weights["embeddings.token_type_embeddings.weight"]
        self._positions = weights["embeddings.position_embeddings.weight"] + kinds[0]
        name = "embeddings.LayerNorm"
        self._norm = weights[f"{name}.weight"], weights[f"{name}.bias"]
        self._layers = [_Layer(weights, f"encoder.layer.{number}") for number in range(layers)]
        self._heads = heads
        self._epsilon = np.float32(epsilon)

    def encode(self, texts: Sequence[Sequence[int]]) -> list[Array]:
        """A vector for each token of each text."""
        bounds = [0, *accumulate(map(len, texts))]
        ids = np.concatenate([np.asarray(tokens, dtype=np.int64) for tokens in texts])
        positions = np.concatenate([np.arange(len(tokens)) for tokens in texts])
        rows = self._normalize(self._words[ids] + self._positions[positions], self._norm)
        for layer in self._layers:
            mixed = rows @ layer.mix + layer.mix_bias
            attended = np.concatenate([self._attend(mixed[a:b]) for a, b in pairwise(bounds)])
            rows = self._normalize(attended @ layer.out + layer.out_bias + rows, layer.out_norm)
            wide = _gelu(rows @ layer.wide + layer.wide_bias)
            rows = self._normalize(
                wide @ layer.narrow + layer.narrow_bias + rows, layer.narrow_norm
            )
        return [rows[a:b] for a, b in pairwise(bounds)]

    def _attend(self, mixed: Array) -> Array:
        """Each token's mean of the values of all tokens of its text, weighted by how well they fit it."""
        length, size = len(mixed), mixed.shape[1] // 3
        per_head = size // self._heads
        query, key, value = mixed.reshape(length, 3, self._heads, per_head).transpose(1, 2, 0, 3)
        scores: Array = query @ key.transpose(0, 2, 1)
        scores *= np.float32(per_head**-0.5)
        scores -= scores.max(axis=-1, keepdims=True)
        np.exp(scores, out=scores)
        scores /= scores.sum(axis=-1, keepdims=True)
        return np.asarray((scores @ value).transpose(1, 0, 2).reshape(length, size))

    def _normalize(self, rows: Array, norm: tuple[Array, Array]) -> Array:
        weight, bias = norm
        centred: Array = rows - rows.mean(axis=1, keepdims=True)
        variance = np.square(centred).mean(axis=1, keepdims=True)
        centred /= np.sqrt(variance + self._epsilon)
        centred *= weight
        centred += bias
        return centred


def _transpose(pair: tuple[Array, Array]) -> tuple[Array, Array]:
    weight, bias = pair
    return weight.T.copy(), bias


def _gelu(values: Array) -> Array:
    """x · Φ(x), in place."""
    scaled = values * _ROOT_HALF
    magnitude = np.abs(scaled)
    step = _ONE / (_ONE + _ERF_P * magnitude)
    series = np.full_like(step, _ERF_A[-1])
    for factor in _ERF_A[-2::-1]:
        series *= step
        series += factor
    series *= step
    series *= np.exp(-np.square(magnitude, out=magnitude), out=magnitude)
    error_function = np.copysign(_ONE - series, scaled)
    error_function += _ONE
    values *= error_function
    values *= _HALF
    return values
