"""Evaluations of other tools as the fields of an entry: logs of inspect and records of Every Eval Ever."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from emobench.core.errors import DataError, MetricError
from emobench.core.settings import PRETRAINED, file_sha256, parse_call, to_plain
from emobench.exchange.evaluation import UNNAMED, Evaluation, Measured
from emobench.exchange.lm_eval_entry import ImportedModel
from emobench.leaderboard.private_paths import distinct_name, published, published_value
from emobench.leaderboard.stats.summary import summarise
from emobench.tasks.lm_eval_numbers import clip
from emobench.tasks.scores import Score

SUITES = {"inspect": 1, "every-eval-ever": 1}
"""The suite of each format's entries, and its version."""


def evaluation_fields(read: Sequence[Evaluation], given: ImportedModel) -> dict[str, Any]:
    """Return an entry's fields but `runs` and `supersedes`, from one evaluation or one for each seed.

    One file's intervals are those that it gives. Raises DataError where one was made otherwise than the first.
    """
    first = read[0]
    for other in read[1:]:
        for what, of in (("protocol", _protocols), ("data", _data)):
            if of(first) != of(other):
                raise DataError(
                    f"{other.path}: its {what} differs from that of {first.path}, so that they are not seeds of one "
                    "entry. Import them without --seed, each as an entry."
                )
    metrics = {name: summary(one) for name, one in first.numbers.items()}
    missing: dict[str, str] = {}
    if len(read) > 1:
        metrics, missing = _of_seeds(read)
    objective = first.objective if given.objective == PRETRAINED and first.objective else given.objective
    name, params = published(list(parse_call(objective)), published_value)
    version = {} if first.version in (None, "unknown") else {first.harness: first.version}
    return {
        "kind": "imported",
        "suite": {"name": first.format, "version": SUITES[first.format]},
        "protocols": _protocols(first),
        "model": _model(first, given),
        "objective": {"name": name, "version": "imported", "params": params},
        "recipe": {},
        "seeds": list(given.seeds),
        "metrics": metrics,
        "missing": missing,
        "cost": {},
        "source": {"cite": "; ".join(map(_cite, read))},
        "provenance": {
            "commit": None,
            "packages": version,
            "hardware": None,
            "data": _data(first),
            "created": max(map(_created, read)).isoformat(timespec="seconds"),
        },
    }


def summary(of: Measured) -> dict[str, Any]:
    """Return one number as the summary of a metric."""
    return {
        "mean": of.value,
        "std": None,
        "values": [of.value],
        "n": of.n,
        "ci95": None if of.interval is None else list(of.interval),
        "ci95_of": None if of.interval is None else of.covers,
        "ci95_missing": None if of.interval else "the file gives no standard error",
        "higher_is_better": of.higher_is_better,
        "unit": of.unit,
    }


def _of_seeds(read: Sequence[Evaluation]) -> tuple[dict[str, Any], dict[str, str]]:
    metrics: dict[str, Any] = {}
    missing: dict[str, str] = {}
    for name in dict.fromkeys(name for one in read for name in one.numbers):
        absent = [one.path.name for one in read if name not in one.numbers]
        if absent:
            missing[name] = f"no number in {clip(absent[0], 100)}"
            continue
        try:
            metrics[name] = to_plain(summarise([_score(one, name) for one in read]))
        except MetricError as error:
            missing[name] = str(error)
    return metrics, missing


def _score(of: Evaluation, name: str) -> Score:
    number, recorded = of.numbers[name], of.examples.get(name)
    return Score(
        value=number.value,
        n=number.n or 1,
        higher_is_better=number.higher_is_better,
        unit=number.unit,
        examples=recorded.examples if recorded else None,
        units=recorded.units if recorded else None,
        aggregate="mean" if recorded else "corpus",
    )


def _protocols(of: Evaluation) -> dict[str, str]:
    return {task: f"{of.harness}@{_digest(rules)}" for task, rules in of.rules.items()}


def _data(of: Evaluation) -> dict[str, str]:
    """Return the digest of each task's examples, where the file has them."""
    return {task: f"sha256:{_digest(sorted(found), 64)} (its examples)" for task, found in of.prompts.items() if found}


def _digest(value: Any, digits: int = 6) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:digits]


def _model(of: Evaluation, given: ImportedModel) -> dict[str, Any]:
    if given.model is not None:
        source = published_value(given.model)
        return {"name": source.removeprefix("./"), "source": source}
    if of.base is not None:
        return dict(of.base)
    named = distinct_name(of.model, slashes=2)  # inspect's names begin with the provider
    # Files that name no model may be of different ones.
    which = f"#{file_sha256(of.path)[:8]}" if named == UNNAMED else ""
    return {"name": named.rpartition("/")[2] + of.variant, "source": named + which + of.variant}


def _cite(of: Evaluation) -> str:
    made = {"inspect": "log of inspect", "every-eval-ever": "record of Every Eval Ever"}[of.format]
    version = "" if of.version is None else f" {of.version}"
    return f"{made}, by {of.harness}{version}; {clip(of.path.name, 100)} (sha256 {file_sha256(of.path)[:12]})"


def _created(of: Evaluation) -> datetime:
    """Return when the evaluation was made, or else when its file was written."""
    text = of.created or str(of.path.stat().st_mtime)
    try:
        seconds = float(text)
    except ValueError:
        seconds = None
    try:
        found = datetime.fromisoformat(text) if seconds is None else datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, OSError, ValueError):
        raise DataError(f"{of.path}: its date is {clip(text, 40)}; expected ISO 8601 or seconds since 1970.") from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
