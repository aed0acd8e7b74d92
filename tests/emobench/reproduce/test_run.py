"""A published table made again: its cells are the paper's, and its parameters are chosen off the test split."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants

from emobench.core.errors import ConfigError, DataError, ModelError, UnknownNameError
from emobench.core.settings import PRETRAINED, parse_overrides
from emobench.kinds.generation.rules import GenerationProtocol
from emobench.leaderboard.stats.classical import MIN_SEEDS
from emobench.registry import find_suite, find_table, load_objective, table_names
from emobench.reproduce.run import (
    at_scale,
    models_of,
    of_model,
    outline_table,
    published_entries,
    reproduce,
    scale_of,
    selection_request,
    steps_of,
    table_request,
)
from emobench.runs.dry_run import StageLine
from emobench.runs.planning.request import Request
from emobench.runs.planning.resolve import parts_of
from emobench.tasks.spec import short_name
from emobench.tasks.table import CandidateSelection, Table

MODELS = {
    "table-1": ["gpt2", "opt-125m"],
    "table-2": ["gpt2"],
    "table-3": ["llama-7b", "llama-13b"],
    "table-6": ["llama2-7b"],
    "table-7": ["llama2-13b"],
    "table-8": ["opt-2.7b"],
}
JUDGED = {
    "table-9": ["llama-7b", "llama-13b", "llama2-7b", "llama2-13b"],
    "table-10": ["llama2-7b"],
    "table-11": ["llama2-7b"],
}
FIGURES = {
    "figure-3": ("auto-j", ["llama-7b", "llama-13b"]),
    "figure-4": ("auto-j", ["llama2-7b", "llama2-13b"]),
    "figure-5": ("pandalm", ["llama-7b", "llama-13b"]),
    "figure-6": ("pandalm", ["llama2-7b", "llama2-13b"]),
}
"""The judge and the models of each caption."""
SWEEPS = {"table-1": (0.9, 0.8, 0.7), "table-2": (0.9, 0.8, 0.7)}
SWEEP = (0.9, 0.8, 0.1)
COLUMNS = {"table-1": ("mauve",), "table-2": ("ppl_test", "ppl_oracle", "mauve", "rouge1", "rougeL")}


def request(*settings: str, **given: Any) -> Request:
    return Request(suite="nlu", settings=parse_overrides(settings), **given)


def test_the_papers_tables_can_be_made_again() -> None:
    assert set(table_names()) == {"figure-1", "figure-2", *MODELS, *JUDGED, *FIGURES}


@pytest.mark.parametrize("name", [*MODELS, *JUDGED])
def test_a_table_is_exactly_the_papers_cells(name: str) -> None:
    table, models = find_table(name), {**MODELS, **JUDGED}[name]
    entries = published_entries(table)
    assert list(models_of(table, request()).values()) == models
    assert [(e.model.name, e.objective.name) for e in entries] == [(m, row) for m in models for row in table.rows]
    tasks = [short_name(task) for run in find_suite(table.suite).runs for task in run.tasks]
    metrics = ("win_rate",) if name in JUDGED else COLUMNS.get(name, ("accuracy",))
    columns = [f"{task}/{metric}" for task in tasks for metric in metrics]
    assert all(sorted(entry.metrics) == sorted(columns) for entry in entries)
    assert table.select is None or set(table.select.tasks) <= set(tasks)
    if name == "table-11":
        assert entries[1].metrics["open-platypus-vs-baize-v2-7b/win_rate"].mean == pytest.approx(0.59)


@pytest.mark.parametrize("name", MODELS)
def test_gamma_is_swept_by_the_official_formulas(name: str) -> None:
    """For MixCE the code's ratio is Eq. 18's gamma; for TaiLr it runs against Eq. 17's."""
    rows = find_table(name).rows
    for row, official in {"tailr": "tailr-official", "mixce": "mixce"}.items():
        objectives = [load_objective(text).objective for text in rows[row]]
        assert [(o.name, o.params["gamma"]) for o in objectives] == [(official, g) for g in SWEEPS.get(name, SWEEP)]
    others = {row: texts for row, texts in rows.items() if row not in ("tailr", "mixce")}
    assert others == {row: (row,) for row in ([] if name in SWEEPS else [PRETRAINED]) + ["mle", "emo"]}


