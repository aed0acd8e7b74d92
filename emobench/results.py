"""Results in Python: run, load and compare, as DataFrames that a notebook shows.

    board = emobench.run("oracle-language", objectives=["mle", "emo"])
    board.metrics                         # a row for each entry and metric
    board.runs, board.examples            # by seed; by seed and example
    emobench.compare("emo", "mle").frame  # what `emobench compare` prints

Paths and settings mean what they mean on the command line. Fractions stay fractions.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from emobench.core.errors import ConfigError, DataError, UnknownNameError
from emobench.core.extras import missing_packages_explained
from emobench.core.settings import PRETRAINED, parse_overrides, setting_word, to_plain
from emobench.exchange.evaluation import Evaluation
from emobench.exchange.result_files import compare_files, names_results
from emobench.exchange.score_tables import frame_evaluation
from emobench.exchange.tables import metric_rows
from emobench.leaderboard.boards import board_folder, boards_of
from emobench.leaderboard.entry import Entry
from emobench.leaderboard.labels import wanted
from emobench.leaderboard.query.newest import newest_common, query_of
from emobench.leaderboard.query.rows import ANY, select
from emobench.leaderboard.run_files import ExamplesReader, read_examples, recorded_file
from emobench.leaderboard.stats.across_bases import compare_across_bases
from emobench.leaderboard.stats.compare import Comparison, comparisons
from emobench.leaderboard.store import Leaderboard
from emobench.report import compare_table
from emobench.report.baseline import default_baseline

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
        return _frame(chain.from_iterable(map(_runs, self.entries)))

    @property
    def examples(self) -> pd.DataFrame:
        """A row for each entry, seed, metric and example: its value, and its weight in the mean.

        The value is on the scale on which examples are averaged: nats per token for a perplexity. Raises DataError for
        a file that was altered; a run that recorded no examples has no rows.
        """
        return _frame(chain.from_iterable(map(self._examples, self.entries)))

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
        rows = ["id", "objective", "model", "suite"]
        means = self.metrics.pivot_table("mean", rows, ["task", "metric"], sort=False)
        return means.to_html(float_format="{:.4g}".format, na_rep="")


@dataclass(frozen=True)
class Compared:
    """Comparisons. `problems` names the per-example results that could not be read.

    `older` counts the older comparable groups that the names mean as well; `older_query` names the newest of them.
    """

    comparisons: tuple[Comparison, ...]
    problems: tuple[str, ...] = ()
    older: int = 0
    older_query: str = ""

    @property
    def frame(self) -> pd.DataFrame:
        """A row for each candidate and metric: difference, interval, p (Holm), verdict, or why there is none.

        `effect` is the candidate minus the baseline, or the logarithm of their ratio where `log_scale` (perplexities).
        """
        return _frame(chain.from_iterable(map(compare_table.plain_rows, self.comparisons)))

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
        for note in self.notes:
            parts.append(f"<p>{html.escape(note)}</p>")
        return "\n".join(parts)


class RunOptions(TypedDict, total=False):
    """Options of a run besides its suite and objectives; the suite has the defaults."""

    model: str | None
    tokenizer: str | None
    """Take the tokenizer of this model or folder, in place of the model's."""
    seeds: Sequence[int]
    settings: Mapping[str, Any]
    """Those of `--set`, such as {"recipe.epochs": 3}."""
    limit: int | None
    """Test texts, or prompts, of each task."""
    device: str
    """"auto" by default, or as torch names one."""
    offline: bool
    data_dirs: Sequence[str | Path]
    leaderboard: str | Path
    runs: str | Path


@missing_packages_explained()
def run(suite: str, objectives: Sequence[str] = (), **options: Unpack[RunOptions]) -> Results:
    """Train with each objective, evaluate, record, and return the entries, as `emobench run` does.

    `options` are `RunOptions`. Finished work is kept in the folder `runs`: the same call again continues where it
    stopped. Raises UserError for what cannot be run.
    """
    from emobench.runs.run import run_plan

    return _recorded(run_plan, suite, options, {"objectives": tuple(objectives)})


