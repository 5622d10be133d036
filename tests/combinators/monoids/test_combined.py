"""Monoids made of monoids: duals, adjoined identities, lexicographic products, named values, segments and runs."""

from __future__ import annotations

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import laws
from combinators import Scan, monoids
from combinators.errors import GraphError
from tests.thoroughly import but, thoroughly

F32, I32, BOOL = (jax.ShapeDtypeStruct((), dtype) for dtype in (jnp.float32, jnp.int32, jnp.bool_))
LAWS = ["structure", "monoid.associativity", "left_identity", "right_identity", "identity_gradient", "commutativity"]


def later(a, b):
    """The later of two: associative, and without an identity."""
    del a
    return b


def some(x):
    return jnp.array(True), x


def pair(x, y):
    return x, y


def triple(x, y, z):
    return x, (y, z)


def labelled(label, x, y):
    return jnp.int8(1), label % 3, (x, y)


PIECES = {
    "dual": (monoids.dual(monoids.AffineRecurrence), pair, (F32, F32)),
    "optional": (monoids.optional(jnp.minimum, commutative=True, idempotent=True), some, (F32,)),
    "optional, in order": (monoids.optional(later), some, (F32,)),
    "lexicographic": (
        monoids.lexicographic(monoids.Max, monoids.lexicographic(monoids.Min, monoids.Sum)),
        triple,
        (F32, I32, I32),
    ),
    "segmented": (monoids.segmented(monoids.AffineRecurrence), triple, (BOOL, F32, F32)),
    "runs": (monoids.runs(monoids.AffineRecurrence), labelled, (I32, F32, F32)),
}


@pytest.mark.parametrize("name", but(PIECES, "optional", "dual"))
def test_monoids_made_of_monoids_are_lawful(name):
    monoid, lift, types = PIECES[name]
    report = laws.assert_lawful(monoid, types=types, lift=lift, laws=LAWS, examples=10)
    assert ("monoid.commutativity" in report.held) == monoid.commutative
    assert set(report.held) | {"monoid.commutativity"} == {law if "." in law else f"monoid.{law}" for law in LAWS}


def test_dual_folds_from_the_last_to_the_first():
    steps = [(np.float32(a), np.float32(b)) for a, b in ((2, 1), (3, 5), (-1, 4))]
    backwards = monoids.dual(monoids.AffineRecurrence)
    np.testing.assert_array_equal(backwards.fold(steps), monoids.AffineRecurrence.fold(steps[::-1]))
    assert monoids.dual(backwards) == monoids.AffineRecurrence
    assert monoids.dual(monoids.Max) is monoids.Max
    both = monoids.dual(monoids.struct(a=monoids.Sum, b=monoids.AffineRecurrence))
    assert both.parts == (monoids.Sum, backwards)


def test_reversed_scan_of_the_dual_runs_a_recurrence_backwards():
    a, b = (np.random.default_rng(seed).standard_normal(6).astype(np.float32) for seed in (0, 1))
    scanned = Scan(monoids.dual(monoids.AffineRecurrence), "t, t -> t, t", over="t", reverse=True)(a, b)[1]
    state, want = np.float32(0), []
    for t in reversed(range(6)):
        state = a[t] * state + b[t]
        want.append(state)
    np.testing.assert_allclose(scanned, want[::-1], rtol=1e-5)


def test_optional_ignores_what_is_not_valid():
    last = monoids.optional(later, name="Last")
    states = [(jnp.array(valid), jnp.float32(x)) for valid, x in ((True, 1), (False, np.nan), (True, 3), (False, 9))]
    for bracket in (last.fold(states), last.merge(last.fold(states[:1]), last.fold(states[1:]))):
        assert bracket == (True, 3)
    assert not last.fold(states[1:2])[0]
    # A slope that is infinite at the zeros of what is not valid does not get in.
    roots = monoids.optional(lambda a, b: jnp.sqrt(a * a + b * b))
    slope = jax.jit(jax.grad(lambda x: roots.merge((jnp.array(True), x), (jnp.array(False), jnp.float32(0)))[1]))(
        jnp.float32(2)
    )
    assert slope == 1


def test_lexicographic_counts_how_often_the_maximum_occurs():
    x = np.array([3, 7, 7, -1, 7, np.inf, 2], np.float32)
    counted = monoids.lexicographic(monoids.Max, monoids.Sum)
    for end in range(1, len(x) + 1):
        top, times = counted.fold([(np.float32(value), np.int32(1)) for value in x[:end]])
        assert (top, times) == (x[:end].max(), np.sum(x[:end] == x[:end].max()))


def test_lexicographic_orders_as_tuples_are():
    words = [(1, 5, 2), (3, 0, 9), (3, 2, 0), (3, 2, 1), (0, 9, 9)]
    order = monoids.lexicographic(monoids.Max, monoids.lexicographic(monoids.Max, monoids.Max))
    assert order.idempotent
    for several in [*itertools.permutations(words, 3)][:: 1 if thoroughly() else 7]:
        states = [(np.int32(a), (np.int32(b), np.int32(c))) for a, b, c in several]
        first, (second, third) = order.fold(states)
        assert (first, second, third) == max(several)


def test_map_values_merges_dictionaries_by_key():
    tops = monoids.map_values(monoids.Max, "height", "weight")
    assert tops.native == "max"
    people = [{"height": np.float32(h), "weight": np.float32(w)} for h, w in ((1.7, 80), (1.9, 60))]
    assert tops.fold(people) == {"height": np.float32(1.9), "weight": np.float32(80)}


def test_runs_tell_a_label_that_comes_back_from_one_that_goes_on():
    counted = monoids.runs(monoids.Sum)
    labels = [4, 4, 1, 4, 4, 4]
    states = [(np.int8(1), np.int32(label), np.int32(1)) for label in labels]
    for cut in range(len(states) + 1):
        pieces = [part for part in (states[:cut], states[cut:]) if part]
        kind, label, count = functools.reduce(counted.merge, map(counted.fold, pieces))
        assert (kind, label, count) == (2, 4, 3)
    assert counted.fold(states[:2])[0] == 1


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: monoids.optional(3), "`combine` is no function"),  # pyright: ignore[reportArgumentType]
        (lambda: monoids.lexicographic(monoids.Sum, monoids.Max), r"(?s)does not choose one of two.*Monoid\(Sum\)"),
        (lambda: monoids.map_values(monoids.Sum), r"(?s)the keys are no names.*got       nothing"),
        (lambda: monoids.map_values(monoids.Sum, "a", "a"), r"got       'a', 'a'"),
    ],
)
def test_parts_that_do_not_fit_are_an_error(make, problem):
    with pytest.raises(GraphError, match=problem):
        make()
