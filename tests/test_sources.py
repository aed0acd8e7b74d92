"""The benchmark of sources: each source is tried by headers and first rows; what fails says why; nothing hangs."""

from __future__ import annotations

import io
import json
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import huggingface_hub
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from huggingface_hub import HfApi, constants

from emobench.core.errors import DataError
from emobench.data.sources import CORPORA
from emobench.models.catalog import CATALOG

sys.path.insert(0, str(Path(__file__).parent / "benchmarks"))  # as `python tests/benchmarks NAME` does

from evidence import sources
from evidence.sources import all_sources, begin_url, try_source

COMMIT = "0123456789abcdef0123456789abcdef01234567"
TEXTS = b"".join(json.dumps({"id": i, "text": f"text {i}"}).encode() + b"\n" for i in range(20_000))
ASKED: list[tuple[str, str | None]] = []
"""What the server was asked for: the method, and the range of bytes."""


class Files(BaseHTTPRequestHandler):
    """Serves one file of JSON Lines."""

    def do_HEAD(self) -> None:
        ASKED.append(("HEAD", None))
        self._head(200 if self.path == "/texts.jsonl" else 404)

    def do_GET(self) -> None:
        part = self.headers["Range"]
        ASKED.append(("GET", part))
        self._head(206)
        self.wfile.write(TEXTS[: int(part.rpartition("-")[2]) + 1])

    def _head(self, status: int) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(TEXTS)))
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        return


@pytest.fixture
def server() -> Iterator[str]:
    ASKED.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Files) as found:
        threading.Thread(target=found.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{found.server_address[1]}"
        found.shutdown()


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An empty cache, and no host asked before."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    sources._silence_of.cache_clear()


def closed_port() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}"


def test_a_url_is_tried_by_its_header_and_a_range(server: str) -> None:
    found = begin_url(f"{server}/texts.jsonl", len(TEXTS))
    assert [row["text"] for row in found.rows] == ["text 0", "text 1", "text 2"]
    assert ASKED == [("HEAD", None), ("GET", "bytes=0-65535")]
    with pytest.raises(DataError, match=rf"has {len(TEXTS):,} bytes, expected 7"):
        begin_url(f"{server}/texts.jsonl", 7)
    with pytest.raises(DataError, match="404"):
        begin_url(f"{server}/gone.jsonl")


def webtext_at(monkeypatch: pytest.MonkeyPatch, place: str) -> Any:
    """Return the source of WebText's test split, which lies at a URL."""
    part = replace(CORPORA["webtext"].splits["test"], files=place, size=len(TEXTS))
    corpus = replace(CORPORA["webtext"], splits=MappingProxyType({"test": part}))
    monkeypatch.setitem(CORPORA, "webtext", corpus)
    (found,) = [source for source in all_sources() if source.what == "corpus webtext (test)"]
    return found


