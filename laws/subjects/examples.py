"""How states of the shipped monoids are made: what is lifted, when two states are equal, and their range."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from combinators import aggregators, monoids
from combinators.merging.monoid import Monoid
from combinators.merging.parts import SideBySide
from combinators.monoids.logsumexp import finite_or_zero
from laws.draws.cells import BOOL, F32, I32, Struct
from laws.subjects.carrier import Carrier

MASKED = (-np.inf,)


def itself(element: Any) -> Any:
    """Lift an element that is a state already."""
    return element


def pair(first: Any, second: Any) -> Any:
    """Lift two elements to a pair."""
    return first, second


def counted(total: Any) -> Any:
    """Lift an element to a total of one."""
    return total, jnp.ones((), jnp.int32)


def attended(score: Any, value: Any) -> Any:
    """Lift a score and a value as an attention kernel does for one key."""
    weight = jnp.exp(score - finite_or_zero(score))
    return score, weight, weight * value


def logsumexp(state: Any) -> Any:
    """Observe what `(m, s)` stands for: `m + log(s)`."""
    return monoids.logsumexp_value(state)


def attention(state: Any) -> Any:
    """Observe the log-sum-exp of the scores and the output."""
    return monoids.attention_logsumexp(state), monoids.attention_output(state)


def moments(state: Any) -> Any:
    """Observe count, mean and central sums; an empty state has no mean."""
    count, mean, *sums = state
    return count, jnp.where(count == 0, 0, mean), *sums


def covariance(state: Any) -> Any:
    """Observe count, mean and products; an empty state has no mean."""
    count, mean, products = state
    return count, jnp.where(count == 0, 0, mean), products


def _vector(*shape: int) -> Struct:
    return Struct(shape, jnp.float32)


_TABLE: dict[str, tuple[Monoid, tuple[Carrier, ...]]] = {
    "Sum": (monoids.Sum, (Carrier((F32,), itself, infinite=True), Carrier((I32,), itself))),
    "Prod": (monoids.Prod, (Carrier((F32,), itself, infinite=True),)),
    "Min": (monoids.Min, (Carrier((F32,), itself, infinite=True),)),
    "Max": (monoids.Max, (Carrier((F32,), itself, infinite=True), Carrier((I32,), itself))),
    "MinMax": (monoids.MinMax, (Carrier((F32,), aggregators.MinMax().lift, infinite=True),)),
    "First": (monoids.First, (Carrier((F32, BOOL), aggregators.First().lift, infinite=True),)),
    "Last": (monoids.Last, (Carrier((F32, BOOL), aggregators.Last().lift, infinite=True),)),
    "Any": (monoids.Any, (Carrier((BOOL,), itself),)),
    "All": (monoids.All, (Carrier((BOOL,), itself),)),
    "Mean": (monoids.Mean, (Carrier((F32,), counted, infinite=True),)),
    "Moments": (
        monoids.Moments,
        # With weights: the count is a float, and has a derivative.
        (Carrier((F32, F32), aggregators.Moments().lift, observe=moments, infinite=True),),
    ),
    "Covariance": (
        monoids.Covariance,
        (Carrier((_vector(2), F32), aggregators.Covariance().lift, observe=covariance, infinite=True),),
    ),
    "LogSumExp": (
        monoids.LogSumExp,
        (Carrier((F32,), aggregators.LogSumExp().lift, observe=logsumexp, special=(MASKED,), infinite=True),),
    ),
    "AttentionState": (
        monoids.AttentionState,
        (Carrier((F32, _vector(2)), attended, observe=attention, special=(MASKED,), infinite=True),),
    ),
    # A recurrence multiplies the identity's 0 with the decay, so its range is what is finite.
    "AffineRecurrence": (monoids.AffineRecurrence, (Carrier((_vector(2), _vector(2)), pair),)),
    "AffineRecurrenceDense": (monoids.AffineRecurrenceDense, (Carrier((_vector(2, 2), _vector(2)), pair),)),
    "ArgMax": (monoids.ArgMax, (Carrier((F32, I32), pair, infinite=True),)),
    "ArgMin": (monoids.ArgMin, (Carrier((F32, I32), pair, infinite=True),)),
    "CompensatedSum": (
        monoids.CompensatedSum,
        (Carrier((F32,), aggregators.CompensatedSum().lift, observe=monoids.compensated_value, infinite=True),),
    ),
    "MatrixProduct": (monoids.MatrixProduct, (Carrier((_vector(2, 2),), itself),)),
    "MinPlusProduct": (monoids.MinPlusProduct, (Carrier((_vector(2, 2),), itself, special=((np.inf,),)),)),
    "MaxPlusProduct": (monoids.MaxPlusProduct, (Carrier((_vector(2, 2),), itself, special=(MASKED,)),)),
    "LogProduct": (monoids.LogProduct, (Carrier((_vector(2, 2),), itself, special=(MASKED,)),)),
    "Reservoir": (monoids.Reservoir, (Carrier((F32, I32), aggregators.Reservoir(3).lift, infinite=True),)),
    "TopK": (monoids.TopK, (Carrier((F32, I32), aggregators.TopK(3).lift, infinite=True),)),
}


def shipped() -> tuple[str, ...]:
    """The names of the monoids with examples."""
    return tuple(_TABLE)


def examples_of(monoid: Monoid) -> tuple[Carrier, ...]:
    """The carriers of a shipped monoid, or of a product of such.

    Args:
      monoid: any.

    Returns:
      Carriers to check it on; none where it is not known how its states are made.
    """
    for known, carriers in _TABLE.values():
        if known == monoid:
            return carriers
    if not monoid.parts:
        return ()
    listed = [examples_of(part) for part in monoid.parts]
    return () if not all(listed) else (_product([carriers[0] for carriers in listed], monoid.keys),)


class _Lifts:
    """Lift the elements of every part to its part of the state."""

    def __init__(self, parts: list[Carrier], keys: tuple[str, ...] | None) -> None:
        self._parts, self._keys = parts, keys

    def __call__(self, *elements: Any) -> Any:
        remaining = iter(elements)
        states: list[Any] = []
        for part in self._parts:
            assert part.lift is not None
            states.append(part.lift(*(next(remaining) for _ in part.elements)))
        return tuple(states) if self._keys is None else dict(zip(self._keys, states, strict=True))


def _product(parts: list[Carrier], keys: tuple[str, ...] | None) -> Carrier:
    special = tuple(
        extra for part in parts for extra in (*part.special, *([()] * (len(part.elements) - len(part.special))))
    )
    return Carrier(
        tuple(element for part in parts for element in part.elements),
        _Lifts(parts, keys),
        observe=SideBySide(tuple(part.observe for part in parts), keys),
        special=special,
        infinite=all(part.infinite for part in parts),
    )
