"""The shots of each test example, and the vectors of texts that find them: made once, and kept between runs.

Legend: Q test examples, P pool, K shots, N texts, D width.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from emobench.core.errors import PluginError
from emobench.core.versions import minor_versions
from emobench.data.labelled import Example, LabelledData
from emobench.data.rows import digest
from emobench.kinds.icl.examples import pool_of, query_texts, questions_of, search_keys
from emobench.kinds.icl.retrieval.retriever import RETRIEVERS, RetrievalContext, Retriever
from emobench.kinds.icl.rules import IclProtocol
from emobench.kinds.interface import Subject
from emobench.models.encoder import SentenceEncoder
from emobench.tasks.spec import Task

SHOTS, VECTORS = "shots.json", "vectors.npy"


def find_shots(subject: Subject, task: Task, data: LabelledData) -> list[tuple[Example, ...]]:
    """Return each test example's shots, nearest first."""
    rules = task.protocol_as(IclProtocol)
    if rules.shots == 0:
        return [()] * len(questions_of(rules, data))
    loaded = RETRIEVERS.load(rules.retriever)
    encoder = subject.sentence_encoder(rules.encoder) if loaded.plugin.encodes else None
    facts = {
        "retriever": {"name": rules.retriever, "source": loaded.source_sha256},
        "encoder": None if encoder is None else encoder_facts(encoder),
        "packages": {**minor_versions("emobench"), **loaded.versions},
    }
    return kept_shots(subject, rules, data, facts, lambda: _Search(subject, task, data, loaded.plugin).shots())


def kept_shots(
    subject: Subject,
    rules: IclProtocol,
    data: LabelledData,
    facts: Mapping[str, Any],
    find: Callable[[], list[list[int]]],
) -> list[tuple[Example, ...]]:
    """Return each test example's shots, found by `find()`, places in the pool, unless runs before have kept them.

    `facts` identify what finds them; the texts and the rules of the search are added here.
    """
    pool, test = pool_of(rules, data), questions_of(rules, data)
    texts = {"pool": digest(chain(*search_keys(rules, pool))), "test": digest(chain(*search_keys(rules, test)))}
    search = {"shots": rules.shots, "seed": rules.seed, "exclude_duplicates": rules.exclude_duplicates}

    def work(folder: Path) -> None:
        (folder / SHOTS).write_text(json.dumps(find()) + "\n")

    folder = subject.keep("shots", {**facts, "texts": texts, "rules": search}, work)
    return [tuple(pool[place] for place in row) for row in json.loads((folder / SHOTS).read_text())]


