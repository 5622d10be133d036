"""An operation at given operand shapes: the sizes of its index space, its state and its results, found abstractly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp

from combinators.errors import KernelError, SignatureError, TapestryError, message
from combinators.frozen import dataclass
from combinators.index_space.axis import Axis, Term
from combinators.index_space.extent import axis_extent, axis_size
from combinators.index_space.signature import Operand, Signature
from combinators.index_space.sizes import solve_sizes
from combinators.kernels.captured import check_captured, result_types
from combinators.kernels.immutable import Immutable
from combinators.merging.blocks import Axes, present_block, shared_axes
from combinators.operations.cells import spell
from combinators.operations.dense import as_dense
from combinators.operations.operation import Operation

Struct = jax.ShapeDtypeStruct


@dataclass(frozen=True)
class Shaped(Immutable):
    """An operation with every size known.

    Attributes:
      operation: the operation; its signature has no ellipsis left.
      sizes: dimension to size.
      carrier: axes of the state's leaves; own axes of a cell are `~0`, `~1`, ...; empty for a map.
      state: types of the state's leaves over the whole index space.
      state_tree: how the leaves make a state.
      results: types of the result's leaves.
      result_axes: for each result leaf its axes.
      result_tree: how the leaves make the result.
    """

    operation: Operation
    sizes: dict[str, int]
    carrier: tuple[Axes, ...]
    state: tuple[Struct, ...]
    state_tree: Any
    results: tuple[Struct, ...]
    result_axes: tuple[tuple[Axis, ...], ...]
    result_tree: Any

    @property
    def signature(self) -> Signature:
        """The expanded signature."""
        return self.operation.signature

    @property
    def result_names(self) -> tuple[Axes, ...]:
        """The axes of the result leaves as strings."""
        return tuple(tuple(str(axis) if axis.name is None else axis.name for axis in axes) for axes in self.result_axes)


@lru_cache(maxsize=4096)
def shape(operation: Operation, operands: tuple[Struct, ...]) -> Shaped:
    """Find the sizes, the state and the results of `operation` on operands of these types.

    Args:
      operation: any leaf.
      operands: types of the array operands, in order; coordinate operands are left out.

    Raises:
      SignatureError: when the operands do not fit the signature, or the kernel's result does not.
    """
    count = sum(operand.coordinate is None for operand in operation.signature.operands)
    if count != len(operands):
        raise SignatureError(
            message(
                f"`{operation.name}` takes {count} operand{'s' * (count != 1)}, got {len(operands)}",
                f"signature {operation.signature}",
                remedy="Pass one array for each operand of the signature; the library supplies coordinates `@q`.",
            )
        )
    operation = _expand(operation, operands)
    signature = operation.signature
    remaining = iter(operands)
    shapes = [None if o.coordinate is not None else next(remaining).shape for o in signature.operands]
    sizes = solve_sizes(
        signature, shapes, given=dict(operation.sizes), boundary=operation.boundary, where=operation.name
    )
    blocks = block_structs(signature, operands, sizes)
    out = _kernel_result(operation, blocks)
    for entry in map(as_dense, operation.dense):
        check_captured(entry.kernel, blocks, f"a dense kernel of `{operation.name}`")
    leaves, tree = jax.tree.flatten(out)
    if operation.monoid is None:
        axes = _result_axes(operation, leaves)
        _check(operation, leaves, axes, sizes)
        return Shaped(operation, sizes, (), (), None, tuple(map(_struct, leaves)), axes, tree)
    carrier = _carrier(operation, leaves)
    _check_state(operation, leaves, carrier, sizes)
    _check_monoid(operation, carrier, leaves, tree)
    results, result_axes, result_tree = _presented(operation, carrier, leaves, tree)
    _check(operation, results, result_axes, sizes)
    state = tuple(map(_struct, leaves))
    return Shaped(operation, sizes, carrier, state, tree, tuple(results), result_axes, result_tree)


def block_structs(signature: Signature, operands: Sequence[Struct], sizes: dict[str, int]) -> list[Struct]:
    """The types of the blocks that the kernel sees for an index box of `sizes`, coordinates included."""
    remaining = iter(operands)
    blocks: list[Struct] = []
    for operand in signature.operands:
        if operand.coordinate is not None:
            blocks.append(Struct((sizes[operand.coordinate],), jnp.int32))
        else:
            blocks.append(Struct(block_shape(operand, sizes), next(remaining).dtype))
    return blocks


def block_shape(operand: Operand, sizes: dict[str, int]) -> tuple[int, ...]:
    """The shape of what an index box of `sizes` reads of an operand."""
    extents = [axis_extent(axis, sizes) for axis in operand.axes]
    return tuple(max(high - low, 0) for low, high in extents)


def check_box(shaped: Shaped, leaves: Sequence[Any], sizes: Mapping[str, int], *, is_state: bool) -> None:
    """Hold what a kernel gives for an index box of `sizes` against its signature.

    A kernel that holds sizes of its own (`jnp.arange(3)`) fits the whole index space, and no part of it.

    Args:
      shaped: the operation.
      leaves: what the kernel gave: a state, or results.
      sizes: of the box.
      is_state: whether they are leaves of a state.

    Raises:
      KernelError: when a leaf has another shape than the box.
    """
    named = shaped.carrier if is_state else [tuple(map(str, axes)) for axes in shaped.result_axes]
    wrong = [
        f"it gives ({' '.join(axes)}) the shape {found}, and not {expected}"
        for axes, found, expected in zip(
            named, map(jnp.shape, leaves), _box_shapes(shaped, sizes, is_state=is_state), strict=False
        )
        if found != expected
    ]
    if wrong or len(leaves) != len(named):
        raise not_of_any_size(shaped, sizes, *wrong)


def not_of_any_size(shaped: Shaped, sizes: Mapping[str, int], *lines: str) -> KernelError:
    """The error of a kernel that a part of its index space is too small for."""
    return KernelError(
        message(
            f"the kernel of `{shaped.operation.name}` is not right for a box of any size.",
            f"signature {shaped.signature}",
            f"box {', '.join(f'{name}={size}' for name, size in sizes.items())}",
            *lines,
            remedy="Take sizes from the blocks' shapes and places from coordinates (`@dim`), or do not cut these axes.",
        )
    )


def _box_shapes(shaped: Shaped, sizes: Mapping[str, int], *, is_state: bool) -> list[tuple[int, ...]]:
    if is_state:
        return [
            tuple(sizes.get(name, size) for name, size in zip(axes, leaf.shape, strict=True))
            for axes, leaf in zip(shaped.carrier, shaped.state, strict=True)
        ]
    return [
        tuple(
            axis_size(axis, sizes) if all(term.name in sizes for term in axis.terms) else size
            for axis, size in zip(axes, leaf.shape, strict=True)
        )
        for axes, leaf in zip(shaped.result_axes, shaped.results, strict=True)
    ]


def _struct(leaf: Any) -> Struct:
    return Struct(leaf.shape, leaf.dtype)


def _expand(operation: Operation, operands: Sequence[Struct]) -> Operation:
    if not operation.signature.has_ellipsis:
        return operation
    remaining = iter(operands)
    ranks = [None if o.coordinate is not None else len(next(remaining).shape) for o in operation.signature.operands]
    rank = operation.signature.ellipsis_rank(ranks, where=operation.name)
    carrier = operation.carrier
    if carrier is not None:
        carrier = tuple(spell(axes, rank) for axes in carrier)
    return replace(operation, signature=operation.signature.expand(rank), carrier=carrier)


def _kernel_result(operation: Operation, blocks: Sequence[Struct]) -> Any:
    try:
        return result_types(operation.kernel, blocks, f"the kernel of `{operation.name}`")
    except TapestryError:
        raise
    except Exception as error:
        got = ", ".join(f"{block.dtype.name}{list(block.shape)}" for block in blocks)
        raise SignatureError(
            message(
                f"the kernel of `{operation.name}` does not take its blocks",
                f"signature {operation.signature}",
                f"blocks    {got}",
                f"kernel    {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}",
                remedy="Make the kernel and the signature agree: blocks come in the signature's axis order.",
            )
        ) from error


def _result_axes(operation: Operation, leaves: Sequence[Any]) -> tuple[tuple[Axis, ...], ...]:
    """The axes of each result leaf; cells of an aggregate may have axes of their own behind the signature's."""
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


