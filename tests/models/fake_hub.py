"""A Hub on this machine that speaks as much of the protocol as downloads need."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

COMMIT = "0123456789abcdef0123456789abcdef01234567"
_FILE = re.compile(r"/([^/]+/[^/]+)/resolve/[^/]+/(.+)")
_API = re.compile(r"/api/models/([^/]+/[^/]+)(/revision/[^/]+|/tree/[^?]+)?(\?.*)?")


@dataclass
class Hub:
    """Repositories by name, as file name → content; ``refused``: name → status and error code."""

    repositories: dict[str, dict[str, bytes]] = field(default_factory=dict)
    refused: dict[str, tuple[int, str]] = field(default_factory=dict)
    downloads: list[str] = field(default_factory=list)
    requests: int = 0
    tokens: set[str] = field(default_factory=set)
    spoiled: dict[str, list[bytes]] = field(default_factory=dict)
    """What a file's next downloads send instead of its content, in turn."""

    def start(self) -> ThreadingHTTPServer:
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                hub.answer(self, body=True)

            def do_HEAD(self) -> None:
                hub.answer(self, body=False)

            def log_message(self, *arguments: Any) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        return server

    def answer(self, handler: BaseHTTPRequestHandler, body: bool) -> None:
        self.requests += 1
        self.tokens.add(handler.headers.get("Authorization", ""))
        if match := _FILE.fullmatch(handler.path):
            self._file(handler, match[1], match[2], body)
        elif match := _API.fullmatch(handler.path):
            self._facts(handler, match[1], match[2] or "", body)
        else:
            self._send(handler, 404, {}, b"", body)

    def _facts(self, handler: Any, name: str, what: str, body: bool) -> None:
        if name in self.refused or name not in self.repositories:
            status, code = self.refused.get(name, (404, "RepoNotFound"))
            self._send(handler, status, {"X-Error-Code": code}, b"{}", body)
            return
        if what.startswith("/tree"):
            facts: Any = [self._entry(*item) for item in self.repositories[name].items()]
        else:
            facts = {"id": name, "sha": COMMIT, "siblings": []}
        self._send(handler, 200, {}, json.dumps(facts).encode(), body)

    @staticmethod
    def _entry(name: str, content: bytes) -> dict[str, Any]:
        entry = {"type": "file", "path": name, "size": len(content), "oid": "0" * 40}
        if name.endswith(".safetensors"):
            digest = hashlib.sha256(content).hexdigest()
            entry["lfs"] = {"oid": digest, "size": len(content), "pointerSize": 100}
        return entry

    def _file(self, handler: Any, repository: str, name: str, body: bool) -> None:
        content = self.repositories[repository][name]
        digest = hashlib.sha256(content).hexdigest()
        facts = {
            "ETag": f'"{digest if name.endswith(".safetensors") else digest[:40]}"',
            "X-Repo-Commit": COMMIT,
        }
        if body:
            self.downloads.append(name)
            if self.spoiled.get(name):
                content = self.spoiled[name].pop(0)
        self._send(handler, 200, facts, content, body)

    @staticmethod
    def _send(handler: Any, status: int, facts: dict[str, str], content: bytes, body: bool) -> None:
        handler.send_response(status)
        for key, value in {**facts, "Content-Length": str(len(content))}.items():
            handler.send_header(key, value)
        handler.end_headers()
        if body:
            handler.wfile.write(content)
