"""Scaling to mean 0 and variance 1 by statistics that are there, and what all norms are given."""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import lax

from combinators.arguments import read_count, read_flag, read_number
from combinators.errors import GraphError, SignatureError, message
from combinators.frozen import dataclass
from combinators.leaves.map import Map
from combinators.recording.value import Value
from tapestry_jax.nnx.modules.module import Module
from tapestry_jax.nnx.norms.statistics import axes_of, statistics
from tapestry_jax.nnx.options import read_dims, read_dtypes, read_rngs
from tapestry_jax.nnx.parameter import ones, parameter, zeros


@dataclass(frozen=True)
class Scaled:
    """`(x - mean) / sqrt(variance + epsilon)`, then by parameters.

    Attributes:
      epsilon: added to the variance.
      added: axes of `x` that the statistics do not have.
      centered: whether a mean comes behind `x`, before the variance.
      scaled: whether a scale comes behind the variance.
      shifted: whether a bias comes last.
      group: consecutive cells of the last axis that share statistics, or 0.
      dtype: of the result; None is what JAX promotes `x` and the parameters to.
    """

    epsilon: float
    added: tuple[int, ...]
    centered: bool
    scaled: bool
    shifted: bool
    group: int = 0
    dtype: np.dtype[Any] | None = None

    def __call__(self, x: Any, *operands: Any) -> Any:
        """Shape and order of `x`."""
        count = 1 + self.centered
        statistics, parameters = operands[:count], operands[count:]
        dtype = jnp.result_type(x, *parameters) if self.dtype is None else self.dtype
        x, listed = x.astype(dtype), (operand.astype(dtype) for operand in parameters)
        *mean, variance = (self._spread(statistic) for statistic in statistics)
        wide = x - mean[0] if mean else x.astype(variance.dtype)
        factor = lax.rsqrt(variance + self.epsilon)
        if self.scaled:
            factor = factor * next(listed)
        y = wide * factor
        if self.shifted:
            y = y + next(listed)
        return y.astype(dtype)

    def _spread(self, statistic: Any) -> Any:
        if self.group:
            statistic = jnp.repeat(statistic, self.group, axis=-1)
        return jnp.expand_dims(statistic, self.added)


class Norm(Module):
    """What all norms share: a scale and a bias along the last dimension."""

    def __init__(
        self,
        num_features: int,
        *,
        epsilon: float = 1e-6,
        use_bias: bool = True,
        use_scale: bool = True,
        use_fast_variance: bool = True,
        dims: tuple[str] = ("channels",),
        dtype: Any = None,
        param_dtype: Any = jnp.float32,
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
        self.use_fast_variance = read_flag(use_fast_variance, f"use_fast_variance= {own}")
        rngs = read_rngs(rngs, own)
        self.scale: nnx.Param[jax.Array] | None = nnx.data(None)
        self.bias: nnx.Param[jax.Array] | None = nnx.data(None)
        if read_flag(use_scale, f"use_scale= {own}"):
            self.scale = parameter(ones, (self.num_features,), self.dims, rngs=rngs, dtype=param_dtype)
        if read_flag(use_bias, f"use_bias= {own}"):
            self.bias = parameter(zeros, (self.num_features,), self.dims, rngs=rngs, dtype=param_dtype)

    @property
    def signature(self) -> str:
        """The last dimension holds the features."""
        return f"... {self.dims[0]} -> ... {self.dims[0]}"

    @property
    def sizes(self) -> dict[str, int]:
        """Of the last dimension."""
        return {self.dims[0]: self.num_features}

    def _check(self, x: Value, rank: int = 1) -> None:
        """Refuse what has fewer axes than a norm needs, or other features."""
        if x.ndim < rank or x.shape[-1] != self.num_features:
            details = (f"expected {rank} axes or more, the last one {self.dims[0]}={self.num_features}", f"got {x!r}")
            remedy = "Change the module's num_features, or what comes in."
            raise SignatureError(message(f"{type(self).__name__}: the input does not fit", *details, remedy=remedy))

    def _statistics(self, x: Value, kept: Collection[int], *, groups: int = 0) -> tuple[Value, Value]:
        """Mean and variance along the axes that are not kept."""
        return statistics(x, kept, groups=groups, fast=self.use_fast_variance)

    def _scaled(self, x: Value, by: tuple[Value, ...], kept: Collection[int], groups: int = 0) -> Value:
        """By a variance, or a mean and a variance, that carry the axes `kept`, and the groups of the last one."""
        name = x.names[-1]
        parameters = [called(p[...], name) for p in (self.scale, self.bias) if p is not None]
        operand, carried = axes_of(x.ndim, kept, grouped=groups > 0)
        last = operand[operand.rindex("(") :] if groups else operand.split()[-1]
        text = ", ".join([operand, *(carried for _ in by), *(last for _ in parameters)]) + f" -> {operand}"
        kernel = Scaled(
            self.epsilon,
            tuple(axis for axis in range(x.ndim - (groups > 0)) if axis not in kept),
            len(by) == 2,
            self.scale is not None,
            self.bias is not None,
            self.num_features // groups if groups else 0,
            None if self.dtype is None else jnp.dtype(self.dtype),
        )
        return _normalize(kernel, repr(kernel), text, groups)(x, *by, *parameters)


# The layers of a model repeat the same few: what is known of an operation is not found again for its equal. Kernels
# are equal with an epsilon of 0 and one of 0.0, which graphs tell apart.
@lru_cache(maxsize=256)
def _normalize(kernel: Scaled, told: str, text: str, groups: int) -> Map:
    return Map(kernel, text, sizes={"groups": groups} if groups else None, name="normalize")


def called(value: Any, name: str | None) -> Value:
    """A vector of features by the name that these have elsewhere; None leaves its own."""
    own = value.names[-1]
    return value if name is None or own in (None, name) else value.rename(**{own: name})
