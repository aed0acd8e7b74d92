"""What groups are called, what entries link to, and the baseline of a page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from emobench.leaderboard.entry import Entry, EntrySource
from emobench.report.site.data import group_titles
from emobench.report.site.runs import links

Row = Callable[..., Entry]


def recipe(entry: Entry, **values: object) -> Entry:
    return replace(entry, recipe={**entry.recipe, **values})


def test_groups_of_a_model_are_called_by_what_sets_them_apart(row: Row) -> None:
    one = row("mle", {"toy/accuracy": [0.6, 0.6, 0.7]})
    large = row("mle", {"toy/accuracy": [0.6, 0.6, 0.7]}, model="large")
    fast, slow = (recipe(one, learning_rate=rate, schedule="linear") for rate in (1e-3, 1e-5))
    assert group_titles([one, large]) == ["small", "large"]
    assert group_titles([fast, slow, large]) == ["small · learning rate 0.001", "small · learning rate 1e-05", "large"]
    untrained = row("pretrained", {"toy/accuracy": [0.5]})
    assert group_titles([fast, untrained]) == ["small · lm", "small · as it is"]


def test_changed_rules_are_named_before_digests_that_follow_from_them(row: Row) -> None:
    one = row("mle", {"toy/accuracy": [0.6, 0.6, 0.7]})
    limited = replace(one, changes={"toy": {"limit": 20}}, protocols={"toy": "paper@77aa11"})
    assert group_titles([one, limited]) == ["small · default number of examples", "small · 20 examples"]


def test_titles_say_the_corpus_and_leave_out_what_most_groups_share(row: Row) -> None:
    one = row("mle", {"toy/accuracy": [0.6, 0.6, 0.7]})
    usual, more, default = (replace(one, changes={"toy": rules}) for rules in ({"limit": 4}, {"limit": 9}, {}))
    fast = recipe(usual, learning_rate=1)
    other = replace(row("mle", {"news/accuracy": [0.6, 0.6, 0.7]}), changes={"news": {"limit": 4}})
    assert group_titles([usual, fast, more, other]) == [
        "small · toy",
        "small · toy, learning rate 1",
        "small · toy, 9 examples",
        "small · news",
    ]
    assert group_titles([usual, fast, default]) == [
        "small",
        "small · learning rate 1",
        "small · default number of examples",
    ]


def test_the_fewest_facts_are_named_and_no_title_is_given_twice(row: Row) -> None:
    one = row("mle", {"toy/accuracy": [0.6, 0.6, 0.7]})
    groups = [recipe(one, epochs=epochs, batch=batch, warm_up=0) for epochs in (1, 2) for batch in (8, 16)]
    assert group_titles(groups)[:2] == ["small · batch 8, 1 epochs", "small · batch 16, 1 epochs"]
    assert len({*group_titles(groups)}) == 4
    assert len({*group_titles([one, one])}) == 2


def test_an_entry_links_its_paper_data_and_model(row: Row) -> None:
    one = row("mle", {"toy/accuracy": [0.6, 0.6, 0.7]})
    commit = "a" * 40
    cite = "Ren et al., EMO, arXiv 2310.04691, doi 10.1000/x.1; code at https://example.org/emo."
    named = replace(
        one,
        source=EntrySource(command=None, cite=cite),
        model=replace(one.model, source="org/small", revision=commit),
        provenance=replace(one.provenance, data={"toy.test": f"sha256:1 (hub: org/toy@{commit})"}),
    )
    assert links(one) == []
    assert links(named) == [
        ("Paper: arXiv 2310.04691", "https://arxiv.org/abs/2310.04691"),
        ("example.org/emo", "https://example.org/emo"),
        ("Paper: doi 10.1000/x.1", "https://doi.org/10.1000/x.1"),
        ("Model: org/small", f"https://huggingface.co/org/small/tree/{commit}"),
        ("Data: org/toy", f"https://huggingface.co/datasets/org/toy/tree/{commit}"),
    ]
    hostile = replace(
        one, source=EntrySource(command=None, cite="javascript:alert(1) http://x.org \"https://'onload=x")
    )
    assert links(hostile) == []
