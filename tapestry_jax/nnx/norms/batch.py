"""Normalisation over the examples of a batch, with statistics that run along."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax

from combinators.arguments import read_flag, read_number
from combinators.errors import GraphError, message
from combinators.leaves.map import Map
from combinators.recording.value import Value
from tapestry_jax.nnx.norms.scaled import Norm, called


class BatchNorm(Norm):
    """Mean 0 and variance 1 over all axes but the last, as `flax.nnx.BatchNorm`.

    The batch is a fold, so a plan that cuts it merges the statistics: they are those of the whole batch on every mesh.
    While it trains it writes what runs along, which a call on arrays stores and a compiled plan gives beside its
    result. What runs along has no gradient by `x`.

    Args:
      num_features: size of the last dimension.
      use_running_average: whether what ran along is used; the result then comes alone.
      momentum: how much of what ran along is kept.
      epsilon: added to the variance.
      use_fast_variance: one pass over what is uncut; beside a large offset it loses the digits of the variance.
      use_bias: whether a bias is added.
      use_scale: whether a scale is multiplied.
      dims: name of the last dimension.
      dtype: of the result; by default what JAX promotes inputs and parameters to.
      param_dtype: of the parameters.
      rngs: whose stream `params` initialises.

    Attributes:
      mean: what ran along of the means.
      var: what ran along of the variances.

    Raises:
      GraphError: when an argument is not what it should be.
    """

    def __init__(
        self,
        num_features: int,
        *,
        use_running_average: bool = False,
        momentum: float = 0.99,
        epsilon: float = 1e-5,
        use_bias: bool = True,
        use_scale: bool = True,
        use_fast_variance: bool = True,
        dims: tuple[str] = ("channels",),
        dtype: Any = None,
        param_dtype: Any = jnp.float32,
        rngs: nnx.Rngs,
    ) -> None:
        self.use_running_average = read_flag(use_running_average, "use_running_average= of BatchNorm")
        self.momentum = read_number(momentum, "momentum= of BatchNorm")
        if not 0 <= self.momentum <= 1:
            remedy = "Pass a number from 0 to 1."
            raise GraphError(message("momentum= of BatchNorm is no share", f"got {momentum!r}", remedy=remedy))
        super().__init__(
            num_features,
            epsilon=epsilon,
            use_bias=use_bias,
            use_scale=use_scale,
            use_fast_variance=use_fast_variance,
            dims=dims,
            dtype=dtype,
            param_dtype=param_dtype,
            rngs=rngs,
        )
        shape = (self.num_features,)
        self.mean: nnx.BatchStat[jax.Array] = nnx.BatchStat(jnp.zeros(shape), dims=self.dims)
        self.var: nnx.BatchStat[jax.Array] = nnx.BatchStat(jnp.ones(shape), dims=self.dims)

    @property
    def signature(self) -> str:
        """The last dimension holds the features."""
        return f"... {self.dims[0]} -> ... {self.dims[0]}"

    def forward(self, x: Value) -> Value:
        """Normalise over the batch, or by what ran along: `(..., num_features)`, which comes back.

        Raises:
          SignatureError: when there is no axis before the features, or they have another size.
        """
        self._check(x, 2)
        kept = (x.ndim - 1,)
        if self.use_running_average:
            known: Any = (self.mean[...], self.var[...])  # values here, as all variables
            return self._scaled(x, known, kept)
        mean, variance = self._statistics(x, kept)
        old, new = self.momentum, 1 - self.momentum
        still = Map(lax.stop_gradient)
        for running, now in ((self.mean, mean), (self.var, variance)):
            running[...] = old * running[...] + new * called(still(now), self.dims[0])
        return self._scaled(x, (mean, variance), kept)
