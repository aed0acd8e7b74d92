"""Files with one field changed to something hostile are read, or refused in a sentence: there is never a traceback."""

from __future__ import annotations

import copy
import json
import math
import os
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from emobench.core.errors import DataError, EmobenchError
from emobench.data.rows import file_rows
from emobench.exchange.result_files import compare_files, read_evaluation
from emobench.exchange.results_import import ImportedModel, import_results
from emobench.leaderboard.store import Leaderboard
from emobench.report.compare_table import report, to_csv, to_json

CASES = int(os.environ.get("EMOBENCH_HOSTILE_CASES", "60"))
"""Of each kind of file; 0: all."""
N = 12
DELETED = object()
HOSTILE = [
    *(None, True, False, 0, 1, -1, 0.5, -0.0, 1e308, -1e308, 10**400, math.nan, math.inf, -math.inf),
    *("", "\ud800", "\x00", "\x1b[31m", "x" * 10_000, "../../etc", "NaN", "1", "a,b/c#d\n"),
    *([], {}, [[]], [{}], [None], {"a": 1}, {"": None}, {"\ud800": "\ud800"}, [1, "a", None, []], DELETED),
    json.loads("[" * 60 + "]" * 60),
]
DRAW = random.Random(0)
RIGHT = [float(DRAW.random() < 0.5) for _ in range(N)]
MEAN = math.fsum(RIGHT) / N
Documents = Mapping[str, Any]
"""The files of an evaluation: their names and contents, the first one that which is given to a command."""


def lm_eval(version: int) -> Documents:
    rows = []
    for name in ("strict", "loose"):
        for i, value in enumerate(RIGHT):
            row = {"doc_id": i, "doc": {"question": f"q{i}", "subject": "s"}, "target": "t", "resps": [["x"]]}
            row |= {"arguments": {"gen_args_0": {"arg_0": f"q{i}", "arg_1": {}}}, "acc": value}
            new = {"filter": name, "metrics": ["acc"], "doc_hash": f"d{i}", "prompt_hash": f"p{i}", "target_hash": "t"}
            rows.append(row | (new if version > 0 else {}))
    numbers = {"alias": "t", "acc,strict": MEAN, "acc_stderr,strict": 0.1, "acc,loose": MEAN, "ppl,none": "N/A"}
    content = {
        "results": {"t": numbers, "g": {"acc,strict": MEAN, "sample_count": {"acc,strict": N}}},
        "group_subtasks": {"g": ["t"]},
        "configs": {
            "t": {
                "task": "t",
                "dataset_path": "org/data",
                "output_type": "multiple_choice",
                "dataset_kwargs": {"data_files": "x"},
                "metric_list": [{"metric": "acc", "higher_is_better": True}],
                "filter_list": [{"name": "strict", "filter": []}, {"name": "loose", "filter": []}],
            }
        },
        "versions": {"t": 1.0},
        "n-shot": {"t": 2},
        "n-samples": {"t": {"original": N, "effective": N}},
        "higher_is_better": {"t": {"acc": True}},
        "config": {
            "model": "hf",
            "model_args": "pretrained=org/m,max_length=64",
            "model_num_parameters": 7,
            "model_dtype": "torch.float32",
            "model_revision": "main",
            "model_sha": "",
            "limit": None,
            "gen_kwargs": None,
            "random_seed": 0,
            "fewshot_seed": 1,
            "device": "cpu",
        },
        "date": 1.8e9,
        "lm_eval_version": "0.4.13",
        "transformers_version": "5.0",
        "git_hash": "abc",
        "model_name": "org/m",
        "chat_template_sha": "c",
        "fewshot_as_multiturn": True,
        "max_length": 64,
        "system_instruction_sha": None,
        "task_hashes": {"t": "h"},
    }
    if version == 0:
        return {"results.json": content, "pretrained__org__m,max_length__64_t.jsonl": rows}
    return {"results_1.json": content, "samples_t_1.jsonl": rows}


def inspect() -> Documents:
    samples = [
        {
            "id": i,
            "epoch": epoch,
            "input": [{"role": "user", "content": f"q{i}", "id": "x"}],
            "target": "t",
            "choices": ["a"],
            "scores": {"match": {"value": "C" if value else "I"}, "two": {"value": {"f1": value}}},
            "error": None,
        }
        for i, value in enumerate(RIGHT)
        for epoch in (1, 2)
    ]
    scores = [
        {
            "name": "match",
            "scorer": "match",
            "reducer": reducer,
            "scored_samples": N,
            "params": {"a": 1},
            "metrics": {"accuracy": {"name": "accuracy", "value": MEAN, "group": None}, "stderr": {"value": 0.1}},
        }
        for reducer in ("mean", "at_least_1")
    ]
    scores.append({"name": "f1", "scorer": "two", "metrics": {"mean": {"name": "mean", "value": MEAN}}})
    reduced = [{"sample_id": i, "value": value} for i, value in enumerate(RIGHT)]
    return {
        "log.json": {
            "version": 2,
            "status": "success",
            "invalidated": False,
            "eval": {
                "task": "arc",
                "task_version": 0,
                "task_args": {"a": 1},
                "model": "org/m",
                "created": "2026-01-01",
                "packages": {"inspect_ai": "0.3"},
                "config": {"epochs": 2, "limit": 3},
            },
            "plan": {"steps": [{"solver": "generate", "params": {}}], "config": {"temperature": 0}},
            "results": {"scores": scores},
            "reductions": [{"scorer": "match", "reducer": "mean", "samples": reduced}],
            "samples": samples,
        }
    }


