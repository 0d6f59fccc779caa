"""`Embedder`: computes vectors of texts, or scores of documents."""

from __future__ import annotations

import os
import warnings
from typing import Any, Dict, Literal, Mapping, Optional, Sequence, Union, cast

from ._handle import BaseHandle, Handle
from ._session import EMBEDDER
from .types import Embeddings, Ranking


class BaseEmbedder(BaseHandle):
    """The options of an embedder of the library. A subclass opens it."""

    _kind = EMBEDDER

    def __init__(self, path: Union[str, bytes, os.PathLike[Any]], **options: Any) -> None:
        super().__init__(path, None, options)


class Embedder(BaseEmbedder, Handle):
    """A model that computes vectors of texts, or scores of documents. Use it as a context manager
    or call `close`. A dropped embedder closes itself.

    `path` is a GGUF file. `options` are those of the library (docs/embeddings.md): `pooling`
    ("mean", "cls", "last", "none", "rank"; the file's), `n_ctx` (the most tokens of a text),
    `n_threads`, `n_batch`, `n_gpu_layers`, `n_cpu_moe`, `override_tensor`, `split_mode`,
    `main_gpu`, `tensor_split`, `flash_attn`, `use_mmap`, `use_mlock`, `lora`, `backend`,
    `devices`, `keep_alive`. An unknown option is an error.

    Raises LlbError with `MODEL_NOT_FOUND`, `MODEL_INVALID`, `INVALID_REQUEST`, `OUT_OF_MEMORY` and
    others. Raises TypeError or ValueError if the options cannot be encoded as JSON.
    KeyboardInterrupt is raised at once; the memory is freed when the load has ended.

    All methods may be called from any thread. Calls run one at a time, in order of arrival. A
    forked process cannot use the embedders of its parent (`ENGINE_CLOSED`), but can open its own.
    """

    def __init__(self, path: Union[str, bytes, os.PathLike[Any]], **options: Any) -> None:
        super().__init__(path, **options)
        self._open()

    def embed(
        self,
        input: Union[str, Sequence[str]],
        *,
        prefix: Optional[str] = None,
        normalize: Optional[bool] = None,
        dimensions: Optional[int] = None,
        truncate: Optional[bool] = None,
        encoding_format: Optional[Literal["float", "base64"]] = None,
        timeout_ms: Optional[int] = None,
        extra_body: Optional[Mapping[str, Any]] = None,
    ) -> Embeddings:
        """Computes a vector for each text in `input`.

        `prefix` is put before each text; many models are trained with one, such as "query: ".
        `normalize` (True) scales vectors to length 1. `dimensions` keeps only this many numbers of
        each. With `truncate` a text that is too long is cut; otherwise it raises
        `CONTEXT_OVERFLOW`. `encoding_format="base64"` returns vectors as text: little-endian 32-bit
        floats. `timeout_ms` includes the wait for earlier calls. Members of `extra_body` are added
        unchecked.

        Returns `{"type": "embeddings", "data": [{"index", "embedding", ...}], "usage", "pooling",
        "dimensions", "truncated", ...}`, with an entry of `data` for each text, in their order.

        Raises LlbError with `INVALID_REQUEST` and the JSON path of the member, `CONTEXT_OVERFLOW`,
        `CANCELLED`, `ENGINE_CLOSED` after `close`, and others. KeyboardInterrupt cancels the call
        and is raised when it has ended. Warns (`UserWarning`) if the model is a chat model.
        """
        request = request_of(locals())
        return embedded(self._perform("llb_embed", request))

    def rank(
        self,
        query: str,
        documents: Sequence[Union[str, Mapping[str, Any]]],
        *,
        top_n: Optional[int] = None,
        return_documents: Optional[bool] = None,
        truncate: Optional[bool] = None,
        timeout_ms: Optional[int] = None,
        extra_body: Optional[Mapping[str, Any]] = None,
    ) -> Ranking:
        """Scores documents for a query, by a model that is made for it (a reranker).

        `documents` are texts, or objects with `text`. `top_n` is the most results.
        `return_documents` puts its document into each result. With `truncate` a document that is
        too long is cut; otherwise it raises `CONTEXT_OVERFLOW`. `timeout_ms` and `extra_body` are
        those of `embed`.

        Returns `{"type": "ranking", "results": [{"index", "relevance_score", ...}], "usage",
        "truncated", ...}` with the best result first. Raises what `embed` raises; `INVALID_REQUEST`
        for a model that cannot score.
        """
        request = request_of(locals())
        return cast(Ranking, self._perform("llb_rank", request))


def embedded(reply: Any) -> Embeddings:
    """Warns of what the library remarks about the model, and returns the reply."""
    for remark in reply.get("diagnostics", ()):
        warnings.warn(remark["message"], stacklevel=3)
    return cast(Embeddings, reply)


def request_of(arguments: Mapping[str, Any]) -> Dict[str, Any]:
    """Returns the request of a method, from all its arguments by name. None counts as absent."""
    members = {name: arguments[name] for name in arguments if name not in ("self", "extra_body")}
    return {**members, **(arguments["extra_body"] or {})}