def _carrier(operation: Operation, leaves: Sequence[Any]) -> tuple[Axes, ...]:
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


def _presented(
    operation: Operation, carrier: tuple[Axes, ...], leaves: list[Any], tree: Any
) -> tuple[list[Struct], tuple[tuple[Axis, ...], ...], Any]:
    if operation.present is None:
        return [_struct(leaf) for leaf in leaves], _result_axes(operation, leaves), tree
    shared, cells = set(shared_axes(carrier)), _cells(carrier, leaves)
    cell = jax.tree.unflatten(tree, cells)
    try:
        presented = result_types(operation.present, (cell,), f"`present` of `{operation.name}`")
    except TapestryError:
        raise
    except Exception as error:
        told = str(error).splitlines()
        raise SignatureError(
            message(
                f"`present` of `{operation.name}` does not take a state",
                f"one cell {_types(cell)}",
                f"present  {type(error).__name__}: {told[0] if told else ''}",
                remedy="Write present= for one cell of the state, in the tree that the kernel returns.",
            )
        ) from error
    cell_out, result_tree = jax.tree.flatten(presented)
    lifted = [Struct((0,) * (len(shared) + len(leaf.shape)), leaf.dtype) for leaf in cell_out]
    axes = _result_axes(operation, lifted)
    names = [tuple(axis.name or axis.whole_name or "1" for axis in leaf_axes) for leaf_axes in axes]

    def block(state: list[Any]) -> list[Any]:
        return present_block(operation.present, tree, carrier, names, state)

    return [_struct(leaf) for leaf in jax.eval_shape(block, list(leaves))], axes, result_tree


