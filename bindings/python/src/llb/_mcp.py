"""Tools of an MCP server, through a session of the package `mcp`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, cast

from .types import Tool

if TYPE_CHECKING:
    import asyncio


class McpTool:
    """A tool of an MCP server: a coroutine function that the model may call.

    It runs in the event loop of its session, whichever loop or thread calls it.
    """

    def __init__(self, session: Any, tool: Any, loop: asyncio.AbstractEventLoop) -> None:
        self.name: str = tool.name
        self.is_async = True
        self._session = session
        self._loop = loop
        self._description: Optional[str] = tool.description
        # Named so since version 2 of the package.
        parameters = getattr(tool, "input_schema", None) or getattr(tool, "inputSchema", None)
        self._parameters: Dict[str, Any] = parameters or {"type": "object"}

    def schema(self) -> Tool:
        """The tool in OpenAI's shape."""
        described = {"description": self._description} if self._description else {}
        function = {"name": self.name, **described, "parameters": self._parameters}
        return {"type": "function", "function": function}

    async def __call__(self, **arguments: object) -> str:
        """Calls the tool. Returns the text of its result."""
        import asyncio

        call = self._session.call_tool(self.name, arguments)
        if asyncio.get_running_loop() is self._loop:
            return _text(await call)
        future = asyncio.run_coroutine_threadsafe(call, self._loop)
        return _text(await asyncio.wrap_future(future))

    def call(self, arguments: str) -> Any:
        """Calls the tool with a JSON object. Raises ValueError for anything else."""
        values: Any = json.loads(arguments)
        if not isinstance(values, dict):
            raise ValueError(f"the arguments: expected an object, found {arguments[:80]}")
        return self(**cast(Dict[str, Any], values))

    def runs_here(self) -> bool:
        """Whether the loop of the session runs in this thread, so that waiting would block it."""
        import asyncio

        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:
            return False


async def mcp_tools(session: Any) -> List[McpTool]:
    """The tools of an MCP server, for `Chat.run` and `AsyncChat.run`.

    `session` is an initialized `ClientSession` of the package `mcp`. `AsyncChat.run` may run in the
    event loop of the session. `Chat.run` must run in another thread, as in
    `await asyncio.to_thread(chat.run, messages, tools)`, because it blocks. Names, descriptions and
    results come from the server, which may be anybody's: they are part of the prompt.

    The model reads the texts of a result. Other content is named, as in `[image: image/png]`, and a
    result that is an error begins with "Error: ".
    """
    import asyncio

    loop = asyncio.get_running_loop()
    tools: List[McpTool] = []
    page: Any = await session.list_tools()
    while True:
        tools += [McpTool(session, tool, loop) for tool in page.tools]
        cursor = getattr(page, "next_cursor", None) or getattr(page, "nextCursor", None)
        if not cursor:
            return tools
        page = await session.list_tools(params=_page(cursor))


def _page(cursor: str) -> Any:
    from importlib import import_module

    types: Any = import_module("mcp.types")
    return types.PaginatedRequestParams(cursor=cursor)


def _text(result: Any) -> str:
    """The text of a result for the model, as the program `llb` writes it."""
    members: Mapping[str, Any] = result.model_dump(by_alias=True, exclude_none=True, mode="json")
    texts = [_block(block) for block in members.get("content", ())]
    if not texts and "structuredContent" in members:
        texts = [json.dumps(members["structuredContent"], ensure_ascii=False)]
    text = "\n".join(texts)
    return f"Error: {text}" if members.get("isError") else text


def _block(block: Mapping[str, Any]) -> str:
    kind = block.get("type")
    if kind == "text":
        return str(block["text"])
    if kind in ("image", "audio"):
        return f"[{kind}: {block['mimeType']}]"
    if kind == "resource":
        resource = block["resource"]
        return str(resource["text"]) if "text" in resource else f"[file: {resource['uri']}]"
    if kind == "resource_link":
        return f"[file: {block['uri']}]"
    return "[content of an unknown kind]"
