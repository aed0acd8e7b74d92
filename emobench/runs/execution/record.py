"""The end of a row: its evaluations become one leaderboard entry, and metrics of trackers."""

from __future__ import annotations

import json
import platform
import re
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias

import emobench
from emobench.core.errors import ConfigError, EmobenchError, MetricError
from emobench.core.locks import locked
from emobench.core.settings import PRETRAINED, canonical_json, content_hash, to_plain
from emobench.data.local_files import data_name
from emobench.leaderboard.entry import Entry, new_entry
from emobench.leaderboard.private_paths import published, published_command, published_value
from emobench.leaderboard.run_files import digest
from emobench.leaderboard.stats.summary import summarise
from emobench.leaderboard.store import Leaderboard
from emobench.models.device import MPS, cores
from emobench.runs.execution.environment import ENVIRONMENT, read_environment
from emobench.runs.execution.execution import Execution
from emobench.runs.execution.pooling import PooledRun, other_seeds, sealed, total_cost
from emobench.runs.planning.plan import Plan, PlannedRow, PlannedRun
from emobench.runs.stages.evaluate import EXAMPLES, Evaluation, merged_scores
from emobench.runs.stages.stage import Stages, storage_errors
from emobench.runs.stages.train import PlannedTraining
from emobench.runs.stages.weights import DIGESTS
from emobench.tasks.families import endpoint
from emobench.training.curves import LOG
from emobench.training.recipe import computed_with
from emobench.training.trackers import Tracking, report_metrics

Evaluations: TypeAlias = Sequence[Sequence[Evaluation]]
"""Those of each run of a row, one for each task."""

LOCK = ".lock"
"""Of a board, while an entry is recorded; what begins with a dot is no part of a board."""
PACKAGES = (
    *("torch", "transformers", "accelerate", "datasets", "peft", "numpy"),
    *("mauve-text", "rouge-score", "lm-eval", "sentence-transformers", "faiss-cpu", "scikit-learn", "bm25s"),
)
DECLARED = ("objective", "recipe", "seeds")
"""Fields of an entry that the user declares for a checkpoint of another program."""
PROMPTS = "prompts of"
"""What is known of a task only once it has generated begins with this in an entry's data."""


def record_row(plan: Plan, row: PlannedRow, evaluations: Evaluations, execution: Execution) -> Entry:
    """Append the entry of a row, and return it; or the entry that holds these runs with the same results already.

    An entry of the same runs with other results (another machine's rounding) is superseded; one of fewer runs is hidden
    behind the new one. A new declaration of a checkpoint supersedes the one before. Seeds of the board that differ in
    nothing else are pooled.
    """
    fields, stages = _fields(plan, row, evaluations, execution), execution.stages
    board = Leaderboard(plan.request.leaderboard)
    notes: list[str] = []
    # Between the look at what is recorded and the new entry, no other process may record the same runs.
    with storage_errors(board.root, "--leaderboard"), locked(board.root / LOCK):
        entry = new_entry(fields)
        recorded = _recorded(board, fields, stages)
        if recorded is None:
            others = other_seeds(entry, board, stages.root, notes.append)
            if others:
                fields = _pooled(entry, fields, evaluations, others)
                recorded = _recorded(board, fields, stages)
        if recorded is not None:
            execution.reporter.note(
                f"{row.label}: these results are in entry {recorded.id} already; nothing was recorded"
            )
            return recorded
        entry = new_entry(fields)
        board.append(entry)
    for note in notes:
        execution.reporter.note(note)
    return entry


def _recorded(board: Leaderboard, fields: dict[str, Any], stages: Stages) -> Entry | None:
    """Return the entry of a board that holds the runs of an entry's fields with the same results; None without one.

    Sets `supersedes` to the newest entry of fewer or the same runs. Raises ConfigError for a run that is declared
    otherwise in an entry of several seeds.
    """
    keys = {run["key"]: run["seed"] for run in fields["runs"]}
    declared = bool(fields["recipe"].get("declared"))
    for listed in board.rows():
        if listed.suite != fields["suite"]["name"] or keys.keys().isdisjoint(listed.runs):
            continue
        try:
            entry = board.read(listed)
        except EmobenchError:  # altered a moment ago: `leaderboard verify` names it
            continue
        if entry.declared != declared or to_plain(entry.tuning) != fields.get("tuning"):
            continue
        if _holds(entry, fields) and not _names_damaged(entry, fields["runs"], stages):
            return entry
        if {run.key for run in entry.runs} <= keys.keys():
            fields["supersedes"] = entry.id
        elif declared:
            _check_declaration(entry, fields, keys, board)
    return None


