"""One operation at given operand types, run on any box of its index space."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis.strategies import SearchStrategy
from jax import lax

from combinators.graphs import walk
from combinators.graphs.graph import Graph
from combinators.index_space.axis import Axis
from combinators.index_space.operand import Operand
from combinators.operations.execute import axis_modes, present, read_axis
from combinators.operations.shaped import Shaped
from laws.draws.cells import Struct, type_name
from laws.draws.operands import Operands, Values
from laws.subject import Recipe, Subject

Span = tuple[int, int]
IndexBox = Mapping[str, Span]
"""For every index dimension the half-open range of coordinates."""


@final
class LeafSubject(Subject):
    """An operation, and the types of its array operands.

    Args:
      shaped: the operation with its sizes.
      operands: types of its array operands.
      name: what messages call it.
      values: operands to use instead of drawn ones, one sequence each.
    """

    def __init__(self, shaped: Shaped, operands: Sequence[Struct], name: str, values: Values = None) -> None:
        super().__init__(name)
        self.shaped, self.operands, self.drawn = shaped, tuple(operands), Operands(tuple(operands), values)
        # From blocks to presented leaves, compiled once for all laws that run the whole index space again and again.
        self.kernel = jax.jit(lambda *blocks: self.presented(jax.tree.leaves(shaped.operation.kernel(*blocks))))

    @property
    def families(self) -> tuple[str, ...]:
        """The laws of maps, and those of folds or scans."""
        kind = self.shaped.operation.kind
        return ("map",) if kind == "map" else ("map", kind)

    @property
    def types(self) -> str:
        """The types of the operands."""
        return ", ".join(map(type_name, self.operands))

    @property
    def depth(self) -> float:
        """Operations behind one cell of the result.

        The rounding of a sum of `n` terms grows like the square root of `n`. Source: Higham, Mary 2019.
        """
        signature, sizes = self.shaped.signature, self.shaped.sizes
        return 2 + 2 * math.sqrt(math.prod(sizes[d] for d in (*signature.fold_dims, *signature.whole_dims)))

    @property
    def is_composed(self) -> bool:
        """A fold that presents its state lifts, merges and presents: a kurtosis loses digits of its own."""
        return self.shaped.operation.kind == "reduce" and self.shaped.operation.present is not None

    @property
    def whole(self) -> dict[str, Span]:
        """The whole index space."""
        return {dim: (0, size) for dim, size in self.shaped.sizes.items()}

    def cuttable(self, role: str) -> list[str]:
        """The dimensions of a role, `map` or `fold`, that a plan may cut here.

        What is inside of a composition is never cut; a generated dimension is where the kernel is told its coordinates.
        """
        signature, sizes = self.shaped.signature, self.shaped.sizes
        tensors = (*signature.operands, *signature.results)
        inner = {t.name for o in tensors for a in o.axes if a.kind == "composite" for t in a.terms[1:]}
        told = {o.coordinate for o in signature.operands}
        named = signature.fold_dims if role == "fold" else signature.map_dims
        if role == "map":
            named += tuple(dim for dim in signature.generated_dims if dim in told)
        return [dim for dim in named if sizes[dim] >= 2 and dim not in inner]

    def blocks(self, operands: Sequence[Any], box: IndexBox) -> list[Any]:
        """What the kernel sees for a box: the cells it reads of every operand, and coordinates."""
        remaining = iter(operands)
        found: list[Any] = []
        for operand, modes in zip(self.shaped.signature.operands, axis_modes(self.shaped), strict=True):
            if operand.coordinate is not None:
                found.append(jnp.arange(*box[operand.coordinate], dtype=jnp.int32))
            else:
                found.append(self._read(operand, jnp.asarray(next(remaining)), box, modes))
        return found

    def beyond(self, operands: Sequence[Any], dim: str, span: Span) -> list[Any]:
        """What the kernel sees for a box that goes beyond a dimension, where cells and coordinates repeat."""
        found = self.blocks(operands, self.whole)
        for number, operand in enumerate(self.shaped.signature.operands):
            widths = [_beyond(axis, self.whole, dim, span) for axis in operand.axes]
            if operand.coordinate == dim:
                widths = [(-span[0], span[1] - self.whole[dim][1])]
            if any(map(any, widths)):
                found[number] = jnp.pad(found[number], widths, mode="edge")
        return found

    def run(self, operands: Sequence[Any], box: IndexBox) -> list[Any]:
        """The leaves that the kernel gives for a box: of the result, or of the state of a fold or scan."""
        return jax.tree.leaves(self.shaped.operation.kernel(*self.blocks(operands, box)))

    def presented(self, leaves: list[Any]) -> list[Any]:
        """The leaves of the result of a fold; those of a map, and the steps of a scan, as they are."""
        return present(self.shaped, leaves) if self.shaped.operation.kind == "reduce" else leaves

    def part(self, leaves: Sequence[Any], box: IndexBox, sizes: Mapping[str, int] | None = None) -> list[Any]:
        """What belongs to a box of leaves that hold the whole index space, or one of other `sizes`."""
        sizes = self.shaped.sizes if sizes is None else sizes
        if self.shaped.operation.kind == "scan":
            return [_named_part(leaf, axes, box) for leaf, axes in zip(leaves, self.shaped.carrier, strict=True)]
        return [_axes_part(leaf, axes, box, sizes) for leaf, axes in zip(leaves, self.shaped.result_axes, strict=True)]

    def strategy(self, kind: str, domain: str) -> SearchStrategy[Recipe]:
        """Draw `operands`."""
        del kind
        return self.drawn.strategy(domain)

    def build(self, kind: str, recipe: Recipe) -> Any:
        """Fill the operands."""
        del kind
        return self.drawn.build(recipe)

    def show(self, kind: str, recipe: Recipe) -> str:
        """Domain, seed and types."""
        del kind
        return self.drawn.show(recipe)

    def simplest(self, kind: str, recipe: Recipe, fails: Callable[[Recipe], bool]) -> Recipe:
        """Write small operands out, and make them simpler."""
        del kind
        return self.drawn.simplest(recipe, fails)

    def is_exact(self, kind: str, recipe: Recipe) -> bool:
        """Whether the operands are small integers."""
        del kind
        return self.drawn.is_exact(recipe)

    def _read(self, operand: Operand, array: Any, box: IndexBox, modes: Sequence[str]) -> Any:
        for number, (axis, mode) in enumerate(zip(operand.axes, modes, strict=True)):
            if axis.is_window:
                low, high = reads(axis, box)
                array = read_axis(array, number, low, high, mode)
        return _axes_part(array, operand.axes, box, self.shaped.sizes)


def reads(axis: Axis, box: IndexBox) -> Span:
    """The cells of a bare or affine axis that a box reads."""
    if any(box[term.name][0] >= box[term.name][1] for term in axis.terms):
        return 0, 0
    ends = [sorted((t.coefficient * box[t.name][0], t.coefficient * (box[t.name][1] - 1))) for t in axis.terms]
    return axis.offset + sum(low for low, _ in ends), axis.offset + sum(high for _, high in ends) + 1


def _beyond(axis: Axis, whole: IndexBox, dim: str, span: Span) -> Span:
    """By how many cells an axis grows at its two ends where one dimension does."""
    if axis.kind == "one" or dim not in axis.names:
        return 0, 0
    if axis.kind == "composite":
        inner = math.prod(whole[name][1] for name in axis.names[1:])
        return -span[0] * inner, (span[1] - whole[dim][1]) * inner
    (low, high), (wide_low, wide_high) = reads(axis, whole), reads(axis, {**whole, dim: span})
    return low - wide_low, wide_high - high


def leaves_of(graph: Graph, name: str, values: Values = None) -> list[LeafSubject]:
    """One subject for every different operation of a graph, those inside of loops too."""
    found: dict[Any, LeafSubject] = {}
    applied = list(walk.operations(graph))
    for place, node in applied:
        operands = tuple(place.graph.type_of(ref).struct for ref in node.operands)
        called = name if len(applied) == 1 else f"{name}/{node.path}"
        given = values if len(applied) == 1 else None
        subject = LeafSubject(place.graph.shaped(place.index), operands, called, given)
        found.setdefault((node.operation, operands), subject)
    return list(found.values())


def _axes_part(array: Any, axes: Sequence[Axis], box: IndexBox, sizes: Mapping[str, int]) -> Any:
    """Cut the bare and composite axes of an array to a box; windows are cut already."""
    for number, axis in enumerate(axes):
        if axis.kind == "one" or axis.is_window or not all(name in sizes for name in axis.names):
            continue
        shape = array.shape
        array = array.reshape((*shape[:number], *(sizes[name] for name in axis.names), *shape[number + 1 :]))
        for at, name in enumerate(axis.names):
            array = _slice(array, number + at, box[name])
        array = array.reshape((*shape[:number], -1, *shape[number + 1 :]))
    return array


def _named_part(array: Any, axes: Sequence[str], box: IndexBox) -> Any:
    for number, name in enumerate(axes):
        if name in box:
            array = _slice(array, number, box[name])
    return array


def _slice(array: Any, axis: int, span: Span) -> Any:
    """A range of an axis; what is on the host stays there, and compiles nothing."""
    if isinstance(array, np.ndarray):
        return array[(slice(None),) * axis + (slice(*span),)]
    return lax.slice_in_dim(array, *span, axis=axis)
