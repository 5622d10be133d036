"""Proof that boxes cover a box exactly: no gap, no overlap, nothing outside.

A sum of sizes is not a proof, since an overlap can hide a gap of the same size. Disjoint pieces inside the whole whose
sizes add up to its size are one; where that fails, the gaps are found by cutting the whole at the faces of the pieces
until each region is held or free.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

from combinators.arguments import read_list
from combinators.errors import SignatureError, message, spelt
from combinators.index_space.box import Box


@dataclass(frozen=True, slots=True)
class CoverReport:
    """What keeps a list of boxes from covering a box exactly; empty where nothing does.

    Args:
      gaps: disjoint boxes of the whole that no part holds.
      overlaps: `(i, j, box)` with `i < j` for every two parts that share the points of `box`.
      outside: `(i, box)` for disjoint boxes of part `i` that lie outside the whole.
    """

    gaps: tuple[Box, ...] = ()
    overlaps: tuple[tuple[int, int, Box], ...] = ()
    outside: tuple[tuple[int, Box], ...] = ()

    @property
    def is_exact(self) -> bool:
        """Whether every point of the whole lies in exactly one part, and no part reaches outside."""
        return not (self.gaps or self.overlaps or self.outside)

    def __str__(self) -> str:
        if self.is_exact:
            return "an exact cover"
        lines = [
            *_first("no part holds", [str(box) for box in self.gaps]),
            *_first("held twice:", [f"{box} by parts {i} and {j}" for i, j, box in self.overlaps]),
            *_first("outside:", [f"{box} of part {i}" for i, box in self.outside]),
        ]
        return "\n".join(lines)


def exact_cover(whole: Box, parts: Sequence[Box]) -> CoverReport:
    """Find every gap, overlap and excess of `parts` as a cover of `whole`.

    Empty parts hold nothing and are ignored. Overlaps are found by a sweep along the axis with the most distinct
    starts; gaps are searched for only where the sizes leave room for one.

    Args:
      whole: the box to cover.
      parts: boxes of the same rank.

    Returns:
      The report; `report.is_exact` is the answer, its text the counterexamples.

    Raises:
      SignatureError: when a part has another rank than the whole.

    Example:
      >>> print(exact_cover(Box.of_shape((4,)), [Box((0,), (2,)), Box((1,), (3,))]))
      no part holds [3:4]
      held twice: [1:2] by parts 0 and 1
    """
    boxes: Any = parts
    for box in (whole, *read_list(boxes, "the parts of a cover", SignatureError)):
        if not isinstance(cast("Any", box), Box):
            got = f"got {type(box).__name__}: {spelt(box)}"
            raise SignatureError(message("a cover is made of boxes", got, remedy="Pass tp.Box((0,), (4,))."))
    for index, part in enumerate(parts):
        if part.rank != whole.rank:
            raise SignatureError(
                message(
                    f"part {index} cannot cover the box {whole}.",
                    f"expected rank {whole.rank}",
                    f"got {part} of rank {part.rank}",
                    remedy="Give every part the axes of the whole.",
                )
            )
    held = [(index, part) for index, part in enumerate(parts) if not part.is_empty]
    outside = tuple(
        (index, piece) for index, part in held if not whole.contains(part) for piece in subtract(part, whole)
    )
    overlaps = tuple(sorted(_overlaps(held), key=lambda overlap: overlap[:2]))
    if not outside and not overlaps and sum(part.size for _, part in held) == whole.size:
        return CoverReport()
    gaps = _gaps(whole, [part for _, part in held], disjoint=not overlaps)
    return CoverReport(_merged(list(gaps)), overlaps, outside)


def subtract(box: Box, hole: Box) -> tuple[Box, ...]:
    """The points of `box` outside `hole`, as at most `2 * rank` disjoint boxes.

    Raises:
      SignatureError: when the ranks differ.
    """
    shared = box.intersect(hole)
    if box.is_empty:
        return ()
    if shared.is_empty:
        return (box,)
    pieces: list[Box] = []
    rest = box
    for axis in range(box.rank):
        before, rest, after = rest.split(axis, at=(shared.start[axis], shared.stop[axis]))
        pieces += [piece for piece in (before, after) if not piece.is_empty]
    return tuple(pieces)


def _overlaps(held: Sequence[tuple[int, Box]]) -> Iterator[tuple[int, int, Box]]:
    """Every two boxes that meet, by a sweep: a box is compared only with those that are open at its start."""
    if not held:
        return
    rank = held[0][1].rank
    # A box of rank 0 has no axis to sweep along; all of them are the same point.
    axis = max(range(rank), key=lambda i: len({part.start[i] for _, part in held}), default=None)
    ordered = held if axis is None else sorted(held, key=lambda item: item[1].start[axis])
    active: list[tuple[int, Box]] = []
    for index, part in ordered:
        if axis is not None:
            active = [other for other in active if other[1].stop[axis] > part.start[axis]]
        for earlier, other in active:
            if _meet(part, other):
                yield min(earlier, index), max(earlier, index), part.intersect(other)
        active.append((index, part))


def _gaps(region: Box, parts: Sequence[Box], disjoint: bool) -> Iterator[Box]:
    """The points of `region` in no part, by halving it at a face of the parts until it is held or free."""
    if region.is_empty:
        return
    parts = [part for part in parts if _meet(part, region)]
    if not parts:
        yield region
        return
    if any(part.contains(region) for part in parts):
        return
    # Sizes are a proof where nothing is held twice, and spare the descent into what is covered.
    if disjoint and sum(part.intersect(region).size for part in parts) == region.size:
        return
    axis, faces = max(
        ((axis, _faces(region, parts, axis)) for axis in range(region.rank)), key=lambda item: len(item[1])
    )
    for half in region.split(axis, at=faces[len(faces) // 2]):
        yield from _gaps(half, parts, disjoint)


def _faces(region: Box, parts: Sequence[Box], axis: int) -> list[int]:
    """Coordinates strictly inside the region where a part begins or ends."""
    ends = {end for part in parts for end in (part.start[axis], part.stop[axis])}
    return sorted(end for end in ends if region.start[axis] < end < region.stop[axis])


def _meet(left: Box, right: Box) -> bool:
    return all(a < d and c < b for a, b, c, d in zip(left.start, left.stop, right.start, right.stop, strict=True))


def _merged(boxes: list[Box]) -> tuple[Box, ...]:
    """The same points in fewer boxes: subtraction cuts one gap where the faces of several parts cross it."""
    rank = boxes[0].rank if boxes else 0
    count = len(boxes) + 1
    while len(boxes) < count:
        count = len(boxes)
        for axis in range(rank):
            boxes = _merged_along(boxes, axis)
    return tuple(sorted(boxes, key=lambda box: box.start))


def _merged_along(boxes: list[Box], axis: int) -> list[Box]:
    def profile(box: Box) -> tuple[tuple[int, ...], ...]:
        return tuple(coordinates[:axis] + coordinates[axis + 1 :] for coordinates in (box.start, box.stop))

    merged: list[Box] = []
    for box in sorted(boxes, key=lambda box: (profile(box), box.start[axis])):
        last = merged[-1] if merged else None
        if last is not None and profile(last) == profile(box) and last.stop[axis] == box.start[axis]:
            merged[-1] = last.bounding(box)
        else:
            merged.append(box)
    return merged


def _first(label: str, items: list[str], limit: int = 4) -> list[str]:
    shown = [f"{label} {item}" for item in items[:limit]]
    return [*shown, f"{label} ... and {len(items) - limit} more"] if len(items) > limit else shown
