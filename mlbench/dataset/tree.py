"""What is to be imported: a tree of class folders, or RecordIO files that exist already.

A listing is one line an image. It is kept in a file with the lines' offsets in memory (eight bytes an image), so that
ILSVRC2012 needs some ten megabytes whatever the length of its names."""

from __future__ import annotations

import hashlib
import itertools
import os
import random
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from mlbench.dataset.layout import RecordFiles, Split, set_faults
from mlbench.errors import InputError, near_miss
from mlbench.worker.recordio import RecordFault, file_order, read_index, scan_offsets

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
    """Files that are not imported: other suffixes, hidden ones, those of no class. A hidden folder counts as one."""
    digest: str
    """Of the whole listing: another digest is another import."""
    source: str
    """The folder, or the record files, for messages."""
    source_bytes: int = 0
    """Of the record files."""

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
        if source.is_dir():
            _refuse_mixture(source, records)
        return [_list_records(split, files, work) for split, files in records.items()]
    if not source.is_dir():
        raise InputError(f"{source}: no such folder; expected class folders of images, or .rec files")
    folders = _split_folders(source) or {Split.train: source}
    classes = _classes(folders, synsets)
    return [_list_images(split, folder, work, classes, val_synsets) for split, folder in folders.items()]


def refuse_target_in_source(source: Path, out: Path) -> None:
    """Raises: InputError: what is written into `out` would be read as part of `source` the next time."""
    if not source.exists():
        return
    target = Path(os.path.realpath(out))
    folder = source if source.is_dir() else source.parent
    trees = [] if _record_files(source) else [*(_split_folders(folder).values() or [folder])]
    where = folder if target == Path(os.path.realpath(folder)) else None
    for tree in trees:
        where = tree if target.is_relative_to(os.path.realpath(tree)) else where
    if where is not None:
        raise InputError(f"{out}: lies in the source {where}, and would be read as part of it; give another --out")


def _split_folders(source: Path) -> dict[Split, Path]:
    return {split: source / split.value for split in Split if (source / split.value).is_dir()}


def _record_files(source: Path) -> dict[Split, list[RecordFiles]]:
    if source.is_file() and source.suffix == ".rec":
        return {Split.train: [RecordFiles.of_rec(source)]}
    if not source.is_dir():
        return {}
    found = {split: sorted(source.glob(f"{split.value}*.rec")) for split in Split}
    return {split: [RecordFiles.of_rec(rec) for rec in recs] for split, recs in found.items() if recs}


def _refuse_mixture(source: Path, records: dict[Split, list[RecordFiles]]) -> None:
    """Raises: InputError: the files are not one whole set, or class folders stand beside them."""
    for folder in _split_folders(source).values():
        rec = next(iter(records.values()))[0].rec
        raise InputError(f"{source}: holds both {folder.name}/ and {rec.name}; move one of them away")
    for split in records:
        for path, reason in set_faults(source, split):
            raise InputError(f"{path}: {reason}")


