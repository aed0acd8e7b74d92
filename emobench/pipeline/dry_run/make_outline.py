"""A dry run: a plan as lines, with amounts and estimates.

Nothing is downloaded and no hub is asked. Where all that a request needs is here, the plan has all its checks, exact
counts and what is finished; elsewhere names are checked, and sizes are those of catalog and files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from emobench.kinds.cost import Embedding
from emobench.pipeline.dry_run.costs import Costs
from emobench.pipeline.dry_run.outline import (
    DONE,
    TO_DO,
    Outline,
    StageLine,
    evaluation_words,
    run_words,
    training_words,
)
from emobench.pipeline.planning.base_model import AbsentModel
from emobench.pipeline.planning.estimate import H100, duration, gigabytes
from emobench.pipeline.planning.find_model import MadeModel
from emobench.pipeline.planning.ingredients import shown_name
from emobench.pipeline.planning.make_plan import make_plan
from emobench.pipeline.planning.plan import Plan
from emobench.pipeline.planning.planned import PlannedTask, PlannedTraining
from emobench.pipeline.planning.request import Request
from emobench.pipeline.stages.stage import Stage, Stages


def make_outline(request: Request, *, exact: bool = True) -> Outline:
    """Return the outline of a request; raises a UserError for a name or a setting that is wrong.

    Without `exact` no corpus is tokenized and nothing counts as finished: what it takes at most, at once.
    """
    plan = make_plan(request, look=True, check=exact)
    return outline_of(plan, Costs(plan, exact=exact))


def outline_of(plan: Plan, costs: Costs) -> Outline:
    """Return a plan as lines, with what each costs."""
    writer = _Writer(plan, costs)
    trainings, evaluations = list(writer.trainings()), list(writer.evaluations())
    runs = [*trainings, *evaluations]
    embeddings = writer.embeddings(DONE if all(line.state == DONE for line in evaluations) else TO_DO)
    lines = [*writer.downloads(), *embeddings, *writer.pretraining(runs), *runs]
    title = f"{plan.suite.name} v{plan.suite.version} with {plan.model.name}"
    notes = tuple(_assumptions(plan, costs))
    return Outline(title, tuple(lines), costs.machine, notes, tuple(plan.ingredients.unusable.values()))


class _Writer:
    def __init__(self, plan: Plan, costs: Costs) -> None:
        self._plan = plan
        self._costs = costs
        self._stages = Stages(plan.request.runs)
        self._keyed = plan.ready and plan.model.is_there

    def downloads(self) -> Iterator[StageLine]:
        for found in self._plan.ingredients.downloads.values():
            size = "size not known" if found.size is None else gigabytes(found.size)
            what = f"{found.what} from {found.source}"
            kind, _, name = found.what.rpartition("data set " if found.what.startswith("data set ") else "corpus ")
            group = "" if kind or name == found.what else name
            yield StageLine(stage="download", what=what, amount=size, download_bytes=found.size, group=group)

    def embeddings(self, state: str) -> Iterator[StageLine]:
        """Yield a line for each data set that is embedded for retrieval: once for all rows, and kept."""
        for planned in {planned.task.name: planned for planned in self._plan.tasks()}.values():
            found = self._costs.tokens(planned).embedding
            if found is not None:
                yield self._embedding(planned.task.name, found, state)

    def pretraining(self, runs: Sequence[StageLine]) -> Iterator[StageLine]:
        """Yield the training that makes a made model: at first use, so that finished runs need none."""
        model = self._plan.model
        if isinstance(model, MadeModel):
            planned = model.pretraining
            done = self._stages.is_finished(planned.stage) or all(line.state == DONE for line in runs)
            what = f"pre-train {model.name} on {planned.recipe.corpus}, once"
            yield self._trained(what, planned, DONE if done else TO_DO)

    def trainings(self) -> Iterator[StageLine]:
        for row in self._plan.rows:
            for run in row.runs:
                for planned in (training for training, _ in run.parts if training is not None):
                    of = f"on {planned.recipe.corpus}"
                    what, state = run_words("", row.asked, f"seed {run.seed}", of), self._state(planned)
                    line = self._trained(what, planned, state)
                    yield replace(line, objective=row.asked, seed=run.seed, group=of)

    def evaluations(self) -> Iterator[StageLine]:
        for row in self._plan.rows:
            for run in row.runs:
                for planned in (task for _, tasks in run.parts for task in tasks):
                    yield self._evaluation(row.asked, run.seed, planned, self._state(planned))

    def _state(self, planned: PlannedTraining | PlannedTask) -> str:
        if not self._keyed:
            return TO_DO
        stage: Stage = planned.stage if isinstance(planned, PlannedTraining) else planned.scores
        return DONE if self._stages.is_finished(stage) else TO_DO

    def _embedding(self, task: str, found: Embedding, state: str) -> StageLine:
        seconds = self._costs.scoring_seconds(self._costs.auxiliary(found.model), found.tokens, "float32")
        return StageLine(
            stage="embed",
            what=f"{task}: {found.what}, {shown_name(found.model.name)}",
            group=f"{found.group}, {shown_name(found.model.name)}",
            amount="number of texts not known" if found.texts is None else f"{found.texts:,} texts",
            estimate="" if seconds is None or state == DONE else duration(seconds),
            state=state,
            tokens=found.tokens,
            seconds=seconds,
        )

    def _trained(self, what: str, planned: PlannedTraining, state: str) -> StageLine:
        found, effort = self._costs.amount(planned), self._costs.training(planned)
        unknown = f"all of {planned.recipe.corpus}, whose size is not known here"
        return StageLine(
            stage="train",
            what=what,
            amount=unknown if found.tokens is None else training_words(found.tokens, found.steps, found.rough),
            estimate="" if state == DONE else _estimate(effort.seconds, effort.memory_bytes),
            state=state,
            tokens=found.tokens,
            steps=found.steps,
            seconds=effort.seconds,
            memory_bytes=effort.memory_bytes,
        )

    def _evaluation(self, label: str, seed: int, planned: PlannedTask, state: str) -> StageLine:
        found, effort = self._costs.tokens(planned), self._costs.evaluation(planned)
        of = f"{planned.task.name} {planned.task.protocol_id}"
        tokens = None if found.tokens is None else found.tokens + sum(found.auxiliary_tokens.values())
        return StageLine(
            stage="evaluate",
            what=run_words("", label, f"seed {seed}", of),
            objective=label,
            seed=seed,
            group=of,
            amount=evaluation_words(found.examples, tokens),
            estimate="" if state == DONE else _estimate(effort.seconds, effort.memory_bytes),
            state=state,
            tokens=tokens,
            examples=found.examples,
            seconds=effort.seconds,
            memory_bytes=effort.memory_bytes,
        )


def _estimate(seconds: float | None, memory: int | None) -> str:
    return ", ".join(
        [*([] if seconds is None else [duration(seconds)]), *([] if memory is None else [gigabytes(memory)])]
    )


def _assumptions(plan: Plan, costs: Costs) -> Iterator[str]:
    dtype, machine, model = plan.request.dtype, costs.machine, plan.model
    yield f"Times are rough, for {machine.name}:"
    for precision, weights in costs.precisions:
        rate = f"{machine.rate(precision) / 1e12:.3g} TFLOP/s"
        kept = "" if weights == precision else f" (recipe.precision; weights in {weights}, by --dtype)"
        yield f"  training in {precision}{kept}, at {machine.training:.0%} of {rate};"
    yield f"  scoring in {dtype}, at {machine.scoring:.0%} of {machine.rate(dtype) / 1e12:.3g} TFLOP/s."
    yield (
        "N parameters take 6 N operations a trained token (4 N with LoRA) and 2 N a scored one; what this leaves "
        "out, and what is guessed, may double or halve a time."
    )
    if costs.sampling:
        yield (
            f"A step of sampling, a token of a batch, is assumed to take {1000 * machine.step:.0f} ms at least. "
            "MAUVE's clusters and ROUGE, which the processor computes, come besides."
        )
    if machine is H100 and dtype == "float32":
        faster = machine.rate("bfloat16") / machine.rate(dtype)
        more = " --set recipe.precision=bfloat16" if costs.precisions else ""
        yield f"--dtype bfloat16{more}: half the memory for weights, and scoring is {faster:.0f} times as fast."
    if costs.size is None:
        yield f"The size of {model.name} is not known here: no time or memory is given."
    here = not isinstance(model, AbsentModel)
    if here and not model.is_there:
        yield f"What is finished is known once {model.name} is made: its weights are part of every key."
    if here and model.source.kind == "hub":
        yield "The hub was not asked: what is here of it is taken as it was downloaded."
    if plan.ingredients.downloads:
        yield "What is not here was not looked at: counts with '~' are from the catalog and the task files."
