"""An operation at given operand shapes: the sizes of its index space, its state and its results, found abstractly."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp

from combinators.errors import SignatureError, TapestryError, first_line, message
from combinators.frozen import dataclass
from combinators.index_space.axis import Axis
from combinators.index_space.extent import axis_extent
from combinators.index_space.operand import Operand
from combinators.index_space.signature import Signature
from combinators.index_space.sizes import solve_sizes
from combinators.kernels.captured import check_captured, program_and_types, program_at
from combinators.kernels.immutable import Immutable
from combinators.kernels.reachable import holds_own_code
from combinators.merging.blocks import Axes
from combinators.operations.cells import spell
from combinators.operations.dense import as_dense
from combinators.operations.operation import Operation
from combinators.operations.results import Struct, check_results, result_axes, struct_of
from combinators.operations.states import carrier_of, cell_of, check_monoid, check_state, presented_state
from combinators.settings import remembered, settings

_WRITTEN = "somebody wrote its derivative"
_WRITTEN_STATES = "somebody wrote a derivative of what merges or presents"
DOUBLES = "jax_enable_x64"
"""Among what is known of an operation: whether it was traced where there are doubles."""


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

    @cached_property
    def known(self) -> dict[Hashable, Any]:
        """What was found out about it, by whoever asks for it often: equal operations of equal sizes share it."""
        return {}

    @property
    def signature(self) -> Signature:
        """The expanded signature."""
        return self.operation.signature

    @property
    def result_names(self) -> tuple[Axes, ...]:
        """The axes of the result leaves as strings."""
        return tuple(tuple(str(axis) if axis.name is None else axis.name for axis in axes) for axes in self.result_axes)


@remembered(maxsize=4096)
def shape(operation: Operation, operands: tuple[Struct, ...]) -> Shaped:
    """Find the sizes, the state and the results of `operation` on operands of these types.

    Args:
      operation: any leaf.
      operands: types of the array operands, in order; coordinate operands are left out.

    Raises:
      SignatureError: when the operands do not fit the signature, or the kernel's result does not.
    """
    check_count(operation.signature, len(operands), where=operation.name)
    operation = _expand(operation, operands)
    signature = operation.signature
    remaining = iter(operands)
    shapes = [None if o.coordinate is not None else next(remaining).shape for o in signature.operands]
    sizes = solve_sizes(
        signature, shapes, given=dict(operation.sizes), boundary=operation.boundary, where=operation.name
    )
    blocks = block_structs(signature, operands, sizes)
    program, out = _kernel_result(operation, blocks)
    for entry in map(as_dense, operation.dense):
        check_captured(entry.kernel, blocks, f"a dense kernel of `{operation.name}`")
    leaves, tree = jax.tree.flatten(out)
    if operation.monoid is None:
        axes = result_axes(operation, leaves)
        check_results(operation, leaves, axes, sizes)
        _check_declared(operation, operands, sizes, program, [[axis.name for axis in each] for each in axes])
        results = list(map(struct_of, leaves))
        return _noted(Shaped(operation, sizes, (), (), None, tuple(results), axes, tree), program)
    carrier = carrier_of(operation, leaves)
    check_state(operation, leaves, carrier, sizes)
    _check_declared(operation, operands, sizes, program, carrier)
    check_monoid(operation, carrier, leaves, tree)
    results, axes, result_tree = presented_state(operation, carrier, leaves, tree)
    check_results(operation, results, axes, sizes)
    state = tuple(map(struct_of, leaves))
    return _noted(Shaped(operation, sizes, carrier, state, tree, tuple(results), axes, result_tree), program)


def is_written(shaped: Shaped, operands: Sequence[Any]) -> bool:
    """Whether somebody wrote a derivative of the kernel, or of a function that it calls.

    Args:
      shaped: the operation.
      operands: arrays of the types of its array operands, or their types.
    """
    if _WRITTEN not in shaped.known:
        blocks = block_structs(shaped.signature, [Struct(each.shape, each.dtype) for each in operands], shaped.sizes)
        _noted(shaped, program_at(shaped.operation.kernel, blocks))
    return bool(shaped.known[_WRITTEN])


def has_written_states(shaped: Shaped) -> bool:
    """Whether somebody wrote a derivative of what merges the states of an operation, or presents them."""
    if _WRITTEN_STATES not in shaped.known:
        # Here, not at the top: a library that is imported need not load it.
        from combinators.declared.backward import has_written

        operation, monoid = shaped.operation, shaped.operation.monoid
        cell = cell_of(shaped.carrier, list(shaped.state), shaped.state_tree)
        asked: list[tuple[Any, Any, int]] = []
        if monoid is not None and monoid.native is None:
            asked.append((monoid.merge, monoid.combine, 2))
        if operation.present is not None:
            asked.append((operation.present, operation.present, 1))
        programs = [program_at(run, (cell,) * count) for run, own, count in asked if holds_own_code(own)]
        shaped.known[_WRITTEN_STATES] = any(program is not None and has_written(program) for program in programs)
    return bool(shaped.known[_WRITTEN_STATES])


def _noted(shaped: Shaped, program: Any) -> Shaped:
    """The same, which knows of its kernel whether somebody wrote its derivative."""
    # Here, not at the top: a library that is imported need not load it.
    from combinators.declared.backward import has_written

    shaped.known[_WRITTEN] = program is not None and has_written(program)
    shaped.known.setdefault(DOUBLES, bool(settings()["enable_x64"]))
    return shaped


def check_count(signature: Signature, given: int, *, where: str) -> None:
    """Refuse another number of arrays than a signature has operands; `where` is what they are given to."""
    count = sum(operand.coordinate is None for operand in signature.operands)
    if count != given:
        raise SignatureError(
            message(
                f"`{where}` takes {count} operand{'s' * (count != 1)}, got {given}",
                f"signature {signature}",
                remedy="Pass one array for each operand of the signature; the library supplies coordinates `@q`.",
            )
        )


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


def _check_declared(
    operation: Operation,
    operands: Sequence[Struct],
    sizes: dict[str, int],
    program: Any,
    results: Sequence[Sequence[str | None]],
) -> None:
    # Here, not at the top: a library that is imported need not load it.
    from combinators.declared.check import Claim, check_declared

    combine = None if operation.monoid is None else operation.monoid.combine
    claim = Claim(operation.name, operation.signature, sizes, operation.over, combine)

    def again(others: dict[str, int]) -> Any:
        return program_at(operation.kernel, block_structs(operation.signature, operands, others))

    check_declared(claim, program, results, again)


def _kernel_result(operation: Operation, blocks: Sequence[Struct]) -> tuple[Any, Any]:
    """The program of the kernel on its blocks, and the types of what it gives."""
    try:
        return program_and_types(operation.kernel, blocks, f"the kernel of `{operation.name}`")
    except TapestryError:
        raise
    except Exception as error:
        got = ", ".join(f"{block.dtype.name}{list(block.shape)}" for block in blocks)
        raise SignatureError(
            message(
                f"the kernel of `{operation.name}` does not take its blocks",
                f"signature {operation.signature}",
                f"blocks    {got}",
                f"kernel    {first_line(error)}",
                remedy="Make the kernel and the signature agree: blocks come in the signature's axis order.",
            )
        ) from error