def _check_declaration(entry: Entry, fields: dict[str, Any], keys: Mapping[str, int], board: Leaderboard) -> None:
    """Raise ConfigError if an entry of several seeds declares a run of the fields otherwise."""
    same = True
    for name in ("objective", "recipe"):
        same = same and to_plain(getattr(entry, name)) == to_plain(fields[name])
    for run in entry.runs:
        seed = keys.get(run.key)
        if seed is None or (same and seed == run.seed):
            continue
        raise ConfigError(
            f"The checkpoint is seed {run.seed} of {entry.objective.label} in entry {entry.id}, with other seeds. "
            f"To declare it otherwise, remove {board.path(entry)} and evaluate its checkpoints again."
        )


def _pooled(
    entry: Entry, fields: dict[str, Any], evaluations: Evaluations, others: Mapping[int, PooledRun]
) -> dict[str, Any]:
    """Return the fields of an entry with the runs of other seeds, in the order of the seeds."""
    of_seeds: dict[int, tuple[Any, Sequence[Evaluation]]] = {}
    for run, of_run in zip(fields["runs"], evaluations, strict=True):
        of_seeds[run["seed"]] = run, of_run
    for seed, other in others.items():
        of_seeds[seed] = to_plain(other.run), other.evaluations
    seeds = sorted(of_seeds)
    metrics, missing = _metrics([of_seeds[seed][1] for seed in seeds])
    pooled = {"seeds": seeds, "metrics": metrics, "missing": published(missing)}
    pooled["runs"] = [of_seeds[seed][0] for seed in seeds]
    pooled["cost"] = total_cost(entry.cost, [other.cost for other in others.values()])
    return {**fields, **pooled}


def _holds(entry: Entry, fields: dict[str, Any]) -> bool:
    """Return whether an entry has all runs of another one's fields, with the same values, as computed there.

    It also has the same declaration, if it has one.
    """
    if entry.declared and any(to_plain(getattr(entry, name)) != to_plain(fields[name]) for name in DECLARED):
        return False
    keys = [run.key for run in entry.runs]
    environments = {run.environment.path: run.environment.sha256 for run in entry.runs if run.environment}
    for run in fields["runs"]:
        file = run["environment"]
        if run["key"] not in keys:
            return False
        if file and environments.get(file["path"], file["sha256"]) != file["sha256"]:
            return False  # scored again, with other packages
    places = [keys.index(run["key"]) for run in fields["runs"]]
    for name, metric in fields["metrics"].items():
        values = entry.metrics[name].values if name in entry.metrics else ()
        if len(values) != len(keys) or [values[place] for place in places] != metric["values"]:
            return False
    return True


def _names_damaged(entry: Entry, runs: Sequence[dict[str, Any]], stages: Stages) -> bool:
    """Return whether an entry names a file that was damaged, and is another one now: a log has its own clock."""
    known: dict[str, str] = {}
    for recorded in entry.runs:
        known |= {file.path: file.sha256 for file in recorded.files()}
    for run in runs:
        for file in (run["examples"], *run["curves"], *run["samples"]):
            path = file["path"]
            if known.get(path, file["sha256"]) != file["sha256"] and stages.was_damaged(Path(path)):
                return True
    return False


def _fields(plan: Plan, row: PlannedRow, evaluations: Evaluations, execution: Execution) -> dict[str, Any]:
    request = plan.request
    protocols = {}
    changes = {}
    for planned in row.runs[0].tasks():
        task = planned.task
        protocols[task.name] = task.protocol_id
        if task.changes:
            changes[task.name] = published(task.changes, published_value)
    seeds = [] if row.objective is None else [run.seed for run in row.runs]
    metrics, missing = _metrics(evaluations)
    environment = None
    if evaluations[-1] and (facts := read_environment(evaluations[-1][-1].folder)):
        environment = {name: fact for name, fact in facts.items() if isinstance(fact, str) and name != "python"}
    # A name of bytes that are not UTF-8 cannot be written as JSON, and is no reason to lose a run.
    command = published_command(shlex.split(request.command)).encode(errors="replace").decode()
    provenance = {
        "commit": _commit(),
        "packages": packages(),
        "hardware": hardware(request.device),
        "data": published(data_of(row) | _prompts_of(row, execution.stages)),
        "created": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "environment": environment,
    }
    runs = [_run(plan, row, run, execution) for run in row.runs]
    tuning = {}
    if request.tuning is not None and row.objective is not None:
        tuning["tuning"] = published(to_plain(request.tuning))
    return {
        **tuning,
        "kind": "measured",
        "suite": {"name": plan.suite.name, "version": plan.suite.version},
        "protocols": protocols,
        "changes": changes,
        "model": plan.model.entry_fields(),
        "objective": objective_fields(row),
        "recipe": _recipe(plan, row),
        "seeds": seeds,
        "metrics": metrics,
        "primary": endpoint(plan.suite.primary, [*metrics, *missing]),
        "missing": published(missing),
        "cost": _cost(row, evaluations, execution.stages),
        "source": {"command": command or None, "cite": None},
        "provenance": provenance,
        "runs": runs,
        "supersedes": None,
    }


