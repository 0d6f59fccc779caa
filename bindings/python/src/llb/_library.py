"""The shared library: where it is, its functions, and its strings as JSON.

In come paths and JSON as bytes, out come dicts and `LlbError`. Every string the library hands out is freed
here. Nothing is loaded before the first call, and only functions of `llb.h` are named.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import threading
from pathlib import Path
from typing import Any, Dict, Mapping, Optional, Tuple

from ._errors import LlbError, error_from

# The oldest contract this package can work with.
_ABI_VERSION = 1

_NAME = {"darwin": "libllb.dylib", "win32": "llb.dll"}.get(sys.platform, "libllb.so")
_SYSTEM_NAME = {"darwin": "libllb.1.dylib", "win32": "llb.dll"}.get(sys.platform, "libllb.so.1")

EVENT_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_void_p)
TOKEN_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_void_p)

# `c_void_p` where the caller frees the string: as `c_char_p`, ctypes would copy it and lose the pointer.
_STRING = ctypes.c_void_p
_JSON = ctypes.c_char_p
_CHAT = ctypes.c_void_p
_USER_DATA = ctypes.c_void_p
_FUNCTIONS: Dict[str, Tuple[Any, Tuple[Any, ...]]] = {
    "llb_version": (ctypes.c_char_p, ()),
    "llb_abi_version": (ctypes.c_uint32, ()),
    "llb_model_info": (_STRING, (ctypes.c_char_p,)),
    "llb_chat_create_with": (_CHAT, (_JSON, EVENT_CALLBACK, _USER_DATA)),
    "llb_chat_infer": (_STRING, (_CHAT, _JSON)),
    "llb_chat_infer_stream": (_STRING, (_CHAT, _JSON, TOKEN_CALLBACK, _USER_DATA)),
    "llb_chat_explain": (_STRING, (_CHAT, _JSON)),
    "llb_chat_cancel": (None, (_CHAT,)),
    "llb_chat_destroy": (None, (_CHAT,)),
    "llb_template_compose": (_STRING, (_JSON,)),
    "llb_template_info": (_STRING, (_JSON,)),
    "llb_template_render": (_STRING, (_JSON,)),
    "llb_template_parse": (_STRING, (_JSON,)),
    "llb_model_fetch": (_STRING, (_JSON, EVENT_CALLBACK, _USER_DATA)),
    "llb_model_fetch_cancel": (None, (ctypes.c_char_p,)),
    "llb_last_error": (_STRING, ()),
    "llb_string_free": (None, (_STRING,)),
}


class Library:
    """The loaded library. `c` is the ctypes handle, whose calls release the GIL."""

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            self.c = ctypes.CDLL(path)
        except OSError as error:
            raise _not_found(f"{path} could not be loaded: {error}") from error
        for name, (result, arguments) in _FUNCTIONS.items():
            try:
                function = getattr(self.c, name)
            except AttributeError:
                raise LlbError("LIBRARY_INCOMPATIBLE", f"{path} has no function {name}") from None
            function.restype = result
            function.argtypes = arguments
        found = self.c.llb_abi_version()
        if found < _ABI_VERSION:
            raise LlbError(
                "LIBRARY_INCOMPATIBLE", f"{path} has ABI version {found}, this package needs {_ABI_VERSION} or later"
            )

    def take(self, string: Optional[int]) -> Dict[str, Any]:
        """The JSON object in a string of the library, which is freed."""
        try:
            # NULL would break the library's promise; it must still not become a read of address 0.
            content = ctypes.string_at(string) if string else b"null"
        finally:
            self.c.llb_string_free(string)
        reply = json.loads(content)
        if not isinstance(reply, dict):
            raise LlbError("INTERNAL_BRIDGE_ERROR", "the library's reply is not a JSON object")
        return reply

    def reply(self, string: Optional[int]) -> Dict[str, Any]:
        """As `take`, but a reply of type `error` is raised."""
        return unless_error(self.take(string))

    def last_error(self) -> Mapping[str, Any]:
        """The `error` object of the last failed create on this thread."""
        reply = self.take(self.c.llb_last_error())
        error = reply.get("error", reply)
        return error if isinstance(error, dict) else reply


def unless_error(reply: Dict[str, Any]) -> Dict[str, Any]:
    """The reply, unless it is of type `error`: then that is raised."""
    if reply.get("type") == "error":
        raise error_from(reply["error"])
    return reply


def encode(request: Mapping[str, Any]) -> bytes:
    """A request as JSON. Top-level None means "not given" and is left out; paths become strings.

    TypeError for what JSON cannot hold, ValueError for NaN and the infinities.
    """
    given = {key: value for key, value in request.items() if value is not None}
    # Escaped to ASCII, so that neither a NUL nor a lone surrogate can cut or spoil the C string.
    return json.dumps(given, default=_encode_path, allow_nan=False).encode("ascii")


def _encode_path(value: Any) -> str:
    if isinstance(value, os.PathLike):
        return os.fsdecode(value)
    raise TypeError(f"{type(value).__name__} is not JSON serializable")


_loaded: Optional[Library] = None
_loading = threading.Lock()


def load() -> Library:
    """The library, loaded at the first call. A failure is not remembered: the next call tries again."""
    global _loaded
    if _loaded is None:
        with _loading:
            if _loaded is None:
                _loaded = Library(_locate())
    return _loaded


def _locate() -> str:
    named = os.environ.get("LLB_LIBRARY")
    if named:
        # Only this one: what somebody named must not quietly become another library.
        if not os.path.isfile(named):
            raise _not_found(f"LLB_LIBRARY names {named}, which is not a file")
        return named
    package = Path(__file__).resolve().parent
    candidates = [package / "_lib" / _NAME]
    checkout = package.parents[3] if len(package.parents) > 3 else package
    if package == checkout / "bindings" / "python" / "src" / "llb":
        candidates.append(checkout / "target" / "release" / _NAME)
    for candidate in candidates:
        if candidate.is_file():
            return str(candidate)
    return _SYSTEM_NAME


def _not_found(reason: str) -> LlbError:
    return LlbError(
        "LIBRARY_NOT_FOUND",
        f"{reason}; run `make lib` in the llb repository and install this package from there again, "
        f"or set LLB_LIBRARY to the full path of {_NAME}",
    )


def _after_fork_in_child() -> None:
    # A thread of the parent may have held it; that thread does not exist here.
    global _loading
    _loading = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
