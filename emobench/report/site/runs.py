"""What the files of an entry's runs hold for a page: training curves, and a few samples. Only the runs folder is read.

A file that is missing, altered, outside the runs folder or unreadable becomes a sentence on the page.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol, TypeVar

from emobench.core.errors import UserError
from emobench.core.reading import json_rows, parse_mapping, read_text
from emobench.data.oracle.language import oracle_words
from emobench.leaderboard.entry import Entry, File, Run
from emobench.leaderboard.run_files import SHORTENED, find_file, is_recorded

T = TypeVar("T")
Curve = Mapping[int, float]
"""Optimizer step -> value."""


class Written(Protocol):
    """One generated text, as kinds of task read it back."""

    @property
    def sample(self) -> int: ...
    @property
    def prefix(self) -> str | None: ...
    @property
    def human(self) -> str | None: ...
    @property
    def generated(self) -> str: ...
    @property
    def preferred(self) -> float | None: ...


MOST_BYTES = 200_000_000
POINTS = 200
"""Points of a curve at most; more steps are averaged in equal blocks."""
SAMPLES = 5
LONGEST_TEXT = 2000
TIE = 0.5


@dataclass
class RunFiles:
    """Reads the files of entries' runs under `root`.

    `read_curves` gives the curves of a training's log by name, and `mean_curve` their mean over seeds.
    """

    root: Path
    read_curves: Callable[[Path], Mapping[str, Curve]]
    mean_curve: Callable[[Sequence[Curve]], Mapping[int, float]]
    boards: Sequence[Path] = ()
    """Boards that ship files of their runs, which are read where `root` has them not."""
    written: Callable[[Entry, Run], Mapping[str, Sequence[Written]]] | None = None
    """Reads what a run wrote where its files hold only tokens: texts with their prompts, by task."""

    def of(self, entry: Entry) -> dict[str, Any]:
        """Return {"curves", "samples", "problems"} of an entry, plain; a problem is a sentence on files not used."""
        problems: list[str] = []
        return {
            "curves": self._curves(entry, problems),
            "samples": self._samples(entry, problems),
            "problems": problems,
        }

    def _curves(self, entry: Entry, problems: list[str]) -> list[dict[str, Any]]:
        """Return, for each training of a run, its parts: steps, the mean over seeds, and each seed's values."""
        found = []
        for place in range(max((len(run.curves) for run in entry.runs), default=0)):
            by_seed: dict[str, Mapping[str, Curve]] = {}
            for run in entry.runs:
                if place < len(run.curves) and (curves := self._read(run.curves[place], self.read_curves, problems)):
                    by_seed[str(run.seed)] = curves
            names = dict.fromkeys(name for curves in by_seed.values() for name in curves)
            parts = {}
            for name in names:
                of = {seed: curves[name] for seed, curves in by_seed.items() if name in curves}
                mean = self.mean_curve(list(of.values()))
                parts[name] = {"mean": _thin(mean), "seeds": {seed: _thin(curve) for seed, curve in of.items()}}
            if parts:
                found.append({"training": place + 1, "parts": parts})
        return found

    def _samples(self, entry: Entry, problems: list[str]) -> list[dict[str, Any]]:
        """Return a few samples of each file of the first run, so that entries show the same prompts."""
        if not entry.runs:
            return []
        run = entry.runs[0]
        own = list(problems)
        texts_of = [self._read(file, _read_samples, own) for file in run.samples]
        # Tokens alone, and rows of another form, are read by their kind of task.
        elsewhere = None in texts_of or not any(file.path.endswith(".jsonl") for file in run.samples)
        if self.written and elsewhere and (found := self._written(entry, run)):
            return found
        problems[:] = own
        # A file does not say its task; where there is one for each, they are in the tasks' order.
        tasks = list(entry.protocols) if len(run.samples) == len(entry.protocols) else [f.path for f in run.samples]
        return [
            {"task": task, "seed": run.seed, "texts": texts}
            for task, texts in zip(tasks, texts_of, strict=True)
            if texts is not None
        ]

    def _written(self, entry: Entry, run: Run) -> list[dict[str, Any]]:
        """Return samples with prompts and human texts; none where the files are not all there as they were recorded."""
        assert self.written is not None
        if not all(self._read(file, lambda path: path, []) for file in run.samples):
            return []
        try:
            tasks = self.written(entry, run)
        except UserError:
            return []
        return [
            {"task": task, "seed": run.seed, "texts": [_plain(text) for text in texts if not text.sample][:SAMPLES]}
            for task, texts in tasks.items()
        ]

    def _read(self, file: File, read: Callable[[Path], T], problems: list[str]) -> T | None:
        """Read a file inside the runs folder that is as it was recorded, or note why it is not."""
        try:
            path = find_file(file, self.root, self.boards)
            if path is None:
                why = "not in the runs folder. Name the one that has it: --runs DIR"
            elif not path.resolve().is_relative_to(self.root.resolve()) and path == self.root / file.path:
                why = "lies outside the runs folder, so it is not read"  # through a symbolic link
            elif path.stat().st_size > MOST_BYTES:
                why = f"too large for a page ({path.stat().st_size:,} bytes)"
            elif not is_recorded(path, file):
                why = "altered since the entry was recorded, so it is not shown"
            else:
                return read(path)
        except (LookupError, TypeError, ValueError, AttributeError, RecursionError):
            why = "holds no curves or samples that a page can show"
        except (UserError, OSError) as error:
            # Pages are published: they name no folder of this machine.
            why = f"cannot be read ({str(error).replace(f'{self.root.resolve()}/', '')})"
        if not any(problem.endswith(f": {why}.") for problem in problems):  # one sentence for each reason
            problems.append(f"{file.path}: {why}.")
        return None


