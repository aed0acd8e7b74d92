"""Names to plugins: objectives, kinds of task, components, tasks, suites, recipes and tables."""

from __future__ import annotations

from emobench.registry.components import (
    COMPONENTS,
    judge_class,
    judge_names,
    judge_origin,
    load_judge,
    load_metric,
    load_retriever,
    metric_class,
    metric_names,
    metric_origin,
    retriever_class,
    retriever_names,
)
from emobench.registry.kinds import kind_names, kind_of_name, load_kind, usable_kinds
from emobench.registry.objectives import (
    LoadedObjective,
    load_objective,
    objective_class,
    objective_names,
    objective_origin,
    source_digest,
)
from emobench.registry.task_files import (
    find_recipe,
    find_suite,
    find_table,
    find_task,
    protocol_names,
    recipe_names,
    suite_names,
    table_names,
    task_names,
    tasks_plugins,
)

__all__ = [
    "COMPONENTS",
    "LoadedObjective",
    "find_recipe",
    "find_suite",
    "find_table",
    "find_task",
    "judge_class",
    "judge_names",
    "judge_origin",
    "kind_names",
    "kind_of_name",
    "load_judge",
    "load_kind",
    "load_metric",
    "load_objective",
    "load_retriever",
    "metric_class",
    "metric_names",
    "metric_origin",
    "objective_class",
    "objective_names",
    "objective_origin",
    "protocol_names",
    "recipe_names",
    "retriever_class",
    "retriever_names",
    "source_digest",
    "suite_names",
    "table_names",
    "task_names",
    "tasks_plugins",
    "usable_kinds",
]
