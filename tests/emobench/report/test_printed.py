"""Every sentence that `leaderboard show` and `compare` print, in two golden files (see `shown.py`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from shown import board_text, check_golden, printed

from emobench.core.settings import to_plain
from emobench.leaderboard.entry import Component, Entry
from emobench.leaderboard.query.rows import select
from emobench.leaderboard.query.standings import View
from emobench.leaderboard.run_files import ExamplesReader
from emobench.leaderboard.stats.across_bases import compare_across_bases
from emobench.leaderboard.stats.compare import Comparison, compare, comparisons
from emobench.report import compare_table

MakeEntry = Callable[..., Entry]
SHARES = {"mle": 0.5, "emo": 0.75, "tailr": 0.52}


@pytest.fixture
def board(make_entry: MakeEntry) -> Callable[..., list[Entry]]:
    """Return a function that makes entries of two accuracies and a perplexity by objective, with examples."""

    def make(seeds: Sequence[int] = (0, 1, 2), **changes: Any) -> list[Entry]:
        rng, entries = np.random.default_rng(0), []
        for name, share in SHARES.items():
            right = {t: (rng.random((len(seeds), 60)) < share).astype(float) for t in ("sst2", "cr")}
            nats_SI = rng.normal(4 - share / 9, 0.1, 60) + rng.normal(0, 0.05, (len(seeds), 60))
            of_ppl = make_entry(name, {"lm": nats_SI}, metric="ppl", unit="perplexity", seeds=seeds)
            entry = make_entry(name, right, seeds=seeds)
            metrics = {**to_plain(entry.metrics), **to_plain(of_ppl.metrics)}
            entries.append(make_entry(name, right, seeds=seeds, metrics=metrics, **changes))
        return entries

    return make


def with_metric(entry: Entry, metric: str, **changes: Any) -> Entry:
    return replace(entry, metrics={**entry.metrics, metric: replace(entry.metrics[metric], **changes)})


def test_a_leaderboard(board: Callable[..., list[Entry]], make_row: MakeEntry, runs: Path) -> None:
    reader, entries = ExamplesReader(runs), board()
    primary = board(primary="mean/accuracy")
    flagged = [with_metric(entry, "cr/accuracy", flags=("small_n",)) for entry in entries]
    parts = {"k-means": Component(sd=0.2, sd_of_mean=0.1, draws=5)}
    noisy = [with_metric(entry, "sst2/accuracy", components=parts) for entry in entries]
    pretrained = make_row(
        "pretrained", {"sst2/accuracy": [0.4]}, missing={"cr/accuracy": "no data", "lm/ppl": "no data"}
    )
    other = replace(entries[0], id="f" * 12, recipe={"name": "lm", "epochs": 9})
    code = [
        make_row("mine", {"lm/kl": [0.5, 0.6, 0.7]}, objective=objective(c), created=f"2026-01-0{c}T12:00:00")
        for c in "12"
    ]
    described = [make_row(n, {"lm/entropy": v}) for n, v in (("a", [0.1, 0.2, 0.3]), ("b", [0.2, 0.3, 0.5]))]
    shown = {
        "primary endpoint": printed(board_text(primary, reader)),
        "differences": printed(board_text(entries, reader, view=View(baseline="mle"))),
        "intervals": printed(board_text(entries, reader, view=View(intervals=True))),
        "without examples": printed(board_text(entries)),
        "no such baseline in one table": printed(board_text([*entries, *described], view=View(baseline="a"))),
        "one seed": printed(board_text(board([0]))),
        "few examples": printed(board_text(flagged, reader)),
        "more noise than ± shows": printed(board_text(noisy, reader)),
        "two tables and an incomplete row": printed(board_text([*entries, pretrained, other], reader)),
        "older code, own rows": printed(board_text(code, view=View(own=frozenset([code[1].id])))),
    }
    check_golden("show.txt", joined(shown))


def test_a_comparison(board: Callable[..., list[Entry]], make_row: MakeEntry, runs: Path, tmp_path: Path) -> None:
    reader, (mle, *others) = ExamplesReader(runs), board(primary="mean/accuracy")
    part = Component(sd=0.02, sd_of_mean=0.01, draws=5)
    parts = {"sampling": part, "texts": replace(part, sd=0.1, draws=60)}
    noisy = [with_metric(entry, "cr/accuracy", components=parts, flags=("small_n",)) for entry in (mle, *others)]
    of_one = board([0])
    row = {"lm/kl": [0.5, 0.6, 0.8], "lm/entropy": [3.0, 3.1, 3.2]}
    models = [{"name": name, "source": name} for name in "ab"]
    corpus = [make_row(name, row, model=model) for name in ("mle", "emo") for model in models]
    unlike = replace(of_one[1], id="e" * 12, recipe={"name": "lm", "epochs": 9})
    papers = [select(f"published:emo-table3/llama-7b/{name}", tmp_path)[0] for name in ("mle", "emo")]
    bases = [
        [make_row(name, {"lm/kl": [value + b / 9, value + place * b * b / 50]}, model=base(b)) for b in range(3)]
        for place, (name, value) in enumerate((("emo", 0.1), ("mle", 0.5)))
    ]
    comparison = compare(mle, others, reader)
    shown = {
        "tested": text_of([comparison]),
        "few examples, and where the noise comes from": text_of([compare(noisy[0], noisy[1:2], reader)]),
        "one seed": text_of([compare(of_one[0], of_one[1:2], reader)]),
        "scores of a corpus, and models left out": text_of(comparisons([corpus[2:], corpus[:1]], None)),
        "not comparable": text_of([compare(of_one[0], [unlike, papers[0]], reader, anyway=True)]),
        "published": text_of([compare(papers[0], papers[1:])]),
        "bases": text_of(compare_across_bases(bases, None)),
    }
    check_golden("compare.txt", joined(shown))


def objective(code: str) -> dict[str, Any]:
    return {"name": "mine", "version": "1", "params": {}, "source_sha256": code * 64}


def base(seed: int) -> dict[str, Any]:
    pretraining = {"seed": seed, "setting": "5" * 64}
    return {"name": f"tiny-oracle(seed={seed})", "source": "made", "revision": f"r{seed}", "pretraining": pretraining}


def text_of(comparisons: Sequence[Comparison], width: int = 120) -> str:
    return printed(compare_table.report(comparisons), width)


def joined(shown: dict[str, str]) -> str:
    return "\n".join(f"=== {name} ===\n\n{text.strip()}\n" for name, text in shown.items())
