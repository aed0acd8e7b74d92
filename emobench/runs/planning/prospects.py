"""Which verdicts the entries of a plan can give, metric by metric, and the missing parts of the others.

A verdict needs two rows, three seeds of each that is trained, and ten sampling units; MAUVE needs a thousand texts. All
of this is known before anything runs, or as soon as the data is on this machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from emobench.kinds.views import KnownMetrics, TestSize
from emobench.leaderboard.labels import MEAN, listed
from emobench.leaderboard.stats.classical import MIN_ITEMS, MIN_SEEDS
from emobench.runs.planning.estimate import duration
from emobench.runs.planning.plan import Plan
from emobench.runs.stages.evaluate import PlannedTask
from emobench.tasks.families import DUPLICATES, endpoint
from emobench.tasks.scores import Measure

WORDS = {
    "possible": "a verdict is possible",
    "descriptive": "descriptive, without a verdict",
    "unknown": "unknown so far",
    "impossible": "no verdict",
}
"""A mean over tasks is as good as its worst task, by this order."""
MOST_NAMED = 3
"""More tasks are counted, not named."""


@dataclass(frozen=True, kw_only=True)
class Prospect:
    """One metric: whether a verdict is possible, or why not. `units` and `examples` are upper limits."""

    metric: str
    verdict: Literal["possible", "descriptive", "unknown", "impossible"]
    missing: tuple[str, ...] = ()
    units: int | None = None
    """Sampling units (documents, passages); None: unknown until the data is on this machine."""
    examples: int | None = None
    primary: bool = False
    secondary: bool = False


@dataclass(frozen=True, kw_only=True)
class Prospects:
    """The metrics of a plan's `rows`: `trained` objectives with `seeds` seeds each, and the model as it is.

    A run is one of these objectives with one seed; a verdict needs `needed` runs at least.
    """

    rows: int
    trained: int
    seeds: int
    runs: int
    needed: int
    seconds: float | None
    """The time of the runs that the plan lacks, if it lacks any and it is known."""
    metrics: tuple[Prospect, ...]
    absent: str | None = None
    """The suite's primary metric, if no task of the plan has it."""

    def lines(self, *, impossible: bool = False) -> list[str]:
        """Return the prospects as text, a line for metrics and tasks that have the same; or the `impossible` ones."""
        alike: dict[tuple[str, str], list[Prospect]] = {}
        for one in self.metrics:
            kept = one.verdict == "impossible" if impossible else one.verdict != "descriptive"
            if kept and not one.secondary:
                sentence = WORDS[one.verdict]
                if one.missing:
                    sentence += f" ({'; '.join(one.missing)})"
                alike.setdefault((one.metric.partition("/")[2], sentence), []).append(one)
        if not alike:
            return []
        parts = []
        if self.trained:
            parts.append(f"{_counted(self.trained, 'objective')} with {_counted(self.seeds, 'seed')}")
        if self.rows > self.trained:
            parts.append("the model as it is")
        verb = "cannot" if impossible else "can"
        lines = [f"Verdicts that {' and '.join(parts)} {verb} give:"]
        names: dict[str, list[str]] = {}
        for (name, sentence), group in alike.items():
            if any(one.primary for one in group):
                name += " (primary)"
            names.setdefault(f"{_tasks_of(group)}: {sentence}.", []).append(name)
        for text, metrics in names.items():
            most = MOST_NAMED if impossible else len(metrics)
            lines.append(f"  {listed(metrics, most)} of {text}")
        if self.absent:
            lines.append(f"  No task here has the suite's primary metric, {self.absent}.")
        if self.trained and self.needed > self.runs:
            time = "" if self.seconds is None else f", about {duration(self.seconds)}"
            more = f"{self.needed - self.runs} more than this plan{time}"
            lines.append(f"  A verdict needs {self.needed} runs, {more}; stored runs of other seeds count, too.")
        return lines


