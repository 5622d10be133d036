"""Which collectives merge states: of folds over mesh axes, and of scans that go on from device to device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from combinators.frozen import dataclass
from combinators.merging.monoid import Monoid
from combinators.operations.execute import states
from combinators.operations.ready import plain
from combinators.operations.shaped import Shaped, block_structs, shape
from combinators.settings import remembered
from tapestry_jax.planning.derivatives.dependence import dependence
from tapestry_jax.planning.folding.merges import merges
from tapestry_jax.shards.lowered.moved import Queue, placed, refuse
from tapestry_jax.shards.parts import Block, Program, Shared
from tapestry_jax.shards.ranges import size_of

_SENT_AS = {"sum": ("sum",), "max": ("max",), "min": ("max", "min"), "or": ("max",), "and": ("min",)}
_IN_ORDER = ("gather", "exchange", "permute", "sum", "max")


@dataclass(frozen=True)
class Fold:
    """What is known of the leaves of a state.

    Attributes:
      leaves: how many.
      native: of those that one collective merges, the kinds that may do so, and whether it has to.
      others: whether there are leaves that more than one collective merges, and the kinds of these.
    """

    leaves: int
    native: tuple[tuple[tuple[str, ...], bool], ...]
    others: frozenset[str]


def fold_of(shared: Shared, program: Program, block: Block) -> Fold:
    """The leaves of the state that a block makes."""
    pieces = [program.pieces[read.piece] for read in block.reads]
    structs = tuple(program.values[piece.value].type.struct for piece in pieces)
    return _fold(shared.operations[block.runs], structs)


@remembered(maxsize=1024)
def _fold(operation: Any, structs: tuple[Any, ...]) -> Fold:
    shaped: Shaped = plain(shape(operation, structs))
    monoid = shaped.operation.monoid
    assert isinstance(monoid, Monoid)
    blocks = block_structs(shaped.signature, structs, shaped.sizes)
    moves = [any(row) for row in dependence(lambda leaves: states(shaped, leaves), blocks)]
    native: list[tuple[tuple[str, ...], bool]] = []
    others = set[str]()
    for merge in merges(shaped):
        if merge.kind == "frame":
            assert merge.monoid.frame is not None
            others |= {"sum", *_SENT_AS[merge.monoid.frame.merge]}
        elif merge.kind == "ordered":
            others |= {*_IN_ORDER}
        else:
            native += [(_SENT_AS[merge.kind], moves[leaf]) for leaf in merge.leaves]
    return Fold(len(shaped.state), tuple(native), frozenset(others))


def take_merge(fold: Fold, axes: Sequence[str], queue: Queue, nothing: bool) -> None:
    """Account for the collectives that merge a state over mesh axes.

    Raises:
      PlanError: where a leaf is not merged, merged twice, or over other mesh axes.
    """
    if nothing:
        return
    wanted = set(axes)
    for kinds, needed in fold.native if not fold.others else ():
        got = queue.sent[0] if queue.sent else None
        if got is not None and got.kind in kinds and set(got.axes) == wanted:
            queue.sent.pop(0)
        elif needed:
            queue.take(" or ".join(kinds), axes, "merges a state")
    if fold.others:
        _take_others(fold, axes, queue)


def _take_others(fold: Fold, axes: Sequence[str], queue: Queue) -> None:
    kinds = fold.others.union(*(kinds for kinds, _ in fold.native))
    taken = 0
    while queue.sent and queue.sent[0].kind in kinds and set(queue.sent[0].axes) == set(axes):
        queue.sent.pop(0)
        taken += 1
    if not taken:
        queue.take(" or ".join(sorted(kinds)), axes, "merges a state")


def take_scattered(axes: Sequence[str], dim: int, queue: Queue) -> None:
    """Account for the one collective that merges a sum and leaves every device some cells of it.

    Raises:
      PlanError: where it is over other mesh axes, or along another axis.
    """
    got = queue.take("scatter", axes, "merges a state, of which every device keeps some cells")
    if got.dims != (dim,):
        refuse(queue.path, "keeps cells along another axis than its blocks", f"expected axis {dim}, got {got}")


def take_scan(leaves: int, axes: Sequence[str], counts: Mapping[str, int], reverse: bool, queue: Queue) -> None:
    """Account for the permutations that bring every device the total of those before it.

    Raises:
      PlanError: where a device is brought another total, or one twice.
    """
    devices = size_of(counts, axes)
    own = [frozenset({place}) for place in range(devices)]
    before = [frozenset[int]()] * devices
    is_first = True
    wanted = [frozenset(range(place + 1, devices)) if reverse else frozenset(range(place)) for place in range(devices)]
    while is_first or before != wanted:
        rounds = [queue.take("permute", axes, "goes on from the devices before it") for _ in range(leaves)]
        if any(got.pairs != rounds[0].pairs for got in rounds):
            refuse(queue.path, "sends the leaves of one state to different devices", *map(str, rounds))
        held = list(before)
        for source, target in sorted(placed(rounds[0], axes, counts)):
            arrives = own[source] if is_first else before[source]
            if arrives & before[target] or not arrives <= wanted[target]:
                told = f"it has {sorted(before[target])}, wants {sorted(wanted[target])}, gets {sorted(arrives)}"
                refuse(queue.path, f"brings device {target} of ({', '.join(axes)}) a total that is not its own", told)
            held[target] = before[target] | arrives
        before, is_first = held, False
