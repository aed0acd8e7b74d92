"""What the parts of a plan cost: tokens, steps, seconds and memory, from what is here or known without it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from emobench.core.settings import PRETRAINED
from emobench.kinds.auxiliary import AuxiliaryModel
from emobench.kinds.cost import Cost, EvaluatedModel
from emobench.models.device import is_here
from emobench.runs.execution.corpora import PackedCorpora
from emobench.runs.execution.reporter import Silent
from emobench.runs.planning import estimate
from emobench.runs.planning.base_model import AbsentModel
from emobench.runs.planning.estimate import H100, Machine, ModelSize, this_machine
from emobench.runs.planning.find_model import MadeModel
from emobench.runs.planning.ingredients import corpus_bytes, corpus_rows, size_of
from emobench.runs.planning.plan import Plan
from emobench.runs.planning.planned import PlannedTask, PlannedTraining
from emobench.runs.stages.stage import Stages
from emobench.training.recipe import require_a_rate, total_steps

EXPECTED_COST = "expected_cost"
BYTES_PER_TOKEN = ModelSize(parameters=0).bytes_per_token


@dataclass(frozen=True)
class Amount:
    """What a training trains on; None where it is not known."""

    tokens: int | None
    """Target tokens of all epochs."""
    steps: int | None
    rough: bool
    """By the bytes of the texts, and not by the tokenizer."""


@dataclass(frozen=True)
class Effort:
    """What a stage takes; None where it is not known."""

    seconds: float | None
    memory_bytes: int | None
    accumulation: int | None = None
    """Micro-batches of a step, where those of the recipe do not fit the memory of the GPU."""


class Timed(Protocol):
    """What was timed of a plan's work; None for what was not."""

    @property
    def note(self) -> str:
        """What was timed, as a sentence."""
        ...

    def training(self, planned: PlannedTraining, tokens: int | None) -> Effort | None: ...
    def seconds(self, planned: PlannedTask, tokens: int | None) -> float | None: ...


