"""Sums of the files of a checkpoint: what is in each, and by that which checkpoint it is."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

from combinators.stored.json import read_json
from combinators.stored.whole import read_whole

SUMS = "sha256.json"


def write_sums(folder: Path) -> None:
    """Note what is in every file: TensorStore does not see all damage, and tells of the rest one array at a time."""
    sums = {file.relative_to(folder).as_posix(): _sum(file) for file in sorted(folder.rglob("*")) if file.is_file()}
    partial = folder / f"{SUMS}.partial"
    with partial.open("w") as written:
        written.write(json.dumps(sums))
        written.flush()
        os.fsync(written.fileno())
    partial.replace(folder / SUMS)


def check_sums(folder: Path) -> None:
    """Raise ValueError for files that are missing or changed.

    Of a checkpoint without sums nobody can say that it is whole.
    """
    if not is_whole(folder):
        raise ValueError(f"{SUMS} is missing: the run ended before the checkpoint was whole, or it was removed")
    sums = read_json(read_whole(folder / SUMS), SUMS)
    if not isinstance(sums, dict):
        raise ValueError(f"{SUMS} is damaged")
    # Names are looked up among the files that are there, and make no path: they may lead anywhere.
    there = {file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()}
    for name, known in sums.items():
        if name not in there:
            raise ValueError(f"{name} is missing")
        if _sum(folder / name) != known:
            raise ValueError(f"{name} is truncated or changed: {(folder / name).stat().st_size} bytes")


def is_whole(folder: Path) -> bool:
    """Whether a checkpoint has its sums, which are written last."""
    return (folder / SUMS).is_file()


def mark_of(folder: Path) -> str:
    """Which checkpoint it is: another one of the same step has another mark. Empty where it has no sums."""
    return _sum(folder / SUMS) if is_whole(folder) else ""


def _sum(file: Path) -> str:
    with file.open("rb") as opened:  # which may be larger than memory
        return hashlib.file_digest(opened, "sha256").hexdigest()
