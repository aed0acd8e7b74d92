"""The colours of results: one for each objective and one for each verdict, on the page, in pictures and in terminals.

Both sets stay apart for colour-blind readers: the hues of objectives are those of Okabe and Ito (2008), and
verdicts are blue and orange, never green and red. No colour stands alone: a name or a word is always with it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from emobench.leaderboard.stats.compare import NO_VERDICT


class Tone(NamedTuple):
    """A colour on white paper, on a dark ground, and in a terminal, whose ground may be either."""

    light: str
    dark: str
    either: str = ""


OBJECTIVES: tuple[Tone, ...] = (
    Tone("#0072b2", "#4da3dd", "#2f86c9"),
    Tone("#d55e00", "#f08445", "#d55e00"),
    Tone("#009e73", "#2fc79a", "#009e73"),
    Tone("#b5548f", "#dd8bbf", "#c2589f"),
    Tone("#dba400", "#f2c14e", "#b58900"),
    Tone("#3aa0dc", "#8fd0f7", "#3498d3"),
    Tone("#5b5b66", "#8f94a6", "#808691"),
    Tone("#8e6c4a", "#c6a07a", "#a07a50"),
)
GREY = Tone("#9ca3af", "#7b8490")
BETTER, WORSE = Tone("#0a58a6", "#82bcff"), Tone("#8f4700", "#f4ab68")
"""Of words and marks; each is read on the page's ground with a contrast of 4.5 at least."""
TIED, OPEN = Tone("#57606a", "#a3aeba"), Tone("#9aa1aa", "#6f7a86")
FILLS = {"better": Tone("#7fb8de", "#1d649c"), "even": Tone("#f1f2f3", "#252c34"), "worse": Tone("#e8a565", "#91500f")}
"""Of cells, with words on them."""
VERDICTS = {"better": BETTER, "worse": WORSE, "tied": TIED, "undetermined": OPEN, NO_VERDICT: OPEN}
TERMINAL = {"better": "dodger_blue1", "worse": "dark_orange3", "undetermined": "dim", NO_VERDICT: "dim"}
"""Verdict -> style of rich; these hues are read on black and on white. `tied` is as the text around it."""

_SEED = 22041
"""Gives the objectives of the EMO paper colours that are far apart."""


def slots(names: Iterable[str]) -> dict[str, int]:
    """Return the place of each objective's colour in `OBJECTIVES`.

    It follows from the name alone, so that an objective looks the same on every board, unless the names before it in
    the alphabet have taken the place; more names than colours share them.
    """
    taken: dict[str, int] = {}
    for name in sorted({*names}):
        digest = hashlib.blake2b(f"{_SEED} {name}".encode("utf-8", "replace"), digest_size=2).digest()
        place = digest[0] % len(OBJECTIVES)
        while place in taken.values() and len(taken) < len(OBJECTIVES):
            place = (place + 1) % len(OBJECTIVES)
        taken[name] = place
    return taken


def on_paper(labels: Sequence[str]) -> list[str]:
    """Return the colour of each row's objective, whatever its parameters: "tailr(gamma=0.2)" has that of "tailr"."""
    names = [re.split(r"[(\[ ]", label, maxsplit=1)[0] or label for label in labels]
    places = slots(names)
    return [OBJECTIVES[places[name]].light for name in names]


def in_terminal(names: Iterable[str]) -> dict[str, str]:
    """Return the style of each objective's name, of rich."""
    return {name: OBJECTIVES[place].either for name, place in slots(names).items()}


def style_sheet() -> str:
    """Return the colours as variables of a style sheet, which follow the theme."""
    tones = []
    for number, tone in enumerate(OBJECTIVES, 1):
        tones.append((f"series-{number}", tone))
    tones += [("better-text", BETTER), ("worse-text", WORSE), ("tied-text", TIED), ("open-text", OPEN)]
    lines = [":root {"]
    for name, tone in (*tones, *FILLS.items()):
        lines.append(f"  --{name}: light-dark({tone.light}, {tone.dark});")
    return "\n".join([*lines, "}\n"])
