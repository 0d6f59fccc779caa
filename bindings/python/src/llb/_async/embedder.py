"""`AsyncEmbedder`: `Embedder` for asyncio. Imported only if used."""

from __future__ import annotations

from typing import Any, Literal, Mapping, Optional, Sequence, Union, cast

from .handle import AsyncHandle
from .._embedder import BaseEmbedder, embedded, request_of
from ..types import Embeddings, Ranking


class AsyncEmbedder(BaseEmbedder, AsyncHandle):
    """A model that computes vectors of texts, or scores of documents, for asyncio.

    `async with llb.AsyncEmbedder("model.gguf") as embedder`. Takes the arguments of `Embedder`, and
    works like it. As with `AsyncChat`, the model is loaded by `async with`, or by the first call,
    errors of the creation are raised there, and a cancelled task cancels its call.
    """

    async def embed(
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
        """See `Embedder.embed`."""
        request = request_of(locals())
        return embedded(await self._perform("llb_embed", request))

    async def rank(
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
        """See `Embedder.rank`."""
        request = request_of(locals())
        return cast(Ranking, await self._perform("llb_rank", request))
