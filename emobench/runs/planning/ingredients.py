"""The models, corpora and data sets of a plan, each read once.

With `look`, nothing is downloaded: local files are read as usual, with the same errors, and missing ones are listed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from emobench.core.errors import Missing
from emobench.core.reading import expand_home, is_folder
from emobench.core.settings import PRETRAINED
from emobench.data.instruction_sets import Conversations, documented_rows, load_conversations, source_of
from emobench.data.sources import CORPORA, SplitSource
from emobench.data.texts import Texts, load_texts
from emobench.models.catalog import CATALOG, ModelFacts, find_made_model
from emobench.models.device import LoadOptions
from emobench.models.encoder import encoder_size, find_encoder
from emobench.models.model import AuxiliaryModel, Model
from emobench.registry import load_kind
from emobench.runs.planning.find_model import base_model
from emobench.runs.planning.request import Request
from emobench.tasks.spec import Task
from emobench.training.recipe import Recipe

T = TypeVar("T")
SHARED = ("data_dirs", "runs", "offline", "device", "dtype", "from_scratch", "trust_remote_code")
"""Settings that decide which files are read and how models are loaded: equal ones share what was read."""


class Ingredients:
    """Reads what a request needs; with `look`, `missing` lists the files that are not on this machine, by their item.

    Files that `known`, of another request, has read are not read again, if both requests look in the same places.
    """

    def __init__(self, request: Request, *, look: bool, known: Ingredients | None = None) -> None:
        self.look = look
        self.request = replace(request, offline=True) if look else request
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
        where: Any = {"data_dirs": self.request.data_dirs, "offline": self.request.offline}
        texts = self._once(("texts", corpus, split), partial(load_texts, corpus, split, **where))
        source = CORPORA.get(corpus)
        if texts is None and source is not None:
            part: SplitSource = source.splits[split]  # type: ignore[index]
            for other in part.reads:
                self._once(("texts", corpus, other), partial(load_texts, corpus, other, **where))
        return texts

    def conversations(self, recipe: Recipe, split: str) -> Conversations | None:
        """Return a split of a recipe's conversations, None if it is missing."""
        where: Any = {"data_dirs": self.request.data_dirs, "offline": self.request.offline, "weights": recipe.weights}
        load = partial(load_conversations, recipe.corpus, split, **where)
        return self._once(("conversations", recipe.corpus, split, recipe.weights), load)

    def training_texts(self, recipe: Recipe, split: str) -> Texts | None:
        """Return a split of the texts that a recipe trains on, None if it is missing."""
        return self.texts(recipe.corpus, split) if recipe.template == "none" else self.conversations(recipe, split)

    def task_data(self, task: Task) -> Any:
        """Return what a task reads, None if it is missing."""
        request, kind = self.request, load_kind(task.kind)

        def load() -> Any:
            return kind.runtime.load(task, data_dirs=request.data_dirs, offline=request.offline)

        before, data = self._read.get(("task", task.name), (None, None))
        if before != task or data is None:
            data = self.read(load)
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
        """Return what `load` reads, at first; what was missing before is missing again."""
        if key not in self._read:
            self._read[key] = self.read(load)
        return self._read[key]


def shown_name(name: str) -> str:
    """Return a model's name as a table shows it: of a folder the last part of its path."""
    folder = expand_home(name)
    return folder.resolve().name if name not in CATALOG and is_folder(folder) else name


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
