"""Only like is ranked with like, and what differs is said."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from shown import board_markdown, compared

from emobench.core.settings import content_hash
from emobench.leaderboard.comparable import changed_rules, comparison_key, differences, groups
from emobench.leaderboard.entry import Entry
from emobench.leaderboard.stats.compare import compare
from emobench.report.site.data import BoardData

MakeEntry = Callable[..., Entry]


@pytest.fixture
def make(entry_of: MakeEntry, fields: dict[str, Any]) -> MakeEntry:
    """Return a function that makes an entry with every condition that can keep entries apart."""

    def make(name: str = "emo", **changes: Any) -> Entry:
        recipe = {} if name == "pretrained" else {"name": "lm", "epochs": 3, "lora": {"rank": 8}, "objective": name}
        data = {"sst2": "sha256:aa", **({} if name == "pretrained" else {"wikitext103": "sha256:cc"})}
        given = {
            "protocols": {"sst2": "paper@3fa9c1"},
            "model": {"name": "gpt2", "source": "openai-community/gpt2", "revision": "607a30d"},
            "recipe": recipe,
            "seeds": [] if name == "pretrained" else [0, 1],
            "missing": {"sst2/accuracy": "not run"},
            "provenance": {**fields["provenance"], "data": data},
        }
        return entry_of(name, **{**given, **changes})

    return make


def test_the_objective_and_the_seeds_do_not_keep_entries_apart(make: MakeEntry) -> None:
    a, b = make("emo"), make(seeds=[5], objective={"name": "tailr", "version": "3", "params": {"gamma": 0.2}})
    assert comparison_key(a) == comparison_key(b)
    assert differences(a, b) == []


def test_how_many_texts_gave_prompts_keeps_no_entries_apart(make: MakeEntry, fields: dict[str, Any]) -> None:
    data = {"sst2": "sha256:aa", "wikitext103": "sha256:cc", "prompts of sst2": "971 of 2,891 texts"}
    a, b = make(), make(provenance={**fields["provenance"], "data": data})
    assert comparison_key(a) == comparison_key(b)
    assert differences(a, b) == []


def test_every_condition_keeps_entries_apart_and_is_named(make: MakeEntry, fields: dict[str, Any]) -> None:
    base = make()
    cases = {
        "suite: nlu v1 and nlu v2": {"suite": {"name": "nlu", "version": 2}},
        "protocol of sst2: paper@3fa9c1 and official-code@3fa9c1": {"protocols": {"sst2": "official-code@3fa9c1"}},
        "model: gpt2 (607a30d) and gpt2 (other), whose weights or tokenizers differ": {
            "model": {"name": "gpt2", "source": "x", "revision": "other"}
        },
        "recipe.lora.rank: 8 and 16": {"recipe": {"name": "lm", "epochs": 3, "lora": {"rank": 16}}},
        "data of wikitext103: sha256:cc and none": {
            "provenance": {**fields["provenance"], "data": {"sst2": "sha256:aa"}}
        },
    }
    for told, change in cases.items():
        other = make(**change)
        assert differences(base, other) == [told]
        assert comparison_key(base) != comparison_key(other)


def test_other_tasks_are_said_first_and_what_follows_from_them_is_not(make: MakeEntry, fields: dict[str, Any]) -> None:
    def of(*tasks: str, shared: str = "aa") -> Entry:
        data = dict.fromkeys(tasks, f"sha256:{shared}")
        given = {"protocols": dict.fromkeys(tasks, f"paper@{shared}")}
        return make(**given, provenance={**fields["provenance"], "data": data})

    assert differences(of("trec"), of("subj", "ag_news")) == ["other tasks: trec / subj, ag_news"]
    assert differences(of("trec"), of("trec", "subj", shared="bb")) == [
        "other tasks: trec / subj, trec",
        "data of trec: sha256:aa and sha256:bb",
        "protocol of trec: paper@aa and paper@bb",
    ]
    assert differences(of("a", "b", "c", "d", "e"), of("a", "b")) == ["other tasks: c, d, e, a and 1 more / a, b"]


def test_one_model_under_two_names_or_folders_is_one_model(make: MakeEntry) -> None:
    other = make(model={"name": "my-gpt2", "source": "/elsewhere/gpt2", "revision": "607a30d"})
    assert differences(make(), other) == []


def test_a_pretrained_row_joins_the_groups_that_share_its_evaluation(make: MakeEntry) -> None:
    short, long, plain = make("emo"), make("mle", recipe={"name": "lm", "epochs": 9}), make("pretrained")
    other = make("pretrained", protocols={"sst2": "official-code@1"})
    assert groups([plain, short, long, other]) == [[short, plain], [long, plain], [other]]


def of_rules(make: MakeEntry, **rules: dict[str, Any]) -> Entry:
    """Return an entry of tasks whose changed rules are given, with a protocol id that follows from them."""
    ids = {task: f"paper@{content_hash([task, changed])[:6]}" for task, changed in rules.items()}
    return make(protocols=ids, changes={task: changed for task, changed in rules.items() if changed})


def test_rules_that_differ_are_named_and_said_once_for_tasks_that_differ_alike(make: MakeEntry) -> None:
    greedy, top_p = {"sampling.method": "greedy", "limit": 40}, {"sampling.top_p": 0.9, "limit": 40}
    a, b = (of_rules(make, sst2=rules, trec=rules, cr=greedy) for rules in (greedy, top_p))
    assert differences(a, b) == [
        "protocol of sst2, trec: paper with sampling.method=greedy and paper with sampling.top_p=0.9"
    ]
    assert comparison_key(a) != comparison_key(b)


def test_a_side_without_recorded_rules_has_its_name_alone(make: MakeEntry) -> None:
    a, b = of_rules(make, sst2={"sampling.method": "greedy"}), of_rules(make, sst2={})
    assert differences(a, b) == ["protocol of sst2: paper with sampling.method=greedy and paper"]


def test_changed_rules_are_in_words_first_what_tasks_share(make: MakeEntry) -> None:
    entry = of_rules(make, sst2={"limit": 40, "sampling.top_p": 0.9}, trec={"limit": 40, "suppress": True}, cr={})
    assert changed_rules(entry, ["sst2", "trec"]) == "limit=40; sst2: sampling.top_p=0.9; trec: suppress=true"
    assert changed_rules(entry, ["sst2"]) == "limit=40, sampling.top_p=0.9"
    assert changed_rules(entry, ["cr"]) == "" == changed_rules(make())
    many = of_rules(make, sst2={f"rule{i}": "x" * 99 for i in range(9)})
    assert changed_rules(many).count("=") == 6
    assert changed_rules(many).endswith("… and 3 more")


@pytest.fixture
def decoded(make_row: MakeEntry) -> Callable[[str, Mapping[str, Any]], Entry]:
    """Return a function that makes an entry of two tasks that were decoded by changed rules."""

    def make(name: str, rules: Mapping[str, Any]) -> Entry:
        ids = {task: f"paper@{content_hash([task, rules])[:6]}" for task in "ab"}
        scores = {f"{task}/mauve": [0.5, 0.6, 0.7] for task in "ab"}
        return make_row(name, scores, protocols=ids, changes={task: rules for task in "ab" if rules})

    return make


def test_tables_comparisons_and_pages_name_changed_rules(decoded: Callable[..., Entry]) -> None:
    greedy, top_p = {"sampling.method": "greedy", "limit": 40}, {"sampling.top_p": 0.9, "limit": 40}
    shown = board_markdown([decoded("mle", greedy), decoded("mle", top_p)]).replace("\\", "")
    assert ") with sampling.method=greedy, limit=40 ·" in shown
    assert "protocol of a, b: paper with sampling.method=greedy and paper with sampling.top_p=0.9." in shown
    assert " with " not in board_markdown([decoded("mle", {})])
    (sheet,), _ = compared([compare(decoded("mle", greedy), [decoded("emo", greedy)])])
    assert sheet.heading.endswith(" · sampling.method=greedy, limit=40")
    (groups,) = BoardData([decoded("mle", rules) for rules in (greedy, top_p, {"limit": 40})], None).groups
    assert {g["title"] for g in groups} == {"tiny", "tiny · sampling method greedy", "tiny · sampling top p 0.9"}
