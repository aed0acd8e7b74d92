"""The cost of a plan's stages: tokens, steps, seconds and memory, from local files or from documented sizes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from emobench.core.settings import PRETRAINED
from emobench.kinds.cost import Cost
from emobench.models.catalog import ModelFacts
from emobench.models.device import is_here
from emobench.models.model import AuxiliaryModel
from emobench.runs.dry_run.outline import StageLine, evaluation_words, training_words
from emobench.runs.execution.reporter import Silent
from emobench.runs.planning import estimate
from emobench.runs.planning.estimate import H100, Machine, this_machine
from emobench.runs.planning.ingredients import corpus_bytes, corpus_rows, shown_name
from emobench.runs.planning.plan import Plan
from emobench.runs.stages.corpora import PackedCorpora
from emobench.runs.stages.evaluate import PlannedTask
from emobench.runs.stages.stage import Stages
from emobench.runs.stages.train import PlannedTraining
from emobench.training.recipe import require_a_rate, steps_at_rate_0, total_steps

if TYPE_CHECKING:
    from emobench.runs.probe import Probe

EXPECTED_COST = "expected_cost"


@dataclass(frozen=True)
class Amount:
    """The data of a training; None for unknown numbers."""

    tokens: int | None
    """Target tokens of all epochs."""
    steps: int | None
    rough: bool
    """By the bytes of the texts, and not by the tokenizer."""


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
        self._amounts: dict[object, Amount] = {}
        self._counts: dict[str, Cost] = {}
        self._sizes: dict[AuxiliaryModel, ModelFacts | None] = {}
        self.size = plan.model.size
        self.machine: Machine = H100
        if is_here(plan.request.device):
            self.machine = this_machine(plan.request.device)

    def training(self, planned: PlannedTraining) -> StageLine:
        """Return the cost of a training. Raises ConfigError if its learning rate is 0 in all steps."""
        recipe, amount = planned.recipe, self.amount(planned)
        seconds, memory, accumulation = self._effort(planned, amount.tokens)
        line = StageLine(
            stage="train",
            group=f"on {recipe.corpus}",
            amount=f"all of {recipe.corpus}, whose size is not known here",
            tokens=amount.tokens,
            steps=amount.steps,
            accumulation=accumulation,
            seconds=seconds,
            memory_bytes=memory,
        )
        if amount.steps is not None:
            line = replace(line, steps_at_rate_0=steps_at_rate_0(recipe, amount.steps))
        if amount.tokens is not None:
            line = replace(line, amount=training_words(line, amount.rough))
        return line

    def evaluation(self, planned: PlannedTask) -> StageLine:
        """Return the cost of an evaluation: all models that read, the steps of sampling, and the weights that stay."""
        counted, dtype, tokens = self.count(planned), self._plan.request.weights, self.all_tokens(planned)
        sizes = {part: self.auxiliary(planned.auxiliary[part]) for part in counted.auxiliary_tokens}
        seconds, memory = self.scoring_seconds(self.size, counted.tokens, dtype), None
        for part, count in counted.auxiliary_tokens.items():
            more = self.scoring_seconds(sizes[part], count, "float32")
            seconds = None if seconds is None or more is None else seconds + more
        if seconds is not None:
            seconds += counted.steps * self.machine.step
        if self._timed is not None and (timed := self._timed.seconds(planned, tokens)) is not None:
            seconds = timed
        if self.size is not None:
            memory, held = estimate.scoring_memory(self.size, dtype, sampled=counted.batch_tokens), set[str]()
            for part, size in sizes.items():
                name = planned.auxiliary[part].name
                if size is not None and name not in held:  # once, if it is used twice
                    memory += 4 * size.parameters
                    held.add(name)
            memory = round(memory)
        asked = counted.requests
        line = StageLine(
            stage="evaluate",
            group=f"{planned.task.name} {planned.task.protocol_id}",
            tokens=tokens,
            examples=counted.examples,
            requests=asked and asked.count,
            request_tokens=asked and asked.read + asked.written,
            seconds=seconds,
            memory_bytes=memory,
        )
        return replace(line, amount=evaluation_words(line))

    def embedding(self, planned: PlannedTask) -> StageLine | None:
        """Return the cost of the vectors that a task's retrieval keeps for all rows; None if it needs none."""
        embedded = self.count(planned).embedding
        if embedded is None:
            return None
        encoder, amount = shown_name(embedded.model.name), "number of texts not known"
        if embedded.texts is not None:
            amount = f"{embedded.texts:,} texts"
        return StageLine(
            stage="embed",
            what=f"{planned.task.name}: {embedded.what}, {encoder}",
            group=f"{embedded.group}, {encoder}",
            amount=amount,
            tokens=embedded.tokens,
            seconds=self.scoring_seconds(self.auxiliary(embedded.model), embedded.tokens, "float32"),
        )

    def amount(self, planned: PlannedTraining) -> Amount:
        """Return how much a training trains on. Raises ConfigError if its learning rate is 0 in all steps."""
        if planned.recipe not in self._amounts:
            here = "train" in planned.texts and planned.model.is_local
            count = self._counted if self._exact and here else self._rough
            self._amounts[planned.recipe] = count(planned)
        return self._amounts[planned.recipe]

    def count(self, planned: PlannedTask) -> Cost:
        """Return the examples and tokens of an evaluation, as its kind counts them."""
        task = planned.task
        if task.name not in self._counts:
            self._counts[task.name] = planned.kind.cost(task, planned.data, self._plan.model)
        return self._counts[task.name]

    def all_tokens(self, planned: PlannedTask) -> int | None:
        """Return the tokens that all models read for an evaluation; None if they are unknown."""
        counted = self.count(planned)
        return None if counted.tokens is None else counted.tokens + sum(counted.auxiliary_tokens.values())

    def auxiliary(self, model: AuxiliaryModel) -> ModelFacts | None:
        """Return the size of an auxiliary model."""
        if model.name == PRETRAINED:
            return self.size
        if model not in self._sizes:
            self._sizes[model] = self._plan.ingredients.auxiliary(model)
        return self._sizes[model]

    def scoring_seconds(self, size: ModelFacts | None, tokens: int | None, precision: str) -> float | None:
        """Return the time of a forward pass over tokens."""
        if size is None or tokens is None:
            return None
        return estimate.scoring_operations(size, tokens) / (self.machine.rate(precision) * self.machine.scoring)

    @property
    def precisions(self) -> list[tuple[str, str]]:
        """The precisions of trainings, each with that of the weights."""
        trainings = [*self._plan.trainings(), *self._plan.model.stages]
        return sorted({(estimate.computes_in(one.recipe), one.recipe.weight_dtype) for one in trainings})

    def _effort(self, planned: PlannedTraining, tokens: int | None) -> tuple[float | None, int | None, int | None]:
        """Return seconds, bytes, and the micro-batches of a step if those of the recipe do not fit the memory."""
        if self.size is None:
            return None, None, None
        if self._timed is not None and (timed := self._timed.training(planned, tokens)) is not None:
            return *timed, None
        recipe = fitting = planned.recipe
        costs = EXPECTED_COST in getattr(planned.objective.objective, "needs", ())
        memory = estimate.training_memory(self.size, recipe, costs=costs)
        # As `train_to_fit` does on a GPU whose memory is used up. A CPU's system would end the process.
        while self._plan.request.device.startswith("cuda") and memory > self.machine.memory:
            smaller = fitting.in_less_memory()
            if smaller is None:
                break
            fitting, memory = smaller, estimate.training_memory(self.size, smaller, costs=costs)
        accumulation = None if fitting == recipe else fitting.accumulation
        if tokens is None:
            return None, round(memory), accumulation
        operations = estimate.training_operations(
            self.size, tokens, lora=recipe.adapters is not None, checkpointing=recipe.gradient_checkpointing
        )
        rate = self.machine.rate(estimate.computes_in(recipe)) * self.machine.training
        return operations / rate, round(memory), accumulation

    def _counted(self, planned: PlannedTraining) -> Amount:
        packed = self.corpora.rows(planned.corpora["train"])
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
            tokens = int(size / self._plan.model.bytes_per_token)
        elif recipe.max_tokens is not None:
            tokens, count = recipe.max_tokens, None
        else:
            return Amount(None, None, rough=True)
        return Amount(*estimate.tokens_and_steps(recipe, tokens, count), rough=True)
