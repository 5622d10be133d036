"""What a checkpoint keeps, of all dtypes that have a derivative."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from combinators.equations.marked import keeping, marked


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16, jnp.complex64], ids=lambda each: each.__name__)
def test_what_is_kept_has_a_derivative(dtype):
    """JAX rounds what it keeps and reads again by a primitive that takes no complex numbers."""

    def turn(x):
        seen = marked(jnp.sin(x), "seen")
        return jnp.abs(jnp.sin(seen) * jnp.exp(seen))

    x = (jnp.arange(1, 4) * (1 + 0.5j if dtype == jnp.complex64 else 1)).astype(dtype)
    again = jax.checkpoint(turn, policy=keeping("seen"))
    found = jax.grad(lambda x: again(x).sum())(x)
    np.testing.assert_array_equal(found, jax.grad(lambda x: turn(x).sum())(x))
    assert np.all(found != 0)


def test_both_parts_of_a_complex_number_are_kept():
    jaxpr = jax.make_jaxpr(lambda x: marked(x, "seen"))(jnp.ones(3, jnp.complex64))
    assert [each.primitive.name for each in jaxpr.eqns] == ["real", "imag", "name", "name", "complex"]
