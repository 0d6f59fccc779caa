"""A chat on one model: requests in OpenAI's names in, replies or chunks out."""

from __future__ import annotations

import os
import weakref
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Callable, Dict, Literal, Mapping, Optional, Sequence, Type, Union, overload

from ._fetch import OnProgress, fetch
from ._library import encode
from ._session import Call, Session, interruptible, later, refuse_in_callback
from ._stream import Stream

Messages = Sequence[Mapping[str, Any]]
Tools = Sequence[Mapping[str, Any]]


class Chat:
    """A model, loaded to chat with. Use it as a context manager, or `close` it; a dropped chat closes itself.

    `path` is a GGUF file. Its header must say that it carries tools and tool calls, unless `tool_policy` is `"any"`;
    that is decided before a weight is read. The `options` are the library's: `n_ctx`, `n_parallel`, `n_batch`, `n_threads`,
    `n_gpu_layers`, `flash_attn`, `cache_type_k`, `cache_type_v`, `use_mmap`, `use_mlock`, `chat_template`, `components`,
    `log` and whatever else its version knows; another is an error. With `engine` (replies from a server) and a template
    no `path` is needed.

    `on_event` is called with each event, `create_start`, `load_progress:0.50`, ..., `destroy`, on another thread. What
    it raises ends the call that is under way and is raised by that call. In it only `cancel`, `version`, `abi_version`
    and the `template_*` functions may be called; the rest is `BUSY`.

    Raises ToolsUnsupported for a model the gate refuses; LlbError with `MODEL_NOT_FOUND`, `MODEL_INVALID`,
    `TEMPLATE_ERROR`, `INVALID_REQUEST`, `OUT_OF_MEMORY` and others. The error's `events` are those seen so far.

    Any thread may call any method at any time; calls of one chat run one after another, in order of arrival. A process
    that was forked cannot use the chats of its parent: they answer `ENGINE_CLOSED` there, and so does a new one.
    """

    def __init__(
        self,
        path: Optional[Union[str, bytes, os.PathLike[Any]]] = None,
        *,
        on_event: Optional[Callable[[str], object]] = None,
        **options: Any,
    ) -> None:
        self._path = None if path is None else os.fsdecode(path)
        self._on_event = on_event
        this = weakref.ref(self)
        self._session = Session.open(
            encode({"model": self._path, **options}), lambda: getattr(this(), "_on_event", None)
        )
        finalizer = weakref.finalize(self, later, self._session.abandon)
        # At exit every chat is closed anyway, on a thread where that may block.
        finalizer.atexit = False

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
        **options: Any,
    ) -> Chat:
        """A chat on a model of the Hugging Face hub: `"org/name"` or `"org/name:Q8_0"`, fetched by `fetch` unless it is in
        the cache. `on_progress`, `filename`, `revision`, `cache_dir` and `offline` are those of `fetch`, the rest those of
        `Chat`. A model that `Chat` would refuse is not downloaded.

        Raises what `fetch` and `Chat` raise.
        """
        # A template of the caller's, and a policy that needs none, make up for what the file lacks.
        own_template = any(options.get(name) is not None for name in ("chat_template", "components"))
        lenient = own_template or options.get("tool_policy") not in (None, "native")
        fetched = fetch(
            id,
            filename=filename,
            revision=revision,
            cache_dir=cache_dir,
            offline=offline,
            require_tools=not lenient,
            on_progress=on_progress,
        )
        return cls(fetched["path"], on_event=on_event, **options)

    @property
    def path(self) -> Optional[str]:
        """The model's file, as it was given; None without one."""
        return self._path

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._session.handle is None

    @overload
    def create(
        self, messages: Messages, tools: Optional[Tools] = None, stream: Literal[False] = False, **request: Any
    ) -> Dict[str, Any]: ...
    @overload
    def create(
        self, messages: Messages, tools: Optional[Tools] = None, *, stream: Literal[True], **request: Any
    ) -> Stream: ...
    @overload
    def create(
        self, messages: Messages, tools: Optional[Tools] = None, stream: bool = False, **request: Any
    ) -> Union[Dict[str, Any], Stream]: ...
    def create(
        self, messages: Messages, tools: Optional[Tools] = None, stream: bool = False, **request: Any
    ) -> Union[Dict[str, Any], Stream]:
        """Answers `messages`, in the shape of OpenAI's chat completions.

        The `request` has OpenAI's names too: `tool_choice`, `response_format`, `max_tokens`, `temperature`, `top_p`,
        `seed`, `stop`, ..., and the library's `grammar`, `chat_template_kwargs`, `timeout_ms` and others. None means "not
        given". Unknown names are ignored and listed in the reply's `ignored_keys`. `logprobs` and `top_logprobs` put
        log probabilities into the reply, and into the chunks of `stream_format="chunks"`.

        `skills` are objects with `name`, `description` and whatever a row of the template shows; templates of components
        have a place for them, and few others.

        Without `stream`, the reply: `{"type": "assistant_text" or "tool_call", "text", "reasoning_content",
        "tool_calls": [{"id", "name", "arguments"}], "finish_reason", "message", "usage", "timings", "logprobs",
        "polyfills_applied", "diagnostics"}`. `arguments` is JSON text; `message` is OpenAI's assistant message, to be
        appended to the messages as it is. A KeyboardInterrupt ends the generation and is raised when it has ended.

        With `stream=True`, a `Stream` of chunks.

        Raises LlbError: `INVALID_REQUEST` with the JSON path of the field, `CONTEXT_OVERFLOW`, `TEMPLATE_ERROR`,
        `SCHEMA_UNSUPPORTED`, `CANCELLED`, `ENGINE_CLOSED` after `close`, and others. TypeError and ValueError for what
        JSON cannot hold.
        """
        refuse_in_callback("Chat.create")
        request = {"messages": messages, "tools": tools, **request}
        if stream:
            call = Call(self._session, "llb_chat_infer_stream", request, SimpleQueue())
            return Stream(self, call, os.path.basename(self._path), request.get("stream_format") == "chunks")
        call = Call(self._session, "llb_chat_infer", request)
        return interruptible(call.perform, call.cancel)

    def explain(self, messages: Messages, tools: Optional[Tools] = None, **request: Any) -> Dict[str, Any]:
        """What `create` would do with this request; no token is generated.

        `{"type": "explanation", "prompt", "prompt_tokens", "polyfills_applied", "caps_used", "grammar",
        "output_format", "stop", "tokens_left"}`. Raises what `create` raises.
        """
        refuse_in_callback("Chat.explain")
        call = Call(self._session, "llb_chat_explain", {"messages": messages, "tools": tools, **request})
        return interruptible(call.perform, call.cancel)

    def cancel(self) -> None:
        """Ends the calls there are on this chat. The one that runs returns soon, with `finish_reason` `cancelled` and
        what was written so far; those that wait for it raise `CANCELLED`. Any thread, also a callback or a signal
        handler."""
        self._session.cancel()

    def close(self) -> None:
        """Cancels what runs, waits for it and frees the chat; more than once is fine. Later calls are
        `ENGINE_CLOSED`."""
        refuse_in_callback("Chat.close")
        if not self._session.gone.is_set():
            interruptible(self._session.destroy)

    def __enter__(self) -> Chat:
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<llb.Chat {self._path!r}{' closed' if self.closed else ''}>"
