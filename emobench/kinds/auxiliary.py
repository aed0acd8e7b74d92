"""What a task uses besides the evaluated model: other models, and packages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from emobench.models.device import LoadOptions


@dataclass(frozen=True)
class AuxiliaryModel:
    """A model that a task uses besides the evaluated one, by name; "pretrained" is that one before its training."""

    name: str
    use: Literal["lm", "features", "sentences"]
    """A causal LM; anything that gives hidden states; or a sentence encoder."""
    setting: str = field(default="", compare=False)
    """The `--set` that names it, such as "mauve.featurizer"."""
    instead: str = field(default="", compare=False)
    """What to type to do without it, for the error where it is not here."""
    stage: Literal["generate", "score"] = field(default="score", compare=False)
    """Which stage reads it. A `generate` one is identified by the kind's `generation_facts`."""


@dataclass(frozen=True, kw_only=True)
class Packages:
    """What a task computes with besides torch and transformers: its versions are part of the keys of these stages."""

    generation: tuple[str, ...] = ()
    scores: tuple[str, ...] = ()


class Known(Protocol):
    """What is known of a model before its weights are read."""

    @property
    def facts(self) -> Mapping[str, Any]: ...

    @property
    def context(self) -> int | None: ...

    @property
    def tokenizer(self) -> Any: ...


class OtherModel(Protocol):
    """A loaded auxiliary model; its weights are read at first use."""

    @property
    def facts(self) -> Mapping[str, Any]: ...

    @property
    def model(self) -> Any: ...

    @property
    def tokenizer(self) -> Any: ...


class UnloadedModel(Protocol):
    """What is known of the model that a run starts from, before its weights are read."""

    @property
    def name(self) -> str: ...

    @property
    def options(self) -> LoadOptions: ...

    @property
    def tokenizer(self) -> Any: ...

    @property
    def context(self) -> int | None: ...

    def known(self, auxiliary: AuxiliaryModel) -> Known: ...
