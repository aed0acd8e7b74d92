"""What results files of lm-evaluation-harness say, as the fields of an entry; several files are the seeds of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from emobench.config import PRETRAINED, parse_call, to_plain
from emobench.errors import DataError, MetricError
from emobench.leaderboard.exchange.lm_eval_results import ResultsFile, mapping
from emobench.leaderboard.schema.entry import YEARS
from emobench.leaderboard.schema.examples import Recorded
from emobench.leaderboard.schema.private_paths import published, published_value, without_paths
from emobench.leaderboard.stats.distributions import NORMAL
from emobench.leaderboard.stats.summary import summarise
from emobench.tasks.lm_eval_numbers import Measured, clip, number, task_name
from emobench.tasks.scores import Score

SUITE = {"name": "lm-eval", "version": 1}

_SEEDS = {"random_seed": "random", "numpy_seed": "numpy", "torch_seed": "torch", "fewshot_seed": "few-shot"}


@dataclass(frozen=True)
class Subject:
    """What the user knows of the evaluated models, and the files do not: trained from what, with what, which seeds."""

    model: str | None = None
    objective: str = PRETRAINED
    seeds: tuple[int, ...] = ()


def entry_fields(files: Sequence[ResultsFile], examples: Sequence[Mapping[str, Recorded]], subject: Subject) -> Any:
    """Return an entry's fields but `runs` and `supersedes`, from one file or one for each seed.

    One file's intervals come from lm-eval's standard errors, several files' from the values and examples of the seeds.
    Raises DataError for a file without numbers, and for files of which one was made otherwise than the first.
    """
    first = files[0]
    for other in files[1:]:
        _require_alike(first, other)
    metrics, missing = _of_one(first) if len(files) == 1 else _of_seeds(files, examples)
    if not metrics:
        raise DataError(f"{first.path}: has no number under `results`; nothing was imported.")
    name, params = published(list(parse_call(subject.objective)), published_value)
    packages = {"lm-eval": first.text("lm_eval_version"), "transformers": first.text("transformers_version")}
    return {
        "kind": "imported",
        "suite": SUITE,
        "protocols": _protocols(first),
        "model": _model(first, subject),
        "objective": {"name": name, "version": "imported", "params": params},
        "recipe": {} if (dtype := _dtype(first)) is None else {"dtype": dtype},
        "seeds": list(subject.seeds),
        "metrics": metrics,
        "missing": missing,
        "cost": {},
        "source": {"cite": _cite(files)},
        "provenance": {
            "commit": first.text("git_hash"),
            "packages": {key: value for key, value in packages.items() if value},
            "hardware": first.text("config", "device"),
            "data": _data(first),
            "created": max(_created(file) for file in files).isoformat(timespec="seconds"),
        },
    }


def _require_alike(first: ResultsFile, other: ResultsFile) -> None:
    for what, of in (("protocol", _protocols), ("data", _data), ("precision", _dtype)):
        if of(first) != of(other):
            raise DataError(
                f"{other.path}: its {what} differs from that of {first.path}, so that they are no seeds of one entry. "
                "Import them without --seed, each as an entry."
            )


def _of_one(file: ResultsFile) -> tuple[dict[str, Any], dict[str, str]]:
    numbers = _numbers(file)
    metrics = {name: _summary(m, m.value, file) for name, m in numbers.items() if m.value is not None}
    return metrics, {name: f"lm-eval has {m.said}" for name, m in numbers.items() if m.value is None}


def _of_seeds(
    files: Sequence[ResultsFile], examples: Sequence[Mapping[str, Recorded]]
) -> tuple[dict[str, Any], dict[str, str]]:
    found = [_numbers(file) for file in files]
    metrics: dict[str, Any] = {}
    missing: dict[str, str] = {}
    for name in dict.fromkeys(name for numbers in found for name in numbers):
        absent = [f.path.name for f, n in zip(files, found, strict=True) if name not in n or n[name].value is None]
        if absent:
            missing[name] = f"no number in {clip(absent[0], 100)}"
            continue
        scores = [
            _score(numbers[name], file, own.get(name))
            for numbers, file, own in zip(found, files, examples, strict=True)
        ]
        try:
            counted = all(file.examples(found[0][name].task, found[0][name].key) for file in files)
            metrics[name] = {**to_plain(summarise(scores)), **({} if counted else {"n": None})}
        except MetricError as error:
            missing[name] = str(error)
    return metrics, missing


def _score(measured: Measured, file: ResultsFile, recorded: Recorded | None) -> Score:
    """Return a seed's score; where the file does not count its examples, `n` is no more than a place holder."""
    mean = "exp_mean" if measured.unit == "perplexity" else "mean"
    return Score(
        value=measured.value or 0.0,
        n=file.examples(measured.task, measured.key) or 1,
        higher_is_better=_better(measured, file),
        unit=measured.unit,
        flags=_flags(measured, file),
        examples=recorded.examples if recorded else None,
        units=recorded.units if recorded else None,
        aggregate=mean if recorded else "corpus",
    )


