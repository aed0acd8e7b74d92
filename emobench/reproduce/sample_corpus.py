"""Corpora that a model samples, each text from nothing: the training data of the oracle experiment (EMO paper, 4.1.3).

    DIR/<name>.<split>.jsonl      {"id": 0, "text": "...", "length": 57, "ended": true} a line, like OpenAI's
                                  gpt-2-output-dataset; `--data-dir DIR` takes it in place of that corpus
    DIR/<name>.json               what the texts were sampled from, and the numbers and sha256 of each whole split
    DIR/<name>.<split>.part       a file that is being made; a later call goes on from it

A text is what it is by the model, the seed, its split and its place: in float32 on a CPU neither the batch nor an
interruption changes it. Nothing is rejected, cut or drawn again, not even the empty text: what is sampled is exactly
the oracle's distribution, and what reads a corpus skips blank rows by itself.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from io import BufferedRandom
from pathlib import Path
from typing import Any

from emobench import __version__
from emobench.core.errors import ConfigError, DataError, ModelError, UnknownNameError
from emobench.core.locks import locked
from emobench.core.reading import open_file, parse_json, path_exists, read_text
from emobench.core.settings import to_plain
from emobench.data.sources import SPLITS
from emobench.models.catalog import ModelSource, find_model
from emobench.models.device import AUTO, DTYPES, check_device
from emobench.models.quiet import quiet_libraries
from emobench.runs.dry_run.outline import too_long
from emobench.runs.execution.reporter import Progress, Reporter
from emobench.runs.planning.estimate import H100, ModelSize, sampling_seconds, this_machine
from emobench.runs.stages.storage import require_writable, storage_errors

LONGEST = 1024
"""Tokens of a text where the model reads that many: those of the gpt-2-output-dataset."""
BATCH = {"cpu": 16, "cuda": 64}


@dataclass(frozen=True, kw_only=True)
class CorpusRequest:
    """One call of `emobench sample-corpus`."""

    model: str
    out: Path
    texts: Mapping[str, int] = field(default_factory=lambda: {"train": 250_000, "validation": 5_000, "test": 5_000})
    length: int | None = None
    """Tokens of a text at most; None: 1,024, or what the model reads."""
    name: str = "gpt2-oracle"
    seed: int = 0
    batch: int | None = None
    """Texts that are sampled at once; decides no text in float32 on a CPU."""
    device: str = "cpu"
    asked_device: str = ""
    """As it was given; `device` is what that came to."""
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

    def file(self, split: str) -> Path:
        """Return where the texts of a split are when all are there."""
        return self.out / f"{self.name}.{split}.jsonl"

    @property
    def facts_file(self) -> Path:
        return self.out / f"{self.name}.json"


def sample_corpus(request: CorpusRequest, reporter: Reporter) -> dict[str, Any]:
    """Sample what is not there yet, and return the facts that the folder holds.

    Another process that samples into the folder is waited for. Raises ModelError for a model without a start token,
    ConfigError for a folder that other settings made, DataError for one whose files were altered.
    """
    from emobench.models.load import check_model

    check_device(request.device)
    source = find_model(request.model, offline=request.offline)
    with quiet_libraries():
        known = check_model(source, offline=request.offline, trust_remote_code=request.trust_remote_code)
    length = _length(request, known.context)
    _require_short(request, known.parameters, length)
    require_writable(request.out, "--out")
    with storage_errors(request.out, "--out"), locked(request.facts_file.with_suffix(".lock")):
        facts = _claim(request, _settings(request, source, length))
        _check_finished(request, facts["splits"])
        if not all(request.file(split).exists() for split in SPLITS):
            with quiet_libraries():
                _sample(request, source, facts, reporter)
    return facts


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


def _require_short(request: CorpusRequest, parameters: int, length: int) -> None:
    """Raise ConfigError for texts that would take long on a CPU that was not given by its name."""
    if request.device != "cpu" or request.asked_device != AUTO:
        return
    left = sum(count for split, count in request.texts.items() if not request.file(split).is_file())
    size = ModelSize(parameters=parameters)
    here, gpu = (
        sampling_seconds(machine, size, left, length, request.batch or BATCH[kind], request.dtype)
        for kind, machine in (("cpu", this_machine("cpu")), ("cuda", H100))
    )
    said = too_long(here, gpu, "fewer texts by --train N", asked=False)
    if said is not None:
        raise ConfigError(said)


def _settings(request: CorpusRequest, source: ModelSource, length: int) -> dict[str, Any]:
    """Return all that decides the texts."""
    from emobench.models.folder import identity

    plain = {
        "emobench": __version__,
        "corpus": request.name,
        "model": {"name": source.name, **identity(source)},
        "seed": request.seed,
        "length": length,
        "dtype": request.dtype,
        "device": request.device.partition(":")[0],
        "texts": {split: request.texts[split] for split in SPLITS},
    }
    return to_plain(plain)


def _claim(request: CorpusRequest, settings: dict[str, Any]) -> dict[str, Any]:
    """Return the folder's facts, noted if it has none; raise ConfigError where it holds texts of other settings."""
    other = "Give another --out or --name, or the settings that it was made with"
    found = _read_facts(request)
    if found is not None:
        differing = [key for key, value in settings.items() if found.get(key) != value]
        if differing:
            pairs = ((key, _shown(found.get(key)), _shown(settings[key])) for key in differing)
            given = ", ".join(f"{key} {there} there, {here} here" for key, there, here in pairs)
            raise ConfigError(f"{request.facts_file} was made with other settings: {given}. {other}.")
        return found
    for split in SPLITS:
        if path_exists(request.file(split)):
            raise ConfigError(f"{request.file(split)} is there, and not by this command. {other}.")
    facts = {**settings, "splits": {}}
    _write(request.facts_file, facts)
    return facts


