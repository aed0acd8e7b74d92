"""The contract of retrievers of shots, for `emobench retrievers check` and `list`.

Legend: Q queries, P pool, K shots, D width of an encoder.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from emobench.core.conformance import Broken, Check, check, docstrings
from emobench.core.errors import PluginError
from emobench.kinds.icl.retrieval.retriever import RetrievalContext, Retriever
from emobench.kinds.icl.retrieval.shots import check_indices

WORDS = ("the", "film", "is", "a", "quiet", "delight", "and", "never", "dull", "who", "was", "first", "?", ".")
POOL, QUERIES, WIDTH = 23, 7, 8


@dataclass
class CheckedRetriever:
    """A retriever under test, with texts of which some are equal."""

    retriever: Retriever
    embedded: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.retriever.name

    @cached_property
    def texts(self) -> tuple[list[str], list[str]]:
        """A pool and queries; the first query is in the pool, and the pool has a text twice."""
        generator = random.Random(0)
        pool = []
        queries = []
        for _ in range(POOL - 1):
            length = generator.randint(2, 9)
            pool.append(" ".join(generator.choices(WORDS, k=length)))
        for _ in range(QUERIES - 1):
            queries.append(" ".join(generator.choices(WORDS, k=6)))
        return [*pool, pool[3]], [pool[5], *queries]

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        self.embedded += texts
        vectors_ND = np.zeros((len(texts), WIDTH), dtype=np.float32)
        for i, text in enumerate(texts):
            generator = np.random.default_rng(zlib.crc32(text.encode()))
            vectors_ND[i] = generator.normal(size=WIDTH)
        return vectors_ND

    def retrieve(self, pool: Sequence[str], queries: Sequence[str], count: int) -> np.ndarray:
        """Return indices_QK. Raises Broken if they are no such indices."""
        indices_QK = self.retriever.retrieve(pool, queries, count, RetrievalContext(0, self.embed))
        try:
            check_indices(indices_QK, self.name, (len(queries), count), len(pool))
        except PluginError as error:
            raise Broken(str(error).partition("' ")[2].rstrip(".")) from None
        return indices_QK


@check(
    "Return an array of int64 of shape (queries, count), each index once in a row, the most similar first.", gate=True
)
def indices(subject: CheckedRetriever) -> None:
    """It returns indices of the pool, `count` different ones for each query, from one to the whole pool."""
    pool, queries = subject.texts
    for count in (1, 4, POOL):
        subject.retrieve(pool, queries, count)


@check("Draw random numbers from a generator with the seed of the context, and keep no state between calls.")
def repeatable(subject: CheckedRetriever) -> None:
    """The same texts give the same indices."""
    first = subject.retrieve(*subject.texts, 4)
    again = subject.retrieve(*subject.texts, 4)
    if not np.array_equal(first, again):
        raise Broken("the indices changed at the second call")


@check("Texts may be empty, or have no word in common with the pool; the pool may have a single text.")
def unusual_texts(subject: CheckedRetriever) -> None:
    """Empty and strange texts, equal ones and a pool of one text get indices, too."""
    strange = ["", " \n", "\0\N{SNOWMAN}", "a" * 5_000]
    subject.retrieve(strange, strange, 2)
    subject.retrieve(["same"] * 5, ["same", ""], 3)
    subject.retrieve(["alone"], ["", "alone"], 1)


@check("Write `encodes = True` in the class: the encoder is then part of what identifies the shots.")
def encoder(subject: CheckedRetriever) -> None:
    """It asks for vectors of texts if and only if it `encodes`."""
    subject.retrieve(*subject.texts, 4)
    if subject.embedded and not subject.retriever.encodes:
        raise Broken("it asks for vectors, and its `encodes` is False")
    if subject.retriever.encodes and not subject.embedded:
        raise Broken("its `encodes` is True, and it asks for no vectors")


@check("Say in the docstring of the class which examples it chooses.")
def documentation(subject: CheckedRetriever) -> None:
    """The class or its module has a docstring."""
    if not docstrings(type(subject.retriever)):
        raise Broken("it has no docstring")


def checks(retriever: Retriever) -> tuple[Sequence[Check], CheckedRetriever]:
    """Return the checks of a retriever, in order, and their subject."""
    return (indices, repeatable, unusual_texts, encoder, documentation), CheckedRetriever(retriever)


def facts(cls: type[Retriever]) -> dict[str, Any]:
    """Return what a retriever compares, for `emobench retrievers list` and `show`."""
    return {"reads": "vectors of the encoder" if cls.encodes else "texts"}
