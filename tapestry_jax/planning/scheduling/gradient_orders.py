"""In which order of its axes a product makes the gradient of an operand.

The gradient of `w` in `x w` is a product of `x` and what comes back, with the axes that `w` shares with the result
in front; it is turned into the order of `w` afterwards. Where it is added up over the mesh before it is turned, it
stays a product: XLA takes product and turn for one product of another form, for which CPUs have no fast kernel.
"""

from __future__ import annotations

from combinators.index_space.operand import Operand
from combinators.monoids import Sum
from combinators.operations.shaped import Shaped


def gradient_orders(shaped: Shaped) -> tuple[tuple[int, ...], ...]:
    """Of each array operand the axes as its gradient has them; empty where that is as they stand, or not known.

    Those come first that both operands and the result have, then what one operand shares with the result alone, then
    what is summed: as JAX differentiates a product of two arrays.

    Args:
      shaped: an operation; one that is no sum of products may be turned for nothing, and stays what it is.
    """
    key = gradient_orders.__qualname__
    if key not in shaped.known:
        shaped.known[key] = _orders(shaped)
    return shaped.known[key]


def _orders(shaped: Shaped) -> tuple[tuple[int, ...], ...]:
    operands = [operand for operand in shaped.signature.operands if operand.coordinate is None]
    if shaped.operation.monoid is not Sum or len(operands) != 2:
        return ((),) * len(operands)
    one, other = operands
    return _order(one, other, shaped), _order(other, one, shaped)


def _order(operand: Operand, other: Operand, shaped: Shaped) -> tuple[int, ...]:
    names, shared, summed = _names(operand), set(_names(other)), set(shaped.signature.fold_dims)
    if None in names:
        return ()
    order = tuple(sorted(range(len(names)), key=lambda axis: (names[axis] in summed, names[axis] not in shared)))
    return () if order == tuple(range(len(names))) else order


def _names(operand: Operand) -> list[str | None]:
    return [axis.name or axis.whole_name for axis in operand.axes]
