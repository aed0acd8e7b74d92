"""A folder of runs in which the tiny model is made, as far as a plan sees it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def made_runs(tmp_path: Path) -> Path:
    """Its weights are those before its pre-training, which plans need not wait for."""
    from emobench.runs.planning.ingredients import base_model
    from emobench.runs.planning.request import Request
    from emobench.runs.planning.tiny_models import write_untrained
    from emobench.runs.stages.stage import Stages

    model, runs = base_model("tiny-oracle", Request(suite="oracle-language", offline=True)), tmp_path / "runs"
    maker: Any = model.made_by
    Stages(runs).make(maker.stage, lambda folder: write_untrained(maker.tiny, folder / "model"))
    return runs
