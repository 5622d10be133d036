"""Which collectives make a move: from the boxes, what lies where before and after."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NoReturn

import numpy as np

from combinators.errors import PlanError, message
from combinators.frozen import dataclass
from combinators.index_space.tensor_type import TensorType
from tapestry_jax.shards.lowered.layout import laid
from tapestry_jax.shards.lowered.sent import Sent
from tapestry_jax.shards.parts import Coordinate, Move, Piece, Shared
from tapestry_jax.shards.ranges import Range, answered, points, size_of

_ANY_ORDER = ("sum", "max", "min", "max or min", "permute")
REMEDY = "Lower the plan again: the program does not do what its blocks say."
Pairs = dict[tuple[int, int], tuple[int, int]]
"""Who sends to whom, and the first and last place, of the sender's piece, of what is wanted."""


@dataclass(frozen=True)
class Queue:
    """What is sent at one path in some loops, in order; what has been accounted for is taken from its front."""

    path: str
    sent: list[Sent]
    leading: int = 0

    def take(self, kind: str, axes: Sequence[str], what: str) -> Sent:
        """The next collective, which has to be of a kind and over mesh axes.

        Raises:
          PlanError: where it is another, or there is none.
        """
        wanted = f"{kind} over ({', '.join(axes)})"
        if not self.sent:
            refuse(self.path, f"{what}, and the lowered program sends nothing more there", f"expected {wanted}")
        got = self.sent[0]
        same = set(got.axes) == set(axes) if kind in _ANY_ORDER else got.axes == tuple(axes)
        if got.kind not in kind.split(" or ") or not same:
            refuse(self.path, f"{what}, and the lowered program sends something else", f"expected {wanted}, got {got}")
        return self.sent.pop(0)


def refuse(path: str, what: str, *lines: str) -> NoReturn:
    """Raise, naming the step.

    Raises:
      PlanError: always.
    """
    raise PlanError(message(f"`{path}` {what}", *lines, remedy=REMEDY))


def take_move(shared: Shared, step: Move, source: Piece, result: Piece, kind: TensorType, queue: Queue) -> None:
    """Account for the collectives of a move.

    Args:
      shared: coordinates.
      step: the move.
      source: where it comes from.
      result: what is wanted.
      kind: of the tensor.
      queue: what is sent there.

    Raises:
      PlanError: where they do not bring what the move wants.
    """
    kinds = shared.kinds
    lies = [list(axes) for axes in laid(source.box, kinds)]
    wanted = [list(axes) for axes in laid(result.box, kinds)]
    if "stack" in step.how:
        return  # in time, on every device for itself
    blocks: dict[int, int] = {}
    near = _neighbours(shared, source, result, kind.shape, blocks, not {"slice", "all-to-all"}.isdisjoint(step.how))
    for place, how in enumerate(step.how):
        if how == "ring":
            _take_ring(kinds[_ring(result, source)], queue)
        elif how == "share":
            how_shared = "max" if kind.dtype == bool else "sum"
            queue.take(how_shared, _held(step.over, kinds), "is shared by the last stage")
        elif how == "slice" and queue.sent and queue.sent[0].kind == "slice":
            _take_slice(lies, wanted, "all-to-all" in step.how[place:], blocks, queue)
        elif how == "neighbours" and (axis := next(near, None)) is not None:
            _take_neighbours(*axis, shared, queue)
        elif how == "all-gather":
            _take_gather(lies, queue, is_complex=np.issubdtype(kind.dtype, np.complexfloating))
        elif how == "all-to-all":
            _take_exchange(lies, wanted, step, kinds, queue)
    for number, (got, want) in enumerate(zip(lies, wanted, strict=True)):
        if got != want[: len(got)]:
            told = f"expected {_told(want)}, got {_told(got)}"
            refuse(step.path, f"is left in other pieces along axis {number} than its blocks want", told)


