"""The interface of metrics of generated texts, for built-in ones and for packages.

A metric is a class that a module's hook `emobench_metrics` returns; an entry point of the group `emobench.metrics`
names the module. A task computes the built-in ones, and those that its rule `metrics` names. A metric that
asks a model declares it in `models`.

All objectives are compared with the same human texts, whose vectors are a stage of their own, kept on disk by content.

Legend: R sampling runs, N prompts, D width of an encoder.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from emobench.core.errors import MetricError
from emobench.core.settings import PRETRAINED
from emobench.core.versions import minor_versions
from emobench.kinds.generation.rules import GenerationProtocol
from emobench.kinds.generation.samples import GeneratedTexts
from emobench.kinds.interface import Progress, Scores, Subject
from emobench.kinds.shared_rules import MauveRule
from emobench.metrics.by_prompt import corpus_by_run, mean_by_prompt
from emobench.metrics.features import embed
from emobench.models.encoder import SentenceEncoder
from emobench.models.model import AuxiliaryModel, Model
from emobench.tasks.scores import Measure

FEATURES = "features.npy"


@dataclass(frozen=True)
class MetricContext:
    """The models and files that a metric may use besides the texts."""

    subject: Subject
    rules: GenerationProtocol
    models: Mapping[str, AuxiliaryModel]
    """Those that the metric declares."""
    files: dict[str, str] = field(default_factory=dict)
    """Files next to the scores: name -> text."""

    def model(self, part: str) -> Model:
        """Return a declared causal LM (`use="lm"`), with `model` and `tokenizer`; its weights are read at first use."""
        return self.subject.other(self.models[part])

    def embed(self, part: str, texts: Sequence[str], *, keep: bool = False) -> np.ndarray:
        """Return vectors_ND, float32, of a declared sentence encoder (`use="sentences"`).

        With `keep` they are computed once for all models that are evaluated: for human texts and prefixes.
        """
        return sentences_of(self.subject, self.subject.sentence_encoder(self.models[part].name), texts, keep=keep)

    def features(self, texts: Sequence[str], *, keep: bool = False) -> np.ndarray:
        """Return features_ND, float32, of the task's MAUVE featurizer; `keep` as for `embed`."""
        return features_of(self.subject, self.rules.mauve, texts, keep=keep)

    def work(self, title: str, unit: str) -> AbstractContextManager[Progress]:
        """Begin a piece of work, such as ("fluency", "texts"); gives the callback of its progress, (done, all)."""
        return self.subject.work(title, unit)


class MetricGroup(ABC):
    """One or several metrics that are computed together. A subclass is a dataclass if it has parameters."""

    name: ClassVar[str]
    """That of the entry point, and in the rule `metrics` of a task: `fluency`, or `fluency(judge=gpt2-large)`."""
    measures: ClassVar[Mapping[str, Measure]]
    """Metric -> its measure. An entry has each as `<task>/<metric>`."""
    packages: ClassVar[tuple[str, ...]] = ()
    """What it computes with besides the requirements of a distribution of its own; part of the key of the scores."""

    @property
    def models(self) -> Mapping[str, AuxiliaryModel]:
        """The auxiliary models by their part, such as {"judge": AuxiliaryModel("gpt2-large", "lm")}.

        They are found before any training, and are part of the key of the scores and of an entry.
        """
        return {}

    @abstractmethod
    def score(self, texts: GeneratedTexts, context: MetricContext) -> Scores:
        """Return a Score for each of `measures`.

        The same texts, parameters and models give the same scores. Raises MetricError, with the reason, where they
        cannot be computed: then these metrics are missing, and the others are recorded.
        """


