"""What the backward pass computes again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.interpreters import mlir  # noqa: TID251 - the public place of the rules of primitives

from combinators.equations.marked import keeping, marked
from combinators.kernels.jaxprs import primitive_of
from tapestry_jax.lowering.on_device.varying import RECEIVED, ROUND

Given = ParamSpec("Given")
Made = TypeVar("Made")


KEPT = "kept"
LATER = "later"
"""The name of the primitive of `later`, as programs show it."""


def kept(values: list[Any]) -> list[Any]:
    """The same values, marked as what the plan wants to keep of a turn that is computed again."""
    return jax.tree.map(lambda value: marked(value, KEPT), values)


def recomputed(
    turn: Callable[Given, Made], *, in_loop: bool = True, keeps: bool = False, rings: bool = True
) -> Callable[Given, Made]:
    """A turn of a loop whose backward pass computes it again from its operands.

    What was received from other devices is kept: computing again must not send again, unless a plan wants rings to.

    Args:
      turn: from operands to results.
      in_loop: inside a loop the two passes are two programs, which no compiler merges.
      keeps: whether values marked as `kept` are not computed again either.
      rings: whether what came round a ring is kept.
    """
    return jax.checkpoint(turn, prevent_cse=not in_loop, policy=keeping(RECEIVED, *[KEPT] * keeps, *[ROUND] * rings))


def recomputed_apart(run: Callable[[list[Any]], list[Any]], *, keeps: bool = False) -> Callable[[list[Any]], list[Any]]:
    """Steps outside of loops whose backward pass computes them again, from what they read and what was received.

    Both passes stand in one program, which compilers search for what is computed twice. So the second one begins with
    values of which they do not know that they are those of the first, and not before the gradients of its results are
    there: else all layers could be computed again at once.
    """
    again = recomputed(run, keeps=keeps)

    @jax.custom_vjp
    def steps(operands: list[Any]) -> list[Any]:
        return run(operands)

    def forward(operands: list[Any]) -> tuple[list[Any], Any]:
        return jax.vjp(again, operands)

    def backward(pull: Any, cotangents: list[Any]) -> Any:
        kept, tree = jax.tree.flatten(pull)
        smooth = [at for at, each in enumerate(cotangents) if each.dtype != jax.dtypes.float0]
        kept, given = later(kept, [cotangents[at] for at in smooth])
        cotangents = list(cotangents)
        for at, each in zip(smooth, given, strict=True):
            cotangents[at] = each
        return jax.tree.unflatten(tree, kept)(cotangents)

    steps.defvjp(forward, backward)
    return steps


def later(values: Sequence[Any], events: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """The same values, of which compilers do not know that they are the same, and not before all events are there.

    Args:
      values: arrays.
      events: arrays, too.

    Returns:
      Both, equal to what they were.
    """
    found = _later().bind(*values, *events, count=len(values)) if values and events else [*values, *events]
    return list(found[: len(values)]), list(found[len(values) :])


def _by_barrier(*arrays: Any, count: int) -> Any:
    del count
    return lax.optimization_barrier(arrays)


def _by_choice(*arrays: Any, count: int) -> list[Any]:
    """XLA takes barriers out of programs for CPUs; it does not see that a number with its last bit set is not zero."""
    values, events = arrays[:count], arrays[count:]
    bits = jnp.uint32(1)
    for event in filter(np.size, events):
        cell = lax.slice(event, (0,) * event.ndim, (1,) * event.ndim).reshape(())
        real = lax.real(cell) if jnp.iscomplexobj(cell) else cell
        bits = bits | lax.bitcast_convert_type(real.astype(jnp.float32), jnp.uint32)
    return [
        *(value if _is_special(value) else jnp.where(bits != 0, value, jnp.zeros_like(value)) for value in values),
        *events,
    ]


def _is_special(value: Any) -> bool:
    """Whether an array holds no numbers, such as keys of random numbers."""
    return jnp.issubdtype(value.dtype, jax.dtypes.extended)


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], *, count: int) -> tuple[Any, Any]:
    return _later().bind(*primals, count=count), list(tangents)


def _batched(arguments: Sequence[Any], places: Sequence[Any], *, count: int) -> tuple[Any, Any]:
    return _later().bind(*arguments, count=count), places


@cache
def _later() -> Any:
    """The primitive with its rules, made when it is first needed."""
    # A barrier varies over all mesh axes over which any of its operands does; here each varies as it did.
    rules: dict[str, Any] = {"types": lambda *arrays, count: arrays, "moved": _jvp, "batched": _batched}
    primitive = primitive_of(LATER, _by_barrier, **rules, several=True)
    mlir.register_lowering(primitive, mlir.lower_fun(_by_choice, multiple_results=True), platform="cpu")
    return primitive
