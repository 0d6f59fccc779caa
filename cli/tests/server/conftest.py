"""A running `llb serve` with scripted models, for the tests of this folder.

`LLB_PROGRAM` is the program, `LLB_TEST_MODELS` the folder of `make scripted-models`.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import resource
import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from typing import Any, Dict, Iterator, List, Optional, Tuple

import pytest

PROGRAM = os.environ.get("LLB_PROGRAM", "target/release/llb")
MODELS = pathlib.Path(os.environ.get("LLB_TEST_MODELS", "target/scripted-models"))
EXPECTED: Dict[str, str] = json.loads((MODELS / "expected.json").read_text("utf-8"))
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}},
                "required": ["city"],
            },
        },
    }
]
# Keeps the scripted models of a server with the options `SHIFT` generating `aaa…` until the request
# is ended.
ENDLESS = {"logit_bias": {"97": 100}, "max_tokens": 2**31 - 1}
SHIFT = ["--context-overflow", "shift"]
# Seconds after which a server hangs. No test takes this long on any machine.
HANGS = 300


class Server:
    """A server process. `log` contains its lines on stderr so far."""

    def __init__(
        self,
        *arguments: str,
        env: Optional[Dict[str, str]] = None,
        limits: Optional[Dict[int, int]] = None,
    ) -> None:
        """`limits` are limits of the process, such as `resource.RLIMIT_NOFILE`."""

        def limit() -> None:
            for name, value in (limits or {}).items():
                resource.setrlimit(name, (value, value))

        self.process = subprocess.Popen(
            [PROGRAM, "serve", *arguments, "--port", "0"],
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
            env={**os.environ, **(env or {})},
            preexec_fn=limit if limits else None,
        )
        self.log: List[str] = []
        self.address = ("", 0)
        self._listening = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        assert self._listening.wait(HANGS), self.log
        assert self.process.poll() is None, self.log

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.log.append(line)
            found = re.search(r"listening on http://([\d.]+):(\d+)", line)
            if found:
                self.address = (found[1], int(found[2]))
                self._listening.set()
        self._listening.set()

    @property
    def url(self) -> str:
        return f"http://{self.address[0]}:{self.address[1]}"

    def get(self, path: str) -> str:
        with urllib.request.urlopen(self.url + path, timeout=HANGS) as response:
            return response.read().decode()

    def post(
        self, path: str, body: Any, headers: Optional[Dict[str, str]] = None
    ) -> Tuple[int, Any, Dict[str, str]]:
        """Returns status, JSON and headers. `body` is sent as it is if it is bytes."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, headers or {})
        try:
            with urllib.request.urlopen(request, timeout=HANGS) as response:
                return response.status, json.loads(response.read()), dict(response.headers)
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read()), dict(error.headers)

    def raw(self, data: bytes, wait: float = HANGS) -> bytes:
        """Sends bytes, and returns everything that arrives until the server closes."""
        with socket.create_connection(self.address, timeout=wait) as connection:
            # The server may refuse a request, and close, before all of it was sent.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                connection.sendall(data)
            answer = b""
            try:
                while part := connection.recv(65536):
                    answer += part
            except (ConnectionResetError, socket.timeout):
                pass
            return answer

    def metric(self, name: str) -> float:
        """The sum of a metric over all labels."""
        pattern = rf"^{name}(?:{{.*}})? (\S+)$"
        return sum(float(value) for value in re.findall(pattern, self.get("/metrics"), re.M))

    def wait_for(self, name: str, value: float) -> None:
        end = time.monotonic() + HANGS
        while self.metric(name) != value:
            assert time.monotonic() < end, f"{name} is {self.metric(name)}, not {value}"
            time.sleep(0.05)

    def wait_for_line(self, text: str) -> None:
        """Waits for a line of the log, which is read by another thread."""
        end = time.monotonic() + HANGS
        while not any(text in line for line in self.log):
            assert time.monotonic() < end, self.log
            time.sleep(0.05)

    def peak_megabytes(self) -> int:
        """The most memory that the process has had."""
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text("utf-8")
        return int(re.findall(r"^VmHWM:\s+(\d+) kB$", status, re.M)[0]) // 1000

    def stop(self, number: int = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        status = self.process.wait(HANGS)
        self._reader.join(HANGS)
        return status


def is_error(route: str, reply: Any) -> bool:
    """Whether a reply is an error in the shape of its protocol."""
    if re.match("/v1/messages(/|[?]|$)", route):
        inner = set(reply["error"]) == {"type", "message"}
        return inner and set(reply) == {"type", "error"} and reply["type"] == "error"
    if route.startswith("/api/"):
        return set(reply) == {"error"} and isinstance(reply["error"], str)
    return set(reply) == {"error"} and set(reply["error"]) == {"message", "type", "param", "code"}


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    names = ["text", "tool_call", "reasoning", "long", "no_tools"]
    running = Server(*(str(MODELS / f"{name}.gguf") for name in names))
    yield running
    assert running.stop() == 0, running.log
    log = "".join(running.log)
    # The log contains neither prompts nor replies.
    for text in ["secret-prompt", "Counting", "get_weather", "Grüße"]:
        assert text not in log
    assert re.search(r"^\S+Z POST /v1/[a-z/]+ 200 ms=\d+ model=text prompt=", log, re.M)
