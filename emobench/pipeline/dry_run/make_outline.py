"""A dry run: what a request comes to, with amounts and estimates, from what is here and from what is known without it.

Nothing is downloaded and no hub is asked. Where all that a request needs is here, the plan itself is made, with its
checks, its exact counts and what is finished; elsewhere names are checked, and sizes are those of catalog and files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property

from emobench.config import PRETRAINED
from emobench.kinds.auxiliary import AuxiliaryModel
from emobench.kinds.cost import Cost, Embedding, EvaluatedModel
from emobench.models.device import is_here
from emobench.pipeline.dry_run import estimate
from emobench.pipeline.dry_run.estimate import H100, ModelSize, duration, gigabytes, this_machine
from emobench.pipeline.dry_run.outline import (
    DONE,
    TO_DO,
    Outline,
    StageLine,
    evaluation_words,
    run_words,
    training_words,
)
from emobench.pipeline.dry_run.resources import AtHand, corpus_bytes, shown_name, size_of
from emobench.pipeline.execution.reporter import Silent
from emobench.pipeline.planning.find_model import MadeModel
from emobench.pipeline.planning.machine import check_machine
from emobench.pipeline.planning.make_plan import make_plan, naming_setting
from emobench.pipeline.planning.names import check_sections, model_of, objectives_of, parts_of, suite_of
from emobench.pipeline.planning.plan import Plan, PlannedTraining, models_read
from emobench.pipeline.planning.request import Request
from emobench.pipeline.stages.stage import Stages
from emobench.registry import LoadedObjective, load_kind
from emobench.tasks.spec import Task
from emobench.training.recipe import Recipe, total_steps

COST = "expected_cost"
PRETRAINED_IN = "float32"
"""What the made models are pre-trained in, whatever --dtype says."""
BYTES_PER_TOKEN = ModelSize(parameters=0).bytes_per_token


def make_outline(request: Request, *, exact: bool = True) -> Outline:
    """Return the outline of a request; raises a UserError for a name or a setting that is wrong.

    Without `exact` no corpus is tokenized and nothing counts as finished: what it takes at most, at once.
    """
    return _Outliner(request, exact).outline()


class _Outliner:
    def __init__(self, request: Request, exact: bool) -> None:
        self.request = request
        self.exact = exact
        self.suite = suite_of(request)
        self.objectives = objectives_of(request, self.suite)
        self.at = AtHand(request)
        self.auxiliary: dict[AuxiliaryModel, ModelSize | None] = {}
        self.name = model_of(request, self.suite)
        self.model = self.at.base_model(self.name)
        there = is_here(request.device)
        if there:
            check_machine(request)
        self.machine = this_machine(request.device) if there else H100
        self.parts = parts_of(request, self.suite)
        check_sections(request, self.parts, trains=any(self.objectives))
        self.size = size_of(self.model, self.name)
        self._look()
        planned = exact and there and self.model is not None and not self.at.downloads
        self.plan: Plan | None = make_plan(self.at.request) if planned else None
        self.stages = Stages(request.runs)

    def outline(self) -> Outline:
        evaluations = list(self._evaluations())
        runs = [*self._trainings(), *evaluations]
        lines = [*self._downloads(), *self._embeddings(evaluations), *self._pretrainings(runs), *runs]
        return Outline(
            f"{self.suite.name} v{self.suite.version} with {self.name if self.model is None else self.model.name}",
            tuple(lines),
            self.machine,
            tuple(self._assumptions()),
            tuple(self.at.unusable.values()),
        )

    def _look(self) -> None:
        """Look for all that the request needs."""
        for recipe, tasks in self.parts:
            if any(self.objectives):
                for split in ("train", "validation"):
                    self.at.texts(recipe.corpus, split)
            for task in tasks:
                self._look_for(task)
        for objective in self.objectives:
            for name in () if objective is None else models_read(objective):
                self.at.other_model(name)

    def _look_for(self, task: Task) -> None:
        kind = load_kind(task.kind)
        kind.runtime.find(task, self.at)
        for auxiliary in kind.auxiliary_models(task).values():
            with naming_setting(task, auxiliary):
                known = self.size if auxiliary.name == PRETRAINED else self.at.auxiliary(auxiliary)
                self.auxiliary[auxiliary] = known

    def _downloads(self) -> Iterator[StageLine]:
        for found in self.at.downloads.values():
            size = "size not known" if found.size is None else gigabytes(found.size)
            what = f"{found.what} from {found.source}"
            kind, _, name = found.what.rpartition("data set " if found.what.startswith("data set ") else "corpus ")
            group = "" if kind or name == found.what else name
            yield StageLine(stage="download", what=what, amount=size, download_bytes=found.size, group=group)

    def _embeddings(self, evaluations: Sequence[StageLine]) -> Iterator[StageLine]:
        """Yield a line for each data set that is embedded for retrieval: once for all rows, and kept."""
        finished = all(line.state == DONE for line in evaluations)
        for name, cost in self._costs.items():
            if cost.embedding is not None:
                yield self._embedding(name, cost.embedding, DONE if finished else TO_DO)

    def _embedding(self, task: str, found: Embedding, state: str) -> StageLine:
        seconds = self._scoring_seconds(self.auxiliary[found.model], found.tokens, "float32")
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

    def _pretrainings(self, runs: Sequence[StageLine]) -> Iterator[StageLine]:
        """Yield the training that makes a made model: at first use, so that finished runs need none."""
        if not isinstance(self.model, MadeModel):
            return
        planned = self.model.pretraining
        done = self.stages.is_finished(planned.stage) or all(line.state == DONE for line in runs)
        what = f"pre-train {self.model.name} on {planned.recipe.corpus}, once"
        counted = (*self._packed(planned), False) if self.exact else self._rough_amount(planned.recipe)
        yield self._trained(what, planned.objective, planned.recipe, counted, DONE if done else TO_DO, PRETRAINED_IN)

    def _trainings(self) -> Iterator[StageLine]:
        planned = iter(self.plan.trainings()) if self.plan and self.plan.model.is_there else None
        counts = {recipe: self._training_amount(recipe) for recipe, _ in self.parts} if any(self.objectives) else {}
        for objective in self.objectives:
            for seed in self._seeds(objective):
                for recipe, _ in self.parts:
                    if objective is not None:
                        stage = next(planned).stage if planned else None
                        done = stage is not None and self.stages.is_finished(stage)
                        yield self._training(objective, recipe, seed, counts[recipe], DONE if done else TO_DO)

    def _training(
        self,
        loaded: LoadedObjective,
        recipe: Recipe,
        seed: int,
        counted: tuple[int | None, int | None, bool],
        state: str,
    ) -> StageLine:
        label, of = self._label(loaded), f"on {recipe.corpus}"
        line = self._trained(run_words("", label, f"seed {seed}", of), loaded, recipe, counted, state)
        return replace(line, objective=label, seed=seed, group=of)

    def _trained(
        self,
        what: str,
        loaded: LoadedObjective,
        recipe: Recipe,
        counted: tuple[int | None, int | None, bool],
        state: str,
        dtype: str | None = None,
    ) -> StageLine:
        """Return the line of a training, by its tokens, its steps, and whether these are rough."""
        tokens, steps, about = counted
        dtype = dtype or self.request.dtype
        seconds = memory = None
        if self.size is not None:
            costs = COST in getattr(loaded.objective, "needs", ())
            memory = round(estimate.training_memory(self.size, recipe, dtype, costs=costs))
            if tokens is not None:
                operations = estimate.training_operations(self.size, tokens, lora=recipe.adapters is not None)
                seconds = operations / (self.machine.rate(estimate.computes_in(recipe, dtype)) * self.machine.training)
        said = [duration(seconds)] if seconds is not None else []
        said += [gigabytes(memory)] if memory is not None else []
        unknown = f"all of {recipe.corpus}, whose size is not known here"
        return StageLine(
            stage="train",
            what=what,
            amount=unknown if tokens is None else training_words(tokens, steps, about),
            estimate="" if state == DONE else ", ".join(said),
            state=state,
            tokens=tokens,
            steps=steps,
            seconds=seconds,
            memory_bytes=memory,
        )

    def _training_amount(self, recipe: Recipe) -> tuple[int | None, int | None, bool]:
        """Return target tokens, steps, and whether these are rough: not where model and corpus are here."""
        texts = self.at.texts(recipe.corpus, "train")
        if self.exact and texts is not None and self.model is not None:
            return (*self._counted(recipe), False)
        return self._rough_amount(recipe)

    def _rough_amount(self, recipe: Recipe) -> tuple[int | None, int | None, bool]:
        """Return target tokens and steps by the bytes of the texts, or by those that are documented."""
        texts = self.at.texts(recipe.corpus, "train")
        size = (
            corpus_bytes(recipe.corpus, "train") if texts is None else sum(len(text.encode()) for text in texts.texts)
        )
        if size is None and recipe.max_tokens is None:
            return None, None, True
        there = float("inf") if size is None else size / self._bytes_per_token
        tokens, steps = estimate.blocks_and_steps(recipe, int(min(there, recipe.max_tokens or there)))
        return tokens, steps, True

    def _counted(self, recipe: Recipe) -> tuple[int, int]:
        assert self.model is not None
        texts = {split: found for split in ("train",) if (found := self.at.texts(recipe.corpus, split)) is not None}
        loaded = next(objective for objective in self.objectives if objective is not None)
        return self._packed(PlannedTraining(self.model, loaded, recipe, 0, texts))

    def _packed(self, planned: PlannedTraining) -> tuple[int, int]:
        """Return the target tokens and the steps of a training."""
        from emobench.pipeline.execution.train import Trainer

        packed = Trainer(self.stages, Silent()).pack(planned, "train")
        return int(packed.target_count * planned.recipe.epochs), total_steps(planned.recipe, len(packed), 1)

    def _evaluations(self) -> Iterator[StageLine]:
        planned = iter(self.plan.tasks()) if self.plan and self.plan.model.is_there else None
        for objective in self.objectives:
            label = self._label(objective)
            for seed in self._seeds(objective):
                for _, tasks in self.parts:
                    for task in tasks:
                        stage = next(planned).scores if planned else None
                        done = stage is not None and self.stages.is_finished(stage)
                        yield self._evaluation(label, seed, task, DONE if done else TO_DO)

    def _evaluation(self, label: str, seed: int, task: Task, state: str) -> StageLine:
        found = self._costs[task.name]
        of = f"{task.name} {task.protocol_id}"
        seconds, memory = self._evaluation_seconds(task, found), self._evaluation_memory(task, found)
        tokens = None if found.tokens is None else found.tokens + sum(found.auxiliary_tokens.values())
        said = [duration(seconds)] if seconds is not None else []
        said += [gigabytes(memory)] if memory is not None else []
        return StageLine(
            stage="evaluate",
            what=run_words("", label, f"seed {seed}", of),
            objective=label,
            seed=seed,
            group=of,
            amount=evaluation_words(found.examples, tokens),
            estimate="" if state == DONE else ", ".join(said),
            state=state,
            tokens=tokens,
            examples=found.examples,
            seconds=seconds,
            memory_bytes=memory,
        )

    def _evaluation_seconds(self, task: Task, found: Cost) -> float | None:
        """Return the time of all models that read, and of the steps of sampling."""
        named = load_kind(task.kind).auxiliary_models(task)
        times = [self._scoring_seconds(self.size, found.tokens, self.request.dtype)]
        times += [
            self._scoring_seconds(self.auxiliary[named[part]], n, "float32")
            for part, n in found.auxiliary_tokens.items()
        ]
        known = [seconds for seconds in times if seconds is not None]
        return sum(known) + found.steps * self.machine.step if len(known) == len(times) else None

    def _evaluation_memory(self, task: Task, found: Cost) -> int | None:
        """Return bytes: the evaluated model with a batch, and the weights of auxiliary models, which stay."""
        if self.size is None:
            return None
        memory = estimate.scoring_memory(self.size, self.request.dtype, sampled=found.batch_tokens)
        named = load_kind(task.kind).auxiliary_models(task)
        sizes = {named[part].name: self.auxiliary[named[part]] for part in found.auxiliary_tokens}
        return round(memory + sum(estimate.weights_memory(size, "float32") for size in sizes.values() if size))

    @cached_property
    def _costs(self) -> dict[str, Cost]:
        context = None if self.size is None else self.size.context
        model = EvaluatedModel(self.model, context, self._bytes_per_token)
        tasks = [task for _, tasks in self.parts for task in tasks]
        return {task.name: load_kind(task.kind).cost(task, self.at, model) for task in tasks}

    def _scoring_seconds(self, size: ModelSize | None, tokens: int | None, precision: str) -> float | None:
        if size is None or tokens is None:
            return None
        return estimate.scoring_operations(size, tokens) / (self.machine.rate(precision) * self.machine.scoring)

    @property
    def _bytes_per_token(self) -> float:
        return BYTES_PER_TOKEN if self.size is None else self.size.bytes_per_token

    def _seeds(self, objective: LoadedObjective | None) -> Iterable[int]:
        return (0,) if objective is None else self.request.seeds or self.suite.seeds

    def _label(self, objective: LoadedObjective | None) -> str:
        """Return an objective as it was asked for: defaults that were said stay to be seen."""
        if objective is None:
            return PRETRAINED
        if not self.request.objectives or self.request.section("objective"):
            return repr(objective.objective)
        return next(t for t, one in zip(self.request.objectives, self.objectives, strict=True) if one is objective)

    def _assumptions(self) -> Iterator[str]:
        dtype, machine = self.request.dtype, self.machine
        recipes = [recipe for recipe, _ in self.parts] if any(self.objectives) else []
        trained = {(estimate.computes_in(recipe, dtype), dtype) for recipe in recipes}
        if isinstance(self.model, MadeModel):
            trained.add((PRETRAINED_IN, PRETRAINED_IN))
        yield f"Times are rough, for {machine.name}:"
        for precision, weights in sorted(trained):
            rate = f"{machine.rate(precision) / 1e12:.3g} TFLOP/s"
            kept = "" if weights == precision else f" (recipe.precision; weights in {weights}, by --dtype)"
            yield f"  training in {precision}{kept}, at {machine.training:.0%} of {rate};"
        yield f"  scoring in {dtype}, at {machine.scoring:.0%} of {machine.rate(dtype) / 1e12:.3g} TFLOP/s."
        yield (
            "N parameters take 6 N operations a trained token (4 N with LoRA) and 2 N a scored one; what this leaves "
            "out, and what is guessed, may double or halve a time."
        )
        if any(found.steps for found in self._costs.values()):
            yield (
                f"A step of sampling, a token of a batch, is assumed to take {1000 * machine.step:.0f} ms at least. "
                "MAUVE's clusters and ROUGE, which the processor computes, come besides."
            )
        if machine is H100 and dtype == "float32":
            faster = machine.rate("bfloat16") / machine.rate(dtype)
            more = " --set recipe.precision=bfloat16" if trained else ""
            yield f"--dtype bfloat16{more}: half the memory for weights, and scoring is {faster:.0f} times as fast."
        if self.size is None:
            yield f"The size of {self.name} is not known here: no time or memory is given."
        if self.model is not None and not self.model.is_there:
            yield f"What is finished is known once {self.model.name} is made: its weights are part of every key."
        if self.model is not None and self.model.source.kind == "hub":
            yield "The hub was not asked: what is here of it is taken as it was downloaded."
        if self.at.downloads:
            yield "What is not here was not looked at: counts with '~' are from the catalog and the task files."
