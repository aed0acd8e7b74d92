"""A folder of runs in which the tiny model is made, as far as a plan sees it."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def made_runs(tmp_path: Path) -> Path:
    """Its weights are those before its pre-training, which plans need not wait for."""
    from emobench.models.catalog import find_model
    from emobench.pipeline.planning.request import Request
    from emobench.pipeline.planning.tiny_models import find_tiny_model, pretraining, write_untrained
    from emobench.pipeline.stages.stage import Stages

    source, runs = find_model("tiny-oracle", offline=True), tmp_path / "runs"
    stage = pretraining(source, Request(suite="oracle-language", offline=True)).stage
    Stages(runs).make(stage, lambda folder: write_untrained(find_tiny_model(source), folder / "model"))
    return runs