@pytest.mark.parametrize("name", FIGURES)
def test_a_judged_figure_has_the_judge_and_the_models_of_its_caption(name: str) -> None:
    """Settings of a table are those of its models, and give way to those of a request."""
    table = find_table(name)
    judge, models = FIGURES[name]
    assert table.judges == (judge,)
    subjects = models_of(table, request())
    assert list(subjects.values()) == models
    for given, expected in (((), [2e-5, 1e-5]), (("recipe.learning_rate=3e-4",), [3e-4, 3e-4])):  # for 7B and 13B
        asked = [replace(of_model(table, request(*given), *names), suite=table.suite) for names in subjects.items()]
        assert [parts_of(one, find_suite(table.suite))[0][0].learning_rate for one in asked] == expected


@pytest.mark.parametrize("name", [*MODELS, *JUDGED, *FIGURES])
def test_a_table_trains_as_many_seeds_as_a_verdict_needs(name: str) -> None:
    table = find_table(name)
    names = next(iter(models_of(table, request()).items()))
    assert len(of_model(table, request(), *names).seeds) >= MIN_SEEDS
    assert of_model(table, request(seeds=(7,)), *names).seeds == (7,)


@pytest.mark.parametrize("name", [*MODELS, *JUDGED, *FIGURES])
def test_a_model_of_the_paper_at_a_small_scale_is_the_scales_model(name: str) -> None:
    """No weights of the paper's model are planned, and its column of published numbers is the one that is shown."""
    table = find_table(name)
    task = short_name(find_suite(table.suite).runs[0].tasks[0])
    papers = list(models_of(table, request()))
    paper = papers[-1]
    scaled, (step,), remarks = steps_of(table, request(f"tasks={task}", model=paper), "small")
    assert scaled.model == step.request.model == table.scales["small"].model
    assert step.paper == paper
    assert paper not in remarks[0]
    _, (first,), _ = steps_of(table, request(f"tasks={task}"), "small")
    assert first.paper == papers[0]


def generation(*settings: str, **given: Any) -> Request:
    return Request(suite="generation", settings=parse_overrides(settings), offline=True, **given)


def splits_of(asked: Request) -> list[str]:
    tasks = [task for _, found in parts_of(asked, find_suite("generation")) for task in found]
    return [task.protocol_as(GenerationProtocol).split for task in tasks]


def test_gamma_is_chosen_on_the_validation_split_and_never_on_the_test_split() -> None:
    table = find_table("table-1")
    chosen = selection_request(table, generation("mauve.seeds=[1]", model="gpt2"))
    assert chosen is not None
    assert splits_of(chosen) == ["validation"] * 6
    made = table_request(table, generation("generation.split=validation"), ("mle",))
    assert splits_of(made) == ["test"] * 6
    with pytest.raises(ConfigError, match=r"generation\.split=test: table-1 chooses parameters by generation\.split"):
        selection_request(table, generation("generation.split=test"))


def test_all_runs_of_table_1_are_planned_without_a_hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Two models; 8 objectives on 6 corpora with 3 seeds; 6 candidates are also judged on the validation splits."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    lines = outline_table(find_table("table-1"), generation()).lines
    for model in ("gpt2", "opt-125m"):
        trained = of(lines, "train", f"{model}: ")
        assert len(trained) == len(set(trained)) == 8 * 6 * 3
        assert len(of(lines, "evaluate", f"{model}, to choose: ")) == 6 * 6 * 3
        assert len(of(lines, "evaluate", f"{model}: ")) == 4 * 6 * 3
    for line in lines:
        if line.stage in ("train", "evaluate"):
            assert line.tokens, line.what
            assert line.seconds, line.what
            assert line.memory_bytes, line.what


def of(lines: tuple[StageLine, ...], stage: str, begin: str) -> list[str]:
    return [line.what.removeprefix(begin) for line in lines if line.stage == stage and line.what.startswith(begin)]


