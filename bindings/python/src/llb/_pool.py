"""`ChatPool`: the chats of a model, each with the conversation in its KV cache."""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any, Callable, Generic, List, Optional, Sequence, TypeVar, cast

from ._base_stream import BaseStream
from ._errors import LlbError

# The type of the chats.
C = TypeVar("C")


class PooledChat(Generic[C]):
    """A chat of a pool. `messages` are its last conversation, including the reply."""

    def __init__(self, chat: C) -> None:
        self.chat = chat
        self.messages: Sequence[Any] = ()
        # The number of calls that are waiting or running.
        self.calls = 0


class ChatPool(Generic[C]):
    """Up to `most` chats: `first`, and those that `open_chat` opens when needed. Any thread.

    A request goes to the chat whose conversation it continues. Any other request gets a new chat.
    If there are already `most`, it gets the idle chat with the longest common prefix, or among
    equals the least recently used. If all are busy, it waits for the chat with the fewest calls.
    """

    def __init__(self, first: C, open_chat: Callable[[], C], most: int) -> None:
        self._open_chat = open_chat
        self._most = most
        # The least recently used chat is first.
        self._chats = [PooledChat(first)]
        self.closed = False
        # Guards all of the above. Reentrant, because a signal handler may make a request.
        self._lock = threading.RLock()
        _pools.add(self)

    def __len__(self) -> int:
        return len(self._chats)

    def take(self, messages: Any) -> PooledChat[C]:
        """Chooses a chat for a request. `give_back` ends the request.

        Raises LlbError with `ENGINE_CLOSED` after `close`, and what `open_chat` raises.
        """
        conversation = cast(Sequence[Any], messages) if isinstance(messages, (list, tuple)) else ()
        with self._lock:
            self.refuse_if_closed()
            chosen = self._choose(conversation)
            if chosen is None:
                chosen = PooledChat(self._open_chat())
            else:
                self._chats.remove(chosen)
            self._chats.append(chosen)
            chosen.messages = list(conversation)
            chosen.calls += 1
            return chosen

    def give_back(self, chosen: PooledChat[C], reply: Optional[Any] = None) -> None:
        """Ends a request. `reply` is its assistant message, if it has one."""
        with self._lock:
            chosen.calls -= 1
            if reply is not None and not chosen.calls:
                chosen.messages = [*chosen.messages, reply]

    def give_back_after(self, stream: BaseStream, chosen: PooledChat[C]) -> None:
        """Ends a request when its stream has ended."""
        stream.when_done(lambda reply: self.give_back(chosen, reply["message"] if reply else None))

    def remove(self, chosen: PooledChat[C]) -> None:
        """Removes a chat that could not be opened from the pool."""
        with self._lock:
            if chosen in self._chats:
                self._chats.remove(chosen)

    def refuse_if_closed(self) -> None:
        """Raises LlbError with `ENGINE_CLOSED` after `close`."""
        if self.closed:
            raise LlbError("ENGINE_CLOSED", "the model is closed, or the parent process has it")

    def close(self) -> List[C]:
        """Returns all chats, for the caller to close. Idempotent."""
        with self._lock:
            self.closed = True
            chats, self._chats = self._chats, []
            return [each.chat for each in chats]

    def _choose(self, conversation: Sequence[Any]) -> Optional[PooledChat[C]]:
        """Returns None if a new chat should be opened."""
        idle = [each for each in self._chats if not each.calls]
        # `max` returns the first of several maxima, which is the least recently used chat.
        fitting = max(idle, key=lambda each: common(each.messages, conversation), default=None)
        if fitting is not None and common(fitting.messages, conversation) == len(fitting.messages):
            return fitting
        if len(self._chats) < self._most:
            return None
        return fitting or min(self._chats, key=lambda each: each.calls)

    def after_fork_in_child(self) -> None:
        """Closes the pool: its chats belong to the parent, and its lock may have been held."""
        self._lock = threading.RLock()
        self.closed = True
        self._chats = []


def common(a: Sequence[Any], b: Sequence[Any]) -> int:
    """The number of equal messages at the beginning of two conversations."""
    length = 0
    for one, other in zip(a, b):
        if one != other:
            break
        length += 1
    return length


_pools: weakref.WeakSet[ChatPool[Any]] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for pool in list(_pools):
        pool.after_fork_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
