"""The test examples and the shots of each: found once, and kept between runs, as are the vectors that find them.

Legend: Q test examples, P pool, K shots, N texts, D width.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from emobench.core.errors import ConfigError, PluginError
from emobench.core.versions import minor_versions
from emobench.data.labelled import Example, LabelledData
from emobench.data.rows import digest
from emobench.kinds.generation.metric import sentences_of
from emobench.kinds.icl.retrieval.retriever import RETRIEVERS, RetrievalContext, Retriever
from emobench.kinds.icl.rules import IclProtocol
from emobench.kinds.interface import Progress, Subject
from emobench.models.encoder import SentenceEncoder
from emobench.tasks.spec import Task

SHOTS = "shots.json"
DETOKENIZED = (
    (" .", "."),
    (" ?", "?"),
    (" !", "!"),
    (" ,", ","),
    (" ' ", "'"),
    (" n't", "n't"),
    (" 'm", "'m"),
    (" 's", "'s"),
    (" 've", "'ve"),
    (" 're", "'re"),
)
Keys = Sequence[tuple[str, str]]
"""The group and the text of each example: all that a search sees of it."""


def pool_of(rules: IclProtocol, data: LabelledData) -> Sequence[Example]:
    """Return the share of the pool that shots are taken from, rounded as datasets does in `train[:30%]`."""
    share, held = _split_pool(rules, data)
    ids = {example.id for example in held}
    return [example for example in share if example.id not in ids]


def questions_of(rules: IclProtocol, data: LabelledData) -> Sequence[Example]:
    """Return the examples that are answered: of the test split, or those of the pool that are held out."""
    questions = _split_pool(rules, data)[1] if rules.held_out else data.test
    return questions[: rules.limit]


def _split_pool(rules: IclProtocol, data: LabelledData) -> tuple[Sequence[Example], Sequence[Example]]:
    """Return the share of the pool, and the held-out examples in it: any order of the file gives the same ones."""
    share = data.pool[: max(1, round(rules.pool * len(data.pool)))]
    if rules.held_out >= len(share):
        raise ConfigError(
            f"icl.held_out is {rules.held_out}; expected fewer than the {len(share)} examples of {data.name}'s pool."
        )
    return share, sorted(share, key=lambda example: example.id)[: rules.held_out]


def search_keys(rules: IclProtocol, examples: Sequence[Example]) -> Iterator[tuple[str, str]]:
    """Yield the group and the text of each example that retrieval compares.

    "gpt2-decoded" is what transformers 4 made of a text by tokenizing it with GPT-2 and decoding it: byte-level BPE
    gives every text back, and then PreTrainedTokenizerBase.clean_up_tokenization joined what it took for split words.
    Equal to transformers 4.30.2 on all texts of TREC, SST-2, Subj, Rotten Tomatoes and AG News; GPT-2's truncation at
    1024 tokens, which none of them reaches, is left out.
    """
    for example in examples:
        text = example.text(rules.query)
        if rules.query_text != "raw":
            for split, joined in DETOKENIZED:
                text = text.replace(split, joined)
        yield example.group, text


def check_pool(task: Task, data: LabelledData) -> None:
    """Raise ConfigError if fewer pool examples may be a test example's shots than it asks for."""
    rules = task.protocol_as(IclProtocol)
    pool = pool_of(rules, data)
    test = questions_of(rules, data)
    groups = Counter()
    for example in pool:
        groups[example.group] += 1
    copies: Counter[tuple[str, str]] = Counter()
    if rules.exclude_duplicates:
        copies.update(search_keys(rules, pool))
    for example, key in zip(test, search_keys(rules, test), strict=True):
        left = groups[example.group] - copies[key]
        if left < rules.shots:
            file = data.pool[0].where.rpartition(":")[0]
            raise ConfigError(
                f"Task {task.name}, {file}: the pool has {left} examples that {example.where or example.id} may have "
                f"as shots, fewer than {rules.shots}; give more, or --set icl.shots={left}."
            )


def duplicate_flags(rules: IclProtocol, data: LabelledData) -> tuple[str, ...]:
    """Return the flags of a score for test examples whose query text is in the pool, too.

    The pool is that of the example's group; such a text is among the shots of most retrievers, with its label.
    """
    if rules.shots == 0 or rules.exclude_duplicates:
        return ()
    pool_keys = set(search_keys(rules, pool_of(rules, data)))
    keys = list(search_keys(rules, questions_of(rules, data)))
    count = sum(key in pool_keys for key in keys)
    return (f"{count}_of_{len(keys)}_test_texts_are_also_in_the_pool",) if count else ()


