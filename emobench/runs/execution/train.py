"""The train stage: a planned training becomes a folder with a model in it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emobench.data.packing import RowCollator
from emobench.data.responses import PackedCollator
from emobench.models.catalog import find_model
from emobench.models.device import LoadOptions, free_memory, quick_collections
from emobench.models.quiet import quiet_libraries
from emobench.runs.execution.corpora import PackedCorpora
from emobench.runs.execution.environment import write_environment
from emobench.runs.execution.group import rank
from emobench.runs.execution.reporter import Reporter
from emobench.runs.execution.tracking import tracking_of
from emobench.runs.planning.base_model import BaseModel
from emobench.runs.planning.find_model import MadeModel
from emobench.runs.planning.planned import PlannedTraining, known_language
from emobench.runs.planning.tiny_models import fixed_threads, leave_out_version, write_untrained
from emobench.runs.stages.stage import Stages

if TYPE_CHECKING:
    from emobench.models.load import LoadedModel
    from emobench.training.recipe import Recipe
    from emobench.training.trackers import Tracking


class Trainer:
    """Makes train stages, and the packed corpora that they read."""

    def __init__(
        self,
        stages: Stages,
        reporter: Reporter,
        trackers: tuple[str, ...] = (),
        elsewhere: Callable[[PlannedTraining], None] | None = None,
        corpora: PackedCorpora | None = None,
        make_room: Callable[[], None] = free_memory,
    ) -> None:
        """Trainings that `elsewhere` makes, if it is given, are made in their folder by other processes.

        `corpora` may be those of another trainer with the same folder of runs. `make_room` is called before a training.
        """
        self._stages = stages
        self._reporter = reporter
        self._trackers = trackers
        self._elsewhere = elsewhere
        self._make_room = make_room
        self.corpora = corpora or PackedCorpora(stages, reporter)

    def folder(self, planned: PlannedTraining, *, reads: bool = False) -> Path:
        """Return the folder of a finished training, after training if need be; with `reads`, its weights are hashed."""

        def work(folder: Path) -> None:
            self._make_room()
            if self._elsewhere is not None:
                self._elsewhere(planned)
                return
            with quick_collections():
                self.train(planned, folder)
                free_memory()

        return self._stages.make(planned.stage, work, continues=True, glance=not reads)

    def train(self, planned: PlannedTraining, folder: Path) -> None:
        """Train in the folder of a stage that is locked, alone or as one of the processes of a group."""
        scratch, main = planned.model.options.from_scratch, rank() == 0
        tracks = self._trackers and main
        tracking = tracking_of(planned, self._trackers, self._stages, self._reporter) if tracks else None

        def load() -> LoadedModel:
            base = self.base_folder(planned.model)
            return planned.model.load(base, seed=planned.seed if scratch else None, dtype=planned.recipe.weight_dtype)

        title = f"train {planned.objective.objective} seed {planned.seed}"
        self._train(planned, load, folder, title, pretrained=not scratch, tracking=tracking)
        if main:
            write_environment(folder, planned.model.options.device)

    def base_folder(self, model: BaseModel) -> Path | None:
        """Return the folder of a tiny model, after pre-training it at first use; None for a model that was given."""
        return self.made_folder(model) if isinstance(model, MadeModel) else None

    def made_folder(self, model: MadeModel) -> Path:
        """Return the folder of a tiny model, after pre-training it at first use."""
        planned = model.pretraining

        def work(folder: Path) -> None:
            self._make_room()
            self._reporter.note(f"{planned.model.name}: pre-trained once on {planned.recipe.corpus}, then kept")
            with fixed_threads():
                write_untrained(model.tiny, folder / "untrained", model.tokenizer)
                load = partial(planned.model.load, folder / "untrained")
                self._train(planned, load, folder, f"pre-train {planned.model.name}", pretrained=False)
            leave_out_version(folder / "model")
            free_memory()

        return self._stages.make(planned.stage, work, continues=True) / "model"

    def _train(
        self,
        planned: PlannedTraining,
        load: Callable[[], LoadedModel],
        folder: Path,
        title: str,
        *,
        pretrained: bool,
        tracking: Tracking | None = None,
    ) -> None:
        from emobench.training.train import Training, train_to_fit

        options = planned.options
        rows = {split: self.corpora.rows(planned, split) for split in ("train", "validation")}
        with quiet_libraries(), self._reporter.work(title, "steps") as progress:

            def on_step(values: dict[str, float]) -> None:
                if "tokens_per_second" in values:
                    self._reporter.values(values)
                progress(int(values["step"]), int(values["steps"]))

            def prepare(recipe: Recipe) -> Training:
                loaded = load()
                tokenizer = loaded.tokenizer
                # Padding is masked and labelled -100: any id does, and no symbol is added to the vocabulary.
                pad = next(i for i in (tokenizer.pad_token_id, tokenizer.eos_token_id, 0) if i is not None)
                return Training(
                    model=loaded.model,
                    tokenizer=tokenizer,
                    # A copy, so that what it holds on a device is gone with this training.
                    objective=copy.deepcopy(planned.objective.objective),
                    recipe=recipe,
                    split=recipe != planned.recipe,
                    train=rows["train"],
                    validation=rows["validation"],
                    collate=(PackedCollator if recipe.packing == "conversations" else RowCollator)(pad),
                    seed=planned.seed,
                    folder=folder,
                    pretrained=pretrained,
                    device=options.device,
                    tracking=tracking,
                    load_head=partial(head_of, options=options),
                    load_model=partial(model_of, options=options),
                    known_language=known_language(planned.texts.values()),
                    progress=on_step,
                    note=self._reporter.note,
                )

            train_to_fit(prepare, planned.recipe, self._reporter.note)


def head_of(name: str, options: LoadOptions) -> Any:
    """Return the head weight of another model, for a cost embedding: in float32, on the CPU."""
    from emobench.models.head import probe_head

    return probe_head(model_of(name, LoadOptions(offline=options.offline))).linear.weight.detach()


def model_of(name: str, options: LoadOptions) -> Any:
    """Return another model, for a teacher, in the precision and on the device of the one that is trained."""
    from emobench.models.load import load_model

    source = find_model(name, offline=options.offline)
    return load_model(source, dtype=options.dtype, device=options.device, offline=options.offline).model
