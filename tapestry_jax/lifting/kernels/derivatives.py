"""Functions whose authors wrote their derivatives, put together again from programs of both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tapestry_jax.lowering.on_device.varying import vary, varying_axes

Run = Callable[[Sequence[Any]], list[Any]]


def with_tangents(value: Run, tangents: Run, floats: Sequence[bool], operands: Sequence[Any], count: int) -> list[Any]:
    """The results of a function.

    Args:
      value: operands to results.
      tangents: operands, and the tangents of those that are floats, to results and the tangents of those that are.
      floats: for each operand whether it is one.
      operands: of the function.
      count: of its results.
    """

    # Results without a derivative stay outside: their tangents, made here, would be the same over any mesh.
    @jax.custom_jvp
    def call(*given: Any) -> list[Any]:
        return [leaf for leaf in value(given) if is_inexact(leaf)]

    @call.defjvp
    def _(primals: Any, moved: Any) -> Any:
        found = tangents([*primals, *(one for one, moves in zip(moved, floats, strict=True) if moves)])
        results = [leaf for leaf in found[:count] if is_inexact(leaf)]
        # A tangent that is constant, 0, is the same over any mesh; JAX wants it to vary as its result does.
        return results, [vary(one, varying_axes(leaf)) for leaf, one in zip(results, found[count:], strict=True)]

    moved = call(*operands)
    if len(moved) == count:
        return moved
    rest = iter(moved)
    plain = value([lax.stop_gradient(operand) for operand in operands])
    return [next(rest) if is_inexact(leaf) else leaf for leaf in plain]


def with_pulled(value: Run, pulled: Run, floats: Sequence[bool], operands: Sequence[Any]) -> list[Any]:
    """The results of a function.

    Args:
      value: operands to results.
      pulled: operands, and the cotangents of results that are floats, to the cotangents of operands that are.
      floats: for each operand whether it is one.
      operands: of the function.
    """

    @jax.custom_vjp
    def call(*given: Any) -> list[Any]:
        return value(given)

    def forward(*given: Any) -> Any:
        return call(*given), given

    def backward(given: Any, cotangents: Any) -> Any:
        found = iter(pulled([*given, *(leaf for leaf in cotangents if leaf.dtype != jax.dtypes.float0)]))
        return tuple(
            next(found) if moves else np.zeros(np.shape(operand), jax.dtypes.float0)
            for operand, moves in zip(given, floats, strict=True)
        )

    call.defvjp(forward, backward)
    return call(*operands)


def is_inexact(leaf: Any) -> bool:
    """Whether a value can have a derivative."""
    return bool(jnp.issubdtype(leaf.dtype, jnp.inexact))
