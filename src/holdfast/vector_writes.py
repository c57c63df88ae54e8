"""Writing the vectors that a model has made: for requests and for the background task alike. Part of the caller's
transaction."""

from collections.abc import Sequence

from holdfast.core.embeddings import DueText, EmbeddedText, Vector, describe_mixing
from holdfast.ports.store import Vectors


def save_vectors(
    store: Vectors, texts: Sequence[DueText], vectors: Sequence[Vector]
) -> Sequence[EmbeddedText]:
    """Store one vector of each text; return those that are stored. One of another length than the model's others in the
    container is refused: its text is given up, with the reason."""
    lengths: dict[tuple[str, str], int] = {}
    saved = []
    for text, vector in zip(texts, vectors, strict=True):
        key = (text.container_id, text.model)
        if key not in lengths:
            lengths[key] = store.find_dimensions(*key) or vector.dimensions
        if vector.dimensions == lengths[key]:
            saved.append(EmbeddedText(text.position, text.model, vector))
        else:
            why = describe_mixing(text.model, stored=lengths[key], new=vector.dimensions)
            store.record_failure([text], why, None)
    store.save(saved)
    return saved
