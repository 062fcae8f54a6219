"""What is to be imported: a tree of class folders, or RecordIO files that exist already.

A listing is one line an image. It is kept in a file with the lines' offsets in memory (eight bytes an image), so that
ILSVRC2012 needs some ten megabytes whatever the length of its names."""

from __future__ import annotations

import hashlib
import os
import random
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from mlbench.dataset.layout import RecordFiles, Split
from mlbench.errors import InputError, near_miss
from mlbench.worker.recordio import RecordFault, read_index, scan_offsets

IMAGE_SUFFIXES = frozenset({".jpeg", ".jpg", ".png"})
_SHUFFLE_SEED = 2012
"""Of the order of training images in the file; the same every time, so that an import can be resumed."""


class SourceKind(Enum):
    images = "images"
    records = "records"


@dataclass(frozen=True, slots=True)
class Listing:
    """All images of one split in the order of import. Line i starts at `offsets[i]` of `path` and reads
    `label<TAB>file` (images) or `offset<TAB>file` (records); files are absolute."""

    split: Split
    kind: SourceKind
    path: Path
    offsets: array[int]
    num_classes: int
    num_ignored: int
    """Files beside the images: other suffixes, hidden ones."""
    digest: str
    """Of the whole listing: another digest is another import."""

    def __len__(self) -> int:
        return len(self.offsets)


def read_lines(path: Path, offsets: Sequence[int]) -> Iterator[tuple[int, str]]:
    """(number, file) of each of these lines of a listing."""
    with path.open("rb") as stream:
        for offset in offsets:
            stream.seek(offset)
            number, _, name = stream.readline().rstrip(b"\n").partition(b"\t")
            yield int(number), os.fsdecode(name)


def list_splits(source: Path, work: Path, synsets: Path | None, val_synsets: Path | None) -> list[Listing]:
    """List `source` into files of the folder `work`.

    `source` is a folder with train/ and val/ (either may be absent), or with class folders (they are training), or
    with train*.rec and val*.rec, or one .rec file (training). `synsets`: file whose line i begins with the folder name
    of class i; without it classes are numbered in the order of their names. `val_synsets`: for a val/ without class
    folders, the class of each image, one a line in the order of the names, or `name class`.
    Raises: InputError: nothing to import, an unknown class, a listing of another length."""
    records = _record_files(source)
    if records:
        return [_list_records(split, files, work) for split, files in records.items()]
    if not source.is_dir():
        raise InputError(f"{source}: no such folder; expected class folders of images, or .rec files")
    folders = {split: source / split.value for split in Split if (source / split.value).is_dir()}
    if not folders:
        folders = {Split.train: source}
    classes = _classes(folders, synsets)
    return [_list_images(split, folder, work, classes, val_synsets) for split, folder in folders.items()]


def _record_files(source: Path) -> dict[Split, list[RecordFiles]]:
    if source.is_file() and source.suffix == ".rec":
        return {Split.train: [RecordFiles.of_rec(source)]}
    if not source.is_dir():
        return {}
    found = {split: sorted(source.glob(f"{split.value}*.rec")) for split in Split}
    return {split: [RecordFiles.of_rec(rec) for rec in recs] for split, recs in found.items() if recs}


