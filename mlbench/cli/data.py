"""`mlbench data make | import | verify`: data sets as RecordIO files.

Status of `verify`: 0 sound, 4 faults found, 2 nothing there to read."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mlbench.cli.main import verb_app
from mlbench.wording import count_of, noun

if TYPE_CHECKING:
    from mlbench.dataset.deep import Findings
    from mlbench.dataset.importing import SplitReport
    from mlbench.dataset.verify import Fault

app = verb_app()
EXIT_FAULTS = 4
MAX_FAULTS_SHOWN = 20


class SetKind(Enum):
    """What `make` can make."""

    digits = "digits"
    synthetic = "synthetic"


class Copies(Enum):
    """How copies of a synthetic set are made."""

    stream = "stream"
    link = "link"


Out = Annotated[Path, typer.Option("--out", help="Folder of the .rec and .idx files; made if it is not there.")]
Workers = Annotated[int | None, typer.Option(min=1, help="Processes or threads; default: one for each core.")]
Json = Annotated[bool, typer.Option("--json", help="JSON on stdout; sizes in bytes.")]


@app.command("import")
def import_(
    source: Annotated[
        Path, typer.Option("--from", help="Folder with train/ and val/ of class folders, or with .rec files.")
    ],
    out: Out,
    shards: Annotated[int, typer.Option(min=1, help="Files of the training split.")] = 1,
    workers: Workers = None,
    synsets: Annotated[
        Path | None, typer.Option(help="Line i begins with the folder name of class i; default: folders by name.")
    ] = None,
    val_synsets: Annotated[
        Path | None,
        typer.Option(help="Class of each image of a val/ without class folders: one a line, or 'name class'."),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace files that are there.")] = False,
    json: Json = False,
) -> None:
    """Pack images into train.rec and val.rec, each JPEG as it is; run again to go on after an interruption."""
    from mlbench.cli.data_progress import metering
    from mlbench.dataset.importing import import_images
    from mlbench.dataset.parallel import default_workers

    with metering("import") as meter:
        reports = import_images(
            source,
            out,
            num_shards=shards,
            num_workers=workers or default_workers(),
            synsets=synsets,
            val_synsets=val_synsets,
            overwrite=overwrite,
            report=meter.report,
            on_listed=meter.set_total,
        )
    _print_import(reports, json)


@app.command()
def make(
    kind: Annotated[SetKind, typer.Argument(help="digits: the small real set; synthetic: JPEGs for load tests.")],
    out: Out,
    count: Annotated[int, typer.Option(min=1, help="synthetic: training images.")] = 1000,
    val_count: Annotated[int | None, typer.Option(min=0, help="synthetic: validation images; default: 4 %.")] = None,
    px: Annotated[
        int | None, typer.Option(min=8, help="Side of the images (synthetic: mean longer side, 500).")
    ] = None,
    mean_bytes: Annotated[int, typer.Option(min=500, help="synthetic: mean size of an image.")] = 113_000,
    copies: Annotated[int, typer.Option(min=1, help="synthetic: copies of the training images, one file each.")] = 1,
    copy_mode: Annotated[
        Copies, typer.Option(help="stream: real bytes; link: hard links, which share space and page cache.")
    ] = Copies.stream,
    workers: Workers = None,
    json: Json = False,
) -> None:
    """Make a data set: the digits (1,797 images, fixed split), or a synthetic one of any size."""
    if kind is SetKind.digits:
        _make_digits(out, px, json)
        return
    from mlbench.cli.data_progress import metering
    from mlbench.dataset.making import CopyMode, make_synthetic
    from mlbench.dataset.parallel import default_workers

    num_val = max(1, count // 25) if val_count is None else val_count
    with metering("make") as meter:
        meter.set_total(count + num_val)
        made = make_synthetic(
            out,
            num_images=count,
            num_val=num_val,
            px=px or 500,
            mean_bytes=mean_bytes,
            copies=copies,
            copy_mode=CopyMode(copy_mode.value),
            num_workers=workers or default_workers(),
            report=meter.report,
        )
    files = [str(pair.rec) for pair in made.train] + ([str(made.val.rec)] if made.val else [])
    _print_facts(
        {
            "files": files,
            "num_train": made.num_train,
            "num_val": made.num_val,
            "copies": copies,
            "mean_image_bytes": round(made.mean_image_bytes, 1),
            "image_bytes": made.image_bytes * copies,
        },
        json,
    )


def _make_digits(out: Path, px: int | None, json: bool) -> None:
    from mlbench.dataset.digits import make_digits
    from mlbench.dataset.layout import Split, refuse_existing

    refuse_existing(out, Split, "give another --out")
    made = make_digits(out, px=px or 32)
    files = [str(made.train.rec), str(made.val.rec)]
    _print_facts({"files": files, "num_train": made.num_train, "num_val": made.num_val, "px": made.px}, json)


@app.command()
def verify(
    path: Annotated[Path, typer.Argument(help="A .rec file, or a folder of them.")],
    quick: Annotated[
        bool, typer.Option("--quick", help="The check that runs before run 1: index and samples.")
    ] = False,
    decode: Annotated[bool, typer.Option(help="Read each image too, not only its frame.")] = True,
    expect: Annotated[int | None, typer.Option(min=0, help="Records that must be there in all.")] = None,
    workers: Workers = None,
    json: Json = False,
) -> None:
    """Read every record and name file, record and offset of each fault. Status 4 when there is one."""
    from mlbench.cli.data_progress import metering
    from mlbench.dataset.deep import Findings, quick_all, record_files, verify_all, whole_set_faults
    from mlbench.dataset.parallel import default_workers
    from mlbench.dataset.verify import Fault

    files = record_files(path)
    if quick:
        faults = quick_all(files)
        found = Findings(num_faults=len(faults), faults=faults)
    else:
        with metering("verify") as meter:
            found = verify_all(files, num_workers=workers or default_workers(), decode=decode, report=meter.report)
        if expect is not None and found.num_records != expect:
            found.add(Fault(path, f"{found.num_records} sound records, expected {expect}"))
    for fault in whole_set_faults(path):
        found.add(fault)
    _print_findings([str(pair.rec) for pair in files], found, quick, json)
    if found.num_faults:
        raise typer.Exit(EXIT_FAULTS)


def _print_facts(facts: dict[str, Any], json: bool) -> None:
    from mlbench.cli.console import print_json, print_text

    if json:
        print_json(facts)
        return
    for key, value in facts.items():
        shown = ", ".join(value) if isinstance(value, list) else value
        print_text(f"{key.replace('_', ' '):17} {shown}")


def _print_import(reports: list[SplitReport], json: bool) -> None:
    from dataclasses import asdict

    from mlbench.cli.console import add_row, make_console, make_table, print_json

    if json:
        print_json({"splits": [asdict(report) for report in reports]})
        return
    columns = ("split", "images", "classes", "image bytes", "mean bytes", "files", "ignored")
    table = make_table(columns, right=columns[1:5])
    for report in reports:
        mean = None if report.mean_image_bytes is None else f"{report.mean_image_bytes:,.0f}"
        numbers = (f"{report.num_images:,}", f"{report.num_classes:,}", f"{report.image_bytes:,}", mean)
        files = report.files[0] + (f" and {len(report.files) - 1} more" if len(report.files) > 1 else "")
        add_row(table, (report.split, *numbers, files, report.num_ignored or "none"))
    make_console().print(table)


def _fault_json(fault: Fault) -> dict[str, Any]:
    return {"file": str(fault.path), "record": fault.record, "offset": fault.offset, "reason": fault.reason}


def _print_findings(files: list[str], found: Findings, quick: bool, json: bool) -> None:
    from mlbench.cli.console import print_json, print_text

    mean = found.image_bytes / found.num_records if found.num_records else None
    if json:
        print_json(
            {
                "verdict": "faults" if found.num_faults else "sound",
                "check": "quick" if quick else "full",
                "files": files,
                "decoder": found.decoder.value if found.decoder else None,
                "num_records": None if quick else found.num_records,
                "num_classes": None if quick else len(found.labels),
                "image_bytes": None if quick else found.image_bytes,
                "mean_image_bytes": mean,
                "num_faults": found.num_faults,
                "faults": [_fault_json(fault) for fault in found.faults],
            }
        )
        return
    for fault in found.faults[:MAX_FAULTS_SHOWN]:
        print_text(str(fault))
    if found.num_faults > MAX_FAULTS_SHOWN:
        more = count_of(found.num_faults - MAX_FAULTS_SHOWN, "more fault")
        print_text(f"and {more}; --json shows the first {len(found.faults)}")
    if not quick:
        records = f"{found.num_records:,} {noun(found.num_records, 'sound record')}"
        classes = f"{len(found.labels):,} {noun(len(found.labels), 'class', 'classes')}"
        mean_text = "" if mean is None else f", mean image {mean:,.0f} bytes"
        print_text(f"{records}, {classes}{mean_text}")
    if found.decoder:
        slow = f", slow: {found.why_slow}" if found.why_slow else ""
        print_text(f"images read by the {found.decoder.value} decoder{slow}")
    verdict = count_of(found.num_faults, "fault") if found.num_faults else "sound"
    print_text(f"{'quick check' if quick else 'every record read'} of {count_of(len(files), 'file')}: {verdict}")
