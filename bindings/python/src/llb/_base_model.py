"""`BaseModel`: the options and the pool of chats that `Model` and `AsyncModel` share."""

from __future__ import annotations

import os
from typing import Any, Callable, Dict, Generic, Optional, Type, TypeVar, Union

from ._base_chat import BaseChat
from ._html import model_table
from ._pool import ChatPool
from ._tokens import Vocabulary

C = TypeVar("C", bound=BaseChat)

# The library's default of `n_parallel`.
_PARALLEL = 4


class BaseModel(Generic[C]):
    """The options of the chats on one model, and their pool. A subclass sets their type."""

    _chat_type: Type[C]

    def __init__(
        self,
        path: Union[str, bytes, os.PathLike[Any]],
        *,
        max_chats: Optional[int] = None,
        on_event: Optional[Callable[[str], object]] = None,
        progress: bool = False,
        **options: Any,
    ) -> None:
        if max_chats is not None and max_chats < 1:
            raise ValueError("max_chats: must be at least 1")
        self._path = os.fsdecode(path)
        self._options: Dict[str, Any] = {"on_event": on_event, **options}
        self._vocabulary = Vocabulary(self._path, options)
        # The pool must not refer to this object, so that a dropped model is freed at once.
        path, options, chat_type = self._path, self._options, self._chat_type
        # The first chat loads the weights. They stay loaded as long as a chat exists.
        self._first = chat_type(path, progress=progress, **options)
        most: int = max_chats or options.get("n_parallel") or _PARALLEL
        self._pool = ChatPool(self._first, lambda: chat_type(path, **options), most)

    @property
    def path(self) -> str:
        """The path passed to the constructor, as text."""
        return self._path

    @property
    def closed(self) -> bool:
        """Whether the model is closed."""
        return self._pool.closed

    def chat(self, **options: Any) -> C:
        """Opens a chat on these weights, which the caller closes. It is not in the pool.

        `options` are those of `Chat`, and replace those of the model. Raises what the constructor
        of the chat raises.
        """
        return self._chat_type(self._path, **{**self._options, **options})

    def __repr__(self) -> str:
        return f"<llb.{type(self).__name__} {self._path!r}{' closed' if self.closed else ''}>"

    def _repr_html_(self) -> Optional[str]:
        """For notebooks: the capabilities of the model as a table."""
        return model_table(repr(self), self._path)
