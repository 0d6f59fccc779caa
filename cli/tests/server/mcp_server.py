"""An MCP server of the official SDK: `mcp_server.py stdio`, or `mcp_server.py streamable-http NUMBER`
with the number of a socket that listens.

It writes each call as a line to the file in `CALLS`.
"""

from __future__ import annotations

import os
import sys
import time

from mcp.server.mcpserver import Image, MCPServer

server = MCPServer("weather", log_level="ERROR")


def log(line: str) -> None:
    with open(os.environ["CALLS"], "a", encoding="utf-8") as file:
        print(line, file=file)


@server.tool()
def get_weather(city: str) -> str:
    """The weather of a city."""
    log(city)
    return f"Sunny in {city}."


@server.tool()
def paint(city: str) -> Image:
    """A picture of a city."""
    return Image(data=b"x", format="png")


@server.tool()
def wait(seconds: float) -> str:
    """Waits."""
    log("wait")
    time.sleep(seconds)
    return "done"


if sys.argv[1] == "stdio":
    server.run("stdio")
else:
    import uvicorn

    config = uvicorn.Config(server.streamable_http_app(), fd=int(sys.argv[2]), log_level="error")
    uvicorn.Server(config).run()
