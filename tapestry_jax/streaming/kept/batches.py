"""Batches of rows that are counted in the state in the folder of a job, each of them once.

The folder holds the job's own run, which is the first batch, and in `batches/` a folder for every extension: a job of
its own, kept as any other, that begins with the state behind the last turn of the one before. A batch is counted from
the moment at which its finished state is there. That says in one file what the rows until now come to and which
batches they are, so that no kill leaves one without the other.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from combinators.errors import FormatError, PlanError, message
from combinators.frozen import dataclass
from tapestry_jax.storage.protocols import Array
from tapestry_jax.streaming.errors import StreamError
from tapestry_jax.streaming.frozen import Frozen, load
from tapestry_jax.streaming.frozen.folder import has_damage

_FOLDER = "batches"
_NAME = re.compile(r"[0-9]{8,15}", re.ASCII)
_KEPT = (
    2  # finished batches: where the state of the last one is damaged, its rows are counted again from the one before
)
_ROWS, _BATCHES = "rows", "batches"


@dataclass(frozen=True)
class Batch:
    """By what rows are known again.

    Attributes:
      place: a checksum of where they lie, or of their name.
      content: one of what is in them.
      shown: what they are called.
    """

    place: bytes
    content: bytes
    shown: str

    @classmethod
    def of(cls, place: str, content: str, shown: str) -> Batch:
        """The batch of a place, or a name, and a content."""
        return cls(hashlib.sha256(place.encode()).digest(), hashlib.sha256(content.encode()).digest(), shown)

    @property
    def row(self) -> Array:
        """As a state has it."""
        return np.frombuffer(self.place + self.content, np.uint8).reshape(1, -1)


@dataclass(frozen=True, eq=False)
class Counted:
    """The rows that are counted in a folder.

    Attributes:
      number: of the newest batch; the job's own run is 0.
      folder: where its state lies.
      frozen: its state.
    """

    number: int
    folder: Path
    frozen: Frozen

    @property
    def first(self) -> int:
        """For how many rows the program has the key that tells which one it is."""
        return int(self.frozen.arrays[_ROWS][0])

    @property
    def rows(self) -> int:
        """The rows until now."""
        return int(self.frozen.arrays[_ROWS][1])

    @property
    def batches(self) -> Array:
        """The batches until now, a row each."""
        return self.frozen.arrays[_BATCHES]

    @property
    def program(self) -> str:
        """The key of the program for `first` rows."""
        return self.frozen.job["program" if self.number else "graph"]

    def are(self, batches: Sequence[Batch]) -> bool:
        """Whether these batches, in their order, are all that is counted."""
        return np.array_equal(self.batches, np.concatenate([batch.row for batch in batches]))

    def has(self, batch: Batch) -> bool:
        """Whether a batch is counted.

        Raises:
          PlanError: where other rows were counted from its place, or under its name.
        """
        known = self.batches[(self.batches[:, :32] == batch.row[:, :32]).all(1)]
        if not len(known):
            return False
        if (known == batch.row).all(1).any():
            return True
        remedy = 'Give these a name of their own: job.extend(new, batch="2026-11-23").'
        why = "what is there now may hold rows that were counted"
        raise PlanError(message(f"other rows were counted as {batch.shown}", why, remedy=remedy))


def goes_on(first: int, rows: int, before: Array | None, batches: Sequence[Batch]) -> dict[str, Array]:
    """What a finished state says of the batches that are counted in it.

    Args:
      first: as `Counted.first`.
      rows: until behind them.
      before: the batches before it; None where there are none.
      batches: those that are counted now.
    """
    listed = [*([] if before is None else [before]), *(batch.row for batch in batches)]
    return {_ROWS: np.array([first, rows], np.int64), _BATCHES: np.concatenate(listed)}


def told_of(number: int, program: str, listed: Array) -> dict[str, str]:
    """What tells an extension from all others: the program, and the batches that it ends with."""
    return {"batch": str(number), "program": program, "counted": hashlib.sha256(listed.tobytes()).hexdigest()}


def newest(folder: Path) -> Counted | None:
    """The rows that are counted in the folder of a job; None where none are.

    Raises:
      FormatError: where no state in it can be read.
      StreamError: where its state is that of an earlier release, which does not say what to go on from.
    """
    for number in sorted(_numbered(folder), reverse=True):
        place = place_of_batch(folder, number)
        if (found := load(place)) is not None and found.position.finished:
            return _checked(Counted(number, place, found))
    own = load(folder)
    return _checked(Counted(0, folder, own)) if own is not None and own.position.finished else None


def place_of_batch(folder: Path, number: int) -> Path:
    """The folder of a batch in that of its job."""
    return folder / _FOLDER / f"{number:08d}"


def begin_batch(folder: Path, number: int, told: Mapping[str, str], engine: str) -> Path:
    """The folder of the batch that comes next, without what another one has left there that was never counted.

    Args:
      folder: of the job.
      number: of the batch.
      told: what says which one it is.
      engine: who turns its chunks: what another one has begun is begun anew.

    Raises:
      StreamError: where the newest state of another one is damaged: it may have been counted.
    """
    place = place_of_batch(folder, number)
    if not place.is_dir():
        return place
    try:
        found, damaged = load(place), has_damage(place)
    except FormatError:
        found, damaged = None, True
    if found is not None and all(found.job.get(name, "") == text for name, text in {**told, "engine": engine}.items()):
        return place
    if damaged:
        remedy = f"Give those rows again as they were given, or remove {place}: they are not counted then."
        raise StreamError(message("rows before these may be counted, in a state that is damaged", remedy=remedy))
    shutil.rmtree(place)
    return place


def is_begun(counted: Counted) -> bool:
    """Whether a batch behind the newest one was begun, and not counted."""
    folder = counted.folder.parent.parent if counted.number else counted.folder
    return place_of_batch(folder, counted.number + 1).is_dir()


def end_batch(folder: Path, number: int) -> None:
    """Remove the batches that nothing goes on from any more."""
    for old in _numbered(folder):
        if old <= number - _KEPT:
            shutil.rmtree(place_of_batch(folder, old), ignore_errors=True)


def _numbered(folder: Path) -> list[int]:
    top = folder / _FOLDER
    return [int(each.name) for each in top.iterdir() if _NAME.fullmatch(each.name)] if top.is_dir() else []


def _checked(counted: Counted) -> Counted:
    found, empty = counted.frozen, np.empty(0)
    rows, batches = (found.arrays.get(name, empty) for name in (_ROWS, _BATCHES))
    is_whole = (rows.dtype, rows.shape, batches.dtype, batches.shape[1:]) == (np.int64, (2,), np.uint8, (64,))
    if not is_whole or ("program" if counted.number else "graph") not in found.job:
        told = "an earlier release wrote it, or its rows took one turn, which leaves no state"
        headline = f"the job in {counted.folder} has finished without a state to go on from"
        raise StreamError(
            message(headline, told, remedy="Run it in another folder, in smaller chunks, and extend that.")
        )
    return counted
