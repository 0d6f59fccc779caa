"""Serves a model with Ray Serve, one `llb.AsyncModel` per replica:

    pip install llb "ray[serve]"
    MODEL=model.gguf serve run ray_serve:app

A request is the JSON of `create`, and the answer is its reply:

    curl http://127.0.0.1:8000 -d '{"messages": [{"role": "user", "content": "Hi"}]}'

With `"stream": true` the answer is the text as it is generated.
"""

# Ray is not installed where the types of this package are checked.
# mypy: ignore-errors
# pyright: basic
# pyright: reportMissingImports=false, reportAttributeAccessIssue=false

import os
from typing import Any, AsyncIterator, Dict, Union

import llb
from ray import serve
from starlette.requests import Request
from starlette.responses import JSONResponse, StreamingResponse

# The requests that a replica decodes together. Ray sends no more to it at once.
CHATS = 4


@serve.deployment(
    max_ongoing_requests=CHATS,
    health_check_period_s=2,
    autoscaling_config={
        "min_replicas": 2,
        "max_replicas": 4,
        "target_ongoing_requests": CHATS / 2,
        "upscale_delay_s": 2,
        "downscale_delay_s": 10,
    },
)
class Replica:
    async def __init__(self, path: str, **options: Any) -> None:
        # The weights are mapped into memory, so the replicas of a machine share them. Loaded here,
        # so that a replica without a model does not start.
        self.model = llb.AsyncModel(path, n_ctx=4096, n_parallel=CHATS, **options)
        await self.model.__aenter__()

    async def __call__(self, request: Request) -> Union[JSONResponse, StreamingResponse]:
        body: Dict[str, Any] = await request.json()
        stream = body.pop("stream", False)
        try:
            if not stream:
                return JSONResponse(await self.model.create(**body))
            # The first piece is awaited here, so that a fault has a status.
            pieces = self.pieces(body)
            first = await pieces.__anext__()
        except StopAsyncIteration:
            first = ""
        except (TypeError, llb.LlbError) as error:
            return JSONResponse({"error": str(error)}, status_code=400)
        return StreamingResponse(joined(first, pieces), media_type="text/plain; charset=utf-8")

    async def pieces(self, body: Dict[str, Any]) -> AsyncIterator[str]:
        # Leaving the block ends the generation: Ray cancels the task of a client that has left.
        async with await self.model.create(**body, stream=True) as stream:
            async for piece in stream.text:
                yield piece


async def joined(first: str, pieces: AsyncIterator[str]) -> AsyncIterator[str]:
    yield first
    async for piece in pieces:
        yield piece


app = Replica.bind(os.environ["MODEL"])
