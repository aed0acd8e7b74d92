"""Tasks of lm-eval whose answers vLLM generates: what it is asked for, what is refused, and the texts of lm-eval."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import GPT2LMHeadModel

from emobench.core.errors import ConfigError
from emobench.inference.decoding.continuations import sample_continuations
from emobench.inference.decoding.request import Decoding, Sampling
from emobench.inference.vllm.package import CPU_PACKAGE, installed_package
from emobench.kinds.interface import Subject
from emobench.kinds.lm_eval import evaluate as kind
from emobench.kinds.lm_eval import model as vllm_model
from emobench.kinds.lm_eval.kind import named_task
from emobench.models.device import LoadOptions
from emobench.models.model import Model

with_vllm = pytest.mark.skipif(installed_package() != CPU_PACKAGE, reason=f"needs the package {CPU_PACKAGE}")


def as_files(subject: Subject, folder: Path) -> Subject:
    """Return the same model as files, of which nothing is in memory."""
    for part in (subject.model, subject.tokenizer):
        part.save_pretrained(folder)
    return replace(subject, model=None, files=Model(str(folder), LoadOptions(device="cpu")))


def answers(subject: Subject, folder: Path, own_tasks: Path, **rules: Any) -> list[Any]:
    task = named_task("own_free", {"include": str(own_tasks), **rules})
    folder.mkdir()
    kind.generate(subject, task, kind.load(task, data_dirs=(), offline=True), folder)
    return [json.loads(line)["resps"] for line in (folder / "samples.jsonl").read_text().splitlines()]


class GreedyEngine:
    """Answers as vLLM does, by the harness's own decoding; it does not look at the strings that end a text."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.asked: list[Mapping[str, Any]] = []

    def generate(self, params: Mapping[str, Any], requests: Sequence[tuple[Sequence[int], None]]) -> list[list[int]]:
        self.asked.append(params)
        decoding = Decoding(rule=Sampling(method="greedy", suppress_eos=False), length=params["max_tokens"])
        keys = [str(place) for place in range(len(requests))]
        found = sample_continuations(self.model, [ids for ids, _ in requests], prompt_keys=keys, decoding=decoding)
        return [one.ids + params["stop_token_ids"][:1] * one.ended for [one] in found]


def test_prompts_cuts_and_ends_are_those_of_lm_eval(
    byte_model: tuple[Any, Any], subject: Subject, own_tasks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, settings, files = GreedyEngine(byte_model[0]), [], as_files(subject, tmp_path / "model")

    @contextmanager
    def running(given: Mapping[str, Any], name: str) -> Iterator[GreedyEngine]:
        settings.append(given)
        yield engine

    monkeypatch.setattr(vllm_model, "running_engine", running)
    expected = answers(subject, tmp_path / "memory", own_tasks)
    assert answers(files, tmp_path / "vllm", own_tasks, backend="vllm") == expected
    assert len({json.dumps(one) for one in expected}) > 1
    (params,) = engine.asked  # all requests at once
    assert params["max_tokens"] == 4
    assert params["stop"] == [".", "<eos>"]
    assert (settings[0]["max_model_len"], settings[0]["vocabulary"], settings[0]["texts"]) == (1024, 257, True)
    assert answers(files, tmp_path / "short", own_tasks, backend="vllm", max_length=12) == answers(
        subject, tmp_path / "cut", own_tasks, max_length=12
    )


@pytest.mark.slow
@with_vllm
def test_vllm_itself_gives_the_texts_of_lm_eval(subject: Subject, own_tasks: Path, tmp_path: Path) -> None:
    config = copy.deepcopy(subject.model.config)
    config.update({"n_embd": 64, "n_head": 1})  # vLLM has no heads of 16 on a CPU
    with torch.random.fork_rng():
        torch.manual_seed(0)
        wide = replace(subject, model=GPT2LMHeadModel(config).eval())
    expected = answers(wide, tmp_path / "memory", own_tasks)
    assert answers(as_files(wide, tmp_path / "model"), tmp_path / "vllm", own_tasks, backend="vllm") == expected
    assert len({json.dumps(one) for one in expected}) > 1


@pytest.mark.parametrize(
    ("generation", "problem"),
    [
        (None, "asks for likelihoods"),
        ({"do_sample": True, "temperature": 0.8}, "draws its answers at random"),
        ({"temperature": 0.8}, "draws its answers at random"),
        ({"until": ["."], "num_beams": 4}, "sets num_beams"),
        ({"repetition_penalty": 1.1}, "sets repetition_penalty"),
    ],
    ids=str,
)
def test_what_vllm_does_not_do_as_lm_eval_asks_is_refused(generation: Any, problem: str) -> None:
    with pytest.raises(ConfigError, match=f"Task lm-eval:toy: part {problem}.*lm_eval.backend=vllm to"):
        vllm_model.check_generation("lm-eval:toy", {"part": generation})
    for greedy in ({}, {"until": ["."], "max_gen_toks": 8, "do_sample": False, "top_p": 1.0}):
        vllm_model.check_generation("lm-eval:toy", {"part": greedy})


def test_a_task_says_how_its_answers_are_generated(own_tasks: Path) -> None:
    load = {"data_dirs": (), "offline": True}
    free = kind.load(named_task("own_free", {"include": str(own_tasks)}), **load)
    assert free.generation["own_free"] == {"max_gen_toks": 4, "until": ["."], "do_sample": False}
    assert kind.load(named_task("own_text", {"include": str(own_tasks)}), **load).generation == {"own_text": None}
