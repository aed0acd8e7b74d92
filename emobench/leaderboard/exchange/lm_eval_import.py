"""Results of lm-evaluation-harness as entries of kind `imported`: one file, one entry of the suite `lm-eval`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from emobench.config import PRETRAINED, parse_call
from emobench.errors import DataError
from emobench.leaderboard.entry import Entry, new_entry
from emobench.leaderboard.examples import digest, write_examples
from emobench.leaderboard.exchange.lm_eval_file import Measured, ResultsFile, clip, mapping, number, task_name
from emobench.leaderboard.exchange.lm_eval_samples import read_samples
from emobench.leaderboard.store import Leaderboard
from emobench.tasks.scores import Score

SUITE = {"name": "lm-eval", "version": 1}
NORMAL = 1.959963984540054
"""The 97.5 % quantile of the normal distribution."""

_SEEDS = {"random_seed": "random", "numpy_seed": "numpy", "torch_seed": "torch", "fewshot_seed": "few-shot"}


@dataclass(frozen=True)
class Subject:
    """What the user knows of the evaluated model, and the file does not: what it was trained from, with, and how."""

    model: str | None = None
    objective: str = PRETRAINED
    seed: int | None = None


@dataclass(frozen=True)
class Imported:
    """`note` says why per-example results were left behind, if they were."""

    entry: Entry
    added: bool
    paired: int
    note: str | None


def find_results(path: Path) -> list[Path]:
    """Return the results files of a folder as lm_eval writes it, or the file itself. Raises DataError for neither."""
    if not path.is_dir():
        if path.exists():
            return [path]
        raise DataError(f"{path} does not exist; expected a results_*.json of lm_eval, or the folder that holds them.")
    found = sorted(path.rglob("results_*.json"))
    if not found:
        raise DataError(f"{path} holds no results_*.json; expected the folder given to lm_eval --output_path.")
    return found


def import_results(path: Path, board: Leaderboard, runs: Path, subject: Subject) -> Imported:
    """Append the entry of a results file; nothing is added where the board has it.

    The same file with other facts (another objective named, samples found since) supersedes its entry. Per-example
    results go to `runs`. Raises DataError for a file that is none, StorageError for a disk.
    """
    try:
        results = ResultsFile(path)
        fields = _fields(results, subject)
    except RecursionError:
        raise DataError(f"{path}: nested too deeply for results of lm_eval.") from None
    examples, note = _examples(results)
    run: dict[str, Any] = {"seed": subject.seed, "key": results.sha256[:16]}
    for row in board.rows():
        if row.kind == "imported" and row.runs == (run["key"],):
            known = board.read(row)
            if _same(known, {**fields, "runs": [run]}, with_examples=bool(examples)):
                return Imported(known, False, len(examples), note)
            fields["supersedes"] = known.id
    if examples:
        file = runs / "imported" / run["key"] / "examples.jsonl"
        write_examples(file, examples)
        run["examples"] = {"path": str(file.relative_to(runs)), "sha256": digest(file)}
    entry = new_entry({**fields, "runs": [run]}, str(path))
    board.append(entry)
    return Imported(entry, True, len(examples), note)


def _same(known: Entry, fields: Mapping[str, Any], *, with_examples: bool) -> bool:
    if with_examples and known.runs[0].examples is None:
        return False
    given = new_entry({**fields, "supersedes": None})
    # A file without a date takes its own, which a copy of it has not.
    provenance = replace(given.provenance, created=known.provenance.created)
    given = replace(given, id=known.id, supersedes=known.supersedes, provenance=provenance, runs=known.runs)
    return given == known and known.runs[0].seed == fields["runs"][0]["seed"]


def _fields(results: ResultsFile, subject: Subject) -> dict[str, Any]:
    metrics, missing = _metrics(results)
    name, params = parse_call(subject.objective)
    version = results.text("lm_eval_version")
    packages = {"lm-eval": version, "transformers": results.text("transformers_version")}
    hashes = {task: results.text("task_hashes", task) for task in results.results}
    dtype = results.text("config", "model_dtype")
    return {
        "kind": "imported",
        "supersedes": None,
        "suite": SUITE,
        "protocols": {task_name(task): results.protocol(task) for task in results.results},
        "model": _model(results, subject),
        "objective": {"name": name, "version": "imported", "params": params},
        "recipe": {"dtype": dtype.removeprefix("torch.")} if dtype else {},
        "seeds": [] if subject.seed is None else [subject.seed],
        "metrics": metrics,
        "missing": missing,
        "cost": {},
        "source": {"cite": _cite(results, version)},
        "provenance": {
            "commit": results.text("git_hash"),
            "packages": {key: value for key, value in packages.items() if value},
            "hardware": results.text("config", "device"),
            "data": {task_name(t): f"sha256:{h} (lm-eval's task_hash)" for t, h in hashes.items() if h},
            "created": _created(results),
        },
    }


def _metrics(results: ResultsFile) -> tuple[dict[str, Any], dict[str, str]]:
    metrics: dict[str, Any] = {}
    missing: dict[str, str] = {}
    for measured in results.measured():
        if measured.name in metrics or measured.name in missing:
            raise DataError(f"{results.path}: two numbers are called {measured.name!r}; rename one task.")
        if measured.value is None:
            missing[measured.name] = f"lm-eval has {measured.said}"
        else:
            metrics[measured.name] = _summary(measured, measured.value, results)
    if not metrics:
        raise DataError(f"{results.path}: has no number under `results`; nothing was imported.")
    return metrics, missing


def _summary(measured: Measured, value: float, results: ResultsFile) -> dict[str, Any]:
    interval = _interval(measured, value)
    why = "lm-eval gives no standard error" if measured.stderr is None else "lm-eval's standard error is 0"
    better = mapping(results.mapping("higher_is_better").get(measured.task)).get(measured.metric)
    members = len(results.members(measured.task))
    return {
        "mean": value,
        "std": None,
        "values": [value],
        "n": results.examples(measured.task, f"{measured.metric},{measured.filter}"),
        "ci95": interval,
        "ci95_of": "items" if interval else None,
        "ci95_missing": None if interval else why,
        "higher_is_better": better if isinstance(better, bool) else None,
        "unit": measured.unit,
        "flags": [f"group_of_{members}_tasks"] if members else [],
    }


def _interval(measured: Measured, value: float) -> list[float] | None:
    """Return value ± 1.96 standard errors, a fraction's within [0, 1]; none of an error of 0, which is no certainty."""
    if not measured.stderr or measured.stderr < 0:
        return None
    low, high = value - NORMAL * measured.stderr, value + NORMAL * measured.stderr
    return [max(low, 0.0), min(high, 1.0)] if measured.unit == "fraction" else [low, high]