class _Writer:
    """Writes a listing's lines, keeping offsets and digest."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.offsets: array[int] = array("Q")
        self._hash = hashlib.sha256()
        self._at = 0
        self._stream = path.open("wb")

    def add(self, number: int, name: str) -> None:
        line = b"%d\t%s\n" % (number, os.fsencode(name))
        self._stream.write(line)
        self._hash.update(line)
        self.offsets.append(self._at)
        self._at += len(line)

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()

    def __enter__(self) -> _Writer:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()


def _list_records(split: Split, files: Sequence[RecordFiles], work: Path) -> Listing:
    with _Writer(work / f"{split.value}.list") as writer:
        for pair in files:
            try:
                offsets = read_index(str(pair.idx)).offsets if pair.idx.is_file() else scan_offsets(str(pair.rec))
            except RecordFault as fault:
                raise InputError(f"{fault}; mend it with a fresh copy, or see 'mlbench data verify'") from fault
            for offset in offsets:
                writer.add(offset, str(pair.rec.absolute()))
    return Listing(split, SourceKind.records, writer.path, writer.offsets, 0, 0, writer.digest)


def _list_images(split: Split, folder: Path, work: Path, classes: dict[str, int], val_synsets: Path | None) -> Listing:
    try:
        with _Writer(work / f"{split.value}.list") as writer:
            if split is Split.val and not _subfolders(folder):
                ignored = _add_flat(writer, folder, classes, val_synsets)
            else:
                ignored = sum(_add_class(writer, folder / name, classes[name]) for name in _subfolders(folder))
    except OSError as error:
        raise InputError(f"{error.filename or folder}: cannot be read: {error.strerror}") from error
    if not writer.offsets:
        raise InputError(f"{folder}: no image found; expected class folders with .JPEG, .jpg or .png files")
    if split is Split.train:
        random.Random(_SHUFFLE_SEED).shuffle(writer.offsets)
    return Listing(split, SourceKind.images, writer.path, writer.offsets, len(classes), ignored, writer.digest)


def _subfolders(folder: Path) -> list[str]:
    with os.scandir(folder) as entries:
        return sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith("."))


def _is_image(name: str) -> bool:
    return not name.startswith(".") and os.path.splitext(name)[1].lower() in IMAGE_SUFFIXES  # noqa: PTH122  # 1.28 million


def _add_class(writer: _Writer, folder: Path, label: int) -> int:
    """Add the images of a class folder and of folders in it; returns the number of other files."""
    ignored = 0
    for where, folders, names in os.walk(folder.absolute(), onerror=_raise):
        folders.sort()
        for name in sorted(names):
            if not _is_image(name):
                ignored += 1
                continue
            if "\n" in name:
                raise InputError(f"{where}: file name {name!r} has a line end in it; rename it")
            writer.add(label, f"{where}/{name}")
    return ignored


def _raise(error: OSError) -> None:
    raise error


def _add_flat(writer: _Writer, folder: Path, classes: dict[str, int], val_synsets: Path | None) -> int:
    names = sorted(entry.name for entry in os.scandir(folder) if entry.is_file())
    images = [name for name in names if _is_image(name)]
    if val_synsets is None:
        raise InputError(
            f"{folder}: {len(images)} images and no class folders; give the class of each with --val-synsets FILE"
        )
    rows = [line.replace(",", " ").split() for line in _read_text(val_synsets).splitlines() if line.strip()]
    named = {row[0]: row[1] for row in rows if len(row) > 1}
    if not named and len(rows) != len(images):
        raise InputError(f"{val_synsets}: {len(rows)} lines, expected one for each of {len(images)} images in {folder}")
    for position, name in enumerate(images):
        synset = (named.get(name) or named.get(Path(name).stem)) if named else rows[position][0]
        if synset is None or synset not in classes:
            raise InputError(f"{val_synsets}: class {synset!r} of {name} is not known; expected one of {len(classes)}")
        writer.add(classes[synset], str(folder.absolute() / name))
    return len(names) - len(images)


def _classes(folders: dict[Split, Path], synsets: Path | None) -> dict[str, int]:
    """Class folder -> label. Every folder has a label."""
    names = sorted({name for folder in folders.values() for name in _subfolders(folder)})
    if synsets is None:
        if not names:
            raise InputError(f"{next(iter(folders.values()))}: no class folders found; expected one a class")
        return {name: label for label, name in enumerate(names)}
    listed = [line.split()[0] for line in _read_text(synsets).splitlines() if line.strip()]
    classes = {name: label for label, name in enumerate(listed)}
    if len(classes) != len(listed):
        raise InputError(f"{synsets}: a class stands there twice; expected each once")
    for name in names:
        if name not in classes:
            raise InputError(f"{synsets}: class folder {name!r} is not listed{near_miss(name, classes)}")
    return classes


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read as text: {error}") from error
