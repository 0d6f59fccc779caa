"""The streams of the client in openai's shape: chunks, and events with the reply so far."""

from __future__ import annotations

from typing import Iterator, TypeVar

from .._closing import Closing
from .errors import PACKAGE_ERRORS
from .parse import ReplyTypes
from .shape import ChatCompletion, ChatCompletionChunk, Record, chunks
from .snapshot import Event, Snapshot
from .._stream import Stream

T = TypeVar("T", bound=Record)


class RecordStream(Closing, Iterator[T]):
    """An iterator over objects made from the chunks of a reply. `with` ends the reply."""

    def __init__(self, stream: Stream, model: str) -> None:
        self._stream = stream
        self._model = model
        self._records = self._all()

    def close(self) -> None:
        """Cancels the reply if it is still running."""
        self._stream.close()

    def _all(self) -> Iterator[T]:
        raise NotImplementedError

    def __next__(self) -> T:
        with PACKAGE_ERRORS:
            return next(self._records)


class ChunkStream(RecordStream[ChatCompletionChunk]):
    """The chunks of a reply."""

    def _all(self) -> Iterator[ChatCompletionChunk]:
        for chunk in self._stream:
            yield from chunks(chunk, self._model)


class EventStream(RecordStream[Event]):
    """The events of a reply, as the package makes them of the same chunks.

    `chunk` with the `snapshot` of the reply so far; `content.delta`, `content.done`,
    `tool_calls.function.arguments.delta` and `.done`, `logprobs.content.delta` and `.done`.
    """

    def __init__(self, stream: Stream, model: str, types: ReplyTypes) -> None:
        super().__init__(stream, model)
        self._snapshot = Snapshot(types)

    @property
    def current_completion_snapshot(self) -> ChatCompletion:
        """The reply so far. Raises LlbError before the first chunk has arrived."""
        return self._snapshot.completion

    def get_final_completion(self) -> ChatCompletion:
        """Reads the rest and returns the whole reply, with usage if the request asks for it."""
        return self.until_done().current_completion_snapshot

    def until_done(self) -> EventStream:
        """Reads the rest."""
        for _ in self:
            pass
        return self

    def _all(self) -> Iterator[Event]:
        for raw in self._stream:
            for chunk in chunks(raw, self._model):
                yield from self._snapshot.add(chunk)
                if is_last(chunk):
                    # Raises the failure of the call, if it has one.
                    yield from self._snapshot.end(self._stream.until_done())


def is_last(chunk: ChatCompletionChunk) -> bool:
    """Whether a chunk is the last one of the reply. Its usage may still follow."""
    return any(choice.finish_reason for choice in chunk.choices)
