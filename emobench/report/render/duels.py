"""Wins, ties and losses of models against a baseline by judges of their responses, as a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from emobench.leaderboard.labels import clean
from emobench.report.render.grid import Cell, Column, Grid


@dataclass(frozen=True, kw_only=True)
class Duel:
    """How often a judge prefers the responses of a row to those of the baseline, in both orders of each pair."""

    subject: str
    """The model that both were trained from."""
    row: str
    baseline: str
    judge: str
    model: str
    """Who answered for the judge."""
    seed: int
    instructions: int
    wins: int
    ties: int
    losses: int
    win_rate: float
    """The mean preference of both orders, a fraction. A tie is half a win; probabilities are averaged."""
    ci95: tuple[float, float]
    """Of the win rate, over instructions."""

    @property
    def label(self) -> str:
        """What tells it from the others of one model."""
        return f"{self.judge}, seed {self.seed}"


HEADS = ("wins", "ties", "losses", "win rate (%)", "95 %")
LEGEND = (
    "A win is a response that the judge prefers in both orders; orders that disagree are a tie.",
    "win rate: the mean preference of both orders. A tie is half a win; probabilities are averaged.",
    "95 %: of the win rate, over instructions.",
)


def duel_grid(title: str, duels: Sequence[Duel]) -> Grid:
    """Return the table: a line for each row, judge and seed."""
    return Grid(
        title=clean(title),
        rows=tuple(Cell(clean(f"{one.row} against {one.baseline} · {one.label}")) for one in duels),
        columns=tuple(Column("", head) for head in HEADS),
        cells=tuple(tuple(map(Cell, _texts(one))) for one in duels),
        legend=LEGEND,
        corner="judge",
        turned="",
    )


def _texts(one: Duel) -> tuple[str, ...]:
    low, high = one.ci95
    counts = map(str, (one.wins, one.ties, one.losses))
    return (*counts, f"{100 * one.win_rate:.1f}", f"[{100 * low:.1f}, {100 * high:.1f}]")
