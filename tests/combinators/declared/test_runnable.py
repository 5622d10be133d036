"""Programs that are run while kernels are traced: small ones, which only compute and end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from combinators.declared.runnable import can_be_run, is_large

_REFUSED: dict[str, Callable[[Any], Any]] = {
    "may never end": lambda x: lax.while_loop(lambda y: y[0] < 1, lambda y: y, x),
    "calls back": lambda x: jax.pure_callback(lambda y: y, x, x),
    "prints": lambda x: (jax.debug.print("{}", x), x)[1],
    "has many equations": lambda x: sum((x * i for i in range(600)), x),
    "computes much": lambda x: lax.fori_loop(0, 1 << 26, lambda i, y: y + i, x),
    "computes much on the way": lambda x: jnp.broadcast_to(x[0], (1 << 14, 1 << 13)).sum(0)[:4],
}


@pytest.mark.parametrize("name", _REFUSED)
def test_what_cannot_be_run_in_a_moment_is_not(name: str) -> None:
    program = jax.make_jaxpr(_REFUSED[name])(jax.ShapeDtypeStruct((4,), jnp.float32))
    assert not can_be_run(program)


def test_keys_are_drawn_and_refused_sizes_no_program() -> None:
    assert can_be_run(jax.make_jaxpr(jax.random.key_data)(jax.eval_shape(lambda: jax.random.key(0))))
    assert not can_be_run(None)


def test_products_count_what_they_multiply() -> None:
    square = jax.ShapeDtypeStruct((250, 250), jnp.float32)
    added, multiplied = (jax.make_jaxpr(function)(square, square) for function in (jnp.add, _five_products))
    assert can_be_run(added)
    assert is_large(multiplied)
    assert not can_be_run(multiplied)


def _five_products(x: Any, y: Any) -> Any:
    for _ in range(5):
        x = x @ y
    return x
