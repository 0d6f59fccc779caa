"""Tokens of texts and of whole requests, using a model file's vocabulary. No weights are read."""

from __future__ import annotations

from typing import Any, Dict, Iterable, Mapping, cast

from ._library import encode, load
from .types import Tokens

# The options of a chat that affect its prompts.
_PROMPT_OPTIONS = ("chat_template", "components", "polyfills", "template_limits")


class Vocabulary:
    """The vocabulary of a model file. `options` are those of the model's chats."""

    def __init__(self, path: str, options: Mapping[str, Any]) -> None:
        self._file = {"model_path": path, "isolation": options.get("isolation")}
        self._prompts = {name: options.get(name) for name in _PROMPT_OPTIONS}

    def tokenize(self, text: str, add_special: bool, parse_special: bool) -> Tokens:
        """See `Model.tokenize`."""
        request = {"text": text, "add_special": add_special, "parse_special": parse_special}
        return cast(Tokens, self._call("llb_tokenize", request))

    def detokenize(self, ids: Iterable[int], remove_special: bool, unparse_special: bool) -> str:
        """See `Model.detokenize`."""
        special = {"remove_special": remove_special, "unparse_special": unparse_special}
        reply = self._call("llb_detokenize", {"ids": list(ids), **special})
        return cast(str, reply["text"])

    def count(self, request: Mapping[str, Any]) -> int:
        """See `Model.count_tokens`."""
        given = {name: value for name, value in request.items() if value is not None}
        reply = self._call("llb_count", {**self._prompts, **given})
        return cast(int, reply["prompt_tokens"])

    def _call(self, function: str, request: Mapping[str, Any]) -> Dict[str, Any]:
        library = load()
        string = getattr(library.c, function)(encode({**request, **self._file}))
        return library.reply(string)
