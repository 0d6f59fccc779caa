"""`Requests`: the calls that `Chat` and `Model` share."""

from __future__ import annotations

from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Literal,
    Mapping,
    Optional,
    Sequence,
    Type,
    TypeVar,
    Union,
    overload,
)

from ._parameters import NamedMethods, build_request, takes_parameters
from ._parse import parsed, with_format
from ._run import Conversation, Run, perform_all
from ._stream import Stream
from .types import Explanation, Messages, Reply, RequestParameters, Tools

if TYPE_CHECKING:
    from typing_extensions import Unpack

T = TypeVar("T")


class Requests(NamedMethods):
    """Checks and converts requests and replies. A subclass runs them."""

    def _perform(self, function: str, request: Mapping[str, Any]) -> Any:
        """Runs a request with a function of the library, and returns its reply."""
        raise NotImplementedError

    def _stream(self, request: Mapping[str, Any]) -> Stream:
        """Begins a request whose reply arrives in chunks."""
        raise NotImplementedError

    @overload
    def create(
        self,
        messages: Messages,
        tools: Optional[Tools] = None,
        stream: Literal[False] = False,
        *,
        extra_body: Optional[Mapping[str, Any]] = None,
        **parameters: Unpack[RequestParameters],
    ) -> Reply: ...
    @overload
    def create(
        self,
        messages: Messages,
        tools: Optional[Tools] = None,
        *,
        stream: Literal[True],
        extra_body: Optional[Mapping[str, Any]] = None,
        **parameters: Unpack[RequestParameters],
    ) -> Stream: ...
    @overload
    def create(
        self,
        messages: Messages,
        tools: Optional[Tools] = None,
        stream: bool = False,
        *,
        extra_body: Optional[Mapping[str, Any]] = None,
        **parameters: Unpack[RequestParameters],
    ) -> Union[Reply, Stream]: ...
    @takes_parameters
    def create(
        self,
        messages: Messages,
        tools: Optional[Tools] = None,
        stream: bool = False,
        *,
        extra_body: Optional[Mapping[str, Any]] = None,
        **parameters: Unpack[RequestParameters],
    ) -> Union[Reply, Stream]:
        """Generates the reply to `messages`, as OpenAI's chat completions do.

        The parameters have OpenAI's names where OpenAI defines them. None counts as absent. An
        unknown name raises TypeError. `extra_body` has members that a newer library knows; those
        that it does not know are listed in `ignored_keys` of the reply.

        Without `stream`, returns `{"type": "assistant_text" or "tool_call", "text",
        "reasoning_content", "tool_calls": [{"id", "name", "arguments"}], "finish_reason",
        "stop_sequence", "message", "usage", "timings", "logprobs", "polyfills_applied",
        "diagnostics"}`. `arguments` is JSON text. `message` is an OpenAI assistant message and can
        be appended to `messages` unchanged. `usage` counts tokens; `timings` has milliseconds,
        tokens per second, and the mean number of threads (`threads`).
        KeyboardInterrupt cancels the generation and is raised when it has ended.

        With `stream=True`, returns a `Stream` of chunks.

        Raises LlbError with `INVALID_REQUEST` and the JSON path of the field, `CONTEXT_OVERFLOW`,
        `TEMPLATE_ERROR`, `SCHEMA_UNSUPPORTED`, `CANCELLED`, `ENGINE_CLOSED` after `close`, `BUSY`
        in a callback, and others. Raises TypeError or ValueError if the request cannot be encoded
        as JSON.
        """
        request = build_request(self, "create", messages, tools, extra_body, parameters)
        if stream:
            return self._stream(request)
        reply: Reply = self._perform("llb_chat_infer", request)
        return reply

    @takes_parameters
    def explain(
        self,
        messages: Messages,
        tools: Optional[Tools] = None,
        *,
        extra_body: Optional[Mapping[str, Any]] = None,
        **parameters: Unpack[RequestParameters],
    ) -> Explanation:
        """Describes what `create` would do with this request, without generating a token.

        Returns `{"type": "explanation", "prompt", "prompt_tokens", "spans", "special_tokens",
        "polyfills_applied", "caps_used", "grammar", "output_format", "stop", "tokens_left",
        "cached_tokens", ...}`. Offsets in `spans` are UTF-8 byte offsets into `prompt`. Takes its
        turn among the calls on the chat. Raises what `create` raises.
        """
        request = build_request(self, "explain", messages, tools, extra_body, parameters)
        explanation: Explanation = self._perform("llb_chat_explain", request)
        return explanation

    @takes_parameters
    def parse(
        self,
        messages: Messages,
        reply_type: Type[T],
        *,
        extra_body: Optional[Mapping[str, Any]] = None,
        **parameters: Unpack[RequestParameters],
    ) -> T:
        """Generates a reply as JSON of a type, and returns a value of the type.

        `reply_type` is a dataclass, a TypedDict, a NamedTuple, a pydantic model, a msgspec struct,
        or any type made of these and of scalars, enums, lists and dicts. Its JSON Schema constrains
        the reply, and the value is validated. The prompt shows the schema to the model;
        `schema_in_prompt=False` leaves it out. Lists and strings without a bound of their own get
        one, and the reply 4,096 tokens; `bound_schema=False` lifts these bounds. `repeat_penalty`
        is 1.1 if it is not given.

        Raises what `create` raises, ReplyTruncated for a reply that was cut off, ReplyRefused for
        text that is not JSON, ReplyInvalid for JSON that does not fit, and TypeError for a type
        that JSON cannot represent.
        """
        typed = with_format(parameters, reply_type)
        request = build_request(self, "parse", messages, None, extra_body, typed)
        return parsed(self._perform("llb_chat_infer", request), reply_type)

    @takes_parameters
    def run(
        self,
        messages: Messages,
        tools: Sequence[Callable[..., Any]],
        *,
        max_rounds: int = 10,
        extra_body: Optional[Mapping[str, Any]] = None,
        **parameters: Unpack[RequestParameters],
    ) -> Run:
        """Lets the model call functions until it answers with text.

        Each function becomes a tool by its signature and docstring; its parameters need type
        annotations. The calls of one reply run at the same time, each on a thread; coroutine
        functions run in an event loop there. The model reads a result as text or JSON. An
        exception is a result too: `{"error": "ValueError: ..."}`.

        `max_rounds` is the maximum number of requests. A forced `tool_choice` holds for the first
        one. Returns the last reply and the whole conversation: `reply, messages = chat.run(...)`.
        Warns (`UserWarning`) if the last reply has text that looks like a call and is none.

        Raises what `create` raises, TooManyRounds, and TypeError for a function that cannot be a
        tool.
        """
        conversation = Conversation(
            self, "run", messages, tools, max_rounds, extra_body, parameters
        )
        while True:
            reply: Reply = self._perform("llb_chat_infer", conversation.request())
            calls = conversation.take(reply)
            if not calls:
                return Run(reply, conversation.messages)
            conversation.answer(calls, perform_all(calls))
