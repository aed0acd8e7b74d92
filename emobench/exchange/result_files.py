"""Result files of lm-evaluation-harness, inspect and Every Eval Ever, compared as they are: nothing is recorded."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from emobench.core.errors import ConfigError, DataError, MetricError
from emobench.core.reading import expand_home, is_file, is_folder, path_exists
from emobench.core.settings import PRETRAINED
from emobench.exchange.evaluation import EXPECTED, LONGEST, MOST_NAMED, Evaluation, read_json, remarks, unpaired
from emobench.exchange.every_eval_ever import is_record, record_evaluation
from emobench.exchange.inspect_log import inspect_evaluation, is_inspect_log
from emobench.exchange.lm_eval import lm_eval_evaluation, require_no_samples
from emobench.leaderboard.entry import Entry, new_entry
from emobench.leaderboard.labels import clean
from emobench.leaderboard.run_files import RunExamples
from emobench.leaderboard.stats.compare import Comparison, Contrast, compare_models
from emobench.leaderboard.stats.series import common_examples, scored
from emobench.tasks.lm_eval_numbers import clip

RECORDS = "data/*/*/*/*.json"
"""Where a copy of Every Eval Ever's datastore has its records."""
ENDINGS = (".json", ".eval")
NO_DIRECTION = "descriptive, without a verdict: the files do not say, or do not agree, which direction is better"
ADVICE = {
    "lm-eval": "evaluate with --log_samples",
    "inspect": "evaluate without --no-log-samples",
    "every-eval-ever": "put its instances, a file of JSON Lines, next to it",
}
"""What gives the files of a format per-example results."""
EPOCH = "2000-01-01T00:00:00+00:00"
"""The time of entries that are made for one comparison."""


def names_results(text: str) -> bool:
    """Return whether an argument of `compare` names a result file or a folder, rather than an entry of a board."""
    path = expand_home(text)
    if is_folder(path):
        return "/" in text or bool(result_files(path))
    if path.suffix and is_file(path):
        return True
    # A path that is not there, without a mark of a query, a paper's row or parameters, is said to be absent.
    return text.endswith(ENDINGS) or ("/" in text and not any(mark in text for mark in "(:="))


def read_evaluation(text: str) -> Evaluation:
    """Return the evaluation of a file, or of the one result file of a folder. Raises DataError."""
    return read_results(_file(expand_home(text)))


def read_results(path: Path, *, lenient: bool = False) -> Evaluation:
    """Return the evaluation in a file, `lenient` without samples that cannot be read. Raises DataError."""
    if path.suffix == ".eval":
        raise DataError(f"{path}: inspect's own format; make it JSON with `inspect log convert {path} --to json`.")
    require_no_samples(path)
    data = read_json(path)
    if is_inspect_log(data):
        return inspect_evaluation(path, data)
    if is_record(data):
        return record_evaluation(path, data)
    return lm_eval_evaluation(path, data, lenient=lenient)


def compare_files(
    texts: Sequence[str], baseline: str | None = None, *, anyway: bool = False
) -> tuple[Comparison, list[str]]:
    """Compare the models of result files with the last one or `baseline`, example by example.

    Returns the comparison, and which files have no per-example results. Raises DataError for other files,
    and ConfigError where examples do not pair, unless `anyway`: these metrics then have no verdict.
    """
    named = list(dict.fromkeys([*texts, baseline or texts[-1]]))
    if len(named) < 2:
        raise ConfigError(f"{named[0]} alone has nothing to compare with; give two result files or folders.")
    read = {text: read_evaluation(text) for text in named}
    base = read[baseline or texts[-1]]
    models = []
    for evaluation in read.values():
        _require_common(evaluation, base)
        models.append(_short(evaluation.model) + evaluation.variant)
    evaluations: dict[str, Evaluation] = {}
    entries: list[Entry] = []
    apart: dict[str, dict[str, str]] = {}
    problems, notes = [], []
    for (text, evaluation), model in zip(read.items(), models, strict=True):
        name = model if models.count(model) == 1 else text
        entry = _entry(evaluation, name)
        evaluations[entry.id] = evaluation
        entries.append(entry)
        if evaluation is not base:
            apart[entry.id] = _apart(evaluation, base)
        if not any(evaluation.prompts.values()):
            problems.append(f"{evaluation.path} has none; {ADVICE[evaluation.format]}.")
        notes += [f"{name}: {note}." for note in evaluation.notes]
    if any(apart.values()) and not anyway:
        raise ConfigError(_refusal(evaluations, apart, base))

    def examples_of(entry: Entry) -> list[RunExamples]:
        examples = evaluations[entry.id].examples
        return [{metric: recorded.sampled for metric, recorded in examples.items()}]

    rows = [entry for entry in entries if entry.id in apart]
    (first,) = [entry for entry in entries if entry.id not in apart]
    comparison = compare_models(first, rows, examples_of, apart)
    explained = []
    for contrast in comparison.contrasts:
        identity = contrast.candidate
        explained.append(_explained(contrast, evaluations[identity], base, apart[identity]))
    for entry in rows:
        notes += [f"{entry.model.name}: {remark}" for remark in remarks(evaluations[entry.id], base)]
    return replace(comparison, contrasts=tuple(explained), remarks=tuple(map(clean, notes))), problems


