"""Handles of the library. Each has one thread, which creates it, runs its calls, and frees it.

Nothing here refers to a `Chat`, an `Embedder` or a `Stream`. These may be garbage-collected while
the library works, and collecting them cancels the work.

Three rules keep this safe:

- Python code called by the library never runs on the main thread, where a signal handler could
  raise at any point. Its exceptions never cross a C frame: they are stored, the work is cancelled,
  and the waiting caller raises them.
- Calls on one handle are queued here, so that a cancel can only affect the intended call.
- Finalizers may run at any point of any thread, so they take no lock.
"""

from __future__ import annotations

import atexit
import os
import threading
from queue import SimpleQueue
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Set

from ._call import Call
from ._errors import LlbError, error_from
from ._library import EVENT_CALLBACK, TOKEN_CALLBACK, Library, load
from ._log import is_log, log_event
from ._outcome import Outcome
from ._waiting import (
    POLL_SECONDS,
    CallbackScope,
    in_callback,
    refuse_in_callback,
    wait,
    wait_for_end,
)

OnEvent = Callable[[str], object]


class Kind(NamedTuple):
    """A type of handle: its name in messages, and the functions of the library."""

    noun: str
    create: str
    cancel: str
    destroy: str
    has_events: bool


CHAT = Kind("chat", "llb_chat_create_with", "llb_chat_cancel", "llb_chat_destroy", True)
EMBEDDER = Kind("embedder", "llb_embed_create", "llb_embed_cancel", "llb_embed_destroy", False)


