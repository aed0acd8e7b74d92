"""The most similar examples by the inner product of sentence vectors, exactly as in OpenICL's TopkRetriever.

OpenICL 0.1.8, icl_topk_retriever.py: FAISS' IndexFlatIP over the pool, one query at a time, nearest first. Equal
texts in the pool have equal products; FAISS decides which of them is returned, and in which order.

Legend: Q queries, P pool, K shots, D width.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import emobench

AT_A_TIME = 16
"""Queries per search. From 20 on, FAISS uses a matrix product, which may round equal products differently."""


class Dense(emobench.Retriever):
    """The most similar examples, by the protocol's sentence encoder."""

    name = "dense"
    encodes = True
    packages = ("faiss-cpu",)

    def retrieve(
        self, pool: Sequence[str], queries: Sequence[str], count: int, context: emobench.RetrievalContext
    ) -> np.ndarray:
        import faiss

        pool_PD = np.ascontiguousarray(context.embed(pool), dtype=np.float32)
        queries_QD = np.ascontiguousarray(context.embed(queries), dtype=np.float32)
        index = faiss.IndexFlatIP(pool_PD.shape[1])
        index.add(pool_PD)  # type: ignore[call-arg]  # FAISS replaces its generated signatures when it is imported
        found = np.empty((len(queries), count), dtype=np.int64)
        for start in range(0, len(queries), AT_A_TIME):
            part = slice(start, start + AT_A_TIME)
            found[part] = index.search(queries_QD[part], count)[1]  # type: ignore[call-arg]
        return found


@emobench.hookimpl
def emobench_retrievers() -> list[type[emobench.Retriever]]:
    return [Dense]
