"""What chats and models share with and without asyncio: their options, the pool of chats, and the
vocabulary of the model file."""

from __future__ import annotations

import os
from typing import (
    Any,
    Callable,
    Dict,
    Generic,
    Iterable,
    Mapping,
    Optional,
    Type,
    TypeVar,
    Union,
    cast,
)

from ._handle import BaseHandle
from ._html import model_table
from ._library import call
from ._pool import ChatPool
from ._progress import with_load_progress
from ._session import CHAT
from .types import Tokens


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


# The options of a chat that affect its prompts.
_PROMPT_OPTIONS = (
    "chat_template",
    "components",
    "media_folders",
    "media_limits",
    "media_urls",
    "polyfills",
    "projector",
    "template_limits",
)


class Vocabulary:
    """The vocabulary of a model file. `options` are those of the model's chats."""

    def __init__(self, path: str, options: Mapping[str, Any]) -> None:
        self._file = {"model_path": path, "isolation": options.get("isolation")}
        self._prompts = {name: options.get(name) for name in _PROMPT_OPTIONS}

    def tokenize(self, text: str, add_special: bool, parse_special: bool) -> Tokens:
        """See `Model.tokenize`."""
        request = {"text": text, "add_special": add_special, "parse_special": parse_special}
        return cast(Tokens, self._call("llb_tokenize", request))

    def detokenize(self, ids: Iterable[int], remove_special: bool, unparse_special: bool) -> str:
        """See `Model.detokenize`."""
        special = {"remove_special": remove_special, "unparse_special": unparse_special}
        reply = self._call("llb_detokenize", {"ids": list(ids), **special})
        return cast(str, reply["text"])

    def count(self, request: Mapping[str, Any]) -> int:
        """See `Model.count_tokens`."""
        given = {name: value for name, value in request.items() if value is not None}
        reply = self._call("llb_count", {**self._prompts, **given})
        return cast(int, reply["prompt_tokens"])

    def _call(self, function: str, request: Mapping[str, Any]) -> Dict[str, Any]:
        return call(function, {**request, **self._file})


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
