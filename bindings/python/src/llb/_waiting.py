"""Waits that signal handlers can interrupt, and the rule for calls inside callbacks."""

from __future__ import annotations

import threading
from typing import Any, Callable, Optional, TypeVar

from ._errors import LlbError
from ._outcome import Outcome

T = TypeVar("T")

# How often a wait returns to Python code, so that signal handlers can run on every platform.
POLL_SECONDS = 0.1
# How often a cancel is repeated. It has no effect if it arrives before the library starts the call.
_CANCEL_SECONDS = 0.05

_this_thread = threading.local()


def in_callback() -> bool:
    """Whether this thread is inside a callback of the library."""
    return getattr(_this_thread, "callbacks", 0) > 0


class CallbackScope:
    """`with CallbackScope():` marks this thread as inside a callback of the library."""

    def __enter__(self) -> None:
        _this_thread.callbacks = getattr(_this_thread, "callbacks", 0) + 1

    def __exit__(self, *_: object) -> None:
        _this_thread.callbacks -= 1


def refuse_in_callback(name: str) -> None:
    """Raises `BUSY` in a callback.

    A blocking call would deadlock, because the library waits for the callback.
    """
    if getattr(_this_thread, "callbacks", 0):
        raise LlbError("BUSY", f"{name} cannot be called in a callback; call it after the callback")


def wait(outcome: Outcome[T], poll: Optional[Callable[[], object]] = None) -> T:
    """Returns the result of work or raises its exception. `poll` is called regularly."""
    try:
        while not outcome.join(POLL_SECONDS):
            if poll is not None:
                poll()
        return outcome.result()
    finally:
        # As in `Outcome.result`.
        del outcome, poll


def wait_for_end(outcome: Outcome[Any], cancel: Callable[[], object]) -> None:
    """Calls `cancel` until the work has ended. Ignores its result."""
    while not outcome.done:
        cancel()
        outcome.join(_CANCEL_SECONDS)


def interruptible(work: Callable[[], T], cancel: Callable[[], None]) -> T:
    """Runs `work`, and lets signals interrupt it on the main thread.

    On the main thread, `work` runs on another thread. On an interrupt, calls `cancel` until the
    work has ended, then raises the interrupt.
    """
    if threading.current_thread() is not threading.main_thread():
        return work()
    outcome: Outcome[T] = Outcome()

    def run() -> None:
        try:
            result = work()
        except BaseException as error:
            outcome.fail(error)
        else:
            outcome.succeed(result)

    threading.Thread(target=run, name="llb-call", daemon=True).start()
    try:
        return wait(outcome)
    except BaseException:
        wait_for_end(outcome, cancel)
        raise
