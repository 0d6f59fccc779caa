"""`Stream`: the chunks of a reply, as the library creates them."""

from __future__ import annotations

from collections import deque
from queue import Empty
from typing import Iterator, Optional, cast

from ._base_stream import BaseStream, Handlers, OnText, OnToolCall, text_of
from ._closing import Closing
from ._library import decode
from ._waiting import POLL_SECONDS
from .types import Chunk, Reply


class Stream(BaseStream, Closing, Iterator[Chunk]):
    """An iterator over OpenAI `chat.completion.chunk` dicts, returned by `Chat.create`.

    Each chunk comes as soon as the library has it. Its `delta` has `content`, `reasoning_content`,
    or `tool_calls`: first `index`, `id` and name, then fragments of the arguments. The last chunk
    has `finish_reason`, and `usage` if the request has `stream_options={"include_usage": True}`.

    The iteration raises what `Chat.create` raises, and KeyboardInterrupt, after the generation has
    ended. To stop early, call `close` or use the stream as a context manager; a dropped stream
    ends by itself. A stream keeps its chat alive, but closing the chat ends the stream. Iterate on
    one thread at a time; `close` may be called from any thread.
    """

    @property
    def text(self) -> Iterator[str]:
        """Iterates over the pieces of visible text, which concatenate to the reply's `text`."""
        return filter(None, map(text_of, self))

    def until_done(
        self,
        *,
        on_text: Optional[OnText] = None,
        on_reasoning: Optional[OnText] = None,
        on_tool_call: Optional[OnToolCall] = None,
    ) -> Reply:
        """Reads the rest of the stream, and returns the reply.

        `on_text` and `on_reasoning` are called with each piece of text and of reasoning.
        `on_tool_call` is called at the end, with each tool call of the reply. All are called on
        this thread. If one raises, the generation is cancelled. Raises what the iteration raises,
        and LlbError with `CANCELLED` after `close`.
        """
        handlers = Handlers(on_text, on_reasoning, on_tool_call)
        try:
            for chunk in self:
                deque(handlers.chunk(chunk), maxlen=0)
            reply = cast(Reply, self._session.wait(self._call))
            deque(handlers.tool_calls(reply["tool_calls"]), maxlen=0)
        except BaseException:
            self.close()
            raise
        return reply

    def close(self) -> None:
        """Cancels the generation if it still runs, and waits for its end.

        In a callback it only cancels. Idempotent.
        """
        self._ended = True
        self._session.stop(self._call)

    def __next__(self) -> Chunk:
        try:
            piece = self._next_piece()
        except BaseException:
            # An interrupted caller will not read the rest.
            self.close()
            raise
        if piece is not None:
            return cast(Chunk, decode(piece))
        self._ended = True
        # Raises the failure of the call, if it has one.
        self._call.outcome.result()
        raise StopIteration

    def _next_piece(self) -> Optional[bytes]:
        while not self._ended:
            pieces = self._call.pieces
            assert pieces is not None, "a stream's call has pieces"
            try:
                return pieces.get(timeout=POLL_SECONDS)
            except Empty:
                self._session.expire(self._call)
        raise StopIteration
