"""Running a kernel on changed operands, to see which coordinates of its results answer."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from typing import Any, final

import jax
import numpy as np

from combinators.errors import KernelError, TapestryError, first_line, message, spelt
from combinators.frozen import dataclass
from combinators.index_space.tensor_type import TensorType, type_of
from tapestry_jax.inference.draws import Array, changes, exact_operands, operands_of
from tapestry_jax.inference.relation import Relation, read_relation

Place = tuple[int, int]
"""An operand, or a result, and one of its axes."""


@final
@dataclass(frozen=True)
class Answer:
    """What answers to an axis of an operand, or to an operand without axes.

    Attributes:
      results: those of which any coordinate changed.
      relations: how each axis of each result hangs together with it.
    """

    results: frozenset[int]
    relations: Mapping[Place, Relation]


@final
class Probe:
    """A kernel, the types of its operands, and numbers to run it on.

    Args:
      function: operands -> array, or tuple of arrays.
      types: of the operands.
      name: what errors call the kernel.
    """

    def __init__(self, function: Callable[..., Any], types: Sequence[TensorType], name: str) -> None:
        self.types, self.name = tuple(types), name
        self._function = function
        self._run: Callable[..., Any] = jax.jit(self._checked)
        self.operands, self.exact = operands_of(self.types), exact_operands(self.types)

    def run(self, operands: Sequence[Any]) -> list[Array]:
        """The results as NumPy arrays.

        Raises:
          GraphError: when the kernel returns what is no array.
          KernelError: when it returns nothing, or cannot run on operands of these sizes.
        """
        return [np.asarray(leaf) for leaf in jax.tree.leaves(self._called(self._run, operands))]

    @cached_property
    def results(self) -> list[list[Array]]:
        """What comes of the unchanged operands, for each draw."""
        return [self.run(operands) for operands in self.operands]

    @cached_property
    def exact_results(self) -> list[list[Array]]:
        """What comes of the operands whose sums are exact, for each draw."""
        return [self.run(operands) for operands in self.exact]

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Of the results."""
        return [result.shape for result in self.results[0]]

    @cached_property
    def is_tuple(self) -> bool:
        """Whether the kernel returns a plain tuple of arrays."""
        tree = jax.tree.structure(self._shaped(self.types))
        return tree == jax.tree.structure((0,) * len(self.shapes))

    def grown(self, places: Collection[Place]) -> list[tuple[int, ...]] | None:
        """The shapes of the results where axes of operands have one cell more; None where the kernel refuses."""
        larger = [
            TensorType([n + ((operand, axis) in places) for axis, n in enumerate(kind.shape)], kind.dtype)
            for operand, kind in enumerate(self.types)
        ]
        try:
            found = self._shaped(larger)
        except TapestryError:
            return None
        return [tuple(leaf.shape) for leaf in jax.tree.leaves(found)]

    def answer(self, operand: int, axis: int | None) -> Answer:
        """Change an operand slab by slab, and see which coordinates of the results change.

        Args:
          operand: its number.
          axis: across which slabs are taken; None changes the whole operand.
        """
        size = 1 if axis is None else self.types[operand].shape[axis]
        found = [[np.zeros((size, n), bool) for n in shape] for shape in self.shapes]
        touched: set[int] = set()
        for operands, plain in zip(self.operands, self.results, strict=True):
            for at in range(size):
                place = () if axis is None else (slice(None),) * axis + (at,)
                for changed in changes(operands[operand], place):
                    results = self.run([*operands[:operand], changed, *operands[operand + 1 :]])
                    for number, (result, before) in enumerate(zip(results, plain, strict=True)):
                        answered = ~_same(result, before)
                        touched |= {number} if answered.any() else set()
                        for matrix, across in zip(found[number], range(result.ndim), strict=True):
                            others = tuple(i for i in range(result.ndim) if i != across)
                            matrix[at] |= answered.any(axis=others)
        relations = {
            (number, across): read_relation(matrix)
            for number, matrices in enumerate(found)
            for across, matrix in enumerate(matrices)
        }
        return Answer(frozenset(touched), relations)

    def _shaped(self, types: Sequence[TensorType]) -> Any:
        return self._called(lambda *structs: jax.eval_shape(self._checked, *structs), [kind.struct for kind in types])

    def _called(self, run: Callable[..., Any], operands: Sequence[Any]) -> Any:
        try:
            return run(*operands)
        except TapestryError:
            raise
        except Exception as error:
            shapes = ", ".join(str(tuple(x.shape)) for x in operands)
            raise KernelError(
                message(
                    f"tp.infer: `{self.name}` cannot run on operands of shapes {shapes}.",
                    "expected an array, or a tuple of arrays",
                    f"got {first_line(error)}",
                    remedy="Pass the types of operands that it takes.",
                )
            ) from error

    def _checked(self, *operands: Any) -> Any:
        result = self._function(*operands)
        leaves = jax.tree.leaves(result)
        if not leaves:
            raise KernelError(
                message(
                    f"tp.infer: `{self.name}` returns nothing.",
                    "expected an array, or a tuple of arrays",
                    f"got {spelt(result)}",
                    remedy="Return at least one array.",
                )
            )
        for number, leaf in enumerate(leaves):
            type_of(leaf, f"tp.infer: result {number} of `{self.name}`")
        return result


def say(place: Place, what: str = "operand") -> str:
    """A place in words."""
    return f"axis {place[1]} of {what} {place[0]}"


def sliced(array: Any, axis: int, low: int, high: int) -> Any:
    """The coordinates `[low, high)` of an axis."""
    return array[(slice(None),) * axis + (slice(low, high),)]


def is_close(a: Any, b: Any) -> bool:
    """Whether two results are equal but for rounding, in the shorter of their dtypes; NaN is equal to NaN."""
    if np.shape(a) != np.shape(b):
        return False
    rtol = max([1e-4, *(8 * float(jax.numpy.finfo(x.dtype).eps) for x in (a, b) if _is_float(x))])
    return bool(np.allclose(np.asarray(a, complex), np.asarray(b, complex), rtol=rtol, atol=rtol / 10, equal_nan=True))


def _is_float(array: Any) -> bool:
    return bool(jax.numpy.issubdtype(array.dtype, jax.numpy.inexact))


def _same(a: Array, b: Array) -> Array:
    return np.asarray((a == b) | ((a != a) & (b != b)))
