"""A BERT with random weights, small enough for a test, in a package like that of a real local model; and the textbook's
forward pass, one number at a time, to compare with."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.processors import TemplateProcessing

from holdfast.adapters.embedder.local.package import LocalModel

Weights = dict[str, Any]

SIZE, WIDE, HEADS, LAYERS, POSITIONS = 12, 20, 3, 2, 16
EPSILON = 1e-12
MODEL = LocalModel(
    name="tiny",
    package="a_tiny_bert",
    distribution="a-tiny-bert",
    dimensions=SIZE,
    max_tokens=POSITIONS,
)
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "cat", "sleep", "##s", "on", "a", "mat", "."]


def write_package(folder: Path, *, strength: float = 1.0) -> Weights:
    """Write the package into the folder, and return its weights. ``strength``: of what tokens ask of each other."""
    model = folder / MODEL.package / "model"
    model.mkdir(parents=True)
    # Importing it would be a mistake.
    (model.parent / "__init__.py").write_text("raise ImportError('torch')")
    weights = make_weights()
    for name in weights:
        if "self.query" in name:
            weights[name] *= np.float32(strength)
    save_file(weights, model / "model.safetensors")
    config = {
        "num_attention_heads": HEADS,
        "num_hidden_layers": LAYERS,
        "layer_norm_eps": EPSILON,
    }
    (model / "config.json").write_text(json.dumps(config))
    make_tokenizer().save(str(model / "tokenizer.json"))
    return weights


def make_tokenizer() -> Tokenizer:
    """With padding and a short limit, as the files of real models have them."""
    vocabulary = {word: number for number, word in enumerate(WORDS)}
    tokenizer = Tokenizer(WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = BertPreTokenizer()
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.enable_padding(length=9)
    tokenizer.enable_truncation(5)
    return tokenizer


def make_weights() -> Weights:
    random = np.random.default_rng(1)

    def matrix(*shape: int) -> Any:
        return random.normal(0, 0.7, shape).astype(np.float32)

    weights: Weights = {
        "embeddings.word_embeddings.weight": matrix(len(WORDS), SIZE),
        "embeddings.position_embeddings.weight": matrix(POSITIONS, SIZE),
        "embeddings.token_type_embeddings.weight": matrix(2, SIZE),
    }

    def add(name: str, *shape: int) -> None:
        weights[f"{name}.weight"] = matrix(*shape)
        weights[f"{name}.bias"] = matrix(shape[0])

    add("embeddings.LayerNorm", SIZE)
    for number in range(LAYERS):
        layer = f"encoder.layer.{number}"
        for part in ("query", "key", "value"):
            add(f"{layer}.attention.self.{part}", SIZE, SIZE)
        add(f"{layer}.attention.output.dense", SIZE, SIZE)
        add(f"{layer}.attention.output.LayerNorm", SIZE)
        add(f"{layer}.intermediate.dense", WIDE, SIZE)
        add(f"{layer}.output.dense", SIZE, WIDE)
        add(f"{layer}.output.LayerNorm", SIZE)
    return weights


Row = list[float]


def encode_slowly(weights: Weights, ids: Sequence[int]) -> Row:
    """The vector of one text: the definition, without a matrix product."""

    def dense(row: Row, name: str) -> Row:
        table, bias = weights[f"{name}.weight"].tolist(), weights[f"{name}.bias"].tolist()
        return [
            sum(map(float.__mul__, row, line)) + add for line, add in zip(table, bias, strict=True)
        ]

    def norm(row: Row, name: str) -> Row:
        scale, shift = weights[f"{name}.weight"].tolist(), weights[f"{name}.bias"].tolist()
        mean = sum(row) / len(row)
        spread = math.sqrt(sum((x - mean) ** 2 for x in row) / len(row) + EPSILON)
        return [(x - mean) / spread * a + b for x, a, b in zip(row, scale, shift, strict=True)]

    def add(one: Row, other: Row) -> Row:
        return [a + b for a, b in zip(one, other, strict=True)]

    def table(name: str) -> list[Row]:
        rows: list[Row] = weights[f"embeddings.{name}_embeddings.weight"].tolist()
        return rows

    kind = table("token_type")[0]
    rows = [
        norm(add(add(table("word")[word], table("position")[place]), kind), "embeddings.LayerNorm")
        for place, word in enumerate(ids)
    ]
    for number in range(LAYERS):
        layer = f"encoder.layer.{number}"
        queries, keys, values = (
            [dense(row, f"{layer}.attention.self.{part}") for row in rows]
            for part in ("query", "key", "value")
        )
        attended = [attend(query, keys, values) for query in queries]
        rows = [
            norm(
                add(row, dense(mixed, f"{layer}.attention.output.dense")),
                f"{layer}.attention.output.LayerNorm",
            )
            for row, mixed in zip(rows, attended, strict=True)
        ]
        rows = [
            norm(
                add(
                    row,
                    dense(
                        list(map(gelu, dense(row, f"{layer}.intermediate.dense"))),
                        f"{layer}.output.dense",
                    ),
                ),
                f"{layer}.output.LayerNorm",
            )
            for row in rows
        ]
    means = [sum(column) / len(rows) for column in zip(*rows, strict=True)]
    return [x / math.hypot(*means) for x in means]


def attend(query: Row, keys: list[Row], values: list[Row]) -> Row:
    per_head = SIZE // HEADS
    mixed: Row = []
    for start in range(0, SIZE, per_head):
        head = slice(start, start + per_head)
        scores = [
            sum(a * b for a, b in zip(query[head], key[head], strict=True)) / math.sqrt(per_head)
            for key in keys
        ]
        shares = [math.exp(score) for score in scores]
        mixed += [
            sum(share * value[place] for share, value in zip(shares, values, strict=True))
            / sum(shares)
            for place in range(start, start + per_head)
        ]
    return mixed


def gelu(x: float) -> float:
    return x * (1 + math.erf(x / math.sqrt(2))) / 2
