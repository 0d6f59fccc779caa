"""`llb run --mcp` with servers of the official SDK, as programs and behind HTTP."""

from __future__ import annotations

import json
import os
import pathlib
import socket
import subprocess
import sys
import time
from typing import Any, Dict, Iterator

import pytest
from conftest import HANGS, MODELS, PROGRAM
from test_terminal import Terminal

pytest.importorskip("mcp", reason="the SDK of MCP is not installed")
SERVER = str(pathlib.Path(__file__).with_name("mcp_server.py"))


@pytest.fixture
def calls(tmp_path) -> pathlib.Path:
    return tmp_path / "calls"


def program(calls: pathlib.Path) -> Dict[str, Any]:
    return {"command": sys.executable, "args": [SERVER, "stdio"], "env": {"CALLS": str(calls)}}


@pytest.fixture
def http(calls) -> Iterator[Dict[str, Any]]:
    # Connections wait here until the server accepts them.
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port, number = listening.getsockname()[1], listening.fileno()
        command = [sys.executable, SERVER, "streamable-http", str(number)]
        environment = {**os.environ, "CALLS": str(calls)}
        process = subprocess.Popen(command, env=environment, pass_fds=[number])
    url = f"http://127.0.0.1:{port}/mcp"
    yield {"type": "http", "url": url, "headers": {"x-test": "${LLB_MCP_TEST:-none}"}}
    process.terminate()
    process.wait(HANGS)


def config(folder: pathlib.Path, servers: Dict[str, Any]) -> str:
    file = folder / "mcp.json"
    file.write_text(json.dumps({"mcpServers": servers}))
    return str(file)


def run(folder: pathlib.Path, servers: Dict[str, Any], *arguments: str, command: str = "run"):
    mcp = config(folder, servers)
    command = [PROGRAM, command, str(MODELS / "tool_call.gguf"), "Weather?", "--mcp", mcp, *arguments]
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=2 * HANGS)


@pytest.mark.parametrize("kind", ["program", "http"])
def test_calls_are_run_until_the_bound(kind, calls, request, tmp_path):
    server = program(calls) if kind == "program" else request.getfixturevalue("http")
    ended = run(tmp_path, {"weather": server}, "--yes", "--n-ctx", "8192")
    # This model calls the tool in each reply.
    assert ended.returncode == 1
    assert "stopped after 25 rounds of calls" in ended.stderr
    assert calls.read_text() == "Paris\n" * 25
    assert ended.stdout.count('get_weather({"city": "Paris"})') == 26
    assert ended.stderr.count("Sunny in Paris.") == 25


@pytest.mark.parametrize("command", ["run", "chat"])
def test_nothing_runs_unasked(command: str, calls, tmp_path):
    ended = run(tmp_path, {"weather": program(calls)}, command=command)
    assert ended.returncode == 1
    assert "next: --yes runs tools without asking" in ended.stderr
    assert not calls.exists()


@pytest.mark.parametrize(
    "server, words",
    [
        ({"command": "no-such-program"}, "MCP server weather: no-such-program: "),
        ({"command": sys.executable, "args": ["-c", "raise SystemExit('no key')"]}, "it wrote: no key"),
        ({"type": "http", "url": "http://127.0.0.1:1/mcp"}, "MCP server weather: "),
        ({"command": "${LLB_NO_SUCH}"}, "mcpServers.weather.command: the variable LLB_NO_SUCH is not set"),
    ],
)
def test_a_server_that_does_not_start_is_an_error(server, words: str, tmp_path):
    ended = run(tmp_path, {"weather": server})
    assert ended.returncode == 1
    assert words in ended.stderr


def test_a_chat_asks_and_chooses_tools(calls, tmp_path):
    mcp = config(tmp_path, {"weather": program(calls)})
    model = str(MODELS / "tool_call.gguf")
    env = {"XDG_STATE_HOME": str(tmp_path), "NO_COLOR": "1"}
    terminal = Terminal("chat", model, "--mcp", mcp, "--n-ctx", "8192", env=env)
    terminal.answer("Weather?")
    terminal.wait_for("run get_weather? y(es), n(o), a(lways): ")
    terminal.type("y\r")
    terminal.wait_for("Sunny in Paris.")
    terminal.wait_for("a(lways): ")
    terminal.type("n\r")
    terminal.wait_for("a(lways): ")
    terminal.type("\x03")
    terminal.wait_for("the turn was ended by Ctrl-C")
    terminal.answer("/tools only paint")
    terminal.wait_for("1 tool")
    terminal.answer("/tools all")
    terminal.wait_for("3 tools")
    terminal.answer("/quit")
    assert terminal.end() == 0
    assert calls.read_text() == "Paris\n"


def test_servers_end_with_the_program(calls, tmp_path):
    """A server that fails ends the others at once, though one of them does not answer."""
    calls.touch()
    script = f"import os; open({str(calls)!r}, 'w').write(str(os.getpid())); import sys; sys.stdin.read()"
    silent = {"command": sys.executable, "args": ["-c", script]}
    waiting = f"import os, time\nwhile not os.path.getsize({str(calls)!r}): time.sleep(0.01)\nraise SystemExit('no')"
    broken = {"command": sys.executable, "args": ["-c", waiting]}
    ended = run(tmp_path, {"silent": silent, "broken": broken})
    assert ended.returncode == 1
    assert "MCP server broken: " in ended.stderr and "it wrote: no" in ended.stderr
    end = time.monotonic() + HANGS
    while runs(calls.read_text()):
        assert time.monotonic() < end
        time.sleep(0.05)


def runs(process: str) -> bool:
    """Whether there is such a process, and not only the status that it has left."""
    try:
        stat = pathlib.Path(f"/proc/{process}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(") ")[2][0] not in "XZ"
