"""Chat templates without a model: capabilities, rendering, parsing and composition.

Each request names its template by one of `chat_template` (Jinja text, or a list of `{"name",
"template"}`), `components` (an object, or the name of a registered template) or `gguf` (the path of
a model file), and may set `bos_token` and `eos_token`.

All functions may be called from any thread and in callbacks. They raise LlbError: `INVALID_REQUEST`
with the JSON path of the field, and `TEMPLATE_ERROR` with the message of the template and `kind`,
`line` and `template` in `details`. They raise TypeError or ValueError for a request that cannot be
encoded as JSON.
"""

from __future__ import annotations

from typing import Any, Dict

from ._library import call


def template_info(**request: Any) -> Dict[str, Any]:
    """Describes the capabilities of a template.

    Returns `{"type": "template_info", "caps", "tool_support", "evidence", "output_format",
    "findings", ...}`. The members mean the same as in `model_info`.
    """
    return call("llb_template_info", request)


def template_render(**request: Any) -> Dict[str, Any]:
    """Renders `messages` and `tools` to a prompt.

    Returns `{"type": "rendered", "prompt", "polyfills_applied", ...}`. Offsets in `spans` and
    `mask` are UTF-8 byte offsets into `prompt`; `end` is exclusive.

    Further members of the request: `skills` (objects with `name`, `description` and any other
    member that the template shows), `documents`, `add_generation_prompt`, `continue_final_message`,
    `chat_template_kwargs`, `now`, `polyfills`, `template_limits`, `raw`, `spans`, `mask` and
    `vision`.
    """
    return call("llb_template_render", request)


def template_parse(**request: Any) -> Dict[str, Any]:
    """Parses `output`, the text of a model, into a message.

    Returns `{"type": "message", "message", "complete", "diagnostics"}`; `message` is an OpenAI
    assistant message.

    Further members of the request: `tools`, `tool_choice`, `parallel_tool_calls`, `untagged_calls`,
    `response_format`, `prompt` (the end of the prompt that `output` continues), `enable_thinking`,
    `reasoning_format` and `partial`.
    """
    return call("llb_template_parse", request)


def template_compose(**request: Any) -> Dict[str, Any]:
    """Composes a chat template from components, derives components, or lists registered templates.

    Takes one of `components` (an object, or the name of a registered template),
    `derive_from={"chat_template": ...}` (a Jinja template to derive components from) and
    `list=True`. Further members of the request: `strict`, `register` and `override`.

    Returns `{"type": "template", "chat_template", "spec", "caps", "findings", ...}`, or with `list`
    `{"type": "templates", "templates": [{"name", "exact", "source", "caps"}]}`.

    Raises LlbError with `reason` and `path` in `details` for invalid components.
    """
    return call("llb_template_compose", request)
