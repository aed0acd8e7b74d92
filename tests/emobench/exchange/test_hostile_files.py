"""Files with one field changed to something hostile are read, or refused in a sentence: there is never a traceback."""

from __future__ import annotations

import copy
import json
import math
import os
import random
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from emobench.core.errors import DataError, EmobenchError
from emobench.data.rows import file_rows
from emobench.exchange.result_files import ImportedModel, compare_files, import_results, read_evaluation
from emobench.leaderboard.store import Leaderboard
from emobench.report.compare_table import report, to_csv, to_json

CASES = int(os.environ.get("EMOBENCH_HOSTILE_CASES", "40"))
"""Of each kind of file; 0: all."""
N = 12
DELETED = object()
HOSTILE = [
    *(None, True, False, 0, 1, -1, 0.5, -0.0, 1e308, -1e308, 10**400, math.nan, math.inf, -math.inf),
    *("", "\ud800", "\x00", "\x1b[31m", "x" * 10_000, "../../etc", "NaN", "1", "a,b/c#d\n"),
    *([], {}, [[]], [{}], [None], {"a": 1}, {"": None}, {"\ud800": "\ud800"}, [1, "a", None, []], DELETED),
    json.loads("[" * 60 + "]" * 60),
]
KINDS: dict[str, dict[str, Any]] = json.loads((Path(__file__).parent / "whole_files.json").read_text())
"""The files of an evaluation of each format, with their contents; the first one is given to a command."""


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the place of each value in nested lists and mappings; of a list the first and the last item."""
    keys: Any = value if isinstance(value, dict) else {0, len(value) - 1} if isinstance(value, list) and value else ()
    for key in keys:
        yield (*at, key)
        yield from places(value[key], (*at, key))


def changed(documents: dict[str, Any], place: tuple[Any, ...], value: Any) -> dict[str, Any]:
    found = copy.deepcopy(documents)
    *above, last = place
    node: Any = found
    for key in above:
        node = node[key]
    if value is DELETED:
        del node[last]
    else:
        node[last] = value
    return found


def write(folder: Path, documents: dict[str, Any]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in documents.items():
        text = json.dumps(content)
        if name.endswith(".jsonl") and isinstance(content, list):
            text = "".join(json.dumps(row) + "\n" for row in content)
        (folder / name).write_text(text)
    return folder / next(iter(documents))


def use(changed: Path, whole: Path, root: Path) -> None:
    """Do what commands do with two files, of which one was changed. Only emobench's own errors are sentences."""
    for anyway in (False, True):
        try:
            found = compare_files([str(changed), str(whole)], anyway=anyway)
            shown = [*report([found]).notes, to_csv([found]), json.dumps(to_json(found))]
            "".join(shown).encode()
        except EmobenchError as error:
            str(error).encode("utf-8", "surrogateescape")
    with suppress(EmobenchError):
        import_results([changed], Leaderboard(root / "board"), root / "runs", ImportedModel())


@pytest.mark.parametrize("kind", KINDS)
def test_a_whole_file_gets_a_verdict(kind: str, tmp_path: Path) -> None:
    files = [write(tmp_path / name, KINDS[kind]) for name in "xy"]
    found = compare_files([str(path) for path in files])
    assert {one.verdict for one in found.contrasts} == {"tied"}
    assert {one.items for one in found.contrasts} == {N}


@pytest.mark.parametrize("kind", KINDS)
def test_one_hostile_field_is_no_traceback(kind: str, tmp_path: Path) -> None:
    documents = KINDS[kind]
    whole = write(tmp_path / "whole", documents)
    all_places = [place for place in places(dict(documents)) if len(place) > 1]
    cases = [(place, value) for place in all_places for value in HOSTILE]
    chosen = random.Random(1).sample(cases, CASES) if CASES else cases
    failed = []
    for number, (place, value) in enumerate(chosen):
        path = write(tmp_path / str(number), changed(documents, place, value))
        try:
            use(path, whole, tmp_path / str(number))
        except Exception as error:
            failed.append((place, str(value)[:30], f"{type(error).__name__}: {error}"[:120]))
    assert failed == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", ["", "[", "null", "1", '"x"', "\ufeff{}", '{"a": 1, "a": 2}', "[" * 100_000, "\x00"])
def test_files_of_something_else_are_no_traceback(kind: str, text: str, tmp_path: Path) -> None:
    whole = write(tmp_path / "whole", KINDS[kind])
    for name in KINDS[kind]:
        path = write(tmp_path / name, KINDS[kind])
        (path.parent / name).write_text(text)
        use(path, whole, tmp_path / "out")


def sparse(path: Path, size: int) -> Path:
    """Make a file that takes no room on the disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.truncate(size)
    return path


@pytest.mark.parametrize("name", ["results_1.json", "log.json"])
def test_a_file_of_terabytes_is_refused_unread(name: str, tmp_path: Path) -> None:
    path = sparse(tmp_path / name, 2**42)
    with pytest.raises(DataError, match="4,398,046,511,104"):
        read_evaluation(str(path))


@pytest.mark.parametrize(("begin", "number"), [(b"", "1:"), (b"{}\n", "2:")])
def test_samples_in_a_line_without_an_end_are_refused(begin: bytes, number: str, tmp_path: Path) -> None:
    content = {"results": {"t": {"acc,none": 0.5}}, "model_name": "m"}
    (tmp_path / "results_1.json").write_text(json.dumps(content))
    path = sparse(tmp_path / "samples_t_1.jsonl", 2**42)
    with path.open("r+b") as file:
        hashes = {"doc_hash": "d", "prompt_hash": "p", "target_hash": "t"}
        row = {"doc_id": 0, "acc": 0.5, "metrics": ["acc"], **hashes}
        file.write(begin.replace(b"{}", json.dumps(row).encode()))
    with pytest.raises(DataError, match=number):
        read_evaluation(str(tmp_path))


def test_a_corpus_in_a_line_without_an_end_is_refused(tmp_path: Path) -> None:
    path = sparse(tmp_path / "mine.test.jsonl", 2**42)
    with pytest.raises(DataError, match=r"jsonl:1: .*134,217,728"):
        next(file_rows(path))