class _Search:
    """One search of all test examples' shots."""

    def __init__(self, subject: Subject, task: Task, data: LabelledData, retriever: Retriever) -> None:
        self._subject, self._task, self._retriever = subject, task, retriever
        self._rules = task.protocol_as(IclProtocol)
        self._pool, self._test = pool_of(self._rules, data), questions_of(self._rules, data)
        self._pool_texts = query_texts(self._rules, self._pool)
        self._test_texts = query_texts(self._rules, self._test)

    def shots(self) -> list[list[int]]:
        """Return, for each test example, the places of its shots in the pool; each group is searched by itself."""
        context = RetrievalContext(self._rules.seed, self._embed)
        shots: list[list[int]] = [[] for _ in self._test]
        groups = dict.fromkeys(example.group for example in self._test)
        with self._subject.work(f"find shots of {self._task.name}", "examples") as progress:
            done = 0
            for group in groups:
                own = [place for place, example in enumerate(self._pool) if example.group == group]
                places = [place for place, example in enumerate(self._test) if example.group == group]
                for place, row in zip(places, self._rows(own, places, context), strict=True):
                    shots[place] = row
                done += len(places)
                progress(done, len(self._test))
        return shots

    def _rows(self, own: list[int], places: list[int], context: RetrievalContext) -> list[list[int]]:
        pool, queries = [self._pool_texts[p] for p in own], [self._test_texts[p] for p in places]
        copies = Counter(pool)
        left_out = max(copies[query] for query in queries) if self._rules.exclude_duplicates else 0
        count = min(len(pool), self._rules.shots + left_out)
        indices_QK = self._retriever.retrieve(pool, queries, count, context)
        check_indices(indices_QK, self._rules.retriever, (len(queries), count), len(pool))
        kept = []
        for query, row in zip(queries, indices_QK.tolist(), strict=True):
            others = [i for i in row if not self._rules.exclude_duplicates or pool[i] != query]
            kept.append([own[i] for i in others[: self._rules.shots]])
        return kept

    def _embed(self, texts: Sequence[str]) -> np.ndarray:
        """Return the vectors of texts: (N, D). Those of the pool and of the test examples are kept as a whole."""
        if not self._retriever.encodes:
            raise PluginError(
                f"The retriever '{self._rules.retriever}' asks for vectors; write `encodes = True` in its class, so "
                "that the encoder is among what identifies its shots."
            )
        missing = list(dict.fromkeys(text for text in texts if text not in self._vectors))
        if missing:
            self._vectors.update(self._kept(missing, "other texts"))
        return np.stack([self._vectors[text] for text in texts])

    @cached_property
    def _vectors(self) -> dict[str, np.ndarray]:
        test = self._kept(self._test_texts, "test")
        return {**test, **self._kept(self._pool_texts, "pool")}  # a text that stands in both has one vector

    def _kept(self, texts: Sequence[str], what: str) -> dict[str, np.ndarray]:
        encoder = self._subject.sentence_encoder(self._rules.encoder)
        return embeddings(self._subject, encoder, texts, f"{what} of {self._task.name}")


def check_indices(indices_QK: object, name: str, shape: tuple[int, int], pool: int) -> None:
    """Raise PluginError unless a retriever kept its contract."""
    problem = None
    if not isinstance(indices_QK, np.ndarray) or not np.issubdtype(indices_QK.dtype, np.integer):
        of = f" of {indices_QK.dtype}" if isinstance(indices_QK, np.ndarray) else ""
        problem = f"a {type(indices_QK).__name__}{of}"
    elif indices_QK.shape != shape:
        problem = f"the shape {indices_QK.shape}"
    elif indices_QK.size and (indices_QK.min() < 0 or indices_QK.max() >= pool):
        problem = f"{indices_QK.min()} to {indices_QK.max()}"
    elif any(len(set(row)) < len(row) for row in indices_QK.tolist()):
        problem = "an index twice for one query"
    if problem is not None:
        raise PluginError(
            f"The retriever '{name}' returns {problem}; expected indices of {pool} pool examples, {shape[0]} rows of "
            f"{shape[1]} different ones, int64."
        )


def embeddings(subject: Subject, encoder: SentenceEncoder, texts: Sequence[str], name: str) -> dict[str, np.ndarray]:
    """Return the vector of each text, (D,), float32; `name` names the texts.

    Each different text is encoded once, so that equal texts have equal vectors and tie exactly, as they do where texts
    are encoded one by one.
    """
    different = list(dict.fromkeys(texts))

    def work(folder: Path) -> None:
        with subject.work(f"embed {name}", "texts") as progress:
            vectors_ND = encoder.encode(different, progress)
        np.save(folder / VECTORS, vectors_ND, allow_pickle=False)

    facts = {**encoder_facts(encoder), "texts": digest(different)}
    vectors_ND = np.load(subject.keep("embeddings", facts, work) / VECTORS, allow_pickle=False)
    return dict(zip(different, vectors_ND, strict=True))


def encoder_facts(encoder: SentenceEncoder) -> dict[str, Any]:
    """Return the facts that decide the vectors of a text."""
    packages = ("sentence-transformers", "transformers", "torch")
    return {
        "encoder": dict(encoder.identity),
        "device": encoder.device.partition(":")[0],
        "packages": {name: version(name) for name in packages},
    }
