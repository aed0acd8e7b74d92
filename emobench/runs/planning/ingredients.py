"""What a plan is made of: models, corpora, data sets, encoders, each read once.

A run fetches what is not here. A look asks no hub: what is here is read in the same way, with the same errors; what is
not is noted as a download, with a rough size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from safetensors import safe_open

from emobench.core.errors import DataError, ModelError
from emobench.core.reading import expand_home, is_folder, path_exists
from emobench.core.settings import PRETRAINED
from emobench.data.hub_corpus import hub_corpus
from emobench.data.instruction_sets import (
    Conversations,
    documented_rows,
    load_conversations,
    local_conversations,
    source_of,
)
from emobench.data.labelled import GENERATED, LabelledData, LabelledSource, load_labelled
from emobench.data.rows import local_file
from emobench.data.sources import CORPORA, SplitSource
from emobench.data.texts import Texts, load_texts
from emobench.kinds.auxiliary import AuxiliaryModel
from emobench.models.catalog import CATALOG, HUB_ID, ModelSource, find_made_model, find_model
from emobench.models.encoder import ALIASES, find_encoder
from emobench.models.folder import how_to_convert, model_folder, require_weights_here
from emobench.models.weights import has_weights
from emobench.registry import load_kind
from emobench.runs.planning.base_model import AbsentModel, BaseModel, absent_model
from emobench.runs.planning.estimate import ModelSize
from emobench.runs.planning.find_model import find_base_model
from emobench.runs.planning.request import Request
from emobench.tasks.spec import Task
from emobench.training.recipe import Recipe

ENCODERS = {"all-mpnet-base-v2": ModelSize(parameters=109_486_464, width=768, layers=12)}
"""Sizes of sentence encoders, for estimates; their weights on the hub are float32."""

T = TypeVar("T")


@dataclass(frozen=True)
class Download:
    """Something that is on the hub or elsewhere, and not here."""

    what: str
    source: str
    size: int | None
    """Rough bytes; None where that is not known."""


SHARED = ("data_dirs", "runs", "offline", "device", "dtype", "from_scratch", "trust_remote_code")
"""What requests have alike that may read the same: it decides where things are found, and how models are loaded."""


class Ingredients:
    """Finds what a request needs; with `look`, `downloads` collects what is not here.

    What `known`, of another request, has found is not read again, where both requests look in the same places.
    """

    def __init__(self, request: Request, *, look: bool, known: Ingredients | None = None) -> None:
        self.look = look
        self.request = replace(request, offline=True) if look else request
        self.downloads: dict[str, Download] = {}
        self.unusable: dict[str, str] = {}
        """Why a model that is not here could not be used if it were fetched, or a program is not, and what to type, by
        its name."""
        self._texts: dict[tuple[str, str], Texts | None] = {}
        self._conversations: dict[tuple[str, str, str], Conversations | None] = {}
        self._labelled: dict[str, LabelledData | None] = {}
        self._models: dict[str, BaseModel | None] = {}
        self._tasks: dict[str, tuple[Task, Any]] = {}
        """What tasks read, by name."""
        if known is not None and known._looks_as(self):
            for name in ("_texts", "_conversations", "_labelled", "_models"):
                getattr(self, name).update({key: one for key, one in getattr(known, name).items() if one is not None})
            self._tasks.update(known._tasks)

    def _looks_as(self, other: Ingredients) -> bool:
        alike = (getattr(self.request, name) == getattr(other.request, name) for name in SHARED)
        return all(alike)

    @property
    def data_dirs(self) -> Sequence[Path]:
        """The folders of --data-dir."""
        return self.request.data_dirs

    def base_model(self, name: str) -> BaseModel:
        """Return the model, checked where it is here. Raises a UserError for a name that means none."""
        found = self._causal(name)
        if found is None:
            return absent_model(name, self.request.load_options)
        if self.look and not self.request.from_scratch:
            self._note_weights(found.source, name)
        elif self.request.offline and not self.request.from_scratch:
            require_weights_here(found.source)
        return found

    def auxiliary(self, model: AuxiliaryModel) -> ModelSize | None:
        """Note a model that a task or an objective uses besides the base model; return its size, if that is known."""
        if model.use == "sentences":
            return self._encoder(model)
        if model.use == "features":
            return self._featurizer(model.name)
        if model.name == PRETRAINED or find_made_model(model.name) is not None:
            return None
        found = self._causal(model.name)
        if found is not None:
            self._note_weights(found.source, model.name)
        return catalog_size(model.name) if found is None else size_of(found)

    def _featurizer(self, name: str) -> ModelSize | None:
        def find() -> Path:
            source = find_model(name, offline=True)
            model_folder(source, offline=True, weights=False)  # what is not here is told without transformers
            from emobench.models.load import check_featurizer

            check_featurizer(source, offline=True)
            require_weights_here(source)
            return model_folder(source, offline=True, weights=True)

        folder = self._found(find, f"model {name}", *_on_hub(name))
        return catalog_size(name) if folder is None else ModelSize(parameters=_weights(folder))

    def _encoder(self, model: AuxiliaryModel) -> ModelSize | None:
        name, folder = model.name, expand_home(model.name)
        size, repo = ENCODERS.get(name), ALIASES.get(name) or _on_hub(name)[0]

        def find() -> object:
            return find_encoder(name, offline=True, setting=model.setting, instead=model.instead)

        self._found(find, f"sentence encoder {name}", repo, None if size is None else 4 * size.parameters)
        return ModelSize(parameters=_weights(folder)) if size is None and is_folder(folder) else size

    def _causal(self, name: str) -> BaseModel | None:
        if name not in self._models:
            self._models[name] = self._found_causal(name)
        return self._models[name]

    def _found_causal(self, name: str) -> BaseModel | None:
        found = self._found(lambda: find_base_model(name, self.request), f"model {name}", *_on_hub(name))
        alias = CATALOG.get(name)
        if found is None and alias is not None and alias.weights == "bin" and not self.request.from_scratch:
            self.unusable[name] = (
                f"{name} cannot be used as it is published: {alias.source} has no safetensors at commit "
                f"{alias.revision}. {how_to_convert(find_model(name, offline=True))}"
            )
        return found

    def _note_weights(self, source: ModelSource, name: str) -> None:
        """Note the weights of a hub model whose configuration alone is here."""
        if source.kind == "hub" and not has_weights(model_folder(source, offline=True, weights=False), source):
            repo, size = _on_hub(name)
            self.downloads.setdefault(f"model {name}", Download(f"model {name}", repo or source.source, size))

    def texts(self, corpus: str, split: str) -> Texts | None:
        """Return a split of a corpus, None where it is not here."""
        if (corpus, split) not in self._texts:
            dirs, source = self.request.data_dirs, CORPORA.get(corpus)
            load = partial(load_texts, corpus, split, data_dirs=dirs, offline=self.request.offline)
            if (on_hub := hub_corpus(corpus)) is not None:
                found = self._found(load, f"corpus {corpus} ({split})", on_hub.repo, None)
                self._texts[corpus, split] = found
            elif source is None or source.kind == "generated" or local_file(corpus, split, dirs):
                self._texts[corpus, split] = load()
            else:
                part: SplitSource = source.splits[split]  # type: ignore[index]
                found = self._found(load, f"corpus {corpus} ({split})", source.repo, part.download_bytes)
                self._texts[corpus, split] = found
                for other in part.reads if found is None else ():
                    self.texts(corpus, other)
        return self._texts[corpus, split]

    def conversations(self, recipe: Recipe, split: str) -> Conversations | None:
        """Return a split of a recipe's conversations, None where it is not here."""
        corpus = recipe.corpus
        key = (corpus, split, recipe.weights)
        if key not in self._conversations:
            dirs, source = self.request.data_dirs, source_of(corpus)
            common: Any = {"data_dirs": dirs, "offline": self.request.offline, "weights": recipe.weights}
            load = partial(load_conversations, corpus, split, **common)
            if source is None or local_conversations(corpus, "train", dirs):
                self._conversations[key] = load()
            else:  # one download for both splits
                size = source.splits["train"].download_bytes
                self._conversations[key] = self._found(load, f"conversations {corpus}", source.repo, size)
        return self._conversations[key]

    def training_texts(self, recipe: Recipe, split: str) -> Texts | None:
        """Return a split of what a recipe trains on, None where it is not here."""
        return self.texts(recipe.corpus, split) if recipe.template == "none" else self.conversations(recipe, split)

    def labelled(self, source: LabelledSource) -> LabelledData | None:
        """Return a labelled data set, None where it is not here."""
        if source.name not in self._labelled:
            dirs, splits = self.request.data_dirs, (source.pool, source.test)
            load = partial(load_labelled, source, data_dirs=dirs, offline=self.request.offline)
            local = all(local_file(source.name, part.split, dirs, source.label_columns) for part in splits)
            if local or source.name in GENERATED or not source.repo:
                self._labelled[source.name] = load()
            else:
                sizes = [part.rows * part.text_bytes for part in splits if part.rows and part.text_bytes]
                found = self._found(load, f"data set {source.name}", source.repo, sum(sizes) if sizes else None)
                self._labelled[source.name] = found
        return self._labelled[source.name]

    def task_data(self, task: Task) -> Any:
        """Return what a task reads, None where it is not here."""
        before, data = self._tasks.get(task.name, (None, None))
        if before != task or data is None:
            runtime, request = load_kind(task.kind).runtime, self.request
            if self.look:
                data = runtime.find(task, self)
            else:
                data = runtime.load(task, data_dirs=request.data_dirs, offline=request.offline)
            self._tasks[task.name] = task, data
        return data

    def data(self, what: str, load: Callable[[], T], source: str) -> T | None:
        """Return what `load` reads, None where it is not here; `source` has it."""
        return self._found(load, what, source, None)

    def _found(self, load: Callable[[], T], what: str, source: str | None, size: int | None) -> T | None:
        """Return what `load` finds; where it finds nothing that could be downloaded, raise what it raises."""
        try:
            return load()
        except (ModelError, DataError):
            if source is None or not self.look:
                raise
        self.downloads.setdefault(what, Download(what, source, size))
        return None


