"""emobench: does a training objective make a language model better, by how much, and are we sure?

The public API for plugins and tasks. Names load at first use, so that importing emobench does not import
torch; `__init__.pyi` has their types.
"""

# pyright: reportUnsupportedDunderAll=false
from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

__all__ = [
    "Attached",
    "AuxiliaryModel",
    "Compared",
    "Cost",
    "CostEmbedding",
    "DenseTargetObjective",
    "Family",
    "GeneratedTexts",
    "GradeJudge",
    "GroundCost",
    "Judge",
    "JudgeReply",
    "JudgeRequest",
    "KeyFacts",
    "Kind",
    "KnownLanguage",
    "LogitsObjective",
    "Measure",
    "Metric",
    "MetricContext",
    "MetricGroup",
    "ModelObjective",
    "Objective",
    "ObjectiveLoss",
    "Pair",
    "PairJudge",
    "Results",
    "RetrievalContext",
    "Retriever",
    "Rules",
    "Runtime",
    "Score",
    "Scored",
    "SetupContext",
    "Snapshot",
    "SnapshotObjective",
    "StatisticsObjective",
    "Subject",
    "Task",
    "Teacher",
    "TokenStatistics",
    "UnitLosses",
    "WeightedLikelihood",
    "attach",
    "compare",
    "compute_loss_func",
    "evaluate",
    "hookimpl",
    "load_board",
    "load_texts",
    "objective",
    "objective_loss",
    "param",
    "run",
]
_HOME = dict.fromkeys(__all__, "emobench.objectives")
_HOME |= dict.fromkeys(("RetrievalContext", "Retriever"), "emobench.kinds.icl.retrieval.retriever")
_HOME |= dict.fromkeys(("Metric", "MetricContext", "MetricGroup"), "emobench.kinds.generation.metric")
_HOME |= dict.fromkeys(
    ("GradeJudge", "Judge", "JudgeReply", "JudgeRequest", "Pair", "PairJudge"), "emobench.kinds.instruct.judging.judge"
)
_HOME |= dict.fromkeys(("Attached", "ObjectiveLoss", "attach", "compute_loss_func", "objective"), "emobench.library")
_HOME |= dict.fromkeys(("Compared", "Results", "compare", "evaluate", "load_board", "run"), "emobench.results")
_HOME |= dict.fromkeys(("Measure", "Score"), "emobench.tasks.scores")
_HOME |= dict.fromkeys(("KeyFacts", "Kind", "Runtime", "Scored", "Subject"), "emobench.kinds.interface")
_HOME |= {
    "Family": "emobench.core.family",
    "hookimpl": "emobench.core.hooks",
    "AuxiliaryModel": "emobench.models.model",
    "Cost": "emobench.kinds.cost",
    "GeneratedTexts": "emobench.kinds.generation.samples",
    "Rules": "emobench.tasks.rules",
    "Task": "emobench.tasks.spec",
    "load_texts": "emobench.data.texts",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        try:
            return getattr(importlib.import_module(_HOME[name]), name)
        except ModuleNotFoundError:
            from emobench.core.extras import missing_packages_explained

            with missing_packages_explained("train"):
                raise
    raise AttributeError(f"module 'emobench' has no attribute '{name}'; it offers {', '.join(__all__)}.")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