def _run(plan: Plan, row: PlannedRow, run: PlannedRun, execution: Execution) -> dict[str, Any]:
    """Return a run's key, the one file that holds the per-example results of all its tasks, and its other files."""
    stages, examples = execution.stages, run.examples(plan.request.command)
    folder = execution.folder(examples)
    fields = {"seed": None if row.objective is None else run.seed, "key": examples.key}
    fields |= {"curves": [], "samples": [], "environment": None, "weights": []}
    fields["examples"] = _file(folder / EXAMPLES, stages)
    for training, tasks in run.parts:
        if training is not None:
            fields["curves"].append(_file(sealed(stages.folder(training) / LOG), stages))
            digests = _summary(training, stages).get("weights")
            if digests is not None:
                weights = {when: digests[when][plan.request.weights] for when in ("base", "trained")}
                fields["weights"].append({"tasks": [planned.task.name for planned in tasks], **weights})
    if run.weights:
        base, trained = (json.loads((execution.folder(stage) / DIGESTS).read_text()) for stage in run.weights)
        tasks = [planned.task.name for planned in run.tasks()]
        of_dtype = {"base": base[plan.request.weights], "trained": trained[plan.request.weights]}
        fields["weights"].append({"tasks": tasks, **of_dtype})
    for planned in run.tasks():
        # Generations may have been removed by hand once they were scored.
        for path in sorted(stages.folder(planned.generation).glob("samples.json*")):
            fields["samples"].append(_file(path, stages))
    if (folder / ENVIRONMENT).is_file():
        fields["environment"] = _file(folder / ENVIRONMENT, stages)
    return fields


def _summary(training: PlannedTraining, stages: Stages) -> dict[str, Any]:
    """Return the summary that a training wrote."""
    return json.loads(sealed(stages.folder(training) / "training.json").read_text())


def _file(path: Path, stages: Stages) -> dict[str, str]:
    return {"path": path.relative_to(stages.root).as_posix(), "sha256": digest(path)}


def _metrics(evaluations: Evaluations) -> tuple[dict[str, Any], dict[str, str]]:
    by_seed, metrics = list(map(merged_scores, evaluations)), {}
    missing: dict[str, str] = {}
    for evaluation in chain.from_iterable(evaluations):
        missing |= evaluation.missing
    for name in dict.fromkeys(chain.from_iterable(by_seed)):
        if name in missing:  # absent for some seed: no mean over different seeds
            continue
        try:
            metrics[name] = to_plain(summarise([scores[name] for scores in by_seed]))
        except MetricError as error:
            missing[name] = str(error)
    return metrics, missing


def objective_fields(row: PlannedRow) -> dict[str, Any]:
    """Return a row's objective as an entry names it."""
    loaded = row.objective
    if loaded is None:
        return {"name": PRETRAINED, "version": "1", "params": {}, "source_sha256": None}
    return {
        "name": published_value(loaded.name),
        "version": loaded.objective.version,
        "params": published(loaded.objective.params, published_value),
        "source_sha256": loaded.source_sha256 or None,
    }


def _recipe(plan: Plan, row: PlannedRow) -> dict[str, Any]:
    if row.objective is None:
        return {"dtype": plan.request.weights}
    if plan.request.declared:
        declared = {"name": plan.request.declared_recipe, "declared": True, "dtype": plan.request.weights}
        base = plan.model.trained_from
        if base is not None and base.tokenizer_identity != plan.model.tokenizer_identity:
            declared["tokenizer"] = content_hash(plan.model.tokenizer_identity)
        return declared
    run = {"dtype": plan.request.weights, "from_scratch": plan.request.from_scratch}
    run |= computed_with(plan.request.device, *plan.recipes)
    recipes = {}
    for number, recipe in enumerate(plan.recipes, 1):
        values = {**to_plain(recipe), "corpus": data_name(recipe.corpus)}
        if plan.request.weights != "float32":
            values["weight_dtype"] = recipe.weight_dtype
        recipes[f"{number}. {values['name']}"] = values
    if len(recipes) == 1:
        (recipes,) = recipes.values()
    return {**recipes, **run}


