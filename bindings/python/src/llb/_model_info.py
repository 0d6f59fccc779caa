"""Description of a model file from its header, and the version of the library."""

from __future__ import annotations

import os
from typing import Any, Union, cast

from ._errors import LlbError
from ._library import load
from .types import ModelInfo

# `llb_model_info` reports failures by other names than the rest of the library.
_CODES = {
    "null_path": "INVALID_REQUEST",
    "model_not_found": "MODEL_NOT_FOUND",
    "load_model": "MODEL_INVALID",
    "chat_template": "TEMPLATE_ERROR",
}


def version() -> str:
    """Returns the version of the library and of llama.cpp: `llb 0.1.0 (llama.cpp b11429)`.

    Raises LlbError with `LIBRARY_NOT_FOUND` or `LIBRARY_INCOMPATIBLE`.
    """
    return str(load().c.llb_version().decode("utf-8"))


def abi_version() -> int:
    """Returns the version of the library's C ABI. Raises what `version` raises."""
    return int(load().c.llb_abi_version())


def model_info(path: Union[str, bytes, "os.PathLike[Any]"]) -> ModelInfo:
    """Describes a GGUF file and its capabilities. Reads only the header, which takes milliseconds.

    Returns a dict with `supports_tools` (whether `Chat` accepts the model by default),
    `tool_support`, `evidence`, `caps`, `output_format`, `templates`, `findings`, `architecture`,
    `n_params`, `context_length` (tokens), `quantization`, `file_size` (bytes), `name`, `license`,
    `tags`, `languages`, `base_models`, `sampling` (what the file recommends) and others. Header
    fields that the file does not have are None.

    May be called from any thread.

    Raises LlbError with `MODEL_NOT_FOUND`, `MODEL_INVALID` (not a valid GGUF file) or
    `TEMPLATE_ERROR` (the chat template does not parse). Its `info` is the whole dict;
    `info["error"]` is the library's own name of the failure. Raises ValueError if `path` contains a
    NUL byte.
    """
    name = os.fsencode(path)
    if b"\0" in name:
        raise ValueError("embedded null byte in path")
    library = load()
    info = library.reply(library.c.llb_model_info(name))
    error = info.get("error")
    if error is not None:
        code = _CODES.get(error, str(error).upper())
        message = info.get("message") or error
        raise LlbError(code, str(message), info.get("details"), info=info)
    return cast(ModelInfo, info)
