"""Layers beside a cache that would decode wrongly: they mix positions of one call, and know none of those before.

Asked of what was recorded, so that a convolution, a scan of a user's and a layer of another library are one case. The
positions of a call are an axis of the rows that an operation puts into a cache, wherever it stands.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from combinators.errors import GraphError, message
from combinators.graphs.nodes import Ref
from combinators.index_space.axis import Axis
from combinators.index_space.naming import AxisName, find
from combinators.operations.shaped import Shaped
from combinators.recording.pending import Pending
from combinators.recording.value import Value
from tapestry_jax.nnx.modules.mattering import inside, mattering

ROWS = "cache_rows"
"""Of kernels that put rows into a cache: the place of this operand, and the axis of its positions."""


def refuse_forgetting(nodes: Sequence[Pending], given: Collection[Ref], said: Sequence[tuple[Ref, Ref]]) -> None:
    """Check that nothing but what a cache keeps depends on other positions.

    Args:
      nodes: of a program that writes a cache.
      given: what it gives, and what it keeps for the next call.
      said: of every variable that says something of this call alone, what it stood for before and what is written.
        What reaches nothing else is not asked; a variable that is read as well is one as any other.

    Raises:
      GraphError: for an operation that mixes the positions of one call.
    """
    positions = set(_positions(nodes))
    for pending, how in _mixing(nodes, positions, _mattering(nodes, given, said)):
        told = f"it {how} the positions of one call, and gives other numbers without those of the calls before"
        remedy = "Run the whole sequence in one call, without a cache."
        raise GraphError(
            message(f"`{pending.path or 'a loop'}` beside a cache keeps nothing between calls", told, remedy=remedy)
        )


def _positions(nodes: Sequence[Pending]) -> Iterator[AxisName]:
    """The axes of positions, as they are called now."""
    for pending in nodes:
        if pending.loop is not None:
            yield from _positions(pending.loop.nodes)
        place = None if pending.shaped is None else getattr(pending.shaped.operation.kernel, ROWS, None)
        if place is not None:
            operand, axis = place
            yield find(_operands(nodes, pending)[operand].axes[axis])


def _operands(nodes: Sequence[Pending], pending: Pending) -> list[Value]:
    return [nodes[ref.node].results[ref.output] for ref in pending.operands]


def _mattering(nodes: Sequence[Pending], given: Collection[Ref], said: Sequence[tuple[Ref, Ref]]) -> set[Ref]:
    while True:
        found = mattering(nodes, given, {new for _, new in said})
        read = [(old, new) for old, new in said if old in found]
        if not read:
            return found
        # What the next call reads is kept as a cache is.
        given, said = {*given, *(new for _, new in read)}, [each for each in said if each not in read]


def _mixing(nodes: Sequence[Pending], positions: set[AxisName], matters: set[Ref]) -> Iterator[tuple[Pending, str]]:
    """The operations that mix positions, of those that matter, and how."""
    # By node, for all of its results: keys of attention are positions under another name, those of a cache are none.
    called: list[set[AxisName]] = []
    for number, pending in enumerate(nodes):
        is_needed = [Ref(number, output) in matters for output in range(len(pending.results))]
        operands = _operands(nodes, pending)
        own = {find(axis) for value in pending.results for axis in value.axes}
        before = set[AxisName]().union(positions, *(called[ref.node] for ref in pending.operands))
        renamed = {new for old, new in (pending.renamed or {}).items() if old in before}
        called.append(own & (before | renamed))
        if not any(is_needed):
            continue
        if pending.loop is not None:
            sliced = operands[pending.loop.carries : pending.loop.carries + len(pending.loop.axes)]
            if any(find(v.axes[axis]) in positions for v, axis in zip(sliced, pending.loop.axes, strict=True)):
                yield pending, "goes step by step along"
            yield from _mixing(pending.loop.nodes, positions, inside(pending.loop, is_needed))
        elif pending.shaped is not None:
            keeps = bool(called[-1])
            arrays = (operand for operand in pending.shaped.signature.operands if operand.coordinate is None)
            for operand, value, ref in zip(arrays, operands, pending.operands, strict=True):
                for axis, name in zip(operand.axes, value.axes, strict=True):
                    how = _how(pending.shaped, axis, keeps) if find(name) in called[ref.node] else None
                    if how is not None:
                        yield pending, how


def _how(shaped: Shaped, axis: Axis, keeps: bool) -> str | None:
    """How an operation mixes what stands along one axis; None where it does not, or gives no positions."""
    roles: set[Any] = {shaped.signature.role(name) for name in axis.names}
    if shaped.operation.over in axis.names:
        return "scans"
    if "fold" in roles:
        return "folds"
    if not keeps:
        # Such as the pick of the last position.
        return None
    if axis.whole_name is not None:
        return "reads all of"
    inside = [shaped.sizes[name] for name in axis.names if shaped.signature.role(name) != "map"]
    # A slice picks positions by windows of one cell.
    return "reads windows of" if axis.is_window and math.prod(inside) > 1 else None
