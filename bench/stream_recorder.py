"""Reading a stream of server-sent events, of Holdfast or the bare provider: which words arrived, and when."""

import asyncio
import time

import msgspec

_SEPARATOR = b"\n\n"
_DATA = b"data: "
_DONE = b"data: [DONE]"


class _Item(msgspec.Struct):
    message_type: str = ""
    content: str | None = None
    run_id: str | None = None
    seq_id: int | None = None


class _Delta(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    delta: _Delta


class _Chunk(msgspec.Struct):
    choices: list[_Choice]


_items = msgspec.json.Decoder(_Item)
_chunks = msgspec.json.Decoder(_Chunk)


class StreamRecorder:
    """Records one Holdfast stream. All times are seconds of ``time.monotonic``."""

    def __init__(self) -> None:
        self.asked_at = time.monotonic()
        self.words: list[tuple[str, float]] = []
        # The number of events with words.
        self.events = 0
        self.run_id = ""
        self.last_seq = 0
        self.done_at: float | None = None
        self.started = asyncio.Event()
        self._rest = b""

    def __call__(self, data: bytes) -> None:
        now = time.monotonic()
        *events, self._rest = (self._rest + data).split(_SEPARATOR)
        for event in events:
            if event == _DONE:
                self.done_at = now
            elif event.startswith(_DATA):
                self._record(event[len(_DATA) :], now)

    def _record(self, payload: bytes, now: float) -> None:
        spoken = self._text(payload)
        if not spoken:
            return
        self.events += 1
        self.started.set()
        self.words += [(word, now) for word in spoken.split()]

    def _text(self, payload: bytes) -> str | None:
        item = _items.decode(payload)
        self.run_id = item.run_id or self.run_id
        self.last_seq = item.seq_id or self.last_seq
        return item.content if item.message_type == "assistant_message" else None

    @property
    def first_ms(self) -> float:
        """The time from the creation of this object, right before the request, to the first word."""
        return (self.words[0][1] - self.asked_at) * 1000

    @property
    def last_ms(self) -> float:
        return (self.words[-1][1] - self.asked_at) * 1000

    def lags_ms(self, begun_at: float, delay_seconds: float) -> list[float]:
        """The delay of each word after its due time."""
        return [
            (heard_at - begun_at - number * delay_seconds) * 1000
            for number, (_, heard_at) in enumerate(self.words, start=1)
        ]


class ProviderStreamRecorder(StreamRecorder):
    """The same of the provider's own stream (OpenAI chat completions)."""

    def _text(self, payload: bytes) -> str | None:
        choices = _chunks.decode(payload).choices
        return choices[0].delta.content if choices else None
