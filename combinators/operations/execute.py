"""Running one operation on blocks: what an unplanned program and every plan have in common."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from combinators.index_space.axis import Axis
from combinators.index_space.boundary import OWN, boundary_modes
from combinators.index_space.extent import axis_extent
from combinators.index_space.operand import Operand
from combinators.merging.blocks import Axes, combine_blocks, present_block
from combinators.numerics.row_scan import prefixes, rows_on
from combinators.operations.shaped import Shaped

# What is valid reads nothing outside; blocks that are padded ask for cells there nevertheless, which no index reads.
_PAD_MODES = {"valid": "edge", "zero": "constant", "periodic": "wrap", "reflect": "reflect", "edge": "edge"}


def read_operand(
    operand: Operand, array: Any, sizes: Mapping[str, int], modes: Sequence[str], *, fused: bool = False
) -> Any:
    """Crop, or extend by the boundary, to exactly the cells that an index box `[0, size)` reads.

    Args:
      operand: of the signature.
      array: all of it.
      sizes: of the index box.
      modes: of the boundary, by axes.
      fused: whether the compiler may put the block together where it is read, as convolutions of a library like it.
    """
    whole = array
    for axis_number, (axis, mode) in enumerate(zip(operand.axes, modes, strict=True)):
        if axis.is_window:
            low, high = axis_extent(axis, dict(sizes))
            array = read_axis(array, axis_number, low, max(high, low), mode)
    extended = any(size > known for size, known in zip(array.shape, whole.shape, strict=True))
    return together(array) if extended and not fused else array


def read_axis(array: Any, axis: int, low: int, high: int, mode: str) -> Any:
    """Cells `[low, high)` of one axis, those outside answered by the boundary `mode`, unless the kernel does."""
    if mode == OWN:
        return array
    before, after = max(-low, 0), max(high - array.shape[axis], 0)
    if before or after:
        widths = [(0, 0)] * array.ndim
        widths[axis] = (before, after)
        array = jnp.pad(array, widths, mode=_PAD_MODES[mode])
    return lax.slice_in_dim(array, low + before, high + before, axis=axis)


def together(array: Any) -> Any:
    """Put a block together once, before its kernel reads it.

    Fused into the kernel, a padding or concatenation is a choice for every cell that is read, and stencils read every
    cell often: on a CPU a step on 2048 x 2048 cells took twice as long, one on 256 x 64 three times.
    """
    return lax.optimization_barrier(array)


def axis_modes(shaped: Shaped) -> list[list[str]]:
    """For every operand and axis the boundary mode that holds there."""
    modes = iter(boundary_modes(shaped.signature, shaped.operation.boundary))
    return [
        [next(modes) if axis.is_window else "valid" for axis in operand.axes] for operand in shaped.signature.operands
    ]


def run_blocks(shaped: Shaped, blocks: Sequence[Any], platforms: Collection[str] = ()) -> list[Any]:
    """Run an operation of which no fold or scan dimension is cut; returns the leaves of its result.

    Its kernels have been chosen by `combinators.operations.ready.ready`: a dense one has no conditions left.

    Args:
      shaped: the operation.
      blocks: of its operands.
      platforms: that it is lowered for, where they are known; they choose how long scans run.
    """
    operation = shaped.operation
    if operation.dense:
        return _arrays(operation.dense[0](*blocks))
    if operation.kind == "map":
        return _arrays(operation.kernel(*blocks))
    if operation.kind == "scan":
        return present(shaped, scan_states(shaped, states(shaped, blocks), platforms))
    return present(shaped, states(shaped, blocks))


def states(shaped: Shaped, blocks: Sequence[Any]) -> list[Any]:
    """The leaves of the state block that the kernel gives: partial folds, or the steps of a scan."""
    return _arrays(shaped.operation.kernel(*blocks))


def _arrays(found: Any) -> list[Any]:
    """The leaves of what a kernel gives, which may be plain numbers (`len(x)`)."""
    leaves = jax.tree.leaves(found)
    return [jnp.asarray(leaf) if isinstance(leaf, (int, float, complex)) else leaf for leaf in leaves]


def scan_states(shaped: Shaped, steps: list[Any], platforms: Collection[str] = ()) -> list[Any]:
    """Prefixes of a block of steps along the scanned dimension, as the operation wants them."""
    operation = shaped.operation
    assert operation.monoid is not None and operation.over is not None
    arguments = (operation.monoid, shaped.state_tree, shaped.carrier, operation.over)
    return prefixes(*arguments, steps, rows_on(platforms), operation.reverse, operation.exclusive)


def present(shaped: Shaped, state: list[Any]) -> list[Any]:
    """State leaves to result leaves."""
    names = [_names(axes) for axes in shaped.result_axes]
    return present_block(shaped.operation.present, shaped.state_tree, shaped.carrier, names, state)


def combine(shaped: Shaped, carrier: Sequence[Axes], left: list[Any], right: list[Any]) -> list[Any]:
    """Merge two state blocks whose leaves have the axes `carrier`."""
    assert shaped.operation.monoid is not None
    return combine_blocks(shaped.operation.monoid, shaped.state_tree, carrier, left, right)


def _names(axes: Sequence[Axis]) -> Axes:
    return tuple(axis.name or axis.whole_name or str(axis) for axis in axes)


Kernel = Callable[..., Any]