class _Writer:
    """Writes a listing's lines, keeping offsets and digest."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.offsets: array[int] = array("Q")
        self._hash = hashlib.sha256()
        self._at = 0
        self._stream = path.open("wb")

    def add(self, number: int, name: str) -> None:
        """Raises: InputError: a name with a line end, which would be two lines."""
        if "\n" in name:
            raise InputError(f"{name!r}: a line end in the name of a file or folder cannot be listed; rename it")
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
    source_bytes = 0
    with _Writer(work / f"{split.value}.list") as writer:
        for pair in files:
            try:
                offsets = read_index(str(pair.idx)).offsets if pair.idx.is_file() else scan_offsets(str(pair.rec))
            except RecordFault as fault:
                raise InputError(f"{fault}; mend it with a fresh copy, or see 'mlbench data verify'") from fault
            _refuse_doubles(pair, offsets)
            source_bytes += pair.rec.stat().st_size
            for offset in offsets:
                writer.add(offset, str(pair.rec.absolute()))
    source = ", ".join(str(pair.rec) for pair in files)
    digest, num_classes, num_ignored = writer.digest, 0, 0
    return Listing(
        split, SourceKind.records, writer.path, writer.offsets, num_classes, num_ignored, digest, source, source_bytes
    )


def _refuse_doubles(pair: RecordFiles, offsets: Sequence[int]) -> None:
    if not offsets:
        what = f"{pair.idx}: names" if pair.idx.is_file() else f"{pair.rec}: holds"
        raise InputError(f"{what} no record; mend it with a fresh copy")
    for first, second in itertools.pairwise(file_order(offsets)):
        if offsets[first] == offsets[second]:
            raise InputError(f"{pair.idx}: names offset {offsets[first]} twice; remove the index, and it is made anew")


def _list_images(split: Split, folder: Path, work: Path, classes: dict[str, int], val_synsets: Path | None) -> Listing:
    try:
        with _Writer(work / f"{split.value}.list") as writer:
            if split is Split.val and not _subfolders(folder):
                ignored = _add_flat(writer, folder, classes, val_synsets)
            else:
                names = _subfolders(folder)
                ignored = len(os.listdir(folder)) - len(names)  # noqa: PTH208  # counted only
                ignored += sum(_add_class(writer, folder / name, classes[name]) for name in names)
    except OSError as error:
        raise InputError(f"{error.filename or folder}: cannot be read: {error.strerror}") from error
    if not writer.offsets:
        raise InputError(f"{folder}: no image found; expected class folders with .JPEG, .jpg or .png files")
    if split is Split.train:
        random.Random(_SHUFFLE_SEED).shuffle(writer.offsets)
    return Listing(
        split, SourceKind.images, writer.path, writer.offsets, len(classes), ignored, writer.digest, str(folder)
    )


def _subfolders(folder: Path) -> list[str]:
    with os.scandir(folder) as entries:
        return sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith("."))


def _is_image(name: str) -> bool:
    return not name.startswith(".") and os.path.splitext(name)[1].lower() in IMAGE_SUFFIXES  # noqa: PTH122  # 1.28 million


def _add_class(writer: _Writer, folder: Path, label: int) -> int:
    """Add the images of a class folder and of folders in it; returns the number of other files."""
    ignored = 0
    for where, folders, names in os.walk(folder.absolute(), onerror=_raise):
        shown = sorted(name for name in folders if not name.startswith("."))
        ignored += len(folders) - len(shown)
        folders[:] = shown
        for name in shown:
            if os.path.islink(f"{where}/{name}"):  # noqa: PTH114
                raise InputError(
                    f"{where}/{name}: a link to a folder inside a class is not followed; put its images there, or"
                    " remove it"
                )
        for name in sorted(names):
            if not _is_image(name):
                ignored += 1
                continue
            writer.add(label, f"{where}/{name}")
    return ignored


def _raise(error: OSError) -> None:
    raise error


def _add_flat(writer: _Writer, folder: Path, classes: dict[str, int], val_synsets: Path | None) -> int:
    # A folder here is hidden; whatever else there is (a link to nothing, a pipe) is refused when it is read.
    names = sorted(entry.name for entry in os.scandir(folder) if not entry.is_dir())
    images = [name for name in names if _is_image(name)]
    if val_synsets is None:
        raise InputError(
            f"{folder}: {len(images)} images and no class folders; give the class of each with --val-synsets FILE"
        )
    for name, synset in _flat_classes(val_synsets, images, classes).items():
        if synset not in classes:
            raise InputError(f"{val_synsets}: class {synset!r} of {name} is not known; expected one of {len(classes)}")
        writer.add(classes[synset], str(folder.absolute() / name))
    return len(os.listdir(folder)) - len(images)  # noqa: PTH208


def _flat_classes(path: Path, images: Sequence[str], classes: dict[str, int]) -> dict[str, str]:
    """Class of each image, as a list gives it: by position, or by name (whole, or without its suffix)."""
    lines = [line.strip() for line in _read_text(path).splitlines() if line.strip()]
    if all(line in classes or len(_words(line)) == 1 for line in lines):
        if len(lines) != len(images):
            raise InputError(f"{path}: {len(lines)} lines, expected one for each of {len(images)} images")
        return dict(zip(images, lines, strict=True))
    by_name = {os.path.splitext(name)[0]: name for name in images} | {name: name for name in images}  # noqa: PTH122
    found: dict[str, str] = {}
    for line in lines:
        for name, synset in _readings(line):
            image = by_name.get(name)
            if image is None:
                continue
            if found.setdefault(image, synset) != synset:
                raise InputError(f"{path}: {image} stands there twice, with {found[image]!r} and {synset!r}")
            break
    for name in images:
        if name not in found:
            raise InputError(f"{path}: names no class for {name}")
    return {name: found[name] for name in images}


def _words(line: str) -> list[str]:
    return line.replace(",", " ").split()


def _readings(line: str) -> Iterator[tuple[str, str]]:
    """(name, class) as a line may mean it, the likeliest first; either may have spaces in it."""
    for separator in ("\t", ","):
        name, found, rest = line.partition(separator)
        if found and rest.strip():
            yield name.strip(), rest.strip() if separator == "\t" else _words(rest)[0]
    words = line.split()
    for count in range(len(words) - 1, 0, -1):
        name = line.rsplit(None, len(words) - count)[0]
        yield name, line[len(name) :].split()[0]


def _classes(folders: dict[Split, Path], synsets: Path | None) -> dict[str, int]:
    """Class folder -> label. Every folder has a label."""
    names = sorted({name for folder in folders.values() for name in _subfolders(folder)})
    if synsets is None:
        if not names:
            raise InputError(f"{next(iter(folders.values()))}: no class folders found; expected one a class")
        return {name: label for label, name in enumerate(names)}
    lines = [line.strip() for line in _read_text(synsets).splitlines() if line.strip()]
    listed = [line if line in names else line.split()[0] for line in lines]
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
