"""Normalisation over the positions of an example: of all channels together in groups, or of each by itself."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from flax import nnx

from combinators.arguments import read_count
from combinators.errors import GraphError, message, spelt
from combinators.recording.value import Value
from tapestry_jax.nnx.norms.scaled import Norm


class GroupNorm(Norm):
    """Mean 0 and variance 1 over groups of channels and all axes behind the first, as `flax.nnx.GroupNorm`.

    All these axes are folds, so that a plan may cut an image; groups are a dimension of their own, `groups`.

    Args:
      num_features: the channels, the last dimension.
      num_groups: how many groups they make; None where `group_size` says it.
      group_size: channels of a group.
      epsilon: added to the variance.
      use_fast_variance: one pass over what is uncut; beside a large offset it loses the digits of the variance.
      use_bias: whether a bias is added.
      use_scale: whether a scale is multiplied.
      dims: name of the last dimension.
      dtype: of the result; by default what JAX promotes inputs and parameters to.
      param_dtype: of the parameters.
      rngs: whose stream `params` initialises.

    Raises:
      GraphError: when the groups do not divide the channels, or both or neither of their numbers are given.
    """

    def __init__(
        self,
        num_features: int,
        num_groups: int | None = 32,
        group_size: int | None = None,
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
        if (num_groups is None) == (group_size is None):
            details = (f"num_groups is {spelt(num_groups, 40)}, group_size {spelt(group_size, 40)}",)
            remedy = "Pass one of them, and num_groups=None for the other."
            raise GraphError(message("GroupNorm is told its groups once", *details, remedy=remedy))
        what, number = ("num_groups", num_groups) if group_size is None else ("group_size", group_size)
        part = read_count(number, f"{what}= of GroupNorm")
        if self.num_features % part:
            details = (f"num_features is {self.num_features}, {what} {part}",)
            raise GraphError(
                message("groups of GroupNorm do not divide the channels", *details, remedy="Choose others.")
            )
        self.num_groups = part if group_size is None else self.num_features // part

    def forward(self, x: Value) -> Value:
        """Normalise every group of every example: `(n, ..., num_features)`, which comes back.

        Raises:
          SignatureError: when there is no axis before the channels, or they have another size.
        """
        self._check(x, 2)
        return self._scaled(x, self._statistics(x, (0,), groups=self.num_groups), (0,), self.num_groups)


class InstanceNorm(Norm):
    """Mean 0 and variance 1 of every channel over all axes between the first and it, as `flax.nnx.InstanceNorm`.

    Args:
      num_features: the channels, the last dimension.
      epsilon: added to the variance.
      use_fast_variance: one pass over what is uncut; beside a large offset it loses the digits of the variance.
      use_bias: whether a bias is added.
      use_scale: whether a scale is multiplied.
      dims: name of the last dimension.
      dtype: of the result; by default what JAX promotes inputs and parameters to.
      param_dtype: of the parameters.
      rngs: whose stream `params` initialises.
    """

    def forward(self, x: Value) -> Value:
        """Normalise every channel of every example: `(n, ..., num_features)`, which comes back.

        Raises:
          SignatureError: when there are fewer than three axes, or channels of another size.
        """
        self._check(x, 3)
        kept = (0, x.ndim - 1)
        return self._scaled(x, self._statistics(x, kept), kept)
