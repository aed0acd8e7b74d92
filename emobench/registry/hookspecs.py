"""Every hook that a plugin can implement, on one page.

A plugin is a module named by an entry point, in `emobench.objectives` (one name per objective), in `emobench.tasks`
(a folder of YAML), in `emobench.kinds` (one name per kind of task), in `emobench.components` (one name per retriever)
in `emobench.metrics` (one name per metric of generated texts) or in `emobench.judges` (one name per judge of
responses).
Mark an implementation with `@emobench.hookimpl`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from emobench.core.hooks import hookspec

if TYPE_CHECKING:
    from emobench.kinds.generation.metric import MetricGroup
    from emobench.kinds.icl.retrieval.retriever import Retriever
    from emobench.kinds.instruct.judging.judge import Judge
    from emobench.kinds.interface import Kind
    from emobench.objectives import Objective


@hookspec
def emobench_objectives() -> list[type[Objective]]:  # type: ignore[empty-body]
    """Return the objectives that this module offers: classes, each with its `name`."""


@hookspec
def emobench_tasks() -> Path:  # type: ignore[empty-body]
    """Return a folder with YAML in `tasks`, `suites`, `recipes` and `tables`; a file is read when it is asked for."""


@hookspec
def emobench_retrievers() -> list[type[Retriever]]:  # type: ignore[empty-body]
    """Return the retrievers of in-context examples that this module offers: classes, each with its `name`."""


@hookspec
def emobench_metrics() -> list[type[MetricGroup]]:  # type: ignore[empty-body]
    """Return the metrics of generated texts, judges among them, that this module offers: classes with a `name`."""


@hookspec
def emobench_judges() -> list[type[Judge]]:  # type: ignore[empty-body]
    """Return the judges of responses that this module offers: classes, each with its `name`."""


@hookspec
def emobench_kinds() -> list[type[Kind]]:  # type: ignore[empty-body]
    """Return the kinds of task that this module offers: classes, each with its `name`, importing nothing heavy."""
