"""The interface of retrievers of shots: for each query, examples of a pool, the most similar one first.

A plugin is a module that an entry point in `emobench.components` names, with the hook `emobench_retrievers`; the
built-in ones come in by the same door.

Legend: Q queries, P pool, K shots, D width of an encoder's vectors.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from emobench.core.family import Family

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class RetrievalContext:
    """The protocol's seed, and vectors of texts, which are kept between runs."""

    seed: int
    embed: Callable[[Sequence[str]], np.ndarray]
    """Texts -> vectors_ND, float32, of the protocol's sentence encoder; only for a retriever that `encodes`."""


class Retriever(ABC):
    """Chooses shots. A subclass is a dataclass if it has parameters: `bm25(k1=1.2)` sets the field `k1`."""

    name: ClassVar[str]
    encodes: ClassVar[bool] = False
    """Whether it uses the sentence encoder that the protocol names."""

    packages: ClassVar[tuple[str, ...]] = ()
    """What it computes with besides the requirements of a distribution of its own: another version, other shots."""

    @abstractmethod
    def retrieve(
        self, pool: Sequence[str], queries: Sequence[str], count: int, context: RetrievalContext
    ) -> np.ndarray:
        """Return indices_QK into the pool, int64, the most similar first, each at most once; `count` is K, at most P.

        The same pool, queries, count and context give the same indices.
        """


RETRIEVERS: Family[Retriever] = Family(
    name="retriever",
    title="Retrievers of shots",
    bases=("emobench.kinds.icl.retrieval.retriever:Retriever",),
    group="emobench.components",
    checks="emobench.kinds.icl.retrieval.checks:checks",
    facts="emobench.kinds.icl.retrieval.checks:facts",
    columns=("reads",),
    templates=Path(__file__).parent / "templates",
    usage=("emobench evaluate --suite nlu --model gpt2 --limit 64 --set icl.retriever=$name",),
)
