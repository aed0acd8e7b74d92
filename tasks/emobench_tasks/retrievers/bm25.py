"""The most similar examples by shared words: Okapi BM25, with the library bm25s.

Words are sequences of letters and digits in lower case. There are no stop words: "what" and "who" matter in a question.

Legend: Q queries, P pool, K shots.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

import emobench

WORD = re.compile(r"\w+")


@dataclass(frozen=True, kw_only=True)
class BM25(emobench.Retriever):
    """Robertson and Zaragoza, 2009, with Lucene's idf, log(1 + (P - df + 0.5) / (df + 0.5)).

    Examples with equal scores keep the order of the pool.
    """

    name = "bm25"
    packages = ("bm25s",)
    k1: float = 1.5
    """How much a word's further occurrences add. 0: nothing."""
    b: float = 0.75
    """Penalty for long examples, from 0 to 1."""

    def __post_init__(self) -> None:
        if not self.k1 >= 0:
            raise ValueError(f"`k1` is {self.k1}; expected a number of at least 0.")
        if not 0 <= self.b <= 1:
            raise ValueError(f"`b` is {self.b}; expected a number from 0 to 1.")

    def retrieve(
        self, pool: Sequence[str], queries: Sequence[str], count: int, context: emobench.RetrievalContext
    ) -> np.ndarray:
        import bm25s

        places: dict[str, int] = {}
        corpus = [[places.setdefault(word, len(places)) for word in _words(text)] for text in pool]
        found = np.tile(np.arange(count, dtype=np.int64), (len(queries), 1))
        if not places:  # no words: bm25s would divide by a mean length of 0
            return found
        index = bm25s.BM25(k1=self.k1, b=self.b, dtype="float64", backend="numpy")
        index.index((corpus, places), show_progress=False)
        for row, query in enumerate(queries):
            scores_P = index.get_scores_from_ids([places[word] for word in _words(query) if word in places])
            found[row] = np.argsort(-scores_P, kind="stable")[:count]
        return found


def _words(text: str) -> list[str]:
    return WORD.findall(text.lower())


@emobench.hookimpl
def emobench_retrievers() -> list[type[emobench.Retriever]]:
    return [BM25]
