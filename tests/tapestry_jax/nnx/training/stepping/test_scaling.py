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
