"""What results files of lm-evaluation-harness say, as the fields of an entry; several files are the seeds of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from emobench.core.errors import DataError, MetricError
from emobench.core.settings import PRETRAINED, parse_call, to_plain
from emobench.exchange.evaluation import UNNAMED
from emobench.exchange.lm_eval_model import changed_weights, loading, model_name, variant
from emobench.exchange.lm_eval_results import ResultsFile
from emobench.leaderboard.private_paths import distinct_name, published, published_value, without_paths
from emobench.leaderboard.run_files import Recorded
from emobench.leaderboard.stats.classical import NORMAL
from emobench.leaderboard.stats.summary import summarise
from emobench.tasks.lm_eval_numbers import LmEvalNumber, clip, number, task_name
from emobench.tasks.scores import Score

SUITE = {"name": "lm-eval", "version": 1}

_SEEDS = {"random_seed": "random", "numpy_seed": "numpy", "torch_seed": "torch", "fewshot_seed": "few-shot"}


@dataclass(frozen=True)
class ImportedModel:
    """What the user knows of the evaluated models, and the files do not: trained from what, with what, which seeds."""

    model: str | None = None
    objective: str = PRETRAINED
    seeds: tuple[int, ...] = ()


def entry_fields(
    files: Sequence[ResultsFile], examples: Sequence[Mapping[str, Recorded]], given: ImportedModel
) -> dict[str, Any]:
    """Return an entry's fields but `runs` and `supersedes`, from one file or one for each seed.

    One file's intervals come from lm-eval's standard errors, several files' from the values and examples of the seeds.
    Raises DataError for a file without numbers, and for files of which one was made otherwise than the first.
    """
    first = files[0]
    first.require_numbers()
    for other in files[1:]:
        _require_alike(first, other)
    metrics, missing = _of_one(first) if len(files) == 1 else _of_seeds(files, examples)
    name, params = published(list(parse_call(given.objective)), published_value)
    packages = {"lm-eval": first.text("lm_eval_version"), "transformers": first.text("transformers_version")}
    return {
        "kind": "imported",
        "suite": SUITE,
        "protocols": _protocols(first),
        "model": _model(first, given),
        "objective": {"name": name, "version": "imported", "params": params},
        "recipe": _recipe(first),
        "seeds": list(given.seeds),
        "metrics": metrics,
        "missing": missing,
        "cost": {},
        "source": {"cite": _cite(files)},
        "provenance": {
            "commit": first.text("git_hash"),
            "packages": {key: value for key, value in packages.items() if value},
            "hardware": first.text("config", "device"),
            "data": _data(first),
            "created": max(map(_created, files)).isoformat(timespec="seconds"),
        },
    }


def _require_alike(first: ResultsFile, other: ResultsFile) -> None:
    for what, of in (("protocol", _protocols), ("data", _data), ("precision", _recipe)):
        if of(first) != of(other):
            raise DataError(
                f"{other.path}: its {what} differs from that of {first.path}, so that they are not seeds of one entry. "
                "Import them without --seed, each as an entry."
            )


def _of_one(file: ResultsFile) -> tuple[dict[str, Any], dict[str, str]]:
    numbers = file.numbers()
    metrics = {name: _summary(one, one.value, file) for name, one in numbers.items() if one.value is not None}
    return metrics, {name: one.absent for name, one in numbers.items() if one.value is None}


def _of_seeds(
    files: Sequence[ResultsFile], examples: Sequence[Mapping[str, Recorded]]
) -> tuple[dict[str, Any], dict[str, str]]:
    numbers = [file.numbers() for file in files]
    metrics: dict[str, Any] = {}
    missing: dict[str, str] = {}
    for name in dict.fromkeys(name for of in numbers for name in of):
        absent = [f.path.name for f, of in zip(files, numbers, strict=True) if name not in of or of[name].value is None]
        if absent:
            missing[name] = f"no number in {clip(absent[0], 100)}"
            continue
        seeds = zip(numbers, files, examples, strict=True)
        scores = [_score(of[name], file, recorded.get(name)) for of, file, recorded in seeds]
        try:
            counted = all(file.examples(numbers[0][name]) for file in files)
            metrics[name] = {**to_plain(summarise(scores)), **({} if counted else {"n": None})}
        except MetricError as error:
            missing[name] = str(error)
    return metrics, missing


def _score(of: LmEvalNumber, file: ResultsFile, recorded: Recorded | None) -> Score:
    """Return a seed's score; where the file does not count its examples, `n` is a placeholder."""
    mean = "exp_mean" if of.unit == "perplexity" else "mean"
    return Score(
        value=of.value or 0.0,
        n=file.examples(of) or 1,
        higher_is_better=file.higher_is_better(of),
        unit=of.unit,
        flags=_flags(of, file),
        examples=recorded.examples if recorded else None,
        units=recorded.units if recorded else None,
        aggregate=mean if recorded else "corpus",
    )


