"""`Llb` and `LlbEmbedding`: models for LlamaIndex.

Need `llama-index-core`: `pip install llb[llama-index]`.
"""

# LlamaIndex's decorators of methods have no types.
# pyright: reportUnknownVariableType=false, reportUntypedFunctionDecorator=false

from __future__ import annotations

import json
import os
from typing import (
    Any,
    AsyncGenerator,
    Dict,
    Generator,
    Iterator,
    List,
    Mapping,
    Optional,
    Sequence,
    Union,
)

from llama_index.core.base.llms.generic_utils import (
    achat_to_completion_decorator,
    astream_chat_to_completion_decorator,
    chat_to_completion_decorator,
    stream_chat_to_completion_decorator,
)
from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    ChatResponseAsyncGen,
    ChatResponseGen,
    CompletionResponse,
    CompletionResponseAsyncGen,
    CompletionResponseGen,
    ContentBlock,
    ImageBlock,
    LLMMetadata,
    MessageRole,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
)
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import Field, PrivateAttr
from llama_index.core.llms.callbacks import llm_chat_callback, llm_completion_callback
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.llms.llm import ToolSelection
from llama_index.core.tools.types import BaseTool

from ._base_stream import reasoning_of, text_of
from ._frameworks import FrameworkChat
from ._frameworks import FrameworkEmbedder
from ._model_info import model_info
from ._parameters import build_request
from .types import Chunk, Message, Reply

# The library's own default, which is also an upper bound for a model's context.
_MAX_CONTEXT = 8192


