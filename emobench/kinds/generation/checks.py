"""The contract of metrics of generated texts, for `emobench metrics check`, `list` and `show`.

The texts are of a small vocabulary. Each auxiliary causal LM is a small random one; sentence encoders and features give
a random vector for each text.

Legend: R sampling runs, N prompts, D width of an encoder.
"""

from __future__ import annotations

import json
import math
import random
import re
import zlib
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from emobench.core.conformance import Broken, Check, Skipped, check, require_source
from emobench.core.errors import MetricError
from emobench.data.oracle.language import oracle_tokenizer, oracle_words
from emobench.kinds.generation.metric import MetricContext, MetricGroup
from emobench.kinds.generation.rules import GenerationProtocol
from emobench.kinds.generation.samples import GeneratedSample, GeneratedTexts
from emobench.kinds.interface import Progress, Scores
from emobench.kinds.shared_rules import CoherenceRule, MauveRule, OracleRule
from emobench.tasks.scores import RANGES

RUNS, PROMPTS, WIDTH = 2, 40, 8
DIRECTIONS = {True: "higher", False: "lower", None: "neither"}
RULES = GenerationProtocol(
    oracle=OracleRule(model="oracle"), coherence=CoherenceRule(encoder="encoder"), mauve=MauveRule(seeds=(0,))
)


@dataclass(frozen=True)
class ExampleModel:
    """A small random causal LM over the words of the example texts."""

    identity: Mapping[str, Any] = field(default_factory=lambda: {"kind": "example"})

    @cached_property
    def tokenizer(self) -> Any:
        return oracle_tokenizer()

    @cached_property
    def model(self) -> Any:
        import torch
        from transformers import GPT2Config, GPT2LMHeadModel

        with torch.random.fork_rng():
            torch.manual_seed(0)
            eos = len(self.tokenizer) - 1
            sizes: Any = {"vocab_size": eos + 1, "n_positions": 256, "n_embd": 16, "n_layer": 1, "n_head": 2}
            return GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=eos, eos_token_id=eos)).eval()


@dataclass(frozen=True)
class ExampleMetricContext(MetricContext):
    """A context without an evaluated model."""

    example: ExampleModel = field(default_factory=ExampleModel)

    def model(self, part: str) -> Any:
        if part not in self.models:
            raise Broken(f"it asks for the model '{part}', and its `models` has {', '.join(self.models) or 'none'}")
        return self.example

    def embed(self, part: str, texts: Sequence[str], *, keep: bool = False) -> np.ndarray:
        self.model(part)
        return self.features(texts, keep=keep)

    def features(self, texts: Sequence[str], *, keep: bool = False) -> np.ndarray:
        rows = [np.random.default_rng(zlib.crc32(text.encode())).normal(size=WIDTH) for text in texts]
        return np.array(rows, dtype=np.float32).reshape(len(texts), WIDTH)

    def work(self, title: str, unit: str) -> AbstractContextManager[Progress]:
        return nullcontext(lambda done, total: None)


@dataclass
class CheckedMetric:
    """A metric under test, with its example texts."""

    metric: MetricGroup

    @property
    def name(self) -> str:
        return self.metric.name

    @cached_property
    def texts(self) -> GeneratedTexts:
        """(R, N) samples of six words after two; the human text has the same prefix."""
        words = oracle_words()
        rng = random.Random(0)
        prompts = []
        for n in range(PROMPTS):
            human = rng.choices(words, k=8)
            prompts.append((f"p{n}", " ".join(human[:2]), " ".join(human)))
        runs = []
        for run in range(RUNS):
            runs.append([])
            for prompt, prefix, reference in prompts:
                ids = rng.choices(range(len(words)), k=6)
                sample = GeneratedSample(
                    prompt_id=prompt,
                    sample=run,
                    prefix_text=prefix,
                    reference_text=reference,
                    continuation_ids=ids,
                    continuation_text=" ".join(words[place] for place in ids),
                    ended=False,
                )
                runs[-1].append(sample)
        return GeneratedTexts(runs, " ")

    def score(self, texts: GeneratedTexts) -> Scores:
        models = {**RULES.auxiliary_models, **self.metric.models}
        return self.metric.score(texts, ExampleMetricContext(None, RULES, models))  # type: ignore[arg-type]

    @cached_property
    def scores(self) -> Scores:
        return self.score(self.texts)

    @property
    def by_prompt(self) -> Scores:
        """The scores whose values belong to prompts."""
        means = {}
        for name, score in self.scores.items():
            if score.aggregate in ("mean", "exp_mean") and score.examples:
                means[name] = score
        if not means:
            raise Skipped("its values belong to no prompt: no interval and no paired test")
        return means


