"""A server on the loopback that speaks OpenAI's protocol by a script, faults among its answers."""

from __future__ import annotations

import gzip
import json
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PARTS = re.compile(r"### Response 1:\n(.*?)\n\n### Response 2:\n(.*?)\n\n### Evaluation", re.DOTALL)


def both_responses(prompt: str) -> tuple[str, str]:
    """Return the two responses in a prompt of PandaLM."""
    parts = PARTS.search(prompt)
    assert parts is not None
    return parts[1], parts[2]


class Scripted(ThreadingHTTPServer):
    """Answers each prompt by `answer`; `faults` may take its place for an attempt, (prompt, number of the attempt)."""

    daemon_threads = True

    def __init__(self, answer: Callable[[str], str], faults: Callable[[str, int], str | None]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answer, self.faults = answer, faults
        self.attempts: Counter[str] = Counter()
        self.bodies: list[dict[str, Any]] = []
        self.message = ""
        """What the fault `echo` says."""
        self.status = 400
        self.whole: Any = None
        """The body of the fault `own`."""
        self.elsewhere = ""
        """Where the fault `redirect` leads."""
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Scripted

    def do_GET(self) -> None:
        self._send(200, {"object": "list", "data": [{"id": "a-judge", "object": "model"}]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        prompt = body["prompt"] if "prompt" in body else body["messages"][-1]["content"]
        with self.server.lock:
            self.server.attempts[prompt] += 1
            attempt = self.server.attempts[prompt]
            self.server.bodies.append(body)
        fault = self.server.faults(prompt, attempt)
        if fault is None:
            self._send(200, self._completion(body, self.server.answer(prompt)))
        else:
            getattr(self, f"_{fault}")()

    def _completion(self, body: dict[str, Any], text: str) -> dict[str, Any]:
        chat = "messages" in body
        choice: dict[str, Any] = {"index": 0, "finish_reason": "stop"}
        choice |= {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
        if body.get("logprobs") and chat:
            tops = [{"token": t, "logprob": p} for t, p in (("m", -0.25), ("M", -1.5), ("m", -3.0))]
            choice["logprobs"] = {"content": [{"token": "m", "logprob": -0.25, "top_logprobs": tops}]}
        usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
        kind = "chat.completion" if chat else "text_completion"
        return {"id": "1", "object": kind, "created": 0, "model": "a-judge-2026", "choices": [choice], "usage": usage}

    def _send(self, status: int, content: Any, **headers: str) -> None:
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": str(len(data)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    # The faults.

    def _slow_down(self) -> None:
        self._send(429, {"error": {"message": "rate limit"}}, **{"Retry-After": "0.05"})

    def _server_error(self) -> None:
        self._send(500, {"error": {"message": "internal"}})

    def _broken_json(self) -> None:
        self._send(200, b'{"id": "1", "choices": [')

    def _no_choice(self) -> None:
        self._send(200, {"id": "1", "object": "chat.completion", "created": 0, "model": "m", "choices": []})

    def _too_long(self) -> None:
        self._send(400, {"error": {"message": "maximum context length is 10 tokens"}})

    def _wrong_key(self) -> None:
        self._send(401, {"error": {"message": "Incorrect API key provided"}})

    def _unknown(self) -> None:
        self._send(404, {"error": {"message": "no such model"}})

    def _echo(self) -> None:
        self._send(self.server.status, {"error": {"message": self.server.message}})

    def _own(self) -> None:
        self._send(200, self.server.whole)

    def _redirect(self) -> None:
        self._send(307, b"", Location=self.server.elsewhere)

    def _bomb(self) -> None:
        self._send(200, gzip.compress(b" " * 2**26), **{"Content-Encoding": "gzip"})

    def _cut(self) -> None:
        self._parts(b'{"id": ', 1)
        self.connection.close()

    def _trickle(self) -> None:
        self._parts(b" ", 100, 0.05)

    def _large(self) -> None:
        self._parts(b'{"id": "' + b"x" * 2**20, 600)

    def _slow_and_endless(self) -> None:
        self._parts(b" ", 600, 0.02)

    def _parts(self, part: bytes, count: int, pause: float = 0.0) -> None:
        """Send a part again and again, and no end."""
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for _ in range(count):
            try:
                self.wfile.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
                self.wfile.flush()
            except OSError:
                break
            time.sleep(pause)
        self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def serving(
    answer: Callable[[str], str] = lambda prompt: "fine",
    faults: Callable[[str, int], str | None] = lambda prompt, attempt: None,
) -> Iterator[Scripted]:
    """Serve until the end of the block."""
    server = Scripted(answer, faults)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
