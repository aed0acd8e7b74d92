"""Which verdicts the entries of a plan can give, metric by metric, and the reasons against one.

A verdict needs two rows, three seeds of each that is trained, and ten sampling units; MAUVE needs a thousand texts. All
of this is known before anything runs, or as soon as the data is on this machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from emobench.kinds.interface import TestSize
from emobench.leaderboard.labels import MEAN
from emobench.leaderboard.stats.classical import MIN_ITEMS, MIN_SEEDS
from emobench.runs.planning.estimate import duration
from emobench.runs.planning.plan import Plan
from emobench.runs.stages.evaluate import PlannedTask
from emobench.tasks.families import DUPLICATES, endpoint
from emobench.tasks.scores import Measure

WORST_LAST = ("possible", "descriptive", "unknown", "impossible")
MOST_NAMED = 4
"""As many tasks are counted; fewer are named."""
WORDS = {
    "possible": "a verdict is possible",
    "impossible": "no verdict",
    "unknown": "not known yet",
    "descriptive": "descriptive, without a verdict",
}


@dataclass(frozen=True, kw_only=True)
class Prospect:
    """One metric: whether a verdict is possible, or why not. `units` and `examples` are upper limits."""

    metric: str
    verdict: Literal["possible", "impossible", "unknown", "descriptive"]
    missing: tuple[str, ...] = ()
    units: int | None = None
    """Sampling units (documents, passages); None: not known until the data is here."""
    examples: int | None = None
    primary: bool = False
    secondary: bool = False


@dataclass(frozen=True, kw_only=True)
class Prospects:
    """The metrics of a plan's `rows`: `trained` objectives with `seeds` seeds each, and the model as it is.

    A run is one of these objectives with one seed; a verdict needs `needed` runs at least.
    """

    title: str
    rows: int
    trained: int
    seeds: int
    runs: int
    needed: int
    seconds: float | None
    """What the runs take that the plan lacks, if it lacks any and their time is known."""
    metrics: tuple[Prospect, ...]
    absent: str | None = None
    """The suite's primary metric, if no task of the plan has it."""

    def lines(self) -> Iterator[str]:
        """Yield the prospects as text: a line for the metrics and tasks that have the same."""
        shown = [one for one in self.metrics if one.verdict != "descriptive" and not one.secondary]
        if not shown:
            return
        parts = []
        if self.trained:
            parts.append(f"{_counted(self.trained, 'objective')} with {_counted(self.seeds, 'seed')}")
        if self.rows > self.trained:
            parts.append("the model as it is")
        yield f"Verdicts that {' and '.join(parts)} can give:"
        alike: dict[tuple[str, str, tuple[str, ...]], list[Prospect]] = {}
        for one in shown:
            alike.setdefault((one.metric.partition("/")[2], one.verdict, one.missing), []).append(one)
        names: dict[str, list[str]] = {}
        for (name, verdict, missing), group in alike.items():
            reasons = f" ({'; '.join(missing)})" if missing else ""
            primary = " (primary)" if any(one.primary for one in group) else ""
            names.setdefault(f"{_about(group)}: {WORDS[verdict]}{reasons}.", []).append(f"{name}{primary}")
        for text, metrics in names.items():
            yield f"  {', '.join(metrics)}{text}"
        if self.absent:
            yield f"  No task here has the suite's primary metric, {self.absent}: each p is adjusted for other tests."
        if self.needed > self.runs:
            time = "" if self.seconds is None else f", about {duration(self.seconds)}"
            more = self.needed - self.runs
            yield f"  A verdict needs {self.needed} runs of an objective with a seed, {more} more than this plan{time}."


def prospects(plan: Plan, seconds_of_a_run: float | None = None) -> Prospects:
    """Return the prospects of a plan, from the files on this machine."""
    trained, rows, given = [row for row in plan.rows if row.objective is not None], len(plan.rows), list[int]()
    if trained:
        given = [run.seed for run in trained[0].runs]
    runs = sum(len(row.runs) for row in trained)
    compared = max(len(trained), 2 if len(trained) == rows else 1)  # with each other, or with the model as it is
    needed = compared * max(len(given), MIN_SEEDS)
    common: list[str] = []
    if not trained:
        common.append("no trained model: add --objective NAME")
    elif len(given) < MIN_SEEDS:
        more = [seed for seed in range(MIN_SEEDS + len(given)) if seed not in given]
        options = " ".join(f"--seed {seed}" for seed in [*given, *more][:MIN_SEEDS])
        common.append(f"{_counted(len(given), 'seed')}, {MIN_SEEDS} needed: {options}")
    if rows == 1 and trained:
        common.append("no baseline: add a second --objective, or compare with an entry of a board")
    metrics: list[Prospect] = []
    for planned in plan.evaluated():
        metrics += _of_task(planned, plan.suite.primary, common)
    names = {one.metric.partition("/")[2] for one in metrics}
    seconds = None
    if seconds_of_a_run is not None and needed > runs:
        seconds = seconds_of_a_run * (needed - runs)
    return Prospects(
        title=f"{plan.suite.name} v{plan.suite.version} with {plan.model.name}",
        rows=rows,
        trained=len(trained),
        seeds=len(given),
        runs=runs,
        needed=needed,
        seconds=seconds,
        metrics=tuple(_with_means(metrics, plan.suite.primary)),
        absent=None if plan.suite.primary in names else plan.suite.primary,
    )


