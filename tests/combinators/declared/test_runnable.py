"""Programs that are run while kernels are traced: small ones, which only compute and end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.experimental import io_callback

from combinators.declared.runnable import COMPILED, INTERPRETED, is_large, ways

_REFUSED: dict[str, Callable[[Any], Any]] = {
    "calls back with effects": lambda x: io_callback(lambda y: y, x, x),
    "does so in each turn": lambda x: lax.map(lambda y: io_callback(lambda z: z, y, y), x),
    "computes much": lambda x: lax.fori_loop(0, 1 << 26, lambda i, y: y + i, x),
    "computes much on the way": lambda x: jnp.broadcast_to(x[0], (1 << 14, 1 << 13)).sum(0)[:4],
}
_RUN: dict[str, tuple[Callable[[Any], Any], list[str]]] = {
    "few equations": (lambda x: x + 1, [INTERPRETED, COMPILED]),
    "calls back": (lambda x: jax.pure_callback(lambda y: y, x, x), [INTERPRETED]),
    "prints": (lambda x: (jax.debug.print("{}", x), x)[1], [INTERPRETED]),
    "what may never end": (lambda x: lax.while_loop(lambda y: y[0] < 1, lambda y: y, x), [INTERPRETED]),
    "many equations": (lambda x: sum((x * i for i in range(600)), x), [INTERPRETED]),
    "many turns": (lambda x: lax.fori_loop(0, 1 << 14, lambda i, y: y + i, x), [COMPILED]),
    "what NumPy does not know": (lax.lgamma, [COMPILED, INTERPRETED]),
}


def traced(function: Callable[..., Any]) -> Any:
    return jax.make_jaxpr(function)(jax.ShapeDtypeStruct((4,), jnp.float32))


@pytest.mark.parametrize("name", _REFUSED)
def test_what_cannot_be_run_in_a_moment_is_not(name: str) -> None:
    assert not ways([traced(_REFUSED[name])])


@pytest.mark.parametrize("name", _RUN)
def test_the_cheaper_way_comes_first(name: str) -> None:
    function, expected = _RUN[name]
    assert ways([traced(function)]) == expected


def test_all_programs_are_run_in_one_way() -> None:
    ends, turns, many = (
        traced(_RUN["few equations"][0]),
        traced(_RUN["many turns"][0]),
        traced(_RUN["many equations"][0]),
    )
    assert (ways([ends, turns]), ways([ends, many]), ways([turns, many]), ways([ends, None])) == (
        [COMPILED],
        [INTERPRETED],
        [],
        [],
    )


def test_keys_are_drawn_and_refused_sizes_no_program() -> None:
    assert ways([jax.make_jaxpr(jax.random.key_data)(jax.eval_shape(lambda: jax.random.key(0)))])
    assert not ways([None])


def test_products_count_what_they_multiply() -> None:
    square = jax.ShapeDtypeStruct((250, 250), jnp.float32)
    added, multiplied = (jax.make_jaxpr(function)(square, square) for function in (jnp.add, _five_products))
    assert ways([added])
    assert is_large(multiplied)
    assert not ways([multiplied])


def _five_products(x: Any, y: Any) -> Any:
    for _ in range(5):
        x = x @ y
    return x
