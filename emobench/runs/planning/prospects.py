"""Which verdicts the entries of a plan can give, metric by metric, and what is missing for one.

A verdict needs two rows, three seeds of each that is trained, and ten sampling units; MAUVE needs a thousand texts. All
of this is known before anything runs, or as soon as the data is on this machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from emobench.kinds.interface import TestSize
from emobench.leaderboard.labels import MEAN
from emobench.leaderboard.stats.classical import MIN_ITEMS, MIN_SEEDS
from emobench.runs.planning.estimate import duration
from emobench.runs.planning.plan import Plan
from emobench.runs.planning.planned import PlannedTask
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
    """One metric: whether a verdict is possible, and what is missing. `units` and `examples` are upper limits."""

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
        trained = f"{_counted(self.trained, 'objective')} with {_counted(self.seeds, 'seed')}"
        parts = [*([trained] if self.trained else []), *(["the model as it is"] if self.rows > self.trained else [])]
        yield f"Verdicts that {' and '.join(parts)} can give:"
        alike: dict[tuple[str, str, tuple[str, ...]], list[Prospect]] = {}
        for one in shown:
            alike.setdefault((one.metric.partition("/")[2], one.verdict, one.missing), []).append(one)
        names: dict[str, list[str]] = {}
        for (name, verdict, missing), found in alike.items():
            reasons = f" ({'; '.join(missing)})" if missing else ""
            text = f"{_about(found)}: {WORDS[verdict]}{reasons}."
            names.setdefault(text, []).append(f"{name} (primary)" if any(one.primary for one in found) else name)
        yield from (f"  {', '.join(of)}{text}" for text, of in names.items())
        if self.absent:
            yield f"  No task here has the suite's primary metric, {self.absent}: each p is adjusted for other tests."
        if self.needed > self.runs:
            time = "" if self.seconds is None else f", about {duration(self.seconds)}"
            more = self.needed - self.runs
            yield f"  A verdict needs {self.needed} runs of an objective with a seed, {more} more than this plan{time}."


def prospects(plan: Plan, seconds_of_a_run: float | None = None) -> Prospects:
    """Return the prospects of a plan, from what is on this machine."""
    trained = [row for row in plan.rows if row.objective is not None]
    seeds = len(trained[0].runs) if trained else 0
    planned = plan.rows[0].runs[0].tasks() if plan.rows else []
    common = _missing_of_rows(plan)
    found = [one for task in planned for one in _of_task(task, plan.suite.primary, common)]
    known = {one.metric.partition("/")[2] for one in found}
    runs, rows = sum(len(row.runs) for row in trained), len(plan.rows)
    needed = max(len(trained), 1 if len(trained) < rows else 2) * max(seeds, MIN_SEEDS)
    return Prospects(
        title=f"{plan.suite.name} v{plan.suite.version} with {plan.model.name}",
        rows=rows,
        trained=len(trained),
        seeds=seeds,
        runs=runs,
        needed=needed,
        seconds=None if seconds_of_a_run is None or needed <= runs else seconds_of_a_run * (needed - runs),
        metrics=tuple(_with_means(found, plan.suite.primary)),
        absent=None if plan.suite.primary in known else plan.suite.primary,
    )


def _missing_of_rows(plan: Plan) -> list[str]:
    """Return what the rows lack for any verdict."""
    missing = []
    trained = [row for row in plan.rows if row.objective is not None]
    given = [run.seed for run in trained[0].runs] if trained else []
    if not trained:
        missing.append("no trained model: add --objective NAME")
    elif len(given) < MIN_SEEDS:
        more = [seed for seed in range(MIN_SEEDS + len(given)) if seed not in given]
        seeds = " ".join(f"--seed {seed}" for seed in [*given, *more][:MIN_SEEDS])
        missing.append(f"{_counted(len(given), 'seed')}, {MIN_SEEDS} needed: {seeds}")
    if len(plan.rows) == 1 and trained:
        missing.append("no baseline: add a second --objective, or compare with an entry of a board")
    return missing


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
        missing, unknown = [*common, *_too_few(size, measure)], [*_not_known(size, measure)]
        yield Prospect(
            metric=metric,
            verdict="impossible" if missing else "unknown" if unknown else "possible",
            missing=(*missing, *unknown),
            units=size.units,
            examples=size.examples,
            secondary=measure is not None and measure.secondary,
        )


def _too_few(size: TestSize, measure: Measure | None) -> Iterator[str]:
    units = size.examples if size.units is None else size.units
    if units is not None and units < MIN_ITEMS:
        yield f"{_counted(units, 'sampling unit')} (documents, passages), {MIN_ITEMS} needed"
    fewest = 1 if measure is None else measure.fewest
    if size.examples is not None and size.examples < fewest:
        yield f"{_counted(size.examples, 'text')}, {fewest:,} needed"


def _not_known(size: TestSize, measure: Measure | None) -> Iterator[str]:
    if size.units is None:
        yield "sampling units unknown until the data is here"
    if size.examples is None and measure is not None and measure.fewest > 1:
        yield f"number of texts unknown until the data is here, {measure.fewest:,} needed"


def _with_means(found: Sequence[Prospect], primary: str | None) -> Iterator[Prospect]:
    """Yield the mean over tasks of a metric that several have, which is as good as its worst task, and each task's."""
    by_name: dict[str, list[Prospect]] = {}
    for one in found:
        by_name.setdefault(one.metric.partition("/")[2], []).append(one)
    chosen = endpoint(primary, [one.metric for one in found])
    for name, of_tasks in by_name.items():
        if len(of_tasks) > 1:
            worst = max(of_tasks, key=lambda one: WORST_LAST.index(one.verdict))
            missing = tuple(dict.fromkeys(text for one in of_tasks for text in one.missing))
            mean = f"{MEAN}/{name}"
            yield Prospect(metric=mean, verdict=worst.verdict, missing=missing, primary=mean == chosen,
                           secondary=worst.secondary)  # fmt: skip
        for one in of_tasks:
            yield one if one.metric != chosen else _as_primary(one)


def _as_primary(one: Prospect) -> Prospect:
    return Prospect(**{**vars(one), "primary": True})


def _about(found: Sequence[Prospect]) -> str:
    """Return the tasks and the sampling units of metrics that have the same prospect."""
    tasks = [one.metric.partition("/")[0] for one in found if not one.metric.startswith(f"{MEAN}/")]
    named = ", ".join(tasks) if len(tasks) < MOST_NAMED else f"{len(tasks)} tasks"
    parts = [", ".join([*(["the mean over tasks"] if len(tasks) < len(found) else []), *([named] if tasks else [])])]
    units = sorted(one.units for one in found if one.units is not None)
    if units:
        shown = " to ".join(f"{count:,}" for count in dict.fromkeys((units[0], units[-1])))
        parts.append(f"at most {shown} sampling units")
    return f" of {'; '.join(parts)}"


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
