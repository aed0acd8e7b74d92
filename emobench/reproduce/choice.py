"""Which of several candidates one of a paper's rows stands for: the best one by its scores off the test split."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from emobench.core.errors import MetricError
from emobench.report.render.numbers import plain
from emobench.runs.stages.evaluate import Evaluation
from emobench.tasks.scores import Score
from emobench.tasks.table import CandidateSelection

Runs = Sequence[Sequence[Evaluation]]
"""A candidate's evaluations: of each seed, those of each task."""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """What one of the paper's rows stands for here: the chosen objective, and the scores it was chosen by, if any."""

    row: str
    objective: str
    scores: Mapping[str, float] = field(default_factory=dict)
    """Each candidate that has every score -> its mean over the selection's tasks and seeds."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Each other candidate -> the first reason why a score is missing."""

    def said(self, metric: str, where: str) -> Iterator[str]:
        """Yield what is to be known of a choice by a metric; nothing where there was one candidate."""
        if self.scores:
            shown = ", ".join(f"{text} {plain(score, 'fraction', 1)}" for text, score in self.scores.items())
            tied = list(self.scores.values()).count(self.scores[self.objective]) > 1
            yield (
                f"{self.row} is {self.objective}, chosen by the mean {metric} (%) over {where}: {shown}"
                f"{' (the first of equal ones)' if tied else ''}."
            )
        for text, why in self.left_out.items():
            yield f"{text} could not be chosen for {self.row}, without a {metric} of every task and seed: {why}"


def choose(row: str, candidates: Sequence[str], select: CandidateSelection, measured: Mapping[str, Runs]) -> Choice:
    """Return the best of a row's candidates, the first of equal ones; one that was not measured is the only one.

    A candidate without a score of a task and seed is left out: its mean would be one over other, maybe easier, tasks.
    Raises MetricError where none is left.
    """
    if len(candidates) == 1:
        return Choice(row=row, objective=candidates[0])
    found: dict[str, list[Score]] = {}
    left_out: dict[str, str] = {}
    for text in candidates:
        try:
            found[text] = [_score(each, select.metric) for run in measured[text] for each in run]
        except MetricError as error:
            left_out[text] = str(error)
    if not found:
        raise MetricError(
            f"No {select.metric} of every task and seed was computed for any candidate of {row}, so that no parameter "
            f"can be chosen by it: {left_out[candidates[0]]}"
        )
    scores = {text: sum(score.value for score in each) / len(each) for text, each in found.items()}
    more = next(iter(found.values()))[0].higher_is_better
    best = max(scores, key=lambda text: scores[text] if more else -scores[text])
    return Choice(row=row, objective=best, scores=scores, left_out=left_out)


def _score(evaluation: Evaluation, metric: str) -> Score:
    """Return a task's score by a metric's name alone. Raises MetricError, with the reason, where it is missing."""
    found = [score for name, score in evaluation.scores().items() if name.split("/", 1)[1] == metric]
    if not found:
        why = [f"{name}: {text}" for name, text in evaluation.missing.items() if name.split("/", 1)[1] == metric]
        raise MetricError(why[0] if why else f"a task has no metric {metric}.")
    return found[0]
