"""The monoid of a mean: totals and counts."""

from __future__ import annotations

import jax.numpy as jnp

from combinators.monoid import Leafwise, Monoid

Mean: Monoid = Monoid(0, Leafwise(jnp.add), commutative=True, inverse=Leafwise(jnp.negative), name="Mean")
"""State `(total, count)`, both added: the mean is `total / count`.

Exact for integers that do not overflow, and native: one all-reduce of two leaves. For floats far from zero `Moments` is
the more accurate mean.
"""
