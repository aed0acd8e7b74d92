"""The most similar examples by the inner product of sentence vectors, exactly as in OpenICL's TopkRetriever.

OpenICL 0.1.8, icl_topk_retriever.py: FAISS' IndexFlatIP over the pool, one query at a time, nearest first. Equal
texts in the pool have equal products; FAISS decides which of them is returned, and in which order.

Legend: Q queries, R some of them, P pool, B blocks of the pool, K shots, D width.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import emobench

PRODUCTS = 2**24
"""Products that are held at a time, 64 MiB."""
BLOCK = 64
"""Products of a block, whose largest is kept, in a large pool."""
ROUNDING = 2.0**-24


class Dense(emobench.Retriever):
    """The most similar examples, by the protocol's sentence encoder."""

    name = "dense"
    encodes = True
    packages = ("faiss-cpu",)

    def retrieve(
        self, pool: Sequence[str], queries: Sequence[str], count: int, context: emobench.RetrievalContext
    ) -> np.ndarray:
        pool_PD = np.ascontiguousarray(context.embed(pool), dtype=np.float32)
        queries_QD = np.ascontiguousarray(context.embed(queries), dtype=np.float32)
        return nearest(pool_PD, queries_QD, count)


def nearest(pool_PD: np.ndarray, queries_QD: np.ndarray, count: int) -> np.ndarray:
    """Return indices_QK of the largest inner products, as a FAISS search of one query at a time returns them.

    A matrix product finds the few vectors that can be among them, whatever the rounding; FAISS decides their order.
    Two sums of D products differ by 2 D u |q| |p| at most, u the unit of rounding.
    """
    import faiss

    longest = np.linalg.norm(pool_PD, axis=1).max()
    errors_Q = 2 * pool_PD.shape[1] * ROUNDING * longest * np.linalg.norm(queries_QD, axis=1)
    # From here on, FAISS keeps candidates in another way, in which the others decide between equal products.
    all_needed = count >= faiss.cvar.distance_compute_min_k_reservoir
    found_QK = np.empty((len(queries_QD), count), dtype=np.int64)
    rows = max(1, PRODUCTS // len(pool_PD))
    for start in range(0, len(queries_QD), rows):
        products_RP = queries_QD[start : start + rows] @ pool_PD.T
        for row, product_P in enumerate(products_RP, start):
            # Once for the bound, once for what is compared with it.
            least = -np.inf if all_needed else _lower_bound(product_P, count) - 2 * errors_Q[row]
            places = np.flatnonzero(product_P >= least)
            metric = faiss.METRIC_INNER_PRODUCT
            _, order_1K = faiss.knn(queries_QD[row : row + 1], pool_PD[places], count, metric=metric)
            found_QK[row] = places[order_1K[0]]
    return found_QK


def _lower_bound(product_P: np.ndarray, count: int) -> np.floating:
    """Return a lower bound of the `count`-th largest product: the `count`-th largest of the maxima of blocks.

    It costs a pass over the products, where their own `count`-th largest costs several. A block is every B-th product,
    so that maxima are taken of whole rows.
    """
    blocks = len(product_P) // max(1, min(BLOCK, len(product_P) // (8 * count)))
    whole = len(product_P) // blocks * blocks
    maxima_B = product_P[:whole].reshape(-1, blocks).max(0)
    return np.partition(maxima_B, blocks - count)[blocks - count]


@emobench.hookimpl
def emobench_retrievers() -> list[type[emobench.Retriever]]:
    return [Dense]
