"""Results of lm-evaluation-harness, inspect and Every Eval Ever as entries of kind `imported`, with their examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from emobench.core.errors import ConfigError, DataError, MetricError
from emobench.core.reading import is_folder, path_exists
from emobench.core.settings import PRETRAINED, file_sha256, parse_call, to_plain
from emobench.exchange import every_eval_ever, inspect_log, lm_eval
from emobench.exchange.evaluation import EXPECTED, Evaluation
from emobench.exchange.result_files import read_results, result_files
from emobench.leaderboard.entry import Entry, new_entry
from emobench.leaderboard.private_paths import published, published_value
from emobench.leaderboard.run_files import Recorded, write_examples
from emobench.leaderboard.stats.series import is_log
from emobench.leaderboard.stats.summary import summarise
from emobench.leaderboard.store import Leaderboard
from emobench.tasks.lm_eval_numbers import clip
from emobench.tasks.scores import Score

SUITES = {lm_eval.FORMAT: 1, inspect_log.FORMAT: 1, every_eval_ever.FORMAT: 1}
"""The suite of each format's entries, and its version."""


@dataclass(frozen=True)
class ImportedModel:
    """What the user knows of the evaluated models, and the files do not: trained from what, with what, which seeds."""

    model: str | None = None
    objective: str = PRETRAINED
    seeds: tuple[int, ...] = ()


@dataclass(frozen=True)
class Imported:
    """`paired` counts the metrics with per-example results; `notes` name left-out parts, in sentences.

    `replaced` is the entry of the same files that this one supersedes.
    """

    entry: Entry
    added: bool
    replaced: Entry | None
    paired: int
    notes: tuple[str, ...]


def find_results(path: Path) -> list[Path]:
    """Return the results files of a folder, or the file itself. Raises DataError for neither."""
    if not is_folder(path):
        if path_exists(path):
            return [path]
        raise DataError(f"{path} does not exist; expected {EXPECTED}, or the folder that holds them.")
    files = result_files(path)
    if not files:
        raise DataError(f"{path} holds no result file; expected {EXPECTED}.")
    return files


def import_each(paths: Sequence[Path], given: ImportedModel) -> list[list[Path]]:
    """Return which files become one entry: each alone, or all together, one for each seed. Raises ConfigError."""
    if not given.seeds:
        return [[path] for path in paths]
    if given.objective == PRETRAINED:
        raise ConfigError("--seed is the seed of a training; add --objective NAME, what the models were trained with.")
    if len(given.seeds) != len(paths) or len(set(given.seeds)) != len(paths):
        seeds = ", ".join(map(str, given.seeds))
        raise ConfigError(f"--seed is given as {seeds}, for {len(paths)} results files; give each file its own seed.")
    if len(paths) > 1 and given.model is None:
        raise ConfigError("Several seeds are one entry; add --model NAME, what the models were trained from.")
    return [list(paths)]


def import_results(
    paths: Sequence[Path], board: Leaderboard, runs: Path, given: ImportedModel, *, renamed: bool = False
) -> Imported:
    """Append the entry of one results file, or of one for each seed; nothing is added where the board has it.

    The same files with other facts (samples found since) supersede their entry. One that names another model, objective
    or seed does so only where it is `renamed`. Per-example results go to `runs`. Raises DataError for any other file
    and for one that is on the board under another name, ConfigError for an impossible number, StorageError for a disk.
    """
    read = [read_results(path, lenient=True) for path in paths]
    examples, notes = [one.recorded for one in read], tuple(note for one in read for note in one.notes)
    fields = {**entry_fields(read, given), "supersedes": None}
    keys = [file_sha256(path)[:16] for path in paths]
    if len(set(keys)) < len(keys):
        raise DataError(f"{paths[0]}: the same results are given for two seeds; give each seed its own file.")
    seeds = given.seeds or (None,) * len(read)
    fields["runs"] = [{"seed": seed, "key": key} for seed, key in zip(seeds, keys, strict=True)]
    entry = new_entry(fields, str(paths[0]))
    paired = len(set(examples[0]).intersection(*examples))
    replaced = None
    for known in _of_files(board, keys):
        alike = [run.key for run in known.runs] == keys
        if not _named_alike(known, entry) and not (renamed and alike):
            raise DataError(_twice(paths[0], known, entry, alike))
        if alike and _same(known, entry, examples):
            return Imported(known, False, None, paired, notes)
        if alike:
            replaced, fields["supersedes"] = known, known.id
    for run, recorded in zip(fields["runs"], examples, strict=True):
        if recorded:
            path = f"imported/{run['key']}/examples.jsonl"
            run["examples"] = {"path": path, "sha256": write_examples(runs / path, recorded)}
    entry = new_entry(fields, str(paths[0]))
    board.append(entry)
    return Imported(entry, True, replaced, paired, notes)


