"""Chats of the library, and the calls that run on them one at a time.

Nothing here refers to a `Chat` or a `Stream`. These may be garbage-collected while the library
works, and collecting them cancels the work.

Three rules keep this safe:

- Python code called by the library never runs on the main thread, where a signal handler could
  raise at any point. Its exceptions never cross a C frame: they are stored, the work is cancelled,
  and the waiting caller raises them.
- Calls on one chat are queued here, so that a cancel can only affect the intended call.
- Finalizers may run at any point of any thread, so they only put their work into a queue.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections import deque
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any, Callable, Deque, Dict, Generator, List, Mapping, Optional, Set, TypeVar

from ._errors import LlbError, error_from
from ._library import EVENT_CALLBACK, TOKEN_CALLBACK, Library, encode, load, raise_if_error

T = TypeVar("T")
OnEvent = Callable[[str], object]

# How often a wait returns to Python code, so that signal handlers can run.
_POLL_SECONDS = 0.1
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


def wait(done: threading.Event) -> None:
    """Waits for `done` in short intervals, so that signal handlers can run on every platform."""
    while not done.wait(_POLL_SECONDS):
        pass


def interruptible(work: Callable[[], T], cancel: Optional[Callable[[], None]] = None) -> T:
    """Runs `work`, and lets signals interrupt it on the main thread.

    On the main thread, `work` runs on another thread. On an interrupt, calls `cancel` until the
    work has ended, then raises the interrupt. Without `cancel` the interrupt is raised at once, and
    the work continues in the background.
    """
    if threading.current_thread() is not threading.main_thread():
        return work()
    done = threading.Event()
    results: List[T] = []
    failures: List[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:
            failures.append(error)
        finally:
            done.set()

    thread = threading.Thread(target=run, name="llb-call", daemon=True)
    try:
        thread.start()
        wait(done)
    except BaseException:
        if cancel is not None:
            cancel()
            while thread.is_alive() and not done.wait(_CANCEL_SECONDS):
                cancel()
        raise
    if failures:
        # `pop`: the traceback refers to this frame, which must not refer back to the exception.
        raise failures.pop()
    return results[0]


class Session:
    """One chat of the library, from before its creation until after its destruction."""

    def __init__(self, library: Library, listener: Callable[[], Optional[OnEvent]]) -> None:
        self.library = library
        # Returns the caller's `on_event` while the `Chat` exists. The function itself often refers
        # to the chat and would prevent its collection.
        self.listener = listener
        self.muted = False
        self.handle: Optional[int] = None
        self.closed_reason = "the chat is closed"
        # The events of the creation, for the error if it fails.
        self.events: List[str] = []
        # The exception raised by `on_event`. The caller that waits for the library raises it.
        self.failure: Optional[BaseException] = None
        # Guards `handle` and the fields below. Reentrant, because a signal handler may cancel.
        self.changed = threading.Condition()
        # In order of arrival. The first may be running in the library.
        self.calls: Deque[Call] = deque()
        self.created = False
        self.abandoned = False
        self.destroyed = threading.Event()
        # Must live as long as the library may call it.
        self.callback: Optional[Any] = EVENT_CALLBACK(self._receive)

    @staticmethod
    def open(options: bytes, listener: Callable[[], Optional[OnEvent]]) -> Session:
        """Creates the chat. An interrupt is raised at once; the chat is freed after the load."""
        refuse_in_callback("Chat")
        library = load()
        if _forked_with_chats:
            raise LlbError(
                "ENGINE_CLOSED",
                "this process was forked from one with open chats and cannot open a chat; "
                "fork before the first chat is opened, or use the `spawn` start method",
            )
        session = Session(library, listener)
        _start_reaper()
        _open.add(session)
        try:
            interruptible(lambda: session._create(options))
        except BaseException:
            run_in_background(session.abandon)
            raise
        return session

    def _create(self, options: bytes) -> None:
        handle = self.library.c.llb_chat_create_with(options, self.callback, None)
        # The last error is stored per thread, so read it on this thread.
        error = None if handle else error_from(self.library.last_error(), self.events)
        failure, self.failure = self.failure, None
        with self.changed:
            self.handle = handle or None
            self.created = True
            discard = self.abandoned or failure is not None
        if failure is not None:
            self.muted = True
        if error is not None or discard:
            self.destroy()
        if failure is not None:
            raise failure
        if error is not None:
            raise error

    def _receive(self, event: bytes, _user_data: Optional[int]) -> None:
        with callback_scope():
            try:
                text = event.decode("utf-8", "replace")
                if not self.created:
                    self.events.append(text)
                on_event = None if self.muted or self.failure is not None else self.listener()
                if on_event is not None:
                    on_event(text)
            except BaseException as error:
                self.failure = error
                for call in list(self.calls)[:1]:
                    run_in_background(call.stop)

    def cancel(self) -> None:
        """Cancels all calls."""
        with self.changed:
            for call in self.calls:
                call.cancel()
                run_in_background(call.stop)

    def destroy(self) -> None:
        """Cancels the running call and frees the chat.

        Returns when the chat is freed, also if another thread frees it.
        """
        with self.changed:
            first = self.created and not self.destroyed.is_set() and self in _open
            handle, self.handle = self.handle, None
            if first:
                _open.discard(self)
                _closing.add(self)
            self.changed.notify_all()
        if not first:
            wait(self.destroyed)
            return
        try:
            if handle is not None:
                self.library.c.llb_chat_destroy(handle)
            # The last event of a call may arrive after llb_chat_destroy has returned.
            with self.changed:
                self.changed.wait_for(lambda: not self.calls)
        finally:
            self.callback = None
            _closing.discard(self)
            self.destroyed.set()
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure

    def abandon(self) -> None:
        """Destroys a chat without users. No more events are delivered.

        A chat that is still being created is freed when the creation ends.
        """
        self.muted = True
        with self.changed:
            self.abandoned = True
            created = self.created
        if created:
            self.destroy()

    def invalidate(self) -> None:
        """Runs in a forked child: the chat, and possibly a held lock, belong to the parent."""
        self.changed = threading.Condition()
        self.handle = None
        self.closed_reason = "the chat belongs to the parent of this forked process"
        self.created = True
        self.destroyed = threading.Event()
        self.destroyed.set()
        for call in self.calls:
            call.invalidate()
        self.calls.clear()


class Call:
    """One request on a chat: queued, running in the library, or done.

    The constructor raises TypeError or ValueError if the request cannot be encoded as JSON.
    """

    def __init__(
        self,
        session: Session,
        function: str,
        request: Mapping[str, Any],
        pieces: Optional[SimpleQueue[Optional[str]]] = None,
    ) -> None:
        self.session = session
        self.function = function
        self.request = request
        self.encoded = encode(request)
        # `timeout_ms` counts from here. The library counts from the start of its own call.
        timeout = request.get("timeout_ms")
        self.deadline: Optional[float] = None
        if isinstance(timeout, (int, float)) and timeout > 0:
            self.deadline = time.monotonic() + min(timeout / 1000, threading.TIMEOUT_MAX / 2)
        # The pieces of a streaming call. None marks the end.
        self.pieces: Optional[SimpleQueue[Optional[str]]] = pieces
        self.cancelled = False
        self.queued = threading.Event()
        self.done = threading.Event()
        self.reply: Optional[Dict[str, Any]] = None
        self.failure: Optional[BaseException] = None

    def perform(self) -> Dict[str, Any]:
        """Waits for earlier calls, calls the library, and returns its reply."""
        session = self.session
        try:
            handle = self._wait_turn()
            function = getattr(session.library.c, self.function)
            if self.pieces is None:
                string = function(handle, self.encoded)
            else:
                string = function(handle, self.encoded, TOKEN_CALLBACK(self._receive), None)
            reply = session.library.take(string)
            # Read before the next call starts: the failure belongs to an event of this call.
            failure, session.failure = session.failure, None
        finally:
            self._finish()
        if failure is not None:
            raise failure
        return raise_if_error(reply)

    def stream(self) -> None:
        """As `perform`, on its own thread: stores the outcome and ends the pieces."""
        try:
            self.reply = self.perform()
        except BaseException as error:
            self.failure = error
        finally:
            if self.pieces is not None:
                self.pieces.put(None)

    def cancel(self) -> None:
        """Cancels the call, without waiting.

        Has no effect if the library was called but has not started the request yet, so `stop`
        repeats it.
        """
        self.cancelled = True
        session = self.session
        with session.changed:
            if session.handle is not None and session.calls and session.calls[0] is self:
                session.library.c.llb_chat_cancel(session.handle)
            session.changed.notify_all()

    def stop(self) -> None:
        """Cancels the call and waits for its end. In a callback it does not wait.

        Waiting there would deadlock, because the call waits for the callback.
        """
        while not self.done.is_set():
            self.cancel()
            if in_callback():
                return
            self.done.wait(_CANCEL_SECONDS)

    def invalidate(self) -> None:
        """Runs in a forked child: the thread of the call exists only in the parent."""
        self.failure = LlbError("ENGINE_CLOSED", self.session.closed_reason)
        self.done = threading.Event()
        self.done.set()
        if self.pieces is not None:
            self.pieces = SimpleQueue()
            self.pieces.put(None)

    def _wait_turn(self) -> int:
        session = self.session
        with session.changed:
            session.calls.append(self)
            self.queued.set()
            waited = session.calls[0] is not self
            session.changed.wait_for(
                lambda: self.cancelled or session.handle is None or session.calls[0] is self,
                self._seconds_left(),
            )
            if session.handle is None:
                raise LlbError("ENGINE_CLOSED", session.closed_reason)
            if self.cancelled:
                raise LlbError("CANCELLED", "the call was cancelled before it started")
            if session.calls[0] is not self:
                raise LlbError("CANCELLED", "timeout_ms expired before the call started")
            seconds = self._seconds_left()
            if waited and seconds is not None:
                self.encoded = encode({**self.request, "timeout_ms": max(1, int(seconds * 1000))})
            return session.handle

    def _seconds_left(self) -> Optional[float]:
        return None if self.deadline is None else max(0.0, self.deadline - time.monotonic())

    def _finish(self) -> None:
        session = self.session
        with session.changed:
            if self in session.calls:
                session.calls.remove(self)
            self.queued.set()
            self.done.set()
            session.changed.notify_all()

    def _receive(self, piece: bytes, _user_data: Optional[int]) -> None:
        # No code of the caller runs here. Any exception comes from the interpreter, such as
        # MemoryError, and cancels the call.
        try:
            if self.pieces is not None:
                self.pieces.put(piece.decode("utf-8", "replace"))
            cancelled = self.cancelled
        except BaseException as error:
            self.session.failure = error
            cancelled = True
        if cancelled:
            handle = self.session.handle
            if handle is not None:
                self.session.library.c.llb_chat_cancel(handle)


# Sessions that the library may call back. Holding them keeps their callbacks alive.
_open: Set[Session] = set()
_closing: Set[Session] = set()
_forked_with_chats = False

_reaper: Optional[threading.Thread] = None
_work: SimpleQueue[Callable[[], None]] = SimpleQueue()


def run_in_background(work: Callable[[], None]) -> None:
    """Runs `work` on a thread that may block. May be called anywhere, including finalizers."""
    _work.put(work)


def _start_reaper() -> None:
    global _reaper
    if _reaper is None:
        _reaper = threading.Thread(target=_reap, args=(_work,), name="llb-reaper", daemon=True)
        _reaper.start()


def _reap(work: SimpleQueue[Callable[[], None]]) -> None:
    while True:
        try:
            work.get()()
        except Exception:
            # No caller waits for this work, and the package prints nothing.
            pass


def _close_all() -> None:
    """Runs at exit: the library must not call back into an interpreter that shuts down."""
    for session in [*_open, *_closing]:
        session.abandon()
        wait(session.destroyed)


def _after_fork_in_child() -> None:
    global _forked_with_chats, _reaper, _work
    for session in [*_open, *_closing]:
        _forked_with_chats = True
        session.invalidate()
    _open.clear()
    _closing.clear()
    _reaper = None
    _work = SimpleQueue()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
