"""Run local GGUF chat models inside your own process.

`model_info` says what a file can do, `Chat` talks to it, `fetch` gets one from the Hugging Face hub, the `template_*` functions work on chat templates
alone. Shapes are OpenAI's where OpenAI has one; failures are `LlbError` with a stable `code`.
"""

from ._chat import Chat
from ._errors import LlbError, ToolsUnsupported
from ._fetch import fetch
from ._model import abi_version, model_info, version
from ._stream import Stream
from ._template import template_compose, template_info, template_parse, template_render

__all__ = [
    "Chat",
    "LlbError",
    "Stream",
    "ToolsUnsupported",
    "abi_version",
    "fetch",
    "model_info",
    "template_compose",
    "template_info",
    "template_parse",
    "template_render",
    "version",
]
