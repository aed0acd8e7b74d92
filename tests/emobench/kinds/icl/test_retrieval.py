"""Shots: which ones, in which order, found once, and what a retriever must keep to."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emobench.core.errors import ConfigError, PluginError
from emobench.core.family import Family, Loaded
from emobench.data.labelled import LabelledData
from emobench.kinds.icl.retrieval.retriever import Retriever
from emobench.kinds.icl.retrieval.shots import (
    DETOKENIZED,
    check_pool,
    duplicate_flags,
    embeddings,
    find_shots,
    search_keys,
)
from emobench.kinds.icl.rules import IclProtocol
from emobench.kinds.interface import Subject
from emobench.tasks.spec import Task

Make = Callable[..., Subject]


def task(**changes: Any) -> Task:
    given = {"template": '"{text}" It is {label}.', "labels": {"no": "bad", "yes": "good"}, "shots": 4, **changes}
    rules = IclProtocol(**given)
    return Task(name="made", kind="icl", version=1, corpus="made", protocol_name="own", protocol=rules)


def found(subject: Subject, data: LabelledData, **changes: Any) -> list[list[str]]:
    return [[shot.id for shot in row] for row in find_shots(subject, task(**changes), data)]


def test_the_nearest_come_first_and_equal_texts_by_their_place(
    subject: Make, encoder_folder: Path, made: LabelledData
) -> None:
    """FAISS' rule: by inner product, then the later place first."""
    maker = subject(encoder_folder)
    encoder = maker.sentence_encoder("")
    vectors = embeddings(maker, encoder, [e.fields["text"] for e in [*made.pool, *made.test]])
    pool_PD = np.stack([vectors[e.fields["text"]] for e in made.pool]).astype(np.float64)
    for example, shots in zip(made.test, find_shots(maker, task(shots=6), made), strict=True):
        products_P = pool_PD @ vectors[example.fields["text"]].astype(np.float64)
        order = np.argsort(-products_P, kind="stable")
        places = [made.pool.index(shot) for shot in shots]
        assert products_P[places] == pytest.approx(products_P[order[:6]], abs=1e-6)
        for one, other in pairwise(places):
            if made.pool[one].fields == made.pool[other].fields:
                assert one > other


def test_a_second_run_encodes_nothing(subject: Make, encoder_folder: Path, made: LabelledData, tmp_path: Path) -> None:
    different = len({e.fields["text"] for e in made.pool}), len({e.fields["text"] for e in made.test})

    def run(**changes: Any) -> tuple[int, list[list[str]]]:
        maker = subject(encoder_folder)
        shots = found(maker, made, **changes)
        return maker.sentence_encoder("").encoded, shots  # type: ignore[attr-defined]

    first, shots = run()
    assert first == sum(different)
    assert run() == (0, shots)
    own = {e.id: e.fields["text"] for e in made.pool}
    none, two = run(shots=2)  # another search of the same vectors
    assert none == 0
    # As texts: which of equal ones is taken depends on where the list ends.
    assert [[own[shot] for shot in row] for row in two] == [[own[shot] for shot in row[:2]] for row in shots]
    assert run(template="{text} {label}", scorer="label") == (0, shots)
    limited, fewer = run(limit=5)
    assert fewer == shots[:5]
    assert limited == len({e.fields["text"] for e in made.test[:5]})
    assert {path.name for path in (tmp_path / "runs/features").glob("*/*")} == {
        "seal.json",
        "stage.json",
        "features.npy",
    }
    kept = sorted((tmp_path / "runs/features").glob("*/features.npy"))
    assert sorted(len(np.load(path, allow_pickle=False)) for path in kept) == sorted([limited, *different])


def test_what_changes_the_shots_makes_others(subject: Make, encoder_folder: Path, made: LabelledData) -> None:
    maker = subject(encoder_folder)
    rows = [
        found(maker, made, **changes)
        for changes in (
            {},
            {"retriever": "bm25"},
            {"retriever": "bm25(b=0)"},
            {"retriever": "random"},
            {"retriever": "random", "seed": 1},
            {"retriever": "fixed"},
            {"pool": 0.5},
            {"exclude_duplicates": True},
        )
    ]
    assert len({json.dumps(row) for row in rows}) == len(rows)
    assert all(len(row) == 4 for shots in rows for row in shots)
    assert {shot for row in rows[6] for shot in row} <= {e.id for e in made.pool[:60]}
    assert found(maker, made, shots=0, retriever="none") == [[]] * 20  # no retriever is asked for


@pytest.mark.parametrize("retriever", ["dense", "bm25", "random", "fixed"])
def test_without_duplicates_the_next_ones_move_up(
    subject: Make, encoder_folder: Path, made: LabelledData, retriever: str
) -> None:
    maker, own = subject(encoder_folder), {e.id: e.fields["text"] for e in made.pool}
    wider = found(maker, made, retriever=retriever, shots=20)
    narrow = found(maker, made, retriever=retriever, shots=4, exclude_duplicates=True)
    assert any(own[shot] == made.test[17].fields["text"] for shot in wider[17]) == (retriever != "random")
    for example, all_of_it, row in zip(made.test, wider, narrow, strict=True):
        others = [own[shot] for shot in all_of_it if own[shot] != example.fields["text"]]
        assert [own[shot] for shot in row] == others[:4]
        assert len(set(row)) == 4


