"""The training stage: a model, an objective, a recipe and a seed become a folder with a model in it."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from emobench.core.settings import to_plain
from emobench.core.versions import minor_versions
from emobench.data.chat_templates import RULES as CHAT_RULES
from emobench.data.local_files import data_name
from emobench.data.oracle.language import TEXT_COUNTS, HiddenMarkovLanguage, oracle_language
from emobench.data.packing import RowCollator
from emobench.data.texts import Texts
from emobench.models.device import LoadOptions, free_memory, quick_collections
from emobench.models.model import AuxiliaryModel, Model
from emobench.models.quiet import quiet_libraries
from emobench.registry import LoadedObjective
from emobench.runs.execution.environment import write_environment
from emobench.runs.execution.launch import rank
from emobench.runs.planning.tiny_models import TinyModel, fixed_threads, leave_out_version, write_untrained
from emobench.runs.stages.corpora import Corpus
from emobench.runs.stages.stage import Stage
from emobench.training.recipe import Recipe, computed_with

if TYPE_CHECKING:
    from emobench.models.load import LoadedModel
    from emobench.runs.execution.execution import Execution
    from emobench.training.trackers import Tracking


@dataclass(frozen=True, eq=False)
class PlannedTraining(Stage):
    """One training of one seed."""

    kind = "train"
    described = continues = glance = True
    together: ClassVar[bool] = True
    """Whether the processes of a launch train, if there is one."""
    model: Model
    objective: LoadedObjective
    recipe: Recipe
    seed: int
    texts: Mapping[str, Texts]
    """The train and validation splits of the recipe's corpus, as far as they are on this machine."""

    @cached_property
    def facts(self) -> Mapping[str, Any]:
        """All that determines the weights."""
        model, objective, recipe, texts = self.model, self.objective, self.recipe, self.texts
        reads = {name: dict(model.beside(AuxiliaryModel(name, "lm")).identity) for name in models_read(objective)}
        facts = {
            "model": dict(model.identity),
            "from_scratch": model.options.from_scratch,
            "objective": {
                "name": objective.name,
                "version": objective.objective.version,
                "params": objective.objective.params,
                "source": objective.source_sha256,
                "reads": reads,
            },
            "recipe": {**to_plain(recipe), "corpus": data_name(recipe.corpus)},
            "texts": {split: texts[split].fingerprint for split in sorted(texts)},
            "seed": self.seed,
            "dtype": recipe.weight_dtype,
            **computed_with(model.options.device, recipe),
        }
        if objective.versions:
            facts["objective"]["packages"] = dict(objective.versions)
        if recipe.template != "none":
            facts["chat"] = CHAT_RULES
        peft = () if recipe.adapters is None else ("peft",)
        return facts | machine(model.options, "torch", "transformers", "accelerate", *peft)

    @property
    def title(self) -> str:
        return "its training"

    @property
    def loads(self) -> str:
        return self.key

    @cached_property
    def corpora(self) -> dict[str, Corpus]:
        """The packed rows of each split, as far as the texts are on this machine."""
        return {split: Corpus(self.model, self.recipe, split, texts) for split, texts in self.texts.items()}

    @property
    def needs(self) -> Sequence[Stage]:
        return (*self.corpora.values(), *self.model.stages)

    @property
    def what(self) -> str:
        """The training, as its progress is shown."""
        return f"train {self.objective.objective} seed {self.seed}"

    def make(self, folder: Path, tools: Execution) -> None:
        """Train alone, or as one of the processes of a group; with a launch, its processes train."""
        from emobench.training.train import Training, train_to_fit

        tools.make_room()
        if tools.launch is not None and self.together:
            tools.launch_training(self)
            return
        rows = {split: tools.corpora.rows(corpus) for split, corpus in self.corpora.items()}
        # --dtype is for evaluations, and the recipe has the weights' type.
        options = replace(self.model.options, dtype=self.recipe.weight_dtype)
        reporter, tracking = tools.reporter, self._tracking(tools)
        language = known_language(self.texts.values())
        with quick_collections(), quiet_libraries(), reporter.work(self.what, "steps") as progress:

            def on_step(values: dict[str, float]) -> None:
                if "tokens_per_second" in values:
                    reporter.values(values)
                progress(int(values["step"]), int(values["steps"]))

            def prepare(recipe: Recipe) -> Training:
                loaded = self._load(folder, tools)
                tokenizer = loaded.tokenizer
                # Padding is masked and labelled -100: any id does, and no symbol is added to the vocabulary.
                padding = tokenizer.pad_token_id
                if padding is None:
                    padding = tokenizer.eos_token_id or 0
                return Training(
                    model=loaded.model,
                    tokenizer=tokenizer,
                    objective=copy.deepcopy(self.objective.objective),  # its tensors go with this training
                    recipe=recipe,
                    split=recipe != self.recipe,
                    train=rows["train"],
                    validation=rows["validation"],
                    collate=RowCollator(padding),
                    seed=self.seed,
                    folder=folder,
                    pretrained=self._pretrained,
                    device=options.device,
                    tracking=tracking,
                    load_head=partial(head_of, options=options),
                    load_model=partial(model_of, options=options),
                    known_language=language,
                    progress=on_step,
                    note=reporter.note,
                )

            train_to_fit(prepare, self.recipe, reporter.note)
        self._finish(folder)
        free_memory()

    @property
    def _pretrained(self) -> bool:
        return not self.model.options.from_scratch

    def _load(self, folder: Path, tools: Execution) -> LoadedModel:
        seed = None if self._pretrained else self.seed
        return tools.base(self.model).load(seed=seed, dtype=self.recipe.weight_dtype)

    def _tracking(self, tools: Execution) -> Tracking | None:
        from emobench.runs.execution.record import tracking_of

        return tracking_of(self, tools) if tools.request.trackers and rank() == 0 else None

    def _finish(self, folder: Path) -> None:
        if rank() == 0:
            write_environment(folder, self.model.options.device)


