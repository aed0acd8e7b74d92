"""Results of other tools and tables of scores: read, compared as they are, and (but for tables) imported."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

from emobench.core.errors import ConfigError, DataError, MetricError
from emobench.core.reading import expand_home, is_file, is_folder, path_exists
from emobench.core.settings import PRETRAINED, file_sha256, parse_call, to_plain
from emobench.data.rows import file_rows
from emobench.exchange import every_eval_ever, inspect_log, lm_eval, score_tables
from emobench.exchange.evaluation import (
    EXPECTED,
    LONGEST,
    MOST_NAMED,
    Evaluation,
    Fields,
    read_json,
    remarks,
    unpaired,
)
from emobench.leaderboard.entry import Entry, new_entry
from emobench.leaderboard.labels import clean
from emobench.leaderboard.private_paths import published, published_value
from emobench.leaderboard.run_files import Recorded, RunExamples, write_examples
from emobench.leaderboard.stats.compare import Comparison, Contrast, compare_models
from emobench.leaderboard.stats.series import common_examples, is_log, scored
from emobench.leaderboard.stats.summary import summarise
from emobench.leaderboard.store import Leaderboard
from emobench.tasks.lm_eval_numbers import clip
from emobench.tasks.scores import Score

FORMATS = (lm_eval.FORMAT, inspect_log.FORMAT, every_eval_ever.FORMAT)
"""The suites of imported entries, each in version 1."""
RECORDS = "data/*/*/*/*.json"
"""Where a copy of Every Eval Ever's datastore has its records."""


@dataclass(frozen=True)
class ImportedModel:
    """The user's facts on the evaluated models: trained from what, with what, which seeds."""

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


def result_files(path: Path) -> list[Path]:
    """Return lm_eval's results in a folder at any depth, or else the JSON files, whose names other tools choose."""
    return sorted(path.rglob("results_*.json")) or sorted(path.glob("*.json")) or sorted(path.glob(RECORDS))


def find_results(path: Path) -> list[Path]:
    """Return the results files of a folder, or the file itself. Raises DataError for neither."""
    files = [path]
    if is_folder(path):
        files = result_files(path)
    elif not path_exists(path):
        raise DataError(f"{path} does not exist; expected {EXPECTED}, or the folder that holds them.")
    if not files:
        raise DataError(f"{path} has no result file; expected {EXPECTED}.")
    return files


def read_results(path: Path, *, lenient: bool = False) -> Evaluation:
    """Return the evaluation in a file, `lenient` without samples that cannot be read. Raises DataError."""
    if path.suffix == ".eval":
        raise DataError(f"{path}: inspect's own format; make it JSON with `inspect log convert {path} --to json`.")
    if path.name.startswith("samples_") and path.suffix == ".jsonl":
        raise DataError(f"{path} holds the samples of one task; expected the results_*.json next to it.")
    data = read_json(path)
    if inspect_log.is_inspect_log(data):
        return inspect_log.inspect_evaluation(path, data)
    if every_eval_ever.is_record(data):
        return every_eval_ever.record_evaluation(path, data)
    return lm_eval.lm_eval_evaluation(path, data, lenient=lenient)


