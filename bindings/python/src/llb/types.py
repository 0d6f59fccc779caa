"""The shapes of requests, replies and chunks, for type checkers and for annotations.

All are plain dicts at run time. A shape states the members that are always there; members that only
some replies have are in its subclass with `total=False`. They are in one module because they refer
to each other.
"""

from __future__ import annotations

from typing import Any, Dict, List, Literal, Mapping, Optional, Sequence, TypedDict, Union

from ._parameters import RequestParameters

__all__ = [
    "AssistantMessage",
    "Backend",
    "Backends",
    "CallFunction",
    "CallFunctionDelta",
    "Chunk",
    "ChunkChoice",
    "ContextError",
    "ContextMemory",
    "ContextOptions",
    "Delta",
    "Diagnostic",
    "Embedding",
    "EmbeddingUsage",
    "Embeddings",
    "Explanation",
    "FetchedModel",
    "FinishReason",
    "Message",
    "MessageToolCall",
    "Messages",
    "ModelInfo",
    "Ranked",
    "RankedDocument",
    "Ranking",
    "Reply",
    "RequestParameters",
    "Timings",
    "Token",
    "TokenBytes",
    "Tokens",
    "Tool",
    "ToolCall",
    "ToolCallDelta",
    "Tools",
    "Usage",
]

Message = Mapping[str, Any]
"""A message of a request, in OpenAI's shape. A part of its content may be a picture:
`{"type": "image", "path": "a.png"}`, or `"image"` with bytes, a picture of Pillow or an array. It
may be a sound: `{"type": "audio", "path": "a.wav"}`, or `"audio"` with bytes."""
Messages = Sequence[Message]
Tool = Mapping[str, Any]
"""A tool in OpenAI's shape: `{"type": "function", "function": {"name", "parameters", ...}}`."""
Tools = Sequence[Tool]

FinishReason = Literal["stop", "length", "tool_calls", "cancelled"]


class CallFunction(TypedDict):
    """`function` of a tool call in a message. `arguments` is JSON text."""

    name: str
    arguments: str


class MessageToolCall(TypedDict):
    """A tool call in a message, in OpenAI's shape."""

    id: str
    type: Literal["function"]
    function: CallFunction


class ToolCall(TypedDict):
    """A tool call of a reply. `arguments` is JSON text, always of an object."""

    id: str
    name: str
    arguments: str


class _AssistantMessage(TypedDict):
    role: Literal["assistant"]
    content: Optional[str]


class AssistantMessage(_AssistantMessage, total=False):
    """`message` of a reply. It can be appended to the messages of the next request unchanged."""

    reasoning_content: str
    tool_calls: List[MessageToolCall]


class PromptTokensDetails(TypedDict):
    """`cached_tokens` were not computed, because they were in the KV cache."""

    cached_tokens: int


class CompletionTokensDetails(TypedDict, total=False):
    """`reasoning_tokens` are the tokens between the reasoning tags, if the model's format has
    reasoning. The others count the tokens that were guessed, if any were.
    """

    reasoning_tokens: int
    accepted_prediction_tokens: int
    rejected_prediction_tokens: int


class _Usage(TypedDict):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails


class Usage(_Usage, total=False):
    """Numbers of tokens. The completion details are present if the model's format has reasoning,
    or if tokens were guessed.
    """

    completion_tokens_details: CompletionTokensDetails


class _Timings(TypedDict):
    prompt_ms: float
    predicted_ms: float
    prompt_per_second: float
    predicted_per_second: float


class Timings(_Timings, total=False):
    """Milliseconds, and tokens per second. `threads` is the mean number of threads that computed;
    a server has none. `draft_n` exists if tokens were guessed, `disk_tokens` (tokens of the
    prompt that were read from disk) with the option `cache_dir`.
    """

    threads: float
    draft_n: int
    draft_n_accepted: int
    disk_tokens: int


class _Diagnostic(TypedDict):
    code: str
    message: str


class Diagnostic(_Diagnostic, total=False):
    """A coded remark on a reply. Further members depend on the code."""

    tool: str
    call: int
    path: str
    keyword: str
    id: str
    name: str
    arguments: str
    text: str


class _Reply(TypedDict):
    type: Literal["assistant_text", "tool_call"]
    text: str
    reasoning_content: Optional[str]
    tool_calls: List[ToolCall]
    finish_reason: FinishReason
    stop_sequence: Optional[str]
    message: AssistantMessage
    usage: Usage
    timings: Timings
    logprobs: Optional[Dict[str, Any]]
    polyfills_applied: List[str]
    diagnostics: List[Diagnostic]


