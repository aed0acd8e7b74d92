"""The oracle of a small scale: a model that was first trained on other texts, and the texts that it then samples.

The evaluated model begins where the oracle began, so that the oracle's texts are as far from it as that training goes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from emobench.core.settings import PRETRAINED
from emobench.data.sources import SPLITS
from emobench.registry import find_suite
from emobench.reproduce.sample_corpus import BATCH, CorpusRequest, sample_corpus
from emobench.runs.dry_run.make_outline import make_outline
from emobench.runs.dry_run.outline import Outline, StageLine
from emobench.runs.execution.reporter import Reporter
from emobench.runs.planning.estimate import sampling_seconds
from emobench.runs.planning.find_model import find_base_model
from emobench.runs.planning.ingredients import size_of
from emobench.runs.planning.make_plan import make_plan
from emobench.runs.planning.request import Request
from emobench.runs.run import train_plan
from emobench.tasks.spec import short_name
from emobench.tasks.table import Oracle, Table


def with_oracle(table: Table, oracle: Oracle, reporter: Reporter) -> Callable[[Request], Request]:
    """Return what adds the oracle and its texts to a request, after making them at first use."""

    def add(request: Request) -> Request:
        ((planned, folder),) = train_plan(make_plan(_teaching(table, oracle, request)), reporter)
        counts = "-".join(str(oracle.texts[split]) for split in SPLITS)
        texts = request.runs / "texts" / f"{planned.key}-{counts}-{oracle.tokens}"
        sampling = CorpusRequest(
            model=str(folder),
            out=texts,
            texts=oracle.texts,
            length=oracle.tokens,
            name=oracle.corpus,
            device=request.device,
            offline=request.offline,
        )
        sample_corpus(sampling, reporter)
        settings = {**request.settings, "oracle": {"model": str(folder), **request.section("oracle")}}
        return replace(request, settings=settings, data_dirs=(texts, *request.data_dirs))

    return add


def without_oracle(table: Table) -> Callable[[Request], Request]:
    """Return what lets a request be outlined before there are texts: the oracle is as large as the model."""

    def add(request: Request) -> Request:
        tasks = [short_name(name) for run in find_suite(table.suite).runs for name in run.tasks]
        model = {**request.section("oracle"), "model": PRETRAINED}
        return replace(request, settings={**request.settings, "oracle": model, "tasks": tasks})

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
        seconds = sampling_seconds(taught.machine, size, count, oracle.tokens, batch, request.weights)
    lines.append(
        StageLine(
            stage="sample",
            what=f"{oracle.corpus}: texts of the oracle, once",
            amount=f"{count:,} texts, at most {tokens:,} tokens",
            tokens=tokens,
            seconds=seconds,
        )
    )
    return replace(taught, lines=tuple(lines))


def _teaching(table: Table, oracle: Oracle, request: Request) -> Request:
    """Return the request that trains the oracle: the suite's recipe, MLE, other texts."""
    (run,) = find_suite(table.suite).runs
    recipe = {**request.section("recipe"), "corpus": oracle.taught}
    return replace(
        request, suite=None, recipe=run.recipe, objectives=(table.baseline,), seeds=(0,), settings={"recipe": recipe}
    )
