"""Boards become files: one page each, and an index. A file is written whole or not at all; a foreign one is kept."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emobench.core.errors import ConfigError, UnknownNameError
from emobench.core.files import write_whole
from emobench.leaderboard.entry import Entry
from emobench.leaderboard.run_files import ExamplesOf
from emobench.report.site.data import BoardData, details
from emobench.report.site.front import told_suites
from emobench.report.site.objectives import FactsOf, PageObjectives
from emobench.report.site.page import MARK, render_index, render_page
from emobench.report.site.runs import RunFiles

CHUNK = 64
"""Entries of which a page decompresses the details together."""


@dataclass(frozen=True, kw_only=True)
class Board:
    """What a page shows. `problems` are sentences about files that were skipped."""

    name: str
    entries: Sequence[Entry]
    problems: Sequence[str] = ()


def write_site(
    boards: Sequence[Board],
    out: Path,
    examples_of: ExamplesOf,
    runs: RunFiles,
    baseline: str | None = None,
    objective_facts: FactsOf = lambda _: (),
) -> list[Path]:
    """Write a page for each board and `index.html`, which comes first in the paths that are returned.

    `baseline` is the objective that differences are shown against at first, `objective_facts` what is known of an
    entry's objective. Raises UnknownNameError where no
    entry has it, ConfigError where a file of another origin is in the way, StorageError where one cannot be written.
    """
    names = {entry.objective.name for board in boards for entry in board.entries}
    if baseline is not None and baseline not in names:
        raise UnknownNameError("objective to be the baseline", baseline, names)
    paths = _paths(boards, out)
    links = [summary(board, path) for board, path in zip(boards, paths, strict=True)]
    for path in (out / "index.html", *paths):
        _check_ours(path)
    objectives = PageObjectives(objective_facts)
    found = [BoardData(board.entries, examples_of, baseline) for board in boards]
    for place, (board, path, data) in enumerate(zip(boards, paths, found, strict=True)):
        by_id = {entry.id: entry for entry in board.entries}
        shown = [by_id[entry["id"]] for entry in data.plain["entries"]]
        of_entries = [
            details(entry, data.columns[entry.id]) | runs.of(entry) | {"objective": objectives.number(entry)}
            for entry in shown
        ]
        chunks = [of_entries[start : start + CHUNK] for start in range(0, len(shown), CHUNK)]
        facts = links[place] | {"links": links, "place": place, "problems": board.problems}
        _write(path, render_page(facts, data.plain | {"chunk": CHUNK}, chunks, objectives.plain))
    for link, data in zip(links, found, strict=True):  # the pages name them by their counts alone
        link |= {"suites": told_suites(data.plain), "suite_count": len(data.plain["suites"])}
    _write(out / "index.html", render_index(links))
    return [out / "index.html", *paths]


def _paths(boards: Sequence[Board], out: Path) -> list[Path]:
    """Return a file for each board, named after it."""
    stems: list[str] = []
    for board in boards:
        stem = re.sub(r"[^A-Za-z0-9._-]+", "-", board.name).strip(".-") or "board"
        while stem in ("index", *stems):
            stem += "-2"
        stems.append(stem)
    return [out / f"{stem}.html" for stem in stems]


def summary(board: Board, path: Path) -> dict[str, Any]:
    """Return what the head of a board's page says of it."""
    entries = board.entries
    counts = {
        ("entry", "entries"): len(entries),
        ("suite", "suites"): len({str(entry.suite) for entry in entries}),
        ("model", "models"): len({entry.model.name for entry in entries}),
        ("objective", "objectives"): len({entry.objective.name for entry in entries}),
    }
    return {
        "name": board.name,
        "title": f"{board.name[:1].upper()}{board.name[1:]} results",
        "href": path.name,
        "empty": not entries,
        "counts": [f"{count:,} {words[count != 1]}" for words, count in counts.items()],
        "newest": max((entry.provenance.created[:10] for entry in entries), default=""),
    }


def _check_ours(path: Path) -> None:
    try:
        ours = not path.exists() or MARK in path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}). Choose another folder.") from None
    if not ours:
        raise ConfigError(f"{path} was not written by `emobench leaderboard site`. Move it, or choose another folder.")


def _write(path: Path, text: str) -> None:
    write_whole(path, text, f"The page {path.name}", "Free space or choose another folder.")
