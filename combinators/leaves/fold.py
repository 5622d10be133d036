"""Fold: an aggregator brings kernel, monoid and presentation."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import jax
import jax.numpy as jnp

from combinators.aggregation.aggregator import Aggregator
from combinators.aggregation.inputs import check_operands
from combinators.arguments import read_optional_name
from combinators.errors import SignatureError, message, spelt
from combinators.frozen import dataclass
from combinators.index_space.signature import Signature, read_signature
from combinators.index_space.sizes import solve_sizes
from combinators.leaves.leaf import Leaf
from combinators.leaves.options import read_sizes
from combinators.merging.extrema import attains
from combinators.merging.monoid import Monoid
from combinators.numerics.reductions import is_entrywise
from combinators.operations.compositions import Groups, block_sizes, groups, inner_dims, split
from combinators.operations.operation import Operation
from combinators.operations.shaped import check_count
from combinators.recording.current import trace_of

Axes = tuple[str, ...]


@dataclass(frozen=True)
class FoldKernel:
    """`lift_many` of an aggregator over the fold dimensions, mapped over the others.

    Whole dimensions of the operands belong to the elements: they are axes of the cells that are lifted.

    Attributes:
      aggregator: whose `lift_many` takes one leading axis.
      operands: the axes of each operand, compositions taken apart.
      folded: the fold dimensions, the outermost first.
      mapped: the dimensions of the result.
      coordinates: the dimensions whose coordinates are operands.
      compositions: for each operand the dimensions of its axes, where some are composed.
      inner: the sizes of the dimensions that are not outermost in a composition.
    """

    aggregator: Aggregator
    operands: tuple[Axes, ...]
    folded: Axes
    mapped: Axes
    coordinates: Axes = ()
    compositions: tuple[Groups, ...] = ()
    inner: tuple[tuple[str, int], ...] = ()

    def __call__(self, *blocks: Any) -> Any:
        """State block: every leaf has the mapped axes, then the cell's own."""
        rows, kept, sizes = self._rows(blocks)
        function = self._lift_many()
        cells = self._cells() if len(rows) == 1 and is_entrywise(function) else ()
        if cells:
            function = _OfCells(function, tuple(sizes[name] for name in cells))
        for position in reversed(range(len(self.mapped) - len(cells))):
            gone, name = self.mapped[:position], self.mapped[position]
            in_axes = [_index(axes, name, gone) for axes in kept]
            function = jax.vmap(function, in_axes=in_axes)
        return function(*rows)

    def attained(self, places: Sequence[int], state: Sequence[Any], blocks: Sequence[Any]) -> list[Any]:
        """How many elements attain the extrema of a block.

        Args:
          places: which leaves of the state are extrema.
          state: the leaves of the state block.
          blocks: of the operands.

        Returns:
          For each of the places int32 of the shape of the leaf.
        """
        rows, kept, _ = self._rows(blocks)
        function: Any = Attaining(self.aggregator, tuple(places))
        cells = self._cells() if len(rows) == 1 and is_entrywise(self._lift_many()) else ()
        extrema = [state[place] for place in places]
        for position in reversed(range(len(self.mapped) - len(cells))):
            gone, name = self.mapped[:position], self.mapped[position]
            in_axes = [_index(axes, name, gone) for axes in kept]
            function = jax.vmap(function, in_axes=(0, *in_axes))
        return function(extrema, *rows)

    @property
    def merged_by(self) -> tuple[Monoid, ...]:
        """The monoid of the states that it gives."""
        return (self.aggregator.monoid,)

    def _rows(self, blocks: Sequence[Any]) -> tuple[list[Any], list[Axes], dict[str, int]]:
        """The operands with one leading axis of elements, the axes behind it, and the sizes of the block."""
        if self.compositions:
            told = zip(blocks, self.compositions, strict=True)
            blocks = [split(block, axes, block_sizes(block, axes, dict(self.inner))) for block, axes in told]
        sizes = {
            n: s for axes, b in zip(self.operands, blocks, strict=True) for n, s in zip(axes, b.shape, strict=True)
        }
        kept = [tuple(name for name in axes if name not in self.folded) for axes in self.operands]
        return [self._as_rows(b, axes, sizes) for b, axes in zip(blocks, self.operands, strict=True)], kept, sizes

    def _cells(self) -> Axes:
        """The mapped dimensions that lie behind the folded ones in memory.

        Mapped, they would come to stand before the rows, and columns would be read one by one.
        """
        last = max((self.operands[0].index(name) for name in self.folded), default=-1)
        behind = self.operands[0][last + 1 :]
        return behind if behind == self.mapped[len(self.mapped) - len(behind) :] else ()

    def _lift_many(self) -> Any:
        """`lift_many`; where it has a form for ascending coordinates and theirs do, that one."""
        function: Any = self.aggregator.lift_many
        ascend = self.coordinates and set(self.coordinates) <= set(self.folded[:1])
        return function.of_ascending() if ascend and hasattr(function, "of_ascending") else function

    def _as_rows(self, block: Any, axes: Axes, sizes: Mapping[str, int]) -> Any:
        """The fold dimensions flattened to one leading axis, the outermost first."""
        for name in self.folded:
            if name not in axes:
                block = jnp.broadcast_to(block[..., None], (*block.shape, sizes[name]))
                axes = (*axes, name)
        order = [axes.index(name) for name in self.folded] + [i for i, n in enumerate(axes) if n not in self.folded]
        moved = jnp.transpose(block, order)
        return moved.reshape((math.prod(sizes[name] for name in self.folded), *moved.shape[len(self.folded) :]))