def _thin(curve: Curve) -> dict[str, list[Any]]:
    """Return steps and values, averaged in at most `POINTS` blocks; a block without a finite value holds None."""
    steps, values = list(curve), list(curve.values())
    count = min(POINTS, len(steps))
    bounds = [round(i * len(steps) / count) for i in range(count + 1)] if count else []
    made: dict[str, list[Any]] = {"steps": [], "values": []}
    for start, stop in pairwise(bounds):
        finite = [value for value in values[start:stop] if math.isfinite(value)]
        made["steps"].append(steps[stop - 1])
        made["values"].append(float(f"{sum(finite) / len(finite):.5g}") if finite else None)
    return made


def _read_samples(path: Path) -> list[dict[str, str]]:
    """Return the first samples: of different prompts in a file of JSON Lines, or of texts of the oracle language."""
    if path.suffix != ".jsonl":
        words, texts = oracle_words(), parse_mapping(read_text(path))["texts"]
        return [{"continuation": _short(" ".join(words[place] for place in ids))} for ids, _ in texts[:SAMPLES]]
    rows: dict[str, Mapping[str, Any]] = {}
    for number, row in json_rows(path):
        if SHORTENED in row:
            continue
        rows.setdefault(str(row.get("prompt_id", number)), row)
        if len(rows) == SAMPLES:
            break
    samples = []
    for row in rows.values():
        # A board that ships samples has no text of the data.
        prompt = (
            row["prefix_text"] if "prefix_text" in row else f"not on this board: text {row['prompt_id']} of the data"
        )
        sample = {"prompt": prompt, "continuation": row["continuation_text"]}
        sample |= {"reference": row["reference_text"]} if row.get("reference_text") else {}
        samples.append({name: _short(str(text)) for name, text in sample.items()})
    return samples


def _plain(text: Written) -> dict[str, str]:
    parts = {"prompt": text.prefix, "continuation": text.generated, "reference": text.human}
    verdict = {} if text.preferred is None else {"verdict": _verdict(text.preferred)}
    return {name: _short(part) for name, part in parts.items() if part is not None} | verdict


def _verdict(preferred: float) -> str:
    if preferred == TIE:
        return "A judge sees a tie with the reference."
    return f"A judge prefers {'it' if preferred > TIE else 'the reference'}."


def _short(text: str) -> str:
    return text if len(text) <= LONGEST_TEXT else text[:LONGEST_TEXT] + "…"
