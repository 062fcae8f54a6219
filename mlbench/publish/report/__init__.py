"""`mlbench report`: what a white paper prints, from the database, as a page, Markdown, plots and CSV."""

from mlbench.publish.report.build import Built, build_report
from mlbench.publish.report.collected import Material
from mlbench.publish.report.compliance import Compliance, compliance_of, not_checked
from mlbench.publish.report.folder import refuse_foreign, write_folder
from mlbench.publish.report.telemetry import RunTelemetry, candidates, mean_sample_bytes

__all__ = [
    "Built",
    "Compliance",
    "Material",
    "RunTelemetry",
    "build_report",
    "candidates",
    "compliance_of",
    "mean_sample_bytes",
    "not_checked",
    "refuse_foreign",
    "write_folder",
]
