"""Running a kernel on changed operands, to see which coordinates of its results answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np

from combinators.errors import KernelError, message

Array = np.ndarray[Any, Any]
SEEDS = (0, 1)
_SHARES = (0.5, 0.5, 0.0, 1.0)  # of truth among booleans: some kernels answer only where all are alike


@final
class Probe:
    """A kernel, the types of its operands, and numbers to run it on.

    Args:
      function: operands -> array, or tuple of arrays.
      specs: types of the operands.
      name: what errors call the kernel.
    """

    def __init__(self, function: Callable[..., Any], specs: Sequence[Any], name: str) -> None:
        self.specs, self.name = tuple(specs), name
        self._run: Callable[..., Any] = jax.jit(function)
        seeds = range(len(_SHARES)) if any(_kind(spec) == "b" for spec in self.specs) else SEEDS
        self.operands = [self._fill(seed) for seed in seeds]

    def run(self, operands: Sequence[Any]) -> list[Array]:
        """The results as NumPy arrays.

        Raises:
          KernelError: when the kernel cannot run on operands of these sizes.
        """
        try:
            return [np.asarray(leaf) for leaf in jax.tree.leaves(self._run(*operands))]
        except Exception as error:
            shapes = ", ".join(str(tuple(np.shape(x))) for x in operands)
            raise KernelError(
                message(
                    f"tp.infer: `{self.name}` cannot run on operands of shapes {shapes}.",
                    f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}",
                    remedy="Pass the types of operands that it takes.",
                )
            ) from error

    @cached_property
    def results(self) -> list[list[Array]]:
        """What comes of the unchanged operands, for each seed."""
        return [self.run(operands) for operands in self.operands]

    def answers(self, operand: int, axis: int) -> list[list[Array]]:
        """Which coordinates of the results change with each coordinate of an operand's axis.

        Returns:
          For every result and every axis of it a matrix of booleans: a row for each coordinate of the operand's axis,
          a column for each coordinate of the result's.
        """
        size = self.specs[operand].shape[axis]
        shapes = [result.shape for result in self.results[0]]
        found = [[np.zeros((size, n), bool) for n in shape] for shape in shapes]
        for seed, operands in enumerate(self.operands):
            for at in range(size):
                for changed in _changes(operands[operand], axis, at):
                    results = self.run([*operands[:operand], changed, *operands[operand + 1 :]])
                    for matrices, result, plain in zip(found, results, self.results[seed], strict=True):
                        answered = ~_same(result, plain)
                        for number, matrix in enumerate(matrices):
                            others = tuple(i for i in range(result.ndim) if i != number)
                            matrix[at] |= answered.any(axis=others)
        return found

    def _fill(self, seed: int) -> list[Array]:
        source = np.random.default_rng(seed)
        return [_numbers(spec, source, _SHARES[seed]) for spec in self.specs]


def small_integers(specs: Sequence[Any], seed: int = 7) -> list[Array]:
    """Operands whose sums and products are exact."""
    source = np.random.default_rng(seed)
    return [source.integers(0 if _kind(s) == "i" else -3, 4, s.shape).astype(s.dtype) for s in specs]


def _numbers(spec: Any, source: np.random.Generator, share: float) -> Array:
    match _kind(spec):
        case "b":
            return source.random(spec.shape) < share
        case "i":
            return source.integers(0, 4, spec.shape).astype(spec.dtype)
        case "c":
            real, imaginary = source.standard_normal(spec.shape), source.standard_normal(spec.shape)
            return (real + 1j * imaginary).astype(spec.dtype)
        case _:
            return source.standard_normal(spec.shape).astype(spec.dtype)


def _kind(spec: Any) -> str:
    if spec.dtype == np.bool_:
        return "b"
    if jnp.issubdtype(spec.dtype, jnp.complexfloating):
        return "c"
    return "f" if jnp.issubdtype(spec.dtype, jnp.floating) else "i"


def _changes(array: Array, axis: int, at: int) -> list[Array]:
    """The array with one slab changed: to NaN, and to larger and smaller numbers; to its opposite where it is boolean.

    NaN alone is not enough, since a maximum or a comparison may drop it; nor is one number, since it may not win.
    """
    place = (slice(None),) * axis + (at,)
    if array.dtype == bool:
        slabs: list[Any] = [~array[place]]
    elif jnp.issubdtype(array.dtype, jnp.integer):
        slabs = [(array[place] + 1) % 4, (array[place] + 2) % 4]
    else:
        slabs = [np.nan, array[place] + 11, array[place] * 2 - 13]
    changed: list[Array] = []
    for slab in slabs:
        copy = array.copy()
        copy[place] = slab
        changed.append(copy)
    return changed


def _same(a: Array, b: Array) -> Array:
    return np.asarray((a == b) | ((a != a) & (b != b)))
