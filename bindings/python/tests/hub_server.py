"""A hub on loopback for `test_hub.py`: one port serves the API, another the file contents."""

import contextlib
import hashlib
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub:
    """Serves the model `id` with `files`, a dict from name to bytes.

    While `hold` is set, downloads stop after half of the bytes and set `holding`.
    """

    def __init__(self, files, id="o/n"):
        self.id = id
        self.files = files
        self.hashes = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
        self.seen = []
        self.hold = threading.Event()
        self.holding = threading.Event()
        self.api = self._serve(Api)
        self.storage = self._serve(Storage)
        self.url = f"http://127.0.0.1:{self.api.server_port}"

    def _serve(self, handler):
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        server.daemon_threads = True
        server.hub = self
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return server

    def downloads(self):
        """The paths of requests for a whole file or for a range up to its end."""
        return [
            path
            for server, path, requested in self.seen
            if server == "Storage" and (requested is None or requested.endswith("-"))
        ]

    def close(self):
        self.hold.clear()
        for server in (self.api, self.storage):
            server.shutdown()
            server.server_close()


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        self.server.hub.seen.append((type(self).__name__, self.path, self.headers.get("Range")))
        # The client may close the connection.
        with contextlib.suppress(OSError):
            self.answer(self.server.hub)

    def reply(self, status, content, **headers):
        self.send_response(status)
        for name, value in {"Content-Length": len(content), **headers}.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


class Api(Handler):
    def answer(self, hub):
        path = self.path.split("?")[0]
        if path.startswith(f"/api/models/{hub.id}"):
            files = []
            for name, content in hub.files.items():
                lfs = {"sha256": hub.hashes[name], "size": len(content), "pointerSize": 1}
                files.append({"rfilename": name, "size": len(content), "lfs": lfs})
            listing = {
                "id": hub.id,
                "sha": COMMIT,
                "private": False,
                "gated": False,
                "siblings": files,
            }
            self.reply(200, json.dumps(listing).encode(), Content_Type="application/json")
            return
        _, _, name = path.partition(f"/{hub.id}/resolve/")
        name = name.partition("/")[2]
        if name not in hub.files:
            self.reply(404, b"", X_Error_Code="EntryNotFound", X_Repo_Commit=COMMIT)
            return
        etag = hub.hashes[name]
        self.reply(
            302,
            b"",
            Location=f"http://127.0.0.1:{hub.storage.server_port}/{etag}",
            X_Repo_Commit=COMMIT,
            X_Linked_Etag=f'"{etag}"',
            X_Linked_Size=len(hub.files[name]),
            ETag=f'"{etag}"',
        )


class Storage(Handler):
    def answer(self, hub):
        sha256 = self.path.strip("/")
        content = next(hub.files[name] for name in hub.files if hub.hashes[name] == sha256)
        requested = self.headers.get("Range")
        etag = f'"cdn-of-{sha256[:20]}"'
        if requested is None or self.headers.get("If-Range", etag) != etag:
            status, part, headers = 200, content, {}
        else:
            first, last = requested[len("bytes=") :].split("-")
            end = min(int(last) + 1, len(content)) if last else len(content)
            status, part = 206, content[int(first) : end]
            headers = {"Content_Range": f"bytes {first}-{end - 1}/{len(content)}"}
        to_the_end = requested is None or requested.endswith("-")
        if hub.hold.is_set() and to_the_end and self.command != "HEAD":
            self.send_response(status)
            self.send_header("Content-Length", str(len(part)))
            self.end_headers()
            self.wfile.write(part[: len(part) // 2])
            self.wfile.flush()
            hub.holding.set()
            while hub.hold.is_set():
                time.sleep(0.05)
            return
        self.reply(status, part, ETag=etag, **headers)
