"""The library's chat as threads and callbacks hold it, and the calls that run on it one after another.

In come requests as JSON bytes, out go replies as dicts, or what went wrong as an exception. Nothing here refers
to a `Chat` or a `Stream`: those may be collected while the library still works, and that ends the work.

Three rules keep this safe:
- Code of Python's that the library calls never runs on the main thread, where a signal could raise anywhere in
  it, and no exception of it crosses a C frame: it is stored, the work is cancelled, and the waiting side raises it.
- Calls of one chat take turns here, so that a cancel can only meet the call it is meant for.
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
from typing import Any, Callable, Deque, Dict, Iterator, List, Mapping, Optional, Set, TypeVar

from ._errors import LlbError, error_from
from ._library import EVENT_CALLBACK, TOKEN_CALLBACK, Library, encode, load, unless_error

T = TypeVar("T")
OnEvent = Callable[[str], object]

# How long the main thread waits before it looks for signals, where waiting itself does not.
_SIGNAL_SECONDS = 0.1
# How long until a cancel is repeated that may have come before the library began.
_CANCEL_SECONDS = 0.05

_this_thread = threading.local()


def in_callback() -> bool:
    """Whether this is a function the library called."""
    return getattr(_this_thread, "callbacks", 0) > 0


@contextmanager
def in_a_callback() -> Iterator[None]:
    """While it lasts, this thread is inside a function that the library called."""
    _this_thread.callbacks = getattr(_this_thread, "callbacks", 0) + 1
    try:
        yield
    finally:
        _this_thread.callbacks -= 1


def refuse_in_callback(what: str) -> None:
    """Raises `BUSY` in a callback: the library waits for it, so what waits for the library never ends."""
    if in_callback():
        raise LlbError("BUSY", f"{what} cannot be called in a callback")


def wait(done: threading.Event) -> None:
    """Waits so that a signal handler, and with it KeyboardInterrupt, can run on every platform."""
    while not done.wait(_SIGNAL_SECONDS):
        pass


def interruptible(work: Callable[[], T], cancel: Optional[Callable[[], None]] = None) -> T:
    """Runs `work`, on another thread when this is the main one, which signals must be able to interrupt.

    On an interrupt: `cancel` until the work has ended, then the interrupt is raised. Without `cancel` it is
    raised at once, and the work goes on alone.
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
        # Not kept in this frame, which the exception's traceback refers to.
        raise failures.pop()
    return results[0]


class Session:
    """One chat of the library, from before its creation to after its end."""

    def __init__(self, library: Library, listener: Callable[[], Optional[OnEvent]]) -> None:
        self.library = library
        # Answers the caller's `on_event` as long as there is somebody to hear it. Not the function itself, which
        # often refers to the chat and would keep it from being collected.
        self.listener = listener
        self.silent = False
        self.handle: Optional[int] = None
        self.closed_because = "the chat is closed"
        # What its creation reported, for the error of a failed one.
        self.events: List[str] = []
        # Raised by the listener, for whoever waits for the library now.
        self.failure: Optional[BaseException] = None
        # Guards the fields below and `handle`. Its lock can be taken twice, as by a signal handler that cancels.
        self.turn = threading.Condition()
        # In order of arrival; the first may be in the library.
        self.calls: Deque[Call] = deque()
        self.created = False
        self.abandoned = False
        self.gone = threading.Event()
        # Lives as long as the library may call it.
        self.callback: Optional[Any] = EVENT_CALLBACK(self._receive)

    @staticmethod
    def open(options: bytes, listener: Callable[[], Optional[OnEvent]]) -> Session:
        """Creates the chat. An interrupt does not wait for the model to load; it is freed when it has."""
        refuse_in_callback("Chat")
        library = load()
        if _forked_with_chats:
            raise LlbError(
                "ENGINE_CLOSED",
                "this process was forked from one that had chats open, whose engine it does not have; "
                "fork before the first chat is created, or start processes by `spawn`",
            )
        session = Session(library, listener)
        _start_reaper()
        _open.add(session)
        try:
            interruptible(lambda: session._create(options))
        except BaseException:
            later(session.abandon)
            raise
        return session

    def _create(self, options: bytes) -> None:
        handle = self.library.c.llb_chat_create_with(options, self.callback, None)
        # Of this thread, so asked for here.
        error = None if handle else error_from(self.library.last_error(), self.events)
        failure, self.failure = self.failure, None
        with self.turn:
            self.handle = handle or None
            self.created = True
            unwanted = self.abandoned or failure is not None
        if failure is not None:
            self.silent = True
        if error is not None or unwanted:
            self.destroy()
        if failure is not None:
            raise failure
        if error is not None:
            raise error

    def _receive(self, event: bytes, _user_data: Optional[int]) -> None:
        _this_thread.callbacks = getattr(_this_thread, "callbacks", 0) + 1
        try:
            text = event.decode("utf-8", "replace")
            if not self.created:
                self.events.append(text)
            on_event = None if self.silent or self.failure is not None else self.listener()
            if on_event is not None:
                on_event(text)
        except BaseException as error:
            self.failure = error
            for call in list(self.calls)[:1]:
                later(call.stop)
        finally:
            _this_thread.callbacks -= 1

    def cancel(self) -> None:
        """Ends the calls there are."""
        with self.turn:
            for call in self.calls:
                call.cancel()
                later(call.stop)

    def destroy(self) -> None:
        """Ends what runs and frees the chat. Returns when it is gone, whoever began it."""
        with self.turn:
            first = self.created and not self.gone.is_set() and self in _open
            handle, self.handle = self.handle, None
            if first:
                _open.discard(self)
                _closing.add(self)
            self.turn.notify_all()
        if not first:
            wait(self.gone)
            return
        try:
            if handle is not None:
                self.library.c.llb_chat_destroy(handle)
            # A call's last event may come after its turn in the library has ended, and with it the destroy.
            with self.turn:
                self.turn.wait_for(lambda: not self.calls)
        finally:
            self.callback = None
            _closing.discard(self)
            self.gone.set()
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure

    def abandon(self) -> None:
        """As `destroy`, for a chat nobody holds any more: nobody hears of events, and one in creation is freed
        when that ends."""
        self.silent = True
        with self.turn:
            self.abandoned = True
            created = self.created
        if created:
            self.destroy()

    def forget(self) -> None:
        """In a forked child: the chat belongs to the parent, and so may a lock that is held."""
        self.turn = threading.Condition()
        self.handle = None
        self.closed_because = "the chat belongs to the process this one was forked from"
        self.created = True
        self.gone = threading.Event()
        self.gone.set()
        for call in self.calls:
            call.forget()
        self.calls.clear()