def _examples(results: ResultsFile) -> tuple[dict[str, Score], str | None]:
    try:
        found = read_samples(results)
    except DataError as error:
        return {}, str(error)
    numbers = {m.name: m for m in results.measured()}
    return {
        name: Score(value=numbers[name].value or 0.0, n=len(values), higher_is_better=None, unit="", examples=values)
        for name, values in found.items()
    }, None


def _model(results: ResultsFile, subject: Subject) -> dict[str, Any]:
    args = results.text("config", "model_args") or ""
    named = results.text("model_name") or args.partition("pretrained=")[2].partition(",")[0] or "unnamed"
    if subject.model is not None:
        return {"name": subject.model, "source": subject.model}
    count = number(results.mapping("config").get("model_num_parameters"))
    return {
        "name": named.rstrip("/").rpartition("/")[2] or named,
        "source": named,
        "revision": results.text("config", "model_sha"),
        "parameters": int(count) if count and count > 0 else None,
    }


def _cite(results: ResultsFile, version: str | None) -> str:
    config = results.mapping("config")
    seeds = [f"{shown} {config[key]}" for key, shown in _SEEDS.items() if isinstance(config.get(key), int)]
    parts = [
        f"lm-evaluation-harness {version or 'of an unnamed version'}",
        f"{clip(results.path.name, 100)} (sha256 {results.sha256[:12]})",
        f"model {results.text('config', 'model') or 'unnamed'}: {clip(str(config.get('model_args')), 200)}",
        f"revision {results.text('config', 'model_revision') or 'unnamed'}",
        f"seeds: {', '.join(seeds) or 'unnamed'}",
        "ci95: 1.96 of lm-eval's standard errors to either side",
    ]
    return "; ".join(parts)


def _created(results: ResultsFile) -> str:
    """Return when the evaluation started, or else when its file was written."""
    written = results.path.stat().st_mtime
    try:
        found = datetime.fromtimestamp(number(results.data.get("date")) or written, UTC)
    except (OverflowError, OSError, ValueError):
        found = datetime.fromtimestamp(written, UTC)
    return found.isoformat(timespec="seconds")
