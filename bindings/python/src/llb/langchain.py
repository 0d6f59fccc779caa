"""`ChatLlb` and `LlbEmbeddings`: models for LangChain.

Need `langchain-core`: `pip install llb[langchain]`.
"""

from __future__ import annotations

import os
from operator import itemgetter
from typing import (
    Any,
    AsyncIterator,
    Callable,
    Dict,
    Iterator,
    List,
    Literal,
    Mapping,
    Optional,
    Sequence,
    Tuple,
    Type,
    Union,
    cast,
)

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.embeddings import Embeddings
from langchain_core.exceptions import OutputParserException
from langchain_core.language_models import LangSmithParams, LanguageModelInput
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    convert_to_openai_messages,
)
from langchain_core.messages.ai import UsageMetadata
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.output_parsers import JsonOutputParser, PydanticOutputParser
from langchain_core.output_parsers.base import OutputParserLike
from langchain_core.output_parsers.openai_tools import (
    JsonOutputKeyToolsParser,
    PydanticToolsParser,
    make_invalid_tool_call,
    parse_tool_call,
)
from langchain_core.outputs import (
    ChatGeneration,
    ChatGenerationChunk,
    ChatResult,
    Generation,
)
from langchain_core.runnables import Runnable, RunnableMap, RunnablePassthrough
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_json_schema, convert_to_openai_tool
from langchain_core.utils.pydantic import is_basemodel_subclass
from pydantic import BaseModel, Field, PrivateAttr

from ._frameworks import FrameworkChat
from ._frameworks import FrameworkEmbedder
from ._parameters import build_request
from .types import Chunk, Message, Reply

Schema = Union[Dict[str, Any], type]