@missing_packages_explained()
def evaluate(
    suite: str,
    objectives: Sequence[str] = (),
    *,
    base: str | None = None,
    trained_with: str | None = None,
    recipe_name: str | None = None,
    **options: Unpack[RunOptions],
) -> Results:
    """Evaluate the model as it is, or models that were trained before, and train nothing: `emobench evaluate`.

    With `trained_with`, an objective, the model is a checkpoint that another program trained from `base`, with the one
    seed of `seeds`; `recipe_name` is your name for everything else in that training.
    """
    from emobench.runs.planning.request import declared_fields
    from emobench.runs.run import evaluate_plan

    declared = declared_fields(objectives, base, trained_with, recipe_name)
    declared["objectives"] = declared["objectives"] or (PRETRAINED,)
    return _recorded(evaluate_plan, suite, options, declared)


def _recorded(run_plan: Callable[[Any], Any], suite: str, options: RunOptions, fields: Mapping[str, Any]) -> Results:
    from emobench.models.device import resolve_device
    from emobench.runs.planning.plan import make_plan
    from emobench.runs.planning.request import Request

    given: Mapping[str, Any] = dict(options)
    words = []
    for name, value in (given.get("settings") or {}).items():
        words.append(f"{name}={setting_word(to_plain(value))}")
    same = {name: given[name] for name in given.keys() & {"model", "tokenizer", "limit", "offline"}}
    leaderboard, runs = Path(options.get("leaderboard", BOARD)), Path(options.get("runs", RUNS))
    request = Request(
        suite=suite,
        **fields,
        **same,
        seeds=tuple(options.get("seeds", ())),
        settings=parse_overrides(words),
        data_dirs=tuple(map(Path, options.get("data_dirs", ()))),
        runs=runs,
        leaderboard=leaderboard,
        device=resolve_device(options.get("device", "auto")),
    )
    return Results(tuple(run_plan(make_plan(request))), leaderboard, runs)


@missing_packages_explained()
def load_board(leaderboard: str | Path = BOARD, *, runs: str | Path = RUNS) -> Results:
    """Return all entries of a board: a folder, "published:" (the papers' numbers) or a study, "studies:smollm2".

    Raises DataError for a missing folder, or a file that is no entry.
    """
    board = Leaderboard(board_folder(leaderboard))
    board.require_folder()
    entries = tuple(board.entries())
    if board.problems:
        raise DataError(f"{board.problems[0]} `emobench leaderboard verify` names every problem.")
    return Results(entries, board.root, Path(runs))


@missing_packages_explained()
def compare(
    *names: str | pd.DataFrame,
    baseline: str | pd.DataFrame | None = None,
    suite: str | None = None,
    metrics: Sequence[str] = (),
    anyway: bool = False,
    across_bases: bool = False,
    older: bool = False,
    leaderboard: str | Path = BOARD,
    runs: str | Path = RUNS,
) -> Compared:
    """Compare entries of a board, or result files of other tools and tables, with `baseline`.

    Without a baseline it is the last of several names; of the entries that one name means, or of all without names, it
    is mle, else the suite's first objective.

    Names are those of `emobench compare`: an objective, an id, a query, a paper's row, or a result file; `suite` leaves
    out entries of other suites. Of names that mean several entries, the newest comparable group is compared, or with
    `older` each one. A data frame is a table with the columns `example` and `score`, and maybe `task`, `metric`, `seed`
    and `unit`; the first one is called "table 1". Raises ConfigError for entries that are not comparable, unless
    `anyway`; UnknownNameError for a name, suite or metric that does not exist; DataError for a file without results.
    """
    if across_bases and anyway:
        raise ConfigError("--across-bases compares what is comparable, base by base; drop --anyway.")
    frames = _Frames()
    texts, base_text = [frames.name(given) for given in names], None
    if baseline is not None:
        base_text = frames.name(baseline)
    if frames.read or any(map(names_results, filter(None, [*texts, base_text]))):
        if suite is not None:
            raise ConfigError("--suite chooses among entries of a board; drop it to compare result files.")
        if across_bases:
            raise ConfigError("--across-bases compares entries of a board; drop it to compare result files.")
        return _of_files(texts, base_text, metrics, anyway=anyway, frames=frames.read)
    named = texts or [ANY]
    if base_text is not None:
        named = [*named, base_text]
    root = board_folder(leaderboard)
    choices: list[Sequence[Entry]] = [_of_suite(text, suite, root) for text in named]
    hidden: list[list[Entry]] = []
    if not (older or anyway or across_bases):
        choices, hidden = newest_common([_with_metrics(choice, metrics) for choice in choices])
    chosen, base = choices, None
    if base_text is not None:
        *chosen, base = choices
    elif len(choices) == 1:
        usual = default_baseline(choices[0])
        base = [entry for entry in choices[0] if entry.objective.name == usual] or choices[0]
    examples = ExamplesReader(Path(runs), boards_of(named, root))
    shown = _metrics(metrics, chosen)
    if across_bases:
        made = compare_across_bases(chosen, base, examples, metrics=shown)
    else:
        made = comparisons(chosen, base, examples, metrics=shown, anyway=anyway)
    query = query_of(hidden[0], made[0].baseline) if hidden else ""
    return Compared(tuple(made), tuple(examples.problems), len(hidden), query)