def every_eval_ever() -> Documents:
    result = {
        "evaluation_result_id": "arc#acc",
        "evaluation_name": "arc",
        "source_data": {"dataset_name": "arc"},
        "metric_config": {
            "metric_name": "acc",
            "metric_id": "acc",
            "metric_unit": "proportion",
            "lower_is_better": False,
        },
        "generation_config": {"generation_args": {"temperature": 0}, "additional_details": {"a": "b"}},
        "score_details": {
            "score": MEAN,
            "details": {"protocol": "p", "interval covers": "items"},
            "uncertainty": {
                "num_samples": N,
                "confidence_interval": {"lower": 0.1, "upper": 0.9, "confidence_level": 0.95},
            },
        },
    }
    rows = [
        {
            "evaluation_result_id": "arc#acc",
            "evaluation_name": "arc",
            "sample_id": str(i),
            "sample_hash": "h",
            "input": {"raw": f"q{i}", "reference": ["x"], "formatted": f"Q: q{i}"},
            "evaluation": {"score": value, "is_correct": True},
            "metadata": {"sampling_unit": f"u{i}"},
        }
        for i, value in enumerate(RIGHT)
    ]
    content = {
        "schema_version": "0.3.0",
        "evaluation_id": "arc/m/0",
        "retrieved_timestamp": "1800000000",
        "evaluation_timestamp": "2026-01-01T00:00:00+00:00",
        "model_info": {"name": "m", "id": "org/m", "additional_details": {"base_model": "b", "objective": "emo"}},
        "eval_library": {"name": "lm_eval", "version": "0.4.13"},
        "evaluation_results": [result],
        "detailed_evaluation_results": {"file_path": "record_samples.jsonl"},
    }
    return {"record.json": content, "record_samples.jsonl": rows}


KINDS: dict[str, Callable[[], Documents]] = {
    "lm-eval 0.4.2": lambda: lm_eval(0),
    "lm-eval 0.4.13": lambda: lm_eval(1),
    "inspect": inspect,
    "every-eval-ever": every_eval_ever,
}


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the place of each value in nested lists and mappings; of a list the first and the last item."""
    keys: Any = value if isinstance(value, dict) else {0, len(value) - 1} if isinstance(value, list) and value else ()
    for key in keys:
        yield (*at, key)
        yield from places(value[key], (*at, key))


def changed(documents: Documents, place: tuple[Any, ...], value: Any) -> Documents:
    found = copy.deepcopy(dict(documents))
    *above, last = place
    node: Any = found
    for key in above:
        node = node[key]
    if value is DELETED:
        del node[last]
    else:
        node[last] = value
    return found


def write(folder: Path, documents: Documents) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in documents.items():
        text = json.dumps(content)
        if name.endswith(".jsonl") and not name.startswith("pretrained") and isinstance(content, list):
            text = "".join(json.dumps(row) + "\n" for row in content)
        (folder / name).write_text(text)
    return folder / next(iter(documents))


def use(changed: Path, whole: Path, root: Path) -> None:
    """Do what commands do with two files, of which one was changed. Only emobench's own errors are sentences."""
    for anyway in (False, True):
        try:
            found, problems = compare_files([str(changed), str(whole)], anyway=anyway)
            shown = [*report([found]).notes, to_csv([found]), json.dumps(to_json(found)), *problems]
            "".join(shown).encode()
        except EmobenchError as error:
            str(error).encode("utf-8", "surrogateescape")
    with suppress(EmobenchError):
        import_results([changed], Leaderboard(root / "board"), root / "runs", ImportedModel())


@pytest.mark.parametrize("kind", KINDS)
def test_a_whole_file_gets_a_verdict(kind: str, tmp_path: Path) -> None:
    files = [write(tmp_path / name, KINDS[kind]()) for name in "xy"]
    found, problems = compare_files([str(path) for path in files])
    assert problems == []
    assert {one.verdict for one in found.contrasts} == {"tied"}
    assert {one.items for one in found.contrasts} == {N}


@pytest.mark.parametrize("kind", KINDS)
def test_one_hostile_field_is_no_traceback(kind: str, tmp_path: Path) -> None:
    documents = KINDS[kind]()
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
    whole = write(tmp_path / "whole", KINDS[kind]())
    for name in KINDS[kind]():
        path = write(tmp_path / name, KINDS[kind]())
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


@pytest.mark.parametrize(("begin", "number"), [(b"", "1:"), (b"{}\n", "2:"), (b"[", "4,398,046,511,104")])
def test_samples_in_a_line_without_an_end_are_refused(begin: bytes, number: str, tmp_path: Path) -> None:
    content = {"results": {"t": {"acc,none": 0.5}}, "model_name": "m"}
    (tmp_path / "results_1.json").write_text(json.dumps(content))
    path = sparse(tmp_path / "samples_t_1.jsonl", 2**42)
    with path.open("r+b") as file:
        file.write(begin.replace(b"{}", b'{"doc_id": 0, "acc": 0.5, "metrics": ["acc"]}'))
    with pytest.raises(DataError, match=number):
        read_evaluation(str(tmp_path))


def test_a_corpus_in_a_line_without_an_end_is_refused(tmp_path: Path) -> None:
    path = sparse(tmp_path / "mine.test.jsonl", 2**42)
    with pytest.raises(DataError, match=r"jsonl:1: .*134,217,728"):
        next(file_rows(path))
