"""A model in memory as lm-evaluation-harness sees it, with answers that survive an interruption; lm-eval kept quiet.

Log-likelihoods are computed by `emobench.inference.scoring`, which reads shared beginnings of requests once. With the
engine `lm-eval` they are lm-eval's own, which scores each context once for all continuations of one token, the
longest first. Cut at multiples of a batch in that order, the requests make the same batches, and so the same numbers
to the last bit.
"""

from __future__ import annotations

import copy
import hashlib
import json
import logging
import random
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from operator import neg
from pathlib import Path
from typing import Any

import datasets
import lm_eval.api.task
import numpy as np
import torch
from lm_eval.models.huggingface import HFLM
from tqdm import tqdm

from emobench.core.errors import ConfigError, ModelError
from emobench.data.chat_templates import ChatRefusedError, continued_chat, render_chat
from emobench.inference.scoring.prompts import LabelPrompts
from emobench.inference.scoring.scorer import PromptScorer
from emobench.kinds.interface import Subject
from emobench.kinds.journal import Journal
from emobench.kinds.lm_eval.rules import LmEvalProtocol

_Base: Any = HFLM  # its decorator hides its type


Request = tuple[tuple[str, str], list[int], list[int]]
"""(context, continuation) as texts, and the tokens of each."""
Answer = tuple[float, bool]
"""Log-likelihood in nats, and whether each token was the most likely one."""

BATCHES = 16
"""Batches between two writes."""


class KeptAnswers:
    """Answers on disk, by the tokens of the requests that they were given to together."""

    def __init__(self, path: Path) -> None:
        self._journal = Journal(path)
        self._known: dict[str, list[Answer]] = {}
        for row in map(json.loads, self._journal.read()):
            self._known[row["requests"]] = [(value, greedy) for value, greedy in row["answers"]]

    def of(self, requests: Sequence[Request], compute: Callable[[], list[Answer]]) -> tuple[list[Answer], bool]:
        """Return the answers to requests, computed where they are not kept, and whether they were."""
        key = hashlib.sha256(json.dumps([tokens for _, *tokens in requests]).encode()).hexdigest()
        kept = key in self._known
        if not kept:
            self._known[key] = compute()
            self._journal.append([json.dumps({"requests": key, "answers": self._known[key]})])
        return self._known[key], kept


