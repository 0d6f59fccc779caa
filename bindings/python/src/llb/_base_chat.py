"""`BaseChat`: what `Chat` and `AsyncChat` share: their options and their session."""

from __future__ import annotations

import os
import weakref
from typing import Any, Callable, Optional, Union

from ._closing import when_collected
from ._library import encode
from ._progress import with_load_progress
from ._session import Session


class BaseChat:
    """The options of a chat of the library. A subclass opens it."""

    def __init__(
        self,
        path: Optional[Union[str, bytes, os.PathLike[Any]]] = None,
        *,
        on_event: Optional[Callable[[str], object]] = None,
        progress: bool = False,
        **options: Any,
    ) -> None:
        self._path = None if path is None else os.fsdecode(path)
        if progress:
            on_event = with_load_progress(os.path.basename(self._path or ""), on_event)
        self._on_event = on_event
        self._options = encode({"model": self._path, **options})

    @property
    def path(self) -> Optional[str]:
        """The path passed to the constructor, as text, or None."""
        return self._path

    @property
    def closed(self) -> bool:
        """Whether the chat is closed."""
        raise NotImplementedError

    def _start(self) -> Session:
        """Begins to create the chat of the library. It is freed when this object is collected."""
        this = weakref.ref(self)
        session = Session.start(self._options, lambda: getattr(this(), "_on_event", None))
        # At exit every chat is closed anyway, and waited for.
        when_collected(self, session.abandon)
        return session

    def __repr__(self) -> str:
        return f"<llb.{type(self).__name__} {self._path!r}{' closed' if self.closed else ''}>"
