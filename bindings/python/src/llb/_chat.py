"""`Chat`: requests to one model, with OpenAI's names and shapes."""

from __future__ import annotations

import os
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Literal,
    Mapping,
    Optional,
    Sequence,
    Type,
    TypeVar,
    Union,
    cast,
    overload,
)

from ._base_chat import BaseChat
from ._call import Call, stream_call
from ._closing import Closing
from ._errors import LlbError
from ._fetch import OnProgress, fetch
from ._html import info_table
from ._model import model_info
from ._parameters import build_request, takes_parameters
from ._parse import parsed, with_format
from ._run import Conversation, Run, perform_all
from ._stream import Stream
from ._waiting import refuse_in_callback
from .types import Explanation, Messages, Reply, RequestParameters, Tools

if TYPE_CHECKING:
    from typing_extensions import Unpack

T = TypeVar("T")


class Chat(BaseChat, Closing):
    """A chat on one model. Use it as a context manager or call `close`. A dropped chat closes
    itself.

    `path` is a GGUF file. `Chat` refuses a model whose template does not support tools, before it
    reads any weight; `tool_policy="any"` accepts every model. `options` are those of the library:
    `n_ctx` (tokens), `n_parallel`, `n_batch`, `n_threads`, `n_gpu_layers`, `flash_attn`,
    `cache_type_k`, `cache_type_v`, `use_mmap`, `use_mlock`, `chat_template`, `components`,
    `tool_policy`, `defaults` (a dict of sampling members and `max_tokens`, for requests that leave
    them out), `engine`, `log` and others. An unknown option is an error. With `engine` (a server
    generates the replies) and a template, `path` may be omitted.

    `on_event` is called with each event (`create_start`, `load_progress:0.50`, ..., `destroy`) on a
    thread other than the main thread. If it raises, the running call is cancelled and raises that
    exception. It may call only `cancel`, `version`, `abi_version` and the `template_*` functions;
    all others raise `BUSY`. `progress` shows the load on stderr, by tqdm if it is installed, on a
    terminal or in a notebook. With `log="warn"` (or "error", "info", "debug"), the library's log
    also goes to the logger `llb` of `logging`.

    Raises ToolsUnsupported, or LlbError with `MODEL_NOT_FOUND`, `MODEL_INVALID`, `TEMPLATE_ERROR`,
    `INVALID_REQUEST`, `OUT_OF_MEMORY` and others. The error's `events` are the events so far.
    Raises TypeError or ValueError if the options cannot be encoded as JSON. KeyboardInterrupt is
    raised at once; the memory is freed when the load has ended.

    All methods may be called from any thread. Calls on one chat run one at a time, in order of
    arrival. A forked process cannot use the chats of its parent (`ENGINE_CLOSED`), but can open its
    own.
    """

    def __init__(
        self,
        path: Optional[Union[str, bytes, os.PathLike[Any]]] = None,
        *,
        on_event: Optional[Callable[[str], object]] = None,
        progress: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(path, on_event=on_event, progress=progress, **options)
        self._session = self._start()
        self._session.wait_until_open()

    @classmethod
    def from_pretrained(
        cls,
        id: str,
        *,
        filename: Optional[str] = None,
        revision: Optional[str] = None,
        cache_dir: Optional[Union[str, os.PathLike[Any]]] = None,
        offline: Optional[bool] = None,
        on_progress: Optional[OnProgress] = None,
        on_event: Optional[Callable[[str], object]] = None,
        progress: bool = False,
        **options: Any,
    ) -> Chat:
        """Opens a chat on a model of the Hugging Face hub, and downloads it if it is not cached.

        `id` is `"org/name"` or `"org/name:Q8_0"`. `filename`, `revision`, `cache_dir`, `offline`
        and `on_progress` are arguments of `fetch`, `progress` is one of both, the others are those
        of `Chat`. A model that `Chat` would refuse is not downloaded.

        Raises what `fetch` and `Chat` raise.
        """
        # An explicit template or tool policy overrides the tool-capability check of the file.
        templates = ("chat_template", "components")
        own_template = any(options.get(name) is not None for name in templates)
        lenient = own_template or options.get("tool_policy") not in (None, "native")
        fetched = fetch(
            id,
            filename=filename,
            revision=revision,
            cache_dir=cache_dir,
            offline=offline,
            require_tools=not lenient,
            on_progress=on_progress,
            progress=progress,
        )
        return cls(fetched["path"], on_event=on_event, progress=progress, **options)

    @property
    def closed(self) -> bool:
        """Whether the chat is closed."""
        return self._session.closed

    @overload
    def create(
        self,
        messages: Messages,
        tools: Optional[Tools] = None,
        stream: Literal[False] = False,
        *,
        extra_body: Optional[Mapping[str, Any]] = None,
        **parameters: Unpack[RequestParameters],
    ) -> Reply: ...
    @overload
    def create(
        self,
        messages: Messages,
        tools: Optional[Tools] = None,
        *,
        stream: Literal[True],
        extra_body: Optional[Mapping[str, Any]] = None,
        **parameters: Unpack[RequestParameters],
    ) -> Stream: ...
    @overload
    def create(
        self,
        messages: Messages,
        tools: Optional[Tools] = None,
        stream: bool = False,
        *,
        extra_body: Optional[Mapping[str, Any]] = None,
        **parameters: Unpack[RequestParameters],
    ) -> Union[Reply, Stream]: ...
    @takes_parameters
    def create(
        self,
        messages: Messages,
        tools: Optional[Tools] = None,
        stream: bool = False,
        *,
        extra_body: Optional[Mapping[str, Any]] = None,
        **parameters: Unpack[RequestParameters],
    ) -> Union[Reply, Stream]:
        """Generates the reply to `messages`, as OpenAI's chat completions do.

        The parameters have OpenAI's names where OpenAI defines them. None counts as absent. An
        unknown name raises TypeError. `extra_body` has members that a newer library knows; those
        that it does not know are listed in `ignored_keys` of the reply.

        Without `stream`, returns `{"type": "assistant_text" or "tool_call", "text",
        "reasoning_content", "tool_calls": [{"id", "name", "arguments"}], "finish_reason",
        "message", "usage", "timings", "logprobs", "polyfills_applied", "diagnostics"}`. `arguments`
        is JSON text. `message` is an OpenAI assistant message and can be appended to `messages`
        unchanged. `usage` counts tokens; `timings` has milliseconds, tokens per second, and the
        mean number of threads (`threads`).
        KeyboardInterrupt cancels the generation and is raised when it has ended.

        With `stream=True`, returns a `Stream` of chunks.

        Raises LlbError with `INVALID_REQUEST` and the JSON path of the field, `CONTEXT_OVERFLOW`,
        `TEMPLATE_ERROR`, `SCHEMA_UNSUPPORTED`, `CANCELLED`, `ENGINE_CLOSED` after `close`, `BUSY`
        in a callback, and others. Raises TypeError or ValueError if the request cannot be encoded
        as JSON.
        """
        request = build_request("Chat.create", messages, tools, extra_body, parameters)
        if stream:
            refuse_in_callback("Chat.create")
            return Stream(self, self._session, stream_call(request))
        return cast(Reply, self._perform("llb_chat_infer", request))

    @takes_parameters
    def explain(
        self,
        messages: Messages,
        tools: Optional[Tools] = None,
        *,
        extra_body: Optional[Mapping[str, Any]] = None,
        **parameters: Unpack[RequestParameters],
    ) -> Explanation:
        """Describes what `create` would do with this request, without generating a token.

        Returns `{"type": "explanation", "prompt", "prompt_tokens", "spans", "special_tokens",
        "polyfills_applied", "caps_used", "grammar", "output_format", "stop", "tokens_left",
        "cached_tokens", ...}`. Offsets in `spans` are UTF-8 byte offsets into `prompt`. Takes its
        turn among the calls on the chat. Raises what `create` raises.
        """
        request = build_request("Chat.explain", messages, tools, extra_body, parameters)
        return cast(Explanation, self._perform("llb_chat_explain", request))

    @takes_parameters
    def parse(
        self,
        messages: Messages,
        reply_type: Type[T],
        *,
        extra_body: Optional[Mapping[str, Any]] = None,
        **parameters: Unpack[RequestParameters],
    ) -> T:
        """Generates a reply as JSON of a type, and returns a value of the type.

        `reply_type` is a dataclass, a TypedDict, a NamedTuple, a pydantic model, a msgspec struct,
        or any type made of these and of scalars, enums, lists and dicts. Its JSON Schema constrains
        the reply, and the value is validated.

        Raises what `create` raises, ReplyTruncated for a reply that was cut off, ReplyRefused for
        text that is not JSON, ReplyInvalid for JSON that does not fit, and TypeError for a type
        that JSON cannot represent.
        """
        typed = with_format(parameters, reply_type)
        request = build_request("Chat.parse", messages, None, extra_body, typed)
        return parsed(self._perform("llb_chat_infer", request), reply_type)

    @takes_parameters
    def run(
        self,
        messages: Messages,
        tools: Sequence[Callable[..., Any]],
        *,
        max_rounds: int = 10,
        extra_body: Optional[Mapping[str, Any]] = None,
        **parameters: Unpack[RequestParameters],
    ) -> Run:
        """Lets the model call functions until it answers with text.

        Each function becomes a tool by its signature and docstring; its parameters need type
        annotations. The calls of one reply run at the same time, each on a thread; coroutine
        functions run in an event loop there. The model reads a result as text or JSON. An
        exception is a result too: `{"error": "ValueError: ..."}`.

        `max_rounds` is the most requests. A forced `tool_choice` holds for the first one. Returns
        the last reply and the whole conversation: `reply, messages = chat.run(...)`.

        Raises what `create` raises, TooManyRounds, and TypeError for a function that cannot be a
        tool.
        """
        conversation = Conversation("Chat.run", messages, tools, max_rounds, extra_body, parameters)
        while True:
            reply: Reply = self._perform("llb_chat_infer", conversation.request())
            calls = conversation.take(reply)
            if not calls:
                return Run(reply, conversation.messages)
            conversation.answer(calls, perform_all(calls))

    def cancel(self) -> None:
        """Cancels all calls on this chat.

        The running call returns its output so far, with `finish_reason` `cancelled`. Waiting calls
        raise `CANCELLED`. Does not wait. May be called from any thread, in callbacks, and in signal
        handlers.
        """
        self._session.cancel_all()

    def close(self) -> None:
        """Cancels the running call, waits for its end, and frees the chat.

        Idempotent. Afterwards other methods raise `ENGINE_CLOSED`. Raises `BUSY` in a callback, and
        what `on_event` raises. KeyboardInterrupt is raised at once; the chat is freed later.
        """
        refuse_in_callback("Chat.close")
        if not self._session.destroyed.done:
            self._session.close()

    def _perform(self, function: str, request: Mapping[str, Any]) -> Any:
        refuse_in_callback("a call on a chat")
        call = Call(function, request)
        try:
            self._session.submit(call)
            return self._session.wait(call)
        finally:
            # As in `Outcome.result`.
            del call

    def _repr_html_(self) -> Optional[str]:
        """What notebooks show: the capabilities of the model as a table. None without a file."""
        if self._path is None:
            return None
        try:
            return info_table(repr(self), model_info(self._path))
        except LlbError:
            # The file is gone. Notebooks then show `repr`.
            return None
