"""Images or records into RecordIO files, in parallel, in parts that survive an interruption.

    OUT/.import/plan.json           what is imported; another plan starts anew
    OUT/.import/train.list          one line an image
    OUT/.import/train-S-P.rec .idx .json   a finished part P of shard S
    OUT/train.rec .idx              a finished shard; its parts are gone

A part appears whole or not at all, so whatever is there after a kill is kept, unless the files that it was made from
have changed since. Encoded images are not changed."""

from __future__ import annotations

import json
import os
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mlbench.dataset.layout import RecordFiles, Split, concatenate, present_files, refuse_existing, split_files, writing
from mlbench.dataset.parallel import Report, count, no_report, run_all
from mlbench.dataset.source import Stamp, read_image
from mlbench.dataset.tree import Listing, SourceKind, list_splits, read_lines, refuse_target_in_source
from mlbench.dataset.verify import image_kind_fault, label_fault, quick_check
from mlbench.dataset.workfolder import PLAN_NAME, work_folder
from mlbench.errors import InputError
from mlbench.worker.recordio import RecordFault, RecordReader, pack_image, read_index, unpack_image

MAX_PART_IMAGES = 20_000
"""A part is what an interruption can cost one worker: some seconds."""
PARTS_PER_WORKER = 2
_WORK_FOLDER = ".import"
_COUNT_EVERY = 256


@dataclass(frozen=True, slots=True)
class SplitReport:
    """What one split of a data set holds. Bytes are of the encoded images; `rec_bytes` of the files."""

    split: str
    files: tuple[str, ...]
    num_images: int
    num_classes: int
    image_bytes: int
    mean_image_bytes: float | None
    rec_bytes: int
    num_ignored: int


@dataclass(frozen=True, slots=True)
class Part:
    """One part: which lines of the listing, and where it is written. `first_key` is the key of its first record."""

    listing: Path
    kind: SourceKind
    offsets: array[int]
    first_key: int
    files: RecordFiles

    @property
    def summary_path(self) -> Path:
        return self.files.rec.with_suffix(".json")


@dataclass(frozen=True, slots=True)
class Shard:
    """One `.rec` of the result and the parts that it is joined from."""

    split: Split
    files: RecordFiles
    parts: tuple[Part, ...]
    summary_path: Path


def import_images(
    source: Path,
    out: Path,
    *,
    num_shards: int,
    num_workers: int,
    synsets: Path | None = None,
    val_synsets: Path | None = None,
    overwrite: bool = False,
    report: Report = no_report,
    on_listed: Callable[[int, int], None] = lambda num_images, num_kept: None,
) -> list[SplitReport]:
    """Import `source` (see tree.list_splits) into `out`; call again after an interruption to go on.

    `on_listed` hears how many images there are and how many of them an earlier, interrupted import has done. The
    validation split is always one file. Raises: InputError, also when files are there and `overwrite` is not set."""
    refuse_target_in_source(source, out)
    try:
        with work_folder(out, _WORK_FOLDER) as work:
            listings = list_splits(source, work, synsets, val_synsets)
            resumed = _is_planned(work, listings, num_shards)
            if not resumed:
                if not overwrite:
                    splits = [listing.split for listing in listings]
                    refuse_existing(out, splits, "give another --out, or --overwrite")
                _start_anew(work, listings, num_shards, num_workers)
            shards = [shard for listing in listings for shard in _shards(listing, out, num_shards)]
            _drop_outdated(shards, num_workers)
            missing = _missing_parts(shards)
            num_images = sum(len(listing) for listing in listings)
            on_listed(num_images, num_images - sum(len(part.offsets) for part in missing))
            for _ in run_all(write_part, missing, num_workers, report):
                pass
            _check_sources(listings, shards)
            for shard in shards:
                _join(shard)
            reports = [_report(listing, shards) for listing in listings]
            _check(listings, shards)
            _remove_other_shards(out, listings, shards)
    except RecordFault as fault:
        raise InputError(f"{fault}") from fault
    except OSError as error:
        raise InputError(f"{error.filename or out}: {error.strerror or error}; check space and rights") from error
    return reports


def _plan(listings: Iterable[Listing], num_shards: int) -> dict[str, object]:
    splits = {listing.split.value: [listing.digest, len(listing)] for listing in listings}
    return {"num_shards": num_shards, "splits": splits}


def _is_planned(work: Path, listings: Iterable[Listing], num_shards: int) -> bool:
    """Whether this very import has begun here before."""
    try:
        found = json.loads((work / PLAN_NAME).read_text())
    except (OSError, ValueError):
        return False
    same = isinstance(found, dict) and isinstance(found.pop("num_workers", None), int)
    return same and found == _plan(listings, num_shards)


def _start_anew(work: Path, listings: Sequence[Listing], num_shards: int, num_workers: int) -> None:
    """Parts of another plan are deleted."""
    for listing in listings:
        _num_shards(listing, num_shards)
    for old in work.iterdir():
        if old.suffix in (".rec", ".idx", ".json"):
            old.unlink()
    _write_json(work / PLAN_NAME, {**_plan(listings, num_shards), "num_workers": num_workers})


