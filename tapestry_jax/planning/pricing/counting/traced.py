"""The program of a kernel, or of its gradient, as it is counted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax

from combinators.frozen import dataclass
from combinators.index_space.tensor_type import is_inexact
from combinators.kernels.jaxprs import as_function
from tapestry_jax.planning.pricing.counting.resized import resized

Struct = jax.ShapeDtypeStruct


@dataclass(frozen=True, eq=False)
class Traced:
    """A program.

    Attributes:
      jaxpr: without constants; of a backward pass the forward pass stands in it as well.
      cotangents: of a backward pass, how many of the first arguments are cotangents, and how many of the last results
        those of the forward pass that they belong to; None of a forward pass.
      closed: with constants, of what was traced at its own sizes: a function of arrays.
    """

    jaxpr: Any
    cotangents: int | None = None
    closed: Any = None

    def at(self, sizes: Mapping[int, int]) -> Traced:
        """The same at other sizes (`resized`)."""
        return replace(self, jaxpr=resized(self.jaxpr, sizes), closed=None)


def trace(function: Callable[..., Sequence[Any]], structs: Sequence[Struct]) -> Traced:
    """A function of arrays of these types, which gives a list of arrays."""
    closed = jax.make_jaxpr(function)(*structs)
    return Traced(closed.jaxpr, closed=closed)


def trace_backward(forward: Traced, structs: Sequence[Struct], by: Sequence[int]) -> Traced | None:
    """The gradient of a function that was traced; None where there is none. The function is not called again.

    Args:
      forward: from arrays to a list of arrays.
      structs: the types for which it was traced.
      by: the positions of the arrays whose gradients are wanted.
    """
    function = as_function(forward.closed)

    def smooth(*arrays: Any) -> list[Any]:
        return [leaf for leaf in function(*arrays) if is_inexact(leaf.dtype)]

    def pull(cotangents: list[Any], *arrays: Any) -> list[Any]:
        def run(*varied: Any) -> list[Any]:
            given = dict(zip(by, varied, strict=True))
            return smooth(*(given.get(place, array) for place, array in enumerate(arrays)))

        results, pulled = jax.vjp(run, *(arrays[place] for place in by))
        return [*pulled(cotangents), *results]

    made = (out.aval for out in forward.jaxpr.outvars)
    cotangents = [Struct(leaf.shape, leaf.dtype) for leaf in made if is_inexact(leaf.dtype)]
    if not cotangents or not by:
        return None
    return Traced(jax.make_jaxpr(pull)(cotangents, *structs).jaxpr, len(cotangents))
