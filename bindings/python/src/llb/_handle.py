"""Handles of the library: what `Chat`, `Embedder` and their asyncio counterparts share."""

from __future__ import annotations

import os
import re
import weakref
from typing import Any, Callable, Mapping, Optional, Union

from ._closing import Closing, when_collected
from ._errors import LlbError
from ._library import encode
from ._session import Kind, Session
from ._waiting import refuse_in_callback


class BaseHandle:
    """The options of a handle. A subclass names its kind and opens it."""

    _kind: Kind

    def __init__(
        self,
        path: Optional[Union[str, bytes, os.PathLike[Any]]],
        on_event: Optional[Callable[[str], object]],
        options: Mapping[str, Any],
    ) -> None:
        self._path = None if path is None else os.fsdecode(path)
        self._on_event = on_event
        self._options = encode({"model": self._path, **options})

    @property
    def path(self) -> Optional[str]:
        """The path passed to the constructor, as text, or None."""
        return self._path

    @property
    def closed(self) -> bool:
        """Whether `close` has been called, or the handle could not be opened."""
        raise NotImplementedError

    def _start(self) -> Session:
        """Starts creating the handle. It is freed when this object is garbage-collected.

        Raises LlbError for the id of a model of the hub.
        """
        _refuse_id(self._path)
        this = weakref.ref(self)
        listener = None if self._on_event is None else lambda: getattr(this(), "_on_event", None)
        session = Session.start(self._kind, self._options, listener)
        # At exit, every handle is closed and waited for anyway.
        when_collected(self, session.abandon)
        return session

    def __repr__(self) -> str:
        return f"<llb.{type(self).__name__} {self._path!r}{' closed' if self.closed else ''}>"


def _refuse_id(path: Optional[str]) -> None:
    """Says how to open a model of the hub, if the path is no file but looks like its id."""
    found = re.fullmatch(r"(?:hf:)?([\w.-]+/[\w.-]+(?::[\w.-]+)?)", path or "")
    if path is None or not found or path.endswith(".gguf") or os.path.exists(path):
        return
    id = found[1]
    raise LlbError(
        "MODEL_NOT_FOUND",
        f"model: {path}: no such file; for a model of the Hugging Face hub, use "
        f'llb.Chat.from_pretrained("{id}"), or the path llb.fetch("{id}")["path"]',
    )


class Handle(BaseHandle, Closing):
    """A handle whose calls block the calling thread."""

    _session: Session

    @property
    def closed(self) -> bool:
        """Whether `close` has been called."""
        return self._session.closed

    def cancel(self) -> None:
        """Cancels all calls.

        The running call of a chat returns its output so far, with `finish_reason` `cancelled`. All
        others raise `CANCELLED`. Does not wait. May be called from any thread, in callbacks, and in
        signal handlers.
        """
        self._session.cancel_all()

    def close(self) -> None:
        """Cancels the running call, waits for its end, and frees the handle.

        Idempotent. Afterwards other methods raise `ENGINE_CLOSED`. Raises `BUSY` in a callback, and
        what `on_event` raises. KeyboardInterrupt is raised at once; the handle is freed later.
        """
        refuse_in_callback(f"{type(self).__name__}.close")
        if not self._session.destroyed.done:
            self._session.close()

    def _open(self) -> None:
        self._session = self._start()
        self._session.wait_until_open()

    def _perform(self, function: str, request: Mapping[str, Any]) -> Any:
        refuse_in_callback(f"a call on a {self._kind.noun}")
        return self._session.perform(function, request)
