"""The tables and the figure on equal tuning in docs/evidence.md, from the entries that `evidence.fair` recorded.

    python tests/benchmarks evidence.fair_page [--leaderboard DIR] [--out docs/evidence.md]

Writes each table between its two comments in the page, and the figure next to it. Nothing is trained or scored.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from evidence.fair import CORPORA, OBJECTIVES
from evidence.smollm2_page import COLUMNS, FAST, filled, judged, table, value
from evidence.smollm2_page import CORPORA as TITLES

from emobench.leaderboard.entry import Entry, Trial, Tuning
from emobench.leaderboard.run_files import ExamplesReader
from emobench.leaderboard.stats.compare import Contrast, compare
from emobench.leaderboard.store import Leaderboard
from emobench.report.charts.vega_lite import picture, write_picture
from emobench.report.tuning import tuning_panels

ROOT = Path(__file__).parents[3]
RATE = "recipe.learning_rate"


class Study:
    """The tuned entries of a board by corpus, each corpus with all objectives in order."""

    def __init__(self, board: Path) -> None:
        self._examples = ExamplesReader(Path("runs"), [board])
        entries = {}
        for entry in Leaderboard(board).entries(suite="generation"):
            (task,) = entry.protocols
            entries[task, entry.objective.name] = entry
        self.corpora: dict[str, list[Entry]] = {}
        for task in CORPORA:
            if all((task, name) in entries for name in OBJECTIVES):
                self.corpora[task] = [entries[task, name] for name in OBJECTIVES]

    def contrasts(self, task: str) -> list[Contrast]:
        """Return the differences of MAUVE from `mle`, each with the verdict of `emobench compare`."""
        baseline, *candidates = self.corpora[task]
        compared = compare(baseline, candidates, self._examples)
        return [one for one in compared.contrasts if one.metric == f"{task}/mauve"]


def tuning_of(entry: Entry) -> Tuning:
    assert entry.tuning is not None, entry.objective.label
    return entry.tuning


def by_rate(entry: Entry) -> list[tuple[float, Trial]]:
    """Return the trials of an entry in ascending order of their learning rates."""
    trials = [(float(trial.settings[RATE]), trial) for trial in tuning_of(entry).trials]
    return sorted(trials, key=lambda one: one[0])


def trials_table(study: Study) -> str:
    """Return MAUVE on validation data at each learning rate; the chosen one is bold."""
    rates: Sequence[float] = ()
    rows = []
    for task, entries in study.corpora.items():
        for entry in entries:
            trials = by_rate(entry)
            rates = [rate for rate, _ in trials]
            cells = []
            for _, trial in trials:
                assert trial.value is not None
                assert trial.half_width is not None
                text = f"{100 * trial.value:.1f} ± {100 * trial.half_width:.1f}"
                cells.append(f"**{text}**" if trial is tuning_of(entry).choice else text)
            rows.append([TITLES[task], f"`{entry.objective.name}`", *cells])
    return table(["validation MAUVE (%) ↑", "objective", *(f"{rate:.2g}" for rate in rates)], rows)


def tests_table(study: Study) -> str:
    """Return the test results of the choices, means and standard deviations over seeds."""
    rows = []
    for task, entries in study.corpora.items():
        for entry in entries:
            rate = f"{float(tuning_of(entry).choice.settings[RATE]):.2g}"
            values = (value(entry, task, metric) for metric in FAST)
            rows.append([TITLES[task], f"`{entry.objective.name}`", rate, *values])
    headings = (COLUMNS[metric][0] for metric in FAST)
    return table(["corpus", "objective", "learning rate", *headings], rows)


def differences_table(study: Study) -> str:
    """Return the differences of test MAUVE from `mle`, each objective at its best."""
    rows = []
    for task, entries in study.corpora.items():
        names = {entry.id: entry.objective.name for entry in entries}
        for one in study.contrasts(task):
            rows.append([TITLES[task], f"`{names[one.candidate]}` minus `mle`", *judged(one)])
    return table(["corpus", "MAUVE (%) ↑", "difference, 95 % interval", "p", "detectable", "verdict"], rows)


TABLES = {"fair-trials": trials_table, "fair-tests": tests_table, "fair-differences": differences_table}


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--leaderboard", type=Path, default=ROOT / "leaderboards" / "studies" / "fair")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "evidence.md")
    given = parser.parse_args(argv)
    study = Study(given.leaderboard)
    text = given.out.read_text(encoding="utf-8")
    for name, made in TABLES.items():
        text = filled(text, name, made(study))
    given.out.write_text(text, encoding="utf-8")
    for task, entries in study.corpora.items():
        drawn = picture(f"{TITLES[task]}: trials on validation data", tuning_panels(entries))
        write_picture(drawn, given.out.with_name("evidence") / f"fair-{task}.svg")


if __name__ == "__main__":
    main(sys.argv[1:])
