"""Normalisation of vectors: LayerNorm and RMSNorm."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import lax

from combinators.arguments import read_count, read_flag, read_number
from combinators.errors import GraphError, message
from combinators.frozen import dataclass
from combinators.leaves.map import Map
from combinators.recording.value import Value
from tapestry_jax.nnx.modules.module import Module
from tapestry_jax.nnx.options import read_dims, read_dtypes, read_rngs
from tapestry_jax.nnx.parameter import ones, parameter, zeros


@dataclass(frozen=True)
class Normalize:
    """Scale vectors along the last axis to variance 1 (and mean 0), then by parameters.

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


class _Norm(Module):
    """What both normalisations share."""

    def __init__(
        self,
        num_features: int,
        *,
        epsilon: float,
        use_bias: bool,
        use_scale: bool,
        dims: tuple[str],
        dtype: Any,
        param_dtype: Any,
        rngs: nnx.Rngs,
    ) -> None:
        own = f"of {type(self).__name__}"
        self.num_features = read_count(num_features, f"num_features= {own}")
        self.epsilon = read_number(epsilon, f"epsilon= {own}")
        if self.epsilon < 0:
            remedy = "Pass a small positive number."
            raise GraphError(message(f"epsilon= {own} is negative", f"got {epsilon!r}", remedy=remedy))
        self.dims = read_dims(dims, 1, f"dims= {own}")
        self.dtype, param_dtype = read_dtypes(dtype, param_dtype, own)
        rngs = read_rngs(rngs, own)
        self.scale: nnx.Param[jax.Array] | None = nnx.data(None)
        self.bias: nnx.Param[jax.Array] | None = nnx.data(None)
        if read_flag(use_scale, f"use_scale= {own}"):
            self.scale = parameter(ones, (self.num_features,), self.dims, rngs=rngs, dtype=param_dtype)
        if read_flag(use_bias, f"use_bias= {own}"):
            self.bias = parameter(zeros, (self.num_features,), self.dims, rngs=rngs, dtype=param_dtype)

    @property
    def signature(self) -> str:
        """The last dimension is normalised."""
        return f"... {self.dims[0]} -> ... {self.dims[0]}"

    @property
    def sizes(self) -> dict[str, int]:
        """Of the last dimension."""
        return {self.dims[0]: self.num_features}

    def _normalize(self, x: Value, center: bool) -> Value:
        parameters = [p[...] for p in (self.scale, self.bias) if p is not None]
        dtype = None if self.dtype is None else jnp.dtype(self.dtype)
        kernel = Normalize(self.epsilon, center, self.scale is not None, self.bias is not None, dtype)
        signature = ", ".join(["... [c]", *("[c]" for _ in parameters)]) + " -> ... [c]"
        sizes = {"c": self.num_features}
        return Map(kernel, signature, sizes=sizes, name="normalize")(x, *parameters)


class LayerNorm(_Norm):
    """Mean 0 and variance 1 along the last dimension, then scale and bias, as `flax.nnx.LayerNorm`.

    Args:
      num_features: size of the last dimension; every plan keeps it whole.
      epsilon: added to the variance.
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
            dims=dims,
            dtype=dtype,
            param_dtype=param_dtype,
            rngs=rngs,
        )

    def forward(self, x: Value) -> Value:
        """Normalise; the variance is `mean(x^2) - mean(x)^2`, as in Flax."""
        return self._normalize(x, center=True)


class RMSNorm(_Norm):
    """Mean square 1 along the last dimension, then scale, as `flax.nnx.RMSNorm`.

    Args:
      num_features: size of the last dimension; every plan keeps it whole.
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
        """Normalise by the root of the mean square."""
        return self._normalize(x, center=False)
