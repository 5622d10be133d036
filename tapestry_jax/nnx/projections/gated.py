"""Gated feed-forward layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from combinators.leaves.map import Map
from combinators.recording.value import Value
from tapestry_jax.nnx.projections.linear import Linear
from tapestry_jax.nnx.projections.mlp import MLP


class GLU(MLP):
    """`down(activation(gate(x)) * up(x))`: an `MLP` with a gate; `mlp` over a mesh axis cuts it as one.

    Args:
      features: size of `embed`.
      hidden: size of `mlp`.
      activation: acts on the gate, cell by cell.
      use_bias: whether the linear maps add biases.
      dtype: of the computation; by default what JAX promotes inputs and parameters to.
      param_dtype: of the parameters.
      rngs: whose stream `params` initialises.

    Source: Shazeer 2020, "GLU variants improve transformer".
    """

    def __init__(
        self,
        features: int,
        hidden: int,
        *,
        activation: Callable[..., Any] = jax.nn.sigmoid,
        use_bias: bool = False,
        dtype: Any = None,
        param_dtype: Any = jnp.float32,
        rngs: nnx.Rngs,
    ) -> None:
        options: dict[str, Any] = {"use_bias": use_bias, "dtype": dtype, "param_dtype": param_dtype, "rngs": rngs}
        super().__init__(features, hidden, activation=activation, **options)
        self.gate = Linear(features, hidden, dims=("embed", "mlp"), **options)

    def forward(self, x: Value) -> Value:
        """Widen twice, gate, narrow: `(..., features)`, which comes back."""
        return self.down(Map(self.activation)(self.gate(x)) * self.up(x))


class SwiGLU(GLU):
    """A `GLU` whose gate is `jax.nn.silu`, as in Llama: `down(silu(gate(x)) * up(x))`.

    Args:
      features: size of `embed`.
      hidden: size of `mlp`.
      use_bias: whether the linear maps add biases.
      dtype: of the computation; by default what JAX promotes inputs and parameters to.
      param_dtype: of the parameters.
      rngs: whose stream `params` initialises.
    """

    def __init__(
        self,
        features: int,
        hidden: int,
        *,
        use_bias: bool = False,
        dtype: Any = None,
        param_dtype: Any = jnp.float32,
        rngs: nnx.Rngs,
    ) -> None:
        super().__init__(
            features,
            hidden,
            activation=jax.nn.silu,
            use_bias=use_bias,
            dtype=dtype,
            param_dtype=param_dtype,
            rngs=rngs,
        )
