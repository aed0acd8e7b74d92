"""The models, corpora and data sets of a plan, each read once; a tiny model is made by the harness at first use.

With `look`, nothing is downloaded: local files are read as usual, with the same errors, and missing ones are listed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar

from emobench.core.errors import ConfigError, Missing, ModelError
from emobench.core.extras import require
from emobench.core.reading import expand_home, is_folder
from emobench.core.settings import PRETRAINED, content_hash
from emobench.data.instruction_sets import documented_rows, load_conversations, source_of
from emobench.data.sources import CORPORA, SplitSource
from emobench.data.texts import Texts, load_texts
from emobench.models.catalog import CATALOG, ModelFacts, ModelSource, find_made_model
from emobench.models.checkpoint import require_base
from emobench.models.device import MPS, LoadOptions
from emobench.models.encoder import encoder_size, find_encoder
from emobench.models.folder import identity
from emobench.models.model import AuxiliaryModel, Model
from emobench.registry import find_recipe, load_kind, load_objective
from emobench.runs.planning.request import Request
from emobench.runs.planning.tiny_models import TINY_MODELS, TinyModel, texts_of, tokenizer_of
from emobench.runs.stages.stage import Stages
from emobench.runs.stages.train import Pretraining
from emobench.tasks.spec import Task
from emobench.training.recipe import Recipe, require_liger_on


def base_model(name: str, request: Request) -> Model:
    """Return the model of a request, whose files are read at first use.

    Raises DataError for a tiny model if the texts of its pre-training are missing.
    """
    made = find_made_model(name)
    if made is None:
        return Model(name, request.load_options, base=request.base)
    if request.tokenizer is not None or request.base is not None:
        raise ConfigError(f"{name} is made by the harness, with its own tokenizer; drop --tokenizer and --from.")
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
    if model.options.device == MPS:
        refused = {"compile": recipe.compile, "precision": recipe.precision != "float32"}
        refused["weight_dtype"] = recipe.weight_dtype != "float32"
        for name in filter(refused.get, refused):
            raise ConfigError(
                f"recipe.{name} is {getattr(recipe, name)} (by itself, or by --dtype); --device mps trains in float32, "
                "without compilation. Drop it, or use --device cpu."
            )
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


T = TypeVar("T")
SHARED = ("data_dirs", "runs", "offline", "device", "dtype", "from_scratch", "trust_remote_code", "tokenizer", "base")
"""Settings that decide which files are read and how models are loaded: equal ones share what was read."""


class Ingredients:
    """Reads what a request needs; with `look`, `missing` lists the files that are not on this machine, by their item.

    Files that `known`, of another request, has read are not read again, if both requests look in the same places.
    """

    def __init__(self, request: Request, *, look: bool, known: Ingredients | None = None) -> None:
        self.look = look
        if look:
            request = replace(request, offline=True)
        self.request = request
        self._where: Any = {"data_dirs": request.data_dirs, "offline": request.offline}
        self.missing: dict[str, Missing] = {}
        self._read: dict[object, Any] = {}
        """Texts, conversations, data of tasks and models, by what was asked for."""
        if known is not None and all(getattr(self.request, name) == getattr(known.request, name) for name in SHARED):
            self._read.update({key: value for key, value in known._read.items() if value is not None})

    @property
    def downloads(self) -> list[Missing]:
        """The missing files that can be downloaded."""
        return [missing for missing in self.missing.values() if missing.source is not None]

    def base_model(self, name: str) -> Model:
        """Return the model of a name, checked if it is on this machine. Raises a UserError for an unknown name."""
        model = self._once(("base model", name), lambda: base_model(name, self.request))
        self.read(model.require_files)
        return model

    def checkpoint(self, name: str, base: str) -> Model:
        """Return a checkpoint with its base, both checked if they are on this machine."""
        plain = replace(self.request, tokenizer=None, base=None, declared_recipe=None)
        trained_from = self._once(("base", base), lambda: base_model(base, plain))
        self.read(trained_from.require_files)
        model = replace(self.base_model(name), trained_from=trained_from)
        self.read(lambda: require_base(model))
        return model

    def auxiliary(self, model: AuxiliaryModel) -> ModelFacts | None:
        """Check a model that is used besides the base model; return its size, None if that is unknown."""
        if model.use == "sentences":
            self.read(lambda: find_encoder(model.name, offline=self.request.offline))
            return encoder_size(model.name)
        if model.name == PRETRAINED or find_made_model(model.name) is not None:
            return None
        options = LoadOptions(device=self.request.device, offline=self.request.offline)
        use: Any = model.use
        other = self._once(("model", model.name, use), lambda: Model(model.name, options, use))
        self.read(other.require_files)
        return other.size

    def texts(self, corpus: str, split: str) -> Texts | None:
        """Return a split of a corpus, None if it is missing."""
        texts = self._once(("texts", corpus, split), partial(load_texts, corpus, split, **self._where))
        source = CORPORA.get(corpus)
        if texts is None and source is not None:
            part: SplitSource = source.splits[split]  # type: ignore[index]
            for other in part.reads:
                self._once(("texts", corpus, other), partial(load_texts, corpus, other, **self._where))
        return texts

    def training_texts(self, recipe: Recipe, split: str) -> Texts | None:
        """Return a split of the texts or conversations that a recipe trains on, None if it is missing."""
        fields = recipe.fields if split == "train" else {}  # a validation is not weighted
        if recipe.template == "none" and not fields:
            return self.texts(recipe.corpus, split)
        read: Any = load_texts if recipe.template == "none" else load_conversations
        key = (read.__name__, recipe.corpus, split, tuple(fields.items()))
        return self._once(key, partial(read, recipe.corpus, split, fields=fields, **self._where))

    def task_data(self, task: Task) -> Any:
        """Return what a task reads, None if it is missing."""
        kind = load_kind(task.kind)
        before, data = self._read.get(("task", task.name), (None, None))
        if before != task or data is None:
            data = self.read(partial(kind.runtime.load, task, **self._where))
            self._read["task", task.name] = task, data
        return data

    def read(self, load: Callable[[], T]) -> T | None:
        """Return what `load` reads; with `look`, None for a missing file, which is listed."""
        try:
            return load()
        except Missing as missing:
            if not self.look:
                raise
            self.missing.setdefault(missing.item, missing)
            return None

    def _once(self, key: object, load: Callable[[], T]) -> Any:
        """Return what `load` reads, once; files that were missing are not looked for again."""
        if key not in self._read:
            self._read[key] = self.read(load)
        return self._read[key]


def shown_name(name: str) -> str:
    """Return a model's name as a table shows it: of a folder the last part of its path."""
    folder = expand_home(name)
    return folder.resolve().name if name not in CATALOG and is_folder(folder) else name


def corpus_size(corpus: str, texts: Texts | None) -> tuple[int | None, int | None]:
    """Return the rough bytes and number of the texts, or conversations, of a training split.

    If they are not on this machine, as the corpus documents them.
    """
    if texts is not None:
        return sum(len(text.encode()) for text in texts.texts), len(texts.texts)
    source = CORPORA.get(corpus)
    if source is not None and "train" in source.splits:
        return source.splits["train"].text_bytes, source.splits["train"].rows
    source = source_of(corpus)
    if source is None or "train" not in source.splits:
        return None, None
    return source.splits["train"].text_bytes, documented_rows(corpus)
