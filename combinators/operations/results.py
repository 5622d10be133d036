"""The results of an operation at given shapes: their axes, and whether the kernel gives them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from combinators.errors import SignatureError, message
from combinators.index_space.axis import Axis, Term
from combinators.index_space.extent import axis_size
from combinators.operations.operation import Operation

Struct = jax.ShapeDtypeStruct


def struct_of(leaf: Any) -> Struct:
    """The type of what has a shape and a dtype."""
    return Struct(leaf.shape, leaf.dtype)


def result_axes(operation: Operation, leaves: Sequence[Any]) -> tuple[tuple[Axis, ...], ...]:
    """The axes of each result leaf; cells of an aggregate may have axes of their own behind the signature's.

    Raises:
      SignatureError: when the signature names another number of results.
    """
    results = operation.signature.results
    if len(results) != len(leaves) and len(results) != 1:
        raise SignatureError(
            message(
                f"`{operation.name}` returns {len(leaves)} array{'s' * (len(leaves) != 1)}",
                f"signature {operation.signature} names {len(results)} results",
                remedy="Return one array for each result of the signature.",
            )
        )
    listed = results if len(results) == len(leaves) else results * len(leaves)
    own = operation.monoid is not None
    return tuple(
        result.axes + (_cell_axes(leaf.ndim - len(result.axes)) if own else ())
        for result, leaf in zip(listed, leaves, strict=True)
    )


def _cell_axes(count: int) -> tuple[Axis, ...]:
    return tuple(Axis("affine", (Term(f"~{i}", 1, True),), 0) for i in range(max(count, 0)))


def check_results(
    operation: Operation, leaves: Sequence[Any], named: tuple[tuple[Axis, ...], ...], sizes: dict[str, int]
) -> None:
    """Hold the shapes of the result leaves against their axes, over the whole index space.

    Raises:
      SignatureError: for the first leaf of another shape.
    """
    for leaf, axes in zip(leaves, named, strict=True):
        known = [axis for axis in axes if all(term.name in sizes for term in axis.terms)]
        expected = tuple(axis_size(axis, sizes) for axis in known) + leaf.shape[len(known) :]
        if len(axes) != len(leaf.shape) or expected != leaf.shape:
            refuse_shape(operation, f"result ({' '.join(map(str, axes))})", expected, leaf.shape)


def refuse_shape(operation: Operation, what: str, expected: tuple[int, ...], got: tuple[int, ...]) -> None:
    """Refuse a kernel whose results or state have another shape than its signature says; raises `SignatureError`."""
    raise SignatureError(
        message(
            f"the kernel of `{operation.name}` returns another shape than its signature says",
            f"signature {operation.signature}",
            f"{what}: expected {expected}, got {got}",
            remedy="Mend the kernel, or the signature's results.",
        )
    )
