"""`OpenAI` and `AsyncOpenAI`: clients of the openai package on a model in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Mapping, Optional, Union

from .transport import Path, transport

if TYPE_CHECKING:
    import openai


def OpenAI(
    model: Union[Path, Any, None] = None,
    *,
    embedding_model: Union[Path, Any, None] = None,
    request: Optional[Mapping[str, Any]] = None,
    timeout: Any = None,
    **options: Any,
) -> openai.OpenAI:
    """Returns an `openai.OpenAI` whose requests run in this process. Needs the package openai.

    The arguments are those of `transport`. `timeout` is that of the client. Closing the client
    closes what it opened. Raises what `Model` and `Embedder` raise.
    """
    import openai

    served = transport(model, embedding_model=embedding_model, request=request, **options)
    served.open()
    return openai.OpenAI(
        http_client=openai.DefaultHttpxClient(transport=served), timeout=timeout, **_CLIENT
    )


def AsyncOpenAI(
    model: Union[Path, Any, None] = None,
    *,
    embedding_model: Union[Path, Any, None] = None,
    request: Optional[Mapping[str, Any]] = None,
    timeout: Any = None,
    **options: Any,
) -> openai.AsyncOpenAI:
    """Like `OpenAI`, for asyncio. The model is opened by the first request."""
    import openai

    served = transport(model, embedding_model=embedding_model, request=request, **options)
    return openai.AsyncOpenAI(
        http_client=openai.DefaultAsyncHttpxClient(transport=served), timeout=timeout, **_CLIENT
    )


# No request leaves the process, so there is nothing to authenticate, and nothing that may work the
# next time.
_CLIENT: Any = {"base_url": "http://llb.invalid/v1", "api_key": "none", "max_retries": 0}