def _take_slice(
    lies: list[list[str]], wanted: list[list[str]], is_traded: bool, blocks: dict[int, int], queue: Queue
) -> None:
    """A slice of what is alike; of other slices the lowered program does not say what they are of."""
    got = queue.sent[0]
    dim = got.dims[0] - queue.leading
    if dim < len(lies) and (is_traded or [*lies[dim], *got.axes] == wanted[dim][: len(lies[dim]) + len(got.axes)]):
        queue.sent.pop(0)
        blocks[dim] = got.block
        lies[dim] += got.axes


def _take_gather(lies: list[list[str]], queue: Queue, *, is_complex: bool) -> None:
    got = queue.sent[0] if queue.sent else None
    if got is None or got.kind != "gather":
        queue.take("gather", sorted({axis for axes in lies for axis in axes}), "gathers")
        return
    queue.sent.pop(0)
    dim = got.dims[0] - queue.leading
    ends = [n for n in range(len(lies)) if tuple(lies[n][-len(got.axes) :]) == got.axes]
    if is_complex and dim == 0 and ends:
        (dim,) = ends  # the axis of complex numbers that is gathered is outermost while it is
    if dim not in ends:
        told = f"the pieces lie {', '.join(map(_told, lies))}"
        refuse(queue.path, f"gathers along axis {dim} over ({', '.join(got.axes)}), which does not lie so", told)
    del lies[dim][-len(got.axes) :]


def _take_exchange(
    lies: list[list[str]], wanted: list[list[str]], step: Move, kinds: Mapping[str, Coordinate], queue: Queue
) -> None:
    axes = _held(step.over, kinds)
    got = queue.sent[0] if queue.sent else None
    if got is None or got.kind != "exchange":
        queue.take("exchange", axes, "trades pieces")
        return
    queue.sent.pop(0)
    split, together = (dim - queue.leading for dim in got.dims)
    # Cells are dealt within one axis, of which blocks, rounds and devices are three for the while.
    dealt = min(split, together)
    stays = dealt < len(lies) and all(tuple(each[dealt][-len(got.axes) :]) == got.axes for each in (lies, wanted))
    if abs(split - together) == 2 and stays:
        return
    if together < len(lies) and split < len(lies) and tuple(lies[together][-len(got.axes) :]) == got.axes:
        del lies[together][-len(got.axes) :]
        lies[split] += got.axes
        return
    if abs(split - together) != 2 or tuple(wanted[dealt][-len(got.axes) :]) != got.axes:
        told = f"the pieces lie {', '.join(map(_told, lies))}; got {got}"
        refuse(queue.path, f"puts axis {together} together, which does not lie so", told)


def _take_neighbours(
    number: int, axes: tuple[str, ...], pairs: Pairs, near: set[int], shared: Shared, queue: Queue
) -> None:
    """Permutations, one for each distance and direction, until everybody has been sent what it wants."""
    counts, seen, left = shared.counts, set[tuple[int, int]](), set(pairs)
    devices = size_of(counts, axes)
    while queue.sent and queue.sent[0].kind == "permute" and set(queue.sent[0].axes) == set(axes):
        got = placed(queue.sent[0], axes, counts)
        distances = {(there - here) % devices for here, there in got}
        if len(distances) != 1 or got & seen or not distances <= near:
            break
        # Half way round both directions are one distance: of two devices each is the other's neighbour on both sides.
        is_again = bool(distances & {(there - here) % devices for here, there in seen})
        if is_again and pairs and not got & left:
            break
        seen |= got
        strip = queue.sent.pop(0).strip
        for pair in left & got:
            low, high = pairs[pair]
            if not strip or (strip[number][0] <= low and high <= strip[number][1]):
                left.discard(pair)
    if left:
        told = f"expected that {sorted(left)} send, got {queue.sent[0] if queue.sent else 'nothing'}"
        refuse(queue.path, f"takes cells of neighbours along ({', '.join(axes)}) that do not send them", told)


def placed(got: Sent, axes: Sequence[str], counts: Mapping[str, int]) -> set[tuple[int, int]]:
    """The pairs of a permutation, counted along other axes than it names."""
    places = {tuple(at[axis] for axis in axes): number for number, at in enumerate(points(counts, axes))}
    named = [places[tuple(at[axis] for axis in axes)] for at in points(counts, got.axes)]
    return {(named[here], named[there]) for here, there in got.pairs}


