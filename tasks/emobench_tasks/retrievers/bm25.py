"""The most similar examples by the words that they share: Okapi BM25, by the library bm25s.

Words are runs of letters and digits in lower case, none left out: in a question "what" and "who" say much.

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

    Of examples with equal scores, those that stand first in the pool are taken first.
    """

    name = "bm25"
    packages = ("bm25s",)
    k1: float = 1.5
    """How much a word's second and third occurrence add; 0: nothing."""
    b: float = 0.75
    """How much long examples are marked down, from 0 to 1."""

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
        if not places:  # no word to compare by, and bm25s would divide by a mean length of 0
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
