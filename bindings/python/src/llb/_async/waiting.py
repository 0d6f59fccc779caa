"""Waiting for another thread without blocking the event loop."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Optional, TypeVar, cast

from .._call import Call
from .._outcome import Outcome
from .._session import Session
from ..types import Reply

T = TypeVar("T")

# The resolution of `time.monotonic` in seconds, and some more.
TICK = time.get_clock_info("monotonic").resolution + 0.001


class Alarm:
    """Wakes a task when another thread has something for it. Must not refer to a stream."""

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

    @property
    def awaited(self) -> bool:
        """Whether a task waits."""
        return self._waiter is not None and not self._waiter.done()

    def _wake(self) -> None:
        self._rung = False
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self) -> None:
        """Waits for the next ring. Only one task may wait."""
        self._waiter = self._loop.create_future()
        await self._waiter


async def join(outcome: Outcome[Any]) -> None:
    """Waits until another thread's work has ended. Ignores its result."""
    alarm = Alarm()
    outcome.when_done(alarm.ring)
    while not outcome.done:
        await alarm.wait()


async def ended(outcome: Outcome[T]) -> T:
    """Waits for another thread's work. Returns its result or raises its exception."""
    await join(outcome)
    return outcome.result()


async def reply_of(session: Session, call: Call) -> Reply:
    """Waits for the end of a call. If the task is cancelled, cancels the call."""
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
    """Ends a call that is still waiting for its turn after its `timeout_ms`."""
    seconds = call.seconds_left()
    if seconds is None:
        return None
    # A timer may fire early by one tick of the clock, which is 16 ms on Windows.
    return asyncio.get_running_loop().call_later(seconds + TICK, session.expire, call)
