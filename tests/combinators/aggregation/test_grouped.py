"""Aggregators by key, by segment and masked, against NumPy on the elements of each group."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import laws
from combinators import Aggregator, aggregators, monoids
from combinators.errors import GraphError
from combinators.numerics.groups import Groups, fold_all, fold_groups
from tests.simulated.sampled import in_numpy

F32, I32, BOOL = (jax.ShapeDtypeStruct((), dtype) for dtype in (jnp.float32, jnp.int32, jnp.bool_))
SIZE = 5
X = np.random.default_rng(0).standard_normal(31).astype(np.float32)
KEYS = np.random.default_rng(1).integers(-2, SIZE + 1, 31).astype(np.int32)  # some belong to no group, 3 has none
KEYS[KEYS == 3] = 4
MASK = np.random.default_rng(2).random(31) < 0.6


def second(state):
    return state[1]


def step(x):
    return x, x + 1


RECURRENCE = Aggregator(step, monoids.AffineRecurrence, second, name="Recurrence")
EVERYTHING = (aggregators.Moments() & aggregators.LogSumExp()) & (aggregators.Any() & aggregators.Min())


def _close(got, want):
    assert jax.tree.structure(got) == jax.tree.structure(want)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), got, want)


def test_every_key_has_the_result_of_its_elements():
    got = in_numpy(EVERYTHING.by_key(None, SIZE).run)(X, KEYS)
    ((moments, logsumexp), (anything, least)) = got
    for key in range(SIZE):
        mine = X[key == KEYS]
        assert moments["count"][key] == len(mine)
        assert anything[key] == (len(mine) > 0)
        with np.errstate(all="ignore"):
            _close(logsumexp[key], np.log(np.exp(mine).sum()))
        _close(least[key], mine.min() if len(mine) else np.float32(np.inf))
        if len(mine):
            _close((moments["mean"][key], moments["variance"][key]), (mine.mean(), mine.var()))
    assert np.isnan(moments["mean"][3])


@pytest.mark.parametrize("is_sorted", [False, True])
def test_monoids_without_commutativity_keep_the_order_within_a_key(is_sorted):
    keys = np.sort(KEYS) if is_sorted else KEYS
    grouped = RECURRENCE.by_segment(None, SIZE) if is_sorted else RECURRENCE.by_key(None, SIZE)
    got = in_numpy(grouped.run)(X, keys)
    for key in range(SIZE):
        state = np.float32(0)
        for x in X[keys == key]:
            state = x * state + x + 1
        np.testing.assert_allclose(got[key], state, rtol=1e-5)


def test_labels_are_a_function_of_the_element():
    digits = aggregators.Sum().by_key(lambda x: x % 3, 3)
    numbers = np.arange(10, dtype=np.int32)
    assert digits.run(numbers).tolist() == [18, 12, 15]
    _close(digits.reference(numbers), np.array([18, 12, 15]))


def test_keys_nest():
    table = aggregators.Count().by_key(lambda x, y: x, 2).by_key(lambda x, y: y, 3)
    x, y = np.array([0, 1, 1, 0, 1]), np.array([2, 2, 0, 2, 2])
    counts = np.histogram2d(y, x, bins=(np.arange(4), np.arange(3)))[0]
    single = aggregators.Count().contramap(lambda x, y: x).by_key(lambda x, y: x, 2).by_key(lambda x, y: y, 3)
    np.testing.assert_array_equal(single.run(x, y), counts)
    assert table.monoid.native == "sum"


def test_pairs_of_aggregators_share_the_inputs_that_each_needs():
    # Values, coordinates and labels: moments see the values, the five best their coordinates as well.
    both = (aggregators.Moments() & aggregators.TopK(5)).by_key(None, SIZE)
    at = np.arange(len(X), dtype=np.int32)
    moments, best = in_numpy(both.run)(X, at, KEYS)
    for key in range(SIZE):
        mine = np.flatnonzero(key == KEYS)
        assert moments["count"][key] == best["count"][key] + max(len(mine) - 5, 0) == len(mine)
        order = mine[np.argsort(-X[mine])][:5]
        np.testing.assert_array_equal(best["index"][key][: len(order)], order)
        if len(mine):
            np.testing.assert_allclose(moments["mean"][key], X[mine].mean(), rtol=1e-5, atol=1e-6)
    nested = (aggregators.Sum() & aggregators.ArgMax()) & aggregators.Sum().masked()
    (total, _), masked = in_numpy(nested.run)(X, at)
    np.testing.assert_allclose((total, masked), (X.sum(), X[1:].sum()), rtol=1e-5)


def test_masked_elements_may_be_anything_and_have_no_gradient():
    holes = np.where(MASK, X, np.nan).astype(np.float32)
    for aggregator in (aggregators.Moments(), aggregators.LogSumExp(), aggregators.Max()):
        kept = aggregator.masked()
        _close(in_numpy(kept.run)(holes, MASK), aggregator.reference(X[MASK]))
        missing = aggregator.masked(lambda x: ~jnp.isnan(x))
        _close(in_numpy(missing.run)(holes), aggregator.reference(X[MASK]))

    def deviation(x):
        return aggregators.Moments().masked().run(x, MASK)["variance"]

    gradient = in_numpy(jax.grad(deviation))(holes)
    kept = X[MASK]
    np.testing.assert_allclose(gradient[MASK], 2 * (kept - kept.mean()) / len(kept), rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(gradient[~MASK], 0)


def test_mask_that_keeps_nothing_gives_the_result_of_nothing():
    nothing = np.zeros(31, bool)
    assert in_numpy(aggregators.LogSumExp().masked().run)(X, nothing) == -np.inf
    assert in_numpy(aggregators.Moments().masked().run)(X, nothing)["count"] == 0


def test_gradient_of_a_grouped_result_is_that_of_its_elements():
    def spread(x):
        return jnp.nansum(aggregators.Moments().by_key(None, SIZE).run(x, KEYS)["variance"])

    want = np.zeros(31)
    for key in range(SIZE):
        mine = key == KEYS
        if mine.any():
            want[mine] = 2 * (X[mine] - X[mine].mean()) / mine.sum()
    np.testing.assert_allclose(in_numpy(jax.grad(spread))(X), want, rtol=1e-4, atol=1e-6)


def test_slopes_of_a_product_by_key_are_the_products_of_the_others_of_its_key():
    keys = np.array([-1, 0, 2, 0, 7, 2, 2, 0, 5, -3])
    x = np.array([np.inf, 2, np.inf, 3, np.inf, 0, 4, -1, np.inf, 0], np.float32)
    _, pull = jax.vjp(lambda x: aggregators.Prod().by_key(None, 3).run(x, keys), x)
    # Of infinities of other keys, and of none, nothing is a factor.
    np.testing.assert_array_equal(*pull(jnp.ones(3)), [0, -3, 0, -2, 0, np.inf, np.nan, 6, 0, 0])


def test_element_of_no_group_does_not_reach_the_gradient():
    x, keys = np.array([1.0, 2.0, 1000.0], np.float32), np.array([0, 0, 7])
    gradient = in_numpy(jax.grad(lambda x: aggregators.LogSumExp().by_key(None, 1).run(x, keys)[0]))(x)
    np.testing.assert_allclose(gradient, [1 / (1 + np.e), np.e / (1 + np.e), 0], rtol=1e-5)


@pytest.mark.parametrize("monoid", [monoids.Sum, monoids.LogSumExp, monoids.Max, monoids.Prod], ids=repr)
def test_folding_no_state_gives_the_identity(monoid):
    framed = monoid is monoids.LogSumExp
    nothing = (np.zeros((0, 2), np.float32),) * 2 if framed else np.zeros((0, 2), np.float32)
    identity = monoid.identity_for(jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), nothing))
    _close(fold_all(monoid, nothing), identity)
    grouped = fold_groups(monoid, nothing, Groups(jnp.zeros(0, jnp.int32), 3))
    _close(grouped, jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (3, 2)), identity))


def test_function_valued_monoids_keep_what_their_values_declare():
    assert monoids.function(monoids.Max).native == "max"
    assert monoids.function(monoids.Moments).frame is not None
    assert not monoids.function(monoids.AffineRecurrence).commutative
    both = monoids.function(monoids.struct(a=monoids.Sum, b=monoids.ArgMax))
    assert [part.native for part in both.parts] == ["sum", None]
    with pytest.raises(GraphError, match="no axis of keys"):
        monoids.function(monoids.Sum).identity_for(F32)


@pytest.mark.parametrize(
    ("piece", "types"),
    [
        # The law of groups asks the same of every aggregator.
        pytest.param(aggregators.Moments().by_key(None, 3), (F32, I32), marks=pytest.mark.thorough),
        (aggregators.Max().segmented(), (F32, BOOL)),
        (aggregators.Sum().by_run(), (I32, I32)),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_combined_aggregators_are_lawful(piece, types):
    wanted = ["chunks", "empty", "semantic"]
    report = laws.assert_lawful(piece, types=types, laws=wanted, examples=5)
    assert set(report.held) >= {"aggregator.chunks", "aggregator.semantic"}, str(report)


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: aggregators.Sum().by_key(KEYS, 3), r"(?s)`labels` is ndarray.*by_key\(None, size\)\.run\(x, labels\)"),
        (lambda: aggregators.Sum().by_key(None, 0), r"(?s)no positive integer.*got       0"),
        (lambda: aggregators.Sum().masked(MASK), r"(?s)`where` is ndarray.*masked\(\)\.run\(x, where\)"),
        (lambda: aggregators.Sum().by_key(None, 3).run(X, X), r"(?s)labels are no integers.*got       float32"),
        (lambda: aggregators.Sum().by_key(None, 3).run(X), r"(?s)expected  2 inputs.*got       1 input,"),
        (lambda: aggregators.Sum().masked().run(X, MASK[:, None]), r"(?s)the last input selects.*\(31, 1\)"),
        (lambda: aggregators.Sum().segmented(MASK), "`starts` is ndarray"),
    ],
)
def test_bad_selection_is_an_error(make, problem):
    with pytest.raises(GraphError, match=problem):
        make()
