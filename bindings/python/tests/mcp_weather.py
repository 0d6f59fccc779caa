"""An MCP server of the official SDK, for the tests. It speaks over its standard streams."""

from mcp.server.mcpserver import Image, MCPServer

server = MCPServer("weather", log_level="ERROR")
asked = []


@server.tool()
def get_weather(city: str) -> str:
    """The weather of a city."""
    if city == "Atlantis":
        raise ValueError("no such city")
    asked.append(city)
    return f"Sunny in {city}."


@server.tool()
def paint(city: str) -> Image:
    """A picture of a city."""
    return Image(data=b"x", format="png")


@server.tool()
def measure() -> dict:
    """Some numbers."""
    return {"celsius": 21}


@server.tool()
def cities() -> str:
    """The cities whose weather was asked for."""
    return " ".join(asked)


if __name__ == "__main__":
    server.run("stdio")
