"""Monoids of values that decay with time: recent elements count more."""

from __future__ import annotations

import math
from typing import Any, final

import jax.numpy as jnp

from combinators.arguments import is_real
from combinators.errors import GraphError, message
from combinators.frozen import dataclass
from combinators.merging.monoid import Monoid
from combinators.monoids.logsumexp import log_ratio

# State: (time, total, weight): the latest time, and sums in which everything has decayed until then.


def decayed(half_life: float = 1.0) -> Monoid:
    """Make the monoid of exponentially decayed sums.

        t = max(t1, t2),    total = total1 2**((t1 - t) / h) + total2 2**((t2 - t) / h),    weight alike

    Elements may come in any order and at any times; `total / weight` is their exponentially weighted mean.

    Args:
      half_life: time in which a value loses half of its weight; above 0.

    Returns:
      A commutative monoid of states `(time, total, weight)`, floats; nothing is `(-inf, 0, 0)`.

    Raises:
      GraphError: when `half_life` is no positive number.

    Source: Boykin et al. 2014 (Algebird's DecayedValue); Cormode, Shkapenyuk, Srivastava, Xu 2009, forward decay.
    """
    if not is_real(half_life) or not 0 < half_life < math.inf:
        raise GraphError(
            message(
                "monoids.decayed: the half-life is no positive number.",
                f"got       {half_life!r}",
                remedy="Pass the time in which a value loses half of its weight.",
            )
        )
    return Monoid((-jnp.inf, 0, 0), Decay(float(half_life)), commutative=True, name=f"decayed({half_life:g})")


@final
@dataclass(frozen=True)
class Decay:
    """Let both states decay until the later time, and add."""

    half_life: float

    def __call__(self, left: Any, right: Any) -> Any:
        """Return `(time, total, weight)`."""
        (time1, total1, weight1), (time2, total2, weight2) = left, right
        time = jnp.maximum(time1, time2)
        share1, share2 = self.share(time1, time), self.share(time2, time)
        total = (total1 * share1 + total2 * share2).astype(total1.dtype)
        return time, total, (weight1 * share1 + weight2 * share2).astype(weight1.dtype)

    def share(self, since: Any, until: Any) -> Any:
        """What is left at `until` of one that was there at `since`; 0 where `since` is never."""
        return jnp.exp2(log_ratio(since, until) / self.half_life)
