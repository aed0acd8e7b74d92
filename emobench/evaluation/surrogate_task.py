"""Tasks of kind `surrogate`: the model against a larger one of the same tokenizer, token by token, on human texts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from emobench.data.texts import Texts, load_texts
from emobench.evaluation.kinds import BaseModel, Beside, Scored, Subject
from emobench.tasks.generation import SurrogateProtocol
from emobench.tasks.spec import Task


def load(task: Task, *, data_dirs: Sequence[Path], offline: bool) -> Texts:
    split = task.protocol_as(SurrogateProtocol).split
    return load_texts(task.corpus, split, data_dirs=data_dirs, offline=offline)


def models(task: Task) -> dict[str, Beside]:
    return {"surrogate": Beside(task.protocol_as(SurrogateProtocol).model, "lm")}


def check(task: Task, texts: Texts, model: BaseModel) -> None:
    model.known(models(task)["surrogate"])


def generation_rules(task: Task) -> dict[str, Any]:
    """No rules: nothing is generated."""
    return {}


def generate(subject: Subject, task: Task, texts: Texts, folder: Path) -> None:
    """Write nothing: human texts are read, and nothing is generated."""


def score(subject: Subject, task: Task, texts: Texts, folder: Path) -> Scored:
    return Scored()
