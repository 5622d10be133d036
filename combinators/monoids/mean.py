"""The monoid of a mean: totals and counts."""

from __future__ import annotations

import jax.numpy as jnp

from combinators.merging.leafwise import Leafwise
from combinators.merging.monoid import Monoid

Mean: Monoid = Monoid(0, Leafwise(jnp.add), commutative=True, inverse=Leafwise(jnp.negative), name="Mean")
"""State `(total, count)`, both added: the mean is `total / count`.

Native: one all-reduce of all leaves. Integers wrap around; the aggregator therefore totals them twice, see
`aggregators/totals.py`. For floats far from zero `Moments` is
the more accurate mean.
"""
