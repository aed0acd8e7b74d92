"""Answers of lm-evaluation-harness's tasks that vLLM generates; prompts, cuts and ends of texts are lm-eval's own.

Only greedy answers: sampled ones depend on lm-eval's global seed, which vLLM does not know.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from lm_eval.models.utils import normalize_gen_kwargs
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM

from emobench.core.errors import ConfigError
from emobench.inference.vllm.continuations import ROWS, end_ids, engine_settings
from emobench.inference.vllm.engine import Engine, running_engine
from emobench.kinds.interface import ModelFiles, Subject
from emobench.kinds.lm_eval.model import KeptAnswers, MemoryModel
from emobench.kinds.lm_eval.rules import LmEvalProtocol
from emobench.metrics.batching import pad
from emobench.models.head import token_count

TAKEN = {"until", "max_gen_toks", "do_sample", "temperature", "top_k", "top_p", "min_p"}
"""Of a task's generation settings; the last three say nothing of a greedy text."""


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
        read = [ids_T[mask_T.bool()].tolist() for ids_T, mask_T in zip(context, given["attention_mask"], strict=True)]
        found = self.vllm.generate(params, [(ids, None) for ids in read])
        return torch.cat([context, pad(found, self.eot_token_id, context.device)[0]], 1)


@contextmanager
def vllm_model(subject: Subject, rules: LmEvalProtocol, kept: KeptAnswers) -> Iterator[VllmModel]:
    """Give lm-eval a model whose texts vLLM generates; vLLM is gone at the end."""
    model = VllmModel(subject, rules, kept)
    assert subject.files is not None
    settings = engine_settings(subject.files, model.max_length, token_count(subject.tokenizer), texts=True)
    with running_engine(settings, subject.files.name) as model.vllm:
        yield model


def _without_weights(files: ModelFiles) -> Any:
    """Return the model that lm-eval asks for its configuration."""
    trusted = files.options.trust_remote_code
    config = AutoConfig.from_pretrained(files.folder, local_files_only=True, trust_remote_code=trusted)
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config, trust_remote_code=trusted)
