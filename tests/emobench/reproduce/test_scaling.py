"""A figure of scaling: its requests, nested subsets, points, and the files that it is drawn into."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from emobench.cli.reproduce import show_scaling
from emobench.core.errors import ConfigError
from emobench.core.settings import parse_overrides
from emobench.registry import find_suite, find_table
from emobench.reproduce.run import DATA, MODEL, outline_table, steps_of
from emobench.reproduce.scaling import reproduce_scaling
from emobench.runs.execution.reporter import Silent
from emobench.runs.planning.plan import make_plan
from emobench.runs.planning.request import Request
from emobench.runs.planning.resolve import recipe_of
from emobench.runs.planning.tiny_models import TINY_MODELS, write_untrained
from emobench.runs.stages.corpora import PackedCorpora
from emobench.runs.stages.stage import Stages
from emobench.tasks.table import CandidateSelection, Table
from emobench.training.recipe import steps_at_rate_0


def test_figure_1_has_the_papers_models_on_100m_tokens_and_llama_13b_on_fewer() -> None:
    _, steps, said = steps_of(find_table("figure-1"), Request(suite="nlu", settings=parse_overrides(["tasks=sst2"])))
    most = 100_000_000
    assert [(s.request.model, s.tokens, s.panels, s.request.section("recipe")["max_tokens"]) for s in steps] == [
        *((name, most, (MODEL,), most) for name in ("opt-1.3b", "opt-2.7b", "llama-7b")),
        *(("llama-13b", count, (DATA,), count) for count in (4_000_000, 12_000_000, 35_000_000)),
        ("llama-13b", most, (MODEL, DATA), most),
    ]
    assert {step.request.seeds for step in steps} == {(0, 1, 2)}
    assert said == []


def test_figure_1_has_the_models_as_they_are_and_tuned_coefficients() -> None:
    table = find_table("figure-1")
    assert {row: len(candidates) for row, candidates in table.rows.items()} == {
        "pretrained": 1,
        "mle": 1,
        "tailr": 3,
        "mixce": 3,
        "emo": 1,
    }
    request = Request(suite="nlu", settings=parse_overrides(["tasks=sst2"]), seeds=(0,), offline=True)
    lines = outline_table(table, request).lines
    trained = [line.what for line in lines if line.stage == "train"]
    assert len(trained) == len(set(trained)) == 7 * (4 + 3 + 3 + 1 - 3)  # seven steps; mle, emo, and six candidates
    chosen = [line for line in lines if line.stage == "evaluate" and ", to choose: " in line.what]
    assert len(chosen) == 7 * 6


@pytest.mark.parametrize("name", ["figure-1", "table-3", "table-6", "table-7", "table-8"])
def test_a_small_scale_of_few_steps_has_none_at_a_learning_rate_of_0(name: str) -> None:
    table = find_table(name)
    request = Request(suite=table.suite, settings={"recipe": table.scales["small"].settings["recipe"]})
    (run,) = find_suite(table.suite).runs
    assert steps_at_rate_0(recipe_of(request, run.recipe, {}), 2) == 0


def test_its_own_settings_and_models_given_twice_are_refused() -> None:
    table = find_table("figure-1")
    with pytest.raises(ConfigError, match="figure-1 is over the number of tokens, and sets it; drop it"):
        steps_of(table, Request(suite="nlu", settings={"recipe": {"max_tokens": 4000}}))
    with pytest.raises(ConfigError, match="expected each model once, from small to large"):
        steps_of(table, Request(suite="nlu"), models=["gpt2", "gpt2"])


@pytest.fixture
def figure(tmp_path: Path) -> tuple[Table, Request]:
    """A figure of two tiny models in the oracle language, and a request for a fast run of it."""
    for name, width in (("small", 32), ("large", 64)):
        write_untrained(replace(TINY_MODELS["tiny-icl"], width=width, layers=1), tmp_path / name)
    table = Table(
        name="figure-9",
        description="two tiny models",
        suite="nlu-tiny",
        models=(str(tmp_path / "small"), str(tmp_path / "large")),
        tokens=(512, 1024, 2048),
        metrics=("accuracy",),
        rows={
            "pretrained": ("pretrained",),
            "mle": ("mle",),
            "mixce": ("mixce(gamma=0.9)", "mixce(gamma=0.1)"),
        },
        baseline="mle",
        select=CandidateSelection(
            metric="accuracy", tasks=("nlu-tiny",), judged_on="held-out examples", settings={"icl": {"held_out": 8}}
        ),
    )
    settings = ("recipe.batch=8", "recipe.max_length=64", "icl.shots=0", "icl.retriever=none")
    request = Request(
        suite="nlu-tiny",
        seeds=(0, 1),
        limit=16,
        offline=True,
        settings=parse_overrides(settings),
        runs=tmp_path / "runs",
        leaderboard=tmp_path / "board",
    )
    return table, request


def test_fewer_tokens_are_the_first_ones_of_more(figure: tuple[Table, Request]) -> None:
    _, steps, _ = steps_of(*figure)
    corpora = PackedCorpora(Stages(figure[1].runs), Silent(), keep=False)
    plans = [make_plan(step.request) for step in steps if DATA in step.panels]
    read = [corpora.rows(plan.trainings()[0].corpora["train"]) for plan in plans]
    rows = [[np.asarray(packed[i]["input_ids"]).tolist() for i in range(len(packed))] for packed in read]
    assert [len(found) * 64 for found in rows] == [512, 1024, 2048]
    assert rows[0] == rows[2][: len(rows[0])]
    assert rows[1] == rows[2][: len(rows[1])]


@pytest.mark.slow
def test_a_figure_is_made_drawn_and_made_again_from_what_is_finished(
    figure: tuple[Table, Request], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, request = figure
    found = reproduce_scaling(table, request, (), Silent())
    assert found.tasks == ("nlu-tiny",)
    shape = {(p.panel, p.row, p.model, p.size if p.panel == DATA else 0) for p in found.points}
    assert shape == {
        *((MODEL, row, name, 0) for row in table.rows for name in ("small", "large")),
        *((DATA, row, "large", count) for row in table.rows for count in table.tokens),
    }
    assert all(len(point.values) == (1 if point.row == "pretrained" else 2) for point in found.points)
    chosen = {point.objective for point in found.points if point.row == "mixce"}
    assert chosen <= set(table.rows["mixce"])
    how = "chosen by the mean accuracy (%) over nlu-tiny on held-out examples"
    assert sum(how in remark for remark in found.remarks) == 4
    # Without training a model is the same at each number of tokens: points, and no line.
    assert len({p.entry for p in found.points if (p.panel, p.row) == (DATA, "pretrained")}) == 1
    for row in table.rows:  # the point of both panels is one entry
        (of_model,) = (p for p in found.points if (p.panel, p.row, p.model) == (MODEL, row, "large"))
        (of_data,) = (p for p in found.points if (p.panel, p.row, p.size) == (DATA, row, 2048))
        assert (of_model.entry, of_model.values) == (of_data.entry, of_data.values)
    lines = found.lines()
    expected = {(panel, row) for panel in (MODEL, DATA) for row in table.rows}
    assert lines.keys() == expected - {(DATA, "pretrained")}
    # Two sizes of model give a line without a band; three numbers of tokens have one.
    assert {panel for (panel, _), line in lines.items() if line.slope_ci95 is not None} == {DATA}

    stem = tmp_path / "figure"
    show_scaling(found, stem, json=True)
    said = json.loads(capsys.readouterr().out)
    assert len(said["points"]) == len(found.points)
    assert stem.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    svg = stem.with_suffix(".svg").read_text()
    assert "training tokens" in svg
    assert "parameters of the model" in svg

    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").rglob("seal.json")}
    assert reproduce_scaling(table, request, (), Silent()) == found
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").rglob("seal.json")} == times
