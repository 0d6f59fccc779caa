"""The parameters of a chat request: one table of names, types and descriptions.

Type checkers read the table from `RequestParameters`. `build_request` refuses other names.
`takes_parameters` shows the table in `help` and `inspect.signature`.
"""

# Annotations are not postponed, because the table is read at run time.

import difflib
import functools
import inspect
from types import FunctionType
from typing import (
    Any,
    Callable,
    Dict,
    Literal,
    Mapping,
    Optional,
    Sequence,
    TypedDict,
    TypeVar,
    Union,
    get_args,
)

# `typing.Annotated` with the description as its metadata.
from typing import Annotated as Doc

from ._media import with_media

F = TypeVar("F", bound=Callable[..., Any])


class RequestParameters(TypedDict, total=False):
    """The parameters of `Chat.create` and `Chat.explain`. None counts as absent.

    Names and defaults are those of the library (docs/abi.md, "Chat requests").
    """

    tool_choice: Doc[
        Optional[Union[Literal["auto", "none", "required"], Mapping[str, Any]]],
        'whether tools are called, or `{"type": "function", "function": {"name"}}`; "auto"',
    ]
    parallel_tool_calls: Doc[Optional[bool], "several calls in one reply; True"]
    untagged_calls: Doc[
        Optional[bool], "text that is plainly calls, but lacks the model's tags, is calls; True"
    ]
    skills: Doc[
        Optional[Sequence[Mapping[str, Any]]],
        "objects with `name` and `description` that the template may list",
    ]
    response_format: Doc[
        Optional[Mapping[str, Any]],
        'the form of the text: `{"type": "json_object"}`, or `{"type": "json_schema", ...}`',
    ]
    schema_in_prompt: Doc[
        Optional[bool], "the prompt shows the schema of `response_format` to the model; False"
    ]
    bound_schema: Doc[
        Optional[bool], "lists and strings of the schema get bounds, and the reply a limit; False"
    ]
    grammar: Doc[Optional[str], "a Lark grammar of the text"]
    prompt: Doc[
        Union[str, Sequence[int], None],
        "a text, or token ids, that the model continues, instead of messages",
    ]
    suffix: Doc[Optional[str], "the text after the reply, which fills the gap after `prompt`"]
    max_tokens: Doc[Optional[int], "the most tokens of the reply; what fits the context"]
    max_completion_tokens: Doc[Optional[int], "the same as `max_tokens`"]
    temperature: Doc[
        Optional[float], "0 takes the likeliest token; 0.7, or what the model file says"
    ]
    top_p: Doc[Optional[float], "keep the likeliest tokens up to this probability; 0.95"]
    top_k: Doc[Optional[int], "keep this number of tokens, 0 or -1 for all; 40"]
    min_p: Doc[
        Optional[float], "drop tokens below this part of the likeliest one's probability; 0.05"
    ]
    typical_p: Doc[Optional[float], "locally typical sampling; 1.0 (off)"]
    repeat_penalty: Doc[Optional[float], "penalty for tokens that have occurred; 1.0 (off)"]
    presence_penalty: Doc[Optional[float], "as in OpenAI's API; 0"]
    frequency_penalty: Doc[Optional[float], "as in OpenAI's API; 0"]
    repeat_last_n: Doc[Optional[int], "latest tokens that the penalties look at, -1 for all; 64"]
    samplers: Doc[
        Optional[Sequence[str]], "the samplers in order; others are off; llama.cpp's order"
    ]
    dry_multiplier: Doc[Optional[float], "strength of DRY against repeated sequences; 0 (off)"]
    dry_base: Doc[Optional[float], "how fast DRY grows with the length of a repetition; 1.75"]
    dry_allowed_length: Doc[Optional[int], "from this length on, DRY penalizes a repetition; 2"]
    dry_penalty_last_n: Doc[Optional[int], "latest tokens that DRY looks at, -1 for all; 64"]
    dry_sequence_breakers: Doc[
        Optional[Sequence[str]], "texts across which nothing is a repetition"
    ]
    top_n_sigma: Doc[
        Optional[float], "drop logits this many standard deviations below the best; -1 (off)"
    ]
    xtc_probability: Doc[Optional[float], "how often XTC drops the likeliest tokens; 0 (off)"]
    xtc_threshold: Doc[
        Optional[float], "XTC drops tokens from this probability on but the last; 0.1"
    ]
    dynatemp_range: Doc[Optional[float], "how much temperature varies with the entropy; 0 (off)"]
    dynatemp_exponent: Doc[Optional[float], "exponent of the entropy's share; 1"]
    mirostat: Doc[Optional[Literal[0, 2]], "2 draws by Mirostat 2.0; 0 (off)"]
    mirostat_tau: Doc[Optional[float], "target surprise of Mirostat in bits; 5"]
    mirostat_eta: Doc[Optional[float], "learning rate of Mirostat; 0.1"]
    adaptive_target: Doc[
        Optional[float], "probability that the sampler adaptive_p prefers; -1 (off)"
    ]
    adaptive_decay: Doc[Optional[float], "how much of its history adaptive_p keeps; 0.9"]
    seed: Doc[Optional[int], "any integer, of which the low 32 bits count; negative is random"]
    stop: Doc[Optional[Union[str, Sequence[str]]], "strings that end the reply"]
    stop_scope: Doc[
        Optional[Literal["answer", "all"]],
        "where stop strings are searched: in the answer, or in reasoning and markup too",
    ]
    logit_bias: Doc[Optional[Mapping[str, float]], "token ids, as text, to numbers added to logits"]
    logprobs: Doc[Optional[bool], "log probabilities of the tokens; False"]
    top_logprobs: Doc[Optional[int], "the likeliest tokens of each entry of `logprobs`, 0 to 20"]
    enable_thinking: Doc[Optional[bool], "whether the model reasons; what the template does"]
    reasoning_effort: Doc[Optional[str], 'such as "low"; what the template does']
    preserve_reasoning: Doc[Optional[bool], "keep the reasoning of earlier turns in the prompt"]
    reasoning_budget: Doc[
        Optional[int], "the most tokens of each block of reasoning; -1 (no limit)"
    ]
    reasoning_budget_tokens: Doc[Optional[int], "the same as `reasoning_budget`"]
    thinking_budget_tokens: Doc[Optional[int], "the same as `reasoning_budget`"]
    reasoning_budget_message: Doc[
        Optional[str], "text at the end of reasoning that does not end by itself"
    ]
    n_keep: Doc[
        Optional[int], "the first tokens that a context shift keeps; 0, and -1 is the whole prompt"
    ]
    context_overflow: Doc[
        Optional[str],
        'for this request: "error", "truncate_oldest" or "truncate_middle"; the chat\'s',
    ]
    chat_template_kwargs: Doc[Optional[Mapping[str, Any]], "further variables of the template"]
    add_generation_prompt: Doc[Optional[bool], "the prompt opens an assistant turn; True"]
    continue_final_message: Doc[
        Optional[Union[bool, str]], "the reply continues the last message, or the member named here"
    ]
    now: Doc[Optional[str], "local time for the template, `2026-01-31T09:30:00`; the clock"]
    polyfills: Doc[Optional[Mapping[str, Any]], "adaptations of the messages; those of the chat"]
    parse_special_in_messages: Doc[Optional[bool], "text may become special tokens; False"]
    cache_prompt: Doc[Optional[bool], "reuse a prefix from the KV cache; True"]
    lora: Doc[
        Optional[Sequence[Mapping[str, Any]]],
        'adapters by their place in the chat\'s `lora`: `{"id": 0, "scale": 0.5}`; the chat\'s',
    ]
    speculative: Doc[
        Optional[Literal["auto", "off"]], 'whether tokens are guessed: "auto" (as the chat), "off"'
    ]
    stream_format: Doc[Optional[Literal["chunks"]], "the form of a stream, which is always chunks"]
    stream_options: Doc[
        Optional[Mapping[str, Any]], '`{"include_usage": True}`: last chunk has usage'
    ]
    timeout_ms: Doc[
        Optional[int],
        "milliseconds, the wait for earlier calls included; then the call is cancelled",
    ]


