"""Tasks of lm-evaluation-harness: which one, and the settings that decide its scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from emobench.core.settings import check_settings, setting
from emobench.tasks.rules import Rules


@dataclass(frozen=True, kw_only=True)
class LmEvalProtocol(Rules):
    """A task or group of lm-evaluation-harness, run by itself on the model in memory."""

    NOT_IDENTIFYING: ClassVar = ("include", "data", "batch", "engine")
    ABSENT_BY_DEFAULT: ClassVar = ("backend", "chat_template")

    task: str
    """A task or group of lm-evaluation-harness."""
    include: str = ""
    """A folder with your own YAML, which lm-eval reads besides its own tasks. It runs the Python that these files name,
    so --trust-remote-code is required."""
    data: str = ""
    """A folder or repository that takes the place of the task's `dataset_path`, laid out alike."""
    num_fewshot: int | None = setting(None, low=0, high=10_000)
    """Shots; None is the task's own number."""
    chat_template: bool = False
    """Whether prompts are turns of the tokenizer's chat template, each shot two of them, as lm-eval writes them."""
    max_length: int | None = setting(None, low=2, high=2**20)
    """Tokens of a prompt at most, cut on the left as lm-eval does; None is the model's context."""
    batch: int = setting(8, low=1, high=100_000)
    """Prompts that lm-eval reads together."""
    engine: Literal["auto", "lm-eval"] = "auto"
    """How log-likelihoods are computed. `auto` reads what requests begin with once; the answers are lm-eval's, up to
    rounding. `lm-eval` leaves them to lm-eval, for the same bits."""
    backend: Literal["transformers", "vllm"] = "transformers"
    """Who generates answers, for tasks that ask for nothing else. vllm: vLLM, greedily and without the generation
    settings of the model's folder, so that it makes another protocol; its version is part of the key."""
    limit: int | None = setting(None, low=1, high=10**12)
    """Examples of each task at most."""

    def __post_init__(self) -> None:
        check_settings(self)