def _read_facts(request: CorpusRequest) -> dict[str, Any] | None:
    """Return what the folder's facts say, None where there are none."""
    file = request.facts_file
    advice = f"Restore it, or move all files {request.out / request.name}.* elsewhere and sample them anew."
    try:
        found = parse_json(read_text(file))
        if isinstance(found, dict) and isinstance(found.get("splits"), dict):
            return found
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error.strerror}. {advice}") from None
    except ValueError as error:
        raise DataError(f"{file} is no JSON: {error}. {advice}") from None
    raise DataError(f"{file} does not hold what this command writes: it was altered. {advice}")


def _check_finished(request: CorpusRequest, recorded: Mapping[str, Any]) -> None:
    """Raise DataError for a split that is not what was recorded of it when it was finished."""
    for split in SPLITS:
        file = request.file(split)
        if file.exists() and _count(file, request.texts[split]) != recorded.get(split):
            raise _altered(file)


def _sample(request: CorpusRequest, source: ModelSource, facts: dict[str, Any], reporter: Reporter) -> None:
    from emobench.models.load import load_model

    loaded = load_model(
        source,
        dtype=request.dtype,
        device=request.device,
        offline=request.offline,
        trust_remote_code=request.trust_remote_code,
        frozen=True,
    )
    for split in SPLITS:
        final = request.file(split)
        if not final.exists():
            part = final.with_suffix(".part")
            with reporter.work(f"sample {request.name}.{split}", "texts") as progress:
                _sample_split(request, loaded, split, facts["length"], part, progress)
            facts["splits"][split] = _count(part, request.texts[split])
            _write(request.facts_file, facts)
            part.replace(final)


def _sample_split(request: CorpusRequest, loaded: Any, split: str, length: int, part: Path, progress: Progress) -> None:
    count = request.texts[split]
    with part.open("a+b") as file:
        there = _whole_lines(file)
        progress(there, count)
        for index, row in _rows(request, loaded, split, length, there):
            file.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")
            if (index + 1) % _batch(request) == 0 or index + 1 == count:
                file.flush()
                progress(index + 1, count)


def _rows(
    request: CorpusRequest, loaded: Any, split: str, length: int, there: int
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the rows of a split in order, from the first that is not there."""
    import torch

    from emobench.inference.decoding.continuations import iter_continuations
    from emobench.inference.decoding.request import Decoding
    from emobench.kinds.shared_rules import Sampling
    from emobench.models.head import token_count

    start = start_token(loaded.model, loaded.tokenizer, request.model)
    count = request.texts[split]
    batches = iter_continuations(
        loaded.model,
        [[start]] * count,
        prompt_keys=[f"{split} {index}" for index in range(count)],
        decoding=Decoding(
            rule=Sampling(seed=request.seed, suppress_eos=False),
            length=length,
            token_budget=_batch(request) * (1 + length),
        ),
        vocabulary=token_count(loaded.tokenizer),
        done=range(there),
    )
    try:
        for batch in batches:
            for index, (continuation,) in batch:
                if index >= there:
                    text = loaded.tokenizer.decode(
                        continuation.ids, skip_special_tokens=False, clean_up_tokenization_spaces=False
                    )
                    length_ = len(continuation.ids)
                    yield index, {"id": index, "text": text, "length": length_, "ended": continuation.ended}
    except torch.OutOfMemoryError:
        raise ModelError(
            f"The device has no room for {_batch(request)} texts of {length} tokens at once; give a smaller --batch. "
            "What is sampled is kept."
        ) from None


def _batch(request: CorpusRequest) -> int:
    return request.batch or BATCH[request.device.partition(":")[0]]


def _whole_lines(file: BufferedRandom) -> int:
    """Return how many lines are there, after cutting one that an interruption left half written."""
    file.seek(0)
    whole, size = 0, 0
    for line in file:
        if line.endswith(b"\n"):
            whole, size = whole + 1, size + len(line)
    file.truncate(size)
    return whole


def _count(file: Path, texts: int) -> dict[str, Any]:
    """Return what is recorded of a whole file. Raises DataError for one whose rows are not 0 to `texts` - 1."""
    digest = hashlib.sha256()
    found = {"texts": 0, "tokens": 0, "ended": 0, "blank": 0}
    try:
        with open_file(file) as lines:
            for line in lines:
                digest.update(line)
                row = json.loads(line)
                if row["id"] != found["texts"]:
                    raise _altered(file)
                found["texts"] += 1
                found["tokens"] += row["length"]
                found["ended"] += row["ended"]
                found["blank"] += not row["text"].strip()
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error.strerror}. Move it elsewhere and run this again.") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise _altered(file) from None
    if found["texts"] != texts:
        raise _altered(file)
    return {**found, "sha256": digest.hexdigest()}


def _altered(file: Path) -> DataError:
    return DataError(f"{file} was altered since it was sampled; restore it, or delete it and run this again.")


def _write(file: Path, facts: dict[str, Any]) -> None:
    part = file.with_suffix(".json.part")
    part.write_text(json.dumps(facts, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    part.replace(file)


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
