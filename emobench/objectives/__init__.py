"""Objectives: base classes, token statistics and the chunked linear engine. Concrete objectives are plugins."""

from emobench.core.settings import setting as param
from emobench.objectives.base import (
    KnownLanguage,
    LogitsObjective,
    ModelObjective,
    Objective,
    SetupContext,
    Snapshot,
    SnapshotObjective,
    StatisticsObjective,
    Teacher,
    UnitLosses,
    WeightedLikelihood,
)
from emobench.objectives.cost import CostEmbedding, GroundCost
from emobench.objectives.dense import DenseTargetObjective
from emobench.objectives.engine.job import LossResult
from emobench.objectives.engine.linear import objective_loss, prepare_for, token_statistics
from emobench.objectives.engine.targets import IGNORED, Targets, next_labels
from emobench.objectives.statistics import GREEDY, STATISTICS, TokenStatistics

__all__ = [
    "GREEDY",
    "IGNORED",
    "STATISTICS",
    "CostEmbedding",
    "DenseTargetObjective",
    "GroundCost",
    "KnownLanguage",
    "LogitsObjective",
    "LossResult",
    "ModelObjective",
    "Objective",
    "SetupContext",
    "Snapshot",
    "SnapshotObjective",
    "StatisticsObjective",
    "Targets",
    "Teacher",
    "TokenStatistics",
    "UnitLosses",
    "WeightedLikelihood",
    "next_labels",
    "objective_loss",
    "param",
    "prepare_for",
    "token_statistics",
]
