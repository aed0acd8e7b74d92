"""The leaderboard entry, schema 1: one row, a run group over its seeds, with all that is needed to trace and repeat it.

`entry.schema.json` beside this file says the same for other tools. Fractions are stored in [0, 1]; percent is shown.
A score that could not be computed is in `missing` with a reason; it is never 0.0 and never NaN.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from emobench.config import PRETRAINED, build, content_hash, to_plain
from emobench.errors import ConfigError

SCHEMA_VERSION = 1
JSON_SCHEMA = Path(__file__).with_name("entry.schema.json")
"""The reserved objective name of a model as it is: without training, so that it has no recipe and no seeds."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_METRIC = re.compile(r"[^/\s]+/\S+")
_ID = re.compile(r"[0-9a-f]{12}")


@dataclass(frozen=True, kw_only=True)
class MetricSummary:
    """One metric over the seeds of one entry.

    `mean` and `std` (n - 1; None below two values) are over `values`, which are in the order of the entry's seeds.
    `n` counts the examples behind one value. `ci95` is a 95 % interval for the mean and `ci95_of` the randomness
    that it covers; without one, both are None and `ci95_missing` says why.
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

    def __post_init__(self) -> None:
        for place, number in _numbers(to_plain(self)):
            _require(math.isfinite(number), f"`{place}` is {number}; a score that could not be computed is missing.")
        low, high = self.ci95 if self.ci95 and len(self.ci95) == 2 else (0.0, 0.0)
        _require(self.ci95 is None or len(self.ci95) == 2, f"`ci95` is {self.ci95}; expected [low, high].")
        _require(low <= high, f"`ci95` is [{low}, {high}]; expected the lower bound first.")
        _require((self.ci95 is None) == (self.ci95_of is None), "`ci95` and `ci95_of` come together; give both.")
        _require(
            (self.std is None) == (len(self.values) < 2),
            "`std` is a number from two values on, else null.",
        )
        _require(self.std is None or self.std >= 0, f"`std` is {self.std}; expected 0 or more.")
        _require(self.n is None or self.n >= 1, f"`n` is {self.n}; expected 1 or more.")
        _require(bool(self.unit), "`unit` is empty; give one, such as fraction, nats, perplexity or tokens.")
        if self.values:
            mean = math.fsum(self.values) / len(self.values)
            _require(
                math.isclose(mean, self.mean, rel_tol=1e-6, abs_tol=1e-9),
                f"`mean` is {self.mean}, of its values {mean}.",
            )
        if self.unit == "fraction":
            bad = [x for x in (self.mean, *self.values, *(self.ci95 or ())) if not 0 <= x <= 1]
            _require(not bad, f"{bad[:1]} is no fraction; expected numbers in [0, 1] (percent is only shown).")


@dataclass(frozen=True, kw_only=True)
class Suite:
    name: str
    version: int

    def __post_init__(self) -> None:
        _require(bool(_NAME.fullmatch(self.name)), f"`name` is {self.name!r}; expected letters, digits, dots, - and _.")
        _require(self.version >= 1, f"`version` is {self.version}; expected 1 or more.")

    def __str__(self) -> str:
        return f"{self.name} v{self.version}"


@dataclass(frozen=True, kw_only=True)
class Model:
    """`revision`: a resolved commit or the digest of a local folder's files; where it is None, `source` identifies."""

    name: str
    source: str
    revision: str | None = None
    parameters: int | None = None


