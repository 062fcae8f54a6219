"""Storage for the rate that a run set measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

from mlbench.config import ComputeProfile, StorageProfile
from mlbench.errors import ConfigError
from mlbench.publish.charts.labels import num_workers
from mlbench.publish.report.telemetry import mean_sample_bytes
from mlbench.publish.sizing import SizingAnswer, answer, rate_from_run_set, supply_of
from mlbench.store.tables import RunSet

_Profile = TypeVar("_Profile", ComputeProfile, StorageProfile)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Data:
    """The data set of a run set, as sizing asks for it."""

    name: str
    num_train: int
    mean_image_bytes: float | None


Profiles = tuple[ComputeProfile, StorageProfile]


def profiles_of(run_set: RunSet) -> Profiles | None:
    """The profiles that the run set was configured with; None when it names no storage system."""
    hardware = (run_set.config or {}).get("hardware") or {}
    compute = _profile(ComputeProfile, hardware.get("compute"))
    storage = _profile(StorageProfile, hardware.get("storage"))
    return (compute, storage) if compute is not None and storage is not None else None


def _profile(kind: type[_Profile], value: Any) -> _Profile | None:
    """A stored section as what it was; None when there is none, or it is of another version of mlbench."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    if not isinstance(value, dict):
        return None
    try:
        found = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(kind), value))
    except (OmegaConfBaseException, TypeError, ValueError):
        return None
    return found if isinstance(found, kind) else None


def _num_train(run_set: RunSet) -> int | None:
    """Images of the data set: as an own run set has it on record, because a throughput run logs what it measured alone;
    else as logged."""
    recorded = (run_set.provenance or {}).get("train_samples")
    if isinstance(recorded, int) and recorded > 0:
        return recorded
    return next((run.train_samples for run in run_set.runs if run.train_samples), None)


def sizing_of(run_set: RunSet, profiles: Profiles | None, *, headroom: float) -> tuple[SizingAnswer | None, str]:
    """The answer of `mlbench size --from RUN_SET`, and the reason when there is none. `headroom` is a share."""
    if run_set.rehearsal:
        return None, "a rehearsal has no rate to size storage for"
    if profiles is None:
        return None, "no storage profile is known; name one with --hardware COMPUTE,STORAGE"
    mean = mean_sample_bytes(run_set)
    count = num_workers(run_set)
    num_train = _num_train(run_set)
    if mean is None or num_train is None:
        return None, "the mean size of an image or the number of images is not known"
    if not count:
        return None, "the number of accelerators is not known"
    compute, storage = profiles
    try:
        rate = rate_from_run_set(run_set)
        found = answer(
            compute=compute,
            storage=storage,
            data=_Data(name="of the run set", num_train=num_train, mean_image_bytes=mean[0]),
            model=run_set.model or "resnet50",
            num_gpus=count,
            rate=rate,
            headroom=headroom,
            file_per_image=False,
            supply=supply_of(storage),
        )
    except ConfigError as error:
        return None, str(error)
    return found, ""
