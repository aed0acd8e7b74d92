"""The record stage: the evaluations of a row become one leaderboard entry."""

from __future__ import annotations

import json
import os
import platform
import shlex
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import emobench
from emobench.core.errors import EmobenchError, MetricError, StorageError
from emobench.core.locks import locked
from emobench.core.seals import find_damage
from emobench.core.settings import PRETRAINED, canonical_json, content_hash, to_plain
from emobench.leaderboard.entry import Entry, new_entry
from emobench.leaderboard.private_paths import published, published_command, published_value
from emobench.leaderboard.run_files import digest, write_examples
from emobench.leaderboard.stats.summary import summarise
from emobench.leaderboard.store import Leaderboard
from emobench.runs.execution.environment import ENVIRONMENT, join_environments, read_environment
from emobench.runs.execution.evaluate import Evaluation
from emobench.runs.planning.plan import Plan, PlannedRow, PlannedRun
from emobench.runs.planning.planned import PlannedTraining
from emobench.runs.stages.stage import Stage, Stages
from emobench.runs.stages.storage import storage_errors
from emobench.tasks.families import endpoint
from emobench.tasks.scores import Score
from emobench.training.curves import LOG
from emobench.training.recipe import computed_with

LOCK = ".lock"
"""Of a board, while an entry is recorded; what begins with a dot is no part of a board."""
PACKAGES = (
    *("torch", "transformers", "accelerate", "datasets", "peft", "numpy"),
    *("mauve-text", "rouge-score", "lm-eval", "openicl", "sentence-transformers", "faiss-cpu", "scikit-learn", "bm25s"),
)
PROMPTS = "prompts of"
"""What is known of a task only once it has generated begins with this in an entry's data."""
COMMAND = "command.txt"
"""Beside the per-example results: the command as it was given, which an entry has without the places of a machine."""


def record_row(plan: Plan, row: PlannedRow, evaluations: Sequence[Sequence[Evaluation]], stages: Stages) -> Entry:
    """Append the entry of a row, and return it; or the entry that holds these runs with the same results already.

    `evaluations` holds, for each of the row's runs, its tasks' evaluations. An entry of the same runs with other
    results (another machine's rounding) is superseded; one of fewer runs is hidden behind the new one.
    """
    pairs = zip(row.runs, evaluations, strict=True)
    runs = [{"seed": None if row.objective is None else run.seed, **_run(plan, run, of, stages)} for run, of in pairs]
    board = Leaderboard(plan.request.leaderboard)
    fields = {**_fields(plan, row, evaluations, stages), "runs": runs, "supersedes": None}
    # Between the look at what is recorded and the new entry, no other process may record the same runs.
    with storage_errors(board.root, "--leaderboard"), locked(board.root / LOCK):
        return _append(board, fields, stages)


def _append(board: Leaderboard, fields: dict[str, Any], stages: Stages) -> Entry:
    keys = {run["key"] for run in fields["runs"]}
    for recorded in _of_runs(board, fields["suite"]["name"], keys):
        if _holds(recorded, fields) and not _names_damaged(recorded, fields["runs"], stages):
            return recorded
        if {run.key for run in recorded.runs} <= keys:
            fields["supersedes"] = recorded.id
    entry = new_entry(fields)
    board.append(entry)
    return entry


def _of_runs(board: Leaderboard, suite: str, keys: set[str]) -> list[Entry]:
    """Return the entries of a suite that hold any of these runs."""
    found = []
    for row in board.rows():
        if row.suite == suite and not keys.isdisjoint(row.runs):
            with suppress(EmobenchError):  # altered a moment ago: `leaderboard verify` names it
                found.append(board.read(row))
    return found


def _holds(entry: Entry, fields: dict[str, Any]) -> bool:
    """Return whether an entry has all runs of another one's fields, with the same values, as computed there."""
    keys = [run.key for run in entry.runs]
    if not all(run["key"] in keys for run in fields["runs"]):
        return False
    computed = {run.environment.path: run.environment.sha256 for run in entry.runs if run.environment}
    for file in (run["environment"] for run in fields["runs"] if run["environment"]):
        if computed.get(file["path"], file["sha256"]) != file["sha256"]:  # scored anew, with other packages
            return False
    places = [keys.index(run["key"]) for run in fields["runs"]]
    for name, metric in fields["metrics"].items():
        values = entry.metrics[name].values if name in entry.metrics else ()
        if len(values) != len(keys) or [values[place] for place in places] != metric["values"]:
            return False
    return True


def _names_damaged(entry: Entry, runs: Sequence[dict[str, Any]], stages: Stages) -> bool:
    """Return whether an entry names a file that was damaged, and is another one now: a log has its own clock."""
    known = {file.path: file.sha256 for run in entry.runs for file in run.files()}
    files = [file for run in runs for file in (run["examples"], *run["curves"], *run["samples"])]
    other = [file["path"] for file in files if known.get(file["path"], file["sha256"]) != file["sha256"]]
    return any(stages.was_damaged(Path(path)) for path in other)


