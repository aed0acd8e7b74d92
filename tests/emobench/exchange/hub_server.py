"""A server on this machine that answers for one data set as the hub does, so that the real client can be tried."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

REPO = "some-org/boards"


class HubServer(ThreadingHTTPServer):
    """The data set's files are in a folder. A commit whose parent is not the newest one is refused, as by the hub."""

    def __init__(self, root: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.root, self.commits, self.refused, self.lock = root, 1, 0, threading.Lock()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def head(self) -> str:
        return f"{self.commits:040x}"

    def commit(self, lines: list[dict[str, Any]]) -> bool:
        with self.lock:
            parent = next(line["value"]["parentCommit"] for line in lines if line["key"] == "header")
            if parent != self.head:
                self.refused += 1
                return False
            for file in (line["value"] for line in lines if line["key"] == "file"):
                path = self.root / file["path"]
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(base64.b64decode(file["content"]))
            self.commits += 1
            return True


class _Answers(BaseHTTPRequestHandler):
    server: HubServer  # type: ignore[assignment]

    def do_GET(self) -> None:
        path, root = self.path.partition("?")[0], self.server.root
        names = sorted(found.relative_to(root).as_posix() for found in root.rglob("*") if found.is_file())
        if re.fullmatch(rf"/api/datasets/{REPO}(/revision/\w+)?", path):
            files = [{"rfilename": name} for name in names]
            self._answer({"id": REPO, "sha": self.server.head, "siblings": files})
        elif path.startswith(f"/api/datasets/{REPO}/tree/"):
            self._answer([{"type": "file", "path": n, "size": (root / n).stat().st_size, "oid": "0"} for n in names])
        elif (found := re.fullmatch(rf"/datasets/{REPO}/resolve/\w+/(.+)", path)) and found[1] in names:
            content = (root / found[1]).read_bytes()
            digest = hashlib.sha1(content).hexdigest()
            self._send(200, content, {"ETag": f'"{digest}"', "X-Repo-Commit": self.server.head})
        else:
            self._send(404, b"{}", {"X-Error-Code": "RepoNotFound"})

    do_HEAD = do_GET

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        if "/preupload/" in self.path:
            given = [{"path": file["path"], "uploadMode": "regular"} for file in json.loads(content)["files"]]
            self._answer({"files": [{**file, "shouldIgnore": False} for file in given]})
        elif not self.server.commit([json.loads(line) for line in content.splitlines()]):
            self._send(412, b'{"error": "A commit has happened since."}', {})
        else:
            url = f"{self.server.endpoint}/datasets/{REPO}/commit/{self.server.head}"
            self._answer({"success": True, "commitOid": self.server.head, "commitUrl": url})

    def _answer(self, value: Any) -> None:
        self._send(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def _send(self, code: int, content: bytes, headers: dict[str, str]) -> None:
        self.send_response(code)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""
