"""The pipeline that a job really gets, which is another than it asks for where something is not installed."""

from __future__ import annotations

from typing import NamedTuple, Optional

from ..ranks import Alone

NAMES = ("native", "simplejpeg", "mxnet", "dali")


class Used(NamedTuple):
    """`reason` says why it is not the one that was asked for; empty when it is."""

    name: str
    reason: str


def settle(asked: str, instead: Optional[Used], ranks: Alone) -> Used:
    """What all ranks together use, called by every rank; hosts may differ: `native on 3, mxnet on 1`.

    `instead` is this rank's pipeline when it is not the one that the job asks for."""
    mine = instead.name if instead is not None else asked
    counts = zip(NAMES, ranks.sum([float(name == mine) for name in NAMES]))
    found = ["%s on %d" % (name, count) for name, count in counts if count]
    if len(found) > 1:
        return Used(", ".join(found), "%s is not usable on every host; the logs of the ranks say why" % asked)
    return Used(mine, "%s: %s" % (asked, instead.reason) if instead is not None else "")
