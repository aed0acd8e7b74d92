"""A dry run: a plan as lines, with amounts and estimates from local files or from documented sizes, and as text.

Nothing is downloaded and no hub is asked. If all files of a request are on this machine, the plan has all its checks,
exact counts and finished stages; otherwise names are checked, and sizes come from the catalog and the task files. Runs
that would take a CPU hours, days or years stop before any work, unless `--device cpu` is given (`require_short`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from emobench.core.errors import ConfigError, UserError
from emobench.core.settings import PRETRAINED
from emobench.inference.vllm.package import generating_program
from emobench.kinds.cost import Cost
from emobench.models.catalog import ModelFacts
from emobench.models.device import AUTO, MPS, MPS_NOTE, is_here
from emobench.report.numbers import large
from emobench.runs.execution.reporter import Reporter, Silent
from emobench.runs.planning import estimate
from emobench.runs.planning.estimate import H100, Machine, duration, gigabytes, this_machine
from emobench.runs.planning.ingredients import Ingredients, corpus_size
from emobench.runs.planning.plan import Plan, Planner, make_plan
from emobench.runs.planning.prospects import Prospects, prospects
from emobench.runs.planning.request import Request
from emobench.runs.run import score_plan, train_plan
from emobench.runs.stages.corpora import PackedCorpora
from emobench.runs.stages.evaluate import PlannedTask
from emobench.runs.stages.stage import Stage, Stages, require_writable
from emobench.runs.stages.train import PlannedTraining, Pretraining
from emobench.training.recipe import Recipe, require_a_rate, steps_at_rate_0, total_steps

DONE, TO_DO, ABSENT = "finished", "to do", "not here"
ORDER = ("missing", "download", "train", "sample", "evaluate")
VERBS = {"train": "training", "sample": "sampling", "evaluate": "evaluation"}
LONG = 4 * 3600.0
"""Seconds of a run on a CPU that has to be asked for: far more than the suites for CPUs take (minutes), less than a
night, and small beside the days of a model that was meant for a GPU."""
UNCERTAIN = 2
"""The factor by which an estimate may be too long or too short: a run is long if it is so at the least."""
ROUGH = 4
"""About how much a rough count may fall short of an exact one: it decides alone if it is this far below `LONG`."""
FEW_STEPS = 10
"""A training of fewer steps hardly changes a model."""
LESS = "A smaller model, fewer tokens (--set recipe.max_tokens=N) or examples (--limit N) take less."


@dataclass(frozen=True, kw_only=True)
class StageLine:
    """One stage, in words and in numbers; estimates are rough, within a factor of two or three.

    None stands for unknown numbers, and for those that a stage does not have.
    """

    stage: str
    """download, missing (with --offline), train, sample (a corpus) or evaluate."""
    what: str = ""
    amount: str = ""
    state: str = TO_DO
    tokens: int | None = None
    """train: target tokens; sample: tokens of the texts; evaluate: tokens that are forwarded."""
    steps: int | None = None
    steps_at_rate_0: int | None = None
    """train: steps whose learning rate is 0."""
    accumulation: int | None = None
    """train: micro-batches of a step, if those of the recipe do not fit the memory of the GPU."""
    seconds: float | None = None
    memory_bytes: int | None = None
    download_bytes: int | None = None
    examples: int | None = None
    """evaluate: test examples at most."""
    requests: int | None = None
    """evaluate: to the endpoint of a judge; `request_tokens` counts tokens of prompts and replies, at most."""
    request_tokens: int | None = None
    subject: str = ""
    """train and evaluate: the model and the purpose, in an outline of several models."""
    objective: str = ""
    """train and evaluate: as given; empty for the pre-training of a made model."""
    seed: int | None = None
    group: str = ""
    """The training corpus or the task."""

    @property
    def estimate(self) -> str:
        """Its time and memory, as far as they are known; empty for a finished stage."""
        if self.state == DONE:
            return ""
        parts = []
        if self.seconds is not None:
            parts.append(duration(self.seconds))
        if self.memory_bytes is not None:
            parts.append(gigabytes(self.memory_bytes))
        return ", ".join(parts)


@dataclass(kw_only=True)
class Totals:
    """Sums over unfinished stages, by kind; `unknown` counts the stages of unknown size."""

    download_bytes: int = 0
    memory_bytes: int = 0
    """The most at once, of one stage."""
    tokens: dict[str, int] = field(default_factory=lambda: dict.fromkeys(VERBS, 0))
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(VERBS, 0.0))
    requests: int = 0
    """To endpoints that judge; `request_tokens` counts tokens of their prompts and replies, at most."""
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
    model: str = ""

    def totals(self) -> Totals:
        """Return sums over unfinished stages."""
        totals = Totals()
        for line in self.lines:
            if line.state != DONE:
                totals.add(line)
        return totals

    def notes(self) -> list[str]:
        """Return the totals in words, the verdicts, the assumptions, and a warning if the memory is too small."""
        verdicts = [line for verdict in self.verdicts for line in verdict.lines()]
        if all(line.state == DONE for line in self.lines):
            return ["All stages are finished.", *verdicts]
        totals, limit, parts = self.totals(), self.machine.memory, []
        if totals.download_bytes:
            parts.append(f"{gigabytes(totals.download_bytes)} to download")
        for stage, tokens in totals.tokens.items():
            if tokens:
                parts.append(f"{VERBS[stage]} {large(tokens)} tokens, {duration(totals.seconds[stage])}")
        if totals.requests:
            parts.append(requests_words(totals.requests, totals.request_tokens))
        if totals.memory_bytes:
            parts.append(f"at most {gigabytes(totals.memory_bytes)} of memory")
        notes = [*self.ahead, f"To do, in all: {'; '.join(parts)}."]
        if totals.unknown:
            notes.append(f"Not in these sums: {totals.unknown} stages of unknown size.")
        if totals.memory_bytes > limit:
            notes.append(
                f"Too large: {gigabytes(totals.memory_bytes)} is more than the {gigabytes(limit)} of "
                f"{self.machine.place}. A training needs less with --set recipe.lora=true (and less again with "
                "recipe.weight_dtype=bfloat16), recipe.gradient_checkpointing=true or smaller micro-batches, such as "
                "recipe.accumulation=4; an evaluation with --dtype bfloat16."
            )
        return [*notes, *verdicts, *self.assumptions]

    def joined(self, other: Outline) -> Outline:
        """Return both outlines as one, with common stages once and without verdicts."""
        lines: dict[tuple[str, str], StageLine] = {}
        for line in (*self.lines, *other.lines):
            lines.setdefault((line.stage, line.what), line)
        ordered = sorted(lines.values(), key=lambda line: ORDER.index(line.stage))
        assumptions = dict.fromkeys((*self.assumptions, *other.assumptions))
        ahead = dict.fromkeys((*self.ahead, *other.ahead))
        return replace(self, lines=tuple(ordered), assumptions=tuple(assumptions), ahead=tuple(ahead), verdicts=())


def requests_words(requests: int, tokens: int | None) -> str:
    """Return how often an endpoint is asked, and the tokens that are paid for at most."""
    return f"{requests:,} requests to a judge{tokens_words(tokens)} at most"


def tokens_words(tokens: int | None) -> str:
    """Return a rough number of tokens, to be appended; empty if it is unknown."""
    return "" if tokens is None else f", ~{large(tokens)} tokens"


def grouped(outline: Outline) -> list[StageLine]:
    """Return one line for the seeds of a row, and in an outline of several models for its tasks, with the same sums."""
    groups: dict[tuple[str, ...], list[StageLine]] = {}
    for line in outline.lines:
        key = (line.stage, line.what)
        if line.objective:
            group = "" if outline.several and line.stage == "evaluate" else line.group
            key = (line.stage, line.subject, line.objective, group)
        groups.setdefault(key, []).append(line)
    shown = []
    for lines in groups.values():
        shown.append(lines[0] if len(lines) == 1 else _as_one(lines))
    return shown


def _as_one(lines: Sequence[StageLine]) -> StageLine:
    """Return the lines of a row as one; its time is that of unfinished stages."""
    first, stage, full, left = lines[0], lines[0].stage, Totals(), Totals()
    done = 0
    for line in lines:
        full.add(line)
        if line.state == DONE:
            done += 1
        else:
            left.add(line)
    words = [first.objective, f"{len(lines)} {VERBS[stage]}s"]
    if first.subject:
        words[0] = f"{first.subject}: {first.objective}"
    if len({line.group for line in lines}) == 1:
        words.append(first.group)
    amount = f"~{large(full.tokens[stage])} tokens"
    if first.steps is not None and len({line.steps for line in lines}) == 1:
        amount += f", {first.steps:,} steps each"
    state = TO_DO
    if done:
        state = f"{done} of {len(lines)} {DONE}"
    if done == len(lines):
        state = DONE
    return replace(
        first,
        what=", ".join(words),
        amount=amount,
        state=state,
        tokens=full.tokens[stage],
        seconds=left.seconds[stage],
        memory_bytes=full.memory_bytes or None,
    )


def advised(request: Request, outline_of: Callable[..., Outline]) -> Outline:
    """Return the outline of a request for a dry run. If a CPU would take long, it begins with what to type.

    `outline_of` makes the outline of a request; with `exact=False`, at once.
    """
    outline = outline_of(request)
    if request.device.startswith("cuda"):
        return outline
    advice = too_long(outline.totals().time, asked=request.asked_device != AUTO)
    return replace(outline, ahead=(advice, *outline.ahead)) if advice else outline


def require_short(request: Request, outline_of: Callable[..., Outline]) -> None:
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
    if rough > UNCERTAIN * LONG / ROUGH and (advice := too_long(outline_of(request).totals().time, asked=False)):
        raise ConfigError(advice)


def too_long(seconds: float, *, asked: bool, less: str = LESS) -> str | None:
    """Return the advice for a run that takes about `seconds` on the CPU; None if that may be short.

    `asked`: the CPU was given by its name, so that the run starts.
    """
    if seconds <= UNCERTAIN * LONG:
        return None
    time = f"{duration(seconds)} on this CPU ({duration(seconds / UNCERTAIN)} to {duration(seconds * UNCERTAIN)})"
    if asked:
        return f"Long: this takes about {time}. {less}"
    return (
        f"Not started: this would take about {time}. Pass --device cpu to run it anyway, or --device cuda on a machine "
        f"with a GPU; --dry-run shows each stage. {less}"
    )


@dataclass
class Read:
    """What outlines have read, so that the next one of the same folders does not read it again."""

    ingredients: Ingredients | None = None
    corpora: PackedCorpora | None = None


def make_outline(
    request: Request,
    *,
    exact: bool = True,
    timed: Callable[[Plan], Probe] | None = None,
    read: Read | None = None,
    planner: Planner | None = None,
) -> Outline:
    """Return the outline of a request; raises a UserError for a name or a setting that is wrong.

    Without `exact` no corpus is tokenized and nothing counts as finished: what it takes at most, at once. With
    `timed`, which times a part of the plan's work, estimates come from that. `read` is shared by outlines, and
    `planner` has looked up the names of this request.
    """
    read = read or Read()
    plan = (planner or Planner(request)).plan(look=True, check=exact, known=read.ingredients)
    probe = timed(plan) if timed is not None and exact else None
    costs = Costs(plan, exact=exact, timed=probe, corpora=read.corpora)
    read.ingredients, read.corpora = plan.ingredients, costs.corpora
    lines = _stage_lines(plan, costs)
    stage, state = ("missing", ABSENT) if request.offline else ("download", TO_DO)
    for download in plan.ingredients.downloads:
        size = "size unknown" if download.size is None else gigabytes(download.size)
        what = f"{download.item} from {download.source}"
        lines.append(StageLine(stage=stage, what=what, amount=size, state=state, download_bytes=download.size))
    ahead, missing = [*plan.warnings(), *costs.notes()], plan.ingredients.missing.values()
    ahead[:0] = [one.how for one in missing if one.by_hand]
    if request.offline and plan.ingredients.downloads:
        items = ", ".join(download.item for download in plan.ingredients.downloads)
        ahead.insert(
            0,
            f"With --offline this run would stop: these are missing: {items}. Drop --offline, or give "
            "local files (--data-dir DIR, --model FOLDER).",
        )
    verdicts = []
    if plan.evaluated():
        verdicts.append(prospects(plan, seconds_of_a_run(lines)))
    lines.sort(key=lambda line: ORDER.index(line.stage))
    return Outline(
        title=f"{plan.suite.name} v{plan.suite.version} with {plan.model.name}",
        lines=tuple(lines),
        machine=costs.machine,
        assumptions=tuple(_assumptions(plan, costs, probe)),
        ahead=tuple(ahead),
        verdicts=tuple(verdicts),
        model=plan.model.name,
    )


def seconds_of_a_run(lines: Sequence[StageLine]) -> float | None:
    """Return the mean time of a training with its evaluations; None without trainings, or if a time is unknown."""
    trained = {(line.objective, line.seed) for line in lines if line.stage == "train" and line.objective}
    seconds = [line.seconds for line in lines if (line.objective, line.seed) in trained]
    if not trained or None in seconds:
        return None
    return sum(filter(None, seconds)) / len(trained)


def make_evaluation_outline(request: Request, *, exact: bool = True, planner: Planner | None = None) -> Outline:
    """Return the outline of a request that trains nothing: a training that is not finished is named, not estimated."""
    full = make_outline(request, exact=exact, planner=planner)
    kept, missing = [], []
    for line in full.lines:
        if line.stage == "train" and line.objective and line.state != DONE:
            missing.append(line)
        else:
            kept.append(line)
    if not missing:
        return full
    advice = (
        f"{len(missing)} trainings are missing, such as {missing[0].what}. `emobench evaluate` trains nothing and "
        "would stop here; give its options to `emobench run`."
    )
    return replace(full, lines=tuple(kept), ahead=(*full.ahead, advice))


def _stage_lines(plan: Plan, costs: Costs) -> list[StageLine]:
    """Return a line for each stage of each run, after those for a model that is made once if a run needs it."""
    stages, lines = Stages(plan.request.runs), list[StageLine]()
    keyed = plan.ready and plan.model.has_identity
    for row, run in plan.rows_and_runs():
        costly: list[tuple[StageLine, Stage]] = []
        for training, tasks in run.parts:
            if training is not None:
                costly.append((costs.training(training), training))
            costly += [(costs.evaluation(task), task.scores) for task in tasks]
        for line, stage in costly:
            state = DONE if keyed and stages.is_finished(stage) else TO_DO
            what = f"{row.asked}, seed {run.seed}, {line.group}"
            lines.append(replace(line, what=what, state=state, objective=row.asked, seed=run.seed))
    needed = any(line.state == TO_DO for line in lines)
    for stage in plan.model.stages:
        state = TO_DO if needed and not stages.is_finished(stage) else DONE
        what = f"pre-train {plan.model.name} on {stage.recipe.corpus}, once"
        lines.insert(0, replace(costs.training(stage), what=what, state=state, group=""))
    return lines


def _assumptions(plan: Plan, costs: Costs, probe: Probe | None) -> Iterator[str]:
    """Yield notes on the estimates, other programs, and unknown sizes and keys."""
    dtype, model = plan.request.weights, plan.model
    if probe is not None:
        yield probe.note
    else:
        yield (
            f"Rough estimates for {costs.machine.name}, within a factor of two: N parameters take 6 N operations a "
            "trained token (4 N with LoRA) and 2 N a scored one. MAUVE clustering and ROUGE run on the CPU and are not "
            "included."
        )
    if plan.request.device == MPS:
        yield MPS_NOTE
    for recipe in plan.recipes:
        for name, value in (recipe.trainer or {}).items():
            yield f"Recipe {recipe.name} passes {name}={value} to transformers' TrainingArguments."
    for planned in plan.evaluated():
        program, name = generating_program(planned.facts.backend, plan.request.device), planned.task.name
        if program is not None:
            yield f"{name}: {program.name} generates, at an unknown speed; the estimate is for the harness itself."
    if dtype != "float32" and plan.trainings():
        yield f"Evaluations round the trained weights to {dtype} (--dtype), which loses small changes; see the guide."
    if costs.size is None:
        yield f"The size of {model.name} is unknown: no time or memory is estimated."
    if model.is_local and not model.has_identity:
        yield f"Finished stages are unknown until {model.name} is trained: its weights are part of every key."
    if plan.ingredients.downloads:
        yield "Files that are not on this machine were not inspected; counts marked ~ come from the catalog."


class Costs:
    """The costs of a plan's stages; those of one recipe, or one task, are counted once for all rows.

    Without `exact` no corpus is tokenized: what it takes at most, at once. What a probe timed replaces estimates.
    """

    def __init__(
        self, plan: Plan, *, exact: bool, timed: Probe | None = None, corpora: PackedCorpora | None = None
    ) -> None:
        self._plan = plan
        self._timed = timed
        self._exact = exact
        self.corpora = corpora or PackedCorpora(Stages(plan.request.runs), Silent(), keep=False)
        self._amounts: dict[Recipe, tuple[int | None, int | None, bool]] = {}
        self._validated: dict[Recipe, int] = {}
        """The tokens of all validations of a training, if its texts are on this machine."""
        self._counts: dict[str, Cost] = {}
        self.size = plan.model.size
        self.machine: Machine = H100
        if is_here(plan.request.device) or plan.request.device == MPS:  # whose times are those of a CPU
            self.machine = this_machine(plan.request.device)

    def training(self, planned: PlannedTraining) -> StageLine:
        """Return the cost of a training. Raises ConfigError if its learning rate is 0 in all steps."""
        recipe = planned.recipe
        if recipe not in self._amounts:
            self._amounts[recipe] = self._amount(planned)
        tokens, steps, rough = self._amounts[recipe]
        line = StageLine(stage="train", group=f"on {recipe.corpus}", tokens=tokens, steps=steps)
        line = self._with_effort(line, planned)
        if tokens is None:
            return replace(line, amount=f"all of {recipe.corpus}, whose size is unknown")
        words = f"{tokens:,} target tokens"
        if rough:
            words = f"~{large(tokens)} target tokens"
        if steps is not None:
            line = replace(line, steps_at_rate_0=steps_at_rate_0(recipe, steps))
            words += f", {'~' * rough}{steps:,} steps"
            if line.accumulation:
                words += f" of {line.accumulation} micro-batches, which fit the memory"
        if line.steps_at_rate_0:
            words += f" ({line.steps_at_rate_0:,} at a rate of 0)"
        return replace(line, amount=words)

    def evaluation(self, planned: PlannedTask) -> StageLine:
        """Return the cost of an evaluation: all models that read, the steps of sampling, and the weights that stay."""
        counted, dtype, tokens = self.count(planned), self._plan.request.weights, self.all_tokens(planned)
        seconds, memory = self._scoring_seconds(self.size, counted.tokens, dtype), None
        sizes: dict[str, ModelFacts | None] = {}
        for part, count in counted.auxiliary_tokens.items():
            auxiliary = planned.facts.models[part]
            size = self.size
            if auxiliary.name != PRETRAINED:
                size = self._plan.ingredients.auxiliary(auxiliary)
            sizes[auxiliary.name] = size
            more = self._scoring_seconds(size, count, "float32")
            seconds = None if seconds is None or more is None else seconds + more
        if seconds is not None:
            seconds += counted.steps * self.machine.step
        if self._timed is not None and tokens is not None:
            seconds = self._timed.evaluation(planned, tokens)
        if self.size is not None:
            memory = estimate.scoring_memory(self.size, dtype, sampled=counted.batch_tokens)
            memory = round(memory + sum(4 * one.parameters for one in sizes.values() if one is not None))
        words = "number of examples unknown"
        if counted.examples is not None:
            words = f"at most {counted.examples:,} examples"
        line = StageLine(
            stage="evaluate",
            amount=words + tokens_words(tokens),
            group=f"{planned.task.name} {planned.task.protocol_id}",
            tokens=tokens,
            examples=counted.examples,
            seconds=seconds,
            memory_bytes=memory,
        )
        if asked := counted.requests:
            words = f"{line.amount}; {requests_words(asked.count, asked.read + asked.written)}"
            return replace(line, amount=words, requests=asked.count, request_tokens=asked.read + asked.written)
        return line

    def count(self, planned: PlannedTask) -> Cost:
        """Return the examples and tokens of an evaluation, as its kind counts them."""
        task = planned.task
        if task.name not in self._counts:
            self._counts[task.name] = planned.kind.runtime.cost(task, planned.data, self._plan.model)
        return self._counts[task.name]

    def all_tokens(self, planned: PlannedTask) -> int | None:
        """Return the tokens that all models read for an evaluation; None if they are unknown."""
        counted = self.count(planned)
        return None if counted.tokens is None else counted.tokens + sum(counted.auxiliary_tokens.values())

    def _scoring_seconds(self, size: ModelFacts | None, tokens: int | None, precision: str) -> float | None:
        """Return the time of a forward pass over tokens."""
        if size is None or tokens is None:
            return None
        return estimate.scoring_operations(size, tokens) / (self.machine.rate(precision) * self.machine.share)

    def _with_effort(self, line: StageLine, planned: PlannedTraining) -> StageLine:
        """Return a line with seconds, bytes, and the micro-batches of a step if those of the recipe do not fit."""
        if self.size is None:
            return line
        if self._timed is not None and line.tokens is not None and not isinstance(planned, Pretraining):
            seconds, memory = self._timed.training(planned, line.tokens)
            return replace(line, seconds=seconds, memory_bytes=memory)
        recipe = fitting = planned.recipe
        objective = planned.objective.objective
        costs = "expected_cost" in objective.needs
        memory_of = partial(estimate.training_memory, self.size, costs=costs, copies=objective.copies)
        memory = memory_of(recipe)
        # As `train_to_fit` does on a GPU whose memory is used up. A CPU's system would end the process.
        while self._plan.request.device.startswith("cuda") and memory > self.machine.memory:
            smaller = fitting.in_less_memory()
            if smaller is None:
                break
            fitting, memory = smaller, memory_of(smaller)
        line = replace(line, memory_bytes=round(memory))
        if fitting != recipe:
            line = replace(line, accumulation=fitting.accumulation)
        if line.tokens is None:
            return line
        rate = self.machine.rate(estimate.computes_in(recipe)) * self.machine.share
        operations = estimate.training_operations(self.size, line.tokens, recipe)
        read = self._validated.get(recipe, 0) + len(objective.copies) * line.tokens
        operations += estimate.scoring_operations(self.size, read)
        return replace(line, seconds=operations / rate)

    def notes(self) -> Iterator[str]:
        """Yield a note for each recipe of few steps, or whose validations take longer than its trainings."""
        for recipe, (_, steps, _) in self._amounts.items():
            if steps is not None and steps < FEW_STEPS:
                count = "1 step" if steps == 1 else f"{steps} steps"
                yield (
                    f"Recipe {recipe.name} trains for only {count} of {recipe.batch} sequences; more steps need more "
                    "text, a larger --set recipe.epochs or a smaller --set recipe.batch."
                )
        for recipe, validated in self._validated.items():
            note = estimate.long_validation(recipe, self._amounts[recipe][0] or 0, validated)
            if note is not None:
                yield note

    def _amount(self, planned: PlannedTraining) -> tuple[int | None, int | None, bool]:
        """Return the target tokens of all epochs, the steps, and whether these come from the bytes of the texts."""
        recipe, texts, model = planned.recipe, planned.texts.get("train"), self._plan.model
        if self._exact and texts is not None and model.is_local:
            packed = self.corpora.rows(planned.corpora["train"])
            steps = total_steps(recipe, len(packed))
            require_a_rate(recipe, steps)
            if "validation" in planned.corpora:
                validation = self.corpora.rows(planned.corpora["validation"])
                self._validated[recipe] = estimate.validated_tokens(recipe, validation.target_count)
            return int(packed.target_count * recipe.epochs), steps, False
        size, count = corpus_size(recipe.corpus, texts)
        if size is not None:
            tokens = int(size / model.bytes_per_token)
        elif recipe.max_tokens is not None:
            tokens, count = recipe.max_tokens, None
        else:
            return None, None, True
        return *estimate.tokens_and_steps(recipe, tokens, count), True


STEPS = 5
"""Optimizer steps of each training, about; the first one, which also sets things up, counts once."""
EXAMPLES = (8, 32)
"""Examples of each task: small and large."""


@dataclass(frozen=True, kw_only=True)
class TimedTraining:
    """The seconds of a few steps: per token, of a pass over the validation split, and of the rest."""

    seconds_per_token: float
    validation: float
    once: float
    memory_bytes: int


def line_through(small: tuple[int, float], large: tuple[int, float], tokens: int) -> float:
    """Return the seconds for `tokens`, along the line through two measured (tokens, seconds).

    In proportion to the larger one if the line falls.
    """
    (few, little), (many, much) = small, large
    if many > few and much > little:
        return max(little, much + (tokens - many) * (much - little) / (many - few))
    return much * tokens / many if many else much


class Probe:
    """The measured times, by objective and recipe, and by objective and task."""

    def __init__(self) -> None:
        self.note = (
            f"Times come from a probe on this machine, of about {STEPS} steps of each training and {EXAMPLES[-1]} "
            "examples of each task, and so does the memory of trainings; metrics that need more texts, such as MAUVE, "
            "are not included."
        )
        self._trainings: dict[tuple[str, Recipe], TimedTraining] = {}
        self._tasks: dict[tuple[str, str], list[tuple[int, float]]] = {}

    def training(self, planned: PlannedTraining, tokens: int) -> tuple[float, int]:
        """Return the seconds and bytes of a training on so many target tokens."""
        timed, passes = self._trainings[_setup(planned)], math.ceil(planned.recipe.epochs)
        seconds = tokens * timed.seconds_per_token + passes * timed.validation + timed.once
        return seconds, timed.memory_bytes

    def evaluation(self, planned: PlannedTask, tokens: int) -> float:
        """Return the seconds of an evaluation."""
        small, large = self._tasks[_subject(planned), planned.task.name]
        return line_through(small, large, tokens)

    def add_trainings(self, plan: Plan) -> None:
        """Read the times of a plan's finished trainings from their logs."""
        stages = Stages(plan.request.runs)
        for planned in plan.trainings():
            folder = stages.folder(planned)
            steps, validation, total = [], 0.0, 0.0
            for text in (folder / "log.jsonl").read_text().splitlines():
                line = json.loads(text)
                validation += line.get("eval_runtime", 0.0)
                total = line.get("train_runtime", total)
                if "tokens_per_second" in line:
                    steps.append((line["seconds"], line["tokens"]))
            seconds, tokens = map(sum, zip(*(steps[1:] or steps), strict=True))
            rate, trained = seconds / tokens, sum(tokens for _, tokens in steps)
            self._trainings[_setup(planned)] = TimedTraining(
                seconds_per_token=rate,
                validation=validation,
                once=max(0.0, total - validation - trained * rate),
                memory_bytes=json.loads((folder / "training.json").read_text())["peak_memory_bytes"],
            )

    def add_evaluations(self, plan: Plan, reporter: Reporter) -> None:
        """Train and evaluate a plan, and note the tokens and seconds of each evaluation."""
        costs = Costs(plan, exact=True)
        for row, evaluations in zip(plan.rows, score_plan(plan, reporter), strict=True):
            for planned, evaluation in zip(row.runs[0].tasks(), evaluations[0], strict=True):
                timed = costs.all_tokens(planned) or 0, evaluation.seconds
                self._tasks.setdefault((_subject(planned), planned.task.name), []).append(timed)