def test_a_pool_that_is_too_small_is_named_before_anything_is_searched(data_of: Callable[..., LabelledData]) -> None:
    data = data_of(["w1 w2", "w1 w2", "w3", "w4"], ["w3", "w1 w2"])
    check_pool(task(), data)
    check_pool(task(shots=2, exclude_duplicates=True), data)
    with pytest.raises(ConfigError, match=r"the pool has 2 examples that test-1 .* fewer than 3; .*icl\.shots=2"):
        check_pool(task(shots=3, exclude_duplicates=True), data)
    with pytest.raises(ConfigError, match="the pool has 4 examples"):
        check_pool(task(shots=5), data)
    grouped = data_of(["w1", "w2", "w3"], ["w4", "w5"], groups=("law", "art"))
    with pytest.raises(ConfigError, match="the pool has 1 examples that test-1"):
        check_pool(task(shots=2), grouped)


@pytest.mark.parametrize("retriever", ["dense", "bm25", "random", "fixed"])
def test_shots_are_of_the_examples_own_group(
    subject: Make, encoder_folder: Path, made: LabelledData, data_of: Callable[..., LabelledData], retriever: str
) -> None:
    pool, test = ([e.fields["text"] for e in side] for side in (made.pool, made.test))
    grouped, maker = data_of(pool, test, groups=("math", "law", "art")), subject(encoder_folder)
    rows = find_shots(maker, task(retriever=retriever), grouped)
    for example, row in zip(grouped.test, rows, strict=True):
        assert {shot.group for shot in row} == {example.group}
    alone = LabelledData("math", [e for e in grouped.pool if e.group == "math"], grouped.test[::3], {})
    assert find_shots(maker, task(retriever=retriever), alone) == rows[::3]
    assert maker.sentence_encoder("").encoded <= 2 * len({*pool, *test})  # type: ignore[attr-defined]


FRAGMENTS = [*(split for split, _ in DETOKENIZED), " ", "'", "a", "do", "n't", "s", ".", "  ", "!", "\n", "é"]


@given(st.lists(st.sampled_from(FRAGMENTS), max_size=12).map("".join))
def test_decoded_texts_are_those_of_transformers(data_of: Callable[..., LabelledData], text: str) -> None:
    from transformers import PreTrainedTokenizerBase

    rules = task(query_text="gpt2-decoded").protocol
    assert isinstance(rules, IclProtocol)
    ((_, found),) = search_keys(rules, data_of([text], []).pool)
    assert found == PreTrainedTokenizerBase.clean_up_tokenization(None, text)  # type: ignore[arg-type]


def test_texts_are_compared_as_they_were_decoded(
    subject: Make, encoder_folder: Path, data_of: Callable[..., LabelledData]
) -> None:
    """'w1 .' and 'w1.' are one text then."""
    data, maker = data_of(["w2", "w1.", "w3"], ["w1 ."]), subject(encoder_folder)
    rules = {"shots": 1, "retriever": "bm25", "exclude_duplicates": True}
    assert found(maker, data, **rules) == [["pool-1"]]
    assert found(maker, data, **rules, query_text="gpt2-decoded") == [["pool-0"]]


class Faulty(Retriever):
    """Returns what it is told."""

    name = "faulty"

    def __init__(self, given: Any) -> None:
        self.given = given

    def retrieve(self, pool: Any, queries: Any, count: int, context: Any) -> Any:
        return context.embed(pool) if self.given is None else self.given


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([[0, 1], [1, 2]], "returns a list"),
        (np.zeros((2, 2)), "returns numbers of float64"),
        (np.array([[0, 1, 2], [0, 1, 2]]), "returns the shape (2, 3)"),
        (np.array([[0, 1]]), "returns the shape (1, 2)"),
        (np.array([[0, 1], [2, 3]]), "returns 0 to 3"),
        (np.array([[0, 1], [2, -1]]), "returns -1 to 2"),
        (np.array([[0, 1], [2, 2]]), "returns an index twice for one query"),
        (None, "asks for vectors"),
    ],
)
def test_a_retriever_that_breaks_the_contract_gets_a_sentence(
    monkeypatch: pytest.MonkeyPatch,
    subject: Make,
    encoder_folder: Path,
    data_of: Callable[..., LabelledData],
    given: Any,
    said: str,
) -> None:
    maker, data = subject(encoder_folder), data_of(["w1", "w2", "w3"], ["w4", "w5"])
    monkeypatch.setattr(Family, "load", lambda family, text: Loaded(Faulty(given), "0", {}))
    with pytest.raises(PluginError, match=re.escape(f"The retriever 'faulty' {said}")) as error:
        find_shots(maker, task(shots=2, retriever="faulty"), data)
    if given is not None:
        assert "expected indices of 3 pool examples, 2 rows of 2 different ones, int64." in str(error.value)


def test_twins_of_test_texts_are_counted(made: LabelledData, data_of: Callable[..., LabelledData]) -> None:
    def flags(data: LabelledData, **changes: Any) -> tuple[str, ...]:
        rules = task(**changes).protocol
        assert isinstance(rules, IclProtocol)
        return duplicate_flags(rules, data)

    assert flags(made) == ("3_of_20_test_texts_are_also_in_the_pool",)
    assert flags(made, limit=18) == ("1_of_18_test_texts_are_also_in_the_pool",)
    assert flags(made, limit=17) == flags(made, shots=0) == flags(made, exclude_duplicates=True) == ()
    assert flags(data_of(["w1 ."], ["w1."]), query_text="gpt2-decoded") == ("1_of_1_test_texts_are_also_in_the_pool",)
    assert flags(data_of(["w1", "w2"], ["w2", "w1"], groups=("a", "b"))) == ()  # each in the other's pool
