"""Streams: converts the text pieces of the library to OpenAI chunks.

The call runs on its own thread. Closing the stream early cancels it.
"""

from __future__ import annotations

import json
import threading
import time
import uuid
import weakref
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any, Dict, Iterator, Optional, Type, cast

from ._session import Call, in_callback, run_in_background
from .types import Chunk, Reply

_POLL_SECONDS = 0.1


class Stream(Iterator[Chunk]):
    """An iterator over OpenAI `chat.completion.chunk` dicts, returned by `Chat.create`.

    The first chunk has the `delta` `{"role": "assistant", "content": ""}`. Then each piece of
    visible text is a chunk with `{"content": ...}`. When the reply is complete, the following
    chunks have `{"reasoning_content": ...}` if the model reasoned, and `{"tool_calls": [{"index",
    "id", "type", "function": {"name", "arguments"}}]}` for each call. The last chunk has
    `finish_reason`, `usage` and, under `llb`, the whole reply.

    With `stream_format="chunks"` in the request the chunks are those of the library.

    The iteration raises what `Chat.create` raises, and KeyboardInterrupt, after the generation has
    ended. To stop early, call `close` or use the stream as a context manager; a dropped stream
    closes itself. A stream keeps its chat alive, but closing the chat ends the stream. Iterate on
    one thread at a time; `close` may be called from any thread.
    """

    def __init__(self, chat: object, call: Call, model: str, as_chunks: bool) -> None:
        self._chat = chat
        self._call = call
        # The generator refers only to the call. If it referred to `self`, a dropped stream would
        # never be collected.
        self._chunks = _library_chunks(call) if as_chunks else _text_chunks(call, _envelope(model))
        finalizer = weakref.finalize(self, run_in_background, call.stop)
        finalizer.atexit = False
        self._thread = threading.Thread(target=call.stream, name="llb-stream", daemon=True)
        try:
            self._thread.start()
            # The next call of this thread must follow this one.
            call.queued.wait()
        except BaseException:
            call.cancel()
            raise

    @property
    def reply(self) -> Optional[Reply]:
        """The whole reply, as `Chat.create` returns it without `stream`.

        None while the reply is generated and after a failure.
        """
        return cast(Optional[Reply], self._call.reply)

    def close(self) -> None:
        """Cancels the generation if it still runs, and waits for its end.

        In a callback it only cancels. Idempotent.
        """
        self._chunks = iter(())
        self._call.stop()
        if not in_callback():
            self._thread.join()

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> Chunk:
        try:
            return cast(Chunk, next(self._chunks))
        except StopIteration:
            raise
        except BaseException:
            # Includes KeyboardInterrupt: an interrupted caller does not read the rest.
            self.close()
            raise

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        self.close()


def _pieces(call: Call) -> Iterator[str]:
    """Yields the pieces as they arrive. Ends with the call, and raises its failure."""
    while True:
        pieces: Optional[SimpleQueue[Optional[str]]] = call.pieces
        assert pieces is not None, "a stream's call has pieces"
        try:
            piece = pieces.get(timeout=_POLL_SECONDS)
        except Empty:
            continue
        if piece is None:
            break
        yield piece
    failure, call.failure = call.failure, None
    if failure is not None:
        raise failure


def _library_chunks(call: Call) -> Iterator[Dict[str, Any]]:
    for piece in _pieces(call):
        yield json.loads(piece)


def _text_chunks(call: Call, envelope: Dict[str, Any]) -> Iterator[Dict[str, Any]]:
    pieces = _pieces(call)
    yield _chunk(envelope, {"role": "assistant", "content": ""})
    for piece in pieces:
        yield _chunk(envelope, {"content": piece})
    reply = call.reply or {}
    if reply.get("reasoning_content"):
        yield _chunk(envelope, {"reasoning_content": reply["reasoning_content"]})
    for index, tool_call in enumerate(reply.get("tool_calls") or ()):
        function = {"name": tool_call["name"], "arguments": tool_call["arguments"]}
        delta = {"index": index, "id": tool_call["id"], "type": "function", "function": function}
        yield _chunk(envelope, {"tool_calls": [delta]})
    last = _chunk(envelope, {}, reply.get("finish_reason"))
    yield {**last, "usage": reply.get("usage"), "llb": reply}


def _envelope(model: str) -> Dict[str, Any]:
    return {
        "id": f"chatcmpl-{uuid.uuid4().hex}",
        "object": "chat.completion.chunk",
        "created": int(time.time()),
        "model": model,
    }


def _chunk(
    envelope: Dict[str, Any], delta: Dict[str, Any], finish_reason: Optional[str] = None
) -> Dict[str, Any]:
    return {**envelope, "choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]}
