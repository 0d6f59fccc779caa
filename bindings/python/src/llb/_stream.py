"""A reply as it is written: the library's pieces of text as OpenAI's chunks.

In comes a call that streams, out go chunk dicts, and at the end the reply. The call runs on a thread of its own;
leaving the stream early ends it.
"""

from __future__ import annotations

import json
import threading
import time
import uuid
import weakref
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any, Dict, Iterator, Optional, Type

from ._session import Call, in_callback, later

_SIGNAL_SECONDS = 0.1


class Stream(Iterator[Dict[str, Any]]):
    """An iterator over chunks shaped like OpenAI's `chat.completion.chunk`, which `Chat.create` makes.

    First comes a chunk with `delta` `{"role": "assistant", "content": ""}`, then one `{"content": ...}` for each piece
    of visible text. When the reply is complete: `{"reasoning_content": ...}` if the model reasoned, one
    `{"tool_calls": [{"index", "id", "type", "function": {"name", "arguments"}}]}` for each call, and a last one with
    `finish_reason`, `usage` and, under `llb`, the whole reply of the library.

    With `stream_format="chunks"` in the request the chunks are the library's own.

    What fails is raised by the iteration. Leave early with `close`, or by using it as a context manager; a stream
    that is dropped closes itself. It holds its chat, but closing the chat ends it.
    """

    def __init__(self, chat: object, call: Call, model: str, as_chunks: bool) -> None:
        self._chat = chat
        self._call = call
        # A generator over the call alone: one over `self` would keep a dropped stream, and its call, alive.
        self._chunks = _library_chunks(call) if as_chunks else _text_chunks(call, _envelope(model))
        finalizer = weakref.finalize(self, later, call.stop)
        finalizer.atexit = False
        self._thread = threading.Thread(target=call.stream, name="llb-stream", daemon=True)
        try:
            self._thread.start()
            # So that the next call of this thread comes after it.
            call.queued.wait()
        except BaseException:
            call.cancel()
            raise

    @property
    def reply(self) -> Optional[Dict[str, Any]]:
        """The whole reply, as `Chat.create` gives it without `stream`; None until the last chunk, or if it failed."""
        return self._call.reply

    def close(self) -> None:
        """Ends the generation, if it still runs, and waits for its end. More than once is fine."""
        self._chunks = iter(())
        self._call.stop()
        if not in_callback():
            self._thread.join()

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> Dict[str, Any]:
        try:
            return next(self._chunks)
        except StopIteration:
            raise
        except BaseException:
            # Also a KeyboardInterrupt while waiting: who is interrupted here does not come back for the rest.
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
    """The pieces, as they come; then the call is done. Raises what it failed with."""
    while True:
        pieces: Optional[SimpleQueue[Optional[str]]] = call.pieces
        assert pieces is not None, "a stream's call has pieces"
        try:
            piece = pieces.get(timeout=_SIGNAL_SECONDS)
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


def _chunk(envelope: Dict[str, Any], delta: Dict[str, Any], finish_reason: Optional[str] = None) -> Dict[str, Any]:
    return {**envelope, "choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]}
