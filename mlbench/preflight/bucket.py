"""Is the data set in the bucket, and sound? Asked before run 1 with the credentials that the ranks will have."""

from __future__ import annotations

from collections.abc import Sequence

from mlbench.choices import ContainerName
from mlbench.dataset.verify import count_fault, image_kind_fault
from mlbench.plan.types import Plan
from mlbench.preflight.check import Check, failed, not_checked, passed
from mlbench.worker.pipelines.records import DataFault
from mlbench.worker.recordio import Index, RecordFault, extents, parse_record
from mlbench.worker.s3 import Endpoints, client_maker, object_size, read_index_of, read_range, split_url

_NAME = "data"
NUM_SAMPLED_RECORDS = 8
"""Of each object: enough to find an index of another file, few enough not to warm a cache."""
_REMEDY = (
    "see data.path, data.train_rec, data.val_rec, hardware.storage.s3_endpoints and the credentials "
    "(AWS_ACCESS_KEY_ID, AWS_PROFILE, ~/.aws)"
)


class _Fault(Exception):
    """An object that is not what the plan says."""


def check_bucket(plan: Plan) -> Check:
    """The objects are there and can be read, each index is of its own object, records are whole, the count is right.

    Not checked when no endpoint can be reached from here, or when the ranks run elsewhere and may have what is lacking
    here: hosts that cannot reach an endpoint are found by the hosts' own check."""
    worker = plan.data.worker
    endpoints = Endpoints(worker.s3_endpoints, 0, client_maker(1), lambda _: None, num_rounds=1, num_attempts=1)
    here = plan.placement.hosts[0].name == "localhost" and plan.config.container.name is ContainerName.none
    try:
        _check_split(endpoints, worker.train_rec, worker.train_idx, worker.num_train)
        _check_split(endpoints, worker.val_rec, worker.val_idx, worker.num_val)
    except (_Fault, RecordFault) as fault:
        return failed(_NAME, f"{fault}", "upload the data set again, or name another with data.path=s3://BUCKET/PREFIX")
    except DataFault as fault:
        if here:
            return failed(_NAME, f"{fault}", _REMEDY)
        return not_checked(_NAME, f"{fault}; the ranks ask for themselves", required=False)
    except OSError as error:
        return not_checked(_NAME, f"{plan.data.path} cannot be asked from here ({error})", required=False)
    return passed(_NAME, f"{plan.data.path}: {worker.num_train} training and {worker.num_val} validation images")


def _check_split(endpoints: Endpoints, recs: Sequence[str], idxs: Sequence[str], expected: int) -> None:
    """Raises: _Fault, RecordFault, DataFault, OSError."""
    found = 0
    for rec, idx in zip(recs, idxs, strict=True):
        size = object_size(endpoints, rec)
        index = read_index_of(endpoints, idx)
        _check_object(endpoints, rec, size, index)
        found += len(index)
    reason = count_fault(found, expected)
    if reason:
        raise _Fault(f"{', '.join(idxs)}: {reason}")


def _check_object(endpoints: Endpoints, rec: str, size: int, index: Index) -> None:
    if not len(index):
        raise _Fault(f"{rec}: {size} bytes and an empty index")
    first, last = min(index.offsets), max(index.offsets)
    if first or last >= size:
        raise _Fault(
            f"{rec}: the index names offsets {first} to {last}, the object has {size} bytes: it is of another file"
        )
    bucket, key = split_url(rec)
    lengths = extents(index.offsets, size)
    step = max(1, len(index) // NUM_SAMPLED_RECORDS)
    for record in sorted({*range(0, len(index), step), len(index) - 1}):
        offset = index.offsets[record]
        if not lengths[record]:
            raise _Fault(f"{rec}, record {record}, offset {offset}: the index names it twice")
        raw = read_range(endpoints, bucket, key, offset, lengths[record])
        fault = image_kind_fault(bytes(parse_record(raw, rec, offset)))
        if fault:
            raise _Fault(f"{rec}, record {record}, offset {offset}: {fault}")
