"""A model in memory as lm-evaluation-harness sees it, with answers that survive an interruption; lm-eval kept quiet.

Log-likelihoods are computed by `emobench.inference.scoring`, which reads shared beginnings of requests once, or with
the engine `lm-eval` by lm-eval itself, to the last bit.

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
from emobench.kinds.interface import Progress, Subject
from emobench.kinds.journal import Journal
from emobench.kinds.lm_eval.kind import LmEvalProtocol
from emobench.metrics.batching import pad
from emobench.models.head import token_count

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

    def of(self, requests: Sequence[Request], compute: Callable[[], list[Answer]]) -> list[Answer]:
        """Return the answers to requests, computed unless they are kept."""
        key = hashlib.sha256(json.dumps([tokens for _, *tokens in requests]).encode()).hexdigest()
        if key not in self._known:
            self._known[key] = compute()
            self._journal.append([json.dumps({"requests": key, "answers": self._known[key]})])
        return self._known[key]


def _prompts(requests: Sequence[Request], most: int) -> tuple[list[LabelPrompts], list[list[int]]]:
    """Return the prompts to score, and the places of the requests of each; a prompt has at most `most` tokens.

    Requests of one context are alternatives of one another, as long as their continuations are not longer than it: a
    row is then at most twice as long as a prompt.
    """
    groups = []
    open_groups: dict[tuple[int, ...], tuple[list[int], int]] = {}
    for place, (_, context, continuation) in enumerate(requests):
        group, room = open_groups.get(tuple(context), ([], 0))
        room -= len(continuation)
        if room < 0 or len(context) + len(continuation) > most:
            group = []
            room = len(context) - len(continuation)
            groups.append(group)
        group.append(place)
        open_groups[tuple(context)] = group, room
    prompts = []
    for number, group in enumerate(groups):
        tokens = []
        starts = []
        for _, context, continuation in (requests[place] for place in group):
            tokens.append(tuple((context + continuation)[-most:]))
            starts.append(len(tokens[-1]) - len(continuation))
        prompts.append(LabelPrompts(id=str(number), tokens=tuple(tokens), label_starts=tuple(starts)))
    return prompts, groups


class MemoryModel(_Base):
    """lm-eval's own transformers model around one that is loaded; counts the prompts that it cuts on the left.

    Log-likelihoods of the engine `auto` are kept in the file `unfinished` while others are computed; generated texts
    are not.
    """

    def __init__(self, subject: Subject, rules: LmEvalProtocol, unfinished: Path) -> None:
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
        self._kept = KeptAnswers(unfinished)
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

    def loglikelihood(self, requests: list[Any], disable_tqdm: bool = False) -> list[Answer]:
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
    ) -> list[Answer]:
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
        if self._scorer is None:
            return super()._loglikelihood_tokens(requests, disable_tqdm=disable_tqdm, override_bs=override_bs)
        return self._scored(self._scorer, requests)

    def _scored(self, scorer: PromptScorer, requests: list[Request]) -> list[Answer]:
        prompts, groups = _prompts(requests, self.max_length + 1)

        def compute(batches: Sequence[Sequence[int]]) -> list[Answer]:
            answers = []
            for batch in batches:
                for one in scorer.losses([prompts[i] for i in batch]):
                    answers += zip(map(neg, one.label_nats), one.label_greedy, strict=True)
            return answers

        answers = {}
        planned = scorer.batches(prompts)
        for first in range(0, len(planned), BATCHES):
            batches = planned[first : first + BATCHES]
            places = [place for i in chain.from_iterable(batches) for place in groups[i]]
            part = [requests[place] for place in places]
            if part[0][0] is None:  # a part of a text whose likelihood is rolled up is not kept
                answers.update(zip(places, compute(batches), strict=True))
            else:
                answers.update(zip(places, self._kept.of(part, partial(compute, batches)), strict=True))
                self.cache_hook.add(len(part))
        return [answers[place] for place in range(len(requests))]


class _Counter:
    """Takes the place of lm-eval's cache, and counts the answers that it gets."""

    def __init__(self, total: int, progress: Progress) -> None:
        self.done, self.total, self.progress = 0, total, progress

    def add_partial(self, *_: Any) -> None:
        self.add(1)

    def add(self, count: int) -> None:
        self.done += count
        self.progress(self.done, self.total)


@contextmanager
def quiet_lm_eval() -> Iterator[None]:
    """Keep the bars, warnings and logs of lm-eval and datasets off the terminal."""
    bars, shown, level = datasets.are_progress_bars_disabled(), lm_eval.api.task.tqdm, logging.root.manager.disable
    logging.disable()
    datasets.disable_progress_bars()
    lm_eval.api.task.tqdm = partial(tqdm, disable=True)  # "Building contexts" asks for no option
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        logging.disable(level)
        lm_eval.api.task.tqdm = shown
        if not bars:
            datasets.enable_progress_bars()


@contextmanager
def kept_random_states() -> Iterator[None]:
    """Give Python, NumPy and torch their random states back afterwards: lm-eval seeds all of them."""
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    try:
        with torch.random.fork_rng(devices):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002


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

    def __init__(self, subject: Subject, rules: LmEvalProtocol, unfinished: Path) -> None:
        files = subject.files
        assert files is not None
        trusted = files.options.trust_remote_code
        config = AutoConfig.from_pretrained(files.folder, local_files_only=True, trust_remote_code=trusted)
        with torch.device("meta"):
            shell = AutoModelForCausalLM.from_config(config, trust_remote_code=trusted)
        super().__init__(replace(subject, model=shell), replace(rules, batch=ROWS, engine="lm-eval"), unfinished)
        self._device = torch.device("cpu")
        self._ends = end_ids(files)
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
def lm_eval_model(subject: Subject, rules: LmEvalProtocol, unfinished: Path) -> Iterator[MemoryModel]:
    """Give lm-eval the model in memory, or one whose texts vLLM generates; vLLM is gone at the end."""
    if rules.backend == "transformers":
        yield MemoryModel(subject, rules, unfinished)
        return
    model = VllmModel(subject, rules, unfinished)
    assert subject.files is not None
    settings = engine_settings(subject.files, model.max_length, token_count(subject.tokenizer), texts=True)
    with running_engine(settings, subject.files.name) as model.vllm:
        yield model