def _of_suite(text: str, suite: str | None, root: Path) -> list[Entry]:
    """Return the entries that a text names, of one suite (name or name@version) if it is given."""
    named = select(text, root)
    kept, suites = [], set()
    for entry in named:
        suites.add(entry.suite.name)
        if suite in (None, entry.suite.name, f"{entry.suite.name}@{entry.suite.version}"):
            kept.append(entry)
    if not kept:
        raise UnknownNameError("suite", str(suite), suites, where=f"{text}: ")
    return kept


def _with_metrics(choice: Sequence[Entry], patterns: Sequence[str]) -> Sequence[Entry]:
    """Return the entries that have a metric that the patterns mean; all entries if none has."""
    having = [entry for entry in choice if any(wanted(metric, patterns) for metric in entry.metrics)]
    return having or choice


class _Frames:
    """Data frames that are compared, by the names that they get; one that is given twice has one name."""

    def __init__(self) -> None:
        self.read: dict[str, Evaluation] = {}
        self._names: dict[int, str] = {}

    def name(self, given: str | pd.DataFrame) -> str:
        """Return the name of a data frame, which is read; a text as it is."""
        if isinstance(given, str):
            return given
        name = self._names.setdefault(id(given), f"table {len(self._names) + 1}")
        if name not in self.read:
            self.read[name] = frame_evaluation(name, given)
        return name


def _of_files(
    texts: Sequence[str],
    baseline: str | None,
    patterns: Sequence[str],
    *,
    anyway: bool,
    frames: Mapping[str, Evaluation],
) -> Compared:
    for text in filter(None, [*texts, baseline]):
        if text not in frames and not names_results(text):
            raise ConfigError(
                f"{text} is no result file, and others are. Give files and folders alone, or record the files with "
                "`emobench leaderboard import` and compare entries."
            )
    comparison = compare_files(texts, baseline, anyway=anyway, frames=frames)
    shown = _metrics(patterns, [[comparison.baseline, *comparison.candidates]])
    kept = tuple(c for c in comparison.contrasts if shown is None or c.metric in shown)
    return Compared((replace(comparison, contrasts=kept),))


def _metrics(patterns: Sequence[str], chosen: Sequence[Sequence[Entry]]) -> list[str] | None:
    """Return the metrics that patterns mean; None for all."""
    if not patterns:
        return None
    known: dict[str, None] = {}
    for entry in chain.from_iterable(chosen):
        known |= dict.fromkeys(entry.metrics)
    for pattern in patterns:
        if not any(wanted(metric, [pattern]) for metric in known):
            raise UnknownNameError("metric", pattern, known)
    return [metric for metric in known if wanted(metric, patterns)]


def _runs(entry: Entry) -> Iterator[dict[str, Any]]:
    keys = {run.seed: run.key for run in entry.runs}
    seeds = entry.seeds or (None,)
    for name, metric in entry.metrics.items():
        if len(metric.values) != len(seeds):
            continue
        for seed, value in zip(seeds, metric.values, strict=True):
            facts = {"id": entry.id, "objective": entry.objective.label, "model": entry.model.name}
            run = {"suite": str(entry.suite), "seed": seed, "key": keys.get(seed)}
            yield {**facts, **run, "metric": name, "value": value}


@missing_packages_explained()
def _frame(rows: Any) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame(list(rows))
