"""Programs that act cell by cell, on blocks of any size: what chains of elementwise primitives become."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from combinators.frozen import dataclass
from tapestry_jax.lifting.kernels.derivatives import Run, with_pulled, with_tangents
from tapestry_jax.lifting.kernels.primitives import Params, run

# These want operands of one shape; the others spread numbers and axes of size 1 by themselves.
_OF_ONE_SHAPE = frozenset({"add_any", "clamp", "select_n"})
ITSELF = "itself"
"""In the derivative of a function that its author wrote, a call of that function, or of one that it stands in."""


@dataclass(frozen=True)
class Instruction:
    """One primitive of a program.

    Attributes:
      primitive: its name; of a rule, how users call it.
      params: its parameters, which hold no sizes.
      inputs: registers, as Python integers, and numbers, as NumPy scalars.
      rule: the function with derivatives of its own that stands here; None for a primitive.
    """

    primitive: str
    params: Params
    inputs: tuple[Any, ...]
    rule: Rule | None = None

    @property
    def count(self) -> int:
        """How many results it has: primitives that act cell by cell have one."""
        if self.rule is not None:
            return len(self.rule.value.outputs)
        return dict(self.params)["results"] if self.primitive == ITSELF else 1

    def __call__(self, registers: Sequence[Any], outer: tuple[Rule, ...]) -> list[Any]:
        """Its results; `outer` are the rules that it stands in, the outermost first."""
        operands = [registers[at] if type(at) is int else at for at in self.inputs]
        if self.primitive == ITSELF:
            at = len(outer) - 1 - dict(self.params)["above"]
            return outer[at](outer[:at], *_of_one_shape(operands))
        if self.rule is not None:
            return self.rule(outer, *_of_one_shape(operands))
        if self.primitive in _OF_ONE_SHAPE:
            operands = _of_one_shape(operands)
        return run(self.primitive, self.params, operands)


@dataclass(frozen=True)
class Program:
    """Instructions on operands that spread over each other's axes of size 1.

    Attributes:
      instructions: in order; the results of each get the next registers, behind the operands'.
      outputs: registers, or numbers as NumPy scalars.
    """

    instructions: tuple[Instruction, ...]
    outputs: tuple[Any, ...]

    def __call__(self, operands: Sequence[Any], outer: tuple[Rule, ...] = ()) -> list[Any]:
        """The outputs, as far as they have been spread."""
        registers = list(operands)
        for instruction in self.instructions:
            registers.extend(instruction(registers, outer))
        return [registers[at] if type(at) is int else as_computed(at) for at in self.outputs]


@dataclass(frozen=True)
class Rule:
    """A function cell by cell whose derivative its author wrote.

    Attributes:
      value: operands to results.
      tangents: operands and their tangents to results and their tangents; None where `pulled` is there.
      pulled: operands and cotangents of the results to cotangents of the operands; None where `tangents` is there.
      floats: for each operand whether it has a derivative.
    """

    value: Program
    tangents: Program | None
    pulled: Program | None
    floats: tuple[bool, ...]

    def __call__(self, outer: tuple[Rule, ...], *operands: Any) -> list[Any]:
        """The results."""
        inside, shape = (*outer, self), np.shape(operands[0]) if operands else ()

        def spread(program: Program) -> Run:
            return lambda given: [jnp.broadcast_to(leaf, shape) for leaf in program(given, inside)]

        if self.tangents is not None:
            return with_tangents(
                spread(self.value), spread(self.tangents), self.floats, operands, len(self.value.outputs)
            )
        assert self.pulled is not None
        return with_pulled(spread(self.value), spread(self.pulled), self.floats, operands)


@dataclass(frozen=True)
class Cells:
    """A program cell by cell on operands whose axes lie in any order, some missing.

    Attributes:
      program: takes the operands and then the coordinates, all of the rank of the index space.
      reads: for each operand the dimension of every axis, as its number; None for an axis of size 1.
      coordinates: the dimensions whose coordinates are operands, behind the others.
      writes: for each result the dimension of every axis; None for an axis of size 1.
      rank: how many dimensions the index space has.
      unread: how many coordinates, the last ones, only tell how large a block is: the program does not take them.
    """

    program: Program
    reads: tuple[tuple[int | None, ...], ...]
    coordinates: tuple[int, ...]
    writes: tuple[tuple[int | None, ...], ...]
    rank: int
    unread: int = 0

    def __call__(self, *blocks: Any) -> Any:
        """The result blocks."""
        reads = (*self.reads, *((dim,) for dim in self.coordinates))
        sizes = [1] * self.rank
        for block, dims in zip(blocks, reads, strict=True):
            for dim, size in zip(dims, block.shape, strict=True):
                if dim is not None:
                    sizes[dim] = size
        taken = list(zip(blocks, reads, strict=True))[: len(blocks) - self.unread]
        placed = [_placed(block, dims, self.rank) for block, dims in taken]
        out = [_written(array, dims, sizes) for array, dims in zip(self.program(placed), self.writes, strict=True)]
        return out[0] if len(out) == 1 else tuple(out)


def as_computed(constant: Any) -> Any:
    """A constant as what a program computes: an array that was there before belongs to no mesh."""
    return lax.broadcast(constant, (1,)).reshape(np.shape(constant))


def _placed(block: Any, dims: Sequence[int | None], rank: int) -> Any:
    """The block with its axes in the order of the dimensions, and size 1 where it has none."""
    if tuple(dims) == tuple(range(rank)):
        return block
    kept = [axis for axis, dim in enumerate(dims) if dim is not None]
    order = sorted(kept, key=lambda axis: dims[axis] or 0)
    squeezed = block.reshape([block.shape[axis] for axis in kept]) if len(kept) < len(dims) else block
    moved = jnp.transpose(squeezed, [kept.index(axis) for axis in order]) if order != kept else squeezed
    present = [dims[axis] for axis in order]
    return jnp.expand_dims(moved, [dim for dim in range(rank) if dim not in present])


def _written(array: Any, dims: Sequence[int | None], sizes: Sequence[int]) -> Any:
    """A result that lies in the order of the dimensions, in the order of its axes."""
    kept = [dim for dim in dims if dim is not None]
    full = jnp.broadcast_to(array, [size if dim in kept else 1 for dim, size in enumerate(sizes)])
    if kept == list(range(len(sizes))) and len(kept) == len(dims):
        return full
    flat = full.reshape([sizes[dim] for dim in sorted(kept)])
    moved = jnp.transpose(flat, [sorted(kept).index(dim) for dim in kept])
    return jnp.expand_dims(moved, [axis for axis, dim in enumerate(dims) if dim is None])


def _of_one_shape(operands: Sequence[Any]) -> list[Any]:
    shape = np.broadcast_shapes(*(np.shape(operand) for operand in operands))
    return [jnp.broadcast_to(operand, shape) for operand in operands]