def import_each(paths: Sequence[Path], given: ImportedModel) -> list[list[Path]]:
    """Return which files become one entry: each alone, or all together, one for each seed. Raises ConfigError."""
    if not given.seeds:
        return [[path] for path in paths]
    if given.objective == PRETRAINED:
        raise ConfigError("--seed is the seed of a training; add --objective NAME, what the models were trained with.")
    if len(given.seeds) != len(paths) or len(set(given.seeds)) != len(paths):
        raise ConfigError(f"--seed has {len(given.seeds)} values for {len(paths)} files; give each file its own seed.")
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
    read, examples, notes, keys = [], [], [], []
    for path in paths:
        one = read_results(path, lenient=True)
        read.append(one)
        examples.append(one.examples)
        notes += one.notes
        keys.append(file_sha256(path)[:16])
    fields = entry_fields(read, given)
    if len(set(keys)) < len(keys):
        raise DataError(f"{paths[0]}: the same results are given for two seeds; give each seed its own file.")
    seeds = given.seeds or (None,) * len(read)
    fields["runs"] = [{"seed": seed, "key": key} for seed, key in zip(seeds, keys, strict=True)]
    entry = new_entry(fields, str(paths[0]))
    paired = len(set(examples[0]).intersection(*examples))
    replaced = None
    for row in board.rows():
        if row.kind != "imported" or row.suite not in FORMATS or set(keys).isdisjoint(row.runs):
            continue
        known = board.read(row)
        alike = list(row.runs) == keys
        if not _named_alike(known, entry) and not (renamed and alike):
            advice = "add --renamed if the new name is right" if alike else "give each file the name that it has there"
            raise DataError(
                f"{paths[0]}: these results are on the board as {_described(known)} [{known.id[:6]}], and would count "
                f"twice as {_described(entry)}: {advice}."
            )
        if alike and _same(known, entry, examples):
            return Imported(known, False, None, paired, tuple(notes))
        if alike:
            replaced, fields["supersedes"] = known, known.id
    for run, recorded in zip(fields["runs"], examples, strict=True):
        if recorded:
            path = f"imported/{run['key']}/examples.jsonl"
            run["examples"] = {"path": path, "sha256": write_examples(runs / path, recorded)}
    entry = new_entry(fields, str(paths[0]))
    board.append(entry)
    return Imported(entry, True, replaced, paired, tuple(notes))


def entry_fields(read: Sequence[Evaluation], given: ImportedModel) -> Fields:
    """Return an entry's fields, without `runs`, from one evaluation or one for each seed.

    One file's intervals are those that it gives, several files' come from the values and examples of the seeds. Raises
    DataError where one was made otherwise than the first.
    """
    first = read[0]
    made = (first.format, first.protocols, first.data, first.recipe)
    for other in read[1:]:
        if made != (other.format, other.protocols, other.data, other.recipe):
            raise DataError(
                f"{other.path}: its tool, protocol, data or precision differs from that of {first.path}, so that they "
                "are not seeds of one entry. Import them without --seed, each as an entry."
            )
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
    provenance = {
        **first.provenance,
        "data": first.data,
        "created": max(map(_created, read)).isoformat(timespec="seconds"),
    }
    fields: Fields = {
        "kind": "imported",
        "supersedes": None,
        "suite": {"name": first.format, "version": 1},
        "protocols": first.protocols,
        "model": model,
        "objective": {"name": name, "version": "imported", "params": params},
    }
    fields |= {
        "recipe": first.recipe,
        "seeds": list(given.seeds),
        "metrics": metrics,
        "missing": missing,
        "cost": {},
        "source": {"cite": "; ".join(one.cite for one in read)},
        "provenance": provenance,
    }
    return fields


def _of_seeds(read: Sequence[Evaluation]) -> tuple[Fields, dict[str, str]]:
    """Return the metrics over the seeds, and why others are missing."""
    metrics = {}
    missing = {}
    names = {}
    for one in read:
        names.update(one.numbers)
        names.update(one.absent)
    for name in names:
        without = [one.path.name for one in read if name not in one.numbers]
        if without:
            missing[name] = f"no number in {clip(without[0], 100)}"
            continue
        try:
            scores = [_score(one, name) for one in read]
            metrics[name] = to_plain(summarise(scores))
        except MetricError as error:
            missing[name] = str(error)
            continue
        if not all(one.numbers[name].n for one in read):
            metrics[name]["n"] = None
    return metrics, missing


def _score(of: Evaluation, name: str) -> Score:
    """Return a seed's score; where the file does not count its examples, `n` is a placeholder."""
    number = of.numbers[name]
    recorded = of.examples.get(name)
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
    if created.tzinfo is None:
        created = created.replace(tzinfo=UTC)
    return created


def _named_alike(known: Entry, given: Entry) -> bool:
    """Return whether two entries say the same of who is evaluated in the files that both hold."""
    seeds = {run.key: run.seed for run in known.runs}
    for run in given.runs:
        if seeds.get(run.key, run.seed) != run.seed:
            return False
    return (known.model.name, known.objective.label) == (given.model.name, given.objective.label)


