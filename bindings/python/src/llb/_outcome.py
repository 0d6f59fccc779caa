"""`Outcome`: the end of work of another thread."""

from __future__ import annotations

import threading
from typing import Any, Callable, Generic, List, Optional, TypeVar

T = TypeVar("T")


class Outcome(Generic[T]):
    """The result or the exception of some work. Its maker ends it once.

    A `concurrent.futures.Future` does the same in several times the time, and can be cancelled.
    """

    __slots__ = ("done", "_error", "_lock", "_result", "_when_done")

    def __init__(self) -> None:
        self.done = False
        self._result: Any = None
        self._error: Optional[BaseException] = None
        self._when_done: List[Callable[[], object]] = []
        # Held until the end. A lock wakes its waiter in half the time of a condition.
        self._lock = threading.Lock()
        self._lock.acquire()

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
        """Waits for the end. Returns whether it has come. Signal handlers may run meanwhile."""
        if not self.done and self._lock.acquire(timeout=seconds):
            # For the next waiter.
            self._lock.release()
        return self.done

    def result(self) -> T:
        """Returns the result of ended work, or raises its exception."""
        try:
            if self._error is not None:
                raise self._error
            result: T = self._result
            return result
        finally:
            # The traceback of the exception refers to this frame. Without a cycle, the objects of
            # the caller do not wait for the garbage collector.
            del self

    def when_done(self, call: Callable[[], object]) -> None:
        """Calls a function once after the end, on the thread of the end, or now."""
        self._when_done.append(call)
        if self.done:
            self._call_all()

    def _end(self) -> None:
        self.done = True
        self._call_all()
        self._lock.release()

    def _call_all(self) -> None:
        # Both threads may be here. Each function is taken by one of them.
        while self._when_done:
            try:
                call = self._when_done.pop()
            except IndexError:
                return
            call()