def _explained(contrast: Contrast, ours: Evaluation, theirs: Evaluation, apart: Collection[str]) -> Contrast:
    """Return a contrast that says whose per-example results are missing, and why, or that no direction is known."""
    if contrast.family is None and contrast.higher_is_better is None and not contrast.verdict:
        return contrast if contrast.metric in apart else replace(contrast, why=NO_DIRECTION)
    if contrast.verdict != "undetermined" or contrast.p is not None:
        return contrast
    models: dict[str, list[str]] = {}
    for one in (ours, theirs):
        if contrast.metric not in one.examples and contrast.metric in one.without:
            models.setdefault(one.without[contrast.metric], []).append(_short(one.model) + one.variant)
    if not models:
        return contrast
    reasons = [f"no per-example results of {' and '.join(names)}; {why}" for why, names in models.items()]
    return replace(contrast, why=". ".join(reasons))


def _short(model: str) -> str:
    return model.rstrip("/").rpartition("/")[2] or model


def _file(path: Path) -> Path:
    if not is_folder(path):
        if path_exists(path):
            return path
        raise DataError(f"{path} does not exist; expected {EXPECTED}, or the folder that holds them.")
    files = result_files(path)
    if not files:
        raise DataError(
            f"{path} holds no results_*.json; expected the folder given to lm_eval --output_path, or a JSON log of "
            "inspect."
        )
    if len(files) > 1:
        shown = ", ".join(str(file.relative_to(path)) for file in files[:MOST_NAMED])
        raise DataError(f"{path} holds {len(files)} result files ({shown}); name one of them.")
    return files[0]


def result_files(path: Path) -> list[Path]:
    """Return lm_eval's results in a folder at any depth, or else the JSON files, whose names other tools choose."""
    return sorted(path.rglob("results_*.json")) or sorted(path.glob("*.json")) or sorted(path.glob(RECORDS))


def _require_common(ours: Evaluation, theirs: Evaluation) -> None:
    if ours.numbers.keys().isdisjoint(theirs.numbers):
        tasks = [", ".join(list(one.rules)[:MOST_NAMED]) for one in (ours, theirs)]
        raise ConfigError(f"{ours.path} ({tasks[0]}) and {theirs.path} ({tasks[1]}) have no metric in common.")


def _apart(ours: Evaluation, theirs: Evaluation) -> dict[str, str]:
    """Return metric -> why its examples do not pair, for the metrics of both."""
    by_task: dict[str, str] = {}
    apart = {}
    for metric, number in ours.numbers.items():
        if metric not in theirs.numbers:
            continue
        task = metric.partition("/")[0]
        if task not in by_task:
            by_task[task] = "; ".join(unpaired(ours, theirs, task)[:MOST_NAMED])
        why = by_task[task]
        scale, other = number.scale or "none", theirs.numbers[metric].scale or "none"
        if not why and scale != other:
            why = f"scale: {clip(scale, LONGEST)} and {clip(other, LONGEST)}"
        left, right = ours.examples.get(metric), theirs.examples.get(metric)
        if not why and left and right:
            try:
                common_examples([scored(left.sampled)], [scored(right.sampled)])
            except MetricError as error:
                why = str(error)
        if why:
            apart[metric] = f"not the same evaluation: {why}"
    return apart


def _refusal(of: Mapping[str, Evaluation], why: Mapping[str, Mapping[str, str]], base: Evaluation) -> str:
    lines = []
    for identity, reasons in why.items():
        by_task = {metric.partition("/")[0]: text.partition(": ")[2] for metric, text in reasons.items()}
        lines += [f"  {of[identity].path}: {task}: {text}." for task, text in list(by_task.items())[:MOST_NAMED]]
        more = len(by_task) - MOST_NAMED
        lines += [f"  and {more} more tasks."] if more > 0 else []
    ending = "Evaluate both models alike, or add --anyway to see these tasks without a verdict."
    return "\n".join([f"Not the same examples as in {base.path}:", *lines, ending])


def _entry(one: Evaluation, name: str) -> Entry:
    """Return an evaluation as a row of a comparison, which is on no board."""
    metrics = {}
    for metric, number in one.numbers.items():
        examples = one.prompts.get(metric.partition("/")[0], {})
        metrics[metric] = replace(number, n=number.n or len(examples) or None).summary()
    fields: dict[str, Any] = {
        "kind": "imported",
        "supersedes": None,
        "suite": {"name": one.harness, "version": 1},
        "protocols": {},
        "model": {"name": name, "source": hashlib.sha256(str(one.path).encode()).hexdigest()},
        "objective": {"name": PRETRAINED, "version": "imported", "params": {}},
        "recipe": {},
        "seeds": [],
        "metrics": metrics,
        "missing": {},
        "runs": [],
        "cost": {},
        "source": {"cite": str(one.path)},
        "provenance": {"commit": None, "packages": {}, "hardware": None, "data": {}, "created": EPOCH},
    }
    return new_entry(fields, str(one.path))
