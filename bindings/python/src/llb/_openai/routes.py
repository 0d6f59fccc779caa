"""The routes of the transport: those of OpenAI's API, under any base URL."""

from __future__ import annotations

import json
import re
from typing import Any, Dict, List, Mapping, Optional, cast

from .._errors import LlbError
from . import chat_completions, responses_output
from .errors import invalid
from .exchange import Exchange, Writer

_EMBED = ("input", "dimensions", "encoding_format", "prefix", "truncate")


class Routes:
    """The models of a transport by name, and what it adds to each request."""

    def __init__(
        self, chat: Optional[str], embedding: Optional[str], defaults: Mapping[str, Any]
    ) -> None:
        self._chat = chat
        self._embedding = embedding
        self._defaults = defaults

    def begin(self, method: str, path: str, content: bytes) -> Exchange:
        """Returns the exchange for a request. Raises LlbError for one that is refused."""
        found = re.search(r"/(chat/completions|responses|embeddings|models)(?:/(.+))?/?$", path)
        route, name = found.groups() if found else ("", None)
        if route == "models" and method == "GET":
            return Exchange(None, {}, _Whole(self._models(name)))
        if method != "POST" or not route or name is not None or route == "models":
            routes = "/chat/completions, /responses, /embeddings and /models"
            raise LlbError("MODEL_NOT_FOUND", f"{method} {path}: no such route; there are {routes}")
        body = _object(content)
        if route == "embeddings":
            model = self._required(self._embedding, "embedding_model")
            request = {each: body[each] for each in _EMBED if each in body}
            return Exchange("llb_embed", request, _Vectors(model))
        model = self._required(self._chat, "model")
        begin = chat_completions.begin if route.startswith("chat") else responses_output.begin
        exchange = begin(body, model)
        exchange.request = {**self._defaults, **exchange.request}
        return exchange

    def _required(self, model: Optional[str], option: str) -> str:
        if model is None:
            raise LlbError("INVALID_REQUEST", f"the transport has no {option}; pass one to it")
        return model

    def _models(self, name: Optional[str]) -> Dict[str, Any]:
        names = [each for each in (self._chat, self._embedding) if each is not None]
        entries: List[Dict[str, Any]] = [
            {"id": each, "object": "model", "created": 0, "owned_by": "llb"} for each in names
        ]
        if name is None:
            return {"object": "list", "data": entries}
        for entry in entries:
            if entry["id"] == name:
                return entry
        raise LlbError("MODEL_NOT_FOUND", f"no model {name}; there are {', '.join(names)}")


class _Whole(Writer):
    """An answer without a request to the library."""

    def __init__(self, body: Dict[str, Any]) -> None:
        self._body = body

    def whole(self, reply: Mapping[str, Any]) -> Dict[str, Any]:
        return self._body


class _Vectors(Writer):
    """The vectors of texts."""

    def __init__(self, model: str) -> None:
        self._model = model

    def whole(self, reply: Mapping[str, Any]) -> Dict[str, Any]:
        members = {"data": reply["data"], "usage": reply["usage"]}
        return {"object": "list", "model": self._model, **members}


def _object(content: bytes) -> Dict[str, Any]:
    try:
        body: Any = json.loads(content)
    except ValueError as error:
        raise invalid("body", f"is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise invalid("body", "expected an object")
    return cast("Dict[str, Any]", body)