def _fields(plan: Plan, row: PlannedRow, evaluations: Sequence[Sequence[Evaluation]], stages: Stages) -> dict[str, Any]:
    metrics, missing = _metrics(evaluations)
    tasks = [planned.task for planned in row.runs[0].tasks()]
    # A name of bytes that are not UTF-8 cannot be written as JSON, and is no reason to lose a run.
    command = published_command(shlex.split(plan.request.command)).encode(errors="replace").decode()
    return {
        "kind": "measured",
        "suite": {"name": plan.suite.name, "version": plan.suite.version},
        "protocols": {task.name: task.protocol_id for task in tasks},
        "changes": {task.name: published(task.changes, published_value) for task in tasks if task.changes},
        "model": plan.model.entry_fields(),
        "objective": objective_fields(row),
        "recipe": _recipe(plan, row),
        "seeds": [] if row.objective is None else [run.seed for run in row.runs],
        "metrics": metrics,
        "primary": endpoint(plan.suite.primary, [*metrics, *missing]),
        "missing": published(missing),
        "cost": _cost(row, evaluations, stages),
        "source": {"command": command or None, "cite": None},
        "provenance": {
            "commit": _commit(),
            "packages": packages(),
            "hardware": hardware(plan.request.device),
            "data": published(data_of(row) | _prompts_of(row, stages)),
            "created": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "environment": _short_environment(evaluations),
        },
    }


def _run(plan: Plan, run: PlannedRun, found: Sequence[Evaluation], stages: Stages) -> dict[str, Any]:
    """Return a run's key, the one file that holds the per-example results of all its tasks, and what else it left."""
    stage = examples_stage([evaluation.key for evaluation in found])
    computed = [*(stages.folder(t.stage) for t in run.trainings()), *(evaluation.folder for evaluation in found)]

    def work(folder: Path) -> None:
        write_examples(folder / "examples.jsonl", _merged(found))
        join_environments(folder, computed)
        (folder / COMMAND).write_text(plan.request.command + "\n", encoding="utf-8", errors="surrogateescape")

    made = stages.make(stage, work)
    logs = [_sealed(stages.folder(training.stage) / LOG) for training in run.trainings()]
    generated = [stages.folder(planned.generation) for planned in run.tasks()]
    return {
        "key": stage.key,
        "examples": _file(made / "examples.jsonl", stages),
        "curves": [_file(path, stages) for path in logs],
        # Generations may have been removed by hand once they were scored.
        "samples": [_file(path, stages) for folder in generated for path in sorted(folder.glob("samples.json*"))],
        "environment": _file(made / ENVIRONMENT, stages) if (made / ENVIRONMENT).is_file() else None,
        "weights": _weights(plan, run, stages),
    }


def _weights(plan: Plan, run: PlannedRun, stages: Stages) -> list[dict[str, Any]]:
    """Return the digests of the weights of each training of a run, in the precision of the evaluation."""
    found = []
    for training, tasks in run.parts:
        digests = None if training is None else _summary(training, stages).get("weights")
        if digests is not None:  # older trainings have none
            precise = {when: digests[when][plan.request.weights] for when in ("base", "trained")}
            found.append({"tasks": [planned.task.name for planned in tasks], **precise})
    return found


def _summary(training: PlannedTraining, stages: Stages) -> dict[str, Any]:
    """Return the summary that a training wrote."""
    return json.loads(_sealed(stages.folder(training.stage) / "training.json").read_text())


def _short_environment(evaluations: Sequence[Sequence[Evaluation]]) -> dict[str, str] | None:
    """Return the short facts of what computed the last score; None where it is older than these files."""
    found = [read_environment(evaluation.folder) for of_run in evaluations for evaluation in of_run]
    if not found or found[-1] is None:
        return None
    return {name: fact for name, fact in found[-1].items() if isinstance(fact, str) and name != "python"}


def examples_stage(scores: Sequence[str]) -> Stage:
    """Return the stage whose key is that of a run in an entry, by the keys of its tasks' scores."""
    return Stage("examples", {"scores": list(scores)})


def _sealed(path: Path) -> Path:
    """Return a file of a finished stage; StorageError where a byte of it is another one."""
    damage = find_damage(path.parent, full=True, only=path.name)
    if damage is not None:
        raise StorageError(f"{damage}; nothing was recorded. Restore it, or remove {path.parent} and run again.")
    return path


def _file(path: Path, stages: Stages) -> dict[str, str]:
    return {"path": path.relative_to(stages.root).as_posix(), "sha256": digest(path)}


def _merged(found: Sequence[Evaluation]) -> dict[str, Score]:
    return {name: score for evaluation in found for name, score in evaluation.scores().items()}


