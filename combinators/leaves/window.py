"""Sliding windows: the result at `t` aggregates the last few elements up to `t`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np

from combinators.aggregation.aggregator import Aggregator
from combinators.aggregation.inputs import check_operands, presented
from combinators.arguments import read_flag, read_name, read_optional_name
from combinators.errors import GraphError, SignatureError, TapestryError, message
from combinators.frozen import dataclass
from combinators.index_space.axis import Axis, Term
from combinators.index_space.operand import Operand
from combinators.index_space.signature import Signature, read_signature
from combinators.leaves.leaf import Leaf
from combinators.leaves.running import check_aggregator
from combinators.monoids.function import function
from combinators.monoids.held import held, hold, release
from combinators.numerics.groups import cell_identity, keep
from combinators.numerics.sliding import fold_windows
from combinators.operations.cells import Axes, MapCells, cell_axes, open_axes, spell
from combinators.operations.operation import Operation
from combinators.recording.current import trace_of


def window(
    aggregator: Aggregator,
    size: int,
    signature: str | Signature = "... t -> ... t",
    over: str = "t",
    *,
    partial: bool = True,
    name: str | None = None,
) -> Window:
    """Aggregate a window that slides: `tp.window(tp.aggregators.Max(), 5, "t col -> t col", over="t")`.

        y[t] = present(lift(x[t - size + 1]) + ... + lift(x[t]))

    It is a map that reads a window, so a plan may cut `over`. Every window costs three merges, whatever its size.

    Args:
      aggregator: lift, monoid and presentation.
      size: elements in a window, at least 1.
      signature: bare dimensions, all of them carried by the result; `[name]` are axes of one element.
      over: the dimension along which the window slides.
      partial: whether windows at the beginning hold the fewer elements that there are, so that `over` keeps its
        size; without, only full windows count and `over` loses `size - 1`.
      name: for paths and errors.

    Returns:
      An arrow; its result has the tree that the aggregator presents.

    Raises:
      SignatureError: for windows, compositions, folded dimensions, several results, or a size below 1.

    Laws: window is refold; map slicing and footprint.
    Source: see `combinators.numerics.sliding`.

    Example:
      >>> import jax.numpy as jnp
      >>> from combinators import aggregators
      >>> window(aggregators.Sum(), 3)(jnp.array([1, 2, 3, 4])).tolist()
      [1, 3, 6, 9]
      >>> window(aggregators.Max(), 2, partial=False)(jnp.array([4, 1, 3])).tolist()
      [4, 3]
    """
    check_aggregator(aggregator, "tp.window")
    parsed = read_signature(signature)
    named = aggregator.name or "aggregator"
    check_operands("tp.window", named, aggregator.lift, aggregator.lift, parsed)
    over = read_name(over, "over= of tp.window", SignatureError)
    partial = read_flag(partial, "partial= of tp.window", SignatureError)
    called = read_optional_name(name, "name= of tp.window")
    _check(parsed, over, size)
    return Window(aggregator, parsed, over, int(size), partial, called or f"window_{aggregator.name or 'aggregate'}")


class Window(Leaf):
    """Aggregate a window that slides; see `window`."""

    def __init__(
        self, aggregator: Aggregator, signature: Signature, over: str, size: int, partial: bool, name: str
    ) -> None:
        operands, mapped = cell_axes(signature, "tp.window")
        dim = _free(f"{over}_window", signature)
        shift = size - 1 if partial else 0
        slides = [_slide(operand, over, dim, shift) for operand in signature.operands]
        self._aggregator, self._over = aggregator, over
        self._kernel = WindowKernel(aggregator, operands, mapped, over, size, partial)
        # Padding is read before the first element only, and there the identity takes its place.
        super().__init__(
            Operation(
                Signature((*slides, Operand(coordinate=over)), signature.results),
                self._kernel,
                sizes=((dim, size),),
                boundary="edge" if partial else "valid",
                name=name,
            )
        )

    def apply(self, *values: Any) -> Any:
        """Apply, with axes for what the aggregator presents of one cell."""
        recording = trace_of(values, self.name)
        result = self.operation.signature.results[0]
        own = self._presented([value.struct for value in values])
        if own is None:  # refused in the words of every operation
            return recording.apply(self.operation, values)
        results: list[Operand] = []
        axes: list[Axes] = []
        sizes = dict(self.operation.sizes)
        for number, shape in enumerate(own):
            names = tuple(_free(f"own_{number}_{at}", self.operation.signature) for at in range(len(shape)))
            sizes |= dict(zip(names, shape, strict=True))
            results.append(replace(result, axes=(*result.axes, *(Axis("affine", (Term(n, 1, True),)) for n in names))))
            axes.append(names)
        signature = Signature(self.operation.signature.operands, tuple(results))
        operation = replace(self.operation, signature=signature, sizes=tuple(sorted(sizes.items())))
        return recording.apply(operation, values)

    def _presented(self, structs: Sequence[Any]) -> list[tuple[int, ...]] | None:
        """The shapes of the leaves that one cell presents; None where an operand has other axes than its signature."""
        cells: list[Any] = []
        for struct, axes in zip(structs, self._kernel.operands, strict=False):
            spelled = spell(axes, open_axes([axes], [len(struct.shape)]))
            if len(spelled) != len(struct.shape):
                return None
            own = [s for s, n in zip(struct.shape, spelled, strict=True) if n not in self._kernel.mapped and n in axes]
            cells.append(jax.ShapeDtypeStruct(tuple(own), struct.dtype))
        where, aggregator = self.name, self._aggregator
        try:
            state = jax.eval_shape(aggregator.lift, *cells)
        except TapestryError:
            raise
        except Exception as error:  # it is the user's, and may raise anything
            told = f"{type(error).__name__}: {error}"[:300]
            remedy = "Make it array code that takes the cells of one element."
            raise GraphError(message(f"{where}: its `lift` fails", told, remedy=remedy)) from error
        cell = jax.eval_shape(lambda one: presented(where, aggregator.present, one), state)
        return [tuple(leaf.shape) for leaf in jax.tree.leaves(cell)]


@final
@dataclass(frozen=True)
class WindowKernel:
    """Fold and present every window of a block.

    Attributes:
      aggregator: lift, monoid and presentation.
      operands: the axes of the operands.
      mapped: the axes of the result.
      over: the dimension along which the window slides.
      size: of a window.
      partial: whether what lies before the first element counts as nothing.
    """

    aggregator: Aggregator
    operands: tuple[Axes, ...]
    mapped: Axes
    over: str
    size: int
    partial: bool

    def __call__(self, *blocks: Any) -> Any:
        """The results of a block; the last operand holds the coordinates along `over`."""
        *cells, coordinates = blocks
        states = MapCells(self.aggregator.lift, self.operands, self.mapped)(*cells)
        mapped = spell(self.mapped, open_axes(self.operands, [cell.ndim for cell in cells]))
        lead, axis = len(mapped), mapped.index(self.over)
        states = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, axis, 0), states)
        if coordinates.shape[0]:
            states = self._fold(states, coordinates, lead)
        present = self.aggregator.present
        for _ in range(lead):
            present = jax.vmap(present)
        return jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, axis), present(states))

    def _fold(self, states: Any, coordinates: Any, lead: int) -> Any:
        monoid = self.aggregator.monoid
        merged = monoid
        for _ in range(lead - 1):
            merged = function(merged)
        # Blocks are filled up, and what lies before the first element is nothing.
        whole, length = held(merged), jax.tree.leaves(states)[0].shape[0]
        states = hold(whole, states, jnp.ones(length, jnp.bool_))
        if self.partial:
            # A piece may begin before the first index, whose coordinate the indices there repeat.
            start = coordinates[0] - jnp.maximum(jnp.sum(coordinates == 0) - 1, 0)
            inside = start - (self.size - 1) + jnp.arange(length) >= 0
            states = keep(inside, states, cell_identity(whole, states))
        return release(whole, fold_windows(whole, states, self.size))


def _slide(operand: Operand, over: str, dim: str, shift: int) -> Operand:
    """Turn the axis `over` into a window that ends at it."""
    axes = tuple(
        Axis("affine", (Term(over), Term(dim, 1, True)), -shift) if axis.name == over else axis for axis in operand.axes
    )
    return replace(operand, axes=axes)


def _check(signature: Signature, over: str, size: Any) -> None:
    problem = None
    if isinstance(size, bool) or not isinstance(size, int | np.integer) or size < 1:
        problem = f"the size is {size!r}, expected an integer of at least 1"
    elif over not in signature.map_dims:
        problem = f"`{over}` is not on both sides"
    elif any(operand.coordinate is not None for operand in signature.operands):
        problem = "a coordinate has no window"
    if problem is not None:
        raise SignatureError(
            message(
                "tp.window cannot slide",
                f"signature {signature}",
                problem,
                remedy="Slide over a dimension of the result, by one element or more; pass indices as data.",
            )
        )


def _free(name: str, signature: Signature) -> str:
    while name in signature.dims:
        name += "_"
    return name
