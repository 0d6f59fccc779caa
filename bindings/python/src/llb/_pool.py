"""`ChatPool`: the chats of a model, each with the conversation that its KV cache has."""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any, Callable, Optional, Sequence, cast

from ._chat import Chat
from ._errors import LlbError


class PooledChat:
    """A chat of a pool. `messages` are the last conversation on it, with the reply."""

    def __init__(self, chat: Chat) -> None:
        self.chat = chat
        self.messages: Sequence[Any] = ()
        # Calls that wait or run.
        self.calls = 0


class ChatPool:
    """Up to `most` chats: `first`, and those that `open_chat` opens when needed. Any thread.

    A request goes to the chat whose conversation it continues. Another request gets a new chat, or,
    if there are `most`, the one of the idle chats with the longest common prefix, of equal ones the
    least recently used. If all are busy, it waits for the chat with the fewest calls.
    """

    def __init__(self, first: Chat, open_chat: Callable[[], Chat], most: int) -> None:
        self._open_chat = open_chat
        self._most = most
        # The least recently used one is first.
        self._chats = [PooledChat(first)]
        self.closed = False
        # Guards all of the above. Reentrant: a signal handler may make a request.
        self._lock = threading.RLock()
        _pools.add(self)

    def __len__(self) -> int:
        return len(self._chats)

    def take(self, messages: Any) -> PooledChat:
        """Chooses a chat for a request. `give_back` ends the request.

        Raises LlbError with `ENGINE_CLOSED` after `close`, and what `open_chat` raises.
        """
        conversation = cast(Sequence[Any], messages) if isinstance(messages, (list, tuple)) else ()
        with self._lock:
            if self.closed:
                raise LlbError("ENGINE_CLOSED", "the model is closed, or the parent process has it")
            chosen = self._choose(conversation)
            if chosen is None:
                chosen = PooledChat(self._open_chat())
            else:
                self._chats.remove(chosen)
            self._chats.append(chosen)
            chosen.messages = list(conversation)
            chosen.calls += 1
            return chosen

    def give_back(self, chosen: PooledChat, reply: Optional[Any] = None) -> None:
        """Ends a request. `reply` is its assistant message, if it has one."""
        with self._lock:
            chosen.calls -= 1
            if reply is not None and not chosen.calls:
                chosen.messages = [*chosen.messages, reply]

    def close(self) -> None:
        """Closes all chats, as `Chat.close`. Idempotent."""
        with self._lock:
            self.closed = True
            chats, self._chats = self._chats, []
        for each in chats:
            each.chat.close()

    def _choose(self, conversation: Sequence[Any]) -> Optional[PooledChat]:
        """Returns None for a new chat."""
        idle = [each for each in self._chats if not each.calls]
        # `max` returns the first of equal ones, which is the least recently used.
        fitting = max(idle, key=lambda each: common(each.messages, conversation), default=None)
        if fitting is not None and common(fitting.messages, conversation) == len(fitting.messages):
            return fitting
        if len(self._chats) < self._most:
            return None
        return fitting or min(self._chats, key=lambda each: each.calls)

    def after_fork_in_child(self) -> None:
        """Closes the pool: its chats are the parent's. Another thread may have held the lock."""
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


_pools: weakref.WeakSet[ChatPool] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for pool in list(_pools):
        pool.after_fork_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
