"""Loads the shared library, declares its functions, and converts its JSON.

Requests are JSON bytes, replies are dicts or `LlbError`. Every string returned by the library is
freed here. The library is loaded on first use. Only functions of `llb.h` are used.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import threading
from pathlib import Path
from typing import Any, Callable, Dict, Mapping, Optional, Tuple, cast

from ._errors import LlbError, error_from

# The oldest ABI version that this package supports.
_ABI_VERSION = 2

_NAME = {"darwin": "libllb.dylib", "win32": "llb.dll"}.get(sys.platform, "libllb.so")
_SYSTEM_NAME = {"darwin": "libllb.1.dylib", "win32": "llb.dll"}.get(sys.platform, "libllb.so.1")

EVENT_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_void_p)
TOKEN_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_void_p)

# Returned strings that the caller frees are `c_void_p`. With `c_char_p`, ctypes would copy the
# string and lose the pointer.
_STRING = ctypes.c_void_p
_JSON = ctypes.c_char_p
_CHAT = ctypes.c_void_p
_EMBEDDER = ctypes.c_void_p
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
    "llb_chat_end_reasoning": (None, (_CHAT,)),
    "llb_chat_destroy": (None, (_CHAT,)),
    "llb_embed_create": (_EMBEDDER, (_JSON,)),
    "llb_embed": (_STRING, (_EMBEDDER, _JSON)),
    "llb_rank": (_STRING, (_EMBEDDER, _JSON)),
    "llb_embed_cancel": (None, (_EMBEDDER,)),
    "llb_embed_destroy": (None, (_EMBEDDER,)),
    "llb_backends": (_STRING, ()),
    "llb_memory": (_STRING, (_JSON,)),
    "llb_model_unload": (_STRING, (_JSON,)),
    "llb_tokenize": (_STRING, (_JSON,)),
    "llb_detokenize": (_STRING, (_JSON,)),
    "llb_count": (_STRING, (_JSON,)),
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
    """The loaded library. `c` is the ctypes handle; its calls release the GIL."""

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            self.c = ctypes.CDLL(path)
        except OSError as error:
            raise _not_found(f"cannot load {path}: {error}") from error
        for name, (result, arguments) in _FUNCTIONS.items():
            try:
                function = getattr(self.c, name)
            except AttributeError:
                raise LlbError("LIBRARY_INCOMPATIBLE", f"{path} has no function {name}") from None
            function.restype = result
            function.argtypes = arguments
        # Frees a string without releasing the GIL, because releasing it would take longer.
        self.free = ctypes.PyDLL(path).llb_string_free
        self.free.restype, self.free.argtypes = _FUNCTIONS["llb_string_free"]
        found = self.c.llb_abi_version()
        if found < _ABI_VERSION:
            raise LlbError(
                "LIBRARY_INCOMPATIBLE",
                f"{path} has ABI version {found}, this package needs {_ABI_VERSION} or later",
            )

    def take(self, string: Optional[int]) -> Dict[str, Any]:
        """Frees a string returned by the library and returns the JSON object in it."""
        try:
            # The library never returns NULL. If it did, address 0 must not be read.
            content = ctypes.string_at(string) if string else b"null"
        finally:
            self.free(string)
        reply: Dict[str, Any] = decode(content)
        if type(reply) is not dict:
            raise LlbError("INTERNAL_BRIDGE_ERROR", "the library's reply is not a JSON object")
        return reply

    def reply(self, string: Optional[int]) -> Dict[str, Any]:
        """Like `take`, but raises a reply of type `error`."""
        return raise_if_error(self.take(string))

    def last_error(self) -> Mapping[str, Any]:
        """Returns the `error` object of the last failure on this thread."""
        reply = self.take(self.c.llb_last_error())
        error: Any = reply.get("error")
        return cast(Dict[str, Any], error) if isinstance(error, dict) else reply


def raise_if_error(reply: Dict[str, Any]) -> Dict[str, Any]:
    """Raises a reply of type `error` as an exception. Returns any other reply."""
    if reply.get("type") == "error":
        raise error_from(reply["error"])
    return reply


def decode(text: bytes) -> Any:
    """Parses JSON text from the library, which has no surrounding whitespace."""
    return _DECODER.raw_decode(text.decode("utf-8"))[0]


def encode(request: Mapping[str, Any]) -> bytes:
    """Returns a request as JSON. Top-level members that are None are omitted. Paths become strings.

    Raises TypeError for a value that JSON cannot represent, ValueError for NaN, infinities, and
    values that contain themselves.
    """
    present = {key: value for key, value in request.items() if value is not None}
    return _encode(present).encode("ascii")


def _encode_path(value: Any) -> str:
    if isinstance(value, os.PathLike):
        return os.fsdecode(cast("os.PathLike[str]", value))
    raise TypeError(f"{type(value).__name__} is not JSON serializable")


# ASCII escapes keep NULs and lone surrogates out of the C string.
_ENCODER = json.JSONEncoder(default=_encode_path, allow_nan=False)
_DECODER = json.JSONDecoder()


def _make_encode(make: Any) -> Callable[[Any], str]:
    """Returns `_ENCODER.encode`, or what does the same in half the time.

    `encode` calls `make` each time, where Python has its encoder in C. This calls it once. The
    encoder keeps no table of the objects that it is in, so it meets the limit of recursion in a
    circle.
    """
    escape: Any = getattr(json.encoder, "encode_basestring_ascii", None)
    sample = {"a": ["\u00fc", 1.5, True]}
    try:
        write = make(None, _encode_path, escape, None, ": ", ", ", False, False, False)
        if "".join(write(sample, 0)) != _ENCODER.encode(sample):
            return _ENCODER.encode
    except TypeError:
        # It is None, or takes other arguments in this version of Python.
        return _ENCODER.encode

    def encode(value: Any) -> str:
        try:
            return "".join(write(value, 0))
        except RecursionError:
            raise ValueError("the request contains itself, or is nested too deeply") from None

    return encode


_encode = _make_encode(getattr(json.encoder, "c_make_encoder", None))


_loaded: Optional[Library] = None
_loading = threading.Lock()


def load() -> Library:
    """Returns the library, loaded on the first call. A failure is not cached."""
    global _loaded
    if _loaded is None:
        with _loading:
            if _loaded is None:
                _loaded = Library(_locate())
    return _loaded


def call(function: str, request: Mapping[str, Any]) -> Dict[str, Any]:
    """Passes a request to a function of the library that takes nothing else. Returns its reply."""
    library = load()
    return library.reply(getattr(library.c, function)(encode(request)))


def _locate() -> str:
    named = os.environ.get("LLB_LIBRARY")
    if named:
        # If a path was set explicitly, never fall back to another library.
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
        f"{reason}; install a wheel of llb, or run `make lib` in the llb repository and reinstall "
        f"this package from there, or set LLB_LIBRARY to the full path of {_NAME}",
    )


def _after_fork_in_child() -> None:
    # A thread of the parent may have held the lock. That thread does not exist in the child.
    global _loading
    _loading = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
