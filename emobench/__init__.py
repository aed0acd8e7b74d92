"""emobench: does a training objective make a language model better, by how much, and are we sure?

The public API for plugins and tasks. Names load at first use, so importing emobench does not import torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from emobench.core.hooks import hookimpl

if TYPE_CHECKING:
    from emobench.data.texts import load_texts
    from emobench.kinds.auxiliary import AuxiliaryModel, Packages
    from emobench.kinds.cost import Cost
    from emobench.kinds.generation.metric import Metric, MetricContext, MetricGroup
    from emobench.kinds.generation.samples import GeneratedTexts
    from emobench.kinds.icl.retrieval.retriever import RetrievalContext, Retriever
    from emobench.kinds.instruct.judging.judge import GradeJudge, Judge, JudgeReply, JudgeRequest, Pair, PairJudge
    from emobench.kinds.interface import Kind, Runtime, Scored, Subject
    from emobench.library import Attached, ObjectiveLoss, attach, compute_loss_func, objective
    from emobench.objectives import (
        CostEmbedding,
        DenseTargetObjective,
        KnownLanguage,
        LogitsObjective,
        ModelObjective,
        Objective,
        SetupContext,
        StatisticsObjective,
        Teacher,
        TokenStatistics,
        UnitLosses,
        WeightedLikelihood,
        objective_loss,
        param,
    )
    from emobench.results import Compared, Results, compare, evaluate, load_board, run
    from emobench.tasks.rules import Rules
    from emobench.tasks.scores import Measure, Score
    from emobench.tasks.spec import Task

__version__ = "0.1.0"

__all__ = [
    "Attached",
    "AuxiliaryModel",
    "Compared",
    "Cost",
    "CostEmbedding",
    "DenseTargetObjective",
    "GeneratedTexts",
    "GradeJudge",
    "Judge",
    "JudgeReply",
    "JudgeRequest",
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
    "Packages",
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
_HOME = {name: "emobench.objectives" for name in __all__ if name != "hookimpl"}
_HOME |= dict.fromkeys(("RetrievalContext", "Retriever"), "emobench.kinds.icl.retrieval.retriever")
_HOME |= dict.fromkeys(("Metric", "MetricContext", "MetricGroup"), "emobench.kinds.generation.metric")
_HOME |= dict.fromkeys(
    ("GradeJudge", "Judge", "JudgeReply", "JudgeRequest", "Pair", "PairJudge"), "emobench.kinds.instruct.judging.judge"
)
_HOME |= dict.fromkeys(("Attached", "ObjectiveLoss", "attach", "compute_loss_func", "objective"), "emobench.library")
_HOME |= dict.fromkeys(("Compared", "Results", "compare", "evaluate", "load_board", "run"), "emobench.results")
_HOME |= dict.fromkeys(("Measure", "Score"), "emobench.tasks.scores")
_HOME |= dict.fromkeys(("Kind", "Runtime", "Scored", "Subject"), "emobench.kinds.interface")
_HOME |= dict.fromkeys(("AuxiliaryModel", "Packages"), "emobench.kinds.auxiliary")
_HOME |= {
    "Cost": "emobench.kinds.cost",
    "GeneratedTexts": "emobench.kinds.generation.samples",
    "Rules": "emobench.tasks.rules",
    "Task": "emobench.tasks.spec",
    "load_texts": "emobench.data.texts",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module 'emobench' has no attribute '{name}'; it offers {', '.join(__all__)}.")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
