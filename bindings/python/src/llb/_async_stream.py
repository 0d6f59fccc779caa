"""`AsyncStream`: the chunks of a reply, for asyncio."""

from __future__ import annotations

import asyncio
import inspect
from queue import Empty
from typing import Any, AsyncIterator, Iterable, Optional, TypeVar, cast

from ._base_stream import BaseStream
from ._call import Call
from ._chunk import Handlers, OnText, OnToolCall, text_of
from ._closing import AsyncClosing
from ._library import decode
from ._outcome import Outcome
from ._session import Session
from .types import Chunk, Reply

T = TypeVar("T")


class Alarm:
    """Wakes a task when another thread has something for it. Refers to no stream."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._rung = False
        self._waiter: Optional[asyncio.Future[None]] = None

    def ring(self) -> bool:
        """Called on the other thread. Several rings wake the task once.

        Returns False if the event loop is closed, so that no task waits any more.
        """
        if not self._rung:
            self._rung = True
            try:
                self._loop.call_soon_threadsafe(self._wake)
            except RuntimeError:
                return False
        return True

    def _wake(self) -> None:
        self._rung = False
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self) -> None:
        """Waits for the next ring."""
        self._waiter = self._loop.create_future()
        await self._waiter


async def join(outcome: Outcome[Any]) -> None:
    """Waits for the end of another thread's work. Ignores its result."""
    alarm = Alarm()
    outcome.when_done(alarm.ring)
    while not outcome.done:
        await alarm.wait()


async def ended(outcome: Outcome[T]) -> T:
    """Waits for another thread's work. Returns its result or raises its exception."""
    await join(outcome)
    return outcome.result()


async def reply_of(session: Session, call: Call) -> Reply:
    """Waits for the end of a call. Cancels it if the task is cancelled."""
    timer = expiry(session, call)
    try:
        return cast(Reply, await ended(call.outcome))
    except asyncio.CancelledError:
        session.cancel(call)
        raise
    finally:
        if timer is not None:
            timer.cancel()


def expiry(session: Session, call: Call) -> Optional[asyncio.TimerHandle]:
    """Ends a call that still waits for its turn after its `timeout_ms`."""
    seconds = call.seconds_left()
    if seconds is None:
        return None
    # A timer may run a little early.
    return asyncio.get_running_loop().call_later(seconds + 0.001, session.expire, call)


class AsyncStream(BaseStream, AsyncClosing, AsyncIterator[Chunk]):
    """As `Stream`, for `async for` and `async with`. Returned by `AsyncChat.create`.

    If the task that reads it is cancelled, the generation is cancelled too.
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
        """As `Stream.until_done`. The handlers may be coroutine functions."""
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
        """Cancels the generation if it still runs, and waits for its end. Idempotent."""
        self._cancel()
        await join(self._call.outcome)

    def _cancel(self) -> None:
        self._ended = True
        self._session.cancel(self._call)

    async def __anext__(self) -> Chunk:
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
