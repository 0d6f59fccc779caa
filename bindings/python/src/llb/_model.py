"""`Model`: the weights of a model, and a pool of chats that share them."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Iterable, Mapping, Optional, Sequence

from ._base_model import BaseModel
from ._chat import Chat
from ._closing import Closing
from ._model_info import memory_of, model_info
from ._parameters import build_request, takes_parameters
from ._requests import Requests
from ._stream import Stream
from .types import ContextOptions, Memory, Messages, ModelInfo, RequestParameters, Tokens, Tools

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Model(BaseModel[Chat], Requests, Closing):
    """The weights of a model in memory, until `close`. Use it as a context manager.

    `path`, `on_event`, `progress` and `options` are those of `Chat`. `create`, `explain`, `parse`
    and `run` work as on a `Chat`, but up to `max_chats` requests are decoded together, and a
    conversation continues where its prefix is in the KV cache. Each request runs on a chat from a
    pool: the one whose last conversation it continues, a new one, or the least recently used.
    `max_chats` is `n_parallel` (4).

    Raises what `Chat` raises. All methods may be called from any thread. A dropped model closes
    itself. A forked process cannot use the models of its parent (`ENGINE_CLOSED`).
    """

    _chat_type = Chat
    _info: Optional[ModelInfo] = None

    @property
    def info(self) -> ModelInfo:
        """The result of `model_info` for the file. Read once."""
        if self._info is None:
            self._info = model_info(self._path)
        return self._info

    def memory(self, *, contexts: Sequence[ContextOptions] = ()) -> Memory:
        """Returns what a chat with the options of this model takes in memory. See `llb.memory`."""
        return memory_of(self._path, self._options, contexts)

    def tokenize(
        self, text: str, *, add_special: bool = False, parse_special: bool = False
    ) -> Tokens:
        """Returns the tokens of a text: `{"n_tokens", "ids", "tokens": [{"id", "text", ...}]}`.

        `add_special` adds the tokens that the vocabulary puts around a text, such as BOS. With
        `parse_special` the text may spell control tokens, such as `<|im_end|>`. A token that ends
        inside a character has `bytes`.

        The first call reads the vocabulary, which takes up to some seconds; it is kept for a
        minute. Raises LlbError with `MODEL_NOT_FOUND`, `MODEL_INVALID` or `CONTEXT_OVERFLOW`.
        """
        return self._vocabulary.tokenize(text, add_special, parse_special)

    def detokenize(
        self, ids: Iterable[int], *, remove_special: bool = False, unparse_special: bool = True
    ) -> str:
        """Returns the text of tokens. Bytes that are not UTF-8 become U+FFFD.

        `remove_special` omits BOS and EOS at the ends, if the vocabulary adds them. With
        `unparse_special=False` control tokens are omitted. Raises LlbError with `INVALID_REQUEST`
        for an id that the vocabulary does not have, and what `tokenize` raises.
        """
        return self._vocabulary.detokenize(ids, remove_special, unparse_special)

    @takes_parameters
    def count_tokens(
        self,
        messages: Messages,
        tools: Optional[Tools] = None,
        *,
        extra_body: Optional[Mapping[str, Any]] = None,
        **parameters: Unpack[RequestParameters],
    ) -> int:
        """Returns the number of tokens of the prompt that `create` would make of this request.

        It is `usage["prompt_tokens"]` of the reply. No chat is used. Raises what `tokenize` raises,
        and LlbError with `INVALID_REQUEST`, `TEMPLATE_ERROR` or `TEMPLATE_LIMIT`.
        """
        request = build_request(self, "count_tokens", messages, tools, extra_body, parameters)
        return self._vocabulary.count(request)

    def close(self) -> None:
        """Cancels the running requests of the pool and frees its chats. Idempotent.

        The weights are freed with the last chat, including chats opened with `chat`. Raises what
        `Chat.close` raises, after all are closed.
        """
        with ExitStack() as closing:
            for chat in self._pool.close():
                closing.callback(chat.close)

    def _perform(self, function: str, request: Mapping[str, Any]) -> Any:
        pooled = self._pool.take(request.get("messages"))
        reply: Any = {}
        try:
            reply = pooled.chat._perform(function, request)  # pyright: ignore[reportPrivateUsage]
            return reply
        finally:
            self._pool.give_back(pooled, reply.get("message"))

    def _stream(self, request: Mapping[str, Any]) -> Stream:
        pool = self._pool
        pooled = pool.take(request.get("messages"))
        try:
            stream = pooled.chat._stream(request)  # pyright: ignore[reportPrivateUsage]
        except BaseException:
            pool.give_back(pooled)
            raise
        pool.give_back_after(stream, pooled)
        return stream