def test_a_url_is_tried_by_its_head(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    works = try_source(webtext_at(monkeypatch, f"{server}/texts.jsonl"))
    assert (works.works, works.note) == (True, f"{len(TEXTS):,} bytes at {server}/texts.jsonl")
    gone = try_source(webtext_at(monkeypatch, f"{server}/gone.jsonl"))
    assert not gone.works
    assert "404" in gone.note


def test_a_host_without_an_answer_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    host = closed_port()
    state = try_source(webtext_at(monkeypatch, f"{host}/texts.jsonl"))
    assert not state.works
    assert state.note.startswith(f"{host}/ gives no answer (")
    monkeypatch.setattr("urllib.request.urlopen", lambda *_, **__: pytest.fail("it was asked again"))
    assert try_source(webtext_at(monkeypatch, f"{host}/other.jsonl")).note == state.note


@pytest.fixture
def hub(server: str, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return what makes the hub hold data files: name -> table, or lines."""
    monkeypatch.setattr(constants, "ENDPOINT", server)

    def publish(files: dict[str, pa.Table | list[Any]]) -> None:
        data = {}
        for name, rows in files.items():
            if isinstance(rows, list):
                data[name] = "".join(json.dumps(row) + "\n" for row in rows).encode()
            else:
                buffer = io.BytesIO()
                pq.write_table(rows, buffer)
                data[name] = buffer.getvalue()

        def dataset_info(_: HfApi, repo: str, **given: Any) -> Any:
            assert given["timeout"]
            siblings = [SimpleNamespace(rfilename=name, size=len(content)) for name, content in data.items()]
            return SimpleNamespace(sha=COMMIT, siblings=siblings)

        class Opened:
            def open(self, path: str, mode: str) -> io.BytesIO:
                assert f"@{COMMIT}/" in path
                return io.BytesIO(data[path.partition(f"@{COMMIT}/")[2]])

        monkeypatch.setattr(HfApi, "dataset_info", dataset_info)
        monkeypatch.setattr(huggingface_hub, "HfFileSystem", Opened)

    return publish


def state_of(what: str) -> Any:
    (source,) = [source for source in all_sources() if source.what == what]
    return try_source(source)


def test_a_corpus_of_the_hub_is_tried_by_its_rows_and_columns(hub: Callable[..., None]) -> None:
    name = "wikitext-2-raw-v1/test-00000-of-00001.parquet"
    hub({name: pa.table({"text": [" = Title = "] * 4_358})})
    found = state_of("corpus wikitext2 (test)")
    assert found.works, found.note
    assert found.note.startswith("4,358 rows, 1 file(s) of ")
    hub({name: pa.table({"text": ["a"]})})
    assert "it has 1 rows, expected 4,358: the source has changed" in state_of("corpus wikitext2 (test)").note
    hub({name: pa.table({"line": ["a"] * 4_358})})
    assert "has no column text; its columns are line" in state_of("corpus wikitext2 (test)").note
    hub({"README.md": []})
    assert "no file wikitext-2-raw-v1/test-*.parquet at commit 0123" in state_of("corpus wikitext2 (test)").note


def test_labels_of_a_data_set_are_read_by_their_names(hub: Callable[..., None]) -> None:
    fine = {"text": "fine", "label": 1, "label_text": "positive"}
    hub({"test.jsonl": [fine, {"text": "bad", "label": 0, "label_text": "negative"}]})
    assert state_of("data set sst2 (test)").note.endswith("first labels positive, negative")
    hub({"test.jsonl": [{**fine, "label": 7, "label_text": "glad"}]})
    found = state_of("data set sst2 (test)")
    assert not found.works
    assert "row 1: the class is 7" in found.note


def test_a_model_is_tried_as_a_plan_tries_it(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", server)
    facts = SimpleNamespace(parameters=CATALOG["gpt2"].parameters)
    monkeypatch.setattr(sources, "Model", lambda name, options: SimpleNamespace(facts=facts))
    assert state_of("model gpt2").note == "safetensors of 124,439,808 parameters, whole"
    facts.parameters = 5
    assert "it has 5 parameters, expected 124,439,808: another model" in state_of("model gpt2").note
    facts.parameters = CATALOG["opt-125m"].parameters
    published = SimpleNamespace(shapes=None, others=("pytorch_model.bin", "tf_model.h5"))
    monkeypatch.setattr(sources, "published_weights", lambda *_: published)
    assert state_of("model opt-125m").note == ".bin: emobench models convert"
    published.others = ()
    assert "expected a pytorch_model.bin; its weights are: none" in state_of("model opt-125m").note


def test_without_a_network_it_ends_at_once_with_sentences(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError("Network is unreachable")

    monkeypatch.setattr("socket.create_connection", refuse)
    monkeypatch.setattr("socket.getaddrinfo", refuse)
    with pytest.raises(SystemExit) as ended:
        sources.main()
    *lines, last = capsys.readouterr().out.splitlines()
    assert (ended.value.code, last.startswith("0 of ")) == (True, True)
    assert all(line.startswith("fails\t") and "gives no answer" in line for line in lines)
    assert {line.split("\t")[1].split(" (")[0] for line in lines} >= {
        *(f"model {alias.name}" for alias in CATALOG.values() if alias.kind == "hub"),
        *(f"corpus {corpus.name}" for corpus in CORPORA.values() if corpus.kind != "generated"),
        *(f"data set {name}" for name in ("sst2", "trec", "subj", "cr", "rotten_tomatoes", "ag_news", "mmlu")),
        "sentence encoder all-mpnet-base-v2",
    }
