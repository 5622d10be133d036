"""From an aggregator's `lift` of one cell to a kernel of blocks: every cell of the operands becomes a state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

import jax

from combinators.errors import SignatureError, message
from combinators.frozen import dataclass
from combinators.index_space.operand import Operand
from combinators.index_space.signature import Signature

Axes = tuple[str, ...]


@final
@dataclass(frozen=True)
class MapCells:
    """Map a function of cells over the dimensions of a result.

    Attributes:
      function: (one cell an operand) -> pytree of arrays.
      operands: the axes of the operands; `...` where they have axes that are not named; an axis that is not `mapped`
        belongs to the cell.
      mapped: the axes of the result, which come first in what is returned, in this order.
    """

    function: Callable[..., Any]
    operands: tuple[Axes, ...]
    mapped: Axes

    def __call__(self, *blocks: Any) -> Any:
        """Leaves with the axes `mapped`, then the cell's own."""
        ranks = [block.ndim for block in blocks]
        spelled = [spell(axes, open_axes([axes], [rank])) for axes, rank in zip(self.operands, ranks, strict=True)]
        mapped = spell(self.mapped, open_axes(self.operands, ranks))
        function = self.function
        for position in reversed(range(len(mapped))):
            gone, name = mapped[:position], mapped[position]
            function = jax.vmap(function, in_axes=[_index(axes, name, gone) for axes in spelled])
        return function(*blocks)


def cell_axes(signature: Signature, where: str) -> tuple[tuple[Axes, ...], Axes]:
    """The axes of operands and of the one result of a signature of bare and whole dimensions.

    Raises:
      SignatureError: for windows, compositions, several results, or a result axis that no operand has.
    """
    tensors = (*signature.operands, *signature.results)
    bare = all(axis.is_bare for tensor in tensors for axis in tensor.axes)
    if not bare or len(signature.results) != 1 or signature.fold_dims or signature.generated_dims:
        raise SignatureError(
            message(
                f"{where} takes bare dimensions, and gives one result that carries all of them but the whole ones",
                f"signature {signature}",
                remedy="Fold other dimensions with tp.fold; write [name] for the axes of one element.",
            )
        )
    return tuple(map(_named, signature.operands)), _named(signature.results[0])


def _named(operand: Operand) -> Axes:
    if operand.coordinate is not None:
        return (operand.coordinate,)
    return operand.around("...", (axis.names[0] for axis in operand.axes))


def open_axes(operands: Sequence[Axes], ranks: Sequence[int]) -> int:
    """How many axes `...` stands for, by the ranks of the blocks of the operands."""
    return max((rank - len(axes) + 1 for axes, rank in zip(operands, ranks, strict=True) if "..." in axes), default=0)


def spell(axes: Axes, count: int) -> Axes:
    """Write out `...` as so many axes."""
    if "..." not in axes:
        return axes
    at = axes.index("...")
    return axes[:at] + tuple(f"...{i}" for i in range(count)) + axes[at + 1 :]


def _index(axes: Sequence[str], name: str, gone: Sequence[str]) -> int | None:
    left = [axis for axis in axes if axis not in gone]
    return left.index(name) if name in left else None
