"""`FrameworkEmbedder`: the embedder of a framework adapter, with and without asyncio."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, cast

from ._embedder import Embedder
from ._framework_handle import FrameworkHandle
from .types import Embeddings


class FrameworkEmbedder(FrameworkHandle[Embedder]):
    """One embedder, opened on first use. The `input` of a request is a list, which may be empty."""

    def __init__(self, model: str, options: Mapping[str, Any]) -> None:
        super().__init__(Embedder, model, options)

    def embed(self, request: Dict[str, Any]) -> List[List[float]]:
        """Computes the vectors of a request."""
        return _vectors(self.perform("llb_embed", request)) if request["input"] else []

    async def embed_async(self, request: Dict[str, Any]) -> List[List[float]]:
        """Like `embed`. If the task is cancelled, cancels the call."""
        if not request["input"]:
            return []
        return _vectors(await self.perform_async("llb_embed", request))


def _vectors(reply: object) -> List[List[float]]:
    return [each["embedding"] for each in cast(Embeddings, reply)["data"]]
