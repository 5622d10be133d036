"""Which cells of a tensor were written: so that one with holes is not taken for a whole one.

Boxes are kept as they come and merged now and then; of those that follow each other one is left. A sink stores them
beside its tensor when it is flushed, and forgets them when the tensor is in its place.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from threading import Lock
from typing import Any

from combinators.errors import FormatError, message
from combinators.stored.json import checksum, read_json
from tapestry_jax.storage.boxes import check_box, count, shape_of, told, whole
from tapestry_jax.storage.errors import StorageError, of_system
from tapestry_jax.storage.protocols import Array, Box
from tapestry_jax.storage.unfinished.partial import Draft, filled_place, remove, sync_folder
from tapestry_jax.storage.unfinished.regular import open_regular

_MANY = 4096
"""Boxes that are kept apart at most before they are merged."""


class Filled:
    """The cells that were written, of a tensor of some shape. Threads may add to it.

    Args:
      shape: of the tensor.
      boxes: that were written before.
      token: tells the tensor from others that were begun in the same place; a new one where it is None.

    Attributes:
      token: the same.
      is_own: whether who writes is known to have begun it.
      watch: told of every box that is written, and of its cells; None where nobody asks.
    """

    def __init__(self, shape: tuple[int, ...], boxes: Iterable[Box] = (), token: str | None = None) -> None:
        self.token = secrets.token_hex(8) if token is None else token
        self.is_own = False
        self.watch: Callable[[Box, Array], None] | None = None
        self._shape, self._boxes, self._lock = shape, list(boxes), Lock()
        self._next = _MANY

    def add(self, box: Box, array: Array | None = None) -> None:
        """A box is written; what is in it is for who watches."""
        if not count(shape_of(box)):
            return
        if self.watch is not None and array is not None:
            self.watch(box, array)
        with self._lock:
            self._boxes.append(box)
            if len(self._boxes) >= self._next:
                self._boxes = merged(self._boxes)
                self._next = 2 * len(self._boxes) + _MANY

    def boxes(self) -> list[Box]:
        """What was written, in few boxes; some may overlap."""
        with self._lock:
            self._boxes = merged(self._boxes)
            return list(self._boxes)

    def to_json(self) -> str:
        """As text, with its checksum: a bit that flips in it would say of cells that they are written."""
        content = {"token": self.token, "boxes": self.boxes()}
        return json.dumps({**content, "checksum": checksum(content)})

    def check(self, where: str) -> None:
        """Refuse to take the tensor for a whole one.

        Raises:
          StorageError: where a cell was never written.
        """
        hole = first_hole(whole(self._shape), self.boxes()) if count(self._shape) else None
        if hole is not None:
            remedy = "Write all boxes before finish(); close() leaves it to Creation.again."
            headline = f"`{where}` has cells that nobody has written"
            raise StorageError(message(headline, f"the first are those of the box {told(hole)}", remedy=remedy))


def read_filled(text: str, shape: tuple[int, ...], where: str) -> Filled:
    """What `to_json` gave.

    Raises:
      FormatError: for anything else.
    """
    try:
        found: Any = read_json(text, "the boxes")
    except FormatError:
        found = None
    token, is_whole = None, True
    if isinstance(found, dict):  # earlier releases have the boxes alone, or no checksum
        content = {"token": found.pop("token", None), "boxes": found.pop("boxes", None)}
        is_whole = found in ({}, {"checksum": checksum(content)})
        token, found = content["token"], content["boxes"]
    if not isinstance(found, list) or not isinstance(token, str | None) or not is_whole:
        remedy = "Begin anew: Creation.make makes it."
        raise FormatError(message(f"what is written of `{where}` cannot be read", f"got {text:.80}", remedy=remedy))
    return Filled(shape, [check_box(each, shape, where) for each in found], token)


def keep_filled(filled: str, path: Path) -> None:
    """Keep beside a tensor that is being written what is written of it, through a power cut.

    Args:
      filled: what `Filled.to_json` gave before the tensor was synced: what came later may not be on the disk.
      path: the place of the tensor.

    Raises:
      OSError: where the disk says no; what was kept before is intact.
    """
    place = filled_place(path)
    draft = place.with_name(f"{place.name}.new")
    # What a dead process has left, or somebody has put there, such as a link, is not written to.
    remove(draft)
    with draft.open("x") as file:
        file.write(filled)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(place)
    sync_folder(path.parent)


def filled_again(draft: Draft, shape: tuple[int, ...]) -> Filled:
    """What is known of a tensor that is gone on with: all of one in its place, nothing where nothing was flushed.

    Raises:
      FormatError: where it cannot be read.
      StorageError: where something else lies there than a file.
    """
    known = _read(filled_place(draft.path), shape, str(draft.path))
    if draft.place != draft.path:
        return known
    return Filled(shape, [whole(shape)] if count(shape) else [], known.token)


def _read(place: Path, shape: tuple[int, ...], where: str) -> Filled:
    try:
        with open(open_regular(place), errors="replace") as file:  # noqa: PTH123, a handle is opened, no path
            return read_filled(file.read(), shape, where)
    except FileNotFoundError:
        return Filled(shape)
    except OSError as error:
        raise of_system(error, "read what is written of a tensor", str(place)) from error


def merged(boxes: Sequence[Box]) -> list[Box]:
    """The same cells in fewer boxes: those that touch along one axis and agree in the others are one."""
    found, before = list(dict.fromkeys(boxes)), -1
    while len(found) != before:
        before = len(found)
        for axis in reversed(range(len(found[0]) if found else 0)):
            found = _along(found, axis)
    return found


def _along(boxes: list[Box], axis: int) -> list[Box]:
    rest = sorted((box[:axis] + box[axis + 1 :], box[axis]) for box in boxes)
    found: list[tuple[Box, tuple[int, int]]] = []
    for others, (start, stop) in rest:
        if found and found[-1][0] == others and start <= found[-1][1][1]:
            found[-1] = others, (found[-1][1][0], max(stop, found[-1][1][1]))
        else:
            found.append((others, (start, stop)))
    return [(*others[:axis], own, *others[axis:]) for others, own in found]


def first_hole(region: Box, boxes: Sequence[Box]) -> Box | None:
    """A box within a region of which no cell lies in any of `boxes`; None where there is none."""
    open_regions = [(region, boxes)]
    while open_regions:
        region, boxes = open_regions.pop()
        near = [box for box in boxes if all(max(a, c) < min(b, d) for (a, b), (c, d) in zip(box, region, strict=True))]
        if not near:
            return region
        middle = near[len(near) // 2]
        cut = next(
            (
                (axis, at)
                for axis, ((start, stop), (low, high)) in enumerate(zip(middle, region, strict=True))
                for at in (start, stop)
                if low < at < high
            ),
            None,
        )
        if cut is not None:
            axis, at = cut
            low, high = region[axis]
            halves = (at, high), (low, at)
            open_regions.extend(((*region[:axis], part, *region[axis + 1 :]), near) for part in halves)
    return None
