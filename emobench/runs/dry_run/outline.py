"""What a dry run says: a line for each stage, in words and in numbers, and what the estimates rest on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from emobench.report.render.numbers import large
from emobench.runs.planning.estimate import Machine, duration, gigabytes
from emobench.runs.planning.prospects import Prospects

DONE, TO_DO, ABSENT = "finished", "to do", "not here"
ORDER = ("missing", "download", "embed", "train", "sample", "evaluate")
VERBS = {"train": "training", "embed": "embedding", "sample": "sampling", "evaluate": "evaluation"}


@dataclass(frozen=True, kw_only=True)
class StageLine:
    """One stage, in words and in numbers; estimates are rough, within a factor of two or three.

    None stands for what is not known, and for what a stage has not.
    """

    stage: str
    """download, missing (with --offline), embed, train, sample (a corpus) or evaluate."""
    what: str
    amount: str
    state: str = TO_DO
    tokens: int | None = None
    """train: target tokens; sample: those of the texts; evaluate and embed: tokens that are forwarded."""
    steps: int | None = None
    steps_at_rate_0: int | None = None
    """train: those of the steps whose learning rate is 0."""
    accumulation: int | None = None
    """train: micro-batches of a step, where those of the recipe do not fit the memory of the GPU."""
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
    """train and evaluate: the model, where an outline is of several, and what for."""
    objective: str = ""
    """train and evaluate: as it was asked for; empty for the pre-training of a made model."""
    seed: int | None = None
    group: str = ""
    """What is trained on, the task, the data set: what a line of several says of them."""

    @property
    def estimate(self) -> str:
        """Its time and memory, as far as they are known; empty for what is finished."""
        if self.state == DONE:
            return ""
        time = [] if self.seconds is None else [duration(self.seconds)]
        return ", ".join([*time, *([] if self.memory_bytes is None else [gigabytes(self.memory_bytes)])])

    def cells(self) -> tuple[str, ...]:
        """Return its row of the table."""
        return self.stage, self.what, self.amount, self.estimate, self.state


@dataclass(frozen=True)
class Outline:
    """The stages of a request, or of several, and what the estimates rest on."""

    title: str
    lines: tuple[StageLine, ...]
    machine: Machine
    assumptions: tuple[str, ...]
    ahead: tuple[str, ...] = ()
    """What comes before all else: that the command is long, or for another machine, and what to type."""
    verdicts: tuple[Prospects, ...] = ()
    """The verdicts that the entries can give, and what is missing for them."""
    several: bool = False
    """Whether it is of several requests, such as those of a table; its tasks are not shown one by one then."""

    def totals(self) -> Totals:
        """Return sums over what is to do."""
        left = [line for line in self.lines if line.state != DONE]
        return Totals(
            download_bytes=sum(line.download_bytes or 0 for line in left if line.stage == "download"),
            memory_bytes=max((line.memory_bytes or 0 for line in left), default=0),
            tokens={stage: sum(line.tokens or 0 for line in left if line.stage == stage) for stage in VERBS},
            seconds={stage: sum(line.seconds or 0.0 for line in left if line.stage == stage) for stage in VERBS},
            requests=sum(line.requests or 0 for line in left),
            request_tokens=sum(line.request_tokens or 0 for line in left),
            unknown=sum(
                (line.download_bytes if line.stage == "download" else line.seconds) is None
                for line in left
                if line.stage != "missing"
            ),
        )

    def notes(self) -> list[str]:
        """Return the totals in words, what the estimates assume, and a warning where the memory is too small."""
        if all(line.state == DONE for line in self.lines):
            return ["All is finished.", *self.prospects()]
        totals, limit = self.totals(), self.machine.memory
        parts = [f"{gigabytes(totals.download_bytes)} to download"] if totals.download_bytes else []
        for stage, tokens in totals.tokens.items():
            time = f", {duration(totals.seconds[stage])}" if totals.seconds[stage] else ""
            parts += [f"{VERBS[stage]} {large(tokens)} tokens{time}"] if tokens else []
        parts += [requests_words(totals.requests, totals.request_tokens)] if totals.requests else []
        parts += [f"at most {gigabytes(totals.memory_bytes)} of memory"] if totals.memory_bytes else []
        notes = [*self.ahead, *([f"To do, in all: {'; '.join(parts)}."] if parts else [])]
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
        return [line for one in self.verdicts for line in one.lines()]

    def joined(self, other: Outline) -> Outline:
        """Return both outlines as one; what both do is done once."""
        known = {(line.stage, line.what) for line in self.lines}
        lines = [*self.lines, *(line for line in other.lines if (line.stage, line.what) not in known)]
        lines.sort(key=lambda line: ORDER.index(line.stage))
        assumptions = tuple(dict.fromkeys((*self.assumptions, *other.assumptions)))
        ahead = tuple(dict.fromkeys((*self.ahead, *other.ahead)))
        verdicts = _joined(self.verdicts, other.verdicts)
        return replace(self, lines=tuple(lines), assumptions=assumptions, ahead=ahead, verdicts=verdicts)


def _joined(ours: Sequence[Prospects], theirs: Sequence[Prospects]) -> tuple[Prospects, ...]:
    """Return the prospects of two outlines of the same rows; none of others, which are compared in other ways."""
    both = [*ours, *theirs]
    alike = {(one.title, one.rows, one.trained, one.seeds) for one in both}
    return (max(both, key=lambda one: len(one.metrics)),) if len(alike) == 1 else ()


@dataclass(frozen=True, kw_only=True)
class Totals:
    """Sums over what is to do, by stage where there are several; `unknown` counts the stages of unknown size."""

    download_bytes: int
    memory_bytes: int
    """The most at once, of one stage."""
    tokens: dict[str, int]
    seconds: dict[str, float]
    requests: int
    """To endpoints that judge; `request_tokens` are those of their prompts and replies, at most."""
    request_tokens: int
    unknown: int

    @property
    def time(self) -> float:
        """Seconds of all stages, one after the other, as far as they are known."""
        return sum(self.seconds.values())


def run_words(subject: str, objective: str, seeds: str, of: str) -> str:
    """Return what a training or an evaluation is: "llama-7b: emo, seed 0, sst2 paper@5bf3dd"."""
    return (f"{subject}: " if subject else "") + ", ".join(filter(None, (objective, seeds, of)))


def training_words(line: StageLine, about: bool) -> str:
    """Return target tokens and steps; a rough count is rounded."""
    count = f"~{large(line.tokens or 0)}" if about else f"{line.tokens or 0:,}"
    if line.steps is None:
        return f"{count} target tokens, number of steps not known"
    rate_0 = f" ({line.steps_at_rate_0:,} at a rate of 0)" if line.steps_at_rate_0 else ""
    steps = "1 step" if line.steps == 1 else f"{'~' * about}{line.steps:,} steps"
    parts = f" of {line.accumulation} micro-batches, which fit the memory" if line.accumulation else ""
    return f"{count} target tokens, {steps}{parts}{rate_0}"


def evaluation_words(line: StageLine) -> str:
    """Return examples, the tokens that go through the model, and the requests to a judge."""
    count = "number of examples not known" if line.examples is None else f"at most {line.examples:,} examples"
    judged = "" if line.requests is None else f"; {requests_words(line.requests, line.request_tokens)}"
    return f"{count}{tokens_words(line.tokens)}{judged}"


def requests_words(requests: int, tokens: int | None) -> str:
    """Return how often an endpoint is asked, and the tokens that are paid for at most."""
    return f"{requests:,} requests to a judge{tokens_words(tokens)} at most"


def tokens_words(tokens: int | None) -> str:
    """Return a rough number of tokens, to be appended; empty where it is not known."""
    return "" if tokens is None else f", ~{large(tokens)} tokens"
