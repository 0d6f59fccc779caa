"""Run local GGUF chat models inside your own process.

- `model_info` describes a model file and its capabilities.
- `Chat` runs requests on a model, and `Model` runs several at a time on one copy of the weights.
  `AsyncChat` and `AsyncModel` do so for asyncio.
- `Embedder` computes vectors of texts, `AsyncEmbedder` does so for asyncio.
- `transport` lets clients of OpenAI's API, such as the `openai` package, use a model in this
  process. `OpenAI` and `AsyncOpenAI` are such clients.
- `mcp_tools` gives a model the tools of an MCP server.
- `backends` reports which processor and which kernels compute.
- `memory` says what a chat would take, and the largest context that fits. `unload` takes a model
  out of memory until its chats need it again.
- `fetch` downloads a model from the Hugging Face hub.
- `template_info`, `template_render`, `template_parse` and `template_compose` work on chat templates
  without a model.

Requests and replies use OpenAI's names and shapes where OpenAI defines them. Every failure of the
library is an `LlbError` with a stable `code`. All functions and methods may be called from any
thread.
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from ._chat import Chat
from ._embedder import Embedder
from ._errors import (
    LlbError,
    ReplyError,
    ReplyInvalid,
    ReplyRefused,
    ReplyTruncated,
    TooManyRounds,
    ToolsUnsupported,
)
from ._fetch import fetch
from ._mcp import mcp_tools
from ._model import Model
from ._model_info import abi_version, backends, memory, model_info, unload, version
from ._run import Run
from ._stream import Stream
from ._template import template_compose, template_info, template_parse, template_render

if _TYPE_CHECKING:
    from ._async.chat import AsyncChat
    from ._async.embedder import AsyncEmbedder
    from ._async.model import AsyncModel
    from ._async.stream import AsyncStream
    from ._openai.client import AsyncOpenAI, OpenAI
    from ._openai.transport import transport

# The version of this package. That of the library is `version()`.
__version__ = "0.1.0"

__all__ = [
    "AsyncChat",
    "AsyncEmbedder",
    "AsyncModel",
    "AsyncOpenAI",
    "AsyncStream",
    "Chat",
    "Embedder",
    "LlbError",
    "Model",
    "OpenAI",
    "ReplyError",
    "ReplyInvalid",
    "ReplyRefused",
    "ReplyTruncated",
    "Run",
    "Stream",
    "TooManyRounds",
    "ToolsUnsupported",
    "abi_version",
    "backends",
    "fetch",
    "mcp_tools",
    "memory",
    "model_info",
    "template_compose",
    "template_info",
    "template_parse",
    "template_render",
    "transport",
    "unload",
    "version",
]

# Modules that import more than most programs need.
_LAZY = {
    "AsyncChat": "._async.chat",
    "AsyncEmbedder": "._async.embedder",
    "AsyncModel": "._async.model",
    "AsyncOpenAI": "._openai.client",
    "AsyncStream": "._async.stream",
    "OpenAI": "._openai.client",
    "transport": "._openai.transport",
}


def __getattr__(name: str) -> _Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_LAZY[name], __name__), name)
