"""What a page shows of an entry beyond its numbers: curves, samples and links.

A file that is missing, altered, outside the runs folder or unreadable becomes a sentence on the page.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import quote

from emobench.core.errors import UserError
from emobench.kinds.views import WrittenText
from emobench.leaderboard.entry import Entry, File, Run
from emobench.leaderboard.pack import PROMPTS
from emobench.leaderboard.run_files import find_file, is_recorded, run_examples
from emobench.registry.measures import describe
from emobench.report.numbers import scale
from emobench.tasks.scores import Measure
from emobench.training.curves import Curve, averaged, mean_curve, read_curves

Plain: TypeAlias = dict[str, Any]
"""A part of a page as JSON has it, by name."""

Scores: TypeAlias = dict[str, tuple[Measure, dict[str, float]]]
"""Metric -> what it is, and the score of each prompt: fractions in percent."""

MOST_BYTES = 200_000_000
POINTS = 200
"""Points of a curve at most; more steps are averaged in equal blocks."""
LONGEST_TEXT = 2000
TIE = 0.5

CITED = (
    (re.compile(r"\barXiv[: ]\s?(\d{4}\.\d{4,5})", re.IGNORECASE), "Paper: arXiv", "https://arxiv.org/abs/"),
    (re.compile(r"https://([\w.-]+\.[a-z]{2,}(?:/[\w./%~+-]*\w/?)?)"), "", "https://"),
    (re.compile(r"(?<![\w/])(10\.\d{4,9}/[\w./()-]+\w)"), "Paper: doi", "https://doi.org/"),
)
"""Patterns of what a citation may name, how it is called, and the beginning of its address."""
HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
COMMIT = re.compile(r"[0-9a-f]{40}")
DATA_SOURCE = re.compile(r"\((?:hub: )?([\w.-]+/[\w.-]+)@([0-9a-f]{40})\b")
HUB = "https://huggingface.co"


@dataclass(frozen=True)
class RunFiles:
    """Reads the files of entries' runs under `root`, or on the first of `boards` that ships them."""

    root: Path
    boards: Sequence[Path]
    texts_of: Callable[[Entry, Run], Mapping[str, Sequence[WrittenText]]]
    """Gives what a run wrote, by task; nothing if it wrote no texts. Raises UserError."""

    def of(self, entry: Entry) -> Plain:
        """Return {"curves", "samples", "problems"} of an entry, plain; a problem is a sentence on a file not used."""
        problems: list[str] = []
        return {
            "curves": self._curves(entry, problems),
            "samples": self._samples(entry, problems),
            "problems": problems,
        }

    def _curves(self, entry: Entry, problems: list[str]) -> list[Plain]:
        """Return, for each training of a run, its parts: steps, the mean over seeds, and each seed's values."""
        trainings = []
        for place in range(max((len(run.curves) for run in entry.runs), default=0)):
            by_name: dict[str, dict[str, Curve]] = {}
            for run in entry.runs:
                path = self._path(run.curves[place], problems) if place < len(run.curves) else None
                if path is None:
                    continue
                try:
                    logged = read_curves(path.parent).curves
                except (UserError, ValueError, TypeError) as error:
                    problems.append(f"{run.curves[place].path}: cannot be read ({self._public(error)}).")
                    continue
                for name, curve in logged.items():
                    by_name.setdefault(name, {})[str(run.seed)] = curve
            parts = {}
            for name, by_seed in by_name.items():
                seeds = {seed: _thin(curve) for seed, curve in by_seed.items()}
                parts[name] = {"mean": _thin(mean_curve(list(by_seed.values()))), "seeds": seeds}
            if parts:
                trainings.append({"training": place + 1, "parts": parts})
        return trainings

    def _samples(self, entry: Entry, problems: list[str]) -> list[Plain]:
        """Return the texts of the first prompts, of each run and task: {"task", "seed", "texts", "metrics"}.

        `metrics` has the [title, whether higher is better] of each metric in the texts' `scores`.
        """
        shown = []
        for run in entry.runs:
            if None in [self._path(file, problems) for file in run.samples]:
                continue
            try:
                written = self.texts_of(entry, run)
            except (UserError, LookupError, TypeError, ValueError) as error:
                problems.append(f"Samples cannot be read ({self._public(error)}).")
                continue
            for task, texts in written.items():
                if texts:
                    samples = _samples(texts, self._scores(entry, run, task))
                    shown.append({"task": task, "seed": run.seed, **samples})
        return shown

    def _scores(self, entry: Entry, run: Run, task: str) -> Scores:
        """Return the metrics that score single texts."""
        try:
            recorded = run_examples(run, self.root, entry, self.boards)
        except UserError:
            return {}
        scores: Scores = {}
        for name, of_metric in recorded.items():
            metric = name.partition("/")[2]
            known = describe(metric)
            if not name.startswith(f"{task}/") or known.higher_is_better is None:
                continue
            values = {}
            for example, (value, _) in of_metric.examples.items():
                values[example] = float(f"{value * scale(known.unit):.4g}")
            # MAUVE's examples are its parts, and no scores.
            if known.unit != "fraction" or 0 <= min(values.values()) <= max(values.values()) <= 100:
                scores[metric] = known, values
        return scores

    def _path(self, file: File, problems: list[str]) -> Path | None:
        """Return the path of a recorded file, or None and note why it is not used."""
        try:
            path = find_file(file, self.root, self.boards)
            if path is None:
                why = "not in the runs folder. Name the one that has it: --runs DIR"
            elif path == self.root / file.path and not path.resolve().is_relative_to(self.root.resolve()):
                why = "lies outside the runs folder"
            elif path.stat().st_size > MOST_BYTES:
                why = "too large for a page"
            elif not is_recorded(path, file):
                why = "altered since the entry was recorded"
            else:
                return path
        except (UserError, OSError) as error:
            why = f"cannot be read ({self._public(error)})"
        if not any(problem.endswith(f": {why}.") for problem in problems):  # one sentence for each reason
            problems.append(f"{file.path}: {why}.")
        return None

    def _public(self, error: Exception) -> str:
        """Return an error without folders of this machine: pages are published."""
        return str(error).replace(f"{self.root.resolve()}/", "").replace(f"{self.root}/", "")


