"""The state of a fold or scan at given shapes: its axes, whether its monoid merges it, what `present` makes of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from combinators.errors import SignatureError, TapestryError, first_line, message
from combinators.index_space.axis import Axis
from combinators.kernels.captured import check_captured, result_types
from combinators.merging.blocks import Axes, present_block, shared_axes
from combinators.operations.operation import Operation
from combinators.operations.results import Struct, refuse_shape, result_axes, struct_of


def carrier_of(operation: Operation, leaves: Sequence[Any]) -> tuple[Axes, ...]:
    """The axes of the leaves of a state: those of the result, then a cell's own, `~0`, `~1`, ...

    Raises:
      SignatureError: when the carrier that was given names other leaves, or the result has composed axes.
    """
    if operation.carrier is not None:
        if len(operation.carrier) != len(leaves):
            raise SignatureError(
                message(
                    f"the carrier of `{operation.name}` names {len(operation.carrier)} leaves, its kernel returns "
                    f"{len(leaves)}",
                    remedy="Name the axes of every leaf of the state, in flattening order.",
                )
            )
        return tuple(tuple(_of_cell(operation, name) for name in axes) for axes in operation.carrier)
    lead = tuple(_of_cell(operation, _plain_name(operation, axis)) for axis in operation.signature.results[0].axes)
    return tuple(lead + tuple(f"~{i}" for i in range(leaf.ndim - len(lead))) for leaf in leaves)


def check_state(operation: Operation, leaves: list[Any], carrier: tuple[Axes, ...], sizes: dict[str, int]) -> None:
    """Hold the shapes of a state's leaves against its carrier, over the whole index space.

    Raises:
      SignatureError: for the first leaf of another shape.
    """
    for leaf, axes in zip(leaves, carrier, strict=True):
        found: tuple[int, ...] = tuple(leaf.shape)
        own = found + (0,) * (len(axes) - len(found))
        expected = tuple(sizes.get(name.removeprefix("~"), size) for name, size in zip(axes, own, strict=False))
        if len(axes) != len(found) and operation.carrier is not None:
            raise SignatureError(
                message(
                    f"the carrier of `{operation.name}` names other axes than its kernel gives a leaf of the state",
                    f"signature {operation.signature}",
                    f"carrier ({' '.join(axes)}): {len(axes)} axes, the leaf has the shape {found}",
                    remedy="Let carrier= list the axes of every leaf, or mend the kernel.",
                )
            )
        if len(axes) != len(found) or expected != found:
            refuse_shape(operation, f"state leaf ({' '.join(axes)})", expected, found)


def check_monoid(operation: Operation, carrier: tuple[Axes, ...], leaves: list[Any], tree: Any) -> None:
    """Hold the monoid against the state before anything is merged: a plan must not be the first to merge.

    Raises:
      SignatureError: when it does not merge two states into one of their type.
    """
    monoid = operation.monoid
    assert monoid is not None
    cell = cell_of(carrier, leaves, tree)
    where = f"the monoid of `{operation.name}`"

    def merge(left: Any, right: Any) -> Any:
        return monoid.merge(left, right), monoid.identity_for(cell)

    try:
        merged, identity = result_types(merge, (cell, cell), where, of=monoid)
        problem = None if _types(merged) == _types(cell) == _types(identity) else f"combined {_types(merged)}"
    except TapestryError:
        raise
    except Exception as error:  # noqa: BLE001 - the monoid is the user's and may raise anything
        problem = first_line(error)
    if problem is not None:
        raise SignatureError(
            message(
                f"the monoid of `{operation.name}` does not combine its states",
                f"signature {operation.signature}",
                f"one cell {_types(cell)}",
                problem,
                remedy="Write identity and combine for one cell, whose own axes are the whole ones of the signature; "
                "combine keeps tree, shapes and dtypes.",
            )
        )
    if monoid.inverse is not None:
        check_captured(monoid.inverse, (cell,), where, of=monoid)
    if monoid.frame is not None:
        check_captured(lambda state: monoid.frame.fold([state, state]), (cell,), where, of=monoid)  # pyright: ignore[reportOptionalMemberAccess]


def presented_state(
    operation: Operation, carrier: tuple[Axes, ...], leaves: list[Any], tree: Any
) -> tuple[list[Struct], tuple[tuple[Axis, ...], ...], Any]:
    """What `present` makes of a state: types and axes of the leaves, and their tree; without one the state itself.

    Raises:
      SignatureError: when it does not take a cell of the state.
    """
    if operation.present is None:
        return [struct_of(leaf) for leaf in leaves], result_axes(operation, leaves), tree
    shared, cells = set(shared_axes(carrier)), _cells(carrier, leaves)
    cell = jax.tree.unflatten(tree, cells)
    try:
        presented = result_types(operation.present, (cell,), f"`present` of `{operation.name}`")
    except TapestryError:
        raise
    except Exception as error:
        raise SignatureError(
            message(
                f"`present` of `{operation.name}` does not take a state",
                f"one cell {_types(cell)}",
                f"present  {first_line(error)}",
                remedy="Write present= for one cell of the state, in the tree that the kernel returns.",
            )
        ) from error
    cell_out, result_tree = jax.tree.flatten(presented)
    lifted = [Struct((0,) * (len(shared) + len(leaf.shape)), leaf.dtype) for leaf in cell_out]
    axes = result_axes(operation, lifted)
    names = [tuple(axis.name or axis.whole_name or "1" for axis in leaf_axes) for leaf_axes in axes]

    def block(state: list[Any]) -> list[Any]:
        return present_block(operation.present, tree, carrier, names, state)

    return [struct_of(leaf) for leaf in jax.eval_shape(block, list(leaves))], axes, result_tree


def _of_cell(operation: Operation, name: str) -> str:
    """A whole axis of the state belongs to the cell, as the axes that the signature does not name do."""
    return f"~{name}" if name in operation.signature.whole_dims else name


def _plain_name(operation: Operation, axis: Axis) -> str:
    name = axis.name or axis.whole_name
    if name is None:
        raise SignatureError(
            message(
                f"the result of `{operation.name}` has the axis `{axis}`",
                f"signature {operation.signature}",
                remedy="A fold or scan gives bare dimensions; follow it by tp.rearrange to compose them.",
            )
        )
    return name


def cell_of(carrier: tuple[Axes, ...], state: Sequence[Any], tree: Any) -> Any:
    """The type of one cell of a state, as monoids and `present` take it."""
    return jax.tree.unflatten(tree, _cells(carrier, state))


def _cells(carrier: tuple[Axes, ...], leaves: Sequence[Any]) -> list[Struct]:
    shared = set(shared_axes(carrier))
    return [
        Struct(tuple(s for s, a in zip(leaf.shape, axes, strict=True) if a not in shared), leaf.dtype)
        for leaf, axes in zip(leaves, carrier, strict=True)
    ]


def _types(tree: Any) -> str:
    leaves = ", ".join(f"{leaf.dtype.name}{list(leaf.shape)}" for leaf in jax.tree.leaves(tree))
    return f"({leaves})"
