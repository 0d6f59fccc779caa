"""Waits that signal handlers can interrupt, and the rule for calls in callbacks."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from contextlib import contextmanager
from typing import Any, Callable, Generator, Optional, TypeVar

from ._errors import LlbError

T = TypeVar("T")

# How often a wait returns to Python code, so that signal handlers can run on every platform.
POLL_SECONDS = 0.1
# How often a cancel is repeated: it has no effect if it arrives before the library starts the call.
_CANCEL_SECONDS = 0.05

_this_thread = threading.local()


def in_callback() -> bool:
    """Whether this thread is inside a callback of the library."""
    return getattr(_this_thread, "callbacks", 0) > 0


@contextmanager
def callback_scope() -> Generator[None, None, None]:
    """Marks this thread as inside a callback of the library."""
    _this_thread.callbacks = getattr(_this_thread, "callbacks", 0) + 1
    try:
        yield
    finally:
        _this_thread.callbacks -= 1


def refuse_in_callback(name: str) -> None:
    """Raises `BUSY` in a callback.

    A blocking call would deadlock, because the library waits for the callback.
    """
    if in_callback():
        raise LlbError("BUSY", f"{name} cannot be called in a callback; call it after the callback")


def started_future() -> Future[Any]:
    """Returns a future that only its maker ends: `Future.cancel` has no effect."""
    future: Future[Any] = Future()
    future.set_running_or_notify_cancel()
    return future


def failed_future(error: BaseException) -> Future[Any]:
    """Returns a future that has ended with `error`."""
    future = started_future()
    future.set_exception(error)
    return future


def wait(future: Future[T], poll: Optional[Callable[[], object]] = None) -> T:
    """Returns the result of `future` or raises its exception. `poll` is called now and then."""
    try:
        # A lock wakes its waiter in half the time of `Future.result`.
        ended = threading.Lock()
        ended.acquire()
        future.add_done_callback(lambda _: ended.release())
        while not ended.acquire(timeout=POLL_SECONDS):
            if poll is not None:
                poll()
        return future.result()
    finally:
        # The traceback of the exception refers to this frame, which must not refer back: a cycle
        # would keep the caller's objects until the garbage collector runs.
        del future, poll


def wait_for_end(future: Future[Any], cancel: Callable[[], object]) -> None:
    """Calls `cancel` until `future` has ended. Ignores its result."""
    while not future.done():
        cancel()
        try:
            future.exception(_CANCEL_SECONDS)
        except NotYet:
            pass


def interruptible(work: Callable[[], T], cancel: Callable[[], None]) -> T:
    """Runs `work`, and lets signals interrupt it on the main thread.

    On the main thread, `work` runs on another thread. On an interrupt, calls `cancel` until the
    work has ended, then raises the interrupt.
    """
    if threading.current_thread() is not threading.main_thread():
        return work()
    future: Future[T] = started_future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="llb-call", daemon=True).start()
    try:
        return wait(future)
    except BaseException:
        wait_for_end(future, cancel)
        raise
