"""Kernels that say nothing of the mesh, inside an SPMD program that checks over which axes values vary.

Calls of Pallas are such kernels: `shard_map` asks of each how its results vary, and those that libraries keep do not
say. What one device computes of its own blocks needs no answer: it is computed in a region that is not checked,
forwards and backwards, between blocks and results that vary over all axes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec

from tapestry_jax.lowering.on_device.varying import vary

_COMPLAINT = "check_vma"


def where_types_are_missing(kernel: Callable[..., Any], axes: frozenset[str]) -> Callable[..., Any]:
    """The kernel; where JAX cannot tell how its results vary, they vary over `axes`.

    Args:
      kernel: blocks of one device to its results.
      axes: of the mesh; what is asked where none of them cuts is asked all the same.
    """

    @functools.wraps(kernel, assigned=(), updated=())
    def run(*blocks: Any) -> Any:
        try:
            return kernel(*blocks)
        except ValueError as error:
            if _COMPLAINT not in str(error):
                raise
        return _apart(kernel, axes)(*_varied(blocks, axes))

    return run


def _apart(kernel: Callable[..., Any], axes: frozenset[str]) -> Callable[..., Any]:
    """The kernel and its derivative, each in a region of its own."""

    @jax.custom_vjp
    def run(*blocks: Any) -> Any:
        return _varied(_unchecked(kernel, blocks), axes)

    def forward(*blocks: Any) -> tuple[Any, Any]:
        smooth = [jnp.issubdtype(block.dtype, jnp.inexact) for block in blocks]

        def both(*given: Any) -> Any:
            def of_smooth(*moved: Any) -> Any:
                rest = iter(moved)
                return kernel(*(next(rest) if moves else block for moves, block in zip(smooth, given, strict=True)))

            return jax.vjp(of_smooth, *(block for moves, block in zip(smooth, given, strict=True) if moves))

        out, pull = _varied(_unchecked(both, blocks), axes)
        # Integers have no derivative; which blocks they are the pulled gradients do not say.
        return out, (pull, [None if moves else block for moves, block in zip(smooth, blocks, strict=True)])

    def backward(kept: Any, cotangents: Any) -> Any:
        pull, fixed = kept
        pulled = iter(_varied(_unchecked(lambda pull, given: pull(given), (pull, cotangents)), axes))
        return tuple(next(pulled) if block is None else None for block in fixed)

    run.defvjp(forward, backward)
    return run


def _unchecked(function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
    """Call a function where what varies is not looked at."""

    def region(*given: Any) -> Any:
        # Values keep their types until something is computed of them, and Pallas interprets none that vary.
        return function(*jax.tree.map(lambda array: lax.squeeze(lax.expand_dims(array, (0,)), (0,)), given))

    whole = PartitionSpec()
    return jax.shard_map(region, in_specs=whole, out_specs=whole, check_vma=False)(*arguments)


def _varied(values: Any, axes: frozenset[str]) -> Any:
    return jax.tree.map(lambda value: vary(value, sorted(axes)), values)
