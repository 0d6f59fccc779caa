"""Descriptions of model files and of the library."""

from __future__ import annotations

import os
from typing import Any, Literal, Mapping, Optional, Sequence, Union, cast

from ._errors import LlbError
from ._library import call, load
from ._waiting import refuse_in_callback
from .types import Backends, ContextOptions, Memory, ModelInfo

# `llb_model_info` names failures differently from the rest of the library.
_CODES = {
    "null_path": "INVALID_REQUEST",
    "model_not_found": "MODEL_NOT_FOUND",
    "load_model": "MODEL_INVALID",
    "chat_template": "TEMPLATE_ERROR",
}
# The options of a chat that affect its memory use.
_MEMORY_OPTIONS = (
    "n_ctx",
    "n_parallel",
    "kv_unified",
    "n_batch",
    "n_gpu_layers",
    "n_cpu_moe",
    "override_tensor",
    "split_mode",
    "main_gpu",
    "tensor_split",
    "flash_attn",
    "cache_type_k",
    "cache_type_v",
    "use_mmap",
    "lora",
    "draft_model",
    "projector",
    "speculative",
    "backend",
    "devices",
)


def version() -> str:
    """Returns the version of the library and of llama.cpp: `llb 0.1.0 (llama.cpp b11429)`.

    Raises LlbError with `LIBRARY_NOT_FOUND` or `LIBRARY_INCOMPATIBLE`.
    """
    return str(load().c.llb_version().decode("utf-8"))


def abi_version() -> int:
    """Returns the version of the library's C ABI. Raises what `version` raises."""
    return int(load().c.llb_abi_version())


def backends() -> Backends:
    """Describes the processor, the kernels that compute or could, and the devices.

    The option `backend` of a chat or an embedder names one of the kernels. The first one that a
    process opens decides for all. May be called from any thread. Raises what `version` raises.
    """
    library = load()
    return cast(Backends, library.reply(library.c.llb_backends()))


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


def memory(
    path: Union[str, "os.PathLike[str]"],
    *,
    n_ctx: Union[int, str, None] = None,
    n_parallel: Optional[int] = None,
    kv_unified: Union[bool, Literal["auto"], None] = None,
    n_batch: Optional[int] = None,
    n_gpu_layers: Union[int, str, None] = None,
    n_cpu_moe: Union[int, str, None] = None,
    override_tensor: Optional[Sequence[Sequence[str]]] = None,
    split_mode: Optional[Literal["none", "layer", "row", "tensor"]] = None,
    main_gpu: Optional[int] = None,
    tensor_split: Optional[Sequence[float]] = None,
    flash_attn: Optional[Literal["auto", "on", "off"]] = None,
    cache_type_k: Optional[str] = None,
    cache_type_v: Optional[str] = None,
    use_mmap: Optional[bool] = None,
    lora: Optional[Sequence[Union[str, "os.PathLike[str]", Mapping[str, Any]]]] = None,
    draft_model: Union[str, "os.PathLike[str]", None] = None,
    projector: Union[str, "os.PathLike[str]", None] = None,
    speculative: Union[str, Mapping[str, Any], None] = None,
    backend: Optional[str] = None,
    devices: Union[Literal["auto", "none"], Sequence[str], None] = None,
    contexts: Sequence[ContextOptions] = (),
) -> Memory:
    """Returns the memory that a chat with these options takes, and the largest context that fits.

    The options and their defaults are those of `Chat`. Returns a dict with `weights`, `cache`,
    `compute` and `total` (bytes), `fits`, `largest_n_ctx` (tokens; None if no context fits),
    `devices`, and where weights and context live (`n_gpu_layers`, `n_cpu_moe`, `kv_unified`); with
    `lora` also `adapters`, with `draft_model` also `draft`, and with `projector` also `projector`.
    No weights are read; it takes up to some seconds. `n_ctx="fit"` stands for `largest_n_ctx`, here
    and in `Chat`.

    `contexts` are up to 64 other contexts of the model, which take hardly longer:
    `[{"n_ctx": 32768}, {"n_ctx": "fit", "cache_type_k": "q8_0"}]`. What they lack is as in the
    other options. `contexts` of the result has a dict for each, in the same order. Its `type` is
    "memory", or "error" if llama.cpp cannot make this context.

    May be called from any thread. Raises LlbError with `MODEL_NOT_FOUND`, `MODEL_INVALID`,
    `INVALID_REQUEST` or `OUT_OF_MEMORY` (no context fits).
    """
    return memory_of(os.fspath(path), locals(), contexts)


def memory_of(
    path: str, options: Mapping[str, Any], contexts: Sequence[ContextOptions] = ()
) -> Memory:
    """Like `memory`, with the options of a chat. Irrelevant options are ignored."""
    refuse_in_callback("memory")
    request = {name: options.get(name) for name in _MEMORY_OPTIONS}
    request["contexts"] = list(contexts)
    reply = call("llb_memory", {"model_path": path, **request})
    reply.setdefault("contexts", [])
    return cast(Memory, reply)


def unload(path: Union[str, "os.PathLike[str]"]) -> int:
    """Unloads a model from memory and returns the number of chats and embedders that held it.

    They stay open, and the next request of each loads the model again. The option `keep_alive` of
    `Chat` and `Embedder`, in seconds, unloads the model when one is idle.

    May be called from any thread. Raises LlbError with `BUSY` while a request runs on the model, or
    `MODEL_NOT_FOUND`.
    """
    refuse_in_callback("unload")
    return int(call("llb_model_unload", {"model_path": os.fspath(path)})["chats"])
