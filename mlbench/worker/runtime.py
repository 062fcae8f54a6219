"""MXNet, imported with care."""

from __future__ import annotations

from typing import Any

from .job import JobError


def import_mxnet() -> Any:
    """The mxnet module. Raises JobError in one sentence when it cannot be imported.

    MXNet 1.9.1 reads `numpy.bool` while it is imported. NumPy took that name away in 1.24, so it is put back first.
    The attribute is looked up in the module's dictionary: asking NumPy 1.20 to 1.23 for it warns."""
    try:
        import numpy

        if "bool" not in vars(numpy):
            numpy.bool = bool  # type: ignore[attr-defined,unused-ignore]
        import mxnet
    except (ImportError, AttributeError, OSError) as error:
        raise JobError("mxnet cannot be imported (%s: %s)" % (type(error).__name__, error))
    return mxnet


def context(mxnet: Any, device: str, local_rank: int) -> Any:
    """Where this rank computes: the CPU, or the GPU with the number of its local rank. Raises JobError."""
    if device == "cpu":
        return mxnet.cpu()
    num_gpus = mxnet.context.num_gpus()
    if local_rank >= num_gpus:
        raise JobError(
            "job.device is gpu and this is local rank %d, but MXNet sees %d GPUs here" % (local_rank, num_gpus)
        )
    return mxnet.gpu(local_rank)
