"""Results of lm-evaluation-harness, inspect and Every Eval Ever as entries of kind `imported`, with their examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from emobench.core.errors import ConfigError, DataError
from emobench.core.reading import is_folder, path_exists
from emobench.core.settings import PRETRAINED, file_sha256
from emobench.exchange.evaluation import EXPECTED, Evaluation
from emobench.exchange.evaluation_entry import SUITES, evaluation_fields
from emobench.exchange.lm_eval_entry import SUITE, ImportedModel, entry_fields
from emobench.exchange.lm_eval_results import ResultsFile
from emobench.exchange.lm_eval_samples import read_samples
from emobench.exchange.result_files import read_results, result_files
from emobench.leaderboard.entry import Entry, new_entry
from emobench.leaderboard.run_files import Recorded, write_examples
from emobench.leaderboard.store import Leaderboard
from emobench.tasks.scores import Score


@dataclass(frozen=True)
class Imported:
    """`paired` counts the metrics with per-example results; `notes` say what was left out, in sentences.

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
    found = result_files(path)
    if not found:
        raise DataError(f"{path} holds no result file; expected {EXPECTED}.")
    return found


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
    files = [read_results(path) for path in paths]
    read = [_examples(file) for file in files]
    examples, notes = [found for found, _ in read], tuple(note for _, of in read for note in of)
    fields = {**_fields(files, examples, given), "supersedes": None}
    seeds = given.seeds or (None,) * len(files)
    fields["runs"] = [{"seed": seed, "key": file_sha256(path)[:16]} for seed, path in zip(seeds, paths, strict=True)]
    keys = [run["key"] for run in fields["runs"]]
    if len(set(keys)) < len(keys):
        raise DataError(f"{paths[0]}: the same results are given for two seeds; give each seed its own file.")
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
    for run, found in zip(fields["runs"], examples, strict=True):
        if found:
            path = f"imported/{run['key']}/examples.jsonl"
            run["examples"] = {"path": path, "sha256": write_examples(runs / path, _scores(found))}
    entry = new_entry(fields, str(paths[0]))
    board.append(entry)
    return Imported(entry, True, replaced, paired, notes)


def _fields(
    files: Sequence[ResultsFile | Evaluation], examples: Sequence[Mapping[str, Recorded]], given: ImportedModel
) -> dict[str, Any]:
    of_lm_eval = [file for file in files if isinstance(file, ResultsFile)]
    others = [file for file in files if not isinstance(file, ResultsFile)]
    if (of_lm_eval and others) or len({file.format for file in others}) > 1:
        raise DataError(f"{files[0].path}: results of several tools are no seeds of one entry; give those of one.")
    return entry_fields(of_lm_eval, examples, given) if of_lm_eval else evaluation_fields(others, given)


def _of_files(board: Leaderboard, keys: Sequence[str]) -> list[Entry]:
    """Return the imported entries that hold results of any of these files."""
    rows = [row for row in board.rows() if row.kind == "imported" and row.suite in (SUITE["name"], *SUITES)]
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
    if any(found and run.examples is None for run, found in zip(known.runs, examples, strict=True)):
        return False
    # The time of a file without a date and the file's name are others of a copy.
    of_known: dict[str, Any] = {name: getattr(known, name) for name in ("id", "supersedes", "runs", "source")}
    provenance = replace(given.provenance, created=known.provenance.created)
    return replace(given, provenance=provenance, **of_known) == known


def _examples(file: ResultsFile | Evaluation) -> tuple[Mapping[str, Recorded], tuple[str, ...]]:
    """Return the per-example results of a file, and what was left out, in sentences."""
    if not isinstance(file, ResultsFile):
        return file.examples, file.notes
    try:
        return read_samples(file).examples, ()
    except DataError as error:
        return {}, (f"without per-example results: {error}",)


def _scores(examples: Mapping[str, Recorded]) -> dict[str, Score]:
    return {
        name: Score(value=0.0, n=len(of.examples), higher_is_better=None, unit="", examples=of.examples, units=of.units)
        for name, of in examples.items()
    }
