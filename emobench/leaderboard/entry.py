"""The leaderboard entry, schema 5: one row, a run group over its seeds, with all that is needed to trace and repeat it.

`entry.schema.json` beside this file says the same for other tools. Fractions are stored in [0, 1]; percent is shown.
A score that could not be computed is in `missing` with a reason; it is never 0.0 and never NaN.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal, TypeAlias

from emobench.core.errors import ConfigError
from emobench.core.settings import OPTIONAL, PRETRAINED, build, to_plain, utf8
from emobench.tasks.families import families
from emobench.tasks.scores import RANGES, SECONDARY

WIDEST = 0.7072
"""The largest standard deviation (n - 1) of numbers in [0, 1]: that of 0 and 1."""


@dataclass(frozen=True, kw_only=True)
class Component:
    """What one source adds to the noise of a metric (`components.py`), in its unit; of perplexities of their logarithm.

    `sd` is the standard deviation that one value would have if this source alone were drawn anew: of one seed, one
    sampling run, one k-means seed, on as many texts. `sd_of_mean` is that of the entry's mean, where the draws are
    averaged: seeds by their number, texts not at all, as every value is of the same ones. `draws` counts the seeds, the
    sampling runs of each, the k-means seeds of each run, or the texts.
    """

    sd: float
    sd_of_mean: float
    draws: int

    def __post_init__(self) -> None:
        _check_least(0, sd=self.sd, sd_of_mean=self.sd_of_mean)
        _check_least(1, draws=self.draws)


@dataclass(frozen=True, kw_only=True)
class MetricSummary:
    """One metric over the seeds of one entry.

    `mean` and `std` (n - 1; None below two values) are over `values`, which are in the order of the entry's seeds.
    `n` counts the examples behind one value, and `units` their sampling units (documents, subjects, passages);
    None if that is not known, and for a score that is not one of examples. `ci95` is a 95 % interval for the mean
    and `ci95_of` the randomness that it covers; without one, both are None and `ci95_missing` says why. `components`
    holds what "training seed", "sampling", "k-means" and "texts" add to the noise, as far as they can be distinguished:
    none if nothing was repeated.
    """

    mean: float
    std: float | None
    values: tuple[float, ...]
    n: int | None
    ci95: tuple[float, ...] | None
    ci95_of: Literal["seeds and items", "seeds", "items"] | None
    higher_is_better: bool | None
    unit: str
    flags: tuple[str, ...] = ()
    ci95_missing: str | None = None
    units: int | None = None
    components: Mapping[str, Component] = field(default_factory=dict)

    @property
    def of_tasks(self) -> bool:
        """Whether it is an aggregate of other tasks of its entry, which no mean over tasks counts again."""
        return any(flag.startswith("group_of_") for flag in self.flags)

    @property
    def secondary(self) -> bool:
        """Whether it describes a result and decides nothing (`emobench.tasks.scores.SECONDARY`)."""
        return SECONDARY in self.flags

    @property
    def left(self) -> float:
        """The standard error of `mean`: what the components leave in it, or what its values' spread shows, if more.

        Components are not all of the noise: of one value a seed, k-means may be the only one that is known. Of
        perplexities it is that of the logarithm.
        """
        values, shown = self.values, 0.0
        if self.unit == "perplexity":
            values = tuple(map(math.log, values))
        if len(values) > 1:
            shown = statistics.stdev(values) / math.sqrt(len(values))
        return max(shown, math.hypot(*(part.sd_of_mean for part in self.components.values())))

    def __post_init__(self) -> None:
        _refuse(self._wrong())
        _check_least(0, std=self.std)
        _check_least(1, n=self.n, units=self.units)

    def _wrong(self) -> Iterator[str]:
        values = {"mean": self.mean, **_at("values", self.values)}
        bounds = _at("ci95", self.ci95 or ())
        for place, number in {**values, "std": self.std or 0.0, **bounds}.items():
            if not math.isfinite(number):
                yield f"`{place}` is {number}; a score that could not be computed is missing."
        if self.ci95 is not None:
            if len(self.ci95) != 2:
                yield f"`ci95` is {self.ci95}; expected [low, high]."
            if self.ci95[0] > self.ci95[1]:
                yield f"`ci95` is {list(self.ci95)}; expected the lower bound first."
        if (self.ci95 is None) != (self.ci95_of is None):
            yield "`ci95` and `ci95_of` come together; give both."
        if (self.std is None) != (len(self.values) < 2):
            yield "`std` is a number from two values on, else null."
        if not self.unit:
            yield "`unit` is empty; give one, such as fraction, nats, perplexity or tokens."
        if self.values:
            mean = math.fsum(value / len(self.values) for value in self.values)  # their sum could overflow
            if not math.isclose(mean, self.mean, rel_tol=1e-6, abs_tol=1e-9):
                yield f"`mean` is {self.mean}, of its values {mean}."
        low, high = RANGES.get(self.unit, (-math.inf, math.inf))
        if self.unit == "fraction":
            # The bounds of a fraction are kept within its range by those who compute them.
            values |= bounds
            if (self.std or 0) > WIDEST:
                yield f"`std` is {self.std}; numbers in [0, 1] spread by {WIDEST} at most."
        for place, number in values.items():
            if not low <= number <= high:
                yield f"`{place}` is {number}, no {self.unit}; expected numbers in [{low:g}, {high:g}]."


def _at(name: str, values: Iterable[float]) -> dict[str, float]:
    return {f"{name}[{place}]": value for place, value in enumerate(values)}


def _refuse(wrong: Iterable[str]) -> None:
    """Raise ConfigError for the first thing that is wrong, if anything is."""
    for text in wrong:
        raise ConfigError(text)


def _check_least(least: int, **numbers: float | None) -> None:
    """Raise ConfigError for a number that is given and is less, or not finite."""
    for name, number in numbers.items():
        if number is not None and not least <= number < math.inf:
            raise ConfigError(f"`{name}` is {number}; expected {least} or more.")


def _check_sha256(**digests: str) -> None:
    for name, digest in digests.items():
        if not _SHA256.fullmatch(digest):
            raise ConfigError(f"`{name}` is {digest!r:.80}; expected 64 hex digits.")


SCHEMA_VERSION = 5
ROUNDING = 1e-6
"""A spread of a score over seeds that is no more than this part of it is float rounding, and no spread.

