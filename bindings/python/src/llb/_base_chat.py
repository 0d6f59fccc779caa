"""`BaseChat`: the options that `Chat` and `AsyncChat` share."""

from __future__ import annotations

import os
from typing import Any, Callable, Optional, Union

from ._handle import BaseHandle
from ._html import model_table
from ._progress import with_load_progress
from ._session import CHAT


class BaseChat(BaseHandle):
    """The options of a chat of the library. A subclass opens it."""

    _kind = CHAT

    def __init__(
        self,
        path: Optional[Union[str, bytes, os.PathLike[Any]]] = None,
        *,
        on_event: Optional[Callable[[str], object]] = None,
        progress: bool = False,
        **options: Any,
    ) -> None:
        if progress:
            name = os.path.basename("" if path is None else os.fsdecode(path))
            on_event = with_load_progress(name, on_event)
        super().__init__(path, on_event, options)

    def _repr_html_(self) -> Optional[str]:
        """For notebooks: the capabilities of the model as a table. None without a file."""
        return model_table(repr(self), self._path)
