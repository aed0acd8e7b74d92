"""The names of a request: tasks of a suite, their protocols, and rules that only some of them have a use for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from emobench.core.errors import ConfigError, UserError
from emobench.core.settings import content_hash, parse_overrides
from emobench.runs.planning.request import Request
from emobench.runs.planning.resolve import check_sections, parts_of, suite_of
from emobench.tasks.spec import Task


def tasks_of(*settings: str, suite: str = "nlu") -> dict[str, Task]:
    request = Request(suite=suite, settings=parse_overrides(settings))
    return {task.name: task for _, tasks in parts_of(request, suite_of(request)) for task in tasks}


@pytest.mark.parametrize(
    "given",
    [
        {"suite": "x\udcff"},
        {"recipe": "x\udcff", "suite": None},
        {"objectives": ("mle", "emo(cost='\ud800')")},
        {"model": "x\udcff"},
        {"stand_ins": {"llama-7b": "x\udcff"}},
        {"settings": {"recipe": {"corpus": "\ud800"}}},
        {"settings": {"icl": {"answers": {"\ud800": ["\ud800"]}}}},
        {"runs": Path("x\udcff")},
    ],
)
def test_half_a_surrogate_pair_is_no_text(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"\\udcff|\\ud800"):
        Request(**{"suite": "nlu", **given})


@pytest.mark.parametrize("value", ["\ud800", {"a": ["x\udcff"]}, {"\ud800": 1}])
def test_half_a_surrogate_pair_is_in_no_key(value: Any) -> None:
    with pytest.raises(ConfigError, match="surrogate"):
        content_hash(value)


@pytest.mark.parametrize("given", ["tasks=sst2,trec", "tasks=[trec, sst2]"])
def test_tasks_are_chosen_by_name_and_stand_in_the_suites_order(given: str) -> None:
    assert list(tasks_of(given)) == ["sst2", "trec"]


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (["tasks=ss2"], "There is no task 'ss2'; did you mean 'sst2'?"),
        (["tasks=sst2", "protocol=offical-code"], "There is no protocol 'offical-code'; did you mean 'official-code'?"),
    ],
)
def test_a_slip_says_what_to_type_next(settings: list[str], text: str) -> None:
    with pytest.raises(UserError) as error:
        tasks_of(*settings)
    assert text in str(error.value)


def test_an_encoder_is_a_rule_of_the_tasks_that_encode_alone(tmp_path: Path) -> None:
    plain, changed = tasks_of(), tasks_of(f"icl.encoder={tmp_path}")
    assert changed["mmlu"].protocol_id == plain["mmlu"].protocol_id  # its shots are fixed
    assert changed["sst2"].protocol_id != plain["sst2"].protocol_id
    rules: Any = changed["sst2"].protocol
    assert rules.encoder == str(tmp_path)


@pytest.mark.parametrize(
    ("limit", "settings", "blocks"),
    [(None, [], None), (30, [], 30), (30, ["generation.test_blocks=2"], 2), (2, ["generation.test_blocks=30"], 2)],
)
def test_a_limit_is_for_the_blocks_of_ppl_test_too(limit: int | None, settings: list[str], blocks: int | None) -> None:
    """Of a few examples, no number looks like one of all: each is a rule, and so of another protocol id."""
    request = Request(suite="generation", settings=parse_overrides(["tasks=ptb", *settings]), limit=limit)
    ((_, (task,)),) = parts_of(request, suite_of(request))
    rules: Any = task.protocol
    assert (rules.limit, rules.test_blocks) == (limit, blocks)
    plain = tasks_of("tasks=ptb", suite="generation")["ptb"].protocol_id
    assert (task.protocol_id == plain) is (limit is None and not settings)


def test_tasks_of_one_name_are_told_apart_by_their_suite() -> None:
    assert tasks_of("tasks=ag_news")["ag_news"].kind == "icl"
    assert tasks_of("tasks=ag_news", suite="generation")["ag_news"].kind == "generation"


def test_a_training_that_evaluates_no_wanted_task_is_left_out() -> None:
    request = Request(suite="generation", settings=parse_overrides(["tasks=ptb,wikitext2"]))
    parts = parts_of(request, suite_of(request))
    assert [(recipe.corpus, [task.name for task in tasks]) for recipe, tasks in parts] == [
        ("wikitext2", ["wikitext2"]),
        ("ptb", ["ptb"]),
    ]


@pytest.mark.parametrize("suite", ["generation", "oracle-language"])
def test_a_group_of_rules_reaches_every_task_that_has_it(suite: str) -> None:
    for task in tasks_of("mauve.seeds=[3]", suite=suite).values():
        rules: Any = task.protocol
        assert rules.mauve.seeds == (3,)


def test_an_oracle_is_a_model_where_texts_are_generated_and_rules_where_it_is_the_task() -> None:
    generation: Any = tasks_of("oracle.model=gpt2", suite="generation")["ptb"].protocol
    assert generation.oracle.model == "gpt2"
    language: Any = tasks_of("oracle.texts=7", suite="oracle-language")["oracle-language"].protocol
    assert language.texts == 7


@pytest.mark.parametrize(
    ("suite", "settings", "text"),
    [
        ("generation", ["mauve.seeds=[3]", "generation.mauve.seeds=[4]"], "mauve.seeds and --set generation.mauve are"),
        ("generation", ["mauve.seed=3"], "--set: There is no setting 'mauve.seed'; did you mean 'mauve.seeds'?"),
        ("generation", ["mauve.seeds=7"], "--set mauve: `seeds` is 7; expected a list, such as [1, 2]."),
        (
            "generation",
            ["generation.metrics=distinct"],
            "`metrics` is 'distinct'; expected a list, such as [distinct].",
        ),
        ("generation", ["generation.metrics=1"], "`metrics` is 1; expected a list"),
        ("generation", ["generation.mauve.seeds=7"], "expected a list, such as [1, 2]."),
        ("generation", ["mauve.seeds=[0,0]"], "`seeds` holds 0 twice, which repeats a draw and would count as another"),
        ("nlu", ["tasks=sst2,trec,sst2"], "sst2, trec, sst2 has a name twice"),
        ("nlu", ["icl.content_free=['N/A','N/A']"], "`content_free` holds 'N/A' twice, which would weigh it twice"),
        ("oracle-language", ["oracle.model=gpt2"], "--set: There is no setting 'oracle.model'"),
        ("generation", ["surrogate.model=gpt2"], "--set surrogate: "),
        ("nlu", ["coherence.encoder=x"], "--set coherence: "),
    ],
)
def test_a_group_that_nothing_reads_is_refused(suite: str, settings: list[str], text: str) -> None:
    request = Request(suite=suite, settings=parse_overrides(settings))
    with pytest.raises(UserError) as error:
        check_sections(request, parts_of(request, suite_of(request)), trains=False)
    assert text in str(error.value)


def test_where_a_model_lies_is_no_rule(tmp_path: Path) -> None:
    ids = set()
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        given = (f"mauve.featurizer={tmp_path / name}", f"oracle.model={tmp_path / name}")
        ids.add(tasks_of(*given, suite="generation")["ptb"].protocol_id)
    assert len(ids) == 1
    assert tasks_of(suite="generation")["ptb"].protocol_id not in ids
