"""A model in memory as lm-evaluation-harness sees it, and lm-eval kept quiet: no bars, no log, no seeds left behind."""

from __future__ import annotations

import copy
import logging
import random
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import datasets
import lm_eval.api.task
import numpy as np
import torch
from lm_eval.models.huggingface import HFLM
from tqdm import tqdm

from emobench.errors import ConfigError
from emobench.kinds.interface import Subject
from emobench.kinds.lm_eval.answers import KeptAnswers
from emobench.kinds.lm_eval.rules import LmEvalProtocol

_Base: Any = HFLM  # its decorator hides its type


class MemoryModel(_Base):
    """lm-eval's own transformers model around one that is loaded; counts the prompts that it cuts on the left.

    Log-likelihoods are kept in a file while others are computed; generated texts are not.
    """

    def __init__(self, subject: Subject, rules: LmEvalProtocol, kept: KeptAnswers) -> None:
        # A copy of the tokenizer: lm-eval gives it a padding token.
        super().__init__(
            pretrained=subject.model,
            tokenizer=copy.deepcopy(subject.tokenizer),
            backend="causal",
            batch_size=rules.batch,
            max_length=rules.max_length,
        )
        self.cut: set[str] = set()
        """Contexts whose beginning did not fit."""
        self._name = rules.task
        self._kept = kept
        self._work = subject.work

    def loglikelihood(self, requests: list[Any], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        return self._shown(requests, super().loglikelihood)

    def loglikelihood_rolling(self, requests: list[Any], disable_tqdm: bool = False) -> list[float]:
        return self._shown(requests, super().loglikelihood_rolling)

    def generate_until(self, requests: list[Any], disable_tqdm: bool = False) -> list[str]:
        return self._shown(requests, super().generate_until)

    def _shown(self, requests: list[Any], compute: Callable[..., list[Any]]) -> list[Any]:
        with self._work(f"lm-eval {self._name}", "requests") as progress:
            self.cache_hook = _Counter(len(requests), progress)  # type: ignore[assignment]
            return compute(requests, disable_tqdm=True)

    def _loglikelihood_tokens(
        self, requests: list[Any], disable_tqdm: bool = False, override_bs: int | None = None
    ) -> list[tuple[float, bool]]:
        for texts, context, continuation in requests:
            if len(continuation) > self.max_length:
                raise ConfigError(
                    f"Task lm-eval:{self._name}: an answer has {len(continuation)} tokens, but the model reads at most "
                    f"{self.max_length}; take a model with a longer context."
                )
            if texts is not None and len(context) + len(continuation) > self.max_length + 1:
                self.cut.add(texts[0])
        compute = partial(super()._loglikelihood_tokens, disable_tqdm=disable_tqdm, override_bs=override_bs)
        if any(texts is None for texts, *_ in requests):  # a part of a text whose likelihood is rolled up
            return compute(requests)
        return self._kept.answers(requests, self.batch_size, compute, self.cache_hook.add)


class _Counter:
    """Stands where lm-eval's cache would be told of each answer, and counts them."""

    def __init__(self, total: int, progress: Callable[[int, int], None]) -> None:
        self.done, self.total, self.progress = 0, total, progress

    def add_partial(self, *_: Any) -> None:
        self.add(1)

    def add(self, count: int) -> None:
        self.done += count
        self.progress(self.done, self.total)


@contextmanager
def quiet_lm_eval() -> Iterator[list[str]]:
    """Keep the bars, warnings and logs of lm-eval and datasets off the terminal; the different warnings are given."""
    said = _Kept()
    loggers = [logging.getLogger(name) for name in ("lm_eval", "datasets")]
    before = [(logger.handlers, logger.propagate) for logger in loggers]
    bars = datasets.are_progress_bars_disabled()
    shown = lm_eval.api.task.tqdm
    try:
        for logger in loggers:
            logger.handlers, logger.propagate = [said], False
        datasets.disable_progress_bars()
        lm_eval.api.task.tqdm = partial(tqdm, disable=True)  # "Building contexts" asks for no option
        with warnings.catch_warnings(action="ignore"):
            yield said.texts
    finally:
        lm_eval.api.task.tqdm = shown
        for logger, (handlers, propagate) in zip(loggers, before, strict=True):
            logger.handlers, logger.propagate = handlers, propagate
        if not bars:
            datasets.enable_progress_bars()


_EXPECTED = (
    "`pretrained` model kwarg",  # that a model comes from memory is what this is for
    "Passed an already-initialized",
    "Overwriting default num_fewshot",  # is among the rules
    "Combined length of",  # cut prompts are counted
)


class _Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if not text.startswith(_EXPECTED) and text not in self.texts and len(self.texts) < 20:
            self.texts.append(text)


@contextmanager
def kept_random_states() -> Iterator[None]:
    """Give Python, NumPy and torch their random states back afterwards: lm-eval seeds all of them."""
    python, numpy, cpu = random.getstate(), np.random.get_state(), torch.random.get_rng_state()  # noqa: NPY002
    devices = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002
        torch.random.set_rng_state(cpu)
        if devices:
            torch.cuda.set_rng_state_all(devices)
