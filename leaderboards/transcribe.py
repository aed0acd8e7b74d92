"""Turn transcribed papers (TOML) into entries of the published board.

`python leaderboards/transcribe.py` writes the entries of every paper in `leaderboards/published/`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from emobench.core.errors import ConfigError
from emobench.core.settings import PRETRAINED, build, to_plain
from emobench.leaderboard.entry import new_entry
from emobench.leaderboard.store import Leaderboard
from emobench.models.catalog import CATALOG

NO_INTERVAL = "the paper prints none"
_PUBLISHED = Path(__file__).with_name("published")


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """Tables that share their columns and conditions.

    `columns` are metrics' names; `protocols` names the rules of each task, "*" those of the others; `tables` maps a
    table's number to its rows, "<model>/<objective>" to the numbers as printed; `examples` counts those behind one
    number. `flags` say what else is known of a number, in words joined by _.
    """

    section: str
    columns: tuple[str, ...]
    protocols: Mapping[str, str]
    recipe: Mapping[str, Any]
    tables: Mapping[str, Mapping[str, tuple[Any, ...]]]
    flags: tuple[str, ...] = ()
    examples: int | None = None

    def __post_init__(self) -> None:
        for table, rows in self.tables.items():
            for row, numbers in rows.items():
                if len(numbers) != len(self.columns) or row.count("/") != 1:
                    raise ConfigError(
                        f"table {table}, row {row!r}: {len(numbers)} numbers; expected <model>/<objective> with one "
                        f"number for each of the {len(self.columns)} columns."
                    )


@dataclass(frozen=True, kw_only=True)
class Paper:
    """One paper's tables. `paper` begins the names of its suites; `perplexities` names the metrics that are no percent.

    `transcribed` is the time of its first entry; each one more is a second later, so that rows keep the paper's order.
    """

    paper: str
    authors: str
    title: str
    venue: str
    arxiv: str
    transcribed: datetime
    experiments: tuple[Experiment, ...]
    perplexities: tuple[str, ...] = ()


def read_paper(path: Path) -> Paper:
    """Read a transcribed paper. Its numbers are Decimal, so that 65.6 percent is exactly 0.656. Raises ConfigError."""
    try:
        given = tomllib.loads(path.read_text(encoding="utf-8"), parse_float=Decimal)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: no TOML that can be read ({error}).") from None
    return build(Paper, given, str(path))


def paper_fields(paper: Paper) -> Iterator[dict[str, Any]]:
    """Return the fields of a paper's entries, one entry for each row of each table, but `supersedes`."""
    rows = [(e, table, row) for e in paper.experiments for table, rows in e.tables.items() for row in rows]
    for place, (experiment, table, row) in enumerate(rows):
        created = (paper.transcribed + timedelta(seconds=place)).isoformat(timespec="seconds")
        yield _fields(paper, experiment, table, row, created)


def publish(root: Path) -> int:
    """Append the entries of all papers under `root` that it does not hold, and return how many there were.

    A row that was corrected supersedes its entry.
    """
    board = Leaderboard(root)
    current = {(str(e.suite), e.model.name, e.objective.name): e for e in board.entries()}
    before = {key: to_plain(entry) for key, entry in current.items()}
    added = 0
    for path in sorted(root.glob("*.toml")):
        for fields in paper_fields(read_paper(path)):
            entry = new_entry({**fields, "supersedes": None}, str(path))
            known = before.get((str(entry.suite), entry.model.name, entry.objective.name))
            if known and {**to_plain(entry), "id": known["id"], "supersedes": known["supersedes"]} == known:
                continue
            board.append(new_entry({**fields, "supersedes": known["id"] if known else None}, str(path)))
            added += 1
    return added


def _fields(paper: Paper, experiment: Experiment, table: str, row: str, created: str) -> dict[str, Any]:
    model, objective = row.split("/")
    tasks = dict.fromkeys(column.split("/", 1)[0] for column in experiment.columns)
    where = f"Table {table}, row {model} / {objective}, section {experiment.section}"
    parameters = CATALOG[model].parameters if model in CATALOG else None
    return {
        "kind": "published",
        "suite": {"name": f"{paper.paper}-table{table}", "version": 1},
        "protocols": {task: experiment.protocols.get(task) or experiment.protocols["*"] for task in tasks},
        "model": {"name": model, "source": f"{model} of arXiv {paper.arxiv}", "parameters": parameters},
        "objective": {"name": objective, "version": f"arXiv {paper.arxiv}", "params": {}},
        "recipe": {} if objective == PRETRAINED else to_plain(_floats(experiment.recipe)),
        "seeds": [],
        "metrics": {
            column: _summary(number, column.split("/", 1)[1] in paper.perplexities, experiment)
            for column, number in zip(experiment.columns, experiment.tables[table][row], strict=True)
        },
        "missing": {},
        "runs": [],
        "cost": {},
        "source": {"cite": f"{paper.authors}. {paper.title}. {paper.venue}, arXiv {paper.arxiv}. {where}."},
        "provenance": {"commit": None, "packages": {}, "hardware": None, "data": {}, "created": created},
    }


def _summary(number: int | Decimal, perplexity: bool, experiment: Experiment) -> dict[str, Any]:
    """Return the metric of one printed number: its spread over seeds was not printed, so that it is a single value."""
    value = float(Decimal(number) / (1 if perplexity else 100))
    return {
        "mean": value,
        "std": None,
        "values": [value],
        "n": experiment.examples,
        "ci95": None,
        "ci95_of": None,
        "ci95_missing": NO_INTERVAL,
        "higher_is_better": not perplexity,
        "unit": "perplexity" if perplexity else "fraction",
        "flags": list(experiment.flags),
    }


def _floats(recipe: Mapping[str, Any]) -> dict[str, Any]:
    return {key: float(value) if isinstance(value, Decimal) else value for key, value in recipe.items()}


if __name__ == "__main__":
    print(f"{publish(_PUBLISHED)} new entries in {_PUBLISHED}")
