"""Reductions of several arrays in one pass over memory: of one aggregator, or of several that read the same input."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Protocol, cast, final, runtime_checkable

import jax
import jax.numpy as jnp
from jax import lax

from combinators.monoids.elementwise import highest, lowest

Kind = Literal["sum", "max", "min"]

DEPTH, LANES = 16, 1024
"""Rows that one step adds, and how many such sums, of all entries of a cell, stand side by side.

Measured on a CPU with 16.8M float32 (64 MB) and four sums of powers: 4 ms, where four separate sums take 50 ms and one
reduction in a single level 31 ms, with an error of 3e-2 where this one has 1e-7. Half the depth takes twice as long.
"""


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def reduce_together(kinds: tuple[Kind, ...], *arrays: Any) -> tuple[Any, ...]:
    """Reduce several arrays along their leading axes.

    XLA fuses what the arrays are computed from into the reductions, and reads it once: a reduction of several operands
    is one loop. Long axes are reduced in levels, which is what keeps the rounding error of sums small.

    Args:
      kinds: of each array, how it is reduced. NaN wins in maximum and minimum, which on CPUs it does not in those of
        `jnp` (JAX 0.10.2: an axis of some thousands with a NaN has the maximum of the others).
      arrays: all of one shape `(n, ...)`.

    Returns:
      One reduction of shape `(...)` for each array; for `n = 0` zero, or the least or greatest value of the dtype.
    """
    shape = arrays[0].shape
    width = max(1, LANES // max(1, math.prod(shape[1:])))
    blocks = shape[0] // (DEPTH * width)
    if blocks and len(kinds) == 1 and _drops_nan(kinds[0], arrays[0]):
        # Of several operands a reduction is never one of XLA's own.
        half = shape[0] // 2
        ends = (arrays[0][:half], arrays[0][half : 2 * half], arrays[0][2 * half :])
        parts = (*reduce_together(kinds * 2, *ends[:2]), _reduced(kinds[0], ends[2]))
        return (jax.tree.reduce(_merge_of(kinds[0]), parts),)
    if blocks == 0 or kinds == ("sum",):
        return tuple(_reduced(kind, array) for kind, array in zip(kinds, arrays, strict=True))
    whole = blocks * DEPTH * width
    heads = tuple(array[:whole].reshape(blocks, DEPTH, width, *shape[1:]) for array in arrays)
    merges = [_merge_of(kind) for kind in kinds]

    def merge(left: Sequence[Any], right: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(each(a, b) for each, a, b in zip(merges, left, right, strict=True))

    starts = tuple(_start(kind, array.dtype) for kind, array in zip(kinds, arrays, strict=True))
    # Separate from here on: what is left is read from memory array by array, and XLA would make two levels one again.
    lanes = cast("tuple[Any, ...]", lax.optimization_barrier(lax.reduce(heads, starts, merge, (1,))))
    return tuple(
        each(_along_lanes(kind, lane), _reduced(kind, array[whole:]))
        for kind, each, lane, array in zip(kinds, merges, lanes, arrays, strict=True)
    )


@reduce_together.defjvp
def _(kinds: tuple[Kind, ...], primals: Any, tangents: Any) -> Any:
    # Derivatives take the plain reductions: that of a sum transposes to a broadcast.
    values = reduce_together(kinds, *primals)
    return values, tuple(map(_change, kinds, primals, tangents))


@final
@dataclass(frozen=True)
class Reductions:
    """What a `lift_many` reduces.

    Attributes:
      terms: (kind, array) pairs; arrays are computed from the input entry by entry.
      finish: (their reductions) -> state.
    """

    terms: tuple[tuple[Kind, Any], ...]
    finish: Callable[[Sequence[Any]], Any]

    def run(self) -> Any:
        """The state, in one pass over the input."""
        # What two of them ask for, such as a total and the total of a mean, is reduced once.
        once: dict[tuple[Kind, int], Any] = {(kind, id(array)): array for kind, array in self.terms}
        kinds = tuple(kind for kind, _ in once)
        found = dict(zip(once, reduce_together(kinds, *once.values()) if once else (), strict=True))
        return self.finish([found[kind, id(array)] for kind, array in self.terms])


@runtime_checkable
class Reducing(Protocol):
    """A `lift_many` that is a few reductions of its one input, and can share a pass over it with others."""

    def __call__(self, xs: Any) -> Any:
        """Return the state of all elements."""
        ...

    def reductions(self, xs: Any) -> Reductions:
        """Say what is reduced."""
        ...


@final
@dataclass(frozen=True)
class ForkMany:
    """Apply several `lift_many` to the same inputs, or each to the first of them that it needs.

    Those that are reductions of the first input alone share one pass over it.
    """

    functions: tuple[Callable[..., Any], ...]
    counts: tuple[int, ...] | None = None

    @property
    def entrywise(self) -> bool:
        """Whether all of them take arrays for cells, entry by entry."""
        return all(map(is_entrywise, self.functions))

    def of_ascending(self) -> ForkMany:
        """The same for coordinates that ascend."""
        forms = (getattr(function, "of_ascending", None) for function in self.functions)
        chosen = (form() if form else function for form, function in zip(forms, self.functions, strict=True))
        return ForkMany(tuple(chosen), self.counts)

    def begun(self, *args: Any) -> Reductions:
        """What is reduced by all that are reductions; the others run in the end."""
        counts = self.counts or (len(args),) * len(self.functions)
        parts = [_begun(function, args[:count]) for function, count in zip(self.functions, counts, strict=True)]

        def finish(totals: Sequence[Any]) -> tuple[Any, ...]:
            rest = iter(totals)
            return tuple(part.finish([next(rest) for _ in part.terms]) for part in parts)

        return Reductions(tuple(term for part in parts for term in part.terms), finish)

    def __call__(self, *args: Any) -> Any:
        """Return one state a function."""
        return self.begun(*args).run()


def is_entrywise(function: Callable[..., Any]) -> bool:
    """Whether a `lift_many` of `(n, ...)` treats every entry of the cells as if it were alone.

    It says so by an attribute. Its states have leaves of the shape of a cell, or scalars for what all entries share.
    """
    return bool(getattr(function, "entrywise", False))


def _begun(function: Callable[..., Any], args: tuple[Any, ...]) -> Reductions:
    if isinstance(function, ForkMany):
        return function.begun(*args)
    if isinstance(function, Reducing) and len(args) == 1:
        return function.reductions(args[0])
    return Reductions((), lambda _: function(*args))


def greatest(*arrays: Any) -> tuple[Any, ...]:
    """Find the maxima of two arrays or more along their second axes; NaN wins. They have no derivative.

    Args:
      arrays: real, all `(n, m, ...)`. Of several operands a reduction is never one of XLA's own, which drop NaN.

    Returns:
      `(n, ...)` each.
    """
    starts = tuple(_start("max", array.dtype) for array in arrays)
    return cast("tuple[Any, ...]", lax.reduce(arrays, starts, _all_greater, (1,)))


def _drops_nan(kind: Kind, array: Any) -> bool:
    """Whether XLA may reduce an array by a kernel of its own in which NaN does not win."""
    return kind != "sum" and jnp.issubdtype(array.dtype, jnp.floating)


def _merge_of(kind: Kind) -> Callable[[Any, Any], Any]:
    return {"sum": lax.add, "max": lax.max, "min": lax.min}[kind]


def _all_greater(left: Any, right: Any) -> Any:
    return tuple(map(lax.max, left, right))


# The same as a maximum and a minimum, and nothing that XLA knows.


def _greater(a: Any, b: Any) -> Any:
    return lax.select(lax.bitwise_or(lax.ge(a, b), lax.ne(a, a)), a, b)


def _less(a: Any, b: Any) -> Any:
    return lax.select(lax.bitwise_or(lax.le(a, b), lax.ne(a, a)), a, b)


def _start(kind: Kind, dtype: Any) -> Any:
    cell = jax.ShapeDtypeStruct((), dtype)
    return jnp.asarray(0 if kind == "sum" else lowest(cell) if kind == "max" else highest(cell), dtype)


def _plain(kind: Kind, array: Any) -> Any:
    if kind == "sum":
        return jnp.sum(array, axis=0, dtype=array.dtype)
    return (jnp.max if kind == "max" else jnp.min)(array, axis=0, initial=_start(kind, array.dtype))


def _along_lanes(kind: Kind, lanes: Any) -> Any:
    return reduce_together((kind,), lanes.reshape(lanes.shape[0] * lanes.shape[1], *lanes.shape[2:]))[0]


def _reduced(kind: Kind, array: Any) -> Any:
    if not _drops_nan(kind, array):
        return _plain(kind, array)
    return lax.reduce(array, _start(kind, array.dtype), _greater if kind == "max" else _less, (0,))


def _change(kind: Kind, primal: Any, tangent: Any) -> Any:
    return jax.jvp(partial(_plain, kind), (primal,), (tangent,))[1]