def _of_task(planned: PlannedTask, primary: str | None, common: Sequence[str]) -> Iterator[Prospect]:
    """Yield the prospects of one task's metrics; of a kind that does not know them, of the suite's primary one."""
    task, kind = planned.task, planned.kind
    known: Mapping[str, Measure | str | None] = kind.metrics(task) or {primary or "metrics": None}
    for name, measure in known.items():
        metric = f"{task.name}/{name}"
        if isinstance(measure, str):
            yield Prospect(metric=metric, verdict="impossible", missing=(*common, measure.rstrip(".")))
            continue
        size = kind.test_size(task, name, planned.data)
        if measure is not None and (measure.higher_is_better is None or DUPLICATES.get(name) in known):
            yield Prospect(metric=metric, verdict="descriptive", examples=size.examples, secondary=measure.secondary)
            continue
        few, unknown = _shortage(size, measure)
        missing, verdict = [*common, *few], "possible"
        if missing:
            verdict = "impossible"
        elif unknown:
            verdict = "unknown"
        yield Prospect(
            metric=metric,
            verdict=verdict,
            missing=(*missing, *unknown),
            units=size.units,
            examples=size.examples,
            secondary=measure is not None and measure.secondary,
        )


def _shortage(size: TestSize, measure: Measure | None) -> tuple[list[str], list[str]]:
    """Return which numbers are too small for a verdict of a metric, and unknown ones."""
    few, unknown, fewest = [], [], 1
    if measure is not None:
        fewest = measure.fewest
    units = size.units
    if units is None:
        units = size.examples
    if units is not None and units < MIN_ITEMS:
        few.append(f"{_counted(units, 'sampling unit')} (documents, passages), {MIN_ITEMS} needed")
    if size.examples is not None and size.examples < fewest:
        few.append(f"{_counted(size.examples, 'text')}, {fewest:,} needed")
    if size.units is None:
        unknown.append("sampling units unknown until the data is here")
    if size.examples is None and fewest > 1:
        unknown.append(f"number of texts unknown until the data is here, {fewest:,} needed")
    return few, unknown


def _with_means(metrics: Sequence[Prospect], primary: str | None) -> Iterator[Prospect]:
    """Yield the mean over tasks of a metric that several have, which is as good as its worst task, and each task's."""
    by_name: dict[str, list[Prospect]] = {}
    for one in metrics:
        by_name.setdefault(one.metric.partition("/")[2], []).append(one)
    chosen = endpoint(primary, [one.metric for one in metrics])
    for name, of_tasks in by_name.items():
        group = of_tasks
        if len(of_tasks) > 1:
            worst = max(of_tasks, key=lambda one: WORST_LAST.index(one.verdict))
            missing = tuple(dict.fromkeys(text for one in of_tasks for text in one.missing))
            group = [replace(worst, metric=f"{MEAN}/{name}", missing=missing, units=None, examples=None), *of_tasks]
        for one in group:
            yield replace(one, primary=one.metric == chosen)


def _about(group: Sequence[Prospect]) -> str:
    """Return the tasks and the sampling units of metrics that have the same prospect."""
    tasks = [one.metric.partition("/")[0] for one in group if not one.metric.startswith(f"{MEAN}/")]
    parts = []
    if len(tasks) < len(group):
        parts.append("the mean over tasks")
    if tasks:
        parts.append(", ".join(tasks) if len(tasks) < MOST_NAMED else f"{len(tasks)} tasks")
    text = f" of {', '.join(parts)}"
    units = sorted(one.units for one in group if one.units is not None)
    if units:
        text += (
            f"; at most {' to '.join(f'{count:,}' for count in dict.fromkeys((units[0], units[-1])))} sampling units"
        )
    return text


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