def _cost(row: PlannedRow, evaluations: Evaluations, stages: Stages) -> dict[str, Any]:
    cost: dict[str, Any] = {"train_seconds": None, "tokens": None, "peak_memory_bytes": None}
    cost["evaluate_seconds"] = sum(evaluation.seconds for of_run in evaluations for evaluation in of_run)
    for run in row.runs:
        for training in run.trainings():
            summary = _summary(training, stages)
            cost["train_seconds"] = (cost["train_seconds"] or 0) + summary["seconds"]
            cost["tokens"] = (cost["tokens"] or 0) + summary["tokens"]
            cost["peak_memory_bytes"] = max(cost["peak_memory_bytes"] or 0, summary["peak_memory_bytes"])
            if summary.get("accumulation"):
                cost["accumulation"] = max(cost.get("accumulation", 0), summary["accumulation"])
    return cost


def data_of(row: PlannedRow) -> dict[str, str]:
    """Return the digests of the data that a row's runs read, by name, as far as it is on this machine.

    These are texts, data sets, and other models.
    """
    data: dict[str, str] = {}
    for training, tasks in row.runs[0].parts:
        read = [*training.texts.values()] if training else []
        read += [planned.data for planned in tasks if planned.data is not None]
        for texts in read:
            data |= texts.provenance
        for planned in tasks:
            for name, facts in planned.models.items():
                # Another encoder is another yardstick; a hub model's commit is among its facts.
                data[f"{name} of {planned.task.name}"] = f"sha256:{content_hash(facts)} ({canonical_json(facts)})"
    return data


def _prompts_of(row: PlannedRow, stages: Stages) -> dict[str, str]:
    """Return how many texts gave prompts and why others did not, such as "971 of 2,891 texts; 1,900 too short".

    Nothing for tasks without prompts, and for generations that were removed by hand.
    """
    prompts = {}
    for planned in row.runs[0].tasks():
        path = stages.folder(planned.generation) / "prompts.json"
        if path.is_file():
            counts = json.loads(path.read_text())
            words = f"{counts.pop('used'):,} of {counts.pop('texts'):,} texts"
            counts.pop("limit", None)  # a rule, which is in the protocol
            others = [f"{count:,} {reason.replace('_', ' ')}" for reason, count in counts.items() if count]
            if others:
                words += f"; {', '.join(others)}"
            prompts[f"{PROMPTS} {planned.task.name}"] = words
    return prompts


def hardware(device: str) -> str:
    """Return what computed, such as "x86_64, 2 cores" or a GPU's name."""
    if device.startswith("cuda"):
        import torch

        return torch.cuda.get_device_name(device)
    gpu = ", GPU (mps)" if device == MPS else ""
    return f"{platform.machine()}, {cores()} cores{gpu}"


def packages() -> dict[str, str]:
    """Return the versions of the packages that decide numbers, as far as they are installed."""
    versions = {"emobench": emobench.__version__, "python": platform.python_version()}
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return versions


def _commit() -> str | None:
    """Return the commit of the checkout that emobench runs from, marked "+changes" if it differs; None if installed."""
    root = Path(emobench.__file__).parent.parent
    if not (root / ".git").exists():
        return None
    words = ["git", "-C", str(root), "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty=+changes"]
    try:
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


TRACKED = "tensorboard"
"""In the runs folder: `tensorboard --logdir runs/tensorboard` shows all trainings."""


def tracking_of(planned: PlannedTraining, execution: Execution) -> Tracking:
    """Return the tracking of a training; its key tells it from others of the same objective and seed."""
    words = (planned.model.name, str(planned.objective.objective), f"seed{planned.seed}", planned.key[:6])
    return _tracking(words, execution)


def track_metrics(row: PlannedRow, evaluations: Evaluations, execution: Execution) -> None:
    """Give the metrics of each of a row's runs to the trackers, in the curves of the training they belong to."""
    if not execution.request.trackers:
        return
    for run, of_run in zip(row.runs, evaluations, strict=True):
        left = list(of_run)
        for training, tasks in run.parts:
            own, left = left[: len(tasks)], left[len(tasks) :]
            if training is None:
                step, words = 0, (execution.model.name, PRETRAINED, *(evaluation.key[:6] for evaluation in own[:1]))
                tracking = _tracking(words, execution)
            else:
                step, tracking = _summary(training, execution.stages)["selected_step"], tracking_of(training, execution)
            if metrics := {name: score.value for name, score in merged_scores(own).items()}:
                report_metrics(tracking, metrics, step=step, device=execution.request.device)


def _tracking(words: Sequence[str], execution: Execution) -> Tracking:
    name = re.sub(r"[^\w.=()+-]+", "_", "-".join(words))[:120]
    folder = execution.stages.root.resolve() / TRACKED
    return Tracking(trackers=execution.request.trackers, name=name, folder=folder, warn=execution.reporter.note)
