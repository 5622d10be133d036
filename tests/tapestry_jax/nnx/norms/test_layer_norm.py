"""What normalisation refuses."""

from __future__ import annotations

import pytest
from flax import nnx

import tapestry_jax as tp


@pytest.mark.parametrize("norm", [tp.nnx.LayerNorm, tp.nnx.RMSNorm])
def test_a_negative_epsilon_is_told(norm: type) -> None:
    with pytest.raises(tp.GraphError, match=f"epsilon= of {norm.__name__} is negative"):
        norm(3, epsilon=-1.0, rngs=nnx.Rngs(0))