class Session:
    """One handle of the library, from before its creation until after its destruction."""

    def __init__(
        self,
        library: Library,
        kind: Kind,
        options: bytes,
        listener: Optional[Callable[[], Optional[OnEvent]]],
    ) -> None:
        self.library = library
        self.kind = kind
        self.options = options
        # Returns the caller's `on_event` while the `Chat` exists. The function often refers to the
        # chat, so holding it here would prevent the chat's collection. None if there is no
        # `on_event`.
        self.listener = listener
        self.muted = False
        self.handle: Optional[int] = None
        self.closed_reason = f"the {kind.noun} is closed"
        # The events of the creation, for the error if it fails.
        self.events: List[str] = []
        # The exception that `on_event` raised. The work that was running then ends with it.
        self.failure: Optional[BaseException] = None
        # Guards `running`, `waiting` and `closing`. Reentrant, because a signal handler may cancel.
        self.lock = threading.RLock()
        self.running: Optional[Call] = None
        self.waiting: List[Call] = []
        self.closing = False
        # Wakes the thread. None means that it should check `closing`, or that a call arrives soon.
        self.inbox: SimpleQueue[Optional[Call]] = SimpleQueue()
        self.opened: Outcome[None] = Outcome()
        self.destroyed: Outcome[None] = Outcome()
        self.thread = threading.Thread(target=self._run, name=f"llb-{kind.noun}", daemon=True)
        # Must live as long as the library may call them.
        self.callbacks: Any = (
            EVENT_CALLBACK(self._receive_event),
            TOKEN_CALLBACK(self._receive_piece),
        )

    @staticmethod
    def start(
        kind: Kind, options: bytes, listener: Optional[Callable[[], Optional[OnEvent]]]
    ) -> Session:
        """Starts creating the handle. `opened` ends when it has been created."""
        refuse_in_callback(f"the creation of a {kind.noun}")
        session = Session(load(), kind, options, listener)
        _sessions.add(session)
        try:
            session.thread.start()
        except BaseException:
            _sessions.discard(session)
            raise
        return session

    def wait_until_open(self) -> None:
        """Waits for the creation. An interrupt is raised at once; the handle is freed later."""
        try:
            wait(self.opened)
        except BaseException:
            self.abandon()
            raise

    @property
    def closed(self) -> bool:
        """Whether no more calls are accepted."""
        return self.closing or self.destroyed.done

    def submit(self, call: Call) -> None:
        """Queues a call. If the session is closed, the call fails with `ENGINE_CLOSED`."""
        with self.lock:
            if not (self.closing or self.destroyed.done):
                call.waited = self.running is not None or bool(self.waiting)
                self.waiting.append(call)
                self.inbox.put(call)
                return
        call.fail(LlbError("ENGINE_CLOSED", self.closed_reason))

    def perform(self, function: str, request: Mapping[str, Any]) -> Any:
        """Queues a request with a function of the library, and waits for its reply.

        Raises TypeError or ValueError if the request cannot be encoded as JSON.
        """
        # The thread wakes up while the request is being encoded here.
        self.inbox.put(None)
        call = Call(function, request)
        try:
            self.submit(call)
            return self.wait(call)
        finally:
            # As in `Outcome.result`.
            del call

    def wait(self, call: Call) -> Any:
        """Waits for a call to end. An interrupt cancels it, and is raised when it has ended."""
        try:
            while not call.outcome.join(POLL_SECONDS):
                self.expire(call)
            return call.outcome.result()
        except BaseException:
            self.stop(call)
            raise
        finally:
            # As in `Outcome.result`.
            del call

    def cancel(self, call: Call) -> None:
        """Cancels a call without waiting for its end."""
        self._end_waiting(call, "the call was cancelled before it started")

    def expire(self, call: Call) -> None:
        """Ends a call that still waits after its `timeout_ms`. The library ends running ones."""
        if call.expired() and self.running is not call:
            self._end_waiting(call, "timeout_ms expired before the call started")

    def _end_waiting(self, call: Call, reason: str) -> None:
        with self.lock:
            if call in self.waiting:
                self.waiting.remove(call)
            else:
                call.cancelled = True
                if self.running is call:
                    self._cancel_handle()
                return
        call.fail(LlbError("CANCELLED", reason))

    def cancel_all(self) -> None:
        """Cancels the running call and all waiting ones."""
        with self.lock:
            calls = [*self.waiting, *filter(None, [self.running])]
        for call in calls:
            self.cancel(call)

    def end_reasoning(self) -> None:
        """Ends the reasoning of the running call's reply. Only for chats."""
        with self.lock:
            if self.running is not None and self.handle is not None:
                self.library.c.llb_chat_end_reasoning(self.handle)

    def stop(self, call: Call) -> None:
        """Cancels a call and waits for its end. In a callback it does not wait.

        Waiting there would deadlock, because the call waits for the callback.
        """
        if in_callback():
            self.cancel(call)
        else:
            wait_for_end(call.outcome, lambda: self.cancel(call))

    def close(self) -> None:
        """Cancels all calls, frees the handle, and returns when its thread has ended."""
        self.begin_close()
        try:
            wait(self.destroyed, self._cancel_running)
        finally:
            if self.destroyed.done:
                self.thread.join()

    def begin_close(self) -> None:
        """Cancels all calls and frees the handle, without waiting."""
        with self.lock:
            self.closing = True
        self._cancel_running()
        self.inbox.put(None)

    def _cancel_running(self) -> None:
        with self.lock:
            if self.running is not None:
                self.running.cancelled = True
                self._cancel_handle()

    def _cancel_handle(self) -> None:
        handle = self.handle
        if handle is not None:
            getattr(self.library.c, self.kind.cancel)(handle)

    def abandon(self) -> None:
        """Frees a handle without users, in the background. No more events are delivered.

        May be called anywhere, including finalizers. A handle that is still being created is freed
        when the creation ends.
        """
        self.muted = True
        self.closing = True
        self._cancel_handle()
        self.inbox.put(None)

    def invalidate(self) -> None:
        """Runs in a forked child: the thread, and possibly a held lock, belong to the parent."""
        self.closed_reason = f"the {self.kind.noun} belongs to the parent of this forked process"
        closed = LlbError("ENGINE_CLOSED", self.closed_reason)
        for call in [*self.waiting, *filter(None, [self.running])]:
            call.invalidate(self.closed_reason)
        self.lock = threading.RLock()
        self.handle = None
        self.running = None
        self.waiting.clear()
        self.closing = True
        self.inbox = SimpleQueue()
        if not self.opened.done:
            self.opened = Outcome()
            self.opened.fail(closed)
        self.destroyed = Outcome()
        self.destroyed.succeed(None)

    # The thread of the handle.

    def _run(self) -> None:
        try:
            error = self._create()
        except BaseException as raised:
            error = raised
        if error is None:
            self.opened.succeed(None)
            while not self.closing:
                call = self.inbox.get()
                if call is not None:
                    self._perform(call)
                # The call's failure refers to the caller's objects.
                del call
        with self.lock:
            self.closing = True
            left, self.waiting = self.waiting, []
        for call in left:
            call.fail(LlbError("ENGINE_CLOSED", self.closed_reason))
        self._destroy()
        if error is not None:
            self.opened.fail(error)

    def _create(self) -> Optional[BaseException]:
        library = self.library
        events = (self.callbacks[0], None) if self.kind.has_events else ()
        self.handle = getattr(library.c, self.kind.create)(self.options, *events) or None
        # The last error is stored per thread, so it is read on this thread.
        error = None if self.handle else error_from(library.last_error(), self.events)
        failure, self.failure = self.failure, None
        if failure is not None:
            self.muted = True
        return failure or error

    def _perform(self, call: Call) -> None:
        with self.lock:
            if call not in self.waiting or self.closing:
                return
            if call.cancelled:
                self.cancel(call)
                return
            if call.deadline is not None and call.expired():
                self.expire(call)
                return
            self.waiting.remove(call)
            self.running = call
        reply: Optional[Dict[str, Any]] = None
        error: Optional[BaseException] = None
        try:
            function = getattr(self.library.c, call.function)
            if call.pieces is None:
                string = function(self.handle, call.json())
            else:
                string = function(self.handle, call.json(), self.callbacks[1], None)
            call.outcome.announce()
            reply = self.library.reply(string)
        except BaseException as raised:
            error = raised
        with self.lock:
            self.running = None
        failure, self.failure = self.failure, None
        if failure is not None or reply is None:
            call.fail(failure or error or LlbError("INTERNAL_BRIDGE_ERROR", "no reply"))
        else:
            call.succeed(reply)
        # As in `Outcome.result`.
        del call, error, failure

    def _destroy(self) -> None:
        handle, self.handle = self.handle, None
        if handle is not None:
            getattr(self.library.c, self.kind.destroy)(handle)
        self.callbacks = None
        _sessions.discard(self)
        failure, self.failure = self.failure, None
        if failure is not None:
            self.destroyed.fail(failure)
        else:
            self.destroyed.succeed(None)

    def _receive_event(self, event: bytes, _user_data: Optional[int]) -> None:
        # Every call has events, and most programs need none of them.
        if self.listener is not None or not self.opened.done or is_log(event):
            try:
                self._report(event.decode("utf-8", "replace"))
            except BaseException as error:
                self.failure = error
        self._cancel_if_due()

    def _report(self, event: str) -> None:
        if not self.opened.done:
            self.events.append(event)
        if self.muted or self.failure is not None:
            return
        on_event = self.listener() if self.listener is not None else None
        with CallbackScope():
            log_event(event)
            if on_event is not None:
                on_event(event)

    def _receive_piece(self, piece: bytes, _user_data: Optional[int]) -> None:
        # No code of the caller runs here. Any exception comes from the interpreter, such as
        # MemoryError, and cancels the call.
        try:
            if self.running is not None:
                self.running.receive(piece)
        except BaseException as error:
            self.failure = error
        self._cancel_if_due()

    def _cancel_if_due(self) -> None:
        # A cancel has no effect if it arrives before the library has started the call.
        call = self.running
        if call is not None and (call.cancelled or self.closing or self.failure is not None):
            self._cancel_handle()


# Sessions that the library may call back. The set keeps their callbacks alive.
_sessions: Set[Session] = set()


def _close_all() -> None:
    """Runs at exit, because the library must not call back into an interpreter that shuts down."""
    for session in list(_sessions):
        session.abandon()
        wait_for_end(session.destroyed, session.abandon)


def _after_fork_in_child() -> None:
    for session in list(_sessions):
        session.invalidate()
    _sessions.clear()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
