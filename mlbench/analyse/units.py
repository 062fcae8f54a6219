"""Quantities in words."""

from __future__ import annotations


def size_text(size_bytes: float) -> str:
    """`8 B`, `64 KiB`, `1 MiB`: whole powers as nccl-tests' sizes are."""
    for factor, unit in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if size_bytes >= factor:
            return f"{size_bytes / factor:.4g} {unit}"
    return f"{size_bytes:.0f} B"