def _summary(measured: Measured, value: float, file: ResultsFile) -> dict[str, Any]:
    interval = _interval(measured, value)
    why = "lm-eval gives no standard error" if measured.stderr is None else "lm-eval's standard error is 0"
    return {
        "mean": value,
        "std": None,
        "values": [value],
        "n": file.examples(measured.task, measured.key),
        "ci95": interval,
        "ci95_of": "items" if interval else None,
        "ci95_missing": None if interval else why,
        "higher_is_better": _better(measured, file),
        "unit": measured.unit,
        "flags": list(_flags(measured, file)),
    }


def _interval(measured: Measured, value: float) -> list[float] | None:
    """Return value ± 1.96 standard errors, a fraction's within [0, 1]; none of an error of 0, which is no certainty."""
    if not measured.stderr:
        return None
    low, high = value - NORMAL * measured.stderr, value + NORMAL * measured.stderr
    return [max(low, 0.0), min(high, 1.0)] if measured.unit == "fraction" else [low, high]


def _numbers(file: ResultsFile) -> dict[str, Measured]:
    found: dict[str, Measured] = {}
    for measured in file.measured():
        if measured.name in found:
            raise DataError(f"{file.path}: two numbers are called {measured.name!r}; rename one task.")
        if measured.impossible:
            raise DataError(f"{file.path}: {clip(measured.task, 60)}: {measured.impossible}; nothing was imported.")
        found[measured.name] = measured
    return found


def _better(measured: Measured, file: ResultsFile) -> bool | None:
    found = mapping(file.mapping("higher_is_better").get(measured.task)).get(measured.metric)
    return found if isinstance(found, bool) else None


def _flags(measured: Measured, file: ResultsFile) -> tuple[str, ...]:
    members = len(file.members(measured.task))
    return (f"group_of_{members}_tasks",) if members else ()


def _protocols(file: ResultsFile) -> dict[str, str]:
    return {task_name(task): file.protocol(task) for task in file.results}


def _data(file: ResultsFile) -> dict[str, str]:
    hashes = {task_name(task): file.text("task_hashes", task) for task in file.results}
    return {task: f"sha256:{digest} (lm-eval's task_hash)" for task, digest in hashes.items() if digest}


def _dtype(file: ResultsFile) -> str | None:
    found = file.text("config", "model_dtype")
    return found and found.removeprefix("torch.")


def _model(file: ResultsFile, subject: Subject) -> dict[str, Any]:
    args = file.text("config", "model_args") or ""
    named = file.text("model_name") or args.partition("pretrained=")[2].partition(",")[0] or "unnamed"
    if subject.model is not None:
        named = published_value(subject.model)
        return {"name": named.removeprefix("./"), "source": named}
    count = number(file.mapping("config").get("model_num_parameters"))
    return {
        "name": named.rstrip("/").rpartition("/")[2] or named,
        "source": published_value(named),
        "revision": file.text("config", "model_sha"),
        "parameters": int(count) if count and count > 0 else None,
    }


def _cite(files: Sequence[ResultsFile]) -> str:
    version = files[0].text("lm_eval_version") or "of an unnamed version"
    said = [f"lm-evaluation-harness {version}", *map(_cite_file, files)]
    if len(files) == 1:
        said.append("ci95: 1.96 of lm-eval's standard errors to either side")
    return "; ".join(said)


def _cite_file(file: ResultsFile) -> str:
    config = file.mapping("config")
    seeds = [f"{shown} {config[key]}" for key, shown in _SEEDS.items() if isinstance(config.get(key), int)]
    parts = (
        f"{clip(file.path.name, 100)} (sha256 {file.sha256[:12]})",
        f"model {file.text('config', 'model') or 'unnamed'}: {clip(without_paths(str(config.get('model_args'))), 200)}",
        f"revision {file.text('config', 'model_revision') or 'unnamed'}",
        f"seeds: {', '.join(seeds) or 'unnamed'}",
    )
    return "; ".join(parts)


def _created(file: ResultsFile) -> datetime:
    """Return when the evaluation started, or else when its file was written. DataError for a time that is none."""
    given = number(file.data.get("date"))
    with suppress(OverflowError, OSError, ValueError):
        found = datetime.fromtimestamp(file.path.stat().st_mtime if given is None else given, UTC)
        if found.year in YEARS:
            return found
    raise DataError(
        f"{file.path}: its `date` is {'that of the file' if given is None else given}; expected seconds since 1970, in "
        f"a year from {YEARS[0]} to {YEARS[-1]}; nothing was imported."
    )
