"""Whether what a job reads, writes and keeps lies apart: of two owners of a place one loses what it has put there."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from combinators.errors import PlanError, message
from tapestry_jax.storage.protocols import Stored
from tapestry_jax.streaming.errors import StreamError
from tapestry_jax.streaming.frozen.durable import PARTIAL
from tapestry_jax.streaming.frozen.folder import is_of_job
from tapestry_jax.streaming.parts import Split

REST = "rest"
"""The folder in that of a job where what is left of it is kept, if a cache has some of its values."""


def check_apart(
    split: Split,
    inputs: Sequence[str],
    sources: Sequence[Stored],
    sinks: Mapping[int, tuple[str, Any]],
    folder: Path | None,
) -> None:
    """Raise where places of a job lie in each other.

    Args:
      split: its passes.
      inputs: names.
      sources: what they are read from.
      sinks: names of outputs and what makes their sinks, by position.
      folder: in which its state is kept, if any.

    Raises:
      PlanError: for one place of two sinks or for sinks in each other; for a sink within a source or around one; for
        a sink that takes the place of a source which is read again; for a folder of the state that is not its own.
    """
    written = {n: (f"the sink of `{name}`", path) for n, (name, each) in sinks.items() if (path := _of_sink(each))}
    read = {n: (f"the source `{inputs[n]}`", path) for n, each in enumerate(sources) if (path := _of_source(each))}
    listed = list(written.values())
    for number, one in enumerate(listed):
        for other in listed[:number]:
            _require(not touch(one[1], other[1]), one, other)
    for slot, one in written.items():
        for number, other in read.items():
            if one[1] == other[1]:
                _require(folder is None and not _read_again(split, slot, number), one, other)
            else:
                _require(not touch(one[1], other[1]), one, other)
    if folder is not None:
        own = ("the folder checkpoint=", _real(folder))
        for other in (*listed, *read.values()):
            # A source may lie in the folder, where nothing changes it.
            touches = touch(own[1], other[1]) if other in listed else own[1].is_relative_to(other[1])
            _require(not touches, own, other)


def check_alone(folder: Path, sources: Iterable[Stored]) -> None:
    """Raise where a folder that was never a job's holds other files than sources of the job.

    One that a job has held has its lock or a state, whatever else releases before this one may have left there.

    Raises:
      StreamError: naming some of them.
    """
    try:
        names = sorted(each.name for each in folder.iterdir()) if folder.is_dir() else []
    except (OSError, ValueError):
        return  # who locks it says why
    if any(is_of_job(name) for name in names):
        return
    inside = {_real(folder / name): name for name in names if not _is_harmless(name)}
    read = [path for source in sources if (path := _of_source(source)) is not None]
    foreign = [name for place, name in inside.items() if not any(path.is_relative_to(place) for path in read)]
    if foreign:
        told = f"it holds {', '.join(foreign[:3])}" + (f" and {len(foreign) - 3} more" if len(foreign) > 3 else "")
        remedy = "Name a folder of its own; where there is none it is made."
        raise StreamError(message(f"{folder} is no folder of a job", told, remedy=remedy))


def _is_harmless(name: str) -> bool:
    """Whether systems and editors put it into any folder; and what is left of a job next to it."""
    return (name.startswith(".") and not name.startswith(PARTIAL)) or name in ("lost+found", REST)


def _require(apart: bool, one: tuple[str, Path], other: tuple[str, Path]) -> None:
    if not apart:
        details = tuple(f"{who} is {path}" for who, path in (one, other))
        remedy = "Give each a place of its own."
        raise PlanError(message(f"{one[0]} and {other[0]} are in each other's way", *details, remedy=remedy))


def _read_again(split: Split, output: int, number: int) -> bool:
    """Whether an input is read piece by piece after an output is in its place."""
    slot, is_there = split.schedule.inputs[number], False
    for part in split.passes:
        if is_there and any(piece.value == slot for piece in part.pieces):
            return True
        is_there = is_there or any(each.value == split.outputs[output] for each in part.made)
    return False


def touch(one: Path, other: Path) -> bool:
    """Whether one of two places lies in the other, or is it."""
    return one.is_relative_to(other) or other.is_relative_to(one)


def _of_sink(creation: Any) -> Path | None:
    path = getattr(creation, "path", None)
    return _real(path) if isinstance(path, Path) else None


def _of_source(source: Stored) -> Path | None:
    """The file or folder that a source is; what is said of arrays in memory and of addresses is none."""
    where = Path(str(source.where).removeprefix("file://"))
    return _real(where) if where.exists() else None


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))
