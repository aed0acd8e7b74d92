"""The model that a run starts from, and the models that are read besides it: found and checked, not loaded."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emobench.core.errors import ConfigError, ModelError
from emobench.core.extras import require
from emobench.core.settings import PRETRAINED, content_hash
from emobench.models.catalog import ModelSource, find_model
from emobench.models.device import LoadOptions
from emobench.models.encoder import SentenceEncoder, find_encoder
from emobench.models.folder import identity, model_folder, read_config, require_weights_here, weight_files
from emobench.training.recipe import require_liger_on

if TYPE_CHECKING:
    from emobench.kinds.auxiliary import AuxiliaryModel
    from emobench.models.load import LoadedModel, ModelFacts
    from emobench.runs.stages.train import Pretraining
    from emobench.training.recipe import Lora, Recipe

CONFIG_NAMES = (("hidden_size", "n_embd", "d_model"), ("num_hidden_layers", "n_layer"))
"""How configurations call width and layers."""


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
    options: LoadOptions
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
    def is_there(self) -> bool:
        """Whether its weights are known, so that stages have keys."""
        return True

    @property
    def stages(self) -> Sequence[Pretraining]:
        """The stage that makes it, if the harness does."""
        return ()

    @cached_property
    def tokenizer(self) -> Any:
        """The tokenizer alone; needs no weights."""
        from emobench.models.tokenizer import load_tokenizer

        options = self.options
        return load_tokenizer(self.source, offline=options.offline, trust_remote_code=options.trust_remote_code)

    @cached_property
    def tokenizer_facts(self) -> Mapping[str, Any]:
        """What decides the tokens of a text: of a fast tokenizer its own definition, of another one the whole model."""
        from emobench.models.tokenizer import tokenizer_digest

        digest = None if self.options.trust_remote_code else tokenizer_digest(self.tokenizer)
        return self.facts if digest is None else {"sha256": digest}

    @property
    def context(self) -> int | None:
        """The most tokens that the model reads, None where its configuration names no limit."""
        return None if self.checked is None else self.checked.context

    @property
    def rows(self) -> int:
        """Rows of the model's head."""
        return 0 if self.checked is None else self.checked.vocabulary_rows

    @property
    def parameters(self) -> int:
        """How many weights it has."""
        return 0 if self.checked is None else self.checked.parameters

    @property
    def shape(self) -> tuple[int, int]:
        """Its width and layers, as its configuration names them; 0 for what it calls otherwise."""
        config = read_config(model_folder(self.source, offline=True, weights=False), self.name)
        config = config.get("text_config") or config
        width, layers = (next((config[n] for n in names if n in config), 0) for names in CONFIG_NAMES)
        return width, layers

    def check_recipe(self, recipe: Recipe) -> None:
        """Raise ConfigError if a recipe does not fit the model or the device.

        Raises ModelError for a model that no objective can train.
        """
        if self.checked is not None and self.checked.untrainable is not None:
            raise ModelError(self.checked.untrainable)
        if recipe.adapters is not None:
            self._with_adapters(recipe.adapters)
        if self.context is not None and recipe.max_length > self.context:
            raise ConfigError(
                f"Recipe {recipe.name} trains on {recipe.max_length} tokens, but {self.name} reads at most "
                f"{self.context}; add --set recipe.max_length={self.context}, or take a model with a longer context."
            )
        recipe.micro_batch(int(os.environ.get("WORLD_SIZE", "1")))
        if recipe.precision == "float16" and not self.options.device.startswith("cuda"):
            raise ConfigError(
                f"recipe.precision is float16 (by itself, or by --dtype), which scales its loss on a CUDA device; "
                f"--device is {self.options.device}. Use --set recipe.precision=bfloat16."
            )
        if recipe.precision == "float16" and recipe.weight_dtype != "float32" and recipe.adapters is None:
            raise ConfigError(
                f"recipe.precision is float16, whose scaled gradients must be float32, and recipe.weight_dtype is "
                f"{recipe.weight_dtype}; use --set recipe.weight_dtype=float32, or --set recipe.precision=bfloat16."
            )
        if recipe.liger:
            require_liger_on(self.options.device)

    def _with_adapters(self, lora: Lora) -> None:
        """Raise ConfigError if the adapters of a recipe do not fit the architecture."""
        require("peft")
        if self.source.kind == "made":  # peft's defaults fit what the harness makes
            return
        from emobench.models.load import build_skeleton
        from emobench.training.model_changes import with_adapters

        options = self.options
        skeleton = build_skeleton(self.source, offline=options.offline, trust_remote_code=options.trust_remote_code)
        with_adapters(skeleton, lora)

    def known(self, auxiliary: AuxiliaryModel) -> KnownModel:
        """Return what is known of a model that is read besides this one; "pretrained" is this one, as it is.

        Raises a UserError if it cannot be used.
        """
        if auxiliary not in self._known:
            self._known[auxiliary] = self._find_auxiliary(auxiliary)
        return self._known[auxiliary]

    def _find_auxiliary(self, auxiliary: AuxiliaryModel) -> KnownModel:
        name, offline = auxiliary.name, self.options.offline
        if auxiliary.use == "sentences":
            encoder = self.sentence_encoder(name, auxiliary.setting, auxiliary.instead)
            return KnownModel(lambda: encoder.facts, None, 0)
        if name == PRETRAINED:
            self._require_weights(auxiliary.setting)
            return KnownModel(lambda: self.facts, self.context, self.rows, self.tokenizer)
        source = find_model(name, offline=offline)
        if source.kind == "made":
            raise ConfigError(
                f"{name} is made by the harness and has no folder before; with --model {name}, say '{PRETRAINED}'."
            )
        if offline:
            require_weights_here(source)
        from emobench.models.load import check_featurizer, check_model
        from emobench.models.tokenizer import load_tokenizer

        identify = partial(identity, source)
        if auxiliary.use == "features":
            return KnownModel(identify, check_featurizer(source, offline=offline), 0)
        found = check_model(source, offline=offline)
        return KnownModel(identify, found.context, found.vocabulary_rows, load_tokenizer(source, offline=offline))

    def _require_weights(self, setting: str) -> None:
        """Raise ConfigError where there are no weights before training, which `pretrained` means."""
        if not self.options.from_scratch or self.source.kind == "made":
            return
        from emobench.models.load import check_model

        try:
            check_model(self.source, offline=self.options.offline)
        except ModelError:
            raise ConfigError(
                f"{setting} is '{PRETRAINED}', the model before training, and {self.name} has no weights; name another "
                f"one, such as --set {setting}=MODEL."
            ) from None

    def load_auxiliary(self, auxiliary: AuxiliaryModel, folder: Path | None) -> LoadedModel:
        """Load a causal LM or a featurizer in float32; "pretrained" from the folder, where this model is made."""
        from emobench.models.load import load_featurizer, load_model

        if auxiliary.name == PRETRAINED:
            return self.load(folder, frozen=True)
        options = self.options
        source = find_model(auxiliary.name, offline=options.offline)
        if auxiliary.use == "features":
            return load_featurizer(source, device=options.device, offline=options.offline)
        return load_model(source, device=options.device, offline=options.offline, frozen=True)

    def sentence_encoder(self, name: str, setting: str = "", instead: str = "") -> SentenceEncoder:
        """Return a sentence encoder by name, found once; raises ModelError where there is none."""
        if name not in self._encoders:
            options = self.options
            found = find_encoder(name, offline=options.offline, device=options.device, setting=setting, instead=instead)
            self._encoders[name] = found
        return self._encoders[name]

    def load(
        self, folder: Path | None = None, *, seed: int | None = None, frozen: bool = False, dtype: str | None = None
    ) -> LoadedModel:
        """Load the model, or weights of its kind from a folder; with `seed` they are drawn at random.

        `frozen`: see `load_model`. `dtype`: the data type of the weights; by default, that of --dtype.
        """
        from emobench.models.load import load_model

        options = self.options
        return load_model(
            self._source_of(folder),
            dtype=dtype or options.dtype,
            device=options.device,
            from_scratch=seed is not None,
            seed=0 if seed is None else seed,
            offline=options.offline,
            trust_remote_code=options.trust_remote_code,
            frozen=frozen,
        )

    def load_without_weights(self, folder: Path | None = None) -> LoadedModel:
        """Return what `load` returns, for a program that reads the weights by itself; they are there."""
        from emobench.models.load import LoadedModel
        from emobench.models.tokenizer import load_tokenizer

        source, options = self._source_of(folder), self.options
        weight_files(model_folder(source, offline=options.offline), source)
        tokenizer = load_tokenizer(source, offline=options.offline, trust_remote_code=options.trust_remote_code)
        return LoadedModel(None, tokenizer, source)

    def _source_of(self, folder: Path | None) -> ModelSource:
        return self.source if folder is None else ModelSource(self.name, str(folder), None, "local")

    def entry_fields(self) -> dict[str, Any]:
        """Return the model as a leaderboard entry names it."""
        return {
            "name": self.name,
            "revision": self.source.revision or f"sha256:{content_hash(self.facts)}",
            # A local folder's path says nothing to others, and may be private: its files' digests identify it.
            "source": "local folder" if self.source.kind == "local" else self.source.source,
            "parameters": self.parameters,
        }


@dataclass(frozen=True)
class AbsentModel(BaseModel):
    """A model that is on the hub and not on this machine: of a plan that cannot run before it is downloaded."""

    @property
    def is_there(self) -> bool:
        return False


def absent_model(name: str, options: LoadOptions) -> AbsentModel:
    """Return a model by its name alone; raises ModelError where its facts are asked for."""

    def unknown() -> Mapping[str, Any]:
        raise ModelError(f"{name} is not on this machine, so that its weights are not known.")

    return AbsentModel(ModelSource(name, name, None, "hub"), unknown, options)
