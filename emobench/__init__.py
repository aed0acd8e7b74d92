"""emobench: does a training objective make a language model better, by how much, and are we sure?

The public API: what plugins and tasks import. Names load on first use, so that importing emobench imports no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from emobench.hooks import hookimpl

if TYPE_CHECKING:
    from emobench.kinds.icl.retrieval.retriever import RetrievalContext, Retriever
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

__version__ = "0.1.0"

__all__ = [
    "CostEmbedding",
    "DenseTargetObjective",
    "KnownLanguage",
    "LogitsObjective",
    "ModelObjective",
    "Objective",
    "RetrievalContext",
    "Retriever",
    "SetupContext",
    "StatisticsObjective",
    "Teacher",
    "TokenStatistics",
    "UnitLosses",
    "WeightedLikelihood",
    "hookimpl",
    "objective_loss",
    "param",
]
_HOME = {name: "emobench.objectives" for name in __all__ if name != "hookimpl"}
_HOME |= dict.fromkeys(("RetrievalContext", "Retriever"), "emobench.kinds.icl.retrieval.retriever")


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module 'emobench' has no attribute '{name}'; it offers {', '.join(__all__)}.")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
