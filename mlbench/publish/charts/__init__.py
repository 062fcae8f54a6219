"""Plots, described once with Altair from rows of the database and rendered by vl-convert; Altair is imported late."""

from mlbench.publish.charts.figure import NARROW, WIDE, Absent, Figure, Plot
from mlbench.publish.charts.planning import comparison_figure, sizing_chart, sizing_figure
from mlbench.publish.charts.render import PlotFormat, save_chart
from mlbench.publish.charts.runs import accuracy_figure, spread_figure
from mlbench.publish.charts.stages import allreduce_figure, consistency_figure, storage_figure
from mlbench.publish.charts.telemetry import telemetry_figures
from mlbench.publish.charts.throughput import epochs_figure, throughput_figure

__all__ = [
    "NARROW",
    "WIDE",
    "Absent",
    "Figure",
    "Plot",
    "PlotFormat",
    "accuracy_figure",
    "allreduce_figure",
    "comparison_figure",
    "consistency_figure",
    "epochs_figure",
    "save_chart",
    "sizing_chart",
    "sizing_figure",
    "spread_figure",
    "storage_figure",
    "telemetry_figures",
    "throughput_figure",
]