def _summary(of: LmEvalNumber, value: float, file: ResultsFile) -> dict[str, Any]:
    bounds = interval(of, value)
    why = "lm-eval gives no standard error" if of.stderr is None else "lm-eval's standard error is 0"
    return {
        "mean": value,
        "std": None,
        "values": [value],
        "n": file.examples(of),
        "ci95": list(bounds) if bounds else None,
        "ci95_of": "items" if bounds else None,
        "ci95_missing": None if bounds else why,
        "higher_is_better": file.higher_is_better(of),
        "unit": of.unit,
        "flags": list(_flags(of, file)),
    }


def interval(of: LmEvalNumber, value: float) -> tuple[float, float] | None:
    """Return value ± 1.96 standard errors, a fraction's within [0, 1]; none of an error of 0, which is no certainty."""
    if not of.stderr:
        return None
    low, high = value - NORMAL * of.stderr, value + NORMAL * of.stderr
    return (max(low, 0.0), min(high, 1.0)) if of.unit == "fraction" else (low, high)


def _flags(of: LmEvalNumber, file: ResultsFile) -> tuple[str, ...]:
    members = len(file.members(of.task))
    return (f"group_of_{members}_tasks",) if members else ()


def _protocols(file: ResultsFile) -> dict[str, str]:
    return {task_name(task): file.protocol(task) for task in file.results}


def _data(file: ResultsFile) -> dict[str, str]:
    hashes = {task_name(task): file.text("task_hashes", task) for task in file.results}
    return {task: f"sha256:{digest} (lm-eval's task_hash)" for task, digest in hashes.items() if digest}


def _recipe(file: ResultsFile) -> dict[str, Any]:
    """Return the precision of the weights, and the tokenizer if one was given."""
    dtype = file.text("config", "model_dtype")
    return ({"dtype": dtype.removeprefix("torch.")} if dtype else {}) | loading(file.data)


def _model(file: ResultsFile, given: ImportedModel) -> dict[str, Any]:
    if given.model is not None:
        source = published_value(given.model)
        return {"name": source.removeprefix("./"), "source": source}
    named, own = model_name(file.data), variant(file.data)
    shown = distinct_name(named)
    # Files that name no model may be of different ones.
    which = f"#{file.sha256[:8]}" if named == UNNAMED else ""
    commit = file.text("config", "model_sha")
    count = number(file.mapping("config").get("model_num_parameters"))
    return {
        "name": shown.rpartition("/")[2] + own,
        "source": shown + which + own,
        "revision": commit and commit + changed_weights(file.data),
        "parameters": int(count) if count and count > 0 else None,
    }


def _cite(files: Sequence[ResultsFile]) -> str:
    version = files[0].text("lm_eval_version") or "of an unnamed version"
    parts = [f"lm-evaluation-harness {version}", *map(_cite_file, files)]
    return "; ".join([*parts, "ci95: 1.96 of lm-eval's standard errors to either side"] if len(files) == 1 else parts)


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
    """Return when the evaluation started, or else when its file was written."""
    date = number(file.data.get("date"))
    try:
        return datetime.fromtimestamp(file.path.stat().st_mtime if date is None else date, UTC)
    except (OverflowError, OSError, ValueError):
        raise DataError(f"{file.path}: its `date` is {date}; expected seconds since 1970.") from None
