"""Programs whose Pallas kernels are interpreted: wherever they stand, and nothing else is changed."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl

from combinators.claims.pallas import interpreting
from combinators.declared.runnable import ways
from combinators.kernels.jaxprs import as_function

X = np.arange(8.0, dtype=np.float32)


def called(x: Any) -> Any:
    def body(x: Any, y: Any) -> None:
        y[...] = x[...] + 1

    return pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype))(x)


PLACES = {
    "alone": called,
    "in a call": jax.jit(called),
    "in a loop": lambda x: jax.lax.scan(lambda c, _: (called(c), None), x, length=1)[0],
    "in a choice": lambda x: jax.lax.cond(x[0] < 9, called, jnp.sin, x),
    "in a derivative": lambda x: jax.checkpoint(called)(x),
}


@pytest.mark.parametrize("place", PLACES)
def test_it_is_run_by_the_interpreter_wherever_it_stands(place: str) -> None:
    program = jax.make_jaxpr(PLACES[place])(X)
    assert "compiled" in ways([program])
    (found,) = jax.jit(as_function(interpreting(program)))(X)
    np.testing.assert_array_equal(found, X + 1)


def test_other_programs_stay_as_they_are() -> None:
    program = jax.make_jaxpr(lambda x: jax.lax.scan(lambda c, y: (c + y, jax.nn.relu(c)), 0.0, x))(X)
    assert str(interpreting(program)) == str(program)


def test_one_that_may_never_end_is_not_run() -> None:
    def body(x: Any, y: Any) -> None:
        y[...] = jax.lax.while_loop(lambda c: c.sum() < 9, lambda c: c + 1, x[...])

    def function(x: Any) -> Any:
        return pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype))(x)

    assert ways([jax.make_jaxpr(function)(X)]) == []
