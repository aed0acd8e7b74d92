"""The base model of a run by its name: a folder, a hub model, or a tiny one that the harness makes at first use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from emobench.core.errors import ModelError
from emobench.core.settings import content_hash
from emobench.models.catalog import ModelSource, find_model
from emobench.models.folder import identity, model_folder
from emobench.registry import find_recipe, load_objective
from emobench.runs.planning.base_model import BaseModel
from emobench.runs.planning.request import Request
from emobench.runs.planning.tiny_models import TinyModel, find_tiny_model, texts_of, tokenizer_of
from emobench.runs.stages.stage import Stages
from emobench.runs.stages.train import Pretraining


@dataclass(frozen=True)
class MadeModel(BaseModel):
    """A tiny model, which a training of the harness makes in the folder of runs."""

    runs: Path = Path("runs")
    data_dirs: tuple[Path, ...] = ()
    """Where the texts of its pre-training may be."""

    @cached_property
    def tiny(self) -> TinyModel:
        """What it is made from."""
        return find_tiny_model(self.source)

    @cached_property
    def pretraining(self) -> Pretraining:
        """The training that makes it; its settings are the project's, not the request's."""
        tiny = self.tiny
        recipe = find_recipe(tiny.recipe)
        texts = {split: texts_of(tiny, recipe.corpus, split, self.data_dirs) for split in ("train", "validation")}
        options = replace(self.options, dtype="float32", from_scratch=False)
        untrained = MadeModel(self.source, lambda: tiny.facts, options, data_dirs=self.data_dirs)
        return Pretraining(untrained, load_objective("mle"), recipe, tiny.seed, texts, tiny)

    @property
    def stages(self) -> Sequence[Pretraining]:
        return (self.pretraining,)

    @property
    def is_there(self) -> bool:
        """Whether it is made, and whole."""
        stage, stages = self.pretraining, Stages(self.runs)
        return stages.is_finished(stage) and stages.damage(stage, full=True) is None

    @cached_property
    def tokenizer(self) -> Any:
        return tokenizer_of(self.tiny, self.data_dirs)

    @property
    def context(self) -> int:
        return self.tiny.context

    @property
    def rows(self) -> int:
        return len(self.tokenizer)

    @property
    def parameters(self) -> int:
        return self.tiny.parameters(self.rows)

    @property
    def shape(self) -> tuple[int, int]:
        return self.tiny.width, self.tiny.layers

    def pretraining_fields(self) -> dict[str, Any]:
        """Return how it is made as a leaderboard entry says it; it need not be made yet."""
        facts = {name: fact for name, fact in self.pretraining.facts.items() if name != "seed"}
        return {"seed": self.source.seed, "setting": content_hash(facts)}

    def entry_fields(self) -> dict[str, Any]:
        return {**super().entry_fields(), "pretraining": self.pretraining_fields()}


def find_base_model(name: str, request: Request) -> BaseModel:
    """Look up and check a model without reading its weights."""
    source, options = find_model(name, offline=request.offline), request.load_options
    if source.kind == "made":
        return made_model(name, request)
    if options.offline:  # a model that is not here is told without transformers, whose import takes a second
        model_folder(source, offline=True, weights=False)
    from emobench.models.load import check_model

    facts = check_model(
        source, from_scratch=options.from_scratch, offline=options.offline, trust_remote_code=options.trust_remote_code
    )
    return BaseModel(source, partial(identity, source), options, facts)


def made_model(name: str, request: Request) -> MadeModel:
    """Look up a tiny model; raises DataError where the texts of its pre-training are not here."""
    source, places = find_model(name, offline=True), {"runs": request.runs, "data_dirs": request.data_dirs}
    found = MadeModel(source, lambda: _made_identity(found), request.load_options, **places)
    _ = found.pretraining
    return found


def _made_identity(model: MadeModel) -> Mapping[str, Any]:
    """Return what identifies a made model: its files' digests, as of a local folder."""
    folder = Stages(model.runs).folder(model.pretraining) / "model"
    if not model.is_there:
        raise ModelError(f"{model.name} is not made yet, so that its weights are not known: {folder} is not there.")
    return identity(ModelSource(model.name, str(folder), None, "local"))