class Reply(_Reply, total=False):
    """The result of `Chat.create` without `stream`, and of `Stream.reply`.

    `truncated` is present if turns were omitted from the prompt, `ignored_keys` if `extra_body` has
    members that the library does not know.
    """

    truncated: Dict[str, Any]
    ignored_keys: List[str]


class CallFunctionDelta(TypedDict, total=False):
    """`name` is in the first delta of a call. `arguments` is a fragment of JSON text."""

    name: str
    arguments: str


class _ToolCallDelta(TypedDict):
    index: int
    function: CallFunctionDelta


class ToolCallDelta(_ToolCallDelta, total=False):
    """A part of a tool call in a chunk. `id` and `type` are in the first delta of a call."""

    id: str
    type: Literal["function"]


class Delta(TypedDict, total=False):
    """The part of the message that a chunk adds. `role` is in the first chunk."""

    role: Literal["assistant"]
    content: str
    reasoning_content: str
    tool_calls: List[ToolCallDelta]


class _ChunkChoice(TypedDict):
    index: int
    delta: Delta
    finish_reason: Optional[FinishReason]


class ChunkChoice(_ChunkChoice, total=False):
    """`logprobs` is present if the request has `logprobs`."""

    logprobs: Optional[Dict[str, Any]]


class _Chunk(TypedDict):
    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    choices: List[ChunkChoice]


class Chunk(_Chunk, total=False):
    """A part of a streamed reply. The last one has `diagnostics` if there are any, and `usage` if
    `stream_options` requests it.
    """

    usage: Usage
    diagnostics: List[Diagnostic]


class _Explanation(TypedDict):
    type: Literal["explanation"]
    prompt: str
    spans: List[Dict[str, Any]]
    prompt_tokens: Optional[int]
    cached_tokens: Optional[int]
    cache_break: Optional[Dict[str, Any]]
    special_tokens: Optional[List[str]]
    polyfills_applied: List[str]
    caps_used: Dict[str, bool]
    template_caps_used: Dict[str, Any]
    grammar: Optional[str]
    output_format: Dict[str, Any]
    stop: List[str]
    tokens_left: Optional[int]
    sampling: Dict[str, Any]
    sampling_set_by: Dict[str, str]


class Explanation(_Explanation, total=False):
    """The result of `Chat.explain`. Offsets in `spans` are UTF-8 byte offsets into `prompt`."""

    truncated: Dict[str, Any]
    diagnostics: List[Diagnostic]
    ignored_keys: List[str]


class _ModelInfo(TypedDict):
    type: Literal["model_info"]
    error: Optional[str]
    message: Optional[str]
    supports_tools: bool
    supports_tool_calls: bool
    has_tool_use_template: bool
    chat_format: Optional[str]
    architecture: Optional[str]
    n_params: Optional[int]
    context_length: Optional[int]
    embedding_length: Optional[int]
    block_count: Optional[int]
    quantization: Optional[str]
    file_size: Optional[int]
    name: Optional[str]
    license: Optional[str]
    bos_token: Optional[str]
    eos_token: Optional[str]
    templates: List[str]
    template_sha256: Optional[str]
    author: Optional[str]
    organization: Optional[str]
    basename: Optional[str]
    finetune: Optional[str]
    size_label: Optional[str]
    license_name: Optional[str]
    license_link: Optional[str]
    url: Optional[str]
    repo_url: Optional[str]
    tags: Optional[List[str]]
    languages: Optional[List[str]]
    base_models: Optional[List[Dict[str, str]]]
    datasets: Optional[List[Dict[str, str]]]
    caps: Dict[str, bool]
    template_caps: Dict[str, Any]
    tool_support: Literal["native", "polyfilled", "none"]
    tool_support_reasons: List[str]
    details: Dict[str, Any]
    evidence: Dict[str, Dict[str, Any]]
    output_format: Dict[str, Any]
    findings: List[Dict[str, Any]]
    sampling: Optional[Dict[str, Any]]
    input_modalities: List[str]
    projector: Optional[str]


class ModelInfo(_ModelInfo, total=False):
    """The result of `model_info`. Header members that the file does not have are None."""

    by_template: Dict[str, Dict[str, Any]]


class _FetchedModel(TypedDict):
    type: Literal["model_fetched"]
    id: str
    path: str
    paths: List[str]
    projector: Optional[str]
    revision: str
    sha256: Optional[str]
    from_cache: bool
    total_bytes: int
    files: List[Dict[str, Any]]
    hub: Optional[Dict[str, Any]]
    diagnostics: List[Diagnostic]
    model_info: ModelInfo


class FetchedModel(_FetchedModel, total=False):
    """What `fetch` returns. With `dry_run`, `path` is None unless the model is cached."""

    dry_run: bool
    ignored_keys: List[str]


