"""Scaling of the loss: float16 has no numbers for small gradients."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

FIRST, LEAST = 2.0**15, 1.0


@partial(jax.tree_util.register_dataclass, data_fields=["value", "good"], meta_fields=["period", "factor"])
@dataclasses.dataclass(frozen=True)
class LossScale:
    """A number that the loss is multiplied by and its gradients are divided by, which finds its own size.

    Steps whose gradients are not finite are left out and divide it by `factor`; after `period` steps that were, it is
    multiplied by `factor`.

    Attributes:
      value: the number, float32 scalar.
      good: steps since it changed, int32 scalar.
      period: how many steps make it larger.
      factor: how much larger, and how much smaller.

    Source: Micikevicius et al., Mixed Precision Training, 2018, section 3.2; the numbers are those of jmp.
    """

    value: Any
    good: Any
    period: int = 2000
    factor: float = 2.0

    @staticmethod
    def of(first: float) -> LossScale:
        """Begin with a number."""
        return LossScale(jnp.float32(first), jnp.int32(0))

    def unscaled(self, gradients: Any) -> Any:
        """The gradients of the loss itself."""
        # In float32 at least: a scale may be no number of float16.
        return jax.tree.map(lambda leaf: (leaf / self.value).astype(leaf.dtype), gradients)

    def after(self, finite: Any) -> LossScale:
        """The scale of the next step, given whether the gradients of this one were finite."""
        is_due = self.good + 1 >= self.period
        larger = jnp.where(jnp.isfinite(self.value * self.factor), self.value * self.factor, self.value)
        grown = jnp.where(is_due, larger, self.value)
        shrunk = jnp.maximum(self.value / self.factor, LEAST)
        good = jnp.where(finite & ~is_due, self.good + 1, 0).astype(jnp.int32)
        return dataclasses.replace(self, value=jnp.where(finite, grown, shrunk), good=good)