@dataclass(frozen=True, eq=False)
class Pretraining(PlannedTraining):
    """The training that makes a tiny model at first use."""

    glance = False
    together = False
    tiny: TinyModel

    @property
    def needs(self) -> Sequence[Stage]:
        return tuple(self.corpora.values())

    @property
    def what(self) -> str:
        return f"pre-train {self.model.name}"

    @property
    def _pretrained(self) -> bool:
        return False

    def make(self, folder: Path, tools: Execution) -> None:
        tools.reporter.note(f"{self.model.name}: pre-trained once on {self.recipe.corpus}, then kept")
        with fixed_threads():
            write_untrained(self.tiny, folder / "untrained", self.model.tokenizer)
            super().make(folder, tools)

    def _load(self, folder: Path, tools: Execution) -> LoadedModel:
        return self.model.trained_in(folder / "untrained").load()

    def _tracking(self, tools: Execution) -> None:
        return None

    def _finish(self, folder: Path) -> None:
        leave_out_version(folder / "model")


def machine(options: LoadOptions, *packages: str) -> dict[str, Any]:
    """Return the device class and the minor versions of the packages that compute."""
    return {"device": options.device.partition(":")[0], "packages": minor_versions("emobench", *packages)}


def models_read(objective: LoadedObjective) -> list[str]:
    """Return the models that an objective reads.

    The known language, which the texts identify, is none; nor are ground costs of texts, which the tokenizer and the
    objective's source identify.
    """
    from emobench.objectives.cost import is_embedding
    from emobench.objectives.dense import LANGUAGE

    return [name for name in objective.objective.reads if name != LANGUAGE and is_embedding(name)]


def known_language(texts: Iterable[Texts]) -> HiddenMarkovLanguage | None:
    """Return the language that all of these texts were sampled from; None if it is unknown."""
    origins = {text.origin for text in texts}
    for domain in TEXT_COUNTS:
        if origins == {f"generated: oracle-{domain}, version 1"}:
            return oracle_language(domain)
    return None


def head_of(name: str, options: LoadOptions) -> Any:
    """Return the head weight of another model, for a cost embedding: in float32, on the CPU."""
    from emobench.models.head import probe_head

    model = Model(name, LoadOptions(offline=options.offline)).load().model
    return probe_head(model).linear.weight.detach()


def model_of(name: str, options: LoadOptions) -> Any:
    """Return another model, for a teacher, in the precision and on the device of the one that is trained."""
    return Model(name, replace(options, trust_remote_code=False, from_scratch=False, tokenizer=None)).load().model