def test_an_outline_trains_each_candidate_once_and_chooses_before_the_test_split() -> None:
    lines = outline_table(find_table("table-3"), request("tasks=trec,sst2", seeds=(0,))).lines
    for model in MODELS["table-3"]:
        trained = [what.split(",")[0] for what in of(lines, "train", f"{model}: ")]
        sweeps = [f"{name}(gamma={gamma})" for name in ("tailr-official", "mixce") for gamma in SWEEP]
        assert sorted(trained) == sorted([*sweeps, "mle", "emo"])
        choosing = of(lines, "evaluate", f"{model}, to choose: ")
        assert len(choosing) == 6 * 2
        tested = of(lines, "evaluate", f"{model}: ")
        assert len(tested) == 5 * 2
        # Other rules, so that nothing of the one stands for the other.
        assert {what.split("@")[1] for what in choosing}.isdisjoint(what.split("@")[1] for what in tested)
    downloads = [line.what for line in lines if line.stage == "download"]
    assert len(downloads) == len(set(downloads))
    assert {f"model {m}" for m in MODELS["table-3"]} <= {what.split(" from")[0] for what in downloads}


def test_a_scale_changes_what_the_request_does_not_say(byte_model: Path, small_data: Path) -> None:
    table = find_table("table-1")
    scale = scale_of(table, "small")
    assert (scale, scale_of(table, None)) == (table.scales["small"], None)
    with pytest.raises(UnknownNameError, match="There is no scale 'smal'; did you mean 'small'"):
        scale_of(table, "smal")
    given = ("generation.limit=3", "generation.prefix=4", "generation.continuation=8")
    asked = generation(*given, "mauve.seeds=[1]", model=str(byte_model), data_dirs=(small_data,))
    found, said = at_scale(table, scale, asked)
    assert found.model == str(byte_model)
    assert found.section("generation")["limit"] == 3
    assert found.section("generation")["sampling"] == {"samples": 2}
    assert found.section("mauve") == {"featurizer": "pretrained", "pooling": "mean", "seeds": [1]}
    assert found.words("tasks") == ("wikitext2",)
    # What is printed beside the paper's values is said of the model that is run.
    assert said[0].startswith(f"At this scale: {byte_model.name}, trained on few tokens")
    assert f"MAUVE by {byte_model.name}'s own features. The paper's values are printed for orientation" in said[0]
    assert said[1:] == [
        "Left out: wikitext103, webtext, ptb, writingprompts, ag_news, whose texts are not in the data folders."
    ]
    named, said = at_scale(table, scale, replace(asked, settings={**asked.settings, "tasks": "ptb"}))
    assert (named.words("tasks"), len(said)) == (("ptb",), 1)  # what is asked for is not left out


def test_texts_that_are_too_short_leave_a_task_out(byte_model: Path, small_data: Path, tmp_path: Path) -> None:
    for split in ("train", "validation", "test"):
        (tmp_path / f"ptb.{split}.jsonl").write_text('{"text": "few words"}\n' * 9)
    table = find_table("table-1")
    asked = generation(model=str(byte_model), data_dirs=(small_data, tmp_path))
    found, said = at_scale(table, table.scales["small"], asked)
    assert found.words("tasks") == ("wikitext2",)
    assert "Left out: ptb, none of whose texts is long enough." in said
    with pytest.raises(DataError, match=r"texts for none of its tasks \(wikitext2, .*\); add --data-dir DIR"):
        at_scale(table, table.scales["small"], generation(model=str(byte_model), data_dirs=(tmp_path,)))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"model": "elsewhere"}, [("gpt2", "elsewhere")]),
        ({"model": "opt-125m"}, [("opt-125m", "opt-125m")]),
        ({"stand_ins": {"opt-125m": "./converted"}}, [("gpt2", "gpt2"), ("opt-125m", "./converted")]),
        ({"model": "opt-125m", "stand_ins": {"opt-125m": "./converted"}}, [("opt-125m", "./converted")]),
        ({"stand_ins": {"opt-125": "./converted"}}, None),
        ({"model": "gpt2", "stand_ins": {"opt-125m": "./converted"}}, None),
    ],
)
def test_another_model_or_folder_stands_in_for_one_of_the_paper(
    given: dict[str, Any], expected: list[tuple[str, str]] | None
) -> None:
    table = find_table("table-1")
    if expected is None:
        with pytest.raises(UnknownNameError, match="table-1, --model: There is no model 'opt-125"):
            models_of(table, request(**given))
    else:
        assert list(models_of(table, request(**given)).items()) == expected
    if "stand_ins" in given:
        with pytest.raises(ConfigError, match="at this scale table-1 has a model of its own"):
            at_scale(table, table.scales["small"], request(**given))