A float32 is exact to 6e-8, and sums in another order lose some of that. A seed whose training differs moves a score by
more: one other answer by 1 / n, a perplexity by far more than a millionth.
"""
YEARS = range(2000, 2100)
"""Of when an entry was made; others are of another calendar, or of a clock that was never set."""
DEEPEST = 16
"""Levels of mappings and lists in a recipe or in parameters: more is no setting, and every reader walks them."""

MOST_TRIALS = 1000
"""Trials of an objective."""
LONGEST_NAME = 2000
"""Characters of a name: of a model, an objective with its parameters, a metric."""
LONGEST_PART = 200
"""Bytes of a folder's or file's name in the path of a run's file; file systems take 255, with an ending of ours."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_METRIC = re.compile(r"[^/\s]+/\S+")
_ID = re.compile(r"[0-9a-f]{12}")
_INSIDE = re.compile(r"(?!/)(?!(.*/)?\.\.(/|$))[^\\\x00-\x1f]+")
_PYTHON_FILE = re.compile(r"\.py\s*:", re.IGNORECASE)
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, kw_only=True)
class SuiteVersion:
    name: str
    version: int

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ConfigError(f"`name` is {self.name!r}; expected at most 100 letters, digits, dots, - and _.")
        _check_least(1, version=self.version)

    def __str__(self) -> str:
        return f"{self.name} v{self.version}"


