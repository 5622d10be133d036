"""What is pulled back is of other numbers in each draw, and of others for each result."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from combinators.claims.pulled import pulls_otherwise
from combinators.claims.slopes import pullback
from combinators.kernels.jaxprs import as_function
from tests.combinators.claims.test_draws import ROWS, boxed

X = np.linspace(-1, 1, 8, dtype=np.float32)


def pulled(function: Any, turn: float) -> Any:
    program = pullback(jax.make_jaxpr(function)(X), turned=True)
    return np.asarray(as_function(program)(X, np.float32(turn))[0])


def test_the_cotangent_is_another_one_in_each_draw() -> None:
    first, second = (pulled(lambda x: x * 1.0, turn) for turn in (0, 1))
    assert not np.allclose(first, second)
    assert (np.sign(first) != np.sign(second)).any()


def test_two_results_have_cotangents_of_their_own() -> None:
    # Of one and the same their difference would pull nothing back.
    assert np.abs(pulled(lambda x: (x * 1.0, x * -1.0), 0)).max() > 0.1


def test_what_a_derivative_makes_of_one_wave_alone_is_not_all_that_is_asked() -> None:
    # Of the first wave (`cos`) the third cell is the least, in the whole and in its first half.
    @jax.custom_vjp
    def run(x: Any) -> Any:
        return jnp.sin(x)

    def backward(x: Any, g: Any) -> tuple[Any]:
        least = jnp.min(jnp.where(x < 100, g, 0))
        return (jnp.where(lax.stop_gradient(least) < -0.95, g, g * jnp.abs(least)),)

    run.defvjp(lambda x: (jnp.sin(x), x), backward)
    assert pulls_otherwise(boxed(run, "a -> a"), {"a": ROWS // 2})