@dataclass(frozen=True, kw_only=True)
class Objective:
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
class Examples:
    """Where a run's per-example results are (relative to the runs folder, or absolute), and their sha256 in hex."""

    path: str
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Run:
    seed: int | None
    key: str
    examples: Examples | None = None


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Sums over the runs; the memory is the highest of any."""

    train_seconds: float | None = None
    evaluate_seconds: float | None = None
    tokens: int | None = None
    peak_memory_bytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class Source:
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

    def __post_init__(self) -> None:
        try:
            datetime.fromisoformat(self.created)
        except ValueError:
            text = f"`created` is {self.created!r}; expected a date and time such as 2026-01-31T12:00:00+00:00."
            raise ConfigError(text) from None


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One leaderboard row. Make one with `new_entry`, read one with `read_entry`."""

    schema: Literal[1]
    kind: Literal["measured", "published", "imported"]
    id: str
    supersedes: str | None
    suite: Suite
    protocols: Mapping[str, str]
    model: Model
    objective: Objective
    recipe: Mapping[str, Any]
    seeds: tuple[int, ...]
    metrics: Mapping[str, MetricSummary]
    missing: Mapping[str, str]
    runs: tuple[Run, ...]
    cost: Cost
    source: Source
    provenance: Provenance

    def __post_init__(self) -> None:
        _require(bool(_ID.fullmatch(self.id)), f"`id` is {self.id!r}; expected 12 hex digits.")
        superseded = self.supersedes is None or bool(_ID.fullmatch(self.supersedes))
        _require(superseded, f"`supersedes` is {self.supersedes!r}; expected the 12 hex digits of an id.")
        for place, number in _numbers(
            {"recipe": self.recipe, "params": self.objective.params, "cost": to_plain(self.cost)}
        ):
            _require(math.isfinite(number), f"`{place}` is {number}; expected a finite number.")
        for key in (*self.metrics, *self.missing):
            _require(bool(_METRIC.fullmatch(key)), f"`metrics` or `missing` has {key!r}; expected <task>/<metric>.")
            _require(
                not (key in self.metrics and key in self.missing), f"{key!r} is both measured and missing; keep one."
            )
        for key, reason in self.missing.items():
            _require(bool(reason.strip()), f"`missing` has {key!r} without a reason; say why it is absent.")
        _require(len(set(self.seeds)) == len(self.seeds), f"`seeds` is {list(self.seeds)}; expected each seed once.")
        if self.kind == "measured":
            self._check_measured()
        else:
            _require(
                bool(self.source.cite), f"`source.cite` is empty; a {self.kind} entry names where it was taken from."
            )

    def _check_measured(self) -> None:
        _require(bool(self.seeds) or self.untrained, "`seeds` is empty; a trained model has at least one.")
        trained = [run.seed for run in self.runs if run.seed is not None]
        _require(trained in ([], list(self.seeds)), f"`runs` has the seeds {trained}; expected {list(self.seeds)}.")
        for key, metric in self.metrics.items():
            task, want = key.split("/", 1)[0], max(len(self.seeds), 1)
            _require(task in self.protocols, f"`metrics` has {key!r}, but `protocols` has no {task!r}.")
            _require(
                len(metric.values) == want,
                f"{key!r} has {len(metric.values)} values; expected one for each seed ({want}).",
            )

    @property
    def untrained(self) -> bool:
        return self.objective.name == PRETRAINED


def entry_id(plain: Mapping[str, Any]) -> str:
    """Return the first 12 hex digits of the sha256 of the canonical JSON of a plain entry without its `id`."""
    return content_hash({key: value for key, value in plain.items() if key != "id"})[:12]


def new_entry(fields: Mapping[str, Any], where: str = "new entry") -> Entry:
    """Build an entry from all of its fields but `schema` and `id`; raises ConfigError.

    Values may be dataclasses of this module or plain mappings.
    """
    entry = build(Entry, {**to_plain(fields), "schema": SCHEMA_VERSION, "id": "0" * 12}, where)
    return build(Entry, {**to_plain(entry), "id": entry_id(to_plain(entry))}, where)


def read_entry(plain: Any, where: str) -> Entry:
    """Build an entry from what a file holds; raises ConfigError (UnknownNameError for a
    key that is none), also where the content does not match the id."""
    if isinstance(plain, Mapping) and plain.get("schema", SCHEMA_VERSION) != SCHEMA_VERSION:
        given = plain["schema"]
        raise ConfigError(
            f"{where}: `schema` is {given!r}; this emobench reads schema {SCHEMA_VERSION}. Install a newer one."
        )
    entry = build(Entry, plain, where)
    actual = entry_id(plain)
    if actual != entry.id:
        raise ConfigError(
            f"{where}: `id` is {entry.id}, but the content's is {actual}: the file was altered. Restore it."
        )
    return entry


def _numbers(value: Any, place: str = "") -> Iterator[tuple[str, float]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _numbers(item, f"{place}.{key}" if place else str(key))
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from _numbers(item, f"{place}[{index}]")
    elif isinstance(value, float):
        yield place, value


def _require(holds: bool, text: str) -> None:
    if not holds:
        raise ConfigError(text)
