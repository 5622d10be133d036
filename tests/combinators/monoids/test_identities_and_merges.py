"""The shipped monoids: identities on both sides, their merges against NumPy and SciPy, safety of value and gradient."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import scipy.special

from combinators import monoids
from combinators.errors import GraphError
from tests.simulated.sampled import in_numpy

INF = np.inf
F32, I32 = np.float32, np.int32

# Two states of every monoid, as a user's kernel could return them, the parts of one cell.
STATES = {
    "Sum": (F32(1.5), F32(-4)),
    "Prod": (F32(1.5), F32(-4)),
    "Min": (F32(1.5), F32(-4)),
    "Max": (I32(3), I32(-4)),
    "Any": (np.bool_(True), np.bool_(False)),
    "All": (np.bool_(True), np.bool_(False)),
    "Mean": ((I32(7), I32(2)), (I32(-3), I32(1))),
    "Moments": ((I32(3), F32(2), F32(1.5)), (I32(1), F32(-5), F32(0))),
    "Covariance": (
        (I32(3), np.array([2, 1], F32), np.array([[1.5, 0.5], [0.5, 4]], F32)),
        (I32(1), np.array([-5, 3], F32), np.zeros((2, 2), F32)),
    ),
    "MinMax": ((F32(1.5), F32(3)), (F32(-4), F32(2))),
    "First": ((F32(1.5), np.bool_(True)), (F32(-4), np.bool_(True))),
    "Last": ((F32(1.5), np.bool_(True)), (F32(-4), np.bool_(True))),
    "LogSumExp": ((F32(3), F32(1.5)), (F32(-2), F32(1))),
    "AttentionState": (
        (F32(3), F32(1.5), np.array([1, -2, 3], F32)),
        (F32(-2), F32(1), np.array([0, 5, 1], F32)),
    ),
    "AffineRecurrence": (
        (np.array([1, 2], F32), np.array([3, 4], F32)),
        (np.array([-1, 5], F32), np.array([0, 2], F32)),
    ),
    "AffineRecurrenceDense": (
        (np.array([[1, 2], [3, 4]], F32), np.array([1, -1], F32)),
        (np.array([[0, 1], [-1, 2]], F32), np.array([2, 0], F32)),
    ),
    "ArgMax": ((F32(2), I32(4)), (F32(3), I32(1))),
    "ArgMin": ((F32(2), I32(4)), (F32(3), I32(1))),
    "CompensatedSum": ((F32(1e8), F32(3)), (F32(-4), F32(0.5))),
    "MatrixProduct": (
        np.array([[1, 2], [3, 4]], F32),
        np.array([[0, 1], [-1, 2]], F32),
    ),
    "MinPlusProduct": (
        np.array([[1, 2], [3, 4]], F32),
        np.array([[0, 1], [-1, 2]], F32),
    ),
    "MaxPlusProduct": (
        np.array([[1, 2], [3, 4]], F32),
        np.array([[0, 1], [-1, 2]], F32),
    ),
    "LogProduct": (
        np.array([[1, 2], [3, 4]], F32),
        np.array([[0, 1], [-1, 2]], F32),
    ),
    "Reservoir": (
        (np.array([3, 8], np.uint32), np.array([5, 2], I32), np.array([1, -4], F32)),
        (np.array([1, 2**32 - 1], np.uint32), np.array([9, np.iinfo(I32).max], I32), np.array([2, 0], F32)),
    ),
    "TopK": (
        (np.array([9, 3, 3], F32), np.array([4, 0, 6], I32)),
        (np.array([3, -1, -INF], F32), np.array([2, 5, np.iinfo(I32).max], I32)),
    ),
}
NAMES = list(STATES)


@functools.cache
def _compiled(function):
    """Compiled once, for all tests."""
    return jax.jit(function)


def _merge(monoid, left, right):
    return _compiled(monoid.merge)(left, right)


def _equal(left, right):
    jax.tree.map(np.testing.assert_array_equal, left, right)


def _close(left, right):
    pairs = zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True)
    return all(np.allclose(a, b, rtol=1e-6) for a, b in pairs)


def _identity(monoid, dtype):
    return np.asarray(monoid.identity_for(jax.ShapeDtypeStruct((), dtype)))


def test_every_shipped_monoid_is_tested_here():
    shipped = {name for name in vars(monoids) if isinstance(getattr(monoids, name), type(monoids.Sum))}
    assert shipped == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_identity_changes_no_state_on_either_side(name):
    monoid = getattr(monoids, name)
    for state in STATES[name]:
        identity = monoid.identity_for(state)
        _equal(_merge(monoid, identity, state), state)
        _equal(_merge(monoid, state, identity), state)


INEXACT = {"AffineRecurrence", "AffineRecurrenceDense", "MatrixProduct"}
"""Whose identity turns an infinity into NaN, as 0 * inf does: nothing may be merged with it (`merge_behind`)."""


@pytest.mark.parametrize("name", [*NAMES])
def test_identity_keeps_nan_and_makes_none_of_infinities(name):
    monoid, made = getattr(monoids, name), False
    leaves, tree = jax.tree.flatten(STATES[name][0])
    floats = [number for number, leaf in enumerate(leaves) if np.issubdtype(np.result_type(leaf), np.floating)]
    for number, value in [(number, value) for number in floats for value in (INF, -INF, np.nan)]:
        changed = [np.full_like(leaf, value) if at == number else leaf for at, leaf in enumerate(leaves)]
        state = jax.tree.unflatten(tree, changed)
        identity = monoid.identity_for(state)
        for merged in (_merge(monoid, identity, state), _merge(monoid, state, identity)):
            has_nan = any(np.isnan(np.asarray(leaf, float)).any() for leaf in jax.tree.leaves(merged))
            assert has_nan or not np.isnan(value)
            made = made or (has_nan and not np.isnan(value))
    assert made == (name in INEXACT)


@pytest.mark.parametrize("name", NAMES)
def test_identity_merged_with_itself_is_the_identity(name):
    monoid = getattr(monoids, name)
    identity = monoid.identity_for(STATES[name][0])
    _equal(_merge(monoid, identity, identity), identity)


def _has_floats(name):
    return any(np.issubdtype(np.result_type(leaf), np.floating) for leaf in jax.tree.leaves(STATES[name]))


@pytest.mark.parametrize("name", [name for name in NAMES if _has_floats(name)])
def test_gradient_at_the_identity_is_finite(name):
    monoid = getattr(monoids, name)
    state = jax.tree.map(jnp.asarray, STATES[name][0])
    identity = monoid.identity_for(state)

    def total(left, right):
        leaves = jax.tree.leaves(monoid.merge(left, right))
        # A maximum of -inf is no finite total; its gradient is asked for all the same.
        return sum(jnp.sum(leaf) for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.floating))

    slopes = in_numpy(jax.grad(total, argnums=(0, 1), allow_int=True))
    for pair in ((identity, identity), (identity, state), (state, identity)):
        for leaf in jax.tree.leaves(slopes(*pair)):
            assert leaf.dtype == jax.dtypes.float0 or np.all(np.isfinite(leaf))


@pytest.mark.parametrize("name", NAMES)
def test_combine_keeps_tree_shapes_and_dtypes(name):
    monoid = getattr(monoids, name)
    left, right = STATES[name]
    merged = jax.eval_shape(monoid.merge, left, right)
    assert jax.tree.structure(merged) == jax.tree.structure(left)
    assert [(x.shape, x.dtype) for x in jax.tree.leaves(merged)] == [
        (np.shape(x), x.dtype) for x in jax.tree.leaves(left)
    ]


@pytest.mark.parametrize("name", ["Sum", "Prod", "Min", "Max", "LogSumExp", "AttentionState", "AffineRecurrence"])
def test_combine_keeps_half_precision(name):
    monoid = getattr(monoids, name)
    states = [jax.tree.map(lambda x: jnp.asarray(x, jnp.bfloat16), state) for state in STATES[name]]
    assert {x.dtype for x in jax.tree.leaves(jax.eval_shape(monoid.merge, *states))} == {jnp.dtype(jnp.bfloat16)}


def test_attention_keeps_a_half_precision_output_beside_float32_statistics():
    left, right = ((m, l, jnp.asarray(o, jnp.bfloat16)) for m, l, o in STATES["AttentionState"])
    merged = monoids.AttentionState.merge(left, right)
    assert [x.dtype for x in merged] == [jnp.float32, jnp.float32, jnp.bfloat16]


@pytest.mark.parametrize("name", NAMES)
def test_combine_mapped_by_vmap_is_combine_of_each_cell(name):
    monoid = getattr(monoids, name)
    left, right = STATES[name]
    both, swapped = (jax.tree.map(lambda *x: np.stack(x), *pair) for pair in ((left, right), (right, left)))
    mapped = in_numpy(jax.vmap(monoid.merge))(both, swapped)
    jax.tree.map(lambda m, one: np.testing.assert_allclose(m[0], one, rtol=1e-6), mapped, _merge(monoid, left, right))
    jax.tree.map(lambda m, one: np.testing.assert_allclose(m[1], one, rtol=1e-6), mapped, _merge(monoid, right, left))


@pytest.mark.parametrize("name", NAMES)
def test_flags_tell_the_truth_on_examples(name):
    monoid = getattr(monoids, name)
    left, right = STATES[name]
    assert _close(_merge(monoid, left, right), _merge(monoid, right, left)) == monoid.commutative
    assert _close(_merge(monoid, left, left), left) == monoid.idempotent
    if monoid.inverse is not None:
        _equal(_merge(monoid, left, monoid.inverse(left)), monoid.identity_for(left))


def test_extrema_have_the_identity_of_their_dtype():
    for dtype in (np.int8, np.uint16, np.int32):
        assert (_identity(monoids.Max, dtype), _identity(monoids.Min, dtype)) == (
            np.iinfo(dtype).min,
            np.iinfo(dtype).max,
        )
    for dtype in (np.float16, ml_dtypes.bfloat16, np.float32):
        assert (_identity(monoids.Max, dtype), _identity(monoids.Min, dtype)) == (-INF, INF)
    assert _identity(monoids.Max, ml_dtypes.float8_e4m3fn) == -448  # has no infinity
    assert not _identity(monoids.Max, np.bool_)
    assert _identity(monoids.Min, np.bool_)


def test_maximum_of_complex_numbers_is_an_error():
    with pytest.raises(GraphError, match=r"(?s)no order.*got       complex64"):
        monoids.Max.identity_for(jax.ShapeDtypeStruct((), np.complex64))


def _moments(x):
    return I32(len(x)), F32(x.mean()) if len(x) else F32(0), F32(((x - x.mean()) ** 2).sum()) if len(x) else F32(0)


def test_moments_merge_as_numpy_computes_them_together():
    rng = np.random.default_rng(1)
    pieces = [rng.standard_normal(n) * 3 + n for n in (5, 0, 1, 40, 7)]
    count, mean, squares = jax.jit(monoids.Moments.fold)([_moments(p) for p in pieces])
    together = np.concatenate(pieces)
    assert count == 53
    np.testing.assert_allclose(mean, together.mean(), rtol=1e-6)
    np.testing.assert_allclose(squares / count, together.var(), rtol=1e-6)


def test_what_means_that_differ_add_to_moments_is_not_lost_merge_by_merge():
    # What one of 4,000 pieces changes is less than half a unit in the last place of what the others come to.
    x = np.random.default_rng(0).normal(10, 1, (4000, 8, 64)).astype(np.float32)
    means, squares = x.mean(1), x.var(1) * 8

    def merged(state, piece):
        return monoids.Moments.merge(state, (I32(8), *piece)), None

    empty = (I32(0), jnp.zeros(64), jnp.zeros(64))
    count, _, m2 = jax.jit(lambda *pieces: jax.lax.scan(merged, empty, pieces)[0])(means, squares)
    exact = x.reshape(-1, 64).astype(np.float64).var(0)
    # Over the columns errors of rounding cancel, and what is lost does not: 1e-5 where each side is moved first.
    assert abs(np.mean(m2 / count / exact - 1)) < 2e-6


def test_moments_of_huge_values_survive_an_empty_merge():
    huge, empty = (I32(4), F32(1e20), F32(2)), (I32(0), F32(0), F32(0))
    _equal(_merge(monoids.Moments, huge, empty), huge)
    _equal(_merge(monoids.Moments, empty, huge), huge)
    gradient = jax.jit(jax.grad(lambda mean: monoids.Moments.merge((I32(4), mean, F32(2)), empty)[2]))(F32(1e20))
    assert gradient == 0


def test_log_sum_exp_of_an_infinity_stays_infinite_in_every_frame_and_has_no_slope():
    # Beside 200, whose exponential is infinite in float32, an infinity that is taken for a sum relative to 0 is NaN.
    frame = monoids.LogSumExp.frame
    assert frame is not None

    def folded(tops):
        states = [(top, jnp.where(top == INF, INF, 1.0)) for top in tops]
        first = frame.fold(states[:2])
        return monoids.logsumexp_value(frame.fold([frame.fold([first, states[2]]), states[3]]))

    for at in range(4):
        tops = np.array([200, 1, 200, -5], F32)
        tops[at] = INF
        assert folded(tops) == INF
        _equal(jax.grad(folded)(tops), np.zeros(4, F32))


def test_moments_of_an_infinite_mean_survive_an_empty_merge():
    infinite, empty = (I32(4), F32(INF), F32(2)), (I32(0), F32(0), F32(0))
    _equal(_merge(monoids.Moments, infinite, empty), infinite)
    _equal(_merge(monoids.Moments, empty, infinite), infinite)


def test_moments_keep_an_infinite_mean():
    one, infinite = (I32(1), F32(1), F32(0)), (I32(1), F32(INF), F32(0))
    assert _merge(monoids.Moments, one, infinite)[1] == np.mean([1, INF])
    assert _merge(monoids.Moments, infinite, one)[1] == np.mean([INF, 1])


def test_moments_count_past_the_integers_of_float32():
    big, one = (I32(2**24), F32(0), F32(0)), (I32(1), F32(0), F32(0))
    assert _merge(monoids.Moments, big, one)[0] == 2**24 + 1


@pytest.mark.parametrize("tops", [(3, -2), (-INF, 1), (-INF, -INF), (INF, 1), (INF, INF), (1e30, -1e30), (np.nan, 1)])
def test_logsumexp_merges_as_numpy_does(tops):
    states = [(F32(top), F32(top != -INF)) for top in tops]
    with np.errstate(invalid="ignore"):
        want = np.logaddexp(*map(F32, tops))
    for order in (states, states[::-1]):
        got = _compiled(monoids.logsumexp_value)(_compiled(monoids.LogSumExp.fold)(order))
        np.testing.assert_allclose(got, want, rtol=1e-6)


@pytest.mark.parametrize("values", [(1.0, 2.0, -1.0), (2.0, 2.0, 2.0), (-INF, 0.5, -INF), (0.0, -200.0, 0.0)])
def test_logsumexp_has_the_gradient_of_softmax(values):
    def value(x):
        return monoids.logsumexp_value(monoids.LogSumExp.fold([(x[i], jnp.ones(())) for i in range(3)]))

    gradient = jax.jit(jax.grad(value))(np.asarray(values, F32))
    np.testing.assert_allclose(gradient, scipy.special.softmax(values), rtol=1e-6, atol=1e-7)


def test_logsumexp_of_nothing_has_no_gradient():
    state = (jnp.float32(-INF), jnp.float32(0))
    assert monoids.logsumexp_value(state) == -INF
    assert jax.jit(jax.grad(monoids.logsumexp_value))(state) == (0, 0)


def _attention(scores, values):
    """States of one key each, merged."""
    states = [
        (s, jnp.where(s == -INF, 0.0, 1.0), jnp.where(s == -INF, 0.0, v)) for s, v in zip(scores, values, strict=True)
    ]
    return monoids.AttentionState.fold(states)


def test_attention_agrees_with_scipy_softmax():
    rng = np.random.default_rng(3)
    scores, values = rng.standard_normal(9) * 5, rng.standard_normal((9, 4))
    scores[[0, 4]] = -INF
    state = jax.jit(_attention)(scores.astype(F32), values.astype(F32))
    output, total = jax.jit(lambda s: (monoids.attention_output(s), monoids.attention_logsumexp(s)))(state)
    np.testing.assert_allclose(output, scipy.special.softmax(scores) @ values, rtol=1e-5)
    np.testing.assert_allclose(total, scipy.special.logsumexp(scores), rtol=1e-6)


def test_attention_gradient_agrees_with_naive_softmax():
    rng = np.random.default_rng(4)
    scores, values = (jnp.asarray(np.float32(rng.standard_normal(shape))) for shape in (6, (6, 3)))
    weight = jnp.asarray([1.0, -2.0, 0.5])
    merged = jax.grad(lambda s, v: weight @ monoids.attention_output(_attention(s, v)), (0, 1))
    naive = jax.grad(lambda s, v: weight @ (jax.nn.softmax(s) @ v), (0, 1))
    ours, wanted = (jax.jit(gradient)(scores, values) for gradient in (merged, naive))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), ours, wanted)


def test_attention_of_masked_keys_is_zero_without_gradient():
    scores, values = jnp.full(3, -INF), jnp.ones((3, 2))

    def loss(s, v):
        return monoids.attention_output(_attention(s, v)).sum()

    value, gradients = jax.jit(jax.value_and_grad(loss, (0, 1)))(scores, values)
    assert value == 0
    assert all(np.all(leaf == 0) for leaf in gradients)


def test_attention_output_has_no_gradient_at_the_identity():
    identity = (jnp.float32(-INF), jnp.float32(0), jnp.zeros(2))
    gradient = jax.jit(jax.grad(lambda state: monoids.attention_output(state).sum()))(identity)
    assert all(np.all(leaf == 0) for leaf in gradient)


def test_recurrences_run_as_a_loop_does():
    rng = np.random.default_rng(5)
    a, b = rng.integers(-2, 3, (6, 4)).astype(F32), rng.integers(-5, 6, (6, 4)).astype(F32)
    start, state = np.arange(4, dtype=F32), np.arange(4, dtype=F32)
    for i in range(6):
        state = a[i] * state + b[i]
    decay, total = jax.jit(monoids.AffineRecurrence.fold)([(a[i], b[i]) for i in range(6)])
    np.testing.assert_array_equal(decay * start + total, state)


def test_dense_recurrences_run_as_a_loop_does():
    rng = np.random.default_rng(6)
    a, b = rng.integers(-2, 3, (5, 3, 3)).astype(F32), rng.integers(-5, 6, (5, 3)).astype(F32)
    start, state = np.arange(3, dtype=F32), np.arange(3, dtype=F32)
    for i in range(5):
        state = a[i] @ state + b[i]
    matrix, total = jax.jit(monoids.AffineRecurrenceDense.fold)([(a[i], b[i]) for i in range(5)])
    np.testing.assert_array_equal(matrix @ start + total, state)


@pytest.mark.parametrize(
    "values", [(1, 3, 2), (3, 1, 3), (-INF, -INF, -INF), (np.nan, 1, np.nan), (1, np.nan, INF), (INF, 2, INF)]
)
@pytest.mark.parametrize(("name", "find"), [("ArgMax", np.argmax), ("ArgMin", np.argmin)])
def test_arg_extrema_agree_with_numpy_in_every_order(values, name, find):
    states = [(F32(value), I32(i)) for i, value in enumerate(values)]
    want = find(np.asarray(values))
    for order in ([0, 1, 2], [2, 1, 0], [1, 2, 0]):
        value, index = _compiled(getattr(monoids, name).fold)([states[i] for i in order])
        assert index == want
        np.testing.assert_array_equal(value, values[want])


def test_argmax_of_least_integers_beats_the_identity():
    least = (I32(np.iinfo(I32).min), I32(5))
    _equal(monoids.ArgMax.merge(monoids.ArgMax.identity_for(least), least), least)