def _check_state(operation: Operation, leaves: list[Any], carrier: tuple[Axes, ...], sizes: dict[str, int]) -> None:
    for leaf, axes in zip(leaves, carrier, strict=True):
        found: tuple[int, ...] = tuple(leaf.shape)
        own = found + (0,) * (len(axes) - len(found))
        expected = tuple(sizes.get(name.removeprefix("~"), size) for name, size in zip(axes, own, strict=False))
        if len(axes) != len(found) or expected != found:
            _refuse(operation, f"state leaf ({' '.join(axes)})", expected, found)


def _check_monoid(operation: Operation, carrier: tuple[Axes, ...], leaves: list[Any], tree: Any) -> None:
    """Hold the monoid against the state before anything is merged: a plan must not be the first to merge."""
    monoid = operation.monoid
    assert monoid is not None
    cell = jax.tree.unflatten(tree, _cells(carrier, leaves))
    where = f"the monoid of `{operation.name}`"

    def merge(left: Any, right: Any) -> Any:
        return monoid.merge(left, right), monoid.identity_for(cell)

    try:
        merged, identity = result_types(merge, (cell, cell), where, of=monoid)
        problem = None if _types(merged) == _types(cell) == _types(identity) else f"combined {_types(merged)}"
    except TapestryError:
        raise
    except Exception as error:  # noqa: BLE001 - the monoid is the user's and may raise anything
        problem = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
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


def _types(tree: Any) -> str:
    leaves = ", ".join(f"{leaf.dtype.name}{list(leaf.shape)}" for leaf in jax.tree.leaves(tree))
    return f"({leaves})"


def _cells(carrier: tuple[Axes, ...], leaves: Sequence[Any]) -> list[Struct]:
    shared = set(shared_axes(carrier))
    return [
        Struct(tuple(s for s, a in zip(leaf.shape, axes, strict=True) if a not in shared), leaf.dtype)
        for leaf, axes in zip(leaves, carrier, strict=True)
    ]


def _check(
    operation: Operation, leaves: Sequence[Any], result_axes: tuple[tuple[Axis, ...], ...], sizes: dict[str, int]
) -> None:
    for leaf, axes in zip(leaves, result_axes, strict=True):
        known = [axis for axis in axes if all(term.name in sizes for term in axis.terms)]
        expected = tuple(axis_size(axis, sizes) for axis in known) + leaf.shape[len(known) :]
        if len(axes) != len(leaf.shape) or expected != leaf.shape:
            _refuse(operation, f"result ({' '.join(map(str, axes))})", expected, leaf.shape)


def _refuse(operation: Operation, what: str, expected: tuple[int, ...], got: tuple[int, ...]) -> None:
    raise SignatureError(
        message(
            f"the kernel of `{operation.name}` returns another shape than its signature says",
            f"signature {operation.signature}",
            f"{what}: expected {expected}, got {got}",
            remedy="Mend the kernel, or the signature's results.",
        )
    )
