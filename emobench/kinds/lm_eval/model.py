"""A model in memory as lm-evaluation-harness sees it, with answers that survive an interruption; lm-eval kept quiet.

Log-likelihoods are computed by `emobench.inference.scoring`, which reads shared beginnings of requests once. With the
engine `lm-eval` they are lm-eval's own, which scores each context once for all continuations of one token, the
longest first. Cut at multiples of a batch in that order, the requests make the same batches, and so the same numbers
to the last bit.

vLLM only generates, and only greedy answers: sampled ones depend on lm-eval's global seed, which vLLM does not know.
Prompts, cuts and ends of texts are lm-eval's own.
"""

from __future__ import annotations

import copy
import hashlib
import json
import logging
import random
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import chain
from operator import neg
from pathlib import Path
from typing import Any

import datasets
import lm_eval.api.task
import numpy as np
import torch
from lm_eval.models.huggingface import HFLM
from lm_eval.models.utils import normalize_gen_kwargs
from torch import Tensor
from tqdm import tqdm
from transformers import AutoConfig, AutoModelForCausalLM

from emobench.core.errors import ConfigError, ModelError
from emobench.data.chat_templates import ChatRefusedError, continued_chat, render_chat
from emobench.inference.scoring.scorer import PromptScorer
from emobench.inference.scoring.trie import LabelPrompts
from emobench.inference.vllm.engine import ROWS, Engine, end_ids, engine_settings, running_engine
from emobench.kinds.interface import Subject
from emobench.kinds.journal import Journal
from emobench.kinds.lm_eval.kind import LmEvalProtocol
from emobench.metrics.batching import pad
from emobench.models.head import token_count
from emobench.models.model import Model

_Base: Any = HFLM  # its decorator hides its type


Request = tuple[tuple[str, str], list[int], list[int]]
"""(context, continuation) as texts, and the tokens of each."""
Answer = tuple[float, bool]
"""Log-likelihood in nats, and whether each token was the most likely one."""

TAKEN = {"until", "max_gen_toks", "do_sample", "temperature", "top_k", "top_p", "min_p"}
"""Of a task's generation settings for vLLM; the last three say nothing of a greedy text."""
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
        yield sorted(chain.from_iterable(ordered[start : start + size]))


def _prompts(requests: Sequence[Request], most: int) -> tuple[list[LabelPrompts], list[list[int]]]:
    """Return the prompts to score, and the places of the requests of each; a prompt has at most `most` tokens.

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
        tokens, starts = [], []
        for _, context, continuation in (requests[place] for place in group):
            tokens.append(tuple((context + continuation)[-most:]))
            starts.append(len(tokens[-1]) - len(continuation))
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
        answers: dict[int, Answer] = {}
        for places in _lm_eval_batches(requests, self.batch_size * BATCHES):
            part = [requests[place] for place in places]
            of_part, known = kept.of(part, partial(compute, part))
            answers.update(zip(places, of_part, strict=True))
            if known:
                self.cache_hook.add(len(part))
        return [answers[place] for place in range(len(requests))]

    def _scored(self, scorer: PromptScorer, requests: list[Request], kept: KeptAnswers | None) -> list[Answer]:
        prompts, groups = _prompts(requests, self.max_length + 1)

        def compute(batches: Sequence[Sequence[int]]) -> list[Answer]:
            answers: list[Answer] = []
            for batch in batches:
                for one in scorer.losses([prompts[i] for i in batch]):
                    answers += zip(map(neg, one.label_nats), one.label_greedy, strict=True)
            return answers

        answers: dict[int, Answer] = {}
        planned = scorer.batches(prompts)
        for first in range(0, len(planned), BATCHES):
            batches = planned[first : first + BATCHES]
            places = [place for i in chain.from_iterable(batches) for place in groups[i]]
            if kept is None:
                part = compute(batches)
            else:
                part, _ = kept.of([requests[place] for place in places], partial(compute, batches))
                self.cache_hook.add(len(part))
            answers.update(zip(places, part, strict=True))
        return [answers[place] for place in range(len(requests))]


class _Counter:
    """Takes the place of lm-eval's cache, and counts the answers that it gets."""

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


def check_generation(task: str, generation: Mapping[str, Mapping[str, Any] | None]) -> None:
    """Raise ConfigError for a task whose answers vLLM does not give as lm-eval asks for them."""
    for name, given in generation.items():
        asked = normalize_gen_kwargs(dict(given or {}))
        if given is None:
            problem = "asks for likelihoods, and vLLM only generates"
        elif asked.get("do_sample"):
            problem = "draws its answers at random, and vLLM has random numbers of its own"
        elif others := sorted({*asked} - TAKEN):
            problem = f"sets {', '.join(others)}, which is not passed on to vLLM"
        else:
            continue
        raise ConfigError(
            f"Task {task}: {name} {problem}; give --set lm_eval.backend=vllm to a command without this task."
        )


class VllmModel(MemoryModel):
    """lm-eval's own transformers model without weights, whose texts come from an engine."""

    def __init__(self, subject: Subject, rules: LmEvalProtocol, kept: KeptAnswers) -> None:
        assert subject.files is not None
        shell = replace(subject, model=_without_weights(subject.files))
        super().__init__(shell, replace(rules, batch=ROWS, engine="lm-eval"), kept)
        self._device = torch.device("cpu")
        self._ends = end_ids(subject.files)
        self.vllm: Engine | None = None

    def _model_generate(self, context: Tensor, max_length: int, stop: list[str], **given: Any) -> Tensor:
        """Return the prompts, padded on the left as they come, and behind each its greedy continuation."""
        assert self.vllm is not None
        params = {
            "temperature": 0.0,
            "max_tokens": max_length - context.shape[1],
            "stop": stop,
            "stop_token_ids": list(self._ends),
            "ignore_eos": True,
            "skip_special_tokens": False,  # the text of EOS is one of the strings that end a text
        }
        prompts = []
        for ids_T, mask_T in zip(context, given["attention_mask"], strict=True):
            prompts.append((ids_T[mask_T.bool()].tolist(), None))
        written = self.vllm.generate(params, prompts)
        return torch.cat([context, pad(written, self.eot_token_id, context.device)[0]], 1)


@contextmanager
def memory_model(subject: Subject, rules: LmEvalProtocol, kept: KeptAnswers) -> Iterator[MemoryModel]:
    """Give lm-eval the model in memory."""
    yield MemoryModel(subject, rules, kept)


@contextmanager
def vllm_model(subject: Subject, rules: LmEvalProtocol, kept: KeptAnswers) -> Iterator[VllmModel]:
    """Give lm-eval a model whose texts vLLM generates; vLLM is gone at the end."""
    model = VllmModel(subject, rules, kept)
    assert subject.files is not None
    settings = engine_settings(subject.files, model.max_length, token_count(subject.tokenizer), texts=True)
    with running_engine(settings, subject.files.name) as model.vllm:
        yield model


def _without_weights(files: Model) -> Any:
    """Return the model that lm-eval asks for its configuration."""
    trusted = files.options.trust_remote_code
    config = AutoConfig.from_pretrained(files.folder, local_files_only=True, trust_remote_code=trusted)
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config, trust_remote_code=trusted)
