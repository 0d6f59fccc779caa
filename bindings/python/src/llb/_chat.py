"""`Chat`: requests to one model, with OpenAI's names and shapes."""

from __future__ import annotations

import os
from typing import Any, Callable, Mapping, Optional, Union

from ._base_model import BaseChat
from ._call import stream_call
from ._fetch import OnProgress, fetch
from ._handle import Handle
from ._requests import Requests
from ._stream import Stream
from ._waiting import refuse_in_callback


class Chat(BaseChat, Handle, Requests):
    """A chat on one model. Use it as a context manager or call `close`. A dropped chat closes
    itself.

    `path` is a GGUF file. `Chat` refuses a model whose template does not support tools, before it
    reads any weight; `tool_policy="any"` accepts every model. `options` are those of the library:
    `n_ctx` (tokens), `n_parallel`, `kv_unified`, `n_batch`, `n_threads`, `n_gpu_layers`,
    `devices`, `n_cpu_moe`, `override_tensor` (pairs of a pattern and a device), `split_mode`,
    `main_gpu`, `tensor_split`, `flash_attn`, `cache_type_k`, `cache_type_v`, `use_mmap`,
    `use_mlock`, `chat_template`, `components`, `tool_policy`, `defaults` (a dict of sampling
    members and `max_tokens`, for requests that omit them), `engine`, `log` and others. An unknown
    option is an error. With `engine` (a server generates the replies) and a template, `path` may be
    omitted.

    `on_event` is called with each event (`create_start`, `load_progress:0.50`, ..., `destroy`) on a
    thread other than the main thread. If it raises, the running call is cancelled and raises that
    exception. It may call only `cancel`, `end_reasoning`, `version`, `abi_version` and the
    `template_*` functions; all others raise `BUSY`. `progress` shows the load on stderr, by tqdm if
    it is installed, on a terminal or in a notebook. With `log="warn"` (or "error", "info",
    "debug"), the library's log also goes to the logger `llb` of `logging`.

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
        self._open()

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

        `id` is `"org/name"` or `"org/name:Q8_0"`. `filename`, `revision`, `cache_dir` (the hub's,
        not the option of `Chat`), `offline` and `on_progress` are arguments of `fetch`, `progress`
        is one of both, the others are those of `Chat`. A model that `Chat` would refuse is not
        downloaded.

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

    def end_reasoning(self) -> None:
        """Ends the current reasoning of the running reply. Its answer follows.

        The request's `reasoning_budget_message` is appended to the reasoning. Does nothing if no
        reply is in reasoning. Does not wait. May be called from any thread, in callbacks, and in
        signal handlers.
        """
        self._session.end_reasoning()

    def _stream(self, request: Mapping[str, Any]) -> Stream:
        refuse_in_callback("a call on a chat")
        return Stream(self, self._session, stream_call(request))