def find_shots(subject: Subject, task: Task, data: LabelledData) -> list[tuple[Example, ...]]:
    """Return each test example's shots, nearest first; they are searched unless runs before have kept them."""
    rules = task.protocol_as(IclProtocol)
    pool = pool_of(rules, data)
    test = questions_of(rules, data)
    if rules.shots == 0:
        return [()] * len(test)
    loaded = RETRIEVERS.load(rules.retriever)
    encoder = subject.sentence_encoder(rules.encoder) if loaded.plugin.encodes else None
    pool_keys = list(search_keys(rules, pool))
    test_keys = list(search_keys(rules, test))

    def work(folder: Path) -> None:
        vectors: dict[str, np.ndarray] = {}

        def embed(texts: Sequence[str]) -> np.ndarray:
            """Return the vectors of texts: (N, D). Those of the pool and of the test examples are kept as a whole."""
            if encoder is None:
                raise PluginError(f"The retriever '{rules.retriever}' asks for vectors; write `encodes = True` in it.")
            if not vectors:
                for keys in (test_keys, pool_keys):
                    vectors.update(embeddings(subject, encoder, [text for _, text in keys]))
            missing = [text for text in texts if text not in vectors]
            if missing:
                vectors.update(embeddings(subject, encoder, missing))
            return np.stack([vectors[text] for text in texts])

        with subject.work(f"find shots of {task.name}", "examples") as progress:
            context = RetrievalContext(rules.seed, embed)
            places = _search(rules, loaded.plugin, pool_keys, test_keys, context, progress)
        (folder / SHOTS).write_text(json.dumps(places) + "\n")

    facts: dict[str, Any] = {
        "retriever": {"name": rules.retriever, "source": loaded.source_sha256},
        "encoder": None if encoder is None else encoder_facts(encoder),
        "packages": {**minor_versions("emobench"), **loaded.versions},
    }
    facts |= {
        "texts": {"pool": digest(chain(*pool_keys)), "test": digest(chain(*test_keys))},
        "rules": {"shots": rules.shots, "seed": rules.seed, "exclude_duplicates": rules.exclude_duplicates},
    }
    folder = subject.keep("shots", facts, work)
    shots = []
    for row in json.loads((folder / SHOTS).read_text()):
        own = [pool[place] for place in row]
        shots.append(tuple(own))
    return shots


def _search(
    rules: IclProtocol,
    retriever: Retriever,
    pool_keys: Keys,
    test_keys: Keys,
    context: RetrievalContext,
    progress: Progress,
) -> list[list[int]]:
    """Return, for each test example, the places of its shots in the pool; each group is searched by itself."""
    shots: list[list[int]] = [[] for _ in test_keys]
    done = 0
    pools = _by_group(pool_keys)
    groups = _by_group(test_keys)
    for group, asking in groups.items():
        places = pools.get(group, [])
        texts = [pool_keys[place][1] for place in places]
        queries = [test_keys[place][1] for place in asking]
        count = rules.shots
        if rules.exclude_duplicates:
            copies = Counter(texts)
            count += max(map(copies.__getitem__, queries))
        count = min(len(texts), count)
        indices_QK = retriever.retrieve(texts, queries, count, context)
        check_indices(indices_QK, rules.retriever, (len(queries), count), len(texts))
        for place, query, row in zip(asking, queries, indices_QK.tolist(), strict=True):
            for i in row:
                if not rules.exclude_duplicates or texts[i] != query:
                    shots[place].append(places[i])
            del shots[place][rules.shots :]
        done += len(asking)
        progress(done, len(test_keys))
    return shots


def _by_group(keys: Keys) -> dict[str, list[int]]:
    """Return the places of the examples of each group."""
    places = {}
    for place, (group, _) in enumerate(keys):
        places.setdefault(group, []).append(place)
    return places


def check_indices(indices_QK: object, name: str, shape: tuple[int, int], pool: int) -> None:
    """Raise PluginError unless a retriever kept its contract."""
    problem = None
    if not isinstance(indices_QK, np.ndarray):
        problem = f"a {type(indices_QK).__name__}"
    elif not np.issubdtype(indices_QK.dtype, np.integer):
        problem = f"numbers of {indices_QK.dtype}"
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


def embeddings(subject: Subject, encoder: SentenceEncoder, texts: Sequence[str]) -> dict[str, np.ndarray]:
    """Return the vector of each text, (D,), float32.

    Each different text is encoded once, so that equal texts have equal vectors and tie exactly, as they do where texts
    are encoded one by one.
    """
    different = list(dict.fromkeys(texts))
    return dict(zip(different, sentences_of(subject, encoder, different, keep=True), strict=True))


def encoder_facts(encoder: SentenceEncoder) -> dict[str, Any]:
    """Return the facts that decide the vectors of a text."""
    packages = {name: version(name) for name in ("sentence-transformers", "transformers", "torch")}
    return {
        "encoder": dict(encoder.identity),
        "device": encoder.device.partition(":")[0],
        "packages": packages,
    }