def shown_name(name: str) -> str:
    """Return a model's name as a table shows it: of a folder the last part of its path."""
    folder = expand_home(name)
    return folder.resolve().name if name not in CATALOG and is_folder(folder) else name


def size_of(model: BaseModel) -> ModelSize | None:
    """Return the size of a model: of one that is here by its files, of another by the catalog, None without either."""
    if isinstance(model, AbsentModel):
        return catalog_size(model.name)
    width, layers = model.shape
    return ModelSize(
        parameters=model.parameters, width=width, layers=layers, vocabulary=model.rows, context=model.context
    )


def catalog_size(name: str) -> ModelSize | None:
    """Return the size of a model that the catalog has."""
    alias = CATALOG.get(name)
    if alias is None or alias.parameters is None:
        return None
    shape = {} if alias.shape is None else alias.shape._asdict()
    return ModelSize(parameters=alias.parameters, **shape, bytes_per_token=alias.bytes_per_token)


def corpus_bytes(corpus: str, split: str) -> int | None:
    """Return the rough size of a corpus's texts that is known without them."""
    source = CORPORA.get(corpus) or source_of(corpus)
    part: SplitSource | None = source.splits.get(split) if source else None  # type: ignore[call-overload]
    return part.text_bytes if part else None


def corpus_rows(corpus: str) -> int | None:
    """Return the number of texts, or of conversations, in a corpus's training split that is known without them."""
    source = CORPORA.get(corpus)
    if source is None:
        return documented_rows(corpus)
    return source.splits["train"].rows if "train" in source.splits else None


def _weights(folder: Path) -> int:
    """Return how many weights a folder's safetensors hold, by their headers."""
    count = 0
    for file in folder.glob("*.safetensors"):
        with safe_open(file, framework="np") as tensors:
            count += sum(math.prod(tensors.get_slice(key).get_shape()) for key in tensors.keys())  # noqa: SIM118
    return count


def _on_hub(name: str) -> tuple[str | None, int | None]:
    """Return the repository that a model's name means and its rough bytes; None for a folder or a made model."""
    alias = CATALOG.get(name)
    if alias is not None:
        return (None, None) if alias.kind == "made" else (alias.source, alias.hub_bytes)
    hub_id = HUB_ID.fullmatch(name)
    if path_exists(expand_home(name)) or hub_id is None:
        return None, None
    return hub_id["repo"], None