def _metrics(evaluations: Sequence[Sequence[Evaluation]]) -> tuple[dict[str, Any], dict[str, str]]:
    by_seed = [_merged(found) for found in evaluations]
    missing = {name: why for found in evaluations for evaluation in found for name, why in evaluation.missing.items()}
    metrics = {}
    for name in dict.fromkeys(name for scores in by_seed for name in scores):
        if name in missing:  # not there for every seed: no mean over different seeds
            continue
        try:
            metrics[name] = to_plain(summarise([scores[name] for scores in by_seed]))
        except MetricError as error:
            missing[name] = str(error)
    return metrics, missing


def objective_fields(row: PlannedRow) -> dict[str, Any]:
    """Return a row's objective as an entry names it."""
    if row.objective is None:
        return {"name": PRETRAINED, "version": "1", "params": {}, "source_sha256": None}
    found = row.objective
    return {
        "name": published_value(found.name),
        "version": found.objective.version,
        "params": published(found.objective.params, published_value),
        "source_sha256": found.source_sha256,
    }


def _recipe(plan: Plan, row: PlannedRow) -> dict[str, Any]:
    if row.objective is None:
        return {"dtype": plan.request.weights}
    run = {"dtype": plan.request.weights, "from_scratch": plan.request.from_scratch}
    run |= computed_with(plan.request.device, *plan.recipes)
    recipes = [to_plain(recipe) for recipe in plan.recipes]
    if plan.request.weights != "float32":
        # Entries of half precision without it are older: their weights were trained in that precision, too.
        for values, recipe in zip(recipes, plan.recipes, strict=True):
            values["weight_dtype"] = recipe.weight_dtype
    if len(recipes) == 1:
        return {**recipes[0], **run}
    return {**{f"{i + 1}. {values['name']}": values for i, values in enumerate(recipes)}, **run}


def _cost(row: PlannedRow, evaluations: Sequence[Sequence[Evaluation]], stages: Stages) -> dict[str, Any]:
    trained = [_summary(training, stages) for run in row.runs for training in run.trainings()]
    split = [t["accumulation"] for t in trained if t.get("accumulation")]
    return {
        "train_seconds": sum(t["seconds"] for t in trained) if trained else None,
        "evaluate_seconds": sum(e.seconds for found in evaluations for e in found),
        "tokens": sum(t["tokens"] for t in trained) if trained else None,
        "peak_memory_bytes": max((t["peak_memory_bytes"] for t in trained), default=None),
        **({"accumulation": max(split)} if split else {}),
    }


def data_of(row: PlannedRow) -> dict[str, str]:
    """Return the digests of what a row's runs read, by name, as far as it is here: texts, data sets, other models."""
    data: dict[str, str] = {}
    for training, tasks in row.runs[0].parts:
        read = (*(training.texts.values() if training else ()), *(planned.data for planned in tasks))
        for texts in (one for one in read if one is not None):
            data |= texts.provenance
        for planned in tasks:
            for name, facts in planned.models.items():
                # Another encoder is another yardstick; a hub model's commit is among its facts.
                data[f"{name} of {planned.task.name}"] = f"sha256:{content_hash(facts)} ({canonical_json(facts)})"
    return data


def _prompts_of(row: PlannedRow, stages: Stages) -> dict[str, str]:
    tasks = row.runs[0].tasks()
    found = {one.task.name: _prompts(stages.folder(one.generation) / "prompts.json") for one in tasks}
    return {f"{PROMPTS} {name}": prompts for name, prompts in found.items() if prompts}


def _prompts(path: Path) -> str | None:
    """Return how many texts gave prompts and why others did not, such as "971 of 2,891 texts; 1,900 too short".

    None for what no task of generation wrote, and for a generation that was removed by hand.
    """
    if not path.is_file():
        return None
    found = json.loads(path.read_text())
    used, texts = found.pop("used"), found.pop("texts")
    found.pop("limit", None)  # a rule, which is in the protocol
    others = [f"{count:,} {reason.replace('_', ' ')}" for reason, count in found.items() if count]
    return f"{used:,} of {texts:,} texts" + (f"; {', '.join(others)}" if others else "")


def hardware(device: str) -> str:
    """Return what computed, such as "x86_64, 2 cores" or a GPU's name."""
    if device.startswith("cuda"):
        import torch

        return torch.cuda.get_device_name(device)
    return f"{platform.machine()}, {len(os.sched_getaffinity(0))} cores"


def packages() -> dict[str, str]:
    """Return the versions of the packages that decide numbers, as far as they are installed."""
    found = {"emobench": emobench.__version__, "python": platform.python_version()}
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def _commit() -> str | None:
    """Return the commit of the checkout that emobench runs from, marked "+changes" if it differs; None if installed."""
    root = Path(emobench.__file__).parent.parent
    if not (root / ".git").exists():
        return None
    with suppress(OSError, subprocess.CalledProcessError):
        words = (("rev-parse", "HEAD"), ("status", "--porcelain", "--untracked-files=no"))
        commands = (["git", "-C", str(root), *given] for given in words)
        head, changes = (subprocess.run(one, capture_output=True, text=True, check=True).stdout for one in commands)
        return head.strip() + ("+changes" if changes.strip() else "")
    return None