class Call:
    """One request on a chat: waiting for its turn, in the library, or done. `TypeError` or `ValueError` for what JSON
    cannot hold."""

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
        # The library's clock starts when it has the request, the caller's starts here.
        timeout = request.get("timeout_ms")
        self.deadline: Optional[float] = None
        if isinstance(timeout, (int, float)) and timeout > 0:
            self.deadline = time.monotonic() + min(timeout / 1000, threading.TIMEOUT_MAX / 2)
        # Where a streaming call puts its pieces; None ends them.
        self.pieces = pieces
        self.cancelled = False
        self.queued = threading.Event()
        self.done = threading.Event()
        self.reply: Optional[Dict[str, Any]] = None
        self.failure: Optional[BaseException] = None

    def perform(self) -> Dict[str, Any]:
        """Waits for the turn, calls the library, answers its reply."""
        session = self.session
        try:
            handle = self._wait_turn()
            function = getattr(session.library.c, self.function)
            if self.pieces is None:
                string = function(handle, self.encoded)
            else:
                string = function(handle, self.encoded, TOKEN_CALLBACK(self._receive), None)
            reply = session.library.take(string)
            # Taken while it is still this call's turn: the failure is of its events, and explains its reply.
            failure, session.failure = session.failure, None
        finally:
            self._leave()
        if failure is not None:
            raise failure
        return unless_error(reply)

    def stream(self) -> None:
        """As `perform`, for a thread of its own: keeps the outcome and ends the pieces."""
        try:
            self.reply = self.perform()
        except BaseException as error:
            self.failure = error
        finally:
            if self.pieces is not None:
                self.pieces.put(None)

    def cancel(self) -> None:
        """Ends the call soon, without waiting for it. Without effect in the moment when the library has been called and
        has not begun: `stop` repeats it."""
        self.cancelled = True
        session = self.session
        with session.turn:
            if session.handle is not None and session.calls and session.calls[0] is self:
                session.library.c.llb_chat_cancel(session.handle)
            session.turn.notify_all()

    def stop(self) -> None:
        """Ends the call and waits for its end; in a callback, which that end waits for, only the first."""
        while not self.done.is_set():
            self.cancel()
            if in_callback():
                return
            self.done.wait(_CANCEL_SECONDS)

    def forget(self) -> None:
        """In a forked child: the thread that performs it is the parent's."""
        self.failure = LlbError("ENGINE_CLOSED", self.session.closed_because)
        self.done = threading.Event()
        self.done.set()
        if self.pieces is not None:
            self.pieces = SimpleQueue()
            self.pieces.put(None)

    def _wait_turn(self) -> int:
        session = self.session
        with session.turn:
            session.calls.append(self)
            self.queued.set()
            waited = session.calls[0] is not self
            session.turn.wait_for(
                lambda: self.cancelled or session.handle is None or session.calls[0] is self, self._seconds_left()
            )
            if session.handle is None:
                raise LlbError("ENGINE_CLOSED", session.closed_because)
            if self.cancelled:
                raise LlbError("CANCELLED", "cancelled before it began")
            if session.calls[0] is not self:
                raise LlbError("CANCELLED", "timeout_ms was over before it began")
            seconds = self._seconds_left()
            if waited and seconds is not None:
                self.encoded = encode({**self.request, "timeout_ms": max(1, int(seconds * 1000))})
            return session.handle

    def _seconds_left(self) -> Optional[float]:
        return None if self.deadline is None else max(0.0, self.deadline - time.monotonic())

    def _leave(self) -> None:
        session = self.session
        with session.turn:
            if self in session.calls:
                session.calls.remove(self)
            self.queued.set()
            self.done.set()
            session.turn.notify_all()

    def _receive(self, piece: bytes, _user_data: Optional[int]) -> None:
        # Nothing of the caller's runs here. An exception could only be of the interpreter's own making, such as
        # MemoryError; it ends the call like any other.
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


# Sessions the library may call back, held so that their callbacks live.
_open: Set[Session] = set()
_closing: Set[Session] = set()
_forked_with_chats = False

_reaper: Optional[threading.Thread] = None
_work: SimpleQueue[Callable[[], None]] = SimpleQueue()


def later(work: Callable[[], None]) -> None:
    """Runs `work` on a thread where blocking is safe. Can itself be called anywhere, also by a finalizer."""
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
            # Nobody waits for this work, and a message on stderr would help nobody.
            pass


def _close_all() -> None:
    """At exit: the library must not call back into an interpreter that is being taken down."""
    for session in [*_open, *_closing]:
        session.abandon()
        wait(session.gone)


def _after_fork_in_child() -> None:
    global _forked_with_chats, _reaper, _work
    for session in [*_open, *_closing]:
        _forked_with_chats = True
        session.forget()
    _open.clear()
    _closing.clear()
    _reaper = None
    _work = SimpleQueue()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