@dataclass(frozen=True)
class Attaining:
    """Count the elements that attain extrema of their state.

    Attributes:
      aggregator: whose states they are.
      places: of the extrema among the leaves of a state.
    """

    aggregator: Aggregator
    places: tuple[int, ...]

    def __call__(self, extrema: Sequence[Any], *rows: Any) -> list[Any]:
        """Return int32 of the shapes of the extrema, for rows with one leading axis of elements."""
        own = getattr(self.aggregator.lift_many, "attained", None)
        if own is not None:
            return own(self.places, extrema, rows)
        lifted = jax.tree.leaves(jax.vmap(self.aggregator.lift)(*rows))
        found = [attains(lifted[place], top) for place, top in zip(self.places, extrema, strict=True)]
        return [jnp.sum(each, axis=0, dtype=jnp.int32) for each in found]


@dataclass(frozen=True)
class _OfCells:
    """An entrywise `lift_many` of arrays as cells, whose leaves all get the shape of a cell."""

    function: Callable[..., Any]
    shape: tuple[int, ...]

    def __call__(self, rows: Any) -> Any:
        return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, self.shape), self.function(rows))


def _index(axes: Axes, name: str, gone: Axes) -> int | None:
    left = [axis for axis in axes if axis not in gone]
    # One leading axis of rows comes before what is mapped.
    return left.index(name) + 1 if name in left else None


@dataclass(frozen=True)
class _Polymorphic:
    """Stands for the kernel until the leading dimensions of `...` are known."""

    aggregator: Aggregator

    def __call__(self, *blocks: Any) -> Any:
        raise AssertionError("replaced when the fold is applied")


