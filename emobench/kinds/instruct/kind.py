"""Tasks of kind `instruct`: responses to instructions, compared with those of the data set."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from emobench.hooks import hookimpl
from emobench.kinds.auxiliary import Packages
from emobench.kinds.instruct.rules import InstructProtocol
from emobench.kinds.interface import Kind
from emobench.kinds.shared_rules import rouge_packages
from emobench.kinds.views import WrittenText
from emobench.tasks.spec import Task


class InstructKind(Kind):
    """Responses to instructions (EMO paper, 4.3)."""

    name = "instruct"
    rules = InstructProtocol
    example = "max_new_tokens=256"

    @property
    def runtime(self):
        from emobench.kinds.instruct import evaluate

        return evaluate

    def packages(self, task: Task) -> Packages:
        return Packages(scores=rouge_packages(stemming=False))

    def written_texts(self, path: Path, facts: Mapping[str, Any], data: Mapping[str, str]) -> list[WrittenText]:
        return self.runtime.written_texts(path)


@hookimpl
def emobench_kinds() -> list[type[Kind]]:
    return [InstructKind]
