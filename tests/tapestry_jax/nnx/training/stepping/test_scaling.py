"""How the scale of a loss finds its size."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from tapestry_jax.nnx.training.stepping.scaling import LossScale


def test_the_scale_follows_the_rule_of_the_field():
    scale, expected, counter = LossScale(jnp.float32(8), jnp.int32(0), 3, 2.0), 8.0, 0
    for finite in [True, True, True, True, False, True, True, False, False, False, False, False, True, True, True]:
        scale = scale.after(jnp.bool_(finite))
        # As `DynamicLossScale.adjust` of jmp states it.
        grown = expected * 2 if counter == 2 else expected
        expected, counter = (grown if finite else max(1.0, expected / 2)), (counter + 1) % 3 * finite
        assert (float(scale.value), int(scale.good)) == (expected, counter)
    assert float(LossScale(jnp.float32(3e38), jnp.int32(2), 3, 2.0).after(jnp.bool_(True)).value) == np.float32(3e38)


def test_gradients_of_float16_are_divided_by_scales_beyond_its_numbers():
    scale = LossScale.of(2.0**24)
    (found,) = scale.unscaled([jnp.array([2.0**10, jnp.inf, 0.0], jnp.float16)])
    assert found.dtype == jnp.float16 and found.tolist() == [2.0**-14, np.inf, 0.0]