_NAMES = frozenset(RequestParameters.__annotations__)


def build_request(
    caller: object,
    method: str,
    messages: Sequence[Mapping[str, Any]],
    tools: Optional[Sequence[Mapping[str, Any]]],
    extra_body: Optional[Mapping[str, Any]],
    parameters: Mapping[str, Any],
) -> Dict[str, Any]:
    """Returns the request. Pictures become data URLs. Members of `extra_body` are added unchecked,
    and replace others.

    Raises TypeError for a parameter that is not in the table. It names the method of `caller`.
    """
    if not parameters.keys() <= _NAMES:
        unknown = next(name for name in parameters if name not in _NAMES)
        raise TypeError(_unknown(f"{type(caller).__name__}.{method}", unknown))
    request = {"messages": with_media(messages), "tools": tools, **parameters}
    return {**request, **extra_body} if extra_body else request


def _unknown(method: str, name: str) -> str:
    known = ["messages", "tools", *RequestParameters.__annotations__]
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else "use extra_body for names new to this package"
    return f"{method}() got an unexpected keyword argument {name!r}; {hint}"


class NamedMethods:
    """A mixin whose subclasses have methods under their own name.

    Python's messages name the class that defines a method: `Requests.create() missing ...`. Callers
    know only `Chat` and `Model`.
    """

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        for base in cls.__mro__[1:]:
            for name, method in vars(base).items():
                is_renamed = isinstance(method, FunctionType) and hasattr(method, "__signature__")
                if is_renamed and name not in vars(cls) and getattr(cls, name) is method:
                    setattr(cls, name, _renamed(method, f"{cls.__name__}.{name}"))


def _renamed(function: FunctionType, name: str) -> FunctionType:
    """Returns the same function with another qualified name."""
    renamed = FunctionType(
        function.__code__,
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    functools.update_wrapper(renamed, function)
    renamed.__kwdefaults__ = function.__kwdefaults__
    renamed.__qualname__ = name
    delattr(renamed, "__wrapped__")
    return renamed


def takes_parameters(function: F) -> F:
    """Adds the table to the docstring and signature of a function with `**parameters`."""
    table = RequestParameters.__annotations__
    signature = inspect.signature(function)
    named = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
    keywords = [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=get_args(annotation)[0]
        )
        for name, annotation in table.items()
    ]
    # Only `inspect` reads `__signature__`, and type checkers do not know it.
    setattr(function, "__signature__", signature.replace(parameters=[*named, *keywords]))
    lines = "\n".join(f"    {name}: {get_args(doc)[1]}" for name, doc in table.items())
    text = inspect.cleandoc(function.__doc__ or "")
    function.__doc__ = f"{text}\n\nParameters, with their defaults after the semicolon:\n{lines}\n"
    return function
