"""Input pipelines of the worker: one interface (base), one module for each way to read and decode."""
