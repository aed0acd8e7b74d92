"""Lines of a dry run are grouped without loss: the sums stay, and what is partly finished is said."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants

from emobench.core.settings import parse_overrides
from emobench.registry import find_table
from emobench.reproduce.run import outline_table
from emobench.runs.dry_run.make_outline import make_outline
from emobench.runs.dry_run.outline import DONE, TO_DO, Outline, StageLine, grouped
from emobench.runs.planning.request import Request


@pytest.fixture(autouse=True)
def empty_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))


def request(*settings: str, **given: Any) -> Request:
    chosen: dict[str, Any] = {"suite": "nlu", "objectives": ("mle", "emo"), "model": "llama-7b", **given}
    return Request(settings=parse_overrides(settings), **chosen)


def of(lines: list[StageLine], stage: str) -> list[StageLine]:
    return [line for line in lines if line.stage == stage]


def test_seeds_are_one_line_with_the_sum() -> None:
    found = make_outline(request("tasks=sst2,trec", seeds=(0, 1, 2)))
    lines = grouped(found)
    assert [line.what for line in of(lines, "train")] == [f"{o}, 3 seeds, on wikitext103" for o in ("mle", "emo")]
    assert [line.what.split(" paper")[0] for line in of(lines, "evaluate")] == [
        f"{objective}, 3 seeds, {task}" for objective in ("mle", "emo") for task in ("sst2", "trec")
    ]
    assert replace(found, lines=tuple(lines)).totals().tokens == found.totals().tokens
    assert replace(found, lines=tuple(lines)).totals().seconds == pytest.approx(found.totals().seconds)
    one = next(line for line in found.lines if line.stage == "train")
    assert of(lines, "train")[0].steps == 3 * (one.steps or 0)
    assert f"{3 * (one.steps or 0):,} steps" in of(lines, "train")[0].amount


def test_what_is_partly_finished_is_said_and_its_time_is_of_the_rest() -> None:
    found = make_outline(request("tasks=sst2", objectives=("mle",), seeds=(0, 1, 2)))
    first = next(line for line in found.lines if line.stage == "train")
    lines = tuple(replace(line, state=DONE if line.seed in (0, 1) else TO_DO) for line in found.lines)
    (partly,) = of(grouped(replace(found, lines=lines)), "train")
    assert (partly.state, partly.seconds) == ("2 of 3 finished", first.seconds)
    assert partly.estimate == first.estimate
    (whole,) = of(grouped(replace(found, lines=tuple(replace(line, state=DONE) for line in lines))), "train")
    assert (whole.state, whole.estimate) == (DONE, "")


def test_small_downloads_are_one_line_and_unknown_ones_stay() -> None:
    known = (("sst2", 10_000_000), ("trec", 20_000_000), ("large", 900_000_000), ("unknown", None))
    lines = tuple(
        StageLine(stage="download", what=f"data set {n} from o/{n}", amount="", download_bytes=size, group=n)
        for n, size in known
    )
    found = grouped(Outline("t", lines, make_outline(request("tasks=sst2")).machine, ()))
    assert [(line.what, line.download_bytes) for line in found] == [
        ("2 small data sets and corpora: sst2, trec", 30_000_000),
        ("data set large from o/large", 900_000_000),
        ("data set unknown from o/unknown", None),
    ]
    assert found[0].amount == "under 0.05 GB in all"


def test_a_table_is_short_and_its_swept_values_are_one_line() -> None:
    found = outline_table(find_table("table-3"), request(model=None, objectives=(), seeds=(0,)))
    lines = grouped(found)
    trained = [line.what for line in of(lines, "train")]
    for model in ("llama-7b", "llama-13b"):
        for name in ("tailr-official", "mixce"):
            assert f"{model}: {name}(gamma=0.9|0.8|0.1), seed 0, on wikitext103" in trained
    assert len(trained) == 2 * 4
    assert len(lines) < 40
    assert replace(found, lines=tuple(lines)).totals().tokens == found.totals().tokens
    evaluated = {line.what: line.amount.split(",")[0] for line in of(lines, "evaluate")}
    assert evaluated["llama-7b, to choose: mixce(gamma=0.9|0.8|0.1), seed 0"] == "21 evaluations"
    assert evaluated["llama-7b: emo, seed 0"] == "8 tasks"


def test_objectives_that_were_asked_for_are_not_folded_in_a_run() -> None:
    asked = request("tasks=sst2", objectives=("tailr(gamma=0.1)", "tailr(gamma=0.2)"), seeds=(0,))
    assert len(of(grouped(make_outline(asked)), "train")) == 2