class Llb(FunctionCallingLLM):
    """A GGUF model in this process as a LlamaIndex model with function calling.

    `model` is the file. The chat is opened on first use, with `options`, which are those of `Chat`.
    `parameters` are those of each request. Reasoning is a `ThinkingBlock`, calls are
    `ToolCallBlock`s. Calls may come from any thread and from any event loop.
    """

    model: str
    options: Dict[str, Any] = Field(default_factory=dict)
    temperature: Optional[float] = None
    max_tokens: Optional[int] = None
    parameters: Dict[str, Any] = Field(default_factory=dict)

    _chat: FrameworkChat = PrivateAttr()
    _metadata: Optional[LLMMetadata] = PrivateAttr(default=None)

    def model_post_init(self, context: Any, /) -> None:
        """Called by pydantic."""
        super().model_post_init(context)
        self._chat = FrameworkChat(self.model, self.options)

    @classmethod
    def class_name(cls) -> str:
        """The name in serialized objects."""
        return "llb"

    @property
    def metadata(self) -> LLMMetadata:
        """The model's properties, from the file's header. Raises what `model_info` raises."""
        if self._metadata is None:
            info = model_info(self.model)
            policy = self.options.get("tool_policy")
            self._metadata = LLMMetadata(
                context_window=self.options.get("n_ctx")
                or min(info["context_length"] or _MAX_CONTEXT, _MAX_CONTEXT),
                num_output=self.max_tokens or 256,
                is_chat_model=True,
                is_function_calling_model=info["supports_tools"] or policy == "polyfill",
                model_name=os.path.basename(self.model),
            )
        return self._metadata

    def close(self) -> None:
        """Frees the chat. The next use opens it again."""
        self._chat.close()

    @llm_chat_callback()
    def chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        """Generates the reply to messages."""
        return _response(self._chat.create(self._request(messages, kwargs)))

    @llm_chat_callback()
    async def achat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        """Like `chat`. If the task is cancelled, cancels the generation."""
        return _response(await self._chat.create_async(self._request(messages, kwargs)))

    @llm_chat_callback()
    def stream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponseGen:
        """Streams the reply. Tool calls are in the last response."""
        request = self._request(messages, kwargs)

        def responses() -> Generator[ChatResponse, None, None]:
            parts = _Parts()
            with self._chat.stream(request) as stream:
                for chunk in stream:
                    yield parts.add(chunk)
                if stream.reply is not None:
                    yield _response(stream.reply, delta="")

        return responses()

    @llm_chat_callback()
    async def astream_chat(
        self, messages: Sequence[ChatMessage], **kwargs: Any
    ) -> ChatResponseAsyncGen:
        """Like `stream_chat`, for asyncio."""
        request = self._request(messages, kwargs)

        async def responses() -> AsyncGenerator[ChatResponse, None]:
            parts = _Parts()
            async with await self._chat.stream_async(request) as stream:
                async for chunk in stream:
                    yield parts.add(chunk)
                if stream.reply is not None:
                    yield _response(stream.reply, delta="")

        return responses()

    @llm_completion_callback()
    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        """Generates the reply to a user message."""
        return chat_to_completion_decorator(self.chat)(prompt, **kwargs)

    @llm_completion_callback()
    async def acomplete(
        self, prompt: str, formatted: bool = False, **kwargs: Any
    ) -> CompletionResponse:
        """Like `complete`, for asyncio."""
        return await achat_to_completion_decorator(self.achat)(prompt, **kwargs)

    @llm_completion_callback()
    def stream_complete(
        self, prompt: str, formatted: bool = False, **kwargs: Any
    ) -> CompletionResponseGen:
        """Streams the reply to a user message."""
        return stream_chat_to_completion_decorator(self.stream_chat)(prompt, **kwargs)

    @llm_completion_callback()
    async def astream_complete(
        self, prompt: str, formatted: bool = False, **kwargs: Any
    ) -> CompletionResponseAsyncGen:
        """Like `stream_complete`, for asyncio."""
        return await astream_chat_to_completion_decorator(self.astream_chat)(prompt, **kwargs)

    def get_tool_calls_from_response(
        self, response: ChatResponse, error_on_no_tool_call: bool = True, **kwargs: Any
    ) -> List[ToolSelection]:
        """Returns the tool calls of a reply. Raises ValueError if there are none."""
        calls = [block for block in response.message.blocks if isinstance(block, ToolCallBlock)]
        if not calls and error_on_no_tool_call:
            raise ValueError(f"the model called no tool: {response.message.content!r}")
        return [
            ToolSelection(
                tool_id=call.tool_call_id or "",
                tool_name=call.tool_name,
                tool_kwargs=_arguments(call.tool_kwargs),
            )
            for call in calls
        ]

    def _prepare_chat_with_tools(
        self,
        tools: Sequence[BaseTool],
        user_msg: Optional[Union[str, ChatMessage]] = None,
        chat_history: Optional[List[ChatMessage]] = None,
        verbose: bool = False,
        allow_parallel_tool_calls: bool = False,
        tool_required: bool = False,
        **kwargs: Any,
    ) -> Dict[str, Any]:
        messages = list(chat_history or [])
        if isinstance(user_msg, str):
            user_msg = ChatMessage(role=MessageRole.USER, content=user_msg)
        if user_msg is not None:
            messages.append(user_msg)
        schemas = [tool.metadata.to_openai_tool(skip_length_check=True) for tool in tools]
        request = {"messages": messages, "tools": schemas or None, **kwargs}
        if schemas:
            request["parallel_tool_calls"] = allow_parallel_tool_calls
            request.setdefault("tool_choice", "required" if tool_required else "auto")
        return request

    def _request(self, messages: Sequence[ChatMessage], given: Mapping[str, Any]) -> Dict[str, Any]:
        own = {"temperature": self.temperature, "max_tokens": self.max_tokens}
        parameters: Dict[str, Any] = {**own, **self.parameters, **given}
        tools = parameters.pop("tools", None)
        return build_request(
            self, "chat", [_message(each) for each in messages], tools, None, parameters
        )


class _Parts:
    """The reply so far. Each response of a stream has all of it, and the new part as `delta`."""

    def __init__(self) -> None:
        self._text = ""
        self._reasoning = ""

    def add(self, chunk: Chunk) -> ChatResponse:
        text, reasoning = text_of(chunk), reasoning_of(chunk)
        self._text += text
        self._reasoning += reasoning
        blocks = _blocks(self._text, self._reasoning)
        message = ChatMessage(role=MessageRole.ASSISTANT, blocks=blocks)
        extra = {"thinking_delta": reasoning} if reasoning else {}
        return ChatResponse(message=message, delta=text, raw=chunk, additional_kwargs=extra)


def _blocks(text: str, reasoning: Optional[str]) -> List[ContentBlock]:
    blocks: List[ContentBlock] = [ThinkingBlock(content=reasoning)] if reasoning else []
    return [*blocks, TextBlock(text=text)]


def _response(reply: Reply, delta: Optional[str] = None) -> ChatResponse:
    calls: List[ContentBlock] = [
        ToolCallBlock(
            tool_call_id=call["id"],
            tool_name=call["name"],
            tool_kwargs=_arguments(call["arguments"]),
        )
        for call in reply["tool_calls"]
    ]
    message = ChatMessage(
        role=MessageRole.ASSISTANT,
        blocks=[*_blocks(reply["text"], reply["reasoning_content"]), *calls],
    )
    # The token counter reads the usage from here.
    usage = reply["usage"]
    counts = {
        "prompt_tokens": usage["prompt_tokens"],
        "completion_tokens": usage["completion_tokens"],
        "total_tokens": usage["total_tokens"],
    }
    return ChatResponse(message=message, delta=delta, raw=reply, additional_kwargs=counts)


