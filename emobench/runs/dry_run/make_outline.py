"""A dry run: a plan as lines, with amounts and estimates.

Nothing is downloaded and no hub is asked. Where all that a request needs is here, the plan has all its checks, exact
counts and what is finished; elsewhere names are checked, and sizes are those of catalog and files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from emobench.runs.dry_run.costs import Costs, Timed
from emobench.runs.dry_run.outline import (
    ABSENT,
    DONE,
    TO_DO,
    Outline,
    StageLine,
    evaluation_words,
    run_words,
    training_words,
)
from emobench.runs.execution.corpora import PackedCorpora
from emobench.runs.planning.base_model import AbsentModel
from emobench.runs.planning.estimate import H100, gigabytes
from emobench.runs.planning.find_model import MadeModel
from emobench.runs.planning.ingredients import Download, Ingredients, shown_name
from emobench.runs.planning.make_plan import make_plan
from emobench.runs.planning.plan import Plan
from emobench.runs.planning.planned import PlannedTask, PlannedTraining
from emobench.runs.planning.prospects import prospects
from emobench.runs.planning.request import Request
from emobench.runs.stages.stage import Stages
from emobench.training.recipe import steps_at_rate_0


@dataclass
class Read:
    """What outlines have read, so that the next one of the same folders does not read it again."""

    ingredients: Ingredients | None = None
    corpora: PackedCorpora | None = None


def make_outline(
    request: Request,
    *,
    exact: bool = True,
    timed: Callable[[Plan], Timed] | None = None,
    read: Read | None = None,
) -> Outline:
    """Return the outline of a request; raises a UserError for a name or a setting that is wrong.

    Without `exact` no corpus is tokenized and nothing counts as finished: what it takes at most, at once. With
    `timed`, which times a part of the plan's work, estimates come from that. `read` is what outlines share.
    """
    read = read or Read()
    plan = make_plan(request, look=True, check=exact, known=read.ingredients)
    found = timed(plan) if timed is not None and exact else None
    costs = Costs(plan, exact=exact, timed=found, corpora=read.corpora)
    read.ingredients, read.corpora = plan.ingredients, costs.corpora
    writer = _Writer(plan, costs)
    asked = [(row.asked, run) for row in plan.rows for run in row.runs]
    evaluations = [writer.evaluation(label, run.seed, planned) for label, run in asked for planned in run.tasks()]
    runs = [writer.training(label, planned) for label, run in asked for planned in run.trainings()] + evaluations
    downloads = [_download(download, request.offline) for download in plan.ingredients.downloads.values()]
    lines = [*downloads, *writer.embeddings(_state_of(evaluations)), *writer.pretraining(_state_of(runs)), *runs]
    title = f"{plan.suite.name} v{plan.suite.version} with {plan.model.name}"
    ahead = [*plan.ingredients.unusable.values(), *plan.warnings()]
    if request.offline and downloads:
        ahead.insert(0, _would_stop(list(plan.ingredients.downloads.values())))
    verdicts = (prospects(plan, _seconds_of_a_run(runs)),) if evaluations else ()
    assumptions = tuple(_assumptions(plan, costs, found))
    return Outline(title, tuple(lines), costs.machine, assumptions, tuple(ahead), verdicts)


def _seconds_of_a_run(lines: Sequence[StageLine]) -> float | None:
    """Return the mean time of a training with its evaluations; None where a time is not known."""
    trained = {(line.objective, line.seed) for line in lines if line.stage == "train"}
    seconds = [line.seconds for line in lines if (line.objective, line.seed) in trained]
    known = [one for one in seconds if one is not None]
    return sum(known) / len(trained) if trained and len(known) == len(seconds) else None


def make_evaluation_outline(request: Request, *, exact: bool = True) -> Outline:
    """Return the outline of a request that trains nothing: a training that is not finished is named, not estimated."""
    whole = make_outline(request, exact=exact)
    missing = [line for line in whole.lines if line.stage == "train" and line.objective and line.state != DONE]
    if not missing:
        return whole
    more = f", and {len(missing) - 1} more" if missing[1:] else ""
    advice = (
        f"Not trained yet: {missing[0].what}{more}. `emobench evaluate` trains nothing and would stop here; give its "
        "options to `emobench run`."
    )
    kept = tuple(line for line in whole.lines if line not in missing)
    return replace(whole, lines=kept, ahead=(*whole.ahead, advice))


def _would_stop(missing: Sequence[Download]) -> str:
    """Return that a run stops at once, and what it lacks."""
    one = len(missing) == 1
    shown = ", ".join(download.what for download in missing[:3]) + (" ..." if missing[3:] else "")
    return (
        f"With --offline this run would stop: {len(missing)} download{'' if one else 's'} {'is' if one else 'are'} "
        f"missing ({shown}). Drop --offline, or give local files (--data-dir DIR, --model FOLDER)."
    )


def _download(download: Download, offline: bool) -> StageLine:
    size = "size not known" if download.size is None else gigabytes(download.size)
    kind, _, name = download.what.rpartition("data set " if download.what.startswith("data set ") else "corpus ")
    group = "" if kind or name == download.what else name
    what = f"{download.what} from {download.source}"
    stage, state = ("missing", ABSENT) if offline else ("download", TO_DO)
    return StageLine(stage=stage, what=what, amount=size, state=state, download_bytes=download.size, group=group)


def _state_of(lines: Sequence[StageLine]) -> str:
    """Return the state of what all of these lines need, and nothing else."""
    return DONE if all(line.state == DONE for line in lines) else TO_DO


class _Writer:
    def __init__(self, plan: Plan, costs: Costs) -> None:
        self._plan = plan
        self._costs = costs
        self._stages = Stages(plan.request.runs)
        self._keyed = plan.ready and plan.model.is_there

    def embeddings(self, state: str) -> Iterator[StageLine]:
        """Yield a line for each data set that is embedded for retrieval: once for all rows, and kept."""
        for name, planned in {planned.task.name: planned for planned in self._plan.tasks()}.items():
            found = self._costs.tokens(planned).embedding
            if found is not None:
                encoder = shown_name(found.model.name)
                yield StageLine(
                    stage="embed",
                    what=f"{name}: {found.what}, {encoder}",
                    group=f"{found.group}, {encoder}",
                    amount="number of texts not known" if found.texts is None else f"{found.texts:,} texts",
                    state=state,
                    tokens=found.tokens,
                    seconds=self._costs.scoring_seconds(self._costs.auxiliary(found.model), found.tokens, "float32"),
                )

    def pretraining(self, state: str) -> Iterator[StageLine]:
        """Yield the training that makes a made model: at first use, so that finished runs need none."""
        model = self._plan.model
        if isinstance(model, MadeModel):
            planned = model.pretraining
            done = self._stages.is_finished(planned.stage)
            what = f"pre-train {model.name} on {planned.recipe.corpus}, once"
            yield self._trained(what, planned, DONE if done else state)

    def training(self, label: str, planned: PlannedTraining) -> StageLine:
        """Return a line for a training."""
        of = f"on {planned.recipe.corpus}"
        line = self._trained(run_words("", label, f"seed {planned.seed}", of), planned, self._state(planned))
        return replace(line, objective=label, seed=planned.seed, group=of)

    def evaluation(self, label: str, seed: int, planned: PlannedTask) -> StageLine:
        """Return a line for an evaluation."""
        cost, effort = self._costs.tokens(planned), self._costs.evaluation(planned)
        of = f"{planned.task.name} {planned.task.protocol_id}"
        line = StageLine(
            stage="evaluate",
            what=run_words("", label, f"seed {seed}", of),
            objective=label,
            seed=seed,
            group=of,
            amount="",
            state=self._state(planned),
            tokens=self._costs.all_tokens(planned),
            examples=cost.examples,
            requests=cost.requests and cost.requests.count,
            request_tokens=cost.requests and cost.requests.read + cost.requests.written,
            seconds=effort.seconds,
            memory_bytes=effort.memory_bytes,
        )
        return replace(line, amount=evaluation_words(line))

    def _state(self, planned: PlannedTraining | PlannedTask) -> str:
        if not self._keyed:
            return TO_DO
        stage = planned.stage if isinstance(planned, PlannedTraining) else planned.scores
        return DONE if self._stages.is_finished(stage) else TO_DO

    def _trained(self, what: str, planned: PlannedTraining, state: str) -> StageLine:
        amount, effort = self._costs.amount(planned), self._costs.training(planned)
        line = StageLine(
            stage="train",
            what=what,
            amount=f"all of {planned.recipe.corpus}, whose size is not known here",
            state=state,
            tokens=amount.tokens,
            steps=amount.steps,
            steps_at_rate_0=None if amount.steps is None else steps_at_rate_0(planned.recipe, amount.steps),
            accumulation=effort.accumulation,
            seconds=effort.seconds,
            memory_bytes=effort.memory_bytes,
        )
        return line if amount.tokens is None else replace(line, amount=training_words(line, amount.rough))


def _assumptions(plan: Plan, costs: Costs, timed: Timed | None) -> Iterator[str]:
    if timed is None:
        yield from _rates(plan, costs)
    else:
        yield timed.note
    yield from _circumstances(plan, costs)


def _rates(plan: Plan, costs: Costs) -> Iterator[str]:
    """Yield what estimates by arithmetic rest on."""
    dtype, machine = plan.request.weights, costs.machine
    elsewhere = "" if machine is not H100 else ", of which this machine has none"
    yield f"Times are rough, for {machine.name}{elsewhere}:"
    for precision, weights in costs.precisions:
        rate = f"{machine.rate(precision) / 1e12:.3g} TFLOP/s"
        kept = "" if weights == precision else f", weights in {weights}"
        yield f"  training in {precision}{kept}, at {machine.training:.0%} of {rate};"
    yield f"  scoring in {dtype}, at {machine.scoring:.0%} of {machine.rate(dtype) / 1e12:.3g} TFLOP/s."
    yield (
        "N parameters take 6 N operations a trained token (4 N with LoRA) and 2 N a scored one; what this leaves "
        "out, and what is guessed, may double or halve a time."
    )
    if any(costs.tokens(planned).steps for planned in plan.tasks()):
        yield (
            f"A step of sampling, a token of a batch, is assumed to take {1000 * machine.step:.0f} ms at least. "
            "MAUVE's clusters and ROUGE, which the processor computes, come besides."
        )


def _circumstances(plan: Plan, costs: Costs) -> Iterator[str]:
    """Yield what else a reader has to know: other programs, a faster precision, and what is not known."""
    dtype, machine, model = plan.request.weights, costs.machine, plan.model
    for recipe in plan.recipes:
        for name, value in (recipe.trainer or {}).items():
            yield f"Recipe {recipe.name} passes {name}={value} to transformers' TrainingArguments."
    programs = {p.task.name: p.kind.generated_by(p.task, plan.request.device) for p in plan.tasks()}
    for name, program in programs.items():
        if program is not None:
            yield f"{name}: {program.name} generates, and no time is known of it; the estimate is the harness's own."
    if machine is H100 and dtype == "float32":
        faster = machine.rate("bfloat16") / machine.rate(dtype)
        rounds = ", and round what was trained" if plan.trainings() else ""
        yield f"--dtype bfloat16: evaluations need half the memory, are {faster:.0f} times as fast{rounds}."
    if dtype != "float32" and plan.trainings():
        yield f"Evaluations round the trained weights to {dtype} (--dtype), which loses small changes; see the guide."
    if costs.size is None:
        yield f"The size of {model.name} is not known here: no time or memory is given."
    here = not isinstance(model, AbsentModel)
    if here and not model.is_there:
        yield f"What is finished is known once {model.name} is made: its weights are part of every key."
    if here and model.source.kind == "hub":
        yield "The hub was not asked: what is here of it is taken as it was downloaded."
    if plan.ingredients.downloads:
        yield "What is not here was not looked at: counts with '~' are from the catalog and the task files."