class Costs:
    """The costs of a plan's parts; those of one recipe, or one task, are counted once for all rows.

    Without `exact` no corpus is tokenized: what it takes at most, at once. What was timed takes the place of estimates.
    """

    def __init__(
        self, plan: Plan, *, exact: bool, timed: Timed | None = None, corpora: PackedCorpora | None = None
    ) -> None:
        self._plan = plan
        self._timed = timed
        self._exact = exact
        self.corpora = corpora or PackedCorpora(Stages(plan.request.runs), Silent(), keep=False)
        self._amounts: dict[object, Amount] = {}
        self._evaluations: dict[str, Cost] = {}
        self._sizes: dict[AuxiliaryModel, ModelSize | None] = {}
        self.size = size_of(plan.model)
        self.machine: Machine = this_machine(plan.request.device) if is_here(plan.request.device) else H100

    def amount(self, planned: PlannedTraining) -> Amount:
        """Return what a training trains on. Raises ConfigError if its learning rate is 0 in all steps."""
        if planned.recipe not in self._amounts:
            here = "train" in planned.texts and not isinstance(planned.model, AbsentModel)
            self._amounts[planned.recipe] = self._counted(planned) if self._exact and here else self._rough(planned)
        return self._amounts[planned.recipe]

    def training(self, planned: PlannedTraining) -> Effort:
        """Return what a training takes."""
        if self.size is None:
            return Effort(None, None)
        recipe, tokens = planned.recipe, self.amount(planned).tokens
        if self._timed is not None and (timed := self._timed.training(planned, tokens)) is not None:
            return timed
        costs = EXPECTED_COST in getattr(planned.objective.objective, "needs", ())
        memory = estimate.training_memory(self.size, recipe, costs=costs)
        parts = recipe
        # As `train_to_fit` does on a GPU whose memory is used up. A CPU's system would end the process.
        while self._plan.request.device.startswith("cuda") and memory > self.machine.memory:
            smaller = parts.in_less_memory()
            if smaller is None:
                break
            parts, memory = smaller, estimate.training_memory(self.size, smaller, costs=costs)
        accumulation = None if parts == recipe else parts.accumulation
        if tokens is None:
            return Effort(None, round(memory), accumulation)
        operations = estimate.training_operations(
            self.size, tokens, lora=recipe.adapters is not None, checkpointing=recipe.gradient_checkpointing
        )
        rate = self.machine.rate(estimate.computes_in(recipe)) * self.machine.training
        return Effort(operations / rate, round(memory), accumulation)

    def tokens(self, planned: PlannedTask) -> Cost:
        """Return the examples and tokens of an evaluation, as its kind counts them."""
        task = planned.task
        if task.name not in self._evaluations:
            model = self._plan.model
            base = None if isinstance(model, AbsentModel) else model
            read = EvaluatedModel(base, None if self.size is None else self.size.context, self._bytes_per_token)
            self._evaluations[task.name] = planned.kind.cost(task, self._plan.ingredients, read)
        return self._evaluations[task.name]

    def all_tokens(self, planned: PlannedTask) -> int | None:
        """Return the tokens that all models read for an evaluation; None where they are not known."""
        found = self.tokens(planned)
        return None if found.tokens is None else found.tokens + sum(found.auxiliary_tokens.values())

    def evaluation(self, planned: PlannedTask) -> Effort:
        """Return what an evaluation takes: all models that read, the steps of sampling, and the weights that stay."""
        found, dtype = self.tokens(planned), self._plan.request.weights
        read = {part: self.auxiliary(planned.auxiliary[part]) for part in found.auxiliary_tokens}
        times = [self.scoring_seconds(self.size, found.tokens, dtype)]
        times += [self.scoring_seconds(read[part], n, "float32") for part, n in found.auxiliary_tokens.items()]
        known = [seconds for seconds in times if seconds is not None]
        seconds = sum(known) + found.steps * self.machine.step if len(known) == len(times) else None
        if self._timed is not None:
            timed = self._timed.seconds(planned, self.all_tokens(planned))
            seconds = seconds if timed is None else timed
        if self.size is None:
            return Effort(seconds, None)
        memory = estimate.scoring_memory(self.size, dtype, sampled=found.batch_tokens)
        held = {planned.auxiliary[part].name: size for part, size in read.items()}  # once, if it is used twice
        return Effort(seconds, round(memory + sum(4 * size.parameters for size in held.values() if size)))

    def auxiliary(self, model: AuxiliaryModel) -> ModelSize | None:
        """Return the size of an auxiliary model."""
        if model.name == PRETRAINED:
            return self.size
        if model not in self._sizes:
            self._sizes[model] = self._plan.ingredients.auxiliary(model)
        return self._sizes[model]

    def scoring_seconds(self, size: ModelSize | None, tokens: int | None, precision: str) -> float | None:
        """Return the time of a forward pass over tokens."""
        if size is None or tokens is None:
            return None
        return estimate.scoring_operations(size, tokens) / (self.machine.rate(precision) * self.machine.scoring)

    @property
    def precisions(self) -> list[tuple[str, str]]:
        """What trainings compute in, with the precision of their weights."""
        model, trainings = self._plan.model, list(self._plan.trainings())
        trainings += [model.pretraining] if isinstance(model, MadeModel) else []
        recipes = [planned.recipe for planned in trainings]
        return sorted({(estimate.computes_in(recipe), recipe.weight_dtype) for recipe in recipes})

    def _counted(self, planned: PlannedTraining) -> Amount:
        packed = self.corpora.rows(planned, "train")
        tokens = int(packed.target_count * planned.recipe.epochs)
        steps = total_steps(planned.recipe, len(packed))
        require_a_rate(planned.recipe, steps)
        return Amount(tokens, steps, rough=False)

    def _rough(self, planned: PlannedTraining) -> Amount:
        """Count by the bytes of the texts, or by those that are documented."""
        recipe, texts = planned.recipe, planned.texts.get("train")
        if texts is None:
            size, count = corpus_bytes(recipe.corpus, "train"), corpus_rows(recipe.corpus)
        else:
            size, count = sum(len(text.encode()) for text in texts.texts), len(texts.texts)
        if size is not None:
            tokens = int(size / self._bytes_per_token)
        elif recipe.max_tokens is not None:
            tokens, count = recipe.max_tokens, None
        else:
            return Amount(None, None, rough=True)
        return Amount(*estimate.tokens_and_steps(recipe, tokens, count), rough=True)

    @property
    def _bytes_per_token(self) -> float:
        return BYTES_PER_TOKEN if self.size is None else self.size.bytes_per_token