def test_every_model_of_a_table_is_checked_before_the_first_one_is_trained(
    byte_model: Path, small_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(byte_model, broken)
    (broken / "model.safetensors").unlink()
    monkeypatch.setattr("emobench.reproduce.run.score_plan", lambda *_: pytest.fail("a candidate was trained"))
    asked = replace(
        request("tasks=wikitext2", "recipe.max_length=32", "mauve.featurizer=pretrained", "generation.max_length=32"),
        data_dirs=(small_data,),
        stand_ins={"gpt2": str(byte_model), "opt-125m": str(broken)},
        runs=tmp_path / "runs",
        suite="generation",
        offline=True,
        limit=5,
    )
    with pytest.raises(ModelError, match="The model broken has no weights"):
        reproduce(find_table("table-1"), asked)


@pytest.mark.parametrize("settings", [["tasks=mmlu"], ["tasks=trec", "icl.held_out=0"]])
def test_a_choice_by_no_task_or_on_the_test_split_is_refused(settings: list[str]) -> None:
    with pytest.raises(ConfigError, match="table-3"):
        outline_table(find_table("table-3"), request(*settings))


def test_a_table_that_does_not_fit_its_published_entries_is_refused() -> None:
    table = find_table("table-6")
    with pytest.raises(ConfigError, match="the published board has no entry of emo-table66"):
        published_entries(replace(table, published="emo-table66"))
    rows = {row: texts for row, texts in table.rows.items() if row != "emo"}
    with pytest.raises(ConfigError, match="differ in emo"):
        published_entries(replace(table, rows=rows))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"select": None}, "select"),
        ({"baseline": "mled"}, "baseline"),
        ({"rows": {"mle": ()}}, "rows"),
    ],
)
def test_a_table_says_what_is_wrong_with_it(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=f"`{said}`"):
        replace(find_table("table-3"), **changes)


@pytest.mark.slow
def test_a_table_is_trained_chosen_measured_and_set_beside_the_paper(
    byte_model: Path, labelled: Path, small_data: Path, tmp_path: Path
) -> None:
    table = Table(
        name="small",
        description="",
        published="emo-table3",
        suite="nlu",
        rows={
            **{row: (row,) for row in ("pretrained", "mle", "mixce", "emo")},
            "tailr": ("tailr-official(gamma=0.9)", "tailr-official(gamma=0.1)"),
        },
        baseline="mle",
        select=CandidateSelection(
            metric="accuracy",
            tasks=("sst2", "mmlu"),
            judged_on="training examples that are held out and are no shots",
            settings={"icl": {"held_out": 200}},
        ),
    )
    recipe = ("max_length=48", "max_tokens=768", "learning_rate=3e-2", "lora=false", "warmup=0")
    asked = request(
        *("tasks=sst2,trec", "icl.retriever=bm25", "icl.shots=2", "icl.held_out=8", "corpus=wikitext2"),
        *(f"recipe.{setting}" for setting in recipe),
        model=str(byte_model),
        data_dirs=(labelled, small_data),
        limit=10,
        runs=tmp_path / "runs",
        leaderboard=tmp_path / "board",
        offline=True,
    )
    (result,) = reproduce(table, asked)
    found = result.found
    assert list(found.measured) == list(table.rows)
    assert found.columns == ("sst2/accuracy", "trec/accuracy")
    assert found.published["emo"].metrics["trec/accuracy"].mean == pytest.approx(0.834)
    chosen = {choice.row: choice for choice in result.choices}
    scores = chosen["tailr"].scores
    assert list(scores) == list(table.rows["tailr"])
    assert chosen["tailr"].objective == max(scores, key=lambda text: scores[text])
    assert all((8 * score) % 1 == pytest.approx(0) for score in scores.values())  # of eight examples
    assert chosen["mixce"].scores == {}
    assert found.measured["tailr"].objective.params == load_objective(chosen["tailr"].objective).objective.params
    assert {entry.metrics["sst2/accuracy"].n for entry in found.measured.values()} == {10}
    said = "\n".join(found.remarks)
    assert "chosen by the mean accuracy (%) over sst2 on training examples that are held out" in said
    assert "The paper's numbers are of llama-7b, and these of" in said
    assert "Read from --data-dir" in said
    assert found.contrast("emo", "sst2/accuracy").within  # pyright: ignore - one seed
    states = {line.state for line in outline_table(table, asked).lines if line.stage == "train"}
    assert states == {"finished"}
