"""What `native` becomes where its library is not built: JPEG decoding by simplejpeg if that is there, else by MXNet."""

from __future__ import annotations

import sys
from typing import Any, Optional, Type

from ..native import library as native
from ..ranks import Rank
from ..validate import TrainingJob
from . import mxnet_iter
from .base import Training, Validation
from .records import DataFault
from .used import Used


class SimpleDecoder(mxnet_iter.Decoder):
    """MXNet's pipeline with its JPEG decoding replaced by libjpeg-turbo, through simplejpeg."""

    def _decode(self, encoded: memoryview, where: str) -> Any:
        import simplejpeg

        if bytes(encoded[:3]) != b"\xff\xd8\xff":
            return super()._decode(encoded, where)
        try:
            return self._mx.nd.array(simplejpeg.decode_jpeg(encoded, colorspace="RGB"), dtype="uint8")
        except ValueError as error:
            # Four-component JPEGs are among these; MXNet knows them.
            try:
                return super()._decode(encoded, where)
            except DataFault:
                raise DataFault("%s: image cannot be decoded (%s)" % (where, error))


def has_simplejpeg() -> bool:
    """Whether simplejpeg can be imported."""
    try:
        import simplejpeg  # noqa: F401
    except ImportError:
        return False
    return True


def native_fault() -> Optional[str]:
    """Why the native decoder cannot be used here; None when it can."""
    try:
        native.load()
    except native.NativeError as error:
        return str(error)
    return None


def used(name: str) -> Used:
    """What a job with `data.pipeline=NAME` gets on this machine, and why when that differs."""
    fault = native_fault() if name == "native" else None
    return Used(name, "") if fault is None else substitute(fault)


def substitute(fault: str) -> Used:
    if has_simplejpeg():
        return Used("simplejpeg", fault)
    return Used("mxnet", "%s; simplejpeg is not installed" % fault)


def _decoder(instead: Used) -> Type[mxnet_iter.Decoder]:
    print("input pipeline: %s (%s)" % instead, file=sys.stderr)
    return SimpleDecoder if instead.name == "simplejpeg" else mxnet_iter.Decoder


def open_training(job: TrainingJob, rank: Rank, reason: str) -> Training:
    """Raises DataFault, RecordFault, OSError."""
    instead = substitute(reason)
    training = mxnet_iter.MxnetTraining(job, rank, _decoder(instead))
    training.instead = instead
    return training


def open_validation(job: TrainingJob, rank: Rank, reason: str) -> Validation:
    """Raises DataFault, RecordFault, OSError."""
    return mxnet_iter.MxnetValidation(job, rank, _decoder(substitute(reason)))
