"""The feed-forward part of a transformer block."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from combinators.arguments import read_count, read_function
from combinators.leaves.map import Map
from combinators.recording.value import Value
from tapestry_jax.nnx.modules.module import Module
from tapestry_jax.nnx.projections.linear import Linear


class MLP(Module):
    """`down(activation(up(x)))`: two folds in a row; `mlp` over a mesh axis is Megatron's tensor parallelism.

    Args:
      features: size of `embed`.
      hidden: size of `mlp`.
      activation: acts cell by cell.
      use_bias: whether both linear maps add biases.
      dtype: of the computation; by default what JAX promotes inputs and parameters to.
      param_dtype: of the parameters.
      rngs: whose stream `params` initialises.
    """

    def __init__(
        self,
        features: int,
        hidden: int,
        *,
        activation: Callable[..., Any] = jax.nn.gelu,
        use_bias: bool = True,
        dtype: Any = None,
        param_dtype: Any = jnp.float32,
        rngs: nnx.Rngs,
    ) -> None:
        own = f"of {type(self).__name__}"
        self.features = read_count(features, f"features= {own}")
        self.activation = read_function(activation, f"activation= {own}")
        options: dict[str, Any] = {"use_bias": use_bias, "dtype": dtype, "param_dtype": param_dtype, "rngs": rngs}
        self.up = Linear(features, hidden, dims=("embed", "mlp"), **options)
        self.down = Linear(hidden, features, dims=("mlp", "embed"), **options)

    @property
    def signature(self) -> str:
        """The last dimension comes back."""
        return "... embed -> ... embed"

    @property
    def sizes(self) -> dict[str, int]:
        """Of `embed`."""
        return {"embed": self.features}

    def forward(self, x: Value) -> Value:
        """Widen, activate, narrow: `(..., features)`, which comes back."""
        return self.down(Map(self.activation)(self.up(x)))
