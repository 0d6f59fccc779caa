"""`Outcome`: the end of another thread's work."""

from __future__ import annotations

import threading
from typing import Any, Callable, Generic, List, Optional, TypeVar

T = TypeVar("T")


class Outcome(Generic[T]):
    """The result or the exception of some work. Its maker ends it once.

    A `concurrent.futures.Future` does the same in several times the time, and can be cancelled.
    """

    __slots__ = ("done", "_announced", "_error", "_lock", "_near", "_result", "_when_done")

    def __init__(self) -> None:
        self.done = False
        self._result: Any = None
        self._error: Optional[BaseException] = None
        self._when_done: List[Callable[[], object]] = []
        self._announced = False
        # `_near` is held until the end is announced, `_lock` until the end. A lock wakes its waiter
        # in half the time that a condition needs.
        self._near = threading.Lock()
        self._lock = threading.Lock()
        self._near.acquire()
        self._lock.acquire()

    def announce(self) -> None:
        """Wakes the waiters, because the end comes at once. Its maker may call this once before it.

        A thread takes some time to wake up. The maker finishes its work meanwhile.
        """
        self._announced = True
        self._near.release()

    def succeed(self, result: T) -> None:
        """Ends the work with a result."""
        self._result = result
        self._end()

    def fail(self, error: BaseException) -> None:
        """Ends the work with an exception."""
        self._error = error
        self._end()

    @property
    def succeeded(self) -> bool:
        """Whether the work has ended with a result."""
        return self.done and self._error is None

    def join(self, seconds: float) -> bool:
        """Waits for the end. Returns whether it was reached. Signal handlers may run meanwhile."""
        if not self.done:
            for lock in (self._near, self._lock):
                if not lock.acquire(timeout=seconds):
                    break
                # This lets the next waiter continue.
                lock.release()
        return self.done

    def result(self) -> T:
        """Returns the result of completed work, or raises its exception."""
        try:
            if self._error is not None:
                raise self._error
            result: T = self._result
            return result
        finally:
            # The traceback of the exception refers to this frame. Without this reference cycle, the
            # caller's objects need not wait for the garbage collector.
            del self

    def when_done(self, call: Callable[[], object]) -> None:
        """Calls a function once: now if the work has ended, else on the thread that ends it."""
        self._when_done.append(call)
        if self.done:
            self._call_all()

    def _end(self) -> None:
        self.done = True
        if self._when_done:
            self._call_all()
        self._lock.release()
        if not self._announced:
            self.announce()

    def _call_all(self) -> None:
        # Both threads may get here. Each function is taken by one of them.
        while self._when_done:
            try:
                call = self._when_done.pop()
            except IndexError:
                return
            call()