def _arguments(arguments: Union[str, Dict[str, Any]]) -> Dict[str, Any]:
    parsed: Dict[str, Any] = json.loads(arguments) if isinstance(arguments, str) else arguments
    return parsed


def _message(message: ChatMessage) -> Message:
    """A message in OpenAI's shape. Raises TypeError for content that the library cannot take."""
    converted: Dict[str, Any] = {"role": message.role.value, "content": message.content or ""}
    calls: List[Dict[str, Any]] = []
    for block in message.blocks:
        if isinstance(block, ToolCallBlock):
            arguments = json.dumps(_arguments(block.tool_kwargs), ensure_ascii=False)
            function = {"name": block.tool_name, "arguments": arguments}
            calls.append({"id": block.tool_call_id, "type": "function", "function": function})
        elif isinstance(block, ThinkingBlock):
            converted["reasoning_content"] = block.content or ""
        elif not isinstance(block, (TextBlock, ImageBlock)):
            kind = block.block_type
            raise TypeError(f"a message has a {kind} block; llb takes text and images only")
    if any(isinstance(block, ImageBlock) for block in message.blocks):
        converted["content"] = list(_parts(message.blocks))
    if calls:
        converted["tool_calls"] = calls
    for name in ("tool_call_id", "name"):
        if name in message.additional_kwargs:
            converted[name] = message.additional_kwargs[name]
    return converted


def _parts(blocks: Sequence[ContentBlock]) -> Iterator[Dict[str, Any]]:
    for block in blocks:
        if isinstance(block, TextBlock):
            yield {"type": "text", "text": block.text}
        elif isinstance(block, ImageBlock) and block.image is not None:
            yield {"type": "image", "image": block.resolve_image().read()}
        elif isinstance(block, ImageBlock) and block.path is not None:
            yield {"type": "image", "path": block.path}
        elif isinstance(block, ImageBlock):
            yield {"type": "image", "url": str(block.url)}


class LlbEmbedding(BaseEmbedding):
    """A GGUF model in this process that computes vectors of texts for LlamaIndex.

    `model` is the file. It is opened on first use, with `options`, which are those of `Embedder`.
    `query_prefix` and `text_prefix` are what the model was trained with, such as "query: ".
    `parameters` are further ones of `Embedder.embed`, such as `dimensions` and `truncate`. Calls
    may come from any thread and from any event loop.
    """

    model: str
    options: Dict[str, Any] = Field(default_factory=dict)
    query_prefix: Optional[str] = None
    text_prefix: Optional[str] = None
    parameters: Dict[str, Any] = Field(default_factory=dict)

    _embedder: FrameworkEmbedder = PrivateAttr()

    def model_post_init(self, context: Any, /) -> None:
        """Called by pydantic."""
        super().model_post_init(context)
        self._embedder = FrameworkEmbedder(self.model, self.options)
        self.model_name = os.path.basename(self.model)

    @classmethod
    def class_name(cls) -> str:
        """The name in serialized objects."""
        return "llb_embedding"

    def close(self) -> None:
        """Frees the model. The next use opens it again."""
        self._embedder.close()

    def _get_query_embedding(self, query: str) -> List[float]:
        return self._embedder.embed(self._request([query], self.query_prefix))[0]

    async def _aget_query_embedding(self, query: str) -> List[float]:
        return (await self._embedder.embed_async(self._request([query], self.query_prefix)))[0]

    def _get_text_embedding(self, text: str) -> List[float]:
        return self._get_text_embeddings([text])[0]

    def _get_text_embeddings(self, texts: List[str]) -> List[List[float]]:
        return self._embedder.embed(self._request(texts, self.text_prefix))

    async def _aget_text_embedding(self, text: str) -> List[float]:
        return (await self._aget_text_embeddings([text]))[0]

    async def _aget_text_embeddings(self, texts: List[str]) -> List[List[float]]:
        return await self._embedder.embed_async(self._request(texts, self.text_prefix))

    def _request(self, texts: List[str], prefix: Optional[str]) -> Dict[str, Any]:
        return {**self.parameters, "input": texts, "prefix": prefix}
