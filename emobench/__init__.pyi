# Types of the public API, whose names load at first use: see __init__.py.

from emobench.core.family import Family
from emobench.core.hooks import hookimpl
from emobench.data.texts import load_texts
from emobench.kinds.cost import Cost
from emobench.kinds.generation.metric import Metric, MetricContext, MetricGroup
from emobench.kinds.generation.samples import GeneratedTexts
from emobench.kinds.icl.retrieval.retriever import RetrievalContext, Retriever
from emobench.kinds.instruct.judging.judge import GradeJudge, Judge, JudgeReply, JudgeRequest, Pair, PairJudge
from emobench.kinds.interface import KeyFacts, Kind, Runtime, Scored, Subject
from emobench.library import Attached, ObjectiveLoss, attach, compute_loss_func, objective
from emobench.models.model import AuxiliaryModel
from emobench.objectives import (
    CostEmbedding,
    DenseTargetObjective,
    GroundCost,
    KnownLanguage,
    LogitsObjective,
    ModelObjective,
    Objective,
    SetupContext,
    Snapshot,
    SnapshotObjective,
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

__version__: str
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
