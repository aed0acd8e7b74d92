"""The oracle of a small scale: a model that was first trained on other texts, and the texts that it then samples.

The evaluated model begins where the oracle began, so that the oracle's texts are as far from it as that training goes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from emobench.config import PRETRAINED
from emobench.data.rows import local_file
from emobench.data.sources import SPLITS
from emobench.pipeline.dry_run.make_outline import make_outline
from emobench.pipeline.dry_run.outline import Outline, StageLine
from emobench.pipeline.execution.reporter import Reporter
from emobench.pipeline.planning.estimate import duration, sampling_seconds
from emobench.pipeline.planning.find_model import find_base_model
from emobench.pipeline.planning.ingredients import size_of
from emobench.pipeline.planning.make_plan import make_plan
from emobench.pipeline.planning.request import Request
from emobench.pipeline.reproduce.sample_corpus import BATCH, CorpusRequest, sample_corpus
from emobench.pipeline.run import train_plan
from emobench.registry import find_suite
from emobench.tasks.spec import short_name
from emobench.tasks.table import Oracle, Table


def with_oracle(table: Table, oracle: Oracle, reporter: Reporter) -> Callable[[Request], Request]:
    """Return what adds the oracle and its texts to a request, after making them at first use."""

    def add(request: Request) -> Request:
        ((planned, folder),) = train_plan(make_plan(_teaching(table, oracle, request)), reporter)
        wanted = _sampling(oracle, request, folder, planned.stage.key)
        sample_corpus(wanted, reporter)
        return _with_texts(request, folder, wanted.out)

    return add


def without_oracle(table: Table) -> Callable[[Request], Request]:
    """Return what lets a request be outlined before there are texts: the oracle is as large as the model."""

    def add(request: Request) -> Request:
        tasks = [short_name(name) for run in find_suite(table.suite).runs for name in run.tasks]
        beside = {**request.section("oracle"), "model": PRETRAINED}
        return replace(request, settings={**request.settings, "oracle": beside, "tasks": tasks})

    return add


def oracle_outline(table: Table, oracle: Oracle, request: Request, *, exact: bool = True) -> Outline:
    """Return what the oracle and its texts come to."""
    taught = make_outline(_teaching(table, oracle, request), exact=exact)
    lines = [replace(line, what=f"the oracle: {line.what}") if line.objective else line for line in taught.lines]
    assert request.model is not None
    size = size_of(find_base_model(request.model, replace(request, offline=True)))
    count, tokens = sum(oracle.texts.values()), sum(oracle.texts.values()) * oracle.tokens
    seconds = None
    if size is not None:
        batch = BATCH[request.device.partition(":")[0]]
        seconds = sampling_seconds(taught.machine, size, count, oracle.tokens, batch, request.dtype)
    lines.append(
        StageLine(
            stage="sample",
            what=f"{oracle.corpus}: texts of the oracle, once",
            amount=f"{count:,} texts, at most {tokens:,} tokens",
            estimate="" if seconds is None else duration(seconds),
            tokens=tokens,
            seconds=seconds,
        )
    )
    return replace(taught, lines=tuple(lines))


def of_texts(oracle: Oracle, outline: Outline) -> Outline:
    """Return an outline without the downloads that the oracle's texts take the place of."""
    kept = [line for line in outline.lines if not line.what.startswith(f"corpus {oracle.corpus} (")]
    return replace(outline, lines=tuple(kept))


def has_own_texts(oracle: Oracle, request: Request) -> bool:
    """Return whether the data folders hold the corpus: texts of an oracle of one's own."""
    return all(local_file(oracle.corpus, split, request.data_dirs) for split in SPLITS)


def _teaching(table: Table, oracle: Oracle, request: Request) -> Request:
    """Return the request that trains the oracle: the suite's recipe, MLE, other texts."""
    (run,) = find_suite(table.suite).runs
    recipe = {**request.section("recipe"), "corpus": oracle.taught}
    return replace(
        request, suite=None, recipe=run.recipe, objectives=(table.baseline,), seeds=(0,), settings={"recipe": recipe}
    )


def _sampling(oracle: Oracle, request: Request, folder: Path, key: str) -> CorpusRequest:
    counts = "-".join(str(oracle.texts[split]) for split in SPLITS)
    return CorpusRequest(
        model=str(folder),
        out=request.runs / "texts" / f"{key}-{counts}-{oracle.tokens}",
        texts=oracle.texts,
        length=oracle.tokens,
        name=oracle.corpus,
        device=request.device,
        offline=request.offline,
    )


def _with_texts(request: Request, folder: Path, texts: Path) -> Request:
    beside = {"model": str(folder), **request.section("oracle")}
    settings = {**request.settings, "oracle": beside}
    return replace(request, settings=settings, data_dirs=(texts, *request.data_dirs))
