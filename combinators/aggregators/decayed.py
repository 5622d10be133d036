"""The aggregator of values that decay with time."""

from __future__ import annotations

from typing import Any, final

import jax.numpy as jnp
import numpy as np

from combinators import monoids
from combinators.aggregation.aggregator import Aggregator
from combinators.aggregators.entries import spread
from combinators.frozen import dataclass
from combinators.monoids.decayed import Decay


def Decayed(half_life: float = 1.0) -> Aggregator:
    """Add and average values that lose half of their weight in every `half_life`.

        total = sum of x 2**((t - time) / half_life),    mean = total / sum of 2**((t - time) / half_life)

    with `time` the latest `t`. Elements may come in any order. It takes two inputs, values and their times:
    `fold(Decayed(60.0), "event, event -> ")`; with `tp.scan` it is a running average over uneven steps.

    Args:
      half_life: above 0, in the unit of the times.

    Returns:
      An aggregator to a dictionary: `time`, `total` and `mean`, floats of at least 32 bits. Of nothing: `-inf`, 0 and
      NaN, with gradient 0.

    Raises:
      GraphError: when `half_life` is no positive number.

    Source: Boykin et al. 2014 (Algebird's DecayedValue).
    """
    monoid = monoids.decayed(half_life)
    decay = Decay(float(half_life))
    return Aggregator(
        lift_decayed,
        monoid,
        present_decayed,
        lift_many=DecayedMany(decay),
        reference=DecayedReference(float(half_life)),
        name="Decayed",
    )


def lift_decayed(x: Any, time: Any) -> Any:
    """Make the state of one element: it has not decayed."""
    x, time = _float(x), _float(time)
    return jnp.broadcast_to(time, x.shape), x, jnp.ones_like(x)


def present_decayed(state: Any) -> Any:
    """Present time, total and mean by name."""
    time, total, weight = state
    nothing = weight == 0
    return {
        "time": time,
        "total": total,
        "mean": jnp.where(nothing, jnp.nan, total / jnp.where(nothing, 1, weight)),
    }


@final
@dataclass(frozen=True)
class DecayedMany:
    """The state of all elements along the leading axis, by one maximum and two sums."""

    decay: Decay

    def __call__(self, xs: Any, times: Any) -> Any:
        """Return `(time, total, weight)`."""
        xs, times = _float(xs), _float(times)
        times = jnp.broadcast_to(spread(times, xs.ndim - 1), xs.shape)
        latest = jnp.max(times, axis=0, initial=-jnp.inf)
        share = self.decay.share(times, latest)
        return latest, jnp.sum(xs * share, axis=0), jnp.sum(share, axis=0).astype(xs.dtype)


@final
@dataclass(frozen=True)
class DecayedReference:
    """Weighted sums in NumPy, in float64."""

    half_life: float

    def __call__(self, xs: Any, times: Any) -> Any:
        """Return time, total and mean by name."""
        xs, times = np.asarray(xs, np.float64), np.asarray(times, np.float64)
        times = np.broadcast_to(spread(times, xs.ndim - 1), xs.shape)
        latest = np.max(times, axis=0, initial=-np.inf)
        weights = 0.5 ** ((latest - times) / self.half_life)
        total = np.sum(xs * weights, axis=0)
        with np.errstate(invalid="ignore"):
            return {"time": latest, "total": total, "mean": total / np.sum(weights, axis=0)}


def _float(x: Any) -> Any:
    x = jnp.asarray(x)
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))
