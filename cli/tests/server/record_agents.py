"""Records the conversations of coding agents with a scripted model: four tasks of four replies each.

`LLB_AGENTS=…/node_modules record_agents.py [AGENT…]` writes `conversations/AGENT.json`. The requests
pass through this program, which gives them other words (`conversations.py`).
"""

from __future__ import annotations

import http.client
import http.server
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
from typing import Any, Dict, List, Tuple

from coding_agents import MODEL, TASK, Workplace
from conftest import Server
from conversations import anonymous, save

TASKS = [TASK, "Do the same once more.", "Now look at the copy, please.", "Do it a last time."]
# One word in how many is kept: prompts of about 12,000 bytes.
ONE_IN = {"codex": 6, "claude": 3, "opencode": 6}
VERSIONS = {"codex": "codex 0.171.0", "claude": "Claude Code 2.1.197", "opencode": "opencode 1.18.33"}


class Recorder(http.server.ThreadingHTTPServer):
    """Passes requests on to a server, and keeps those that have a body."""

    def __init__(self, server: Server, one_in: int) -> None:
        super().__init__(("127.0.0.1", 0), Passage)
        self.server = server
        self.one_in = one_in
        self.bodies: List[Tuple[str, Dict[str, Any]]] = []
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Passage(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers.get("content-length") or 0))
        body = anonymous(json.loads(data), self.server.one_in)
        self.server.bodies.append((self.path.split("?")[0], body))
        onward = http.client.HTTPConnection(*self.server.server.address, timeout=900)
        onward.request("POST", self.path, json.dumps(body), {"content-type": "application/json"})
        self.answer(onward.getresponse())

    def do_GET(self) -> None:
        onward = http.client.HTTPConnection(*self.server.server.address, timeout=900)
        onward.request("GET", self.path)
        self.answer(onward.getresponse())

    do_HEAD = do_GET

    def answer(self, response: http.client.HTTPResponse) -> None:
        self.send_response(response.status)
        self.send_header("content-type", response.headers["content-type"] or "text/plain")
        self.send_header("connection", "close")
        self.end_headers()
        while part := response.read1(65536):
            self.wfile.write(part)
            self.wfile.flush()


def record(agent: str, agents: pathlib.Path, folder: pathlib.Path) -> None:
    server = Server(f"agent={MODEL}", "--n-ctx", "131072", "--parallel", "2")
    recorder = Recorder(server, ONE_IN[agent])
    place = Workplace(folder, str(agents / ".bin"))
    for index, task in enumerate(TASKS):
        options = ["--print", "--port", str(recorder.server_address[1])]
        command = place.launch(agent, options, task, index == 0)
        subprocess.run(
            command,
            shell=True,
            cwd=place.folder,
            env=place.environment,
            stdin=subprocess.DEVNULL,
            timeout=900,
            check=True,
        )
    server.stop()
    # Others are for titles and the like.
    turns = [(route, body) for route, body in recorder.bodies if body.get("tools")]
    save(agent, VERSIONS[agent], turns[0][0], [body for _, body in turns])
    print("".join(line for line in server.log if "POST" in line))


def main() -> None:
    for agent in sys.argv[1:] or ONE_IN:
        with tempfile.TemporaryDirectory() as folder:
            record(agent, pathlib.Path(os.environ["LLB_AGENTS"]), pathlib.Path(folder))


if __name__ == "__main__":
    main()
