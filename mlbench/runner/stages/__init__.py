"""The stages of a run set. A new stage is one file here and one line in REGISTRY."""

from __future__ import annotations

import importlib
from collections.abc import Mapping

from mlbench.choices import Stage
from mlbench.runner.context import StageRunner

REGISTRY: Mapping[Stage, str] = {
    Stage.allreduce: "mlbench.runner.stages.allreduce:AllReduceStage",
    Stage.storage: "mlbench.runner.stages.storage:StorageStage",
    Stage.train: "mlbench.runner.stages.train:TrainStage",
}


def load_stage(stage: Stage, registry: Mapping[Stage, str] = REGISTRY) -> StageRunner | None:
    """The stage's runner, or None when this mlbench has none."""
    entry = registry.get(stage)
    if entry is None:
        return None
    module, _, name = entry.partition(":")
    runner: StageRunner = getattr(importlib.import_module(module), name)()
    return runner
