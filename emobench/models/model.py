"""A causal language model by its name: its files, its identity, its facts, its tokenizer and its weights.

A `Model` is a lazy handle: each part is read at first use, and raises Missing if a file that a run would download is
not on this machine. A model that the harness trains has the output of a stage as its files: a maker makes it at first
use, and `trained_in` gives the model of a training's folder.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from emobench.core.errors import ConfigError, Missing, ModelError
from emobench.core.settings import PRETRAINED, content_hash
from emobench.models.catalog import CATALOG, ModelFacts, ModelSource, find_model
from emobench.models.device import LoadOptions, evaluating
from emobench.models.folder import (
    how_to_convert,
    identity,
    is_adapter,
    load_tokenizer,
    model_folder,
    require_weights_here,
    tokenizer_digest,
    tokenizer_files,
    tokenizer_folder,
    weight_files,
)

if TYPE_CHECKING:
    from emobench.models.encoder import SentenceEncoder
    from emobench.models.load import LoadedModel


@dataclass(frozen=True)
class AuxiliaryModel:
    """A model that a task uses besides the evaluated one, by name; "pretrained" is that one untrained."""

    name: str
    use: Literal["lm", "features", "sentences"]
    """A causal LM; anything that gives hidden states; or a sentence encoder."""
    setting: str = field(default="", compare=False)
    """The `--set` that names it, such as "mauve.featurizer"."""
    instead: str = field(default="", compare=False)
    """How to do without it, for the error if it is missing."""
    stage: Literal["generate", "score"] = field(default="score", compare=False)
    """Which stage reads it. A `generate` one is identified by the kind's `key_facts`."""