def _described(entry: Entry) -> str:
    seeds = f", seed {', '.join(map(str, entry.seeds))}" if entry.seeds else ""
    return f"{entry.objective.label} of {entry.model.name}{seeds}"


def _same(known: Entry, given: Entry, examples: Sequence[Mapping[str, Recorded]]) -> bool:
    """Return whether an entry says all that these fields say, and has per-example results where there are some."""
    for run, recorded in zip(known.runs, examples, strict=True):
        if recorded and run.examples is None:
            return False
    # The time of a file without a date and the file's name are others of a copy.
    provenance = replace(given.provenance, created=known.provenance.created)
    own = replace(
        given,
        id=known.id,
        supersedes=known.supersedes,
        runs=known.runs,
        source=known.source,
        provenance=provenance,
    )
    return own == known


# Files that are compared as they are: nothing is recorded

ENDINGS = (".json", ".eval", *score_tables.SUFFIXES)
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
    """Return the evaluation of a file or table, or of the one result file of a folder. Raises DataError."""
    path = expand_home(text)
    if score_tables.is_table(text):
        return score_tables.table_evaluation(path, file_rows(path))
    files = find_results(path)
    if len(files) > 1:
        shown = [str(file.relative_to(path)) for file in files[:MOST_NAMED]]
        raise DataError(f"{path} holds {len(files)} result files ({', '.join(shown)}); name one of them.")
    return read_results(files[0])


def compare_files(
    texts: Sequence[str],
    baseline: str | None = None,
    *,
    anyway: bool = False,
    frames: Mapping[str, Evaluation] = MappingProxyType({}),
) -> Comparison:
    """Compare the models of result files with the last one or `baseline`, example by example.

    Texts name files, folders, or `frames`, data frames that were read. Tables of several seeds are compared over seeds.
    Raises DataError for other files, and ConfigError where examples do not pair, unless `anyway`: these metrics then
    have no verdict.
    """
    baseline = baseline or texts[-1]
    named = list(dict.fromkeys([*texts, baseline]))
    if len(named) < 2:
        raise ConfigError(f"{named[0]} alone has nothing to compare with; give two result files or folders.")
    read = {}
    for text in named:
        read[text] = frames[text] if text in frames else read_evaluation(text)
    base = read[baseline]
    titles = [evaluation.title for evaluation in read.values()]
    over_seeds = _over_seeds(read)
    entries = {}
    evaluations = {}
    excluded: dict[str, dict[str, str]] = {}
    notes = []
    for text, evaluation in read.items():
        name = evaluation.title if titles.count(evaluation.title) == 1 else text
        entries[text] = _seeds_entry(evaluation, name) if over_seeds else _entry(evaluation, name)
        evaluations[entries[text].id] = evaluation
        for note in evaluation.notes:
            notes.append(f"{name}: {note}.")
        if evaluation is not base:
            excluded[entries[text].id] = _excluded(evaluation, base)
            for remark in remarks(evaluation, base):
                notes.append(f"{name}: {remark}")
    if any(excluded.values()) and not anyway:
        raise ConfigError(_refusal(evaluations, excluded, base))

    def examples_of(entry: Entry) -> list[RunExamples]:
        one = evaluations[entry.id]
        runs = []
        for of_seed in one.seeds.values() or [one]:
            runs.append({metric: recorded.sampled for metric, recorded in of_seed.examples.items()})
        return runs

    base_row = entries.pop(baseline)
    comparison = compare_models(base_row, list(entries.values()), examples_of, excluded)
    explained = []
    for contrast in comparison.contrasts:
        ours = evaluations[contrast.candidate]
        explained.append(_explained(contrast, [ours, base]))
    return replace(comparison, contrasts=tuple(explained), remarks=tuple(map(clean, notes)))


def _over_seeds(read: Mapping[str, Evaluation]) -> bool:
    """Return whether a side has several seeds. Raises ConfigError if another one does not name its seeds."""
    several = [text for text, one in read.items() if len(one.seeds) > 1]
    without = [text for text, one in read.items() if not one.seeds]
    if several and without:
        raise ConfigError(
            f"{several[0]} has several seeds, and {without[0]} has no column `seed`. Add the column, or compare tables "
            "of one seed."
        )
    return bool(several)


