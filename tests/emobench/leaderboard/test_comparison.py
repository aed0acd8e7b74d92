"""Only like is ranked with like, and what differs is said."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from emobench.leaderboard.comparison import comparison_key, differences, groups
from emobench.leaderboard.entry import Entry

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
    said = {"sst2": "sha256:aa", "wikitext103": "sha256:cc", "prompts of sst2": "971 of 2,891 texts"}
    a, b = make(), make(provenance={**fields["provenance"], "data": said})
    assert comparison_key(a) == comparison_key(b)
    assert differences(a, b) == []


def test_every_condition_keeps_entries_apart_and_is_named(make: MakeEntry, fields: dict[str, Any]) -> None:
    base = make()
    cases = {
        "suite: nlu v1 and nlu v2": {"suite": {"name": "nlu", "version": 2}},
        "protocol of sst2: paper@3fa9c1 and official-code@3fa9c1": {"protocols": {"sst2": "official-code@3fa9c1"}},
        "model: gpt2 (607a30d) and gpt2 (other)": {"model": {"name": "gpt2", "source": "x", "revision": "other"}},
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
        "protocol of trec: paper@aa and paper@bb",
        "data of trec: sha256:aa and sha256:bb",
    ]
    assert differences(of("a", "b", "c", "d", "e"), of("a", "b")) == ["other tasks: c, d, e, a and 1 more / a, b"]


def test_one_model_under_two_names_or_folders_is_one_model(make: MakeEntry) -> None:
    other = make(model={"name": "my-gpt2", "source": "/elsewhere/gpt2", "revision": "607a30d"})
    assert differences(make(), other) == []


def test_a_pretrained_row_joins_the_groups_that_share_its_evaluation(make: MakeEntry) -> None:
    short, long, plain = make("emo"), make("mle", recipe={"name": "lm", "epochs": 9}), make("pretrained")
    other = make("pretrained", protocols={"sst2": "official-code@1"})
    assert groups([plain, short, long, other]) == [[short, plain], [long, plain], [other]]
