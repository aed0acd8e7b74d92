"""Corpora that a model samples, each text from nothing: the training data of the oracle experiment (EMO paper, 4.1.3).

    DIR/texts/<key>/<name>.<split>.jsonl   {"id": 0, "text": "...", "length": 57, "ended": true} a line, like OpenAI's
                                           gpt-2-output-dataset; `--data-dir DIR/texts/<key>` takes it for that corpus

The folder is a stage: its key holds the model and the settings, and a later call continues an interrupted one. The
model, the seed, the split and the place decide a text: in float32 on a CPU neither the batch nor an interruption
changes it. Nothing is rejected, cut or drawn again, not even the empty text, so that the texts have exactly the
oracle's distribution. Readers of a corpus skip blank rows.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from io import BufferedRandom
from itertools import chain
from pathlib import Path
from typing import Any

from emobench import __version__
from emobench.core.errors import ConfigError, ModelError, UnknownNameError
from emobench.core.settings import PRETRAINED, to_plain
from emobench.data.sources import SPLITS
from emobench.models.catalog import ModelFacts
from emobench.models.device import AUTO, DTYPES, LoadOptions, check_device, refuse_mps
from emobench.models.model import Model
from emobench.models.quiet import quiet_libraries
from emobench.registry import find_suite
from emobench.runs.dry_run import Outline, StageLine, make_outline, too_long
from emobench.runs.execution.reporter import Reporter
from emobench.runs.planning.estimate import sampling_seconds, this_machine
from emobench.runs.planning.ingredients import base_model
from emobench.runs.planning.plan import make_plan
from emobench.runs.planning.request import Request
from emobench.runs.run import train_plan
from emobench.runs.stages.stage import Stage, Stages, require_writable
from emobench.tasks.spec import short_name
from emobench.tasks.table import Oracle, Table

LONGEST = 1024
"""Tokens of a text, as in the gpt-2-output-dataset, if the model reads that many."""
BATCH = {"cpu": 16, "cuda": 64}


@dataclass(frozen=True, kw_only=True)
class CorpusRequest:
    """One call of `emobench sample-corpus`."""

    model: str
    out: Path
    texts: Mapping[str, int] = field(default_factory=lambda: {"train": 250_000, "validation": 5_000, "test": 5_000})
    length: int | None = None
    """Largest number of tokens of a text. None: 1,024, or the context length of the model."""
    name: str = "gpt2-oracle"
    seed: int = 0
    batch: int | None = None
    """Texts that are sampled at once. It changes no text in float32 on a CPU."""
    device: str = "cpu"
    asked_device: str = ""
    """The given device; `device` is the resolved one."""
    dtype: str = "float32"
    offline: bool = False
    trust_remote_code: bool = False

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9_-]+", self.name):
            raise ConfigError(f"--name is {self.name!r}; expected letters, digits, - and _, such as gpt2-oracle.")
        if self.dtype not in DTYPES:
            raise UnknownNameError("dtype", self.dtype, DTYPES)
        if not 0 <= self.seed < 2**32:
            raise ConfigError(f"--seed is {self.seed}; expected a number from 0 to 2**32 - 1.")
        numbers = {**self.texts, "length": self.length, "batch": self.batch}
        for name, number in numbers.items():
            if number is not None and number < 1:
                raise ConfigError(f"--{name} is {number}; expected a number of at least 1.")


def sample_corpus(request: CorpusRequest, reporter: Reporter) -> Path:
    """Sample the missing texts, and return their folder.

    Raises ModelError for a model without a start token.
    """
    refuse_mps(request.device)
    check_device(request.device)
    options = LoadOptions(
        device=request.device,
        dtype=request.dtype,
        offline=request.offline,
        trust_remote_code=request.trust_remote_code,
    )
    model = Model(request.model, options)
    with quiet_libraries():
        length = _length(request, model.facts.context)
    settings = {
        "emobench": __version__,
        "corpus": request.name,
        "model": {"name": model.name, **model.identity},
        "seed": request.seed,
        "length": length,
        "dtype": request.dtype,
        "device": request.device.partition(":")[0],
        "texts": {split: request.texts[split] for split in SPLITS},
    }
    stage = Stage("texts", to_plain(settings))
    stages = Stages(request.out, note=reporter.note)
    if not stages.is_finished(stage):
        _require_short(request, model.facts, length)
    require_writable(request.out, "--out")
    return stages.make(stage, lambda folder: _sample(request, model, length, folder, reporter), continues=True)


def start_token(model: Any, tokenizer: Any, name: str) -> int:
    """Return the token that texts begin after: BOS, or else EOS, which stood between the texts of the training."""
    for owner in (tokenizer, model.generation_config, model.config):
        if getattr(owner, "bos_token_id", None) is not None:
            return int(owner.bos_token_id)
    if tokenizer.eos_token_id is not None:
        return int(tokenizer.eos_token_id)
    raise ModelError(
        f"{name} has neither a BOS nor an EOS token, so that no text can begin without a prompt; give the tokenizer "
        "a bos_token, or take a model that has one."
    )


def _length(request: CorpusRequest, context: int | None) -> int:
    # The start token takes a place, and the last one of the text, which is not read, needs none.
    if request.length is None:
        return LONGEST if context is None else min(LONGEST, context)
    if context is not None and request.length > context:
        raise ConfigError(
            f"--length is {request.length}, but {request.model} reads at most {context} tokens; "
            f"give --length {context}."
        )
    return request.length


def _require_short(request: CorpusRequest, size: ModelFacts, length: int) -> None:
    """Raise ConfigError for texts that would take long on a CPU that was not given by its name."""
    if request.device != "cpu" or request.asked_device != AUTO:
        return
    texts = sum(request.texts.values())
    seconds = sampling_seconds(this_machine("cpu"), size, texts, length, _batch(request), request.dtype)
    message = too_long(seconds, asked=False, less="Fewer texts (--train N) take less.")
    if message is not None:
        raise ConfigError(message)


def _sample(request: CorpusRequest, model: Model, length: int, folder: Path, reporter: Reporter) -> None:
    with quiet_libraries():
        loaded = model.load(frozen=True)
        for split in SPLITS:
            count = request.texts[split]
            with (
                reporter.work(f"sample {request.name}.{split}", "texts") as progress,
                (folder / f"{request.name}.{split}.jsonl").open("a+b") as file,
            ):
                done = _whole_lines(file)
                progress(done, count)
                for row in _rows(request, loaded, split, length, done):
                    file.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")
                    done += 1
                    if done % _batch(request) == 0 or done == count:
                        file.flush()
                        progress(done, count)


def _rows(request: CorpusRequest, loaded: Any, split: str, length: int, done: int) -> Iterator[dict[str, Any]]:
    """Yield the rows of a split in order, without the first `done` ones."""
    import torch

    from emobench.inference.decoding.continuations import iter_continuations
    from emobench.inference.decoding.request import Decoding, Sampling
    from emobench.models.head import token_count

    start = start_token(loaded.model, loaded.tokenizer, request.model)
    count = request.texts[split]
    keys = [f"{split} {index}" for index in range(count)]
    rule = Sampling(seed=request.seed, suppress_eos=False)
    decoding = Decoding(rule=rule, length=length, token_budget=_batch(request) * (1 + length))
    batches = iter_continuations(
        loaded.model,
        [[start]] * count,
        prompt_keys=keys,
        decoding=decoding,
        vocabulary=token_count(loaded.tokenizer),
        done=range(done),
    )
    try:
        for index, (continuation,) in chain.from_iterable(batches):
            if index >= done:
                ids = continuation.ids
                text = loaded.tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
                yield {"id": index, "text": text, "length": len(ids), "ended": continuation.ended}
    except torch.OutOfMemoryError:
        raise ModelError(
            f"The device has no room for {_batch(request)} texts of {length} tokens at once; give a smaller --batch. "
            "Finished texts are kept."
        ) from None


def _batch(request: CorpusRequest) -> int:
    return request.batch or BATCH[request.device.partition(":")[0]]


def _whole_lines(file: BufferedRandom) -> int:
    """Return the number of lines, after cutting one that an interruption left incomplete."""
    file.seek(0)
    whole = 0
    size = 0
    for line in file:
        if line.endswith(b"\n"):
            whole += 1
            size += len(line)
    file.truncate(size)
    return whole


# The oracle of a small scale: a model that is first trained on other texts, and the texts that it then samples. The
# evaluated model begins where the oracle began, so that the oracle's texts are as far from it as that training goes.


def with_oracle(table: Table, oracle: Oracle, reporter: Reporter, request: Request) -> Request:
    """Return a request with the oracle and its texts, which are made if they are missing."""
    plan = make_plan(_teaching(table, oracle, request))
    ((_, folder),) = train_plan(plan, reporter)
    sampling = CorpusRequest(
        model=str(folder),
        out=request.runs,
        texts=oracle.texts,
        length=oracle.tokens,
        name=oracle.corpus,
        device=request.device,
        offline=request.offline,
    )
    texts = sample_corpus(sampling, reporter)
    return replace(
        request,
        settings={**request.settings, "oracle": {"model": str(folder), **request.section("oracle")}},
        data_dirs=(texts, *request.data_dirs),
    )


def without_oracle(table: Table, request: Request) -> Request:
    """Return a request without texts for the dry run: the oracle is as large as the model."""
    tasks = []
    for run in find_suite(table.suite).runs:
        tasks += map(short_name, run.tasks)
    oracle = {**request.section("oracle"), "model": PRETRAINED}
    return replace(request, settings={**request.settings, "oracle": oracle, "tasks": tasks})


def oracle_outline(table: Table, oracle: Oracle, request: Request, *, exact: bool = True) -> Outline:
    """Return the dry run of the oracle and its texts."""
    taught = make_outline(_teaching(table, oracle, request), exact=exact)
    lines = []
    for line in taught.lines:
        if line.objective:
            line = replace(line, what=f"the oracle: {line.what}")
        lines.append(line)
    assert request.model is not None
    size = base_model(request.model, replace(request, offline=True)).size
    count = sum(oracle.texts.values())
    tokens = count * oracle.tokens
    seconds = None
    if size is not None:
        batch = BATCH[request.device.partition(":")[0]]
        seconds = sampling_seconds(taught.machine, size, count, oracle.tokens, batch, request.weights)
    sampling = StageLine(
        stage="sample",
        what=f"{oracle.corpus}: texts of the oracle, once",
        amount=f"{count:,} texts, at most {tokens:,} tokens",
        tokens=tokens,
        seconds=seconds,
    )
    return replace(taught, lines=(*lines, sampling))


def _teaching(table: Table, oracle: Oracle, request: Request) -> Request:
    """Return the request that trains the oracle: the suite's recipe, MLE, other texts."""
    (run,) = find_suite(table.suite).runs
    return replace(
        request,
        suite=None,
        recipe=run.recipe,
        settings={"recipe": {**request.section("recipe"), "corpus": oracle.taught}},
        objectives=(table.baseline,),
        seeds=(0,),
    )
