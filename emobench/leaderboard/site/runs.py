"""What the files of an entry's runs hold for a page: training curves, and a few samples. Only the runs folder is read.

A file that is missing, altered, outside the runs folder or unreadable becomes a sentence on the page.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

from emobench.config import file_sha256
from emobench.data.oracle import oracle_words
from emobench.errors import DataError, UserError
from emobench.leaderboard.schema.entry import Entry, File

Curve = Mapping[int, float]
"""Optimizer step -> value."""

MOST_BYTES = 200_000_000
POINTS = 200
"""Points of a curve at most; more steps are averaged in equal blocks."""
SAMPLES = 5
LONGEST_TEXT = 2000


@dataclass
class RunFiles:
    """Reads the files of entries' runs under `root`.

    `read_curves` gives the curves of a training's log by name, and `mean_curve` their mean over seeds.
    """

    root: Path
    read_curves: Callable[[Path], Mapping[str, Curve]]
    mean_curve: Callable[[Sequence[Curve]], Mapping[int, float]]
    problems: list[str] = field(default_factory=list)
    """A sentence for each file of the last entry that could not be used."""
    _absent: list[str] = field(default_factory=list)

    def of(self, entry: Entry) -> dict[str, Any]:
        """Return {"curves", "samples", "problems"} of an entry, plain."""
        self.problems, self._absent = [], []
        curves, samples = self._curves(entry), self._samples(entry)
        if self._absent:
            more = f" and {len(self._absent) - 1} more" if len(self._absent) > 1 else ""
            self.problems.append(
                f"{self._absent[0]}{more}: not in the runs folder. Name the one that has it: --runs DIR."
            )
        return {"curves": curves, "samples": samples, "problems": self.problems}

    def _curves(self, entry: Entry) -> list[dict[str, Any]]:
        """Return, for each training of a run, its parts: steps, the mean over seeds, and each seed's values."""
        found = []
        for place in range(max((len(run.curves) for run in entry.runs), default=0)):
            by_seed: dict[str, Mapping[str, Curve]] = {}
            for run in entry.runs:
                path = self._verified(run.curves[place]) if place < len(run.curves) else None
                if path is not None:
                    try:
                        by_seed[str(run.seed)] = self.read_curves(path)
                    except UserError as error:
                        self.problems.append(_relative(str(error), self.root))
            names = list(dict.fromkeys(name for curves in by_seed.values() for name in curves))
            parts = {name: self._part(by_seed, name) for name in names}
            if parts:
                found.append({"training": place + 1, "parts": parts})
        return found

    def _part(self, by_seed: Mapping[str, Mapping[str, Curve]], name: str) -> dict[str, Any]:
        curves = {seed: curves[name] for seed, curves in by_seed.items() if name in curves}
        return {
            "mean": _thin(self.mean_curve(list(curves.values()))),
            "seeds": {s: _thin(c) for s, c in curves.items()},
        }

    def _samples(self, entry: Entry) -> list[dict[str, Any]]:
        """Return a few samples of each file of the first run, so that entries show the same prompts."""
        found = []
        files = entry.runs[0].samples if entry.runs else ()
        # A file does not say its task; where there is one for each, they are in the tasks' order.
        tasks = list(entry.protocols) if len(files) == len(entry.protocols) else [file.path for file in files]
        for file, task in zip(files, tasks, strict=True):
            path = self._verified(file)
            if path is None:
                continue
            try:
                texts = _read_samples(path)
            except (DataError, OSError, UnicodeDecodeError) as error:
                self.problems.append(_relative(str(error), self.root))
                continue
            found.append({"task": task, "seed": entry.runs[0].seed, "texts": texts})
        return found

    def _verified(self, file: File) -> Path | None:
        """Return the path of a file inside the runs folder that is as it was recorded, or None with a sentence."""
        try:
            if not os.path.lexists(self.root / file.path):
                self._absent.append(file.path)
                return None
            path = (self.root / file.path).resolve()
            if not path.is_relative_to(self.root.resolve()):  # through a symbolic link
                self.problems.append(f"{file.path}: lies outside the runs folder, so it is not read.")
            elif not path.is_file():
                self.problems.append(f"{file.path}: no file, so it is not read.")
            elif path.stat().st_size > MOST_BYTES:
                self.problems.append(f"{file.path}: too large for a page ({path.stat().st_size:,} bytes).")
            elif file_sha256(path) != file.sha256:
                self.problems.append(f"{file.path}: altered since the entry was recorded, so it is not shown.")
            else:
                return path
        except (OSError, ValueError) as error:
            self.problems.append(f"{file.path}: cannot be read ({error}).")
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
    """Return a few samples: of a JSON Lines file of prompts and continuations, or of texts of the oracle language."""
    if path.suffix == ".jsonl":
        with path.open(encoding="utf-8") as file:
            return list(islice(_continuations(file, path), SAMPLES))
    try:
        words = oracle_words()
        texts = json.loads(path.read_text(encoding="utf-8"))["texts"][:SAMPLES]
        return [{"continuation": _shown(" ".join(words[place] for place in ids))} for ids, _ in texts]
    except (LookupError, TypeError, ValueError, RecursionError):
        raise DataError(f"{path}: holds no samples that a page can show.") from None


def _continuations(lines: Any, path: Path) -> Iterator[dict[str, str]]:
    """Yield the first sample of each prompt."""
    prompts = set()
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
            prompt, text = str(row["prefix_text"]), str(row["continuation_text"])
            identity = row.get("prompt_id", number)
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
            raise DataError(f"{path}:{number}: expected JSON with prefix_text and continuation_text.") from None
        if str(identity) not in prompts:
            prompts.add(str(identity))
            shown = {"prompt": _shown(prompt), "continuation": _shown(text)}
            reference = row.get("reference_text")
            yield shown | ({"reference": _shown(str(reference))} if reference else {})


def _shown(text: str) -> str:
    return text if len(text) <= LONGEST_TEXT else text[:LONGEST_TEXT] + "…"


def _relative(text: str, root: Path) -> str:
    """Return an error's text without the machine's folders: pages are published."""
    return text.replace(f"{root.resolve()}/", "").replace(f"{root}/", "")
