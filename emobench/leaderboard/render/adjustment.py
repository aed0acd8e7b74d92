"""What p values are adjusted for, in words: the primary endpoint, and each family of tests with their number."""

from __future__ import annotations

from collections.abc import Iterable

from emobench.leaderboard.render.numbers import listed
from emobench.leaderboard.schema.labels import MEAN
from emobench.leaderboard.stats.contrasts import Contrast
from emobench.tasks.families import OTHERS, PRIMARY, SECONDARIES


def adjustment(found: Iterable[Contrast]) -> list[str]:
    """Return sentences on the tests among some contrasts, shown or not; none where nothing was tested."""
    tested = [contrast for contrast in found if contrast.p is not None]
    said = []
    if first := [contrast for contrast in tested if contrast.family == PRIMARY]:
        said.append(f"Primary endpoint: {row_name(first[0])}. It is one test, and its p is not adjusted.")
    counts: dict[str, set[int]] = {}
    for contrast in tested:
        if contrast.family not in (None, PRIMARY):
            counts.setdefault(str(contrast.family), set()).add(contrast.tests)
    if any(max(sizes) > 1 for sizes in counts.values()):
        # A metric of too few examples is adjusted for its whole family, whose other tests do not count it.
        named = [f"{family} ({_tests(sizes)})" for family, sizes in sorted(counts.items(), key=_last)]
        other = "Any other p" if first else "p"
        said.append(
            f"{other} is adjusted for all tests of its family, shown or not (Holm): {listed(named)}. "
            "A whole family shows a difference that is not there in at most 5 % of comparisons; one "
            "of several families does more often."
        )
    elif counts:
        many = "it is the only test" if sum(map(len, counts.values())) == 1 else "each is the only test of its family"
        said.append(f"{'Any other p' if first else 'p'} is not adjusted: {many}.")
    return said


def row_name(contrast: Contrast) -> str:
    """Return what a contrast is of: "sst2/accuracy", or "mean accuracy over 8 tasks"."""
    task, _, name = contrast.metric.partition("/")
    return f"mean {name} over {len(contrast.tasks)} tasks" if task == MEAN else contrast.metric


def _tests(sizes: set[int]) -> str:
    least, most = min(sizes), max(sizes)
    return f"{f'{least} to ' if least < most else ''}{most} {'test' if most == 1 else 'tests'}"


def _last(family: tuple[str, set[int]]) -> bool:
    """Sort the families that are of no single metric last."""
    return family[0] in (OTHERS, SECONDARIES)
