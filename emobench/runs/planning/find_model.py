"""The model that a run starts from, by its name; a tiny one is made by the harness at first use."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from emobench.core.errors import ConfigError, ModelError
from emobench.core.extras import require
from emobench.core.settings import content_hash
from emobench.models.catalog import ModelFacts, ModelSource, find_made_model
from emobench.models.device import LoadOptions
from emobench.models.folder import identity
from emobench.models.model import Model
from emobench.registry import find_recipe, load_objective
from emobench.runs.planning.request import Request
from emobench.runs.planning.tiny_models import TINY_MODELS, TinyModel, texts_of, tokenizer_of
from emobench.runs.stages.stage import Stages
from emobench.runs.stages.train import Pretraining
from emobench.training.recipe import Recipe, require_liger_on


def base_model(name: str, request: Request) -> Model:
    """Return the model of a request, whose files are read at first use.

    Raises DataError for a tiny model if the texts of its pre-training are missing.
    """
    made = find_made_model(name)
    if made is None:
        return Model(name, request.load_options)
    tiny = replace(TINY_MODELS[made.source], seed=made.seed)
    maker = TinyMaker(made, tiny, request.load_options, tuple(request.data_dirs), request.runs)
    _ = maker.stage
    return Model(name, request.load_options, made_by=maker)


@dataclass(frozen=True)
class TinyMaker:
    """Makes a tiny model by a training in the folder of runs (`Model.made_by`)."""

    source: ModelSource
    tiny: TinyModel
    options: LoadOptions
    data_dirs: tuple[Path, ...]
    """Where the texts of its pre-training may be."""
    runs: Path | None
    """None for the model before its pre-training."""

    @cached_property
    def stage(self) -> Pretraining | None:
        """The training that makes it; its settings are the project's, not the request's."""
        if self.runs is None:
            return None
        tiny, recipe, texts = self.tiny, find_recipe(self.tiny.recipe), {}
        for split in ("train", "validation"):
            texts[split] = texts_of(tiny, recipe.corpus, split, self.data_dirs)
        options = replace(self.options, dtype="float32", from_scratch=False)
        untrained = Model(self.source.name, options, made_by=replace(self, runs=None))
        return Pretraining(untrained, load_objective("mle"), recipe, tiny.seed, texts, tiny)

    @property
    def is_finished(self) -> bool:
        if self.runs is None or self.stage is None:
            return True
        stages = Stages(self.runs)
        return stages.is_finished(self.stage) and stages.damage(self.stage, full=True) is None

    @property
    def identity(self) -> Mapping[str, Any]:
        """The digests of its files, as of a local folder."""
        if self.runs is None or self.stage is None:
            return self.tiny.facts
        folder = Stages(self.runs).folder(self.stage) / "model"
        if not self.is_finished:
            raise ModelError(f"{self.source.name} is not made yet: {folder} is missing, so its weights are unknown.")
        return identity(ModelSource(self.source.name, str(folder), None, "local"))

    @property
    def tokenizer(self) -> Any:
        return tokenizer_of(self.tiny, self.data_dirs)

    @property
    def facts(self) -> ModelFacts:
        tiny, rows = self.tiny, len(self.tokenizer)
        return ModelFacts(
            parameters=tiny.parameters(rows),
            width=tiny.width,
            layers=tiny.layers,
            vocabulary=rows,
            context=tiny.context,
        )

    def pretraining_fields(self) -> dict[str, Any]:
        assert self.stage is not None
        facts = {name: fact for name, fact in self.stage.facts.items() if name != "seed"}
        return {"seed": self.source.seed, "setting": content_hash(facts)}


def check_recipe(model: Model, recipe: Recipe) -> None:
    """Raise ConfigError if a recipe does not fit a model or its device.

    Raises ModelError for a model that no objective can train.
    """
    if model.facts.untrainable is not None:
        raise ModelError(model.facts.untrainable)
    if recipe.adapters is not None:
        require("peft")
        if model.made_by is None:  # peft's defaults fit the tiny models
            from emobench.models.load import build_skeleton
            from emobench.training.model_changes import with_adapters

            with_adapters(build_skeleton(model.source, model.options), recipe.adapters)
    if model.context is not None and recipe.max_length > model.context:
        raise ConfigError(
            f"Recipe {recipe.name} trains on {recipe.max_length} tokens, but {model.name} reads at most "
            f"{model.context}; add --set recipe.max_length={model.context}, or take a model with a longer context."
        )
    recipe.micro_batch(int(os.environ.get("WORLD_SIZE", "1")))
    if recipe.precision == "float16" and not model.options.device.startswith("cuda"):
        raise ConfigError(
            f"recipe.precision is float16 (by itself, or by --dtype), which scales its loss on a CUDA device; "
            f"--device is {model.options.device}. Use --set recipe.precision=bfloat16."
        )
    if recipe.precision == "float16" and recipe.weight_dtype != "float32" and recipe.adapters is None:
        raise ConfigError(
            f"recipe.precision is float16, whose scaled gradients must be float32, and recipe.weight_dtype is "
            f"{recipe.weight_dtype}; use --set recipe.weight_dtype=float32, or --set recipe.precision=bfloat16."
        )
    if recipe.liger:
        require_liger_on(model.options.device)
