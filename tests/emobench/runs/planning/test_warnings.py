"""A run begins with what a verdict on its rows lacks, and the metrics that kinds know are those that entries have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from emobench.core.settings import parse_overrides
from emobench.kinds.views import KnownMetrics
from emobench.leaderboard.store import Leaderboard
from emobench.registry import find_task, load_kind
from emobench.runs.planning.plan import make_plan
from emobench.runs.planning.request import Request
from emobench.tasks.families import DUPLICATES

STUDIES = Path(__file__).parents[4] / "leaderboards" / "studies"
TWO: dict[str, Any] = {"objectives": ("emo", "mle"), "seeds": (0, 1, 2)}


def warnings(**given: Any) -> list[str]:
    """Return the warnings of a request whose data need not be here; nothing is downloaded."""
    chosen: dict[str, Any] = {"suite": "nlu", "model": "llama-7b", "offline": True, "device": "cuda", **TWO, **given}
    return make_plan(Request(settings=parse_overrides(["tasks=sst2"]), **chosen), look=True, check=False).warnings()


@pytest.mark.parametrize(
    ("given", "lacking"),
    [
        ({}, None),
        ({"objectives": ("emo", "pretrained")}, None),
        ({"seeds": (5, 7)}, "3 seeds; this run has 2"),
        ({"objectives": ("mle",)}, "a second row"),
        ({"objectives": ("pretrained",)}, "a trained objective"),
    ],
)
def test_what_a_verdict_lacks_is_a_warning(given: dict[str, Any], lacking: str | None) -> None:
    assert [lacking in warning for warning in warnings(**given) if lacking] == [True] * (lacking is not None)
    assert bool(warnings(**given)) == (lacking is not None)


@pytest.mark.parametrize(("primary", "absent"), [("accurcy", True), ("accuracy", False)])
def test_a_primary_metric_that_no_task_has_is_a_warning(tmp_path: Path, primary: str, absent: bool) -> None:
    """Of a suite file, it is often misspelt."""
    suite = tmp_path / "mine.yaml"
    suite.write_text(
        f"name: mine\nversion: 1\nprimary: {primary}\nruns:\n  - {{recipe: lm-finetune, tasks: [sst2, trec],"
        " settings: {corpus: wikitext2}}\n"
    )
    assert any("accurcy" in warning for warning in warnings(suite=str(suite))) == absent


def test_the_metrics_are_those_that_entries_have() -> None:
    """Those with a verdict: others describe, are secondary, or repeat one."""
    seen = set()
    for entry in Leaderboard(STUDIES).entries():
        (task, *_), suite = entry.protocols, entry.suite.name
        if (suite, task) in seen:
            continue
        seen.add((suite, task))
        task_file = f"generation/{task}" if suite == "generation" else task
        found = find_task(task_file)
        tested = load_kind(found.kind).view(KnownMetrics)
        assert tested is not None
        known = tested.metrics(found)
        deciding = {name for name, one in known.items() if not isinstance(one, str) and one.higher_is_better is not None
                    and not one.secondary and DUPLICATES.get(name) not in known}  # fmt: skip
        own = {
            m.partition("/")[2] for m in entry.families if m.startswith(f"{task}/") and not entry.metrics[m].secondary
        }
        assert deciding == own
    assert seen


def test_a_judge_that_was_not_chosen_is_a_warning() -> None:
    request = Request(suite="alpaca-eval", model="gpt2", offline=True, **TWO)
    assert any("judge.name" in one for one in make_plan(request, look=True, check=False).warnings())
