"""The text of a dry run: a line for each stage, in words and in numbers, and the assumptions of the estimates.

A table has one line for a row's seeds or swept values, and one for small downloads (`grouped`). Runs that would take a
CPU hours, days or years stop before any work, unless `--device cpu` is given (`require_short`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from emobench.core.errors import ConfigError, UserError
from emobench.models.device import AUTO
from emobench.report.numbers import large
from emobench.runs.planning.estimate import Machine, duration, gigabytes
from emobench.runs.planning.prospects import Prospects
from emobench.runs.planning.request import Request

DONE, TO_DO, ABSENT = "finished", "to do", "not here"
ORDER = ("missing", "download", "embed", "train", "sample", "evaluate")
VERBS = {"train": "training", "embed": "embedding", "sample": "sampling", "evaluate": "evaluation"}
SMALL = 5e7
"""Bytes of a download that gets no line of its own."""
ONE_PARAMETER = re.compile(r"(?P<name>[\w.-]+)\((?P<parameter>\w+)=(?P<value>[^,()]*)\)")
LONG = 4 * 3600.0
"""Seconds of a run on a CPU that has to be asked for: far more than the suites for CPUs take (minutes), less than a
night, and small beside the days of a model that was meant for a GPU."""
UNCERTAIN = 2
"""The factor by which an estimate may be too long or too short: a run is long if it is so at the least."""
ROUGH = 4
"""About how much a rough count may fall short of an exact one: it decides alone if it is this far below `LONG`."""


@dataclass(frozen=True, kw_only=True)
class StageLine:
    """One stage, in words and in numbers; estimates are rough, within a factor of two or three.

    None stands for unknown numbers, and for those that a stage does not have.
    """

    stage: str
    """download, missing (with --offline), embed, train, sample (a corpus) or evaluate."""
    what: str = ""
    amount: str = ""
    state: str = TO_DO
    tokens: int | None = None
    """train: target tokens; sample: those of the texts; evaluate and embed: tokens that are forwarded."""
    steps: int | None = None
    steps_at_rate_0: int | None = None
    """train: those of the steps whose learning rate is 0."""
    accumulation: int | None = None
    """train: micro-batches of a step, if those of the recipe do not fit the memory of the GPU."""
    seconds: float | None = None
    memory_bytes: int | None = None
    download_bytes: int | None = None
    examples: int | None = None
    """evaluate: test examples at most."""
    requests: int | None = None
    """evaluate: requests to an endpoint that judges."""
    request_tokens: int | None = None
    """Of their prompts and replies, at most."""
    subject: str = ""
    """train and evaluate: the model and the purpose, in an outline of several models."""
    objective: str = ""
    """train and evaluate: as given; empty for the pre-training of a made model."""
    seed: int | None = None
    group: str = ""
    """The training corpus, the task, or the data set, as a line of several names it."""

    @property
    def estimate(self) -> str:
        """Its time and memory, as far as they are known; empty for a finished stage."""
        parts = []
        if self.seconds is not None and self.state != DONE:
            parts.append(duration(self.seconds))
        if self.memory_bytes is not None and self.state != DONE:
            parts.append(gigabytes(self.memory_bytes))
        return ", ".join(parts)

    def cells(self) -> tuple[str, ...]:
        """Return its row of the table."""
        return self.stage, self.what, self.amount, self.estimate, self.state


@dataclass(kw_only=True)
class Totals:
    """Sums over unfinished stages, by kind; `unknown` counts the stages of unknown size."""

    download_bytes: int = 0
    memory_bytes: int = 0
    """The most at once, of one stage."""
    tokens: dict[str, int] = field(default_factory=lambda: dict.fromkeys(VERBS, 0))
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(VERBS, 0.0))
    requests: int = 0
    """To endpoints that judge; `request_tokens` are those of their prompts and replies, at most."""
    request_tokens: int = 0
    unknown: int = 0

    @property
    def time(self) -> float:
        """Seconds of all stages, one after the other, as far as they are known."""
        return sum(self.seconds.values())

    def add(self, line: StageLine) -> None:
        """Add a stage."""
        self.memory_bytes = max(self.memory_bytes, line.memory_bytes or 0)
        self.requests += line.requests or 0
        self.request_tokens += line.request_tokens or 0
        if line.stage in VERBS:
            self.tokens[line.stage] += line.tokens or 0
            self.seconds[line.stage] += line.seconds or 0.0
            self.unknown += line.seconds is None
        elif line.stage == "download":
            self.download_bytes += line.download_bytes or 0
            self.unknown += line.download_bytes is None


@dataclass(frozen=True)
class Outline:
    """The stages of a request, or of several, and the assumptions of the estimates."""

    title: str
    lines: tuple[StageLine, ...]
    machine: Machine
    assumptions: tuple[str, ...]
    ahead: tuple[str, ...] = ()
    """Warnings: that the command is long, or for another machine, and what to type."""
    verdicts: tuple[Prospects, ...] = ()
    """The verdicts that the entries can give, and what is missing for them."""
    several: bool = False
    """Whether it is of several requests, such as those of a table; its tasks are not shown one by one then."""

    def totals(self) -> Totals:
        """Return sums over unfinished stages."""
        totals = Totals()
        for line in self.lines:
            if line.state != DONE:
                totals.add(line)
        return totals

    def notes(self) -> list[str]:
        """Return the totals in words, the assumptions, and a warning if the memory is too small."""
        if all(line.state == DONE for line in self.lines):
            return ["All is finished.", *self.prospects()]
        totals, limit, notes = self.totals(), self.machine.memory, [*self.ahead]
        parts = []
        if totals.download_bytes:
            parts.append(f"{gigabytes(totals.download_bytes)} to download")
        for stage, tokens in totals.tokens.items():
            if tokens:
                time = f", {duration(totals.seconds[stage])}" if totals.seconds[stage] else ""
                parts.append(f"{VERBS[stage]} {large(tokens)} tokens{time}")
        if totals.requests:
            parts.append(requests_words(totals.requests, totals.request_tokens))
        if totals.memory_bytes:
            parts.append(f"at most {gigabytes(totals.memory_bytes)} of memory")
        if parts:
            notes.append(f"To do, in all: {'; '.join(parts)}.")
        if totals.unknown:
            stages = "stage" if totals.unknown == 1 else "stages"
            notes.append(f"Not in these sums: {totals.unknown} {stages} whose size is not known here.")
        if totals.memory_bytes > limit:
            notes.append(
                f"Too large: {gigabytes(totals.memory_bytes)} is more than the {gigabytes(limit)} of "
                f"{self.machine.place}. A training needs less with --set recipe.lora=true (and less again with "
                "recipe.weight_dtype=bfloat16), recipe.gradient_checkpointing=true or smaller micro-batches, such as "
                "recipe.accumulation=4; an evaluation with --dtype bfloat16."
            )
        return [*notes, *self.prospects(), *self.assumptions]

    def prospects(self) -> list[str]:
        """Return which verdicts the entries can give, in words."""
        return [line for verdict in self.verdicts for line in verdict.lines()]

    def joined(self, other: Outline) -> Outline:
        """Return both outlines as one; what both do is done once. Verdicts are kept if both are of the same rows."""
        known = {(line.stage, line.what) for line in self.lines}
        lines = [*self.lines, *(line for line in other.lines if (line.stage, line.what) not in known)]
        lines.sort(key=lambda line: ORDER.index(line.stage))
        verdicts = (*self.verdicts, *other.verdicts)
        if len({(one.title, one.rows, one.trained, one.seeds) for one in verdicts}) == 1:
            verdicts = (max(verdicts, key=lambda one: len(one.metrics)),)
        else:
            verdicts = ()
        return replace(
            self,
            lines=tuple(lines),
            assumptions=tuple(dict.fromkeys((*self.assumptions, *other.assumptions))),
            ahead=tuple(dict.fromkeys((*self.ahead, *other.ahead))),
            verdicts=verdicts,
        )


def run_words(subject: str, objective: str, seeds: str, of: str) -> str:
    """Return what a training or an evaluation is: "llama-7b: emo, seed 0, sst2 paper@5bf3dd"."""
    words = ", ".join(filter(None, (objective, seeds, of)))
    return f"{subject}: {words}" if subject else words


def training_words(line: StageLine, about: bool) -> str:
    """Return target tokens and steps; a rough count is rounded."""
    tokens = line.tokens or 0
    count = f"~{large(tokens)}" if about else f"{tokens:,}"
    if line.steps is None:
        return f"{count} target tokens, number of steps not known"
    words = f"{count} target tokens, "
    words += "1 step" if line.steps == 1 else f"{'~' * about}{line.steps:,} steps"
    if line.accumulation:
        words += f" of {line.accumulation} micro-batches, which fit the memory"
    if line.steps_at_rate_0:
        words += f" ({line.steps_at_rate_0:,} at a rate of 0)"
    return words


def evaluation_words(line: StageLine) -> str:
    """Return examples, the tokens that go through the model, and the requests to a judge."""
    words = "number of examples not known" if line.examples is None else f"at most {line.examples:,} examples"
    words += tokens_words(line.tokens)
    if line.requests is not None:
        words += f"; {requests_words(line.requests, line.request_tokens)}"
    return words


def requests_words(requests: int, tokens: int | None) -> str:
    """Return how often an endpoint is asked, and the tokens that are paid for at most."""
    return f"{requests:,} requests to a judge{tokens_words(tokens)} at most"


def tokens_words(tokens: int | None) -> str:
    """Return a rough number of tokens, to be appended; empty if it is unknown."""
    return "" if tokens is None else f", ~{large(tokens)} tokens"


def grouped(outline: Outline) -> list[StageLine]:
    """Return fewer lines with the same sums; in an outline of several models the tasks of a row are one line too."""
    groups: dict[tuple[str, ...], list[StageLine]] = {}
    for line in outline.lines:
        groups.setdefault(_key(line, outline.several), []).append(line)
    return [lines[0] if len(lines) == 1 else _as_one(lines) for lines in groups.values()]


def _key(line: StageLine, several: bool) -> tuple[str, ...]:
    """Return what the lines of a group share."""
    if line.stage in ("download", "missing"):
        small = line.group and line.download_bytes is not None and line.download_bytes < SMALL
        return (line.stage, "" if small else line.what)
    if line.stage == "embed":
        return (line.stage, line.group if several else line.what)
    if not line.objective:
        return (line.stage, line.what)
    objective = line.objective
    if several and (swept := ONE_PARAMETER.fullmatch(objective)):
        objective = f"{swept['name']}({swept['parameter']}"
    return (line.stage, line.subject, objective, "" if several and line.stage == "evaluate" else line.group)


def _as_one(lines: Sequence[StageLine]) -> StageLine:
    """Return one line for small downloads, for embeddings, or for the seeds, the swept values and tasks of a row."""
    summed, first = _summed(lines), lines[0]
    groups = list(dict.fromkeys(line.group for line in lines))
    if first.stage in ("download", "missing"):
        size = summed.download_bytes or 0
        amount = "under 0.05 GB in all" if size < SMALL else f"{gigabytes(size)} in all"
        what = f"{len(lines)} small data sets and corpora: {', '.join(line.group for line in lines)}"
        return replace(first, what=what, amount=amount, download_bytes=size)
    if first.stage == "embed":
        return replace(summed, what=first.group, amount=f"{len(lines)} tasks{tokens_words(summed.tokens)}")
    seeds = list(dict.fromkeys(line.seed for line in lines))
    shown = f"seed {seeds[0]}" if len(seeds) == 1 else f"{len(seeds)} seeds"
    objective = _swept(list(dict.fromkeys(line.objective for line in lines)))
    of = first.group if len(groups) == 1 else ""
    what, amount = run_words(first.subject, objective, shown, of), first.amount
    if first.stage == "train":
        if summed.tokens is not None:
            amount = training_words(summed, any(line.amount.startswith("~") for line in lines))
    elif len(groups) == 1:
        amount = evaluation_words(summed)
    else:
        amount = f"{len(groups)} tasks" if len(groups) == len(lines) else f"{len(lines)} evaluations"
        amount += tokens_words(summed.tokens)
    return replace(summed, what=what, amount=amount)


def _summed(lines: Sequence[StageLine]) -> StageLine:
    """Return the first line with the sums of the known numbers of several; the time is of unfinished stages."""
    left = [line for line in lines if line.state != DONE]
    sums: dict[str, Any] = {}
    for name in ("tokens", "steps", "steps_at_rate_0", "examples", "requests", "request_tokens", "download_bytes"):
        sums[name] = _sum(getattr(line, name) for line in lines)
    state = TO_DO
    if not left:
        state = DONE
    elif len(left) < len(lines):
        state = f"{len(lines) - len(left)} of {len(lines)} {DONE}"
    memory = max(line.memory_bytes or 0 for line in lines)
    return replace(
        lines[0], state=state, seconds=_sum(line.seconds for line in left), memory_bytes=memory or None, **sums
    )


def _sum(numbers: Iterable[Any]) -> Any:
    """Return the sum of the known numbers; None if there are none."""
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None


def _swept(objectives: Sequence[str]) -> str:
    """Return objectives that differ in the value of one parameter as one, with its values."""
    matches = [match for match in map(ONE_PARAMETER.fullmatch, objectives) if match]
    if len(objectives) == 1 or not matches:
        return objectives[0]
    values = "|".join(match["value"] for match in matches)
    return f"{matches[0]['name']}({matches[0]['parameter']}={values})"


class OutlineOf(Protocol):
    """Makes the outline of a request; without `exact`, at once."""

    def __call__(self, request: Request, *, exact: bool = True) -> Outline: ...


def advised(request: Request, outline_of: OutlineOf) -> Outline:
    """Return the outline of a request for a dry run. If a CPU would take long, it begins with what to type."""
    outline = outline_of(request)
    if request.device.startswith("cuda"):
        return outline
    advice = _advice(request, outline, outline_of)
    return replace(outline, ahead=(advice, *outline.ahead)) if advice else outline


def require_short(request: Request, outline_of: OutlineOf) -> None:
    """Raise ConfigError for a request that would be long on a CPU that was not given by its name.

    A wrong request passes: its plan, which comes next, raises the error.
    """
    if request.device != "cpu" or request.asked_device != AUTO:
        return
    try:
        rough = outline_of(request, exact=False).totals().time
    except UserError:
        return
    # Almost every run on a CPU is short, and is not to wait for its corpus to be tokenized once more than it needs.
    if rough > UNCERTAIN * LONG / ROUGH and (advice := _advice(request, outline_of(request), outline_of)):
        raise ConfigError(f"{advice} Add --dry-run to see each stage.")


def too_long(here: float, on_gpu: float | None, less: str, *, asked: bool, unknown: int = 0) -> str | None:
    """Return the advice for a run that takes about `here` seconds on the CPU; None if that may be short.

    `on_gpu`: seconds on a GPU, if they are known. `asked`: the CPU was given by its name, so that the run starts.
    """
    if here <= UNCERTAIN * LONG:
        return None
    times = (
        f"about {duration(here)} ({duration(here / UNCERTAIN)} to {duration(here * UNCERTAIN)}) on this machine's CPU"
    )
    if unknown:
        times += f", not counting {unknown} stages whose size is not known"
    if on_gpu is not None:
        times += f"; on one H100-class GPU about {duration(on_gpu)}"
    if asked:
        return f"Long: this takes {times}. For a GPU give --device cuda; for less work, {less}."
    return (
        f"Too long to start unasked: there is no CUDA device here, and this takes {times}. Give --device cpu to run it "
        f"here all the same, or --device cuda on a machine with a GPU; for less work, {less}."
    )


def _advice(request: Request, outline: Outline, outline_of: OutlineOf) -> str | None:
    totals = outline.totals()
    if totals.time <= UNCERTAIN * LONG:
        return None
    elsewhere = outline_of(replace(request, device="cuda"), exact=False).totals().time
    stages, less = {line.stage for line in outline.lines}, ["a smaller --model"]
    if "evaluate" in stages:
        less.append("--limit N")
    if "train" in stages:
        less.append("--set recipe.max_tokens=N")
    asked = request.asked_device != AUTO
    return too_long(totals.time, elsewhere, " or ".join(less), asked=asked, unknown=totals.unknown)
