"""Who signed which thought: a provider takes back its own, and refuses another's. Safe from any thread.

What nobody signed here is let through: tests write histories by hand.
"""

from collections import defaultdict
from collections.abc import Iterator

from holdfast.testing.script import Answer, RedactedThinking, Scripted, Thinking
from holdfast.testing.wires.wire import WireName

# Where a wire has a signature, and what it says of one that it cannot read.
_SIGNATURE_FIELDS: dict[WireName, tuple[tuple[str, ...], str]] = {
    "anthropic": (("signature", "data"), "Invalid `signature` in `thinking` block"),
    "openai-responses": (
        ("encrypted_content",),
        "The encrypted content could not be verified.",
    ),
    "bedrock": (("signature",), "The model returned: Invalid `signature` in `thinking` block"),
    "google": (("thoughtSignature",), "Thought signature is not valid."),
}


class Signatures:
    def __init__(self) -> None:
        self._signed: defaultdict[WireName, set[str]] = defaultdict(set)

    def record(self, wire: WireName, scripted: Scripted) -> None:
        """What is about to be said on this wire."""
        if isinstance(scripted, Answer) and wire in _SIGNATURE_FIELDS:
            self._signed[wire].update(_signatures(scripted))

    def refusal(self, wire: WireName, body: object) -> str | None:
        """Why the provider refuses what another one signed."""
        if wire not in _SIGNATURE_FIELDS:
            return None
        names, words = _SIGNATURE_FIELDS[wire]
        others = set().union(*(found for name, found in self._signed.items() if name != wire))
        foreign = others - self._signed[wire]
        return words if foreign.intersection(_find_values(body, names)) else None


def _signatures(answer: Answer) -> Iterator[str]:
    for part in answer.parts:
        if isinstance(part, Thinking):
            yield part.signature
        elif isinstance(part, RedactedThinking):
            yield part.data


def _find_values(value: object, names: tuple[str, ...]) -> Iterator[str]:
    if isinstance(value, dict):
        for name, inner in value.items():
            if name in names and isinstance(inner, str):
                yield inner
            else:
                yield from _find_values(inner, names)
    elif isinstance(value, list):
        for inner in value:
            yield from _find_values(inner, names)
