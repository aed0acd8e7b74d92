"""The model that a run starts from: a folder, a hub model, or a tiny one that the harness makes."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emobench.config import PRETRAINED, content_hash
from emobench.errors import ConfigError, ModelError
from emobench.models.catalog import ModelSource, find_model
from emobench.pipeline.planning.request import Request
from emobench.pipeline.planning.tiny_models import TinyModel, find_tiny_model, pretraining, tokenizer_of
from emobench.pipeline.stages.stage import Stages

if TYPE_CHECKING:
    from emobench.kinds.auxiliary import AuxiliaryModel
    from emobench.models.encoder import SentenceEncoder
    from emobench.models.load import LoadedModel, ModelFacts
    from emobench.pipeline.planning.plan import PlannedTraining
    from emobench.training.recipe import Recipe


@dataclass(frozen=True)
class KnownModel:
    """What identifies a model, the most tokens that it reads, and the rows of its head (0: it needs none)."""

    identify: Callable[[], Mapping[str, Any]]
    context: int | None
    rows: int
    tokenizer: Any = None
    """Of a causal LM."""

    @property
    def facts(self) -> Mapping[str, Any]:
        return self.identify()


@dataclass(frozen=True)
class BaseModel:
    """A model that was found and checked."""

    source: ModelSource
    identify: Callable[[], Mapping[str, Any]]
    request: Request
    checked: ModelFacts | None = None
    """What is known of it before its weights are read; None for a model that the harness makes."""
    _known: dict[AuxiliaryModel, KnownModel] = field(default_factory=dict, repr=False, compare=False)
    _encoders: dict[str, SentenceEncoder] = field(default_factory=dict, repr=False, compare=False)

    @property
    def name(self) -> str:
        return self.source.name

    @cached_property
    def facts(self) -> Mapping[str, Any]:
        """What identifies its weights and tokenizer, and goes into every key.

        Raises ModelError for a model that the harness makes, before it is made: its weights are not known.
        """
        return self.identify()

    @property
    def made(self) -> bool:
        """Whether the harness makes this model itself."""
        return self.source.kind == "made"

    @property
    def is_there(self) -> bool:
        """Whether its weights are known; those of a model that the harness makes are once it is made, and whole."""
        if not self.made:
            return True
        stage = self.pretraining.stage
        return self._stages.is_finished(stage) and self._stages.damage(stage, full=True) is None

    @cached_property
    def _stages(self) -> Stages:
        return Stages(self.request.runs)

    @cached_property
    def tiny(self) -> TinyModel:
        """What a model that the harness makes is made from."""
        return find_tiny_model(self.source)

    @cached_property
    def pretraining(self) -> PlannedTraining:
        """The training that makes a model that the harness makes."""
        return pretraining(self.source, self.request)

    @cached_property
    def tokenizer(self) -> Any:
        """The tokenizer alone; needs no weights."""
        if self.made:
            return tokenizer_of(self.tiny, self.request)
        from emobench.models.load import load_tokenizer

        request = self.request
        return load_tokenizer(self.source, offline=request.offline, trust_remote_code=request.trust_remote_code)

    @property
    def context(self) -> int | None:
        """The most tokens that the model reads, None where its configuration names no limit."""
        return self.tiny.context if self.checked is None else self.checked.context

    @property
    def rows(self) -> int:
        """Rows of the model's head."""
        return len(self.tokenizer) if self.checked is None else self.checked.vocabulary_rows

    def check_recipe(self, recipe: Recipe) -> None:
        """Raise ConfigError if a recipe does not fit the model or the device."""
        if self.context is not None and recipe.max_length > self.context:
            raise ConfigError(
                f"Recipe {recipe.name} trains on {recipe.max_length} tokens, but {self.name} reads at most "
                f"{self.context}; add --set recipe.max_length={self.context}, or take a model with a longer context."
            )
        recipe.micro_batch(int(os.environ.get("WORLD_SIZE", "1")))
        if recipe.precision == "float16" and not self.request.device.startswith("cuda"):
            raise ConfigError(
                f"recipe.precision is float16, which scales its loss on a CUDA device; --device is "
                f"{self.request.device}. Use --set recipe.precision=bfloat16."
            )
        if recipe.precision == "float16" and self.request.dtype != "float32" and recipe.adapters is None:
            raise ConfigError(
                f"recipe.precision is float16, whose scaled gradients must be float32, and --dtype "
                f"{self.request.dtype} gives all weights others; use --set recipe.precision=bfloat16, --dtype float32, "
                "or --set recipe.lora=true."
            )

    def known(self, auxiliary: AuxiliaryModel) -> KnownModel:
        """Return what is known of a model that is read auxiliary this one; "pretrained" is this one, as it is.

        Raises a UserError if it cannot be used.
        """
        if auxiliary not in self._known:
            self._known[auxiliary] = self._find_auxiliary(auxiliary)
        return self._known[auxiliary]

    def _find_auxiliary(self, auxiliary: AuxiliaryModel) -> KnownModel:
        if auxiliary.use == "sentences":
            encoder = self.sentence_encoder(auxiliary.name, auxiliary.setting, auxiliary.instead)
            return KnownModel(lambda: encoder.facts, None, 0)
        if auxiliary.name == PRETRAINED:
            return self._own(auxiliary)
        return self._other(auxiliary)

    def _own(self, auxiliary: AuxiliaryModel) -> KnownModel:
        if self.request.from_scratch and not self.made:
            from emobench.models.load import check_model

            try:
                check_model(self.source, offline=self.request.offline)
            except ModelError:
                raise ConfigError(
                    f"{auxiliary.setting} is '{PRETRAINED}', the model before training, and {self.name} has no "
                    f"weights; name another one, such as --set {auxiliary.setting}=MODEL."
                ) from None
        return KnownModel(lambda: self.facts, self.context, self.rows, self.tokenizer)

    def _other(self, auxiliary: AuxiliaryModel) -> KnownModel:
        from emobench.models.folder import identity, require_weights_here
        from emobench.models.load import check_featurizer, check_model, load_tokenizer

        name = auxiliary.name
        source = find_model(name, offline=self.request.offline)
        if source.kind == "made":
            raise ConfigError(
                f"{name} is made by the harness and has no folder before; with --model {name}, say '{PRETRAINED}'."
            )
        if self.request.offline:
            require_weights_here(source)
        identify = partial(identity, source)
        if auxiliary.use == "features":
            return KnownModel(identify, check_featurizer(source, offline=self.request.offline), 0)
        found = check_model(source, offline=self.request.offline)
        tokenizer = load_tokenizer(source, offline=self.request.offline)
        return KnownModel(identify, found.context, found.vocabulary_rows, tokenizer)

    def load_auxiliary(self, auxiliary: AuxiliaryModel, folder: Path | None) -> LoadedModel:
        """Load a causal LM or a featurizer in float32; "pretrained" from the folder, where this model is made."""
        from emobench.models.load import load_featurizer, load_model

        if auxiliary.name == PRETRAINED:
            return self.load(folder)
        source, request = find_model(auxiliary.name, offline=self.request.offline), self.request
        load = load_featurizer if auxiliary.use == "features" else load_model
        return load(source, device=request.device, offline=request.offline)

    def sentence_encoder(self, name: str, setting: str = "", instead: str = "") -> SentenceEncoder:
        """Return a sentence encoder by name, found once; raises ModelError where there is none."""
        from emobench.models.encoder import find_encoder

        if name not in self._encoders:
            request = self.request
            found = find_encoder(name, offline=request.offline, device=request.device, setting=setting, instead=instead)
            self._encoders[name] = found
        return self._encoders[name]

    def load(self, folder: Path | None = None, *, from_scratch: bool = False, seed: int = 0) -> LoadedModel:
        """Load the model, or weights of its kind from a folder; `from_scratch` draws them with `seed` instead."""
        from emobench.models.load import load_model

        request = self.request
        return load_model(
            self.source if folder is None else ModelSource(self.name, str(folder), None, "local"),
            dtype=request.dtype,
            device=request.device,
            from_scratch=from_scratch,
            seed=seed,
            offline=request.offline,
            trust_remote_code=request.trust_remote_code,
        )

    def entry_fields(self) -> dict[str, Any]:
        """Return the model as a leaderboard entry names it."""
        fields: dict[str, Any] = {"name": self.name}
        if self.made:
            facts = {name: fact for name, fact in self.pretraining.facts.items() if name != "seed"}
            fields["pretraining"] = {"seed": self.source.seed, "setting": content_hash(facts)}
        fields["revision"] = self.source.revision or f"sha256:{content_hash(self.facts)}"
        # A local folder's path says nothing to others, and is nobody's business: its files' digests identify it.
        fields["source"] = "local folder" if self.source.kind == "local" else self.source.source
        fields["parameters"] = self.tiny.parameters(self.rows) if self.checked is None else self.checked.parameters
        return fields


def find_base_model(name: str, request: Request) -> BaseModel:
    """Look up and check a model without reading its weights."""
    source = find_model(name, offline=request.offline)
    if source.kind == "made":
        found = BaseModel(source, lambda: _made_identity(found), request)
        _ = found.pretraining  # raises where its texts are not at hand
        return found
    from emobench.models.folder import identity
    from emobench.models.load import check_model

    facts = check_model(
        source, from_scratch=request.from_scratch, offline=request.offline, trust_remote_code=request.trust_remote_code
    )
    return BaseModel(source, partial(identity, source), request, facts)


def _made_identity(model: BaseModel) -> Mapping[str, Any]:
    """Return what a made model is: its files' digests, as of a local folder."""
    from emobench.models.folder import identity

    folder = Stages(model.request.runs).folder(model.pretraining.stage) / "model"
    if not model.is_there:
        raise ModelError(f"{model.name} is not made yet, so that its weights are not known: {folder} is not there.")
    return identity(ModelSource(model.name, str(folder), None, "local"))
