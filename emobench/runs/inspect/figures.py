"""From entries to pictures: divergence curves, histograms of lengths and entropies, cross-entropies both ways."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from emobench.core.errors import ConfigError, DataError
from emobench.leaderboard.entry import Entry
from emobench.leaderboard.labels import labels
from emobench.leaderboard.pack import PROMPTS
from emobench.leaderboard.run_files import entry_examples, find_file, is_here, shortened_from
from emobench.leaderboard.store import file_of
from emobench.metrics.mauve import MAUVE_RUNS
from emobench.report.charts.generation_charts import divergence_curves, histograms, scatter
from emobench.report.charts.vega_lite import HUMAN, write_pictures
from emobench.runs.inspect.answers import answered_tasks
from emobench.runs.inspect.recorded_runs import read_json, score_stages, texts_of
from emobench.runs.stages.stage import FACTS

FOLDER = ".figures"
"""Within a suite's folder of a board. A board is read without what begins with a dot."""
ENTROPY, MAUVE = "entropy", "mauve"


class Files(NamedTuple):
    """Where files of runs are: in the folder of runs, or on boards that ship them."""

    runs: Path
    boards: Sequence[Path] = ()


class DrawnPictures(NamedTuple):
    """The files that were written, and why other pictures were not drawn."""

    files: list[Path]
    notes: list[str]


def draw(entries: Sequence[Entry], runs: Path, folder: Path, boards: Sequence[Path] = ()) -> DrawnPictures:
    """Draw all that entries have, together, as PNG and SVG into a folder.

    Files of their runs that are not in `runs` are read from `boards`. Raises ConfigError where there is nothing.
    """
    series = dict(zip(labels(entries, ()), entries, strict=True))
    drawn = DrawnPictures([], [])
    for name, picture in _pictures(series, Files(runs, boards), drawn.notes):
        drawn.files.extend(write_pictures(picture, folder, name))
    if not drawn.files:
        why = " ".join(drawn.notes) or "They have no texts, no entropies and no cross-entropies of both directions."
        raise ConfigError(f"There is nothing to draw of {', '.join(series)}. {why}")
    return drawn


def can_draw(entry: Entry, runs: Path, boards: Sequence[Path] = ()) -> bool:
    """Return whether something can be drawn of an entry: by its cross-entropies, or by files of its runs."""
    if any(_points("", entry)):
        return True
    files = [file for run in entry.runs for file in run.files()]
    written = entry.protocols.keys() - answered_tasks(entry)  # nothing is drawn of answers by labels
    return bool(written) and any(is_here(file, runs, boards) for file in files)


def pictures_folder(entries: Sequence[Entry], board: Path) -> Path:
    """Return the folder of the entries' pictures on a board, in that of the first one's suite."""
    name = entries[0].id if len(entries) == 1 else "-".join(entry.id[:6] for entry in entries)
    return (board / file_of(entries[0])).parent / FOLDER / name


def _pictures(series: Mapping[str, Entry], files: Files, notes: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    if points := [point for label, entry in series.items() for point in _points(label, entry)]:
        yield "cross-entropies", scatter(points)
    if curves := _all("divergence curves", _curves, series, files, notes):
        yield "divergence-curves", divergence_curves(curves)
    if lengths := _all("lengths", _lengths, series, files, notes):
        kept = {(row["task"], row["series"]): row for row in lengths}  # people's texts once, whoever continued them
        title, unit = "Lengths of human and generated continuations", "words of a continuation"
        if shortened := [label for label, entry in series.items() if _is_shortened(entry, files)]:
            title += f": the first {PROMPTS} prompts at most"
            names = ", ".join(shortened)
            notes.append(f"lengths of {names} after more than {PROMPTS} prompts, which a packed board has not.")
        yield "lengths", histograms([*kept.values()], title=title, unit=unit, counted="continuations", whole=True)
    if entropies := _all("entropies", _entropies, series, files, notes):
        title, unit = "Entropy of the model's next-token distribution", "mean of a block of test text (nats per token)"
        yield "entropies", histograms(entropies, title=title, unit=unit, counted="blocks")


def _all(what: str, rows_of: Any, series: Mapping[str, Entry], files: Files, notes: list[str]) -> list[dict[str, Any]]:
    """Return the rows of all entries; what cannot be read is noted, and costs no other picture."""
    found: list[dict[str, Any]] = []
    for label, entry in series.items():
        try:
            found += rows_of(label, entry, files)
        except DataError as error:
            notes.append(f"{what} of {label}: {error}")
    return found


def _points(label: str, entry: Entry) -> Iterator[dict[str, Any]]:
    for task in entry.protocols:
        point: dict[str, Any] = {"objective": label, "corpus": task}
        for name in ("forward", "reverse"):
            if metric := entry.metrics.get(f"{task}/{name}_cross_entropy"):
                low, high = metric.ci95 or (None, None)
                point |= {name: metric.mean, f"{name}_low": low, f"{name}_high": high}
        if "forward" in point and "reverse" in point:
            yield point


def _curves(label: str, entry: Entry, files: Files) -> Iterator[dict[str, Any]]:
    if not any(metric.endswith(f"/{MAUVE}") for metric in entry.metrics):
        return
    for run in entry.runs:
        scored = files.runs / "examples" / run.key / FACTS
        if not scored.is_file():
            raise DataError(
                f"{scored} is not here, and no board has the scores that hold them. Give the folder of the runs with "
                "--runs DIR."
            )
        for facts, folder in score_stages(entry, run, files.runs):
            task = facts["task"]["name"]
            if f"{task}/{MAUVE}" not in entry.metrics:
                continue
            if not (folder / MAUVE_RUNS).is_file():
                raise DataError(
                    f"{folder / MAUVE_RUNS}: cannot be read, which holds the divergence curves of {task}; where it was "
                    "scored before they were kept, use `emobench evaluate --rescore`."
                )
            for one in read_json(folder / MAUVE_RUNS, entry)["runs"]:
                yield {"series": label, "task": task, "mauve": one["mauve"], "points": one["curve"]}


def _lengths(label: str, entry: Entry, files: Files) -> Iterator[dict[str, Any]]:
    """Yield words of each continuation of all runs, by task, and of people's, once for each prompt."""
    if not any(run.samples for run in entry.runs):
        return
    generated: dict[str, list[int]] = {}
    human: dict[str, dict[str, int]] = {}
    for run in entry.runs:
        for task, texts in texts_of(entry, run, *files).items():
            generated.setdefault(task, []).extend(len(text.generated.split()) for text in texts)
            words = {text.prompt: len(text.human.split()) for text in texts if text.human is not None}
            human.setdefault(task, {}).update(words)
    for task, lengths in generated.items():
        if human[task]:
            yield {"series": HUMAN, "task": task, "values": list(human[task].values())}
        yield {"series": label, "task": task, "values": lengths}


def _is_shortened(entry: Entry, files: Files) -> bool:
    """Return whether some of an entry's samples are of the first prompts alone."""
    paths = [find_file(file, *files) for run in entry.runs for file in run.samples]
    return any(path is not None and shortened_from(path) is not None for path in paths)


def _entropies(label: str, entry: Entry, files: Files) -> Iterator[dict[str, Any]]:
    names = [name for name in entry.metrics if name.endswith(f"/{ENTROPY}")]
    if not names or not entry.runs:
        return
    of_runs = entry_examples(entry, *files)
    for name in names:
        values = [value for examples in of_runs for value, _ in examples.get(name, {}).values()]
        if values:
            yield {"series": label, "task": name.partition("/")[0], "values": values}