def _remove_other_shards(out: Path, listings: Iterable[Listing], shards: Iterable[Shard]) -> None:
    """Files of an earlier import into another number of shards: beside the new ones they would be read as records."""
    own = {shard.files.rec for shard in shards}
    for listing in listings:
        for pair in present_files(out, listing.split):
            if pair.rec not in own:
                pair.rec.unlink()
                pair.idx.unlink(missing_ok=True)


def _planned_workers(work: Path) -> int:
    """Workers that the plan was cut for: parts keep their borders when a resumed import has another number."""
    return int(json.loads((work / PLAN_NAME).read_text())["num_workers"])


def _num_shards(listing: Listing, num_shards: int) -> int:
    """Files of a split; validation is always one. Raises: InputError: more than it has images."""
    found = num_shards if listing.split is Split.train else 1
    if found > len(listing):
        raise InputError(f"{found} shards: fewer images ({len(listing)}); give --shards {len(listing)} or less")
    return found


def _shards(listing: Listing, out: Path, num_shards: int) -> Iterator[Shard]:
    work = listing.path.parent
    count_of = _num_shards(listing, num_shards)
    for number, files in enumerate(split_files(out, listing.split, count_of)):
        first, end = len(listing) * number // count_of, len(listing) * (number + 1) // count_of
        wanted = -(-_planned_workers(work) * PARTS_PER_WORKER // count_of)
        num_parts = max(1, min(wanted, end - first), -(-(end - first) // MAX_PART_IMAGES))
        stem = f"{listing.split.value}-{number:05d}"
        parts = []
        for part in range(num_parts):
            low, high = (first + (end - first) * at // num_parts for at in (part, part + 1))
            pair = RecordFiles.of_rec(work / f"{stem}-{part:05d}.rec")
            parts.append(Part(listing.path, listing.kind, listing.offsets[low:high], low, pair))
        yield Shard(listing.split, files, tuple(parts), work / f"{stem}.json")


def _missing_parts(shards: Iterable[Shard]) -> list[Part]:
    return [
        part
        for shard in shards
        if not _is_joined(shard)
        for part in shard.parts
        if not (part.summary_path.exists() and part.files.rec.exists() and part.files.idx.exists())
    ]


def _is_joined(shard: Shard) -> bool:
    try:
        summary = json.loads(shard.summary_path.read_text())
        return bool(shard.files.idx.exists() and shard.files.rec.stat().st_size == summary["rec_bytes"])
    except (OSError, ValueError, KeyError):
        return False


def _drop_outdated(shards: Iterable[Shard], num_workers: int) -> None:
    """Forget finished work whose sources have changed since: it is done again."""
    kept: dict[Path, list[Path]] = {}
    stamps: dict[Path, str] = {}
    parts = []
    for shard in shards:
        joined = _summary(shard.summary_path).get("stamps") if _is_joined(shard) else None
        for number, part in enumerate(shard.parts):
            stamp = joined[number] if joined else _summary(part.summary_path).get("stamp")
            kept[part.summary_path] = [part.summary_path, *([shard.summary_path] if joined else [])]
            if stamp is not None:
                stamps[part.summary_path] = stamp
                parts.append(part)
    for path, stamp in run_all(present_stamp, parts, num_workers, no_report):
        if stamps[path] != stamp:
            for summary in kept[path]:
                summary.unlink(missing_ok=True)


def _summary(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def present_stamp(part: Part) -> tuple[Path, str]:
    """(summary of the part, stamp of its sources as they are now); runs in a worker process."""
    stamp = Stamp()
    seen: set[str] = set()
    for _, name in read_lines(part.listing, part.offsets):
        if part.kind is SourceKind.records:
            if name in seen:
                continue
            seen.add(name)
        try:
            stamp.add(os.stat(name))  # noqa: PTH116  # 1.28 million
        except OSError:
            return part.summary_path, ""
    return part.summary_path, str(stamp)


def write_part(part: Part) -> None:
    """Write one part; runs in a worker process. Raises: InputError naming the file that is no image."""
    labels: Counter[float] = Counter()
    image_bytes = source_bytes = done = done_bytes = 0
    stamp = Stamp()
    with writing(part.files) as writer:
        for key, (payload, taken) in enumerate(_payloads(part, stamp), start=part.first_key):
            header, image = unpack_image(payload)
            source_bytes += taken
            writer.write(key, payload)
            labels[header.label] += 1
            image_bytes += len(image)
            done += 1
            done_bytes += len(image)
            if done == _COUNT_EVERY:
                count(done, done_bytes)
                done = done_bytes = 0
    count(done, done_bytes)
    counts = {"image_bytes": image_bytes, "source_bytes": source_bytes, "labels": sorted(labels.items())}
    _write_json(part.summary_path, {**counts, "stamp": str(stamp)})


def _payloads(part: Part, stamp: Stamp) -> Iterator[tuple[bytes, int]]:
    """Each record's payload, and the bytes that the record takes in its source (0: it comes from an image)."""
    lines = read_lines(part.listing, part.offsets)
    if part.kind is SourceKind.images:
        for key, (label, name) in enumerate(lines, start=part.first_key):
            yield _image_payload(name, label, key, stamp), 0
        return
    readers: dict[str, RecordReader] = {}
    name = ""
    try:
        for offset, name in lines:
            if name not in readers:
                readers[name] = RecordReader(name)
                stamp.add(os.stat(name))  # noqa: PTH116  # as in present_stamp
            payload, behind = readers[name].read_with_end(offset)
            fault = image_kind_fault(payload) or _label_fault(payload)
            if fault:
                raise InputError(f"{name}, offset {offset}: {fault}")
            yield payload, behind - offset
    except RecordFault as fault:
        raise InputError(f"{fault}") from fault
    except OSError as error:
        raise InputError(f"{name}: cannot be read: {error.strerror}") from error
    finally:
        for reader in readers.values():
            reader.close()


def _label_fault(payload: bytes) -> str | None:
    header, _ = unpack_image(payload)
    return label_fault(header.label) if len(header.labels) <= 1 else None


def _check_sources(listings: Iterable[Listing], shards: Iterable[Shard]) -> None:
    """Every byte of the record files belongs to a record that was read: their indexes leave none out."""
    for listing in listings:
        if listing.kind is not SourceKind.records:
            continue
        own = [shard for shard in shards if shard.split is listing.split]
        paths = [path for shard in own for path in _summary_paths(shard)]
        found = sum(json.loads(path.read_text())["source_bytes"] for path in paths)
        if found != listing.source_bytes:
            raise InputError(
                f"{listing.source}: records of {found} bytes, the file has {listing.source_bytes}: the index is not "
                "whole, or there is something behind the last record; see `mlbench data verify`, or remove the index"
            )


def _summary_paths(shard: Shard) -> list[Path]:
    return [shard.summary_path] if _is_joined(shard) else [part.summary_path for part in shard.parts]


def _image_payload(name: str, label: int, key: int, stamp: Stamp) -> bytes:
    image = read_image(name, stamp)
    payload = pack_image(float(label), key, image)
    fault = image_kind_fault(payload)
    if fault:
        raise InputError(f"{name}: {fault}; remove or replace the file and run again, finished parts are kept")
    return payload


def _join(shard: Shard) -> None:
    """Make a shard from its parts; a single part is renamed."""
    if _is_joined(shard):
        return
    labels: Counter[float] = Counter()
    image_bytes = source_bytes = 0
    stamps = []
    for part in shard.parts:
        summary = json.loads(part.summary_path.read_text())
        stamps.append(summary["stamp"])
        labels.update(dict(summary["labels"]))
        image_bytes += summary["image_bytes"]
        source_bytes += summary["source_bytes"]
    if len(shard.parts) == 1:
        rec_bytes = shard.parts[0].files.rec.stat().st_size
        shard.parts[0].files.rec.replace(shard.files.rec)
        shard.parts[0].files.idx.replace(shard.files.idx)
    else:
        rec_bytes = concatenate([part.files for part in shard.parts], shard.files)
    counts = {"rec_bytes": rec_bytes, "image_bytes": image_bytes, "source_bytes": source_bytes}
    _write_json(shard.summary_path, {**counts, "labels": sorted(labels.items()), "stamps": stamps})
    for part in shard.parts:
        for path in (part.files.rec, part.files.idx, part.summary_path):
            path.unlink(missing_ok=True)


def _write_json(path: Path, value: object) -> None:
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    temporary.write_text(json.dumps(value))
    temporary.replace(path)


def _report(listing: Listing, shards: Iterable[Shard]) -> SplitReport:
    own = [shard for shard in shards if shard.split is listing.split]
    summaries = [json.loads(shard.summary_path.read_text()) for shard in own]
    labels = {label for summary in summaries for label, _ in summary["labels"]}
    num_images = sum(number for summary in summaries for _, number in summary["labels"])
    image_bytes = sum(summary["image_bytes"] for summary in summaries)
    return SplitReport(
        split=listing.split.value,
        files=tuple(str(shard.files.rec) for shard in own),
        num_images=num_images,
        num_classes=len(labels),
        image_bytes=image_bytes,
        mean_image_bytes=image_bytes / num_images if num_images else None,
        rec_bytes=sum(summary["rec_bytes"] for summary in summaries),
        num_ignored=listing.num_ignored,
    )


def _check(listings: Iterable[Listing], shards: Iterable[Shard]) -> None:
    """The result has as many records as were listed, and its indexes are its own."""
    for listing in listings:
        own = [shard for shard in shards if shard.split is listing.split]
        faults = [fault for shard in own for fault in quick_check(shard.files.rec, shard.files.idx, None)]
        found = sum(len(read_index(str(shard.files.idx))) for shard in own)
        if faults:
            raise InputError(f"{faults[0]}: the import is damaged; delete the files and import again")
        if found != len(listing):
            raise InputError(f"{own[0].files.rec}: {found} records, expected {len(listing)}; import again")


def as_json(report: SplitReport) -> dict[str, object]:
    """Keys as in the class."""
    return asdict(report)
