"""From entries to pictures: divergence curves, histograms of lengths and entropies, cross-entropies both ways."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from emobench.core.errors import ConfigError, DataError
from emobench.leaderboard.entry import Entry
from emobench.leaderboard.labels import labels
from emobench.leaderboard.pack import PROMPTS
from emobench.leaderboard.run_files import entry_examples, find_file, is_here, shortened_from
from emobench.leaderboard.store import file_of
from emobench.metrics.mauve import MAUVE_RUNS
from emobench.report.charts.generation_charts import cross_entropy_points, divergence_curves, histograms, scatter
from emobench.report.charts.vega_lite import HUMAN, SUFFIXES, picture, stacked, write_picture, write_pictures
from emobench.report.tuning import comparable, tuning_panels
from emobench.runs.inspect.answers import answered_tasks
from emobench.runs.inspect.recorded_runs import read_json, score_stages, texts_of

FOLDER = ".figures"
"""Within a suite's folder of a board. A board is read without what begins with a dot."""
Row = dict[str, Any]


class Files(NamedTuple):
    """Where files of runs are: in the folder of runs, or on boards that ship them."""

    runs: Path
    boards: Sequence[Path] = ()


class DrawnPictures(NamedTuple):
    """The files that were written, and why other pictures were not drawn."""

    files: list[Path]
    notes: list[str]


def draw(entries: Sequence[Entry], runs: Path, out: Path, boards: Sequence[Path] = ()) -> DrawnPictures:
    """Draw all pictures that entries have files for: as PNG and SVG into a folder, or together into one file.

    `out` is a file if its name has the end of a picture's.

    Files of their runs that are not in `runs` are read from `boards`. Raises ConfigError where there is nothing.
    """
    series = dict(zip(labels(entries, ()), entries, strict=True))
    files = Files(runs, boards)
    drawn = DrawnPictures([], [])

    def rows(name: str, rows_of: Callable[[str, Entry, Files], Iterator[Row]]) -> list[Row]:
        """Return the rows of all entries; files that cannot be read are noted, and cost no other picture."""
        read: list[Row] = []
        for label, entry in series.items():
            try:
                read += rows_of(label, entry, files)
            except DataError as error:
                drawn.notes.append(f"{name} of {label}: {error}")
        return read

    pictures = {}
    if points := rows("cross-entropies", lambda label, entry, _: cross_entropy_points(label, entry)):
        pictures["cross-entropies"] = scatter(points)
    if curves := rows("divergence curves", _curves):
        pictures["divergence-curves"] = divergence_curves(curves)
    if lengths := rows("lengths", _lengths):
        kept = {(row["task"], row["series"]): row for row in lengths}  # people's texts once, whoever continued them
        title, unit = "Lengths of human and generated continuations", "words of a continuation"
        for label, entry in series.items():
            if _is_shortened(entry, files):
                title = f"Lengths of human and generated continuations: the first {PROMPTS} prompts at most"
                drawn.notes.append(f"lengths of {label} after more than {PROMPTS} prompts: the packed board has none.")
        counted = "continuations"
        pictures["lengths"] = histograms([*kept.values()], title=title, unit=unit, counted=counted, whole=True)
    if entropies := rows("entropies", _entropies):
        title, unit = "Entropy of the model's next-token distribution", "mean of a block of test text (nats per token)"
        pictures["entropies"] = histograms(entropies, title=title, unit=unit, counted="blocks")
    if comparable(entries):
        pictures["tuning"] = picture("Tuning", tuning_panels(entries))
    if not pictures:
        why = " ".join(drawn.notes) or "They have no texts, no entropies and no cross-entropies of both directions."
        raise ConfigError(f"There is nothing to draw of {', '.join(series)}. {why}")
    if out.suffix.lower() in SUFFIXES:
        write_picture(stacked(list(pictures.values())), out)
        drawn.files.append(out)
        return drawn
    for name, drawing in pictures.items():
        drawn.files.extend(write_pictures(drawing, out, name))
    return drawn


def can_draw(entry: Entry, runs: Path, boards: Sequence[Path] = ()) -> bool:
    """Return whether something can be drawn of an entry: by its cross-entropies, or by files of its runs."""
    if any(cross_entropy_points("", entry)):
        return True
    if not entry.protocols.keys() - answered_tasks(entry):  # nothing is drawn of answers by labels
        return False
    return any(is_here(file, runs, boards) for run in entry.runs for file in run.files())


def pictures_folder(entries: Sequence[Entry], board: Path) -> Path:
    """Return the folder of the entries' pictures on a board, in the folder of the first one's suite."""
    name = entries[0].id
    if len(entries) > 1:
        name = "-".join(entry.id[:6] for entry in entries)
    return (board / file_of(entries[0])).parent / FOLDER / name


def _curves(label: str, entry: Entry, files: Files) -> Iterator[Row]:
    if not any(name.endswith("/mauve") for name in entry.metrics):
        return
    for run in entry.runs:
        for facts, folder in score_stages(entry, run, files.runs):
            task = facts["task"]["name"]
            if f"{task}/mauve" not in entry.metrics:
                continue
            for one in read_json(folder / MAUVE_RUNS, entry)["runs"]:
                yield {"series": label, "task": task, "mauve": one["mauve"], "points": one["curve"]}


def _lengths(label: str, entry: Entry, files: Files) -> Iterator[Row]:
    """Yield words of each continuation of all runs, by task, and of people's, once for each prompt."""
    generated: dict[str, list[int]] = {}
    human: dict[str, dict[str, int]] = {}
    for run in entry.runs:
        if not run.samples:
            continue
        for task, texts in texts_of(entry, run, *files).items():
            for text in texts:
                generated.setdefault(task, []).append(len(text.generated.split()))
                if text.human is not None:
                    human.setdefault(task, {})[text.prompt] = len(text.human.split())
    for task, lengths in generated.items():
        if task in human:
            yield {"series": HUMAN, "task": task, "values": list(human[task].values())}
        yield {"series": label, "task": task, "values": lengths}


def _is_shortened(entry: Entry, files: Files) -> bool:
    """Return whether some of an entry's samples are of the first prompts alone."""
    for run in entry.runs:
        for file in run.samples:
            path = find_file(file, *files)
            if path is not None and shortened_from(path) is not None:
                return True
    return False


def _entropies(label: str, entry: Entry, files: Files) -> Iterator[Row]:
    names = [name for name in entry.metrics if name.endswith("/entropy")]
    of_runs = entry_examples(entry, *files) if names else []
    for name in names:
        values: list[float] = []
        for examples in of_runs:
            values += [value for value, _ in examples.get(name, {}).values()]
        if values:
            yield {"series": label, "task": name.partition("/")[0], "values": values}
