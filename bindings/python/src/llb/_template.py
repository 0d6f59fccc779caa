"""Chat templates without a model: what one can do, the prompt it makes, the message in a model's text, and a template
made of building blocks.

Each request names its template by `chat_template` (the Jinja text, or a list of `{"name", "template"}`), `components`
(building blocks, or the name of a registered template) or `gguf` (a path), and may add `bos_token` and `eos_token`. LlbError for what the library refuses:
`TEMPLATE_ERROR` carries the template's own message and, in `details`, kind, line and template.
"""

from __future__ import annotations

from typing import Any, Dict

from ._library import encode, load


def template_info(**request: Any) -> Dict[str, Any]:
    """The capabilities of a template: `caps`, `tool_support`, `evidence`, `output_format`, `findings`, ..., with the
    meanings they have in `model_info`."""
    library = load()
    return library.reply(library.c.llb_template_info(encode(request)))


def template_render(**request: Any) -> Dict[str, Any]:
    """The prompt a template makes of `messages` and `tools`: `{"type": "rendered", "prompt", "polyfills_applied"}`.

    `skills` are objects with `name`, `description` and whatever a row of the template shows: `skills_template` of components.
    Also `documents`, `add_generation_prompt`, `chat_template_kwargs`, `now`, `raw`, `spans`, `mask`, `vision`.
    """
    library = load()
    return library.reply(library.c.llb_template_render(encode(request)))


def template_parse(**request: Any) -> Dict[str, Any]:
    """The message in `output`, the text a model wrote: `{"type": "message", "message", "complete", "diagnostics"}`.

    Also `tools`, `tool_choice`, `parallel_tool_calls`, `partial`, `prompt`.
    """
    library = load()
    return library.reply(library.c.llb_template_parse(encode(request)))


def template_compose(**request: Any) -> Dict[str, Any]:
    """A chat template from building blocks: `{"type": "template", "chat_template", "spec", "caps", "findings", ...}`.

    `components` is an object or a name; `derive_from={"chat_template"}` finds the components of a Jinja template;
    `list=True` lists what is registered. Also `strict`, `register`, `override`. LlbError with `reason` and `path` in
    `details` for components that cannot be.
    """
    library = load()
    return library.reply(library.c.llb_template_compose(encode(request)))
