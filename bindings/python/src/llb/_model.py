"""What a GGUF file's header says, and the library's version. No chat, no weights."""

from __future__ import annotations

import os
from typing import Any, Dict, Union

from ._errors import LlbError
from ._library import load

# `llb_model_info` names its failures by the older words of its first callers.
_CODES = {
    "null_path": "INVALID_REQUEST",
    "model_not_found": "MODEL_NOT_FOUND",
    "load_model": "MODEL_INVALID",
    "chat_template": "TEMPLATE_ERROR",
}


def version() -> str:
    """The version of the library and of the engine in it: `llb 0.1.0 (llama.cpp b9371)`."""
    return str(load().c.llb_version().decode("utf-8"))


def abi_version() -> int:
    """The version of the library's C contract."""
    return int(load().c.llb_abi_version())


def model_info(path: Union[str, bytes, "os.PathLike[Any]"]) -> Dict[str, Any]:
    """What the header of a GGUF file says; milliseconds, since no weight is read.

    The dict has `supports_tools` (whether `Chat` takes the model by default), `tool_support` with `evidence`,
    `caps`, `output_format`, `templates`, `findings`, and of the model `architecture`,
    `n_params`, `context_length`, `quantization`, `file_size`, `name`, `license` among others.

    Raises LlbError: `MODEL_NOT_FOUND`, `MODEL_INVALID` (not a readable GGUF file), `TEMPLATE_ERROR` (a chat
    template that does not parse). Its `info` is the whole dict, whose `error` is the library's word.
    """
    name = os.fsencode(path)
    if b"\0" in name:
        raise ValueError("embedded null byte in path")
    library = load()
    info = library.reply(library.c.llb_model_info(name))
    error = info.get("error")
    if error is not None:
        message = info.get("message") or error
        raise LlbError(_CODES.get(error, str(error).upper()), str(message), info.get("details"), info=info)
    return info
