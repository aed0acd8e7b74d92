"""Entries with per-example results, as a run records them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emobench.config import to_plain
from emobench.leaderboard.schema.entry import Entry
from emobench.leaderboard.schema.examples import write_examples
from emobench.leaderboard.stats.summary import summarise
from emobench.tasks.scores import Score

sys.path.insert(0, str(Path(__file__).parent))  # for `shown`: the folder of tests has no __init__.py

MakeEntry = Callable[..., Entry]


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """The folder of per-example results."""
    return tmp_path / "runs"


@pytest.fixture
def make_entry(runs: Path, entry_of: MakeEntry) -> MakeEntry:
    """Return a function that makes an entry of one task's accuracies and writes its per-example results."""

    def make(
        name: str,
        tasks: Mapping[str, np.ndarray],
        /,
        *,
        seeds: Sequence[int] = (0, 1, 2),
        metric: str = "accuracy",
        unit: str = "fraction",
        corpus: bool = False,
        **changes: Any,
    ) -> Entry:
        by_seed = [
            {f"{task}/{metric}": _score(values_SI[index], unit, corpus) for task, values_SI in tasks.items()}
            for index in range(max(len(seeds), 1))
        ]
        kept = []
        for index, scores in enumerate(by_seed):
            path = f"{name}-{index}-{len(list(runs.glob('*')))}/examples.jsonl"
            digest = write_examples(runs / path, scores)
            seed = seeds[index] if seeds else None
            kept.append(
                {"seed": seed, "key": f"{name}-{seed}-{digest[:8]}", "examples": {"path": path, "sha256": digest}}
            )
        metrics = {key: to_plain(summarise([scores[key] for scores in by_seed])) for key in by_seed[0]}
        return entry_of(name, **{"seeds": list(seeds), "metrics": metrics, "runs": kept, **changes})

    return make


@pytest.fixture(scope="session")
def make_row(entry_of: MakeEntry) -> MakeEntry:
    """Return a function that makes an entry of each seed's scores, by <task>/<metric>, which are of no sample (n = 1).

    A metric's name says what it is: accuracy and mauve are fractions, ppl is a perplexity, lower kl is better, and
    entropy has no direction.
    """
    units = {"ppl": ("perplexity", False), "kl": ("nats", False), "entropy": ("nats", None)}

    def make(name: str, scores: Mapping[str, Sequence[float]], /, **changes: Any) -> Entry:
        metrics = {}
        for metric, values in scores.items():
            unit, better = units.get(metric.split("/")[1], ("fraction", True))
            made = [Score(value=v, n=1, higher_is_better=better, unit=unit, aggregate="corpus") for v in values]
            metrics[metric] = to_plain(summarise(made))
        return entry_of(name, **{"metrics": metrics, **changes})

    return make


def _score(values_I: np.ndarray, unit: str, corpus: bool) -> Score:
    log = unit == "perplexity"
    aggregate = "corpus" if corpus else "exp_mean" if log else "mean"
    mean = float(np.mean(values_I))
    return Score(
        value=float(np.exp(mean)) if log else mean,
        n=len(values_I),
        higher_is_better=not log,
        unit=unit,
        examples=None if corpus else {str(i): (float(v), 1.0) for i, v in enumerate(values_I)},
        aggregate=aggregate,
    )
