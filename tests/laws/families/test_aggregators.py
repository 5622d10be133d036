"""Every shipped aggregator has its laws, and every law of aggregators refuses a planted mutant.

Thorough: the other shipped aggregators, more examples of each, and the law of groups of the moments, which in every run
is that of LogSumExp, whose states are several arrays as well.
"""

from __future__ import annotations

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import laws
from combinators import Aggregator, Monoid, aggregators, monoids
from combinators.numerics.groups import Groups
from laws.families.aggregator import groups
from laws.shipped_pieces.aggregators import WEIGHTED, names, piece
from laws.subjects.aggregator import COUNT, AggregatorSubject
from laws.subjects.carrier import Carrier
from laws.verdicts.conditioning import magnitudes, wide_sides
from tests.shipped import each
from tests.thoroughly import some, thoroughly

# States of integers and booleans, large ones: what is wrong with them is wrong for all elements. An example of the
# moments, up to the fourth, costs several times what one of another costs.
FEW = ("Bloom", "CountMin", "DDSketch", "HyperLogLog", "MinHash", "Reservoir", "Moments")


def itself(x):
    return x


def total(xs):
    return jnp.sum(xs, axis=0)


def sums(**parts):
    return Aggregator(**{"lift": itself, "monoid": monoids.Sum, "present": itself, "lift_many": total} | parts)


def maxima(**parts):
    return Aggregator(**{"lift": itself, "monoid": monoids.Max, "present": itself} | parts)


def welford_without_cross_term(left, right):
    """Associative, and wrong."""
    (n1, mean1, a), (n2, mean2, b) = left, right
    n = n1 + n2
    return n, mean1 + (mean2 - mean1) * n2 / jnp.maximum(n, 1), a + b


WELFORD = Aggregator(
    lambda x: (jnp.ones(()), x, x * 0),
    Monoid(0.0, welford_without_cross_term, name="Welford"),
    lambda state: state[2] / jnp.maximum(state[0], 1),
    reference=lambda xs: np.var(xs, axis=0, dtype=np.float64),
    name="Welford",
)
MEAN_OF_MEANS = Aggregator(
    itself,
    Monoid(0.0, lambda a, b: (a + b) / 2, commutative=True),
    itself,
    lift_many=lambda xs: jnp.mean(xs, axis=0) if xs.shape[0] else jnp.zeros(xs.shape[1:]),
    reference=lambda xs: np.mean(xs, axis=0, dtype=np.float64),
    name="Mean of means",
)
UNGUARDED = Aggregator(
    lambda x: (x, jnp.ones(())), monoids.Mean, lambda state: state[0] / state[1], name="Unguarded mean"
)
FIRST = Aggregator(
    lambda x: (x, jnp.asarray(True)),
    Monoid(
        (0.0, False),
        lambda a, b: (jnp.where(a[1], a[0], b[0]), a[1] | b[1]),
        commutative=True,
        name="First",
    ),
    lambda state: state[0],
    name="First",
)


def differently_compiled(xs):
    """Another function where there are no numbers yet."""
    return total(xs) if isinstance(xs, np.ndarray) else total(xs) + 1


@jax.custom_batching.custom_vmap
def wrongly_mapped(state):
    return state


@wrongly_mapped.def_vmap
def _(size, batched, state):
    del size, batched
    return state[::-1], True


class Careless(Aggregator):
    """An aggregator whose combinators are wrong."""

    def __and__(self, other):
        return super().__and__(other).map(lambda pair: (pair[1], pair[0]))

    def contramap(self, function):
        del function
        return self

    def map(self, function):
        del function
        return self

    def by_segment(self, labels, size):
        return super().by_segment(labels, size).contramap(lambda x, label: (x, jnp.maximum(label, 0)))


CARELESS = Careless(itself, monoids.Sum, itself, lift_many=total, name="Careless")

MUTANTS = {
    "aggregator.step": sums(lift_many=lambda xs: total(xs[:-1])),
    "aggregator.lift_many": sums(lift_many=lambda xs: 2 * total(xs)),
    "aggregator.chunks": MEAN_OF_MEANS,
    "aggregator.empty": maxima(lift_many=lambda xs: jnp.max(xs, axis=0, initial=0.0)),
    "aggregator.empty_gradient": UNGUARDED,
    "aggregator.masking": maxima(monoid=Monoid(0.0, jnp.maximum, name="Max from 0")),
    "aggregator.permutation": FIRST,
    "aggregator.congruence": sums(monoid=Monoid(0.0, lambda a, b: a - b, name="Difference")),
    "aggregator.pairing": CARELESS,
    "aggregator.contramap": CARELESS,
    "aggregator.presenting": CARELESS,
    "aggregator.segments": sums(monoid=Monoid(0.0, lambda a, b: a + 2 * b, name="Weighted by place")),
    "aggregator.groups": CARELESS,
    "aggregator.windows": sums(monoid=Monoid(0.0, lambda a, b: b + b - a, name="Mirror")),
    "aggregator.removal": sums(monoid=dataclasses.replace(monoids.Sum, inverse=lambda x: x)),
    "aggregator.eager": sums(lift_many=differently_compiled),
    "aggregator.mapping": sums(present=wrongly_mapped),
    "aggregator.semantic": WELFORD,
}