@check("Return a Score for each of `measures`; entries name them `<task>/<metric>`.", gate=True)
def scores(subject: CheckedMetric) -> None:
    """It gives each of its metrics, finite and within the range of its unit."""
    measures = type(subject.metric).measures
    given = subject.scores
    if given.keys() != measures.keys():
        raise Broken(f"it gives {', '.join(given) or 'nothing'}, and its `measures` are {', '.join(measures)}")
    for name, score in given.items():
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", name):
            raise Broken(f"'{name}' cannot name a metric: letters, digits, - and _")
        low, high = RANGES.get(score.unit, (-math.inf, math.inf))
        if not (math.isfinite(score.value) and low <= score.value <= high):
            raise Broken(f"'{name}' is {score.value}, which is not a {score.unit}")
        if (score.higher_is_better, score.unit) != (measures[name].higher_is_better, measures[name].unit):
            raise Broken(f"'{name}' has another unit or direction than in `measures`")
        json.dumps([score.value, score.n, score.repeats])


@check("Draw random numbers from a generator with a seed of its own, and keep no state from one call to the next.")
def repeatable(subject: CheckedMetric) -> None:
    """The same texts give the same scores."""
    again = subject.score(subject.texts)
    for name, score in subject.scores.items():
        if again.get(name) != score:
            raise Broken(f"{name} changed at the second call")


@check("A value of a prompt must be computed from the samples of that prompt. For others use the aggregate `corpus`.")
def independence(subject: CheckedMetric) -> None:
    """A prompt's value depends on its own samples, and not on the other prompts or their order."""
    by_prompt = subject.by_prompt
    half = subject.score(replace(subject.texts, samples=[run[::-2] for run in subject.texts.samples]))
    for name, score in by_prompt.items():
        known = score.examples or {}
        for prompt, (value, _) in (half[name].examples or {}).items():
            if not math.isclose(value, known[prompt][0], rel_tol=1e-4, abs_tol=1e-6):
                raise Broken(f"'{name}' of a prompt changes with the other prompts")


@check("Give such a sample the weight 0, or a value; raise MetricError only if no sample can be scored.")
def empty_samples(subject: CheckedMetric) -> None:
    """Samples without a word are scored, or left out."""
    first, *others = subject.texts.samples
    empty = [replace(sample, continuation_ids=[], continuation_text="", ended=True) for sample in first[:2]]
    try:
        given = subject.score(replace(subject.texts, samples=[[*empty, *first[2:]], *others]))
    except MetricError as error:
        raise Broken(f"all are missing where two of {RUNS * PROMPTS} samples are empty: {error}") from None
    for name, score in given.items():
        if not math.isfinite(score.value):
            raise Broken(f"'{name}' is not finite where a sample is empty")


@check('Say in the docstring of the class what it measures, and its source: a paper with its year, or "Own."')
def documentation(subject: CheckedMetric) -> None:
    """The docstring of the class or its module says what it measures, and its source."""
    require_source(type(subject.metric))


def checks(metric: MetricGroup) -> tuple[Sequence[Check], CheckedMetric]:
    """Return the checks of a metric, in order, and their subject."""
    return (scores, repeatable, independence, empty_samples, documentation), CheckedMetric(metric)


def facts(cls: type[MetricGroup]) -> dict[str, Any]:
    """Return the measures of a metric with unit and direction, for `emobench metrics list` and `show`."""
    measures: dict[str, dict[str, Any]] = {}
    for name, measure in cls.measures.items():
        measures[name] = {"unit": measure.unit, "better": DIRECTIONS[measure.higher_is_better]}
        if measure.secondary:
            measures[name]["secondary"] = True
    return {"measures": measures}
