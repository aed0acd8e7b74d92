"""Results in Python: run, load and compare, as DataFrames that a notebook shows.

    board = emobench.run("oracle-language", objectives=["mle", "emo"])
    board.metrics                         # a row for each entry and metric
    board.runs, board.examples            # by seed; by seed and example
    emobench.compare("emo", "mle").frame  # what `emobench compare` prints

Paths and settings mean what they mean on the command line. Fractions stay fractions.
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emobench.core.errors import ConfigError, DataError, UnknownNameError
from emobench.core.extras import missing_packages_explained
from emobench.core.settings import PRETRAINED
from emobench.exchange.result_files import compare_files, names_results
from emobench.exchange.tables import metric_rows
from emobench.leaderboard.entry import Entry, MetricSummary
from emobench.leaderboard.labels import labels, wanted
from emobench.leaderboard.query.rows import PUBLISHED, select
from emobench.leaderboard.run_files import ExamplesReader, read_examples, recorded_file
from emobench.leaderboard.stats.across_bases import compare_across_bases
from emobench.leaderboard.stats.compare import Comparison, comparisons
from emobench.leaderboard.store import Leaderboard, published_root
from emobench.report import compare_table
from emobench.report.numbers import decimals, plain, unit_label

if TYPE_CHECKING:
    import pandas as pd

BOARD = Path("leaderboards/measured")
RUNS = Path("runs")


@dataclass(frozen=True)
class Results:
    """Entries of a board. Without per-example results where neither `runs_folder` nor the board has them."""

    entries: tuple[Entry, ...]
    leaderboard: Path = BOARD
    runs_folder: Path = RUNS

    @property
    def metrics(self) -> pd.DataFrame:
        """A row for each entry and metric: mean, standard deviation over seeds, interval, or why it is missing."""
        return _frame(metric_rows(self.entries))

    @property
    def runs(self) -> pd.DataFrame:
        """A row for each entry, seed and metric: the value of that seed."""
        return _frame(row for entry in self.entries for row in _runs(entry))

    @property
    def examples(self) -> pd.DataFrame:
        """A row for each entry, seed, metric and example: its value, and its weight in the mean.

        The value is on the scale on which examples are averaged: nats per token for a perplexity. Raises DataError for
        a file that was altered; a run that recorded no examples has no rows.
        """
        return _frame(row for entry in self.entries for row in self._examples(entry))

    def compare(self, *names: str, **options: Any) -> Compared:
        """Compare entries of this board; see `emobench.compare`."""
        return compare(*names, leaderboard=self.leaderboard, runs=self.runs_folder, **options)

    def _examples(self, entry: Entry) -> Iterator[dict[str, Any]]:
        for run in entry.runs:
            if run.examples is None:
                continue
            path = recorded_file(run.examples, self.runs_folder, entry, [self.leaderboard])
            facts = {"id": entry.id, "objective": entry.objective.label, "seed": run.seed}
            for metric, recorded in read_examples(path).items():
                for example, (value, weight) in recorded.examples.items():
                    unit = recorded.units.get(example, example)
                    own = {"metric": metric, "example": example, "unit": unit, "value": value, "weight": weight}
                    yield {**facts, **own}

    def __len__(self) -> int:
        return len(self.entries)

    def _repr_html_(self) -> str:
        """Return a table of means, a row for each entry and a column for each metric."""
        if not self.entries:
            return "<p>no entry</p>"
        found: dict[str, list[MetricSummary]] = {}
        for entry in self.entries:
            for name, metric in entry.metrics.items():
                found.setdefault(name, []).append(metric)
        heads = {name: f"{name} {unit_label(metrics)}".rstrip() for name, metrics in found.items()}
        places = {name: decimals(metrics) for name, metrics in found.items()}
        frame = _frame(
            {"objective": label, "model": entry.model.name, "suite": str(entry.suite)}
            | {heads[name]: plain(m.mean, m.unit, places[name]) for name, m in entry.metrics.items()}
            for label, entry in zip(labels(self.entries, older=()), self.entries, strict=True)
        )
        return frame.to_html(index=False, na_rep="")


@dataclass(frozen=True)
class Compared:
    """What was compared. `problems` says which per-example results could not be read."""

    comparisons: tuple[Comparison, ...]
    problems: tuple[str, ...] = field(default=())

    @property
    def frame(self) -> pd.DataFrame:
        """A row for each candidate and metric: difference, interval, p (Holm), verdict, or why there is none.

        `effect` is the candidate minus the baseline, or the logarithm of their ratio where `log_scale` (perplexities).
        """
        return _frame(row for comparison in self.comparisons for row in compare_table.plain_rows(comparison))

    @property
    def notes(self) -> tuple[str, ...]:
        """What the numbers mean, and what the verdicts are about."""
        return compare_table.report(self.comparisons).notes

    @missing_packages_explained()
    def _repr_html_(self) -> str:
        """Return the tables that `emobench compare` prints, with the notes below."""
        parts = []
        for table, _ in compare_table.pair_tables(self.comparisons):
            parts += [f"<p><b>{html.escape(table.title)}</b></p>", table.frame.to_html(index=False)]
        return "\n".join([*parts, *(f"<p>{html.escape(note)}</p>" for note in self.notes)])


@missing_packages_explained()
def run(
    suite: str,
    objectives: Sequence[str] = (),
    *,
    model: str | None = None,
    seeds: Sequence[int] = (),
    settings: Mapping[str, Any] | None = None,
    limit: int | None = None,
    device: str = "auto",
    offline: bool = False,
    data_dirs: Sequence[str | Path] = (),
    leaderboard: str | Path = BOARD,
    runs: str | Path = RUNS,
) -> Results:
    """Train with each objective, evaluate, record, and return the entries, as `emobench run` does.

    What is not given is the suite's. `settings` are those of `--set`, such as {"recipe.epochs": 3}. Finished work is
    kept in `runs`: the same call again continues where it stopped. Raises UserError for what cannot be run.
    """
    from emobench.runs.planning.make_plan import make_plan
    from emobench.runs.run import run_plan

    given = _request(locals())
    return Results(tuple(run_plan(make_plan(given))), given.leaderboard, given.runs)


@missing_packages_explained()
def evaluate(
    suite: str,
    objectives: Sequence[str] = (PRETRAINED,),
    *,
    model: str | None = None,
    seeds: Sequence[int] = (),
    settings: Mapping[str, Any] | None = None,
    limit: int | None = None,
    device: str = "auto",
    offline: bool = False,
    data_dirs: Sequence[str | Path] = (),
    leaderboard: str | Path = BOARD,
    runs: str | Path = RUNS,
) -> Results:
    """Evaluate the model as it is, or models that were trained before, and train nothing: `emobench evaluate`."""
    from emobench.runs.planning.make_plan import make_plan
    from emobench.runs.run import evaluate_plan

    given = _request(locals())
    return Results(tuple(evaluate_plan(make_plan(given))), given.leaderboard, given.runs)


@missing_packages_explained()
def load_board(leaderboard: str | Path = BOARD, *, runs: str | Path = RUNS) -> Results:
    """Return all entries of a board, or of the papers' with the name "published:".

    Raises DataError for a folder that is not there, or a file that is no entry.
    """
    board = Leaderboard(published_root() if leaderboard == PUBLISHED else Path(leaderboard))
    board.require_folder()
    found = tuple(board.entries())
    if board.problems:
        raise DataError(f"{board.problems[0]} `emobench leaderboard verify` names every problem.")
    return Results(found, board.root, Path(runs))


@missing_packages_explained()
def compare(
    *names: str,
    baseline: str | None = None,
    suite: str | None = None,
    metrics: Sequence[str] = (),
    anyway: bool = False,
    across_bases: bool = False,
    leaderboard: str | Path = BOARD,
    runs: str | Path = RUNS,
) -> Compared:
    """Compare entries of a board, or result files of other tools, with the last one or `baseline`.

    Names are those of `emobench compare`: an objective, an id, a query, a paper's row, or a result file; `suite` leaves
    out entries of other suites. Raises ConfigError for what is not comparable, unless `anyway`; UnknownNameError for a
    name, suite or metric that does not exist.
    """
    if across_bases and anyway:
        raise ConfigError("--across-bases compares what is comparable, base by base; drop --anyway.")
    given = [*names, *([baseline] if baseline is not None else [])]
    if any(map(names_results, given)):
        if suite is not None:
            raise ConfigError("--suite chooses among entries of a board; drop it to compare result files.")
        return _of_files(names, baseline, metrics, anyway=anyway, across_bases=across_bases)
    chosen = [_of_suite(text, suite, Path(leaderboard)) for text in names]
    base = None if baseline is None else _of_suite(baseline, suite, Path(leaderboard))
    examples = ExamplesReader(Path(runs), [Path(leaderboard)])
    shown = _metrics(metrics, chosen)
    if across_bases:
        found = compare_across_bases(chosen, base, examples, metrics=shown)
    else:
        found = comparisons(chosen, base, examples, metrics=shown, anyway=anyway)
    return Compared(tuple(found), tuple(examples.problems))


def _of_suite(text: str, suite: str | None, root: Path) -> list[Entry]:
    """Return the entries that a text names, of one suite (name or name@version) if it is given."""
    named = select(text, root)
    kept = [entry for entry in named if suite in (None, entry.suite.name, f"{entry.suite.name}@{entry.suite.version}")]
    if not kept:
        raise UnknownNameError("suite", str(suite), {entry.suite.name for entry in named}, where=f"{text}: ")
    return kept


def _of_files(
    texts: Sequence[str], baseline: str | None, patterns: Sequence[str], *, anyway: bool, across_bases: bool
) -> Compared:
    if across_bases:
        raise ConfigError("--across-bases compares entries of a board; drop it to compare result files.")
    if entry := next((text for text in filter(None, [*texts, baseline]) if not names_results(text)), None):
        raise ConfigError(
            f"{entry} is no result file, and others are. Give files and folders alone, or record the files with "
            "`emobench leaderboard import` and compare entries."
        )
    found, problems = compare_files(texts, baseline, anyway=anyway)
    shown = _metrics(patterns, [[found.baseline, *found.candidates]])
    kept = tuple(c for c in found.contrasts if shown is None or c.metric in shown)
    return Compared((replace(found, contrasts=kept),), tuple(problems))


def _metrics(patterns: Sequence[str], chosen: Sequence[Sequence[Entry]]) -> list[str] | None:
    """Return the metrics that patterns mean; None for all."""
    if not patterns:
        return None
    known = dict.fromkeys(metric for entries in chosen for entry in entries for metric in entry.metrics)
    for pattern in patterns:
        if not any(wanted(metric, [pattern]) for metric in known):
            raise UnknownNameError("metric", pattern, known)
    return [metric for metric in known if wanted(metric, patterns)]


def _request(given: Mapping[str, Any]) -> Any:
    """Return the request of a call's arguments."""
    from emobench.models.device import resolve_device
    from emobench.runs.planning.request import Request

    return Request(
        suite=given["suite"],
        objectives=tuple(given["objectives"]),
        model=given["model"],
        seeds=tuple(given["seeds"]),
        settings=_nested(given["settings"] or {}),
        limit=given["limit"],
        data_dirs=tuple(map(Path, given["data_dirs"])),
        runs=Path(given["runs"]),
        leaderboard=Path(given["leaderboard"]),
        offline=given["offline"],
        device=resolve_device(given["device"]),
    )


def _nested(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return {"recipe.epochs": 1} as {"recipe": {"epochs": 1}}."""
    tree: dict[str, Any] = {}
    for path, value in settings.items():
        *above, last = path.split(".")
        node = tree
        for key in above:
            node = node.setdefault(key, {})
        node[last] = value
    return tree


def _runs(entry: Entry) -> Iterator[dict[str, Any]]:
    keys = {run.seed: run.key for run in entry.runs}
    seeds = entry.seeds or (None,)
    for name, metric in entry.metrics.items():
        if len(metric.values) != len(seeds):
            continue
        for seed, value in zip(seeds, metric.values, strict=True):
            facts = {"id": entry.id, "objective": entry.objective.label, "model": entry.model.name}
            yield {
                **facts,
                "suite": str(entry.suite),
                "seed": seed,
                "key": keys.get(seed),
                "metric": name,
                "value": value,
            }


@missing_packages_explained()
def _frame(rows: Any) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame(list(rows))