@dataclass(frozen=True, kw_only=True)
class Pretraining:
    """How the harness made a model: the seed, and a hash of all else. Of one setting, seeds are replicates."""

    seed: int
    setting: str

    def __post_init__(self) -> None:
        _check_sha256(setting=self.setting)


@dataclass(frozen=True, kw_only=True)
class Model:
    """`revision`: a resolved commit or the digest of a folder's files; where it is None, `source` identifies."""

    name: str
    source: str
    revision: str | None = None
    parameters: int | None = None
    pretraining: Pretraining | None = None
    """Of a model that the harness makes."""


@dataclass(frozen=True, kw_only=True)
class TrainedObjective:
    name: str
    version: str
    params: Mapping[str, Any]
    source_sha256: str | None = None

    @property
    def label(self) -> str:
        """The objective as `--objective` takes it: `emo`, `tailr(gamma=0.2)`."""
        shown = ", ".join(f"{key}={value}" for key, value in self.params.items())
        return f"{self.name}({shown})" if shown else self.name


@dataclass(frozen=True, kw_only=True)
class File:
    """A file of a run: its path within the runs folder, with slashes, and its sha256 in hex."""

    path: str
    sha256: str

    def __post_init__(self) -> None:
        _check_inside("path", self.path)
        _check_sha256(sha256=self.sha256)


@dataclass(frozen=True, kw_only=True)
class TrainedWeights:
    """The weights with which a run's `tasks` were evaluated, in the precision of the evaluation, and those of its base.

    Equal digests (sha256, in hex) are equal weights, bit by bit.
    """

    tasks: tuple[str, ...]
    base: str
    trained: str

    def __post_init__(self) -> None:
        _check_sha256(base=self.base, trained=self.trained)


@dataclass(frozen=True, kw_only=True)
class Run:
    """One seed: its key, and the files that stay beside the entry.

    `examples` are the per-example results (`examples.py`); `curves` the step logs of its trainings, one for each
    recipe of the suite; `samples` what its tasks generated, as the generation wrote it; `environment` all packages,
    hardware and flags with which its stages were computed; `weights` those of each of its trainings.
    """

    seed: int | None
    key: str
    examples: File | None = None
    curves: tuple[File, ...] = ()
    samples: tuple[File, ...] = ()
    environment: File | None = field(default=None, metadata=OPTIONAL)
    weights: tuple[TrainedWeights, ...] = field(default=(), metadata=OPTIONAL)

    def __post_init__(self) -> None:
        _check_inside("key", self.key)

    def files(self) -> tuple[File, ...]:
        """Return all files of the run."""
        files = (self.examples, self.environment, *self.curves, *self.samples)
        return tuple(file for file in files if file is not None)


@dataclass(frozen=True, kw_only=True)
class EntryCost:
    """Sums over the runs; the memory is the highest of any."""

    train_seconds: float | None = None
    evaluate_seconds: float | None = None
    tokens: int | None = None
    peak_memory_bytes: int | None = None
    accumulation: int | None = field(default=None, metadata=OPTIONAL)
    """Micro-batches of a step, where those of the recipe did not fit the memory; the most of any training."""

    def __post_init__(self) -> None:
        _check_least(0, **to_plain(self))


@dataclass(frozen=True, kw_only=True)
class EntrySource:
    """The command that made the entry, or the paper, table and cell (or file) that it was taken from."""

    command: str | None = None
    cite: str | None = None


