"""Models of the Hugging Face hub: an id in, a verified file in the cache out."""

from __future__ import annotations

import atexit
import os
import threading
from typing import Any, Callable, Dict, Mapping, Optional, Set

from ._library import EVENT_CALLBACK, Library, encode, load, unless_error
from ._session import in_a_callback, interruptible, refuse_in_callback, wait

OnProgress = Callable[[int, int], object]
OnEvent = Callable[[str], object]

_PROGRESS = "fetch_progress:"


def fetch(
    id: str,
    *,
    on_progress: Optional[OnProgress] = None,
    on_event: Optional[OnEvent] = None,
    **request: Any,
) -> Dict[str, Any]:
    """Fetches a model of the hub into the cache that `huggingface_hub` uses too, and verifies it.

    `id` is `"org/name"` or `"org/name:Q8_0"`. The `request` has the library's names: `revision`, `filename`, `quant`,
    `cache_dir`, `token_env`, `endpoint_env`, `offline`, `require_tools` (True), `dry_run`. The token is that of `HF_TOKEN`,
    or of the file that logging in wrote.

    Answers `{"path", "paths", "revision", "sha256", "from_cache", "files", "model_info", ...}`; with `dry_run` nothing is
    downloaded and `path` is None. What is in the cache is not downloaded again.

    `on_progress` is called with the bytes that are here and their total, at most ten times a second, `on_event` with each
    event, both on another thread than the main one. What they raise ends the fetch and is raised here. So does
    KeyboardInterrupt; the next call goes on where it ended.

    Raises ToolsUnsupported for a model that cannot carry tools, before it is downloaded; LlbError with `HUB_NOT_FOUND`,
    `HUB_GATED`, `HUB_UNAUTHORIZED`, `HUB_FORBIDDEN`, `HUB_NETWORK`, `HUB_VERIFY`, `HUB_AMBIGUOUS`, `OFFLINE`, `CANCELLED`,
    `INVALID_REQUEST` and others.
    """
    refuse_in_callback("fetch")
    call = _Fetch(load(), {"id": id, **request}, on_progress, on_event)
    return interruptible(call.perform, call.cancel)


class _Fetch:
    def __init__(
        self,
        library: Library,
        request: Mapping[str, Any],
        on_progress: Optional[OnProgress],
        on_event: Optional[OnEvent],
    ) -> None:
        self.library = library
        self.encoded = encode(request)
        name = request["id"]
        # Anything else than text is for the library to refuse.
        self.id = name.encode("utf-8", "replace") if isinstance(name, str) and "\0" not in name else None
        self.on_progress = on_progress
        self.on_event = on_event
        self.failure: Optional[BaseException] = None
        self.done = threading.Event()

    def perform(self) -> Dict[str, Any]:
        _running.add(self)
        try:
            # Lives as long as the library may call it.
            callback = EVENT_CALLBACK(self._receive)
            reply = self.library.take(self.library.c.llb_model_fetch(self.encoded, callback, None))
        finally:
            _running.discard(self)
            self.done.set()
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure
        return unless_error(reply)

    def cancel(self) -> None:
        if self.id is not None:
            self.library.c.llb_model_fetch_cancel(self.id)

    def _receive(self, event: bytes, _user_data: Optional[int]) -> None:
        with in_a_callback():
            try:
                if self.failure is None:
                    self._tell(event.decode("utf-8", "replace"))
            except BaseException as error:
                self.failure = error
                self.cancel()

    def _tell(self, event: str) -> None:
        if self.on_progress is not None and event.startswith(_PROGRESS):
            here, total = event[len(_PROGRESS) :].split("/")
            self.on_progress(int(here), int(total))
        if self.on_event is not None:
            self.on_event(event)


_running: Set[_Fetch] = set()


def _cancel_all() -> None:
    """At exit: the library must not call back into an interpreter that is being taken down."""
    for call in list(_running):
        call.cancel()
        wait(call.done)


def _after_fork_in_child() -> None:
    _running.clear()


atexit.register(_cancel_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