class Fold(Leaf):
    """Fold operands with an aggregator; see `fold`."""

    def __init__(
        self, aggregator: Aggregator, signature: Signature, sizes: Mapping[str, int] | None, name: str
    ) -> None:
        self._aggregator = aggregator
        super().__init__(
            Operation(
                signature,
                _Polymorphic(aggregator),
                aggregator.monoid,
                present=aggregator.present,
                sizes=read_sizes(sizes),
                name=name,
            )
        )

    def apply(self, *values: Any) -> Any:
        """Apply, with the kernel made for the operands' ranks."""
        recording = trace_of(values, self.name)
        signature = self.operation.signature
        check_count(signature, len(values), where=self.name)
        ranks = iter(value.ndim for value in values)
        signature = signature.expand(
            signature.ellipsis_rank(
                [None if o.coordinate is not None else next(ranks) for o in signature.operands], where=self.name
            )
        )
        compositions = tuple(groups(o.axes) if o.coordinate is None else ((o.coordinate,),) for o in signature.operands)
        operands = tuple(tuple(dim for dims in axes for dim in dims) for axes in compositions)
        inner = {dim for axes in compositions for dim in inner_dims(axes)}
        mapped = tuple(axis.name or str(axis) for axis in signature.results[0].axes)
        coordinates = tuple(o.coordinate for o in signature.operands if o.coordinate is not None)
        kernel = FoldKernel(self._aggregator, operands, signature.fold_dims, mapped, coordinates)
        if inner:
            shapes = iter(value.shape for value in values)
            told = [None if o.coordinate is not None else next(shapes) for o in signature.operands]
            sizes = solve_sizes(signature, told, given=dict(self.operation.sizes), where=self.name)
            given = tuple(sorted((dim, sizes[dim]) for dim in inner))
            kernel = replace(kernel, compositions=compositions, inner=given)
        return recording.apply(replace(self.operation, signature=signature, kernel=kernel), values)


def fold(
    aggregator: Aggregator,
    signature: str | Signature,
    *,
    sizes: Mapping[str, int] | None = None,
    name: str | None = None,
) -> Fold:
    """Fold operands with an aggregator: `tp.fold(tp.aggregators.Moments(), "row col -> col")`.

    Args:
      aggregator: lift, monoid and presentation.
      signature: bare dimensions, coordinates (`@row`) and, in operands, compositions (`"(h d) c -> c"`) and whole
        dimensions, which make cells of vectors (`"row [feature] -> "`); one result, behind whose dimensions come the
        axes of what is presented. Several fold dimensions are folded in the order of their first appearance, the first
        being the outermost.
      sizes: sizes that no operand tells.
      name: for paths and errors.

    Returns:
      An arrow; its result has the tree that the aggregator presents.

    Raises:
      SignatureError: for windows, several results, or compositions in the result.

    Laws: chunks; those of the aggregator.

    Example:
      >>> import jax.numpy as jnp
      >>> from combinators import aggregators
      >>> result = fold(aggregators.Moments(), "row col -> col")(jnp.array([[1.0, 4.0], [3.0, 4.0]]))
      >>> result["mean"].tolist(), result["variance"].tolist()
      ([2.0, 4.0], [1.0, 0.0])
    """
    parsed = read_signature(signature)
    if not isinstance(cast("Any", aggregator), Aggregator):
        raise SignatureError(
            message(
                "tp.fold takes an aggregator",
                f"got {type(aggregator).__name__}: {spelt(aggregator, 60)}",
                remedy="Pass one of tp.aggregators, such as tp.aggregators.Moments(), or use tp.Reduce with a monoid.",
            )
        )
    name_of = aggregator.name or "aggregator"
    check_operands("tp.fold", name_of, aggregator.lift, aggregator.lift_many, parsed)
    cells = not any(axis.is_window or axis.kind == "one" for operand in parsed.operands for axis in operand.axes)
    bare = cells and all(axis.name for result in parsed.results for axis in result.axes)
    if not bare or len(parsed.results) != 1:
        raise SignatureError(
            message(
                "tp.fold takes bare dimensions and compositions, and gives one result of bare dimensions",
                f"signature {parsed}",
                remedy="Use tp.Reduce with a kernel of your own for windows, tp.rearrange to compose what comes out.",
            )
        )
    called = read_optional_name(name, "name= of tp.fold") or aggregator.name or "fold"
    return Fold(aggregator, parsed, sizes, called)
