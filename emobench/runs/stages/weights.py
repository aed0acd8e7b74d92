"""The stage of a model's weights in digests: whether a checkpoint differs from its base, and from other checkpoints."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emobench.models.model import Model
from emobench.runs.execution.environment import write_environment
from emobench.runs.stages.stage import Stage

if TYPE_CHECKING:
    from emobench.runs.execution.execution import Execution

DIGESTS = "digests.json"


@dataclass(frozen=True, eq=False)
class WeightDigests(Stage):
    """The digest of a model's weights in each precision of an evaluation."""

    kind = "weights"
    model: Model

    @cached_property
    def facts(self) -> Mapping[str, Any]:
        """The files of the model determine its weights."""
        return {"model": dict(self.model.identity)}

    @property
    def needs(self) -> Sequence[Stage]:
        return self.model.stages

    def make(self, folder: Path, tools: Execution) -> None:
        from emobench.training.export import weight_digests

        tools.make_room()
        loaded = tools.base(self.model).load(dtype="float32")
        (folder / DIGESTS).write_text(json.dumps(weight_digests(loaded.model)) + "\n")
        write_environment(folder, self.model.options.device)
