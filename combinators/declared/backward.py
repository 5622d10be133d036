"""The program of a kernel's derivative: what it makes of the cotangents of its results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax

from combinators.index_space.tensor_type import is_inexact
from combinators.kernels.jaxprs import is_written, programs_inside


def smooth_of(tree: Any) -> list[int]:
    """The numbers of the leaves that have a derivative."""
    return [at for at, leaf in enumerate(jax.tree.leaves(tree)) if is_inexact(leaf.dtype)]


def backward(kernel: Callable[..., Any], kinds: Sequence[Any]) -> tuple[Any, int]:
    """The closed jaxpr of a kernel's derivative, and how many results of the kernel have a cotangent.

    It takes all operands, then the cotangents of the results that have one; it gives those of the operands that do.

    Args:
      kernel: arrays to a pytree of arrays.
      kinds: types of the arrays.
    """
    smooth, out = smooth_of(list(kinds)), jax.tree.leaves(jax.eval_shape(kernel, *kinds))
    found = [out[at] for at in smooth_of(out)]

    def pulled(arrays: Sequence[Any], cotangents: list[Any]) -> Any:
        def run(*moved: Any) -> list[Any]:
            given = dict(zip(smooth, moved, strict=True))
            leaves = jax.tree.leaves(kernel(*(given.get(at, array) for at, array in enumerate(arrays))))
            return [leaves[at] for at in smooth_of(leaves)]

        return jax.vjp(run, *(arrays[at] for at in smooth))[1](cotangents)

    return jax.make_jaxpr(pulled)(list(kinds), found), len(found)


def has_written(program: Any) -> bool:
    """Whether somebody wrote a derivative of a program, or of one inside of it: not JAX, whose own are true."""
    return any(
        is_written(equation) or any(map(has_written, programs_inside(equation)))
        for equation in getattr(program, "jaxpr", program).eqns
    )


def has_stopped(program: Any) -> bool:
    """Whether something in a program is kept from having a derivative (`lax.stop_gradient`)."""
    return any(
        equation.primitive.name == "stop_gradient" or any(map(has_stopped, programs_inside(equation)))
        for equation in getattr(program, "jaxpr", program).eqns
    )
