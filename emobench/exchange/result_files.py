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
from emobench.exchange.evaluation import EXPECTED, LONGEST, MOST_NAMED, Evaluation, remarks, unpaired
from emobench.exchange.evaluation_entry import summary
from emobench.exchange.every_eval_ever_evaluation import is_record, record_evaluation
from emobench.exchange.inspect_log import inspect_evaluation, is_inspect_log
from emobench.exchange.json_files import read_json
from emobench.exchange.lm_eval_evaluation import lm_eval_evaluation
from emobench.exchange.lm_eval_results import ResultsFile
from emobench.exchange.lm_eval_samples import require_no_samples
from emobench.leaderboard.entry import Entry, new_entry
from emobench.leaderboard.labels import clean
from emobench.leaderboard.run_files import RunExamples
from emobench.leaderboard.stats.compare import Comparison, Contrast
from emobench.leaderboard.stats.models import compare_models
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
    found = read_results(_file(expand_home(text)))
    return lm_eval_evaluation(found) if isinstance(found, ResultsFile) else found


def read_results(path: Path) -> ResultsFile | Evaluation:
    """Return what a file holds: results of lm-evaluation-harness, or another tool's evaluation. Raises DataError."""
    if path.suffix == ".eval":
        raise DataError(f"{path}: inspect's own format; make it JSON with `inspect log convert {path} --to json`.")
    require_no_samples(path)
    content, data = read_json(path)
    if is_inspect_log(data):
        return inspect_evaluation(path, data)
    return record_evaluation(path, data) if is_record(data) else ResultsFile(path, content)


def compare_files(
    texts: Sequence[str], baseline: str | None = None, *, anyway: bool = False
) -> tuple[Comparison, list[str]]:
    """Compare the models of result files with the last one or `baseline`, example by example.

    Returns the comparison, and which files have no per-example results. Raises DataError for what is no result file,
    and ConfigError where examples do not pair, unless `anyway`: these metrics then have no verdict.
    """
    given = [*texts, *([baseline] if baseline else [])]
    named: list[str] = list(dict.fromkeys(given))
    if len(named) < 2:
        raise ConfigError(f"{named[0]} alone has nothing to compare with; give two result files or folders.")
    read = {text: read_evaluation(text) for text in named}
    base = read[baseline or texts[-1]]
    for evaluation in read.values():
        _require_common(evaluation, base)
    models = [_short(evaluation.model) + evaluation.variant for evaluation in read.values()]
    names = [model if models.count(model) == 1 else text for model, text in zip(models, read, strict=True)]
    entries = {text: _entry(read[text], name) for text, name in zip(read, names, strict=True)}
    of = {entries[text].id: one for text, one in read.items()}
    rows = [entry for text, entry in entries.items() if read[text] is not base]
    why = {entry.id: _apart(of[entry.id], base) for entry in rows}
    if any(why.values()) and not anyway:
        raise ConfigError(_refusal(of, why, base))

    def examples_of(entry: Entry) -> list[RunExamples]:
        return [{metric: recorded.sampled for metric, recorded in of[entry.id].examples.items()}]

    first = next(entry for text, entry in entries.items() if read[text] is base)
    problems = [f"{one.path} has none; {ADVICE[one.format]}." for one in read.values() if not any(one.prompts.values())]
    found = compare_models(first, rows, examples_of, why)
    explained = tuple(_explained(c, of[c.candidate], base, why[c.candidate]) for c in found.contrasts)
    notes = [f"{name}: {note}." for name, one in zip(names, read.values(), strict=True) for note in one.notes]
    notes += [f"{entry.model.name}: {text}" for entry in rows for text in remarks(of[entry.id], base)]
    return replace(found, contrasts=explained, remarks=tuple(map(clean, notes))), problems