@dataclass(frozen=True, kw_only=True)
class Provenance:
    commit: str | None
    packages: Mapping[str, str]
    hardware: str | None
    data: Mapping[str, str]
    created: str
    environment: Mapping[str, str] | None = field(default=None, metadata=OPTIONAL)
    """Threads, processor, GPU driver, torch's flags: the short facts of the file `environment` of its last run."""

    def __post_init__(self) -> None:
        try:
            year = datetime.fromisoformat(self.created).year
        except ValueError:
            text = f"`created` is {self.created!r}; expected a date and time such as 2026-01-31T12:00:00+00:00."
            raise ConfigError(text) from None
        if year not in YEARS:
            raise ConfigError(f"`created` is {self.created!r}; expected a year from {YEARS[0]} to {YEARS[-1]}.")


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One trial of a tuned objective: its settings, by their dotted names, and its result on validation data.

    `value` is the mean of the metric over the tasks, and `half_width` that of its 95 % interval over examples. A trial
    without a value has the reason in `missing`; it cannot be chosen. `trainings` are the keys of its trainings.
    """

    settings: Mapping[str, Any]
    value: float | None
    half_width: float | None = None
    missing: str | None = None
    trainings: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """How the settings of an entry were tuned: the space and the budget, each trial, and the chosen one.

    `asked` is the space as it was given, which is the same for all objectives, and `space` the settings of it that this
    objective has. `validation` has the protocol of each task whose scores decided, on validation data. `edge` names the
    settings whose chosen value is the smallest or the largest that was tried: a better one may lie outside.
    """

    asked: Mapping[str, str]
    space: Mapping[str, str]
    sampler: str
    seeds: tuple[int, ...]
    """Those of the trainings of each trial."""
    metric: str
    unit: str
    higher_is_better: bool
    validation: Mapping[str, str]
    trials: tuple[Trial, ...]
    chosen: int
    """The place of the chosen trial."""
    edge: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _refuse(self._wrong())

    def _wrong(self) -> Iterator[str]:
        _check_least(0, chosen=self.chosen)
        if not self.seeds:
            yield "`seeds` is empty; a trial has at least one."
        if len(self.trials) > MOST_TRIALS:
            yield f"`trials` are {len(self.trials):,}; expected {MOST_TRIALS:,} at most."
        low, high = RANGES.get(self.unit, (-math.inf, math.inf))
        results = []
        for trial in self.trials:
            _check_least(0, half_width=trial.half_width)
            if trial.settings.keys() != self.space.keys():
                yield f"A trial has the settings {list(trial.settings)}; expected {list(self.space)}."
            if trial.value is not None:
                results.append(trial.value)
                if not low <= trial.value <= high:
                    yield f"A trial has the value {trial.value}, no {self.unit}; expected [{low:g}, {high:g}]."
        best = max if self.higher_is_better else min
        chosen = self.trials[self.chosen : self.chosen + 1]
        if not results or [trial.value for trial in chosen] != [best(results)]:
            yield f"`chosen` is {self.chosen}; expected the place of a trial with the best value."

    @property
    def choice(self) -> Trial:
        """The chosen trial."""
        return self.trials[self.chosen]

    @property
    def metrics(self) -> set[str]:
        """The metrics that decided, "<task>/<metric>"."""
        return {f"{task}/{self.metric}" for task in self.validation}

    def __str__(self) -> str:
        """Return the condition that entries share which may be compared: all but the results."""
        asked = list(self.asked.items())
        if self.sampler != "grid":  # whose first settings have most values
            asked.sort()
        space = ", ".join(f"{name}={values}".rstrip("=") for name, values in asked)
        tasks = ", ".join(f"{task} {protocol}" for task, protocol in self.validation.items())
        trials = f"{len(self.trials)} x {len(self.seeds)} ({self.sampler})"
        return f"tuned {trials}: {space}; by {self.metric} on {tasks}"


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One leaderboard row. Make one with `new_entry`, read one with `read_entry`."""

    schema: Literal[5]
    kind: Literal["measured", "published", "imported"]
    id: str
    supersedes: str | None
    suite: SuiteVersion
    protocols: Mapping[str, str]
    """Task -> the id of its protocol, such as "paper@3fa9c1"."""
    changes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Task -> the rules that differ from the protocol of that name: "sampling.top_p" -> 0.9."""
    model: Model
    objective: TrainedObjective
    recipe: Mapping[str, Any]
    seeds: tuple[int, ...]
    metrics: Mapping[str, MetricSummary]
    primary: str | None = None
    """The primary endpoint: the suite's metric over the tasks of the run, "mean/<metric>", or "<task>/<metric>".

    None: the suite declares none, or no task of the run has it."""
    families: Mapping[str, str] = field(default_factory=dict)
    """Metric -> the family of tests within which its p is adjusted (`tasks.families`); one in none gets no verdict."""
    missing: Mapping[str, str]
    runs: tuple[Run, ...]
    cost: EntryCost
    source: EntrySource
    provenance: Provenance
    tuning: Tuning | None = field(default=None, metadata=OPTIONAL)
    """How the recipe and the parameters of the objective were tuned; None: they were given."""

    def __post_init__(self) -> None:
        _refuse(self._wrong())
        for seed in (*self.seeds, *(run.seed for run in self.runs)):
            _check_least(0, seed=seed)
        _check_least(1, parameters=self.model.parameters)

    def _wrong(self) -> Iterator[str]:
        if not _ID.fullmatch(self.id):
            yield f"`id` is {self.id!r}; expected 12 hex digits."
        if self.supersedes is not None and not _ID.fullmatch(self.supersedes):
            yield f"`supersedes` is {self.supersedes!r}; expected the 12 hex digits of an id."
        if _PYTHON_FILE.search(self.objective.name):
            yield f"`objective.name` is {self.objective.name!r:.200}; expected an objective's name, and not a file's."
        model, objective = self.model, self.objective
        names = [model.name, model.source, model.revision or "", objective.name, objective.label, objective.version]
        names += [*self.metrics, *self.protocols, *self.protocols.values(), self.primary or ""]
        longest = max(names, key=len)
        if len(longest) > LONGEST_NAME:
            yield f"{longest[:60]!r}... is a name of {len(longest):,} letters; expected {LONGEST_NAME:,} at most."
        plain = {**vars(self), "metrics": list(self.metrics), "runs": []}
        for place, leaf in _leaves(to_plain(plain)):
            if isinstance(leaf, str) and "\0" in leaf:
                yield f"`{place}` has the character NUL, which no name or file may have; remove it."
            if isinstance(leaf, float) and not math.isfinite(leaf):
                yield f"`{place}` is {leaf}; expected a finite number."
        for key in (*self.metrics, *self.missing):
            if not _METRIC.fullmatch(key):
                yield f"`metrics` or `missing` has {key!r}; expected <task>/<metric>."
            if key in self.metrics and key in self.missing:
                yield f"{key!r} is both measured and missing; keep one."
        for key, reason in self.missing.items():
            if not reason.strip():
                yield f"`missing` has {key!r} without a reason; say why it is absent."
        if self.primary is not None and not _METRIC.fullmatch(self.primary):
            yield f"`primary` is {self.primary!r}; expected <task>/<metric>, or mean/<metric>."
        for key, family in self.families.items():
            if key not in self.metrics:
                yield f"`families` has {key!r}, and `metrics` has not; expected metrics of this entry."
            if not family.strip():
                yield f"`families` has {key!r} without a name; leave out what is in no family."
        if len(set(self.seeds)) != len(self.seeds):
            yield f"`seeds` is {list(self.seeds)}; expected each seed once."
        if self.kind != "measured":
            if not self.source.cite:
                yield f"`source.cite` is empty; a {self.kind} entry names where it was taken from."
            return
        if not self.seeds and not self.untrained:
            yield "`seeds` is empty; a trained model has at least one."
        trained = [run.seed for run in self.runs if run.seed is not None]
        if trained not in ([], list(self.seeds)):
            yield f"`runs` has the seeds {trained}; expected {list(self.seeds)}."
        for key, metric in self.metrics.items():
            task, want = key.split("/", 1)[0], max(len(self.seeds), 1)
            if task not in self.protocols:
                yield f"`metrics` has {key!r}, but `protocols` has no {task!r}."
            if len(metric.values) != want:
                yield f"{key!r} has {len(metric.values)} values; expected one for each seed ({want})."

    @property
    def untrained(self) -> bool:
        return self.objective.name == PRETRAINED

    @property
    def declared(self) -> bool:
        """Whether another program trained the model, and objective, recipe and seed are as the user declares them."""
        return bool(self.recipe.get("declared"))

    def files(self) -> dict[File, bool]:
        """Return the files of all runs, and whether each has samples."""
        files = {}
        for run in self.runs:
            for file in run.files():
                files[file] = file in run.samples
        return files


Entries: TypeAlias = Sequence[Entry]


def entry_id(plain: Mapping[str, Any]) -> str:
    """Return the first 12 hex digits of the sha256 of the canonical JSON of a plain entry without its `id`.

    Plain: made of dicts, lists and scalars, as JSON or `to_plain` gives it. Raises ValueError for NaN and infinity, and
    ConfigError for text that is not valid UTF-8.
    """
    content = {key: value for key, value in plain.items() if key != "id"}
    # `config.canonical_json` without its walk through the value, which takes as long as all of this.
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(utf8(text)).hexdigest()[:12]


def new_entry(fields: Mapping[str, Any], where: str = "new entry") -> Entry:
    """Build an entry from all of its fields but `schema` and `id`; raises ConfigError.

    Values may be dataclasses of this module or plain mappings. Unless given, `families` are those of its metrics.
    """
    plain = to_plain(fields)
    if "families" not in plain:
        with suppress(AttributeError, LookupError, TypeError):  # plain data of another shape are refused below
            plain["families"] = families(plain["metrics"], plain["missing"])
    entry = build(Entry, {**plain, "schema": SCHEMA_VERSION, "id": "0" * 12}, where)
    return replace(entry, id=entry_id(to_plain(entry)))


def read_entry(plain: Any, where: str) -> Entry:
    """Build an entry from the content of a file, and verify its id.

    Raises ConfigError (UnknownNameError for an unknown key) for data that are no entry, are of another schema, or do
    not match their id.
    """
    if not isinstance(plain, Mapping):
        raise ConfigError(f"{where}: has no mapping, and so no entry. Restore or remove it.")
    schema = plain.get("schema")
    if type(schema) is not int:  # True and 5.0 are numbers, too
        raise ConfigError(f"{where}: does not hold an entry (`schema` is {schema!r:.60}; expected {SCHEMA_VERSION}).")
    if schema != SCHEMA_VERSION:
        advice = "Install a newer one." if schema > SCHEMA_VERSION else "Record the entry again."
        raise ConfigError(f"{where}: `schema` is {schema}; this emobench reads {SCHEMA_VERSION}. {advice}")
    entry = build(Entry, plain, where)
    try:
        # Of the entry as it is written: a number in quotes, which settings may have, has another id.
        actual = entry_id(to_plain(entry))
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None
    if actual != entry.id:
        raise ConfigError(
            f"{where}: `id` is {entry.id}, but the content's is {actual}: the file was altered. Restore it."
        )
    return entry


def _check_inside(name: str, path: str) -> None:
    """Raise ConfigError for a path that leaves its folder, or is too long for a file system."""
    longest = max(len(part.encode(errors="replace")) for part in path.split("/"))
    if len(path) > LONGEST_NAME or longest > LONGEST_PART or not _INSIDE.fullmatch(path):
        raise ConfigError(f"`{name}` is {path[:LONGEST_PART]!r}; expected a short path within the runs folder.")


def _leaves(value: Any, place: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Yield all texts and numbers of plain data with their places, its keys too."""
    if depth > DEEPEST:
        raise ConfigError(f"`{place[:60]}...` is nested deeper than {DEEPEST} levels; expected settings.")
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield place, key
            yield from _leaves(item, f"{place}.{key}".lstrip("."), depth + 1)
    elif isinstance(value, (list, tuple)):
        for key, item in enumerate(value):
            yield from _leaves(item, f"{place}[{key}]", depth + 1)
    else:
        yield place, value