# The mean is checked below, with its monoid; sums, extrema and what chooses have a single state, as it has two.
@pytest.mark.parametrize("name", each(names(), but=("Mean", "Sum", "Max", "ArgMax")))
def test_shipped_aggregators_are_lawful(name):
    # The laws of their monoids are checked, with the same lifts, in test_monoid_laws.
    few = 9 if thoroughly() else 3 if name in FEW else 4
    every = [law.name for law in laws.catalogue if law.family == "aggregator"]
    asked = [law for law in every if thoroughly() or (name, law) != ("Moments", "aggregator.groups")]
    report = laws.assert_lawful(piece(name), WEIGHTED.get(name), laws=asked, examples=few)
    assert "aggregator.semantic" in report.held, str(report)


def test_groups_are_asked_in_float64_where_their_sides_differ():
    recurrence = aggregators.Recurrence()
    carrier = Carrier((jax.ShapeDtypeStruct((), jnp.float32),) * 2, recurrence.lift)
    law = partial(groups, AggregatorSubject(recurrence, carrier, "Recurrence"))
    xs = np.full(COUNT, 0.5, np.float32), np.arange(COUNT, dtype=np.float32)
    assert magnitudes(law, (xs,), [0], of=0, cache={}, key="groups") is not None
    assert wide_sides(law, (xs,), cache={}, key="groups") is not None


def test_aggregator_is_checked_with_its_monoid():
    report = laws.assert_lawful(aggregators.Mean(), examples=5)
    assert {"aggregator.chunks", "monoid.inverse"} <= set(report.held)


def test_integers_are_aggregated_exactly():
    types = [jax.ShapeDtypeStruct((2,), jnp.int32)]
    some = ["aggregator"] if thoroughly() else ["aggregator.chunks", "aggregator.semantic"]
    held = laws.assert_lawful(aggregators.Mean(), types, laws=some, examples=10).held
    assert {"aggregator.chunks", "aggregator.semantic"} <= set(held)


@pytest.mark.parametrize("law", MUTANTS)
def test_law_rejects_its_mutant(law):
    with pytest.raises(laws.LawError, match=f"LAW {law} FAILED"):
        laws.assert_lawful(MUTANTS[law], laws=law, shrink=False)


def test_law_of_groups_sees_places_that_are_not_in_the_order_of_the_labels(monkeypatch):
    moved = property(lambda groups: groups.slots)
    slots = property(lambda groups: jnp.where((groups.keys >= 0) & (groups.keys < groups.size), groups.keys, 3))
    monkeypatch.setattr(Groups, "slots", slots)
    monkeypatch.setattr(Groups, "places", moved)
    monkeypatch.setattr("combinators.numerics.groups._order", lambda places, is_sorted: jnp.arange(places.shape[0]))
    with pytest.raises(laws.LawError, match=r"LAW aggregator\.groups FAILED"):
        laws.assert_lawful(aggregators.First(), laws="aggregator.groups", shrink=False)


def test_every_law_of_aggregators_has_a_mutant():
    assert set(MUTANTS) == {law.name for law in laws.catalogue if law.family == "aggregator"}


def test_associativity_does_not_imply_correctness():
    report = laws.assert_lawful(
        WELFORD, laws=["associativity", "chunks", "step", "lift_many", "bracketing"], examples=some(50)
    )
    assert len(report.held) == 5


def test_missing_reference_is_reported_and_not_passed():
    report = laws.assert_lawful(sums(), laws=["chunks", "semantic"], name="Sums", examples=5)
    assert report.not_checked == {"aggregator.semantic": "`Sums` has no reference"}


def squares_minus_square(n, total, squares):
    mean = total / jnp.maximum(n, 1)
    return squares / jnp.maximum(n, 1) - mean**2


def variance_in_numpy(xs):
    return np.asarray(xs, np.float64).var(axis=0)


def test_formula_that_loses_digits_is_not_excused_by_its_own_rounding():
    naive = Aggregator(
        lambda x: (jnp.ones(()), x, x * x),
        Monoid((0.0, 0.0, 0.0), jnp.add, commutative=True),
        lambda state: squares_minus_square(*state),
        reference=variance_in_numpy,
        name="Naive",
    )
    stable = aggregators.Moments(2).map(lambda found: found["variance"])
    stable = dataclasses.replace(stable, reference=variance_in_numpy)
    offset = laws.values(jax.ShapeDtypeStruct((), jnp.float32), min=4096, max=4097)
    only = {"laws": ["aggregator.semantic"], "values": offset, "examples": 20}
    failed = laws.examine(naive, **only).failed["aggregator.semantic"]
    assert "more than the conditioning explains" in str(failed)
    assert laws.examine(stable, **only).held == ("aggregator.semantic",)