def _lm_eval_batches(requests: Sequence[Request], size: int) -> Iterator[list[int]]:
    """Yield the places of requests, `size` forwarded contexts at a time, in lm-eval's order of contexts."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for place, (_, context, continuation) in enumerate(requests):
        groups.setdefault(tuple(context + continuation[:-1]), []).append(place)

    def order(places: list[int]) -> Any:
        tokens = max((requests[place][1] + requests[place][2] for place in places), key=len)
        return -len(tokens), tuple(tokens)

    ordered = sorted(groups.values(), key=order)
    for start in range(0, len(ordered), size):
        yield sorted(place for places in ordered[start : start + size] for place in places)


def _prompts(requests: Sequence[Request], most: int) -> tuple[list[LabelPrompts], list[list[int]]]:
    """Return what is scored, and the places of the requests of each; a prompt has at most `most` tokens.

    Requests of one context are alternatives of one another, as long as their continuations are not longer than it: a
    row is then at most twice as long as a prompt.
    """
    groups: list[list[int]] = []
    open_groups: dict[tuple[int, ...], tuple[list[int], int]] = {}
    for place, (_, context, continuation) in enumerate(requests):
        group, room = open_groups.get(tuple(context), ([], 0))
        room -= len(continuation)
        if room < 0 or len(context) + len(continuation) > most:
            group, room = [], len(context) - len(continuation)
            groups.append(group)
        group.append(place)
        open_groups[tuple(context)] = group, room
    prompts = []
    for number, group in enumerate(groups):
        tokens = [tuple((requests[place][1] + requests[place][2])[-most:]) for place in group]
        starts = [len(ids) - len(requests[place][2]) for ids, place in zip(tokens, group, strict=True)]
        prompts.append(LabelPrompts(id=str(number), tokens=tuple(tokens), label_starts=tuple(starts)))
    return prompts, groups


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
        self._scorer: PromptScorer | None = None
        if rules.engine == "auto":
            with suppress(ModelError):  # of a model whose head is not understood, lm-eval reads all logits
                self._scorer = PromptScorer(subject.model, labels_only=True, greedy=True, section="lm_eval")

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        """Render a chat as lm-eval does, with the limits and the fixed date of `emobench.data.chat_templates`."""
        render = partial(render_chat, asks=True) if add_generation_prompt else continued_chat
        try:
            return render(self.tokenizer, chat_history)
        except ChatRefusedError:  # lm-eval then drops the system message
            return render(self.tokenizer, [turn for turn in chat_history if turn["role"] != "system"])

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
            if not context or not continuation:
                part = "an answer" if context else "the context of an answer"
                raise ConfigError(
                    f"Task lm-eval:{self._name}: {part} has no token of its own, so it has no likelihood. Change the "
                    "task's `doc_to_text` or `doc_to_choice`."
                )
            if len(continuation) > self.max_length:
                raise ConfigError(
                    f"Task lm-eval:{self._name}: an answer has {len(continuation)} tokens, but the model reads at most "
                    f"{self.max_length}; take a model with a longer context."
                )
            if texts is not None and len(context) + len(continuation) > self.max_length + 1:
                self.cut.add(texts[0])
        # A part of a text whose likelihood is rolled up is not kept.
        kept = self._kept if all(texts is not None for texts, *_ in requests) else None
        if self._scorer is not None:
            return self._scored(self._scorer, requests, kept)
        compute = partial(super()._loglikelihood_tokens, disable_tqdm=disable_tqdm, override_bs=override_bs)
        return compute(requests) if kept is None else self._by_lm_eval(compute, requests, kept)

    def _by_lm_eval(self, compute: Callable[..., list[Answer]], requests: list[Request], kept: KeptAnswers) -> Any:
        found: dict[int, Answer] = {}
        for places in _lm_eval_batches(requests, self.batch_size * BATCHES):
            part = [requests[place] for place in places]
            answers, known = kept.of(part, partial(compute, part))
            found.update(zip(places, answers, strict=True))
            if known:
                self.cache_hook.add(len(part))
        return [found[place] for place in range(len(requests))]

    def _scored(self, scorer: PromptScorer, requests: list[Request], kept: KeptAnswers | None) -> list[Answer]:
        prompts, groups = _prompts(requests, self.max_length + 1)

        def answers(batches: Sequence[Sequence[int]]) -> list[Answer]:
            losses = (one for batch in batches for one in scorer.losses([prompts[i] for i in batch]))
            return [answer for one in losses for answer in zip(map(neg, one.label_nats), one.label_greedy, strict=True)]

        found: dict[int, Answer] = {}
        planned = scorer.batches(prompts)
        for batches in (planned[first : first + BATCHES] for first in range(0, len(planned), BATCHES)):
            places = [place for batch in batches for i in batch for place in groups[i]]
            compute = partial(answers, batches)
            part = compute() if kept is None else kept.of([requests[place] for place in places], compute)[0]
            found.update(zip(places, part, strict=True))
            if kept is not None:
                self.cache_hook.add(len(part))
        return [found[place] for place in range(len(requests))]


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
def quiet_lm_eval() -> Iterator[None]:
    """Keep the bars, warnings and logs of lm-eval and datasets off the terminal."""
    loggers = [logging.getLogger(name) for name in ("lm_eval", "datasets")]
    before = [(logger.handlers, logger.propagate) for logger in loggers]
    bars, shown = datasets.are_progress_bars_disabled(), lm_eval.api.task.tqdm
    try:
        for logger in loggers:
            logger.handlers, logger.propagate = [logging.NullHandler()], False
        datasets.disable_progress_bars()
        lm_eval.api.task.tqdm = partial(tqdm, disable=True)  # "Building contexts" asks for no option
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        lm_eval.api.task.tqdm = shown
        for logger, (handlers, propagate) in zip(loggers, before, strict=True):
            logger.handlers, logger.propagate = handlers, propagate
        if not bars:
            datasets.enable_progress_bars()


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