def _explained(contrast: Contrast, sides: Sequence[Evaluation]) -> Contrast:
    """Return a contrast that says whose per-example results are missing, and why."""
    if contrast.verdict != "undetermined" or contrast.p is not None:
        return contrast
    models: dict[str, list[str]] = {}
    for one in sides:
        if contrast.metric not in one.examples and contrast.metric in one.without:
            models.setdefault(one.without[contrast.metric], []).append(one.title)
    reasons = []
    for why, names in models.items():
        reasons.append(f"no per-example results of {' and '.join(names)}; {why}")
    if reasons:
        contrast = replace(contrast, why=". ".join(reasons))
    return contrast


def _excluded(ours: Evaluation, theirs: Evaluation) -> dict[str, str]:
    """Return metric -> why its examples do not pair, for the metrics of both. Raises ConfigError for no metric."""
    common = [metric for metric in ours.numbers if metric in theirs.numbers]
    if not common:
        left = list(ours.tasks)[:MOST_NAMED]
        right = list(theirs.tasks)[:MOST_NAMED]
        raise ConfigError(
            f"{ours.path} ({', '.join(left)}) and {theirs.path} ({', '.join(right)}) have no metric in common."
        )
    by_task = {}
    excluded = {}
    for metric in common:
        task = metric.partition("/")[0]
        if task not in by_task:
            by_task[task] = "; ".join(unpaired(ours, theirs, task)[:MOST_NAMED])
        why = by_task[task]
        scale = ours.numbers[metric].scale or "none"
        other = theirs.numbers[metric].scale or "none"
        if not why and scale != other:
            why = f"scale: {clip(scale, LONGEST)} and {clip(other, LONGEST)}"
        own = ours.examples.get(metric)
        others = theirs.examples.get(metric)
        if not why and own and others:
            try:
                common_examples([scored(own.sampled)], [scored(others.sampled)])
            except MetricError as error:
                why = str(error)
        if why:
            excluded[metric] = why
    return excluded


def _refusal(of: Mapping[str, Evaluation], excluded: Mapping[str, Mapping[str, str]], base: Evaluation) -> str:
    lines = [f"Not the same examples as in {base.path}:"]
    for identity, reasons in excluded.items():
        by_task = {metric.partition("/")[0]: why for metric, why in reasons.items()}
        for task, why in list(by_task.items())[:MOST_NAMED]:
            lines.append(f"  {of[identity].path}: {task}: {why}.")
        if len(by_task) > MOST_NAMED:
            lines.append(f"  and {len(by_task) - MOST_NAMED} more tasks.")
    return "\n".join([*lines, "Evaluate both models alike, or add --anyway to see these tasks without a verdict."])


def _seeds_entry(one: Evaluation, name: str) -> Entry:
    """Return the evaluations of several seeds as a row, which is called by its objective."""
    read = [replace(of_seed, created=EPOCH) for of_seed in one.seeds.values()]
    fields = entry_fields(read, ImportedModel(objective=one.format, seeds=tuple(one.seeds)))
    fields["objective"]["name"] = name
    fields |= {"protocols": {}, "model": {"name": "scores", "source": one.format}, "runs": []}
    return new_entry(fields, str(one.path))


def _entry(one: Evaluation, name: str) -> Entry:
    """Return an evaluation as a row of a comparison, which is on no board."""
    numbers = {}
    for metric, number in one.numbers.items():
        facts = one.tasks.get(metric.partition("/")[0])
        numbers[metric] = replace(number, n=number.n or (facts and len(facts.prompts)) or None)
    plain = replace(one, numbers=numbers, created=EPOCH, recipe={}, absent={}, objective=None)
    fields = entry_fields([plain], ImportedModel())
    fields |= {
        "suite": {"name": one.harness, "version": 1},
        "protocols": {},
        "model": {"name": name, "source": hashlib.sha256(str(one.path).encode()).hexdigest()},
        "runs": [],
        "source": {"cite": str(one.path)},
    }
    return new_entry(fields, str(one.path))
