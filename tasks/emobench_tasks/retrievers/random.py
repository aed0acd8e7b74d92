"""Random examples for each query, without replacement, by the protocol's seed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import emobench


class Random(emobench.Retriever):
    """Each query has its own draw. It depends only on the query's index and the seed."""

    name = "random"
    packages = ("numpy",)

    def retrieve(
        self, pool: Sequence[str], queries: Sequence[str], count: int, context: emobench.RetrievalContext
    ) -> np.ndarray:
        found = np.empty((len(queries), count), dtype=np.int64)
        for place in range(len(queries)):
            generator = np.random.Generator(np.random.Philox(np.random.SeedSequence([context.seed, place])))
            # Ranks of uniform numbers: numpy does not guarantee the stream of `choice`.
            found[place] = np.argsort(generator.random(len(pool)), kind="stable")[:count]
        return found


@emobench.hookimpl
def emobench_retrievers() -> list[type[emobench.Retriever]]:
    return [Random]