def _thin(curve: Curve) -> dict[str, list[Any]]:
    """Return steps and values of at most `POINTS` blocks; a block without a finite value holds None."""
    blocks = averaged(curve, POINTS)
    values = []
    for value in blocks.values():
        values.append(float(f"{value:.5g}") if math.isfinite(value) else None)
    return {"steps": list(blocks), "values": values}


def _samples(texts: Sequence[WrittenText], scores: Scores) -> Plain:
    """Return the texts of the first prompts with their scores, and the metrics of these."""
    prompts = list(dict.fromkeys(text.prompt for text in texts))[:PROMPTS]
    shown = []
    for text in texts:
        if text.prompt in prompts:
            sample = _sample(text)
            for metric, (_, values) in scores.items():
                if text.prompt in values:
                    sample["scores"][metric] = values[text.prompt]
            shown.append(sample)
    metrics = {metric: [known.title, known.higher_is_better] for metric, (known, _) in scores.items()}
    return {"texts": shown, "metrics": metrics}


def _sample(text: WrittenText) -> Plain:
    """Return a text as a page shows it; prefix and reference are absent if they are not available."""
    parts = {"prefix": text.prefix, "reference": text.human, "source": text.source, "text": text.generated}
    if text.preferred == TIE:
        parts["verdict"] = "A judge sees a tie with the reference."
    elif text.preferred is not None and text.preferred > TIE:
        parts["verdict"] = "A judge prefers it."
    elif text.preferred is not None:
        parts["verdict"] = "A judge prefers the reference."
    sample: Plain = {"prompt": text.prompt, "sample": text.sample, "scores": {}}
    for name, part in parts.items():
        if part is not None:
            if len(part) > LONGEST_TEXT:
                part = part[:LONGEST_TEXT] + "…"
            sample[name] = part
    return sample


def links(entry: Entry) -> list[tuple[str, str]]:
    """Return (text, address) of the paper, data and model that an entry names, each once. None is loaded."""
    cite = entry.source.cite or ""
    named = []
    for pattern, title, address in CITED:
        for name in pattern.findall(cite):
            named.append((f"{title} {name}".strip(), address + quote(name, safe="/.%~+()-")))
    model, revision = entry.model.source, entry.model.revision or ""
    if HUB_ID.fullmatch(model) and COMMIT.fullmatch(revision):
        named.append((f"Model: {model}", f"{HUB}/{quote(model)}/tree/{revision}"))
    for source in entry.provenance.data.values():
        for repository, commit in DATA_SOURCE.findall(source):
            named.append((f"Data: {repository}", f"{HUB}/datasets/{quote(repository)}/tree/{commit}"))
    return list(dict.fromkeys(named))