@dataclass(frozen=True)
class Model:
    """A causal LM, or with `use="features"` any model for its hidden states."""

    given: str
    """An alias, a folder, a GGUF file, or a hub id."""
    options: LoadOptions = field(default_factory=LoadOptions)
    use: Literal["lm", "features"] = "lm"
    made_by: Any = None
    """The maker of a model that the harness trains (`emobench.runs.planning.ingredients.TinyMaker`)."""
    trained: ModelSource | None = None
    """The output of a training that began with this model."""
    base: str | None = None
    """The base of an adapter; None: the one that the adapter names."""
    trained_from: Model | None = None
    """The base of a checkpoint whose training the user declares."""
    _others: dict[AuxiliaryModel | str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Models and sentence encoders that are used besides it."""

    @cached_property
    def source(self) -> ModelSource:
        """Where its files are. Raises UnknownNameError for a name that means no model."""
        with self._naming():
            source = self.trained or find_model(self.given, offline=self.options.offline)
            if not is_adapter(source):
                return source
            from emobench.models.adapter import base_of, merged_source

            options = LoadOptions(offline=self.options.offline, trust_remote_code=self.options.trust_remote_code)
            return merged_source(source, Model(self.base or base_of(source), options))

    @cached_property
    def name(self) -> str:
        """Its name in tables and entries."""
        try:
            return self.source.name
        except Missing:
            return self.given

    @property
    def folder(self) -> Path:
        """The folder of its files, with the weights."""
        with self._naming():
            folder = model_folder(self.source, offline=self.options.offline)
            weight_files(folder, self.source)
            return folder

    @cached_property
    def identity(self) -> Mapping[str, Any]:
        """The commit of a hub model, or the digests of its files; it is part of every key."""
        if self.made_by is not None:
            return self.made_by.identity
        with self._naming():
            files = identity(self.source)
            if self.options.tokenizer is not None:
                files["tokenizer"] = tokenizer_files(tokenizer_folder(Path(), self.options))
            return files

    @cached_property
    def facts(self) -> ModelFacts:
        """Its sizes. Raises ModelError if it cannot be used, before its weights are read."""
        if self.made_by is not None:
            return self.made_by.facts
        with self._naming():
            if self.options.offline:  # missing files are found without transformers, whose import takes a second
                model_folder(self.source, offline=True, weights=False)
            from emobench.models.load import check_featurizer, check_model

            check = check_featurizer if self.use == "features" else check_model
            return check(self.source, self.options)

    @cached_property
    def tokenizer(self) -> Any:
        """The tokenizer alone; needs no weights."""
        if self.made_by is not None:
            return self.made_by.tokenizer
        if "_loaded" in vars(self):
            return self._loaded.tokenizer
        with self._naming():
            return load_tokenizer(self.source, self.options)

    @cached_property
    def tokenizer_identity(self) -> Mapping[str, Any]:
        """The definition of a fast tokenizer, or else the whole model: it decides the tokens of a text."""
        digest = not self.options.trust_remote_code and tokenizer_digest(self.tokenizer)
        return {"sha256": digest} if digest else self.identity

    @cached_property
    def _loaded(self) -> LoadedModel:
        return self.load(frozen=True)

    @property
    def model(self) -> Any:
        """The transformers model in eval mode, frozen; it stays in memory with this handle."""
        return self._loaded.model

    @property
    def context(self) -> int | None:
        """The most tokens that it reads, None if its configuration names no limit or is not on this machine."""
        return self.size and self.size.context

    @property
    def bytes_per_token(self) -> float:
        """Bytes of English text per token, rough."""
        return ModelFacts.bytes_per_token if self.size is None else self.size.bytes_per_token

    @property
    def is_local(self) -> bool:
        """Whether its configuration and its tokenizer are on this machine, so that its facts are known."""
        try:
            return self.facts is not None
        except Missing:
            return False

    @property
    def has_identity(self) -> bool:
        """Whether its weights are known, so that stages have keys."""
        return self.made_by.is_finished if self.made_by else self.is_local

    @property
    def size(self) -> ModelFacts | None:
        """Its facts, or those in the catalog if its files are missing; None for other missing models."""
        if self.is_local:
            return self.facts
        alias = CATALOG.get(self.given)
        return alias and alias.facts

    @property
    def stages(self) -> Sequence[Any]:
        """The stage that makes it, if the harness does."""
        return (self.made_by.stage,) if self.made_by and self.made_by.stage else ()

    def require_files(self) -> None:
        """Raise a UserError unless it can be used; offline, raise Missing also if its weights are missing."""
        _ = self.facts
        if self.made_by is None and self.options.offline and not self.options.from_scratch:
            with self._naming():
                require_weights_here(self.source)

    def load(self, *, seed: int | None = None, frozen: bool = False, dtype: str | None = None) -> LoadedModel:
        """Return the weights and the tokenizer. With `seed`, the weights are drawn at random.

        `frozen`: see `load_model`. `dtype`: the data type of the weights; by default, the options' `dtype`.
        """
        from emobench.models.load import load_model

        options = replace(self.options, dtype=dtype or self.options.dtype, from_scratch=seed is not None)
        with self._naming():
            if options.offline and not options.from_scratch:
                require_weights_here(self.source)
            return load_model(self.source, options, use=self.use, seed=seed or 0, frozen=frozen)

    def trained_in(self, folder: Path) -> Model:
        """Return the model that a stage wrote to a folder."""
        source = ModelSource(self.name, str(folder), None, "local")
        return replace(self, trained=source, made_by=None, _others={})

    def evaluated(self) -> Model:
        """Return this model where it is evaluated: see `evaluating`."""
        options = evaluating(self.options)
        if options == self.options:
            return self
        base = self.trained_from and self.trained_from.evaluated()
        return replace(self, options=options, trained_from=base, _others={})

    def other(self, auxiliary: AuxiliaryModel) -> Model:
        """Return a model that is used besides this one, after its checks; "pretrained" is this one, or its base.

        Raises a UserError if it cannot be used, ConfigError if there are no weights before training.
        """
        if auxiliary.name == PRETRAINED:
            if self.trained_from is not None:
                return self.trained_from
            if self.made_by is None and self.options.from_scratch:
                try:
                    _ = replace(self, options=replace(self.options, from_scratch=False)).facts
                except ModelError:
                    raise ConfigError(
                        f"{auxiliary.setting} is '{PRETRAINED}', the model before training, and {self.name} has no "
                        f"weights; name another one, such as --set {auxiliary.setting}=MODEL."
                    ) from None
            return self
        if auxiliary not in self._others:
            options = LoadOptions(device=self.options.device, offline=self.options.offline)
            other = Model(auxiliary.name, options, "features" if auxiliary.use == "features" else "lm")
            if other.source.kind == "made":
                raise ConfigError(
                    f"{other.given} is made by the harness and has no folder before; with --model {other.given}, say "
                    f"'{PRETRAINED}'."
                )
            other.require_files()
            self._others[auxiliary] = other
        return self._others[auxiliary]

    def sentence_encoder(self, name: str) -> SentenceEncoder:
        """Return a sentence encoder by name, on the device of this model."""
        if name not in self._others:
            from emobench.models.encoder import find_encoder

            self._others[name] = find_encoder(name, offline=self.options.offline, device=self.options.device)
        return self._others[name]

    def beside(self, auxiliary: AuxiliaryModel) -> Model | SentenceEncoder:
        """Return a model or an encoder that is used besides this one. Raises a UserError if it cannot be used."""
        if auxiliary.use == "sentences":
            return self.sentence_encoder(auxiliary.name)
        return self.other(auxiliary)

    def entry_fields(self) -> dict[str, Any]:
        """Return the model as a leaderboard entry names it; a checkpoint is named by its base."""
        if self.trained_from is not None:
            return self.trained_from.entry_fields()
        revision = self.source.revision
        if self.options.tokenizer is not None:
            revision = None
        fields: dict[str, Any] = {
            "name": self.name,
            "revision": revision or f"sha256:{content_hash(self.identity)}",
            # A local folder's path says nothing to others, and may be private: its files' digests identify it.
            "source": "local folder" if self.source.kind == "local" else self.source.source,
            "parameters": self.facts.parameters,
        }
        if self.made_by is not None:
            fields["pretraining"] = self.made_by.pretraining_fields()
        return fields

    @contextmanager
    def _naming(self) -> Iterator[None]:
        """Name the model in the error for a missing file, as the user named it."""
        try:
            yield
        except Missing as missing:
            alias, by_hand, size, how = CATALOG.get(self.given), False, None, missing.how
            if alias is not None:
                size = alias.hub_bytes
                by_hand = alias.weights == "bin" and not self.options.from_scratch
                if by_hand:
                    source = ModelSource(self.given, alias.source, alias.revision, "hub")
                    how = (
                        f"{self.given} cannot be used as it is published: {alias.source} has no safetensors at commit "
                        f"{alias.revision}. {how_to_convert(source)}"
                    )
            raise Missing(f"model {self.given}", missing.source, size, how, by_hand=by_hand) from None
