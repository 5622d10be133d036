"""Every shipped monoid has its laws, and every law of monoids refuses a planted mutant.

Thorough: the other shipped monoids, and more examples of each. In every run the moments are asked by their aggregator
in test_aggregators.py, and their frame where its reference is far off.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import laws
from combinators import Frame, Monoid, monoids
from combinators.monoids.moments import reference_mean
from laws.subjects.examples import shipped
from tests.shipped import each
from tests.thoroughly import some, thoroughly

F32 = jax.ShapeDtypeStruct((), jnp.float32)
PAIR = (F32, F32)


def counted(x):
    return jnp.ones(()), x, jnp.zeros(())


def moments(correction):
    """Chan's merge of (count, mean, m2); `correction` says what the means' difference adds to m2."""

    def combine(left, right):
        (n1, mean1, a), (n2, mean2, b) = left, right
        n, gap = n1 + n2, mean2 - mean1
        some = jnp.maximum(n, 1)
        return n, mean1 + gap * n2 / some, a + b + correction(gap, n1, n2, some)

    return Monoid(0.0, combine, name="Chan")


def product_of_pair(left, right):
    return left[0] + right[1], left[1] + right[0]


def scaled_sum(left, right):
    """Log-sum-exp without a guard: `e + e` is `-inf - -inf`."""
    (top1, sum1), (top2, sum2) = left, right
    top = jnp.maximum(top1, top2)
    return top, sum1 * jnp.exp(top1 - top) + sum2 * jnp.exp(top2 - top)


@jax.custom_batching.custom_vmap
def wrongly_mapped(a, b):
    return a + b


@wrongly_mapped.def_vmap
def _(size, batched, a, b):
    del size, batched
    return a + b[::-1], True


def counting(left, right):
    """A sum with a hidden leaf, on which later sums depend."""
    return left[0] + right[0] + jnp.where(left[1] >= 2, 1.0, 0.0), left[1] + 1


def framed(frame, monoid=monoids.LogSumExp):
    return dataclasses.replace(monoid, frame=dataclasses.replace(monoid.frame, **frame), name="Framed")


def forgetful(reference, addends):
    """Restores moments as if the reference were the mean, which it is only where it comes from `at`."""
    count, _, second = addends
    return count, jnp.where(count == 0, 0, reference[0]), second


def in_place(left, right):
    """A sum that writes into its first argument."""
    left["sum"] = left["sum"] + right["sum"]
    return left


def differently_compiled(left, right):
    """Another function where there are no numbers yet."""
    try:
        return np.asarray(left) + np.asarray(right)
    except jax.errors.TracerArrayConversionError:
        return left + right + 1


@dataclasses.dataclass
class Unsteady:
    """Sees something else every time that it is asked."""

    count: int = 0

    def __call__(self, state):
        self.count += 1
        return state + self.count


def product_of_small(left, right):
    """A product, until it has grown."""
    both = left * right
    return jnp.where(jnp.abs(both) > 20, both + 1, both)


def lifted(monoid, lift, **kinds):
    return {"piece": monoid, "lift": lift} | kinds


MUTANTS = {
    "monoid.structure": {"piece": Monoid(0.0, lambda a, b: (a + b).astype(jnp.bfloat16), name="Halving")},
    "monoid.associativity": lifted(moments(lambda gap, n1, n2, n: gap * gap * n1 * n2 / (n + 1)), counted),
    "monoid.left_identity": {"piece": Monoid(0.0, jnp.maximum, name="Max from 0")},
    "monoid.right_identity": {"piece": Monoid(0.0, lambda a, b: b, name="Last without a flag")},
    "monoid.identity_range": lifted(moments(lambda gap, n1, n2, n: gap * gap * n1 * n2 / n), counted),
    "monoid.identity_gradient": lifted(Monoid((-jnp.inf, 0), scaled_sum, name="Unguarded"), lambda x: (x, x * 0 + 1)),
    "monoid.bracketing": {"piece": Monoid(0.0, lambda a, b: (a + b) / 2, name="Mean of means")},
    "monoid.mapping": {"piece": Monoid(0.0, wrongly_mapped, name="Wrongly mapped")},
    "monoid.congruence": lifted(
        Monoid(0.0, counting, name="Hidden"), lambda x: (x, jnp.zeros(())), observe=lambda state: state[0]
    ),
    "monoid.nothing": lifted(Monoid((-jnp.inf, 0), scaled_sum, name="Unguarded"), lambda x: (x, x * 0 + 1)),
    "monoid.repetition": {"piece": Monoid(1.0, product_of_small, name="Grown")},
    "monoid.eager": {"piece": Monoid(0.0, differently_compiled, name="Compiled otherwise"), "types": [F32]},
    "monoid.unchanged": lifted(Monoid(0.0, in_place, name="In place"), lambda x: {"sum": x}),
    "monoid.equality": {"piece": Monoid(0.0, jnp.add, name="Unsteady"), "observe": Unsteady()},
    "monoid.commutativity": {
        "piece": dataclasses.replace(monoids.AffineRecurrence, commutative=True),
        "types": PAIR,
    },
    "monoid.idempotence": {"piece": dataclasses.replace(monoids.Sum, idempotent=True)},
    "monoid.inverse": {"piece": dataclasses.replace(monoids.Prod, inverse=jnp.negative)},
    "monoid.native": lifted(
        Monoid(
            (0.0, 0.0), lambda a, b: jax.tree.map(jnp.maximum, a, b), parts=(monoids.Sum, monoids.Sum), name="Not a sum"
        ),
        lambda x: (x, x),
    ),
    "monoid.parts": lifted(
        Monoid((0.0, 0.0), product_of_pair, parts=(monoids.Sum, monoids.Sum), name="Crossed"), lambda x: (x, 2 * x)
    ),
    "monoid.frame": lifted(
        framed({"restore": lambda reference, total: (reference + 1, total)}), lambda x: (x, x * 0 + 1)
    ),
    "monoid.frame_independence": lifted(
        framed({"restore": forgetful}, monoids.Moments), lambda x: (jnp.ones((), jnp.int32), x, x * 0)
    ),
    "monoid.frame_gradient": lifted(
        framed({"restore": forgetful}, monoids.Moments), lambda x: (jnp.ones((), jnp.int32), x, x * 0)
    ),
}


# The frame of LogSumExp is that of AttentionState, which carries more.
@pytest.mark.parametrize("name", each(shipped(), but=("Max", "Mean", "LogSumExp", "Moments")))
def test_shipped_monoids_are_lawful(name):
    monoid = getattr(monoids, name)
    report = laws.assert_lawful(monoid, examples=some(9))
    expected = {"commutativity": monoid.commutative, "idempotence": monoid.idempotent, "native": monoid.native}
    expected |= {"inverse": monoid.inverse, "frame_independence": monoid.frame, "associativity": True}
    for law, declared in expected.items():
        assert (f"monoid.{law}" in report.held) == bool(declared), str(report)


def test_every_shipped_monoid_has_examples():
    assert set(shipped()) == {name for name, value in vars(monoids).items() if isinstance(value, Monoid)}


# Monoids made of monoids are in combinators/monoids/test_combined.py.
@pytest.mark.thorough
def test_product_of_monoids_is_lawful():
    both = monoids.struct(top=monoids.ArgMax, total=monoids.Mean)
    assert {"monoid.parts", "monoid.commutativity"} <= set(laws.assert_lawful(both, examples=10).held)


def test_half_precision_is_judged_by_its_own_rounding():
    half = jax.ShapeDtypeStruct((3,), jnp.bfloat16)
    assert (
        "monoid.associativity"
        in laws.assert_lawful(monoids.Sum, types=[half], laws="associativity", examples=some(50)).held
    )


@pytest.mark.parametrize("law", MUTANTS)
def test_law_rejects_its_mutant(law):
    mutant = dict(MUTANTS[law])
    with pytest.raises(laws.LawError, match=rf"LAW {law} FAILED") as caught:
        laws.assert_lawful(mutant.pop("piece"), laws=law, shrink=False, **mutant)
    assert caught.value.law == law


def test_every_law_of_monoids_has_a_mutant():
    assert set(MUTANTS) == {law.name for law in laws.catalogue if law.family == "monoid"}


def test_identity_law_sees_both_sides():
    right_zero = Monoid(0.0, lambda a, b: a, name="First without a flag")
    assert laws.assert_lawful(right_zero, laws="right_identity").held
    with pytest.raises(laws.LawError, match="left_identity"):
        laws.assert_lawful(right_zero, laws="left_identity")


def test_frame_law_alone_misses_a_frame_that_forgets_its_reference():
    forgets = framed({"restore": forgetful}, monoids.Moments)
    report = laws.assert_lawful(
        forgets, lift=lambda x: (jnp.ones((), jnp.int32), x, x * 0), laws="monoid.frame", examples=some(50)
    )
    assert report.held == ("monoid.frame",)


def test_cancelling_frame_is_not_refused_for_rounding():
    """A reference far off makes large addends cancel; that is rounding, and no fault of the frame."""

    def far(summary):
        mean, count = reference_mean(summary)
        return mean + 1000, count

    shifted = framed({"at": far}, monoids.Moments)
    assert isinstance(shifted.frame, Frame)
    lift = lambda x: (jnp.ones((), jnp.int32), x, x * 0)  # noqa: E731
    observe = lambda s: (s[0], jnp.where(s[0] == 0, 0, s[1]), s[2])  # noqa: E731
    assert laws.assert_lawful(
        shifted, lift=lift, observe=observe, laws=["frame", "frame_independence"], examples=50 if thoroughly() else 8
    )