class Embedding(TypedDict):
    """The vector of a text.

    With pooling "none", `embedding` is a list with a vector for each token. With `encoding_format`
    "base64", a vector is text.
    """

    object: Literal["embedding"]
    index: int
    embedding: List[float]


class EmbeddingUsage(TypedDict):
    """The tokens of all texts."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingRemarks(TypedDict, total=False):
    """`diagnostics` of embeddings, if there are any."""

    diagnostics: List[Diagnostic]


class Embeddings(EmbeddingRemarks):
    """The reply of `Embedder.embed`."""

    type: Literal["embeddings"]
    object: Literal["list"]
    model: str
    data: List[Embedding]
    usage: EmbeddingUsage
    pooling: str
    dimensions: int
    truncated: List[Dict[str, int]]
    timings: Dict[str, float]


class RankedDocument(TypedDict, total=False):
    """`document` of a result, with `return_documents`."""

    document: Dict[str, Any]


class Ranked(RankedDocument):
    """The score of a document. `index` is its place in `documents`."""

    index: int
    relevance_score: float


class Ranking(TypedDict):
    """The reply of `Embedder.rank`: the best result first."""

    type: Literal["ranking"]
    object: Literal["list"]
    model: str
    results: List[Ranked]
    usage: EmbeddingUsage
    truncated: List[Dict[str, int]]
    timings: Dict[str, float]


class Backend(TypedDict):
    """Kernels for some processors. `name` is None if the file does not tell."""

    name: Optional[str]
    file: Optional[str]
    usable: bool
    reason: Optional[str]


class Backends(TypedDict):
    """The result of `backends` (docs/backends.md)."""

    type: Literal["backends"]
    processor: Dict[str, Any]
    backend: Dict[str, Any]
    backends: List[Backend]
    folders: List[Dict[str, Any]]
    devices: List[Dict[str, Any]]
    device_files: List[Dict[str, Any]]


class DeviceMemory(TypedDict):
    """What a chat takes on one device, in bytes. `free` is None if it is unknown, and `layers` if
    llama.cpp decides."""

    name: str
    layers: Optional[int]
    weights: int
    cache: int
    compute: int
    total: int
    free: Optional[int]
    fits: Optional[bool]


class ContextOptions(TypedDict, total=False):
    """The options that one of the `contexts` of `memory` changes. The names are those of `Chat`."""

    n_ctx: Union[int, Literal["fit"]]
    n_parallel: int
    kv_unified: Union[bool, Literal["auto"]]
    n_batch: int
    flash_attn: Literal["auto", "on", "off"]
    cache_type_k: str
    cache_type_v: str


class PartMemory(TypedDict):
    """The bytes that one of several models takes."""

    weights: int
    cache: int
    compute: int
    total: int


class _MediaTokens(TypedDict, total=False):
    tokens_per_image: int
    tokens_per_window: int


class ProjectorMemory(_MediaTokens):
    """The bytes that a projector takes, and what it takes in.

    It has the tokens of a picture, or those of 30 seconds of sound.
    """

    type: str
    input_modalities: List[str]
    weights: int
    compute: int
    total: int


class _ContextMemory(TypedDict):
    type: Literal["memory"]
    n_ctx: int
    n_parallel: int
    kv_unified: bool
    n_gpu_layers: Optional[int]
    n_cpu_moe: Optional[int]
    weights: int
    cache: int
    compute: int
    total: int
    fits: Optional[bool]
    devices: List[DeviceMemory]


class ContextMemory(_ContextMemory, total=False):
    """What a chat takes. Sizes are in bytes. `fits` is None if it is unknown what is free.
    `adapters` (a part of `weights`) exists with `lora`, `draft` (a part of all) with `draft_model`,
    `projector` (a part of `weights` and `compute`) with `projector`.
    """

    adapters: int
    draft: PartMemory
    projector: ProjectorMemory


class ErrorDescription(TypedDict):
    """`error` of a `ContextError`: the members of an `LlbError`."""

    code: str
    message: str


class ContextError(TypedDict):
    """In the place of a `ContextMemory` that llama.cpp cannot make."""

    type: Literal["error"]
    error: ErrorDescription


class Memory(ContextMemory):
    """The result of `memory` (docs/memory.md). `contexts` are those that were asked for."""

    largest_n_ctx: Optional[int]
    context_length: Optional[int]
    contexts: List[Union[ContextMemory, ContextError]]


class TokenBytes(TypedDict, total=False):
    """`bytes` of a token that is not UTF-8 by itself."""

    bytes: List[int]


class Token(TokenBytes):
    """A token of a text. `special`: only a chat template may write it."""

    id: int
    text: str
    special: bool


class Tokens(TypedDict):
    """The result of `Model.tokenize`."""

    type: Literal["tokens"]
    n_tokens: int
    ids: List[int]
    tokens: List[Token]