def _explained(contrast: Contrast, ours: Evaluation, theirs: Evaluation, apart: Collection[str]) -> Contrast:
    """Return a contrast that says whose per-example results are missing, and why, or that no direction is known."""
    if contrast.family is None and contrast.higher_is_better is None and not contrast.verdict:
        return replace(contrast, why=contrast.why if contrast.metric in apart else NO_DIRECTION)
    if contrast.verdict != "undetermined" or contrast.p is not None:
        return contrast
    reasons: dict[str, list[str]] = {}
    for one in (ours, theirs):
        if contrast.metric not in one.examples and contrast.metric in one.without:
            reasons.setdefault(one.without[contrast.metric], []).append(_short(one.model) + one.variant)
    told = [f"no per-example results of {' and '.join(names)}; {why}" for why, names in reasons.items()]
    return replace(contrast, why=". ".join(told)) if told else contrast


def _short(model: str) -> str:
    return model.rstrip("/").rpartition("/")[2] or model


def _file(path: Path) -> Path:
    if not is_folder(path):
        if path_exists(path):
            return path
        raise DataError(f"{path} does not exist; expected {EXPECTED}, or the folder that holds them.")
    found = result_files(path)
    if not found:
        raise DataError(
            f"{path} holds no results_*.json; expected the folder given to lm_eval --output_path, or a JSON log of "
            "inspect."
        )
    if len(found) > 1:
        shown = ", ".join(str(one.relative_to(path)) for one in found[:MOST_NAMED])
        raise DataError(f"{path} holds {len(found)} result files ({shown}); name one of them.")
    return found[0]


def result_files(path: Path) -> list[Path]:
    """Return lm_eval's results in a folder at any depth, or else the JSON files, whose names other tools choose."""
    return sorted(path.rglob("results_*.json")) or sorted(path.glob("*.json")) or sorted(path.glob(RECORDS))


def _require_common(ours: Evaluation, theirs: Evaluation) -> None:
    if ours.numbers.keys().isdisjoint(theirs.numbers):
        tasks = [", ".join(list(one.rules)[:MOST_NAMED]) for one in (ours, theirs)]
        raise ConfigError(f"{ours.path} ({tasks[0]}) and {theirs.path} ({tasks[1]}) have no metric in common.")


def _apart(ours: Evaluation, theirs: Evaluation) -> dict[str, str]:
    """Return metric -> why its examples do not pair, for the metrics of both."""
    tasks = {metric.partition("/")[0] for metric in ours.numbers.keys() & theirs.numbers.keys()}
    why = {task: "; ".join(unpaired(ours, theirs, task)[:MOST_NAMED]) for task in tasks}
    found = {metric: why[metric.partition("/")[0]] for metric in ours.numbers if metric in theirs.numbers}
    for metric, text in found.items():
        scales = [clip(one.numbers[metric].scale or "none", LONGEST) for one in (ours, theirs)]
        if not text and scales[0] != scales[1]:
            text = found[metric] = f"scale: {scales[0]} and {scales[1]}"
        left, right = (one.examples.get(metric) for one in (ours, theirs))
        if not text and left and right:
            try:
                common_examples([scored(left.sampled)], [scored(right.sampled)])
            except MetricError as error:
                found[metric] = str(error)
    return {metric: f"not the same evaluation: {text}" for metric, text in found.items() if text}


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
    fields: dict[str, Any] = {
        "kind": "imported",
        "supersedes": None,
        "suite": {"name": one.harness, "version": 1},
        "protocols": {},
        "model": {"name": name, "source": hashlib.sha256(str(one.path).encode()).hexdigest()},
        "objective": {"name": PRETRAINED, "version": "imported", "params": {}},
        "recipe": {},
        "seeds": [],
        "metrics": {metric: summary(number) for metric, number in one.numbers.items()},
        "missing": {},
        "runs": [],
        "cost": {},
        "source": {"cite": str(one.path)},
        "provenance": {"commit": None, "packages": {}, "hardware": None, "data": {}, "created": EPOCH},
    }
    return new_entry(fields, str(one.path))
