"""Normalisation of vectors: LayerNorm and RMSNorm."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import lax

from combinators.frozen import dataclass
from combinators.recording.value import Value
from tapestry_jax.nnx.norms.scaled import Norm
from tapestry_jax.nnx.norms.statistics import mean_square


@dataclass(frozen=True)
class Normalize:
    """Scale vectors along the last axis to variance 1 (and mean 0), then by parameters: the kernel of older programs.

    Files hold it; norms are now written as a fold and a map, so that the axis can be cut.

    Attributes:
      epsilon: added to the variance.
      center: whether the mean is taken away.
      scaled: whether a scale comes behind the input.
      shifted: whether a bias comes last.
      dtype: of the result; None is what JAX promotes all operands to.
    """

    epsilon: float
    center: bool
    scaled: bool
    shifted: bool
    dtype: np.dtype[Any] | None = None

    def __call__(self, x: Any, *parameters: Any) -> Any:
        """Shape and order of `x`; statistics in at least 32 bits."""
        dtype = jnp.result_type(x, *parameters) if self.dtype is None else self.dtype
        x, listed = x.astype(dtype), (operand.astype(dtype) for operand in parameters)
        wide = x.astype(jnp.promote_types(dtype, jnp.float32))
        variance = jnp.mean(lax.square(wide), axis=-1, keepdims=True)
        if self.center:
            # One pass over x: both means come from the same fusion. Rounding can make the difference negative.
            mean = jnp.mean(wide, axis=-1, keepdims=True)
            variance = jnp.maximum(0.0, variance - lax.square(mean))
            wide = x - mean
        factor = lax.rsqrt(variance + self.epsilon)
        if self.scaled:
            factor = factor * next(listed)
        y = wide * factor
        if self.shifted:
            y = y + next(listed)
        return y.astype(dtype)


class LayerNorm(Norm):
    """Mean 0 and variance 1 along the last dimension, then scale and bias, as `flax.nnx.LayerNorm`.

    Args:
      num_features: size of the last dimension; a fold, which a plan may cut.
      epsilon: added to the variance.
      use_fast_variance: one pass over what is uncut; beside a large offset it loses the digits of the variance.
      use_bias: whether a bias is added.
      use_scale: whether a scale is multiplied.
      dims: name of the dimension.
      dtype: of the result; by default what JAX promotes inputs and parameters to.
      param_dtype: of the parameters.
      rngs: whose stream `params` initialises.
    """

    def __init__(
        self,
        num_features: int,
        *,
        epsilon: float = 1e-6,
        use_bias: bool = True,
        use_scale: bool = True,
        use_fast_variance: bool = True,
        dims: tuple[str] = ("embed",),
        dtype: Any = None,
        param_dtype: Any = jnp.float32,
        rngs: nnx.Rngs,
    ) -> None:
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

    def forward(self, x: Value) -> Value:
        """Normalise `(..., num_features)`, which comes back, by mean and variance."""
        self._check(x)
        kept = range(x.ndim - 1)
        return self._scaled(x, self._statistics(x, kept), kept)


class RMSNorm(Norm):
    """Mean square 1 along the last dimension, then scale, as `flax.nnx.RMSNorm`.

    Args:
      num_features: size of the last dimension; a fold, which a plan may cut.
      epsilon: added to the mean square.
      use_scale: whether a scale is multiplied.
      dims: name of the dimension.
      dtype: of the result; by default what JAX promotes inputs and parameters to.
      param_dtype: of the parameters.
      rngs: whose stream `params` initialises.
    """

    def __init__(
        self,
        num_features: int,
        *,
        epsilon: float = 1e-6,
        use_scale: bool = True,
        dims: tuple[str] = ("embed",),
        dtype: Any = None,
        param_dtype: Any = jnp.float32,
        rngs: nnx.Rngs,
    ) -> None:
        super().__init__(
            num_features,
            epsilon=epsilon,
            use_bias=False,
            use_scale=use_scale,
            dims=dims,
            dtype=dtype,
            param_dtype=param_dtype,
            rngs=rngs,
        )

    def forward(self, x: Value) -> Value:
        """Normalise `(..., num_features)`, which comes back, by the root of the mean square."""
        self._check(x)
        kept = range(x.ndim - 1)
        return self._scaled(x, (mean_square(x, kept),), kept)