def time_parts(plan: Plan, reporter: Reporter) -> Probe:
    """Do a part of a plan's work with its first seed, and time it.

    Raises ConfigError if something that the work needs is missing, and what the work itself raises.
    """
    request, probe = plan.request, Probe()
    if not plan.ready or not is_here(request.device):
        missing = ", ".join(plan.ingredients.missing) or f"the device {request.device}"
        raise ConfigError(f"--probe does a part of the work. Not on this machine: {missing}. Drop --probe.")
    require_writable(request.runs, "--runs")
    settings = dict(request.settings)
    if plan.trainings():
        tokens = max(STEPS * recipe.batch * recipe.max_length for recipe in plan.recipes)
        most = min(recipe.max_tokens or tokens for recipe in plan.recipes)
        settings["recipe"] = {**request.section("recipe"), "max_tokens": min(tokens, most), "epochs": 1, "warmup": 0}
    with TemporaryDirectory(dir=request.runs, prefix="probe-") as place:
        here = replace(
            request,
            seeds=(plan.rows[0].runs[0].seed,),
            settings=settings,
            runs=Path(place) / "runs",
            leaderboard=Path(place) / "board",
            trackers=(),
        )
        small = make_plan(here)
        train_plan(small, reporter)
        probe.add_trainings(small)
        if request.suite is not None:
            for count in EXAMPLES:
                probe.add_evaluations(make_plan(replace(here, limit=min(count, request.limit or count))), reporter)
    return probe


def _subject(planned: PlannedTask) -> str:
    return "" if planned.training is None else str(planned.training.objective.objective)


def _setup(planned: PlannedTraining) -> tuple[str, Recipe]:
    """Return a training's objective, and its recipe without what a probe changes."""
    return str(planned.objective.objective), replace(planned.recipe, max_tokens=None, epochs=1, warmup=0.0)
