"""Values with a mark that says what the backward pass of a turn keeps.

`jax.ad_checkpoint.checkpoint_name` would do, but that JAX (0.10 to 0.12) has no transpose for it: `linear_transpose`
of a plan, and solvers that take one, such as `gmres`, would end in a NotImplementedError. The primitive here has the
name of JAX's own, for whoever reads programs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import jax.numpy as jnp
from jax import lax

from combinators.kernels.jaxprs import primitive_of


def marked(value: Any, name: str) -> Any:
    """The same value with a mark, which its derivative does not have; see `keeping`.

    Of a complex number both parts have it: JAX rounds what a checkpoint keeps, by a primitive that takes floats alone.
    """
    if jnp.issubdtype(value.dtype, jnp.complexfloating):
        return lax.complex(*(_mark().bind(part, name=name) for part in (lax.real(value), lax.imag(value))))
    return _mark().bind(value, name=name)


@cache
def keeping(*names: str) -> Callable[..., bool]:
    """A policy of `jax.checkpoint` that keeps what has one of these marks.

    JAX passes the parameters of primitives by keyword, and those of others may be called as arguments of its policies.
    """

    def policy(primitive: Any, /, *_: Any, **params: Any) -> bool:
        return primitive is _mark() and params["name"] in names

    return policy


def _same(value: Any, *, name: str) -> Any:
    del name
    return value


def _moved(primals: Sequence[Any], tangents: Sequence[Any], *, name: str) -> tuple[Any, Any]:
    return marked(primals[0], name), tangents[0]


def _back(cotangent: Any, value: Any, *, name: str) -> list[Any]:
    del value, name
    return [cotangent]


def _batched(arguments: Sequence[Any], places: Sequence[Any], *, name: str) -> tuple[Any, Any]:
    return marked(arguments[0], name), places[0]


@cache
def _mark() -> Any:
    """The primitive with its rules, made when it is first needed."""
    return primitive_of("name", _same, types=_same, moved=_moved, batched=_batched, back=_back)