def prospects(plan: Plan, seconds_of_a_run: float | None = None) -> Prospects:
    """Return the prospects of a plan, from the files on this machine."""
    trained = [row for row in plan.rows if row.objective is not None]
    seeds = [run.seed for run in trained[0].runs] if trained else []
    runs = sum(len(row.runs) for row in trained)
    compared = max(len(trained), 1)  # with the model as it is
    if len(trained) == len(plan.rows):  # with each other
        compared = max(len(trained), 2)
    needed = compared * max(len(seeds), MIN_SEEDS)
    common: list[str] = []
    if not trained:
        common.append("no trained model: add --objective NAME")
    elif plan.request.declared:
        common.append(f"{_counted(len(seeds), 'seed')}, {MIN_SEEDS} needed: evaluate a checkpoint of each")
    elif len(seeds) < MIN_SEEDS:
        unused = [seed for seed in range(MIN_SEEDS + len(seeds)) if seed not in seeds]
        options = [f"--seed {seed}" for seed in [*seeds, *unused][:MIN_SEEDS]]
        common.append(f"{_counted(len(seeds), 'seed')}, {MIN_SEEDS} needed: {' '.join(options)}")
    if len(plan.rows) == 1 and trained and not plan.request.declared:
        common.append("no baseline: add a second --objective, or compare with an entry of a board")
    primary = plan.suite.primary
    metrics: list[Prospect] = []
    for planned in plan.evaluated():
        metrics += _of_task(planned, primary, common)
    has_primary = any(one.metric.partition("/")[2] == primary for one in metrics)
    seconds = None
    if seconds_of_a_run is not None and needed > runs:
        seconds = seconds_of_a_run * (needed - runs)
    return Prospects(
        rows=len(plan.rows),
        trained=len(trained),
        seeds=len(seeds),
        runs=runs,
        needed=needed,
        seconds=seconds,
        metrics=tuple(_with_means(metrics, primary)),
        absent=None if has_primary else primary,
    )


def _of_task(planned: PlannedTask, primary: str | None, common: Sequence[str]) -> Iterator[Prospect]:
    """Yield the prospects of one task's metrics; of a kind that does not know them, of the suite's primary one."""
    task, view = planned.task, planned.kind.view(KnownMetrics)
    if view is None:
        size = TestSize(None if planned.data is None else len(planned.data))
        if primary is not None:
            yield _judged(f"{task.name}/{primary}", size, None, common)
        return
    known = view.metrics(task)
    for name, measure in known.items():
        metric = f"{task.name}/{name}"
        if isinstance(measure, str):
            yield Prospect(metric=metric, verdict="impossible", missing=(*common, measure.rstrip(".")))
            continue
        size = view.test_size(task, name, planned.data)
        if measure.higher_is_better is None or DUPLICATES.get(name) in known:
            yield Prospect(metric=metric, verdict="descriptive", examples=size.examples, secondary=measure.secondary)
        else:
            yield _judged(metric, size, measure, common)


def _judged(metric: str, size: TestSize, measure: Measure | None, common: Sequence[str]) -> Prospect:
    """Return the prospect of a metric that decides something; `common` is missing for all metrics."""
    missing, unknown = [*common], []
    fewest = 1 if measure is None else measure.fewest
    units = size.examples if size.units is None else size.units
    if size.units is None:
        unknown.append("sampling units unknown until the data is on this machine")
    if units is not None and units < MIN_ITEMS:
        missing.append(f"{_counted(units, 'sampling unit')} (documents, passages), {MIN_ITEMS} needed")
    if size.examples is None and fewest > 1:
        unknown.append(f"number of texts unknown until the data is on this machine, {fewest:,} needed")
    if size.examples is not None and size.examples < fewest:
        missing.append(f"{_counted(size.examples, 'text')}, {fewest:,} needed")
    verdict: Literal["possible", "unknown", "impossible"] = "possible"
    if missing:
        verdict = "impossible"
    elif unknown:
        verdict = "unknown"
    return Prospect(
        metric=metric,
        verdict=verdict,
        missing=(*missing, *unknown),
        units=size.units,
        examples=size.examples,
        secondary=measure is not None and measure.secondary,
    )


def _with_means(metrics: Sequence[Prospect], primary: str | None) -> Iterator[Prospect]:
    """Yield the mean over tasks of a metric that several have, before each task's."""
    by_name: dict[str, list[Prospect]] = {}
    for one in metrics:
        by_name.setdefault(one.metric.partition("/")[2], []).append(one)
    chosen = endpoint(primary, [one.metric for one in metrics])
    for name, of_tasks in by_name.items():
        group = of_tasks
        if len(of_tasks) > 1:
            worst = max(of_tasks, key=lambda one: list(WORDS).index(one.verdict))
            missing = dict.fromkeys(reason for one in of_tasks for reason in one.missing)
            mean = replace(worst, metric=f"{MEAN}/{name}", missing=tuple(missing), units=None, examples=None)
            group = [mean, *of_tasks]
        for one in group:
            yield replace(one, primary=one.metric == chosen)


def _tasks_of(group: Sequence[Prospect]) -> str:
    """Return the tasks of metrics that have the same prospect, and the fewest of their sampling units."""
    names = [one.metric.partition("/")[0] for one in group]
    tasks = [name for name in names if name != MEAN]
    parts = ["the mean over tasks"] if MEAN in names else []
    if len(tasks) > MOST_NAMED:
        parts.append(f"{len(tasks)} tasks")
    else:
        parts += tasks
    text = ", ".join(parts)
    units = [one.units for one in group if one.units is not None]
    if units:
        text += f" (at most {_counted(min(units), 'sampling unit')})"
    return text


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"