class Metric(MetricGroup):
    """One metric, which has a value for each sample, for each prompt, or for each sampling run."""

    higher_is_better: ClassVar[bool | None]
    """None if neither direction is better: such a metric describes a result and gets no verdict."""
    unit: ClassVar[str]
    """"fraction" (0 to 1), "perplexity", "cosine", "bits per byte", or any other, such as "nats"."""
    secondary: ClassVar[bool] = False
    """Whether it is shown and tested only on request."""
    aggregate: ClassVar[Literal["mean", "exp_mean", "corpus"]] = "mean"
    """How the result follows from `values`: their weighted mean, its exponential, or the mean over sampling runs of
    values that belong to no prompt. Intervals and paired tests of the first two are over prompts, those of the last
    over 20 blocks of documents, without each of which it is computed again; there are none if it asks a model."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if all(hasattr(cls, part) for part in ("name", "higher_is_better", "unit")):
            cls.measures = {cls.name: Measure(cls.higher_is_better, cls.unit, cls.secondary)}

    @abstractmethod
    def values(self, texts: GeneratedTexts, context: MetricContext) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """Return values, or (values, weights) of the same shape; weights are not negative, and 1 if not given.

        The shape is (R, N), one value for each sample, in the order of `texts.ids`; or (1, N), one for each prompt. A
        sample of weight 0, such as an empty one, has no value. For the aggregate "corpus" the shape is (R,), without
        weights.
        """

    def score(self, texts: GeneratedTexts, context: MetricContext) -> Scores:
        values = self.values(texts, context)
        if isinstance(values, tuple):
            values, weights = values
        else:
            weights = np.ones_like(values, dtype=float)
        count = len(texts.ids)
        shapes = {(len(texts.samples), count), (1, count)}
        if self.aggregate == "corpus":
            shapes = {(len(texts.samples),)}
        if values.shape not in shapes or weights.shape != values.shape:
            expected = " or ".join(map(str, sorted(shapes, reverse=True)))
            raise MetricError(
                f"{self.name}: `values` gives values of shape {values.shape} and weights of {weights.shape}; expected "
                f"{expected}."
            )
        if (weights < 0).any() or not np.isfinite(values[weights > 0]).all():
            raise MetricError(f"{self.name}: a value is not finite, or a weight is negative.")
        measure = self.measures[self.name]
        if self.aggregate == "corpus":
            return {self.name: corpus_by_run(values.tolist(), count, measure)}
        exponential = self.aggregate == "exp_mean"
        return {self.name: mean_by_prompt(values, texts.ids, measure, weights_RN=weights, exponential=exponential)}


def features_of(subject: Subject, rule: MauveRule, texts: Sequence[str], *, keep: bool = False) -> np.ndarray:
    """Return features_ND of texts; with `keep` they are computed once for all runs that compare with these texts."""
    featurizer = subject.other(rule.model)
    rules: Any = {"pooling": rule.pooling, "max_length": rule.max_length}

    def encode() -> np.ndarray:
        with subject.work("features", "texts") as progress:
            return embed(texts, featurizer.model, featurizer.tokenizer, **rules, progress=progress)

    if not keep:
        return encode()
    # As `Model.other` loads it: the model before training in the dtype of the run, others in float32.
    dtype = str(subject.model.dtype).removeprefix("torch.") if rule.featurizer == PRETRAINED else "float32"
    facts = {"featurizer": dict(featurizer.identity), "dtype": dtype, "device": subject.model.device.type, **rules}
    return _kept(subject, facts, texts, encode)


def sentences_of(subject: Subject, encoder: SentenceEncoder, texts: Sequence[str], *, keep: bool = False) -> np.ndarray:
    """Return the sentence embeddings of texts, (N, D); with `keep` once for all runs, as above."""

    def encode() -> np.ndarray:
        with subject.work("sentence embeddings", "texts") as progress:
            return encoder.encode(texts, progress)

    facts = {"encoder": dict(encoder.identity), "device": encoder.device.partition(":")[0]}
    return _kept(subject, facts, texts, encode, "sentence-transformers") if keep else encode()


def _kept(
    subject: Subject, facts: Mapping[str, Any], texts: Sequence[str], encode: Callable[[], np.ndarray], *packages: str
) -> np.ndarray:
    versions = minor_versions("emobench")  # as in the keys of the scores
    for name in ("torch", "transformers", *packages):
        versions[name] = version(name)
    digest = hashlib.sha256("\0".join(texts).encode("utf-8", "surrogatepass")).hexdigest()
    computed = {"packages": versions, "texts": digest}

    def work(folder: Path) -> None:
        np.save(folder / FEATURES, encode(), allow_pickle=False)

    folder = subject.keep("features", {**facts, **computed}, work)
    return np.load(folder / FEATURES, allow_pickle=False)
