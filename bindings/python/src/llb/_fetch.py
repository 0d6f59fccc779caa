"""Models on the Hugging Face hub: from an id to a verified file in the cache."""

from __future__ import annotations

import atexit
import os
from typing import Any, Callable, Dict, Mapping, Optional, Set, cast

from ._library import EVENT_CALLBACK, Library, encode, load, raise_if_error
from ._outcome import Outcome
from ._progress import Progress
from ._waiting import CallbackScope, interruptible, refuse_in_callback, wait_for_end
from .types import FetchedModel

OnProgress = Callable[[int, int], object]
OnEvent = Callable[[str], object]

_PROGRESS = "fetch_progress:"


def fetch(
    id: str,
    *,
    on_progress: Optional[OnProgress] = None,
    on_event: Optional[OnEvent] = None,
    progress: bool = False,
    **request: Any,
) -> FetchedModel:
    """Downloads a model of the hub into the cache shared with `huggingface_hub`, and verifies it.

    `id` is `"org/name"` or `"org/name:Q8_0"`. `request` takes the library's names: `revision`,
    `filename`, `quant`, `projector` ("auto", "none" or a file), `cache_dir`, `token_env`,
    `endpoint_env`, `offline`, `require_tools` (default True) and `dry_run`. The token is that of
    `HF_TOKEN`, or of the file that a login wrote.

    Returns `{"path", "paths", "projector", "revision", "sha256", "from_cache", "files",
    "model_info", ...}`.
    Files in the cache are not downloaded again. With `dry_run` nothing is downloaded, and `path` is
    None unless the model is cached. `header_dir` then gets a copy of the header for `memory` and
    `tokenize`, at `header_path`.

    `on_progress` is called with the bytes present and the total bytes, at most ten times a second.
    `on_event` is called with each event. Both are called on a thread other than the main thread. If
    one raises, the fetch is cancelled and raises that exception. `progress` shows a bar on stderr,
    by tqdm if it is installed, on a terminal or in a notebook.

    Blocks until the model is verified. May be called from any thread, but not in a callback
    (`BUSY`). Fetches of the same file run one at a time, also across processes. KeyboardInterrupt
    cancels the fetch and is raised when it has ended. The next call resumes the download.

    Raises ToolsUnsupported before the download if the model cannot call tools. Raises LlbError with
    `HUB_NOT_FOUND`, `HUB_GATED`, `HUB_UNAUTHORIZED`, `HUB_FORBIDDEN`, `HUB_NETWORK`, `HUB_VERIFY`,
    `HUB_AMBIGUOUS`, `OFFLINE`, `CANCELLED`, `INVALID_REQUEST` and others. Raises TypeError or
    ValueError if `request` cannot be encoded as JSON.
    """
    refuse_in_callback("fetch")
    bar = Progress(id) if progress else None
    call = _Fetch(load(), {"id": id, **request}, on_progress, on_event, bar)
    return cast(FetchedModel, interruptible(call.perform, call.cancel))


class _Fetch:
    def __init__(
        self,
        library: Library,
        request: Mapping[str, Any],
        on_progress: Optional[OnProgress],
        on_event: Optional[OnEvent],
        bar: Optional[Progress],
    ) -> None:
        self.library = library
        self.encoded = encode(request)
        name = request["id"]
        # The library rejects any other id.
        valid = isinstance(name, str) and "\0" not in name
        self.id = name.encode("utf-8", "replace") if valid else None
        self.on_progress = on_progress
        self.on_event = on_event
        self.bar = bar
        self.failure: Optional[BaseException] = None
        self.ended: Outcome[None] = Outcome()

    def perform(self) -> Dict[str, Any]:
        _running.add(self)
        try:
            # Must outlive the call, because the library may call it until then.
            callback = EVENT_CALLBACK(self._receive)
            reply = self.library.take(self.library.c.llb_model_fetch(self.encoded, callback, None))
        finally:
            _running.discard(self)
            self.ended.succeed(None)
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure
        return raise_if_error(reply)

    def cancel(self) -> None:
        if self.id is not None:
            self.library.c.llb_model_fetch_cancel(self.id)

    def _receive(self, event: bytes, _user_data: Optional[int]) -> None:
        with CallbackScope():
            try:
                if self.failure is None:
                    self._dispatch(event.decode("utf-8", "replace"))
            except BaseException as error:
                self.failure = error
                self.cancel()

    def _dispatch(self, event: str) -> None:
        if event.startswith(_PROGRESS):
            done, total = map(int, event[len(_PROGRESS) :].split("/"))
            for show in (self.bar, self.on_progress):
                if show is not None:
                    show(done, total)
        if self.on_event is not None:
            self.on_event(event)


_running: Set[_Fetch] = set()


def _cancel_all() -> None:
    """Runs at exit, because the library must not call back into an interpreter that shuts down."""
    for call in list(_running):
        wait_for_end(call.ended, call.cancel)


def _after_fork_in_child() -> None:
    _running.clear()


atexit.register(_cancel_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
