"""What a report is made from, and the shelf on which its plots and what is missing are gathered."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field

from mlbench.publish.charts import Absent, Figure, Plot
from mlbench.publish.report.blocks import FigureBlock
from mlbench.publish.report.compliance import Compliance
from mlbench.publish.report.telemetry import RunTelemetry
from mlbench.publish.sizing import SizingAnswer
from mlbench.store.tables import RunSet


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """One run set with all that its report needs. The reasons say why something is not there."""

    run_set: RunSet
    compliance: Compliance
    telemetry: RunTelemetry | None
    telemetry_reason: str
    sizing: SizingAnswer | None
    sizing_reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """Material with the name it has in this report; alone in its report it needs none."""

    material: Material
    label: str
    key: str
    alone: bool

    @property
    def run_set(self) -> RunSet:
        return self.material.run_set

    @property
    def telemetry(self) -> RunTelemetry | None:
        return self.material.telemetry

    @property
    def telemetry_reason(self) -> str:
        return self.material.telemetry_reason

    @property
    def prefix(self) -> str:
        return "" if self.alone else f"{self.label}: "

    def title(self, text: str) -> str:
        return text if self.alone else f"{self.label}: {text}"


@dataclass(slots=True)
class Collected:
    figures: list[Figure] = field(default_factory=list)
    missing: list[tuple[str, str]] = field(default_factory=list)

    def plot(self, plot: Plot, suffix: str = "") -> Sequence[FigureBlock]:
        """The plot as a block; nothing, and a line in `missing`, when there is none. `suffix` tells the same plot of
        several run sets apart."""
        if isinstance(plot, Absent):
            self.absent(plot.title, plot.reason)
            return []
        key = f"{plot.key}_{suffix}" if suffix else plot.key
        figure = dataclasses.replace(plot, key=key)
        self.figures.append(figure)
        return [FigureBlock(figure=figure)]

    def absent(self, title: str, reason: str) -> None:
        self.missing.append((title, reason))