class ChatLlb(BaseChatModel):
    """A GGUF model in this process as a LangChain chat model.

    `model` is the file. The chat is opened on first use, with `options`, which are those of `Chat`.
    The other fields are parameters of each request, and `parameters` has any further ones.
    Reasoning is in `additional_kwargs["reasoning_content"]`.
    """

    model: str
    options: Dict[str, Any] = Field(default_factory=dict)
    temperature: Optional[float] = None
    max_tokens: Optional[int] = None
    top_p: Optional[float] = None
    seed: Optional[int] = None
    stop: Optional[List[str]] = None
    timeout: Optional[float] = None
    """Seconds."""
    parameters: Dict[str, Any] = Field(default_factory=dict)

    _chat: FrameworkChat = PrivateAttr()

    def model_post_init(self, context: Any, /) -> None:
        """Called by pydantic."""
        super().model_post_init(context)
        self._chat = FrameworkChat(self.model, self.options)

    @property
    def _llm_type(self) -> str:
        return "llb"

    @property
    def _identifying_params(self) -> Mapping[str, Any]:
        return {"model": self.model, **self._defaults()}

    def _get_ls_params(self, stop: Optional[List[str]] = None, **kwargs: Any) -> LangSmithParams:
        params = super()._get_ls_params(stop=stop, **kwargs)
        params["ls_provider"] = "llb"
        return params

    def close(self) -> None:
        """Frees the chat. The next use opens it again."""
        self._chat.close()

    def _defaults(self) -> Dict[str, Any]:
        timeout = None if self.timeout is None else int(self.timeout * 1000)
        own = {
            "temperature": self.temperature,
            "max_tokens": self.max_tokens,
            "top_p": self.top_p,
            "seed": self.seed,
            "stop": self.stop or None,
            "timeout_ms": timeout,
        }
        return {
            **{name: value for name, value in own.items() if value is not None},
            **self.parameters,
        }

    def _request(
        self, messages: List[BaseMessage], stop: Optional[List[str]], given: Mapping[str, Any]
    ) -> Dict[str, Any]:
        parameters = {**self._defaults(), **given}
        if stop is not None:
            parameters["stop"] = stop
        # The model of a request is only a name for traces.
        for name in ("model", "ls_structured_output_format"):
            parameters.pop(name, None)
        converted = cast(List[Message], convert_to_openai_messages(messages))
        tools = parameters.pop("tools", None)
        return build_request(self, "invoke", converted, tools, None, parameters)

    def _generate(
        self,
        messages: List[BaseMessage],
        stop: Optional[List[str]] = None,
        run_manager: Optional[CallbackManagerForLLMRun] = None,
        **kwargs: Any,
    ) -> ChatResult:
        return self._result(self._chat.create(self._request(messages, stop, kwargs)))

    async def _agenerate(
        self,
        messages: List[BaseMessage],
        stop: Optional[List[str]] = None,
        run_manager: Optional[AsyncCallbackManagerForLLMRun] = None,
        **kwargs: Any,
    ) -> ChatResult:
        request = self._request(messages, stop, kwargs)
        return self._result(await self._chat.create_async(request))

    def _stream(
        self,
        messages: List[BaseMessage],
        stop: Optional[List[str]] = None,
        run_manager: Optional[CallbackManagerForLLMRun] = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        with self._chat.stream(self._request(messages, stop, kwargs)) as stream:
            for chunk in stream:
                generation = self._chunk(chunk)
                if run_manager is not None:
                    run_manager.on_llm_new_token(generation.text, chunk=generation)
                yield generation

    async def _astream(
        self,
        messages: List[BaseMessage],
        stop: Optional[List[str]] = None,
        run_manager: Optional[AsyncCallbackManagerForLLMRun] = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        request = self._request(messages, stop, kwargs)
        async with await self._chat.stream_async(request) as stream:
            async for chunk in stream:
                generation = self._chunk(chunk)
                if run_manager is not None:
                    await run_manager.on_llm_new_token(generation.text, chunk=generation)
                yield generation

    def _metadata(self, finish_reason: str, diagnostics: Sequence[Any]) -> Dict[str, Any]:
        metadata: Dict[str, Any] = {
            "finish_reason": finish_reason,
            "model_name": os.path.basename(self.model),
            "model_provider": "llb",
        }
        if diagnostics:
            metadata["diagnostics"] = list(diagnostics)
        return metadata

    def _result(self, reply: Reply) -> ChatResult:
        calls: List[Any] = []
        invalid: List[Any] = []
        for raw in reply["message"].get("tool_calls", []):
            call = cast(Dict[str, Any], raw)
            try:
                calls.append(parse_tool_call(call, return_id=True))
            except Exception as error:
                invalid.append(make_invalid_tool_call(call, str(error)))
        reasoning = reply["reasoning_content"]
        message = AIMessage(
            content=reply["text"],
            tool_calls=calls,
            invalid_tool_calls=invalid,
            additional_kwargs={"reasoning_content": reasoning} if reasoning else {},
            response_metadata=self._metadata(reply["finish_reason"], reply["diagnostics"]),
            usage_metadata=_usage(cast(Dict[str, Any], reply["usage"])),
        )
        info = {"finish_reason": reply["finish_reason"], "logprobs": reply["logprobs"]}
        return ChatResult(generations=[ChatGeneration(message=message, generation_info=info)])

    def _chunk(self, chunk: Chunk) -> ChatGenerationChunk:
        choice = chunk["choices"][0]
        delta = choice["delta"]
        calls = [
            tool_call_chunk(
                name=each["function"].get("name"),
                args=each["function"].get("arguments"),
                id=each.get("id"),
                index=each["index"],
            )
            for each in delta.get("tool_calls", [])
        ]
        reasoning = delta.get("reasoning_content")
        reason = choice["finish_reason"]
        usage = chunk.get("usage")
        message = AIMessageChunk(
            content=delta.get("content") or "",
            tool_call_chunks=calls,
            additional_kwargs={"reasoning_content": reasoning} if reasoning else {},
            response_metadata=(
                self._metadata(reason, chunk.get("diagnostics", [])) if reason else {}
            ),
            usage_metadata=_usage(cast(Dict[str, Any], usage)) if usage else None,
            chunk_position="last" if reason else None,
        )
        logprobs = choice.get("logprobs")
        info = {"logprobs": logprobs} if logprobs else None
        return ChatGenerationChunk(message=message, generation_info=info)

    def bind_tools(
        self,
        tools: Sequence[Union[Dict[str, Any], type, Callable[..., Any], BaseTool]],
        *,
        tool_choice: Optional[Union[str, bool, Dict[str, Any]]] = None,
        strict: Optional[bool] = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Binds tools. `tool_choice` is "auto", "none", "any" (meaning "required"), or a tool's
        name."""
        converted = [convert_to_openai_tool(tool, strict=strict) for tool in tools]
        choice: Any = tool_choice
        if choice in ("any", True):
            choice = "required"
        elif isinstance(choice, str) and choice not in ("auto", "none", "required"):
            choice = {"type": "function", "function": {"name": choice}}
        if choice is not None and choice is not False:
            kwargs["tool_choice"] = choice
        return cast("Runnable[LanguageModelInput, AIMessage]", self.bind(tools=converted, **kwargs))

    def with_structured_output(
        self,
        schema: Schema,
        *,
        include_raw: bool = False,
        method: Literal["json_schema", "function_calling", "json_mode"] = "json_schema",
        strict: Optional[bool] = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, Any]:
        """Makes replies values of a schema: a pydantic model, a TypedDict or a JSON Schema.

        With "json_schema" a grammar constrains the reply, with "function_calling" a forced call.
        """
        bound, parser = self._structured(schema, method, strict)
        if not include_raw:
            return bound | parser
        parse = RunnablePassthrough.assign(
            parsed=itemgetter("raw") | parser, parsing_error=lambda _: None
        )
        failed = RunnablePassthrough.assign(parsed=lambda _: None)
        fallback = parse.with_fallbacks([failed], exception_key="parsing_error")
        return RunnableMap(raw=bound) | fallback

    def _structured(
        self, schema: Schema, method: str, strict: Optional[bool]
    ) -> Tuple[Runnable[LanguageModelInput, AIMessage], OutputParserLike[Any]]:
        model: Optional[Type[BaseModel]] = None
        if isinstance(schema, type) and is_basemodel_subclass(schema):
            model = cast(Type[BaseModel], schema)
        # Read by tracers.
        json_schema = convert_to_json_schema(schema)
        traced = {"kwargs": {"method": method, "strict": strict}, "schema": json_schema}
        if method == "function_calling":
            tool = convert_to_openai_tool(schema, strict=strict)
            name: str = tool["function"]["name"]
            bound = self.bind_tools(
                [schema],
                tool_choice=name,
                parallel_tool_calls=False,
                ls_structured_output_format=traced,
            )
            if model is not None:
                return bound, PydanticToolsParser(tools=[model], first_tool_only=True)
            return bound, JsonOutputKeyToolsParser(key_name=name, first_tool_only=True)
        form: Dict[str, Any] = {"type": "json_object"}
        if method == "json_schema":
            title = str(json_schema.get("title", "reply"))
            form = {"type": "json_schema", "json_schema": {"name": title, "schema": json_schema}}
        parser: Any = (
            _WholeJsonParser() if model is None else _WholePydanticParser(pydantic_object=model)
        )
        bound = cast(
            "Runnable[LanguageModelInput, AIMessage]",
            self.bind(
                response_format=form,
                schema_in_prompt=True,
                bound_schema=True,
                ls_structured_output_format=traced,
            ),
        )
        return bound, parser


class _WholeJsonParser(JsonOutputParser):
    """Reads JSON. A reply that was cut off is an error, not the part that can be read."""

    def parse_result(self, result: List[Generation], *, partial: bool = False) -> Any:
        """Raises OutputParserException for a reply that was cut off or is no JSON."""
        _require_whole(result, partial)
        return super().parse_result(result, partial=partial)


class _WholePydanticParser(PydanticOutputParser[Any]):
    """Like `_WholeJsonParser`, for a pydantic model."""

    def parse_result(self, result: List[Generation], *, partial: bool = False) -> Any:
        """Raises OutputParserException also for JSON that is not of the model."""
        _require_whole(result, partial)
        return super().parse_result(result, partial=partial)


def _require_whole(result: List[Generation], partial: bool) -> None:
    message = getattr(result[0], "message", None)
    metadata = getattr(message, "response_metadata", {})
    if not partial and metadata.get("finish_reason") == "length":
        raise OutputParserException(
            "the reply was cut off; a larger max_tokens or a shorter prompt leaves more room",
            llm_output=result[0].text,
        )


def _usage(usage: Mapping[str, Any]) -> UsageMetadata:
    metadata: Dict[str, Any] = {
        "input_tokens": usage["prompt_tokens"],
        "output_tokens": usage["completion_tokens"],
        "total_tokens": usage["total_tokens"],
        "input_token_details": {"cache_read": usage["prompt_tokens_details"]["cached_tokens"]},
    }
    details = usage.get("completion_tokens_details", {})
    if "reasoning_tokens" in details:
        metadata["output_token_details"] = {"reasoning": details["reasoning_tokens"]}
    # pyright 1.1.414 takes optional members of this TypedDict for required ones.
    return cast(UsageMetadata, metadata)


class LlbEmbeddings(BaseModel, Embeddings):
    """A GGUF model in this process that computes vectors of texts for LangChain.

    `model` is the file. It is opened on first use, with `options`, which are those of `Embedder`.
    `query_prefix` and `document_prefix` are what the model was trained with, such as "query: ".
    `parameters` are further ones of `Embedder.embed`, such as `dimensions` and `truncate`. Calls
    may come from any thread and from any event loop.
    """

    model: str
    options: Dict[str, Any] = Field(default_factory=dict)
    query_prefix: Optional[str] = None
    document_prefix: Optional[str] = None
    parameters: Dict[str, Any] = Field(default_factory=dict)

    _embedder: FrameworkEmbedder = PrivateAttr()

    def model_post_init(self, context: Any, /) -> None:
        """Called by pydantic."""
        self._embedder = FrameworkEmbedder(self.model, self.options)

    def close(self) -> None:
        """Frees the model. The next use opens it again."""
        self._embedder.close()

    def embed_documents(self, texts: List[str]) -> List[List[float]]:
        """Computes vectors of texts that will be searched."""
        return self._embedder.embed(self._request(texts, self.document_prefix))

    def embed_query(self, text: str) -> List[float]:
        """Computes the vector of a query."""
        return self._embedder.embed(self._request([text], self.query_prefix))[0]

    async def aembed_documents(self, texts: List[str]) -> List[List[float]]:
        """Like `embed_documents`. If the task is cancelled, cancels the call."""
        return await self._embedder.embed_async(self._request(texts, self.document_prefix))

    async def aembed_query(self, text: str) -> List[float]:
        """Like `embed_query`."""
        return (await self._embedder.embed_async(self._request([text], self.query_prefix)))[0]

    def _request(self, texts: List[str], prefix: Optional[str]) -> Dict[str, Any]:
        return {**self.parameters, "input": texts, "prefix": prefix}
