"""`AsyncStream`: the chunks of a reply, for asyncio."""

from __future__ import annotations

import inspect
from queue import Empty
from typing import AsyncIterator, Iterable, Optional, cast

from .waiting import Alarm, expiry, join, reply_of
from .._base_stream import BaseStream, Handlers, OnText, OnToolCall, text_of
from .._call import Call
from .._closing import AsyncClosing
from .._library import decode
from .._session import Session
from ..types import Chunk, Reply


class AsyncStream(BaseStream, AsyncClosing, AsyncIterator[Chunk]):
    """Like `Stream`, for `async for` and `async with`. Returned by `AsyncChat.create`.

    If the task that reads it is cancelled, the generation is cancelled too. Read it in one task at
    a time.
    """

    def __init__(self, chat: object, session: Session, call: Call) -> None:
        self._alarm = Alarm()
        call.wake = self._alarm.ring
        super().__init__(chat, session, call)
        self._timer = expiry(session, call)

    @property
    async def text(self) -> AsyncIterator[str]:
        """Iterates over the pieces of visible text: `async for piece in stream.text`."""
        async for chunk in self:
            text = text_of(chunk)
            if text:
                yield text

    async def until_done(
        self,
        *,
        on_text: Optional[OnText] = None,
        on_reasoning: Optional[OnText] = None,
        on_tool_call: Optional[OnToolCall] = None,
    ) -> Reply:
        """See `Stream.until_done`. The handlers may be coroutine functions."""
        handlers = Handlers(on_text, on_reasoning, on_tool_call)
        try:
            async for chunk in self:
                await _each(handlers.chunk(chunk))
            reply = await reply_of(self._session, self._call)
            await _each(handlers.tool_calls(reply["tool_calls"]))
        except BaseException:
            self._cancel()
            raise
        return reply

    async def close(self) -> None:
        """Cancels the generation if it is still running, and waits for its end. Idempotent."""
        self._cancel()
        await join(self._call.outcome)

    def _cancel(self) -> None:
        self._ended = True
        self._session.cancel(self._call)

    async def __anext__(self) -> Chunk:
        if self._alarm.awaited:
            # The other task would never be woken up.
            raise RuntimeError("another task is reading this stream")
        try:
            piece = await self._next_piece()
        except BaseException:
            self._cancel()
            raise
        if piece is not None:
            return cast(Chunk, decode(piece))
        self._ended = True
        if self._timer is not None:
            self._timer.cancel()
        # Raises the failure of the call, if it has one.
        self._call.outcome.result()
        raise StopAsyncIteration

    async def _next_piece(self) -> Optional[bytes]:
        while not self._ended:
            assert self._call.pieces is not None, "a stream's call has pieces"
            try:
                return self._call.pieces.get_nowait()
            except Empty:
                await self._alarm.wait()
        raise StopAsyncIteration


async def _each(results: Iterable[object]) -> None:
    for result in results:
        if inspect.isawaitable(result):
            await result
