"""mlbench: MLPerf-style training results that others believe."""

__version__ = "0.1.0"
