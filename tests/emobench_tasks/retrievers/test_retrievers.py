"""The built-in retrievers: BM25 by its equation, FAISS' products and ties, draws that depend on nothing else."""

from __future__ import annotations

import math
import random
import re
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest

import emobench
from emobench.core.errors import ConfigError, UnknownNameError
from emobench.kinds.icl.retrieval.retriever import RETRIEVERS

WORDS = ["who", "what", "is", "a", "the", "in", "Rome", "Köln", "1969", "x"]


def texts(count: int, seed: int) -> list[str]:
    generator = random.Random(seed)
    return [" ".join(generator.choices(WORDS, k=generator.randrange(1, 9))) + " ?" for _ in range(count)]


def retrieve(
    name: str,
    pool: Sequence[str],
    queries: Sequence[str],
    count: int,
    *,
    seed: int = 0,
    vectors: dict[str, np.ndarray] | None = None,
) -> np.ndarray:
    known = vectors or {}
    context = emobench.RetrievalContext(seed, lambda given: np.stack([known[text] for text in given]))
    found = RETRIEVERS.load(name).plugin.retrieve(pool, queries, count, context)
    assert found.shape == (len(queries), count)
    assert found.dtype == np.int64
    return found


def test_all_are_there() -> None:
    assert {"bm25", "dense", "fixed", "random"} <= set(RETRIEVERS.names())
    assert [name for name in RETRIEVERS.names() if RETRIEVERS.load(name).plugin.encodes] == ["dense"]


def bm25_scores(pool: Sequence[str], query: str, k1: float, b: float) -> np.ndarray:
    """Return Lucene's BM25 of each pool text, straight from its equation."""
    documents = [Counter(re.findall(r"\w+", text.lower())) for text in pool]
    mean = sum(sum(words.values()) for words in documents) / len(documents)
    scores = np.zeros(len(pool))
    for word in re.findall(r"\w+", query.lower()):
        holding = sum(word in words for words in documents)
        idf = math.log(1 + (len(pool) - holding + 0.5) / (holding + 0.5))
        for place, words in enumerate(documents):
            length = 1 - b + b * sum(words.values()) / mean
            if words[word]:
                scores[place] += idf * words[word] / (words[word] + k1 * length)
    return scores


@pytest.mark.parametrize(("k1", "b"), [(1.5, 0.75), (1.2, 0.0), (0.0, 1.0)])
def test_bm25_is_its_equation_and_ties_go_by_place(k1: float, b: float) -> None:
    pool, queries = texts(60, 0), texts(15, 1)
    found = retrieve(f"bm25(k1={k1}, b={b})", pool, queries, 12)
    for query, row in zip(queries, found, strict=True):
        scores_P = np.round(bm25_scores(pool, query, k1, b), 9)
        assert row.tolist() == sorted(range(len(pool)), key=lambda place: (-scores_P[place], place))[:12]


def test_bm25_without_words_to_compare_takes_the_first() -> None:
    assert retrieve("bm25", ["?", "!", ". ."], ["what ?"], 2).tolist() == [[0, 1]]
    assert retrieve("bm25", ["a b", "c", "d"], ["unknown words", "?", "c ?"], 2).tolist() == [[0, 1], [0, 1], [1, 0]]


def test_parameters_are_checked() -> None:
    assert repr(RETRIEVERS.load("bm25(k1=2)").plugin) == "BM25(k1=2.0, b=0.75)"
    with pytest.raises(ConfigError, match=r"^retriever bm25: `b` is 1.5; expected a number from 0 to 1\.$"):
        RETRIEVERS.load("bm25(b=1.5)")
    with pytest.raises(ConfigError, match=r"^retriever bm25: `k1` is -1.0; expected a number of at least 0\.$"):
        RETRIEVERS.load("bm25(k1=-1)")
    with pytest.raises(UnknownNameError, match="There is no setting 'k'; did you mean 'k1'"):
        RETRIEVERS.load("bm25(k=1)")
    with pytest.raises(ConfigError, match=r"The retriever 'dense' has no parameters; expected dense alone\."):
        RETRIEVERS.load("dense(k=1)")
    with pytest.raises(UnknownNameError, match="There is no retriever 'dens'; did you mean 'dense'"):
        RETRIEVERS.load("dens")


def test_dense_searches_as_one_query_at_a_time_does() -> None:
    """40 queries at once would be a matrix product, whose rounding may part equal texts."""
    import faiss

    generator = np.random.default_rng(0)
    pool, queries = [f"p{i}" for i in range(500)], [f"q{i}" for i in range(40)]
    vectors = {text: generator.normal(size=384).astype(np.float32) for text in [*pool, *queries]}
    for place in range(100, 500):
        vectors[pool[place]] = vectors[pool[place % 100]]  # every text five times
    index = faiss.IndexIDMap(faiss.IndexFlatIP(384))  # OpenICL's
    index.add_with_ids(np.stack([vectors[text] for text in pool]), np.arange(500))  # type: ignore[call-arg]
    alone = [index.search(vectors[query][None], 8)[1][0].tolist() for query in queries]  # type: ignore[call-arg]
    found = retrieve("dense", pool, queries, 8, vectors=vectors)
    assert found.tolist() == alone
    assert all(len({place % 100 for place in row}) == 2 for row in found)  # five of one text, three of the next


def test_a_draw_depends_on_the_seed_and_the_querys_place_alone() -> None:
    pool, queries = texts(50, 0), texts(20, 1)
    found = retrieve("random", pool, queries, 8)
    assert retrieve("random", pool, queries[:7], 8).tolist() == found[:7].tolist()
    assert retrieve("random", pool, queries, 3).tolist() == found[:, :3].tolist()
    assert retrieve("random", pool, queries, 8, seed=1).tolist() != found.tolist()
    assert all(len(set(row)) == 8 for row in found.tolist())
    # 1,000 draws of 8 of 50: a place is drawn 160 times on average, with a standard deviation of 11.6.
    counts = np.bincount(retrieve("random", pool, ["?"] * 1000, 8).ravel(), minlength=50)
    assert counts.min() > 160 - 5 * 11.6
    assert counts.max() < 160 + 5 * 11.6


def test_fixed_takes_the_first() -> None:
    assert retrieve("fixed", texts(9, 0), ["a", "b"], 3).tolist() == [[0, 1, 2], [0, 1, 2]]


@pytest.mark.parametrize("seed", range(40))
def test_dense_keeps_the_order_of_a_search_by_faiss_with_equal_products(seed: int) -> None:
    """Copies of vectors and whole numbers tie exactly; 100 and more shots are kept by FAISS in another way."""
    import faiss

    from emobench_tasks.retrievers.dense import nearest

    draw = np.random.default_rng(seed)
    size, width, count = int(draw.integers(1, 2500)), int(draw.integers(1, 60)), int(draw.integers(1, 130))
    pool_PD = draw.standard_normal((size, width)).astype(np.float32)
    queries_QD = draw.standard_normal((20, width)).astype(np.float32)
    if seed % 2:
        pool_PD = pool_PD[draw.integers(0, 1 + size // 7, size)]
    if seed % 4 == 1:
        pool_PD, queries_QD = np.round(pool_PD), np.round(queries_QD)
    index = faiss.IndexFlatIP(width)
    index.add(pool_PD)
    one_by_one = [index.search(query_D[None], min(count, size))[1][0].tolist() for query_D in queries_QD]
    assert nearest(pool_PD, queries_QD, min(count, size)).tolist() == one_by_one