def _neighbours(
    shared: Shared, source: Piece, result: Piece, shape: Sequence[int], blocks: Mapping[int, int], is_cut: bool
) -> Iterator[tuple[int, tuple[str, ...], Pairs, set[int]]]:
    """Axis by axis, over which mesh axes and from whom to whom cells have to go; and how far padding may go."""
    kinds = shared.kinds
    for number, (have, want) in enumerate(zip(source.box, result.box, strict=True)):
        axes, devices = laid((want,), kinds)[0], size_of(shared.counts, laid((want,), kinds)[0])
        if not axes or have == want or want.deal:
            continue
        if have.deal or axes != laid((have,), kinds)[0]:
            if not is_cut or want.is_plain:
                continue
            if number not in blocks:
                # Cut in blocks first, of which nothing is known.
                yield number, axes, {}, set(range(devices))
                continue
            have = _in_blocks(blocks[number], axes, shape[number], shared)
        pairs = _partners(shared, have, want, axes, shape[number])
        # Blocks of sizes that do not divide are exchanged with their padding.
        ends = (-(2**30), 2**30)
        rims = _partners(shared, _endless(have, ends), _endless(want, ends), axes, -1)
        yield number, axes, pairs, {(there - here) % devices for here, there in {*pairs, *rims}}


def _in_blocks(block: int, axes: Sequence[str], size: int, shared: Shared) -> Range:
    steps: list[tuple[str, int]] = []
    step = block
    for axis in reversed(axes):
        steps.insert(0, (axis, step))
        step *= shared.counts[axis]
    return Range(0, block, tuple(steps), (0, size))


def _endless(own: Range, limit: tuple[int, int]) -> Range:
    return replace(own, limit=limit, wraps=False, mode="", deal=0)


def _partners(shared: Shared, have: Range, want: Range, axes: tuple[str, ...], size: int) -> Pairs:
    found: Pairs = {}
    others = [name for name in dict.fromkeys((*have.coordinates, *want.coordinates)) if name not in axes]
    for more in points(shared.counts, others):
        listed = [{**at, **more} for at in points(shared.counts, axes)]
        held = [{*_cells(have, at, size)} for at in listed]
        firsts = [have.start(at) - have.before for at in listed]
        for place, at in enumerate(listed):
            lacking = {*_cells(want, at, size)} - held[place]
            for other, own in enumerate(held):
                if other != place and (sent := own & lacking):
                    low, high = min(sent) - firsts[other], max(sent) + 1 - firsts[other]
                    low, high = (low, high) if have.is_plain and not have.deal else (0, 0)
                    known = found.get((other, place), (low, high))
                    found[other, place] = min(low, known[0]), max(high, known[1])
    return found


def _cells(own: Range, point: Mapping[str, int], size: int) -> Iterator[int]:
    held = own.held(point)
    if size < 0:
        return (cell for low, high in held for cell in range(low, high))
    if own.wraps:
        return (cell % size for low, high in held for cell in range(low, high))
    return (cell for low, high in (held if own.deal else answered(held, size, own.mode)) for cell in range(low, high))


def _take_ring(ring: Coordinate, queue: Queue) -> None:
    got = queue.take("permute", ring.along, f"goes round `{', '.join(ring.along)}`")
    # In turn `t` a device works on the piece of the device `t` places before it.
    pairs = {(device, (device + 1) % ring.count) for device in range(ring.count)}
    if set(got.pairs) != pairs or len(got.pairs) != len(pairs):
        refuse(queue.path, "goes round another way than its blocks", f"expected {sorted(pairs)}, got {got}")


def _ring(result: Piece, source: Piece) -> str:
    return next(loop for loop in reversed(result.loops) if loop not in source.loops)


def _held(over: Sequence[str], kinds: Mapping[str, Coordinate]) -> tuple[str, ...]:
    return tuple(axis for axis in over if kinds[axis].kind == "axis" and kinds[axis].count > 1)


def _told(axes: Sequence[str]) -> str:
    return f"({', '.join(axes)})"