def entry_fields(read: Sequence[Evaluation], given: ImportedModel) -> dict[str, Any]:
    """Return an entry's fields but `runs` and `supersedes`, from one evaluation or one for each seed.

    One file's intervals are those that it gives, several files' come from the values and examples of the seeds. Raises
    DataError where one was made otherwise than the first.
    """
    first = read[0]
    for other in read[1:]:
        _require_alike(first, other)
    metrics = {name: number.summary() for name, number in first.numbers.items()}
    missing = dict(first.absent)
    if len(read) > 1:
        metrics, missing = _of_seeds(read)
    objective: tuple[str, Mapping[str, Any]]
    if given.objective != PRETRAINED or not first.objective:
        objective = parse_call(given.objective)
    else:
        objective = first.objective, {}
        with suppress(ConfigError):  # a label such as "demd + 0.5*mle(demd.cost=pretrained)" stays as it is
            objective = parse_call(first.objective)
    name, params = published(list(objective), published_value)
    model = first.row
    if given.model is not None:
        source = published_value(given.model)
        model = {"name": source.removeprefix("./"), "source": source}
    cited = [first.tool, *(one.cite for one in read), first.interval_source if len(read) == 1 else ""]
    created = max(map(_created, read)).isoformat(timespec="seconds")
    return {
        "kind": "imported",
        "suite": {"name": first.format, "version": SUITES[first.format]},
        "protocols": first.protocols,
        "model": model,
        "objective": {"name": name, "version": "imported", "params": params},
        "recipe": first.recipe,
        "seeds": list(given.seeds),
        "metrics": metrics,
        "missing": missing,
        "cost": {},
        "source": {"cite": "; ".join(filter(None, cited))},
        "provenance": {**first.provenance, "data": first.data, "created": created},
    }


def _require_alike(first: Evaluation, other: Evaluation) -> None:
    if first.format != other.format:
        raise DataError(f"{first.path}: results of several tools are no seeds of one entry; give those of one.")
    facts = {
        "protocol": (first.protocols, other.protocols),
        "data": (first.data, other.data),
        "precision": (first.recipe, other.recipe),
    }
    for what, (ours, theirs) in facts.items():
        if ours != theirs:
            raise DataError(
                f"{other.path}: its {what} differs from that of {first.path}, so that they are not seeds of one entry. "
                "Import them without --seed, each as an entry."
            )


def _of_seeds(read: Sequence[Evaluation]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the metrics over the seeds, and why others are missing."""
    metrics: dict[str, Any] = {}
    missing: dict[str, str] = {}
    names = dict.fromkeys(name for one in read for name in (*one.numbers, *one.absent))
    for name in names:
        without = [one.path.name for one in read if name not in one.numbers]
        if without:
            missing[name] = f"no number in {clip(without[0], 100)}"
            continue
        try:
            metrics[name] = to_plain(summarise([_score(one, name) for one in read]))
        except MetricError as error:
            missing[name] = str(error)
            continue
        if not all(one.numbers[name].n for one in read):
            metrics[name]["n"] = None
    return metrics, missing


def _score(of: Evaluation, name: str) -> Score:
    """Return a seed's score; where the file does not count its examples, `n` is a placeholder."""
    number, recorded = of.numbers[name], of.recorded.get(name)
    score = Score(
        value=number.value,
        n=number.n or 1,
        higher_is_better=number.higher_is_better,
        unit=number.unit,
        flags=number.flags,
        aggregate="corpus",
    )
    if recorded is None:
        return score
    log = number.unit == "perplexity" and is_log(recorded.sampled, number.value)
    return replace(score, examples=recorded.examples, units=recorded.units, aggregate="exp_mean" if log else "mean")


def _created(of: Evaluation) -> datetime:
    """Return when the evaluation was made, or else when its file was written."""
    text = of.created or str(of.path.stat().st_mtime)
    try:
        try:
            created = datetime.fromtimestamp(float(text), UTC)
        except ValueError:
            created = datetime.fromisoformat(text)
    except (OverflowError, OSError, ValueError):
        raise DataError(f"{of.path}: its date is {clip(text, 40)}; expected ISO 8601 or seconds since 1970.") from None
    return created if created.tzinfo else created.replace(tzinfo=UTC)


def _of_files(board: Leaderboard, keys: Sequence[str]) -> list[Entry]:
    """Return the imported entries that hold results of any of these files."""
    rows = [row for row in board.rows() if row.kind == "imported" and row.suite in SUITES]
    return [board.read(row) for row in rows if not set(keys).isdisjoint(row.runs)]


def _named_alike(known: Entry, given: Entry) -> bool:
    """Return whether two entries say the same of who is evaluated in the files that both hold."""
    seeds = {run.key: run.seed for run in known.runs}
    alike = all(seeds.get(run.key, run.seed) == run.seed for run in given.runs)
    return alike and (known.model.name, known.objective.label) == (given.model.name, given.objective.label)


def _twice(path: Path, known: Entry, given: Entry, alike: bool) -> str:
    names = []
    for entry in (known, given):
        seeds = f", seed {', '.join(map(str, entry.seeds))}" if entry.seeds else ""
        names.append(f"{entry.objective.label} of {entry.model.name}{seeds}")
    advice = "add --renamed if the new name is the right one" if alike else "give each file the name that it has there"
    return (
        f"{path}: these results are on the board as {names[0]} [{known.id[:6]}], and would count twice as {names[1]}, "
        f"too. One evaluation is of one model: {advice}."
    )


def _same(known: Entry, given: Entry, examples: Sequence[Mapping[str, Recorded]]) -> bool:
    """Return whether an entry says all that these fields say, and has per-example results where there are some."""
    for run, recorded in zip(known.runs, examples, strict=True):
        if recorded and run.examples is None:
            return False
    # The time of a file without a date and the file's name are others of a copy.
    of_known: dict[str, Any] = {name: getattr(known, name) for name in ("id", "supersedes", "runs", "source")}
    provenance = replace(given.provenance, created=known.provenance.created)
    return replace(given, provenance=provenance, **of_known) == known
