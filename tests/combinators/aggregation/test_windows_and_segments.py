"""Running aggregates, segmented ones and sliding windows, against NumPy on every prefix, segment and window."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from combinators import Aggregator, Scan, aggregators, monoids, scan, window
from combinators.errors import SignatureError
from combinators.numerics.sliding import fold_windows
from tests.simulated.sampled import in_numpy

X = np.random.default_rng(0).standard_normal((13, 3)).astype(np.float32)
STARTS = np.array([0, 0, 1, 0, 0, 1, 1, 0, 0, 0, 0, 1, 0], bool)
LABELS = np.array([4, 4, 1, 1, 1, 4, 0, 0, 0, 0, 0, 7, 7], np.int32)  # 4 comes back: a run of its own
BOTH = aggregators.Moments() & aggregators.Max()


def second(state):
    return state[1]


def step(x):
    return x, x + 1


RECURRENCE = Aggregator(step, monoids.AffineRecurrence, second, name="Recurrence")


def _stacked(aggregator, pieces):
    """The reference on every piece, column by column: a count has a value a column then."""
    rows = [[aggregator.reference(piece[:, col]) for col in range(piece.shape[1])] for piece in pieces]
    return jax.tree.map(lambda *leaves: np.stack(leaves), *(jax.tree.map(lambda *c: np.stack(c), *row) for row in rows))


def _close(got, want):
    assert jax.tree.structure(got) == jax.tree.structure(want)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), got, want)


def _segment(t):
    return max(i for i in range(t + 1) if STARTS[i] or i == 0)


def test_scan_aggregates_every_prefix():
    _close(in_numpy(scan(BOTH, "t col -> t col"))(X), _stacked(BOTH, [X[: t + 1] for t in range(13)]))
    reverse = scan(aggregators.LogSumExp(), "t col -> t col", reverse=True)(X)
    _close(reverse, np.stack([aggregators.LogSumExp().reference(X[t:]) for t in range(13)]))


def test_scan_takes_elements_with_axes_of_their_own():
    norms = aggregators.Sum().contramap(lambda row: jnp.sum(row**2))
    got = scan(norms, "t [col] -> t")(X)
    np.testing.assert_allclose(got, np.cumsum((X**2).sum(1)), rtol=1e-5)


@pytest.mark.parametrize("how", ["flags", "labels"])
def test_segmented_scan_begins_anew_at_every_segment(how):
    aggregator, marks = (BOTH.segmented(), STARTS) if how == "flags" else (BOTH.by_run(), LABELS)
    want = _stacked(BOTH, [X[_segment(t) : t + 1] for t in range(13)])
    _close(in_numpy(scan(aggregator, "t col, t -> t col"))(X, marks), want)


def test_segmented_monoid_scans_recurrences():
    a, b = X[:, 0], X[:, 1]
    got = Scan(monoids.segmented(monoids.AffineRecurrence), "t, t, t -> t", over="t", kernel=_steps, present=_input)
    state, want = 0.0, []
    for t in range(13):
        state = b[t] if STARTS[t] else a[t] * state + b[t]
        want.append(state)
    np.testing.assert_allclose(got(STARTS, a, b), want, rtol=1e-4)


def _steps(starts, a, b):
    return starts, (a, b)


def _input(state):
    return state[1][1]


def test_last_segment_is_the_fold():
    _close(in_numpy(aggregators.LogSumExp().segmented().run)(X[:, 0], STARTS), np.log(np.exp(X[11:, 0]).sum()))
    assert in_numpy(aggregators.Count().by_run().run)(X[:, 0], LABELS) == 2


@pytest.mark.parametrize("size", [4, 20])
def test_window_aggregates_the_last_elements(size):
    both = BOTH if size == 4 else aggregators.LogSumExp()
    got = in_numpy(window(both, size, "t col -> t col"))(X)
    _close(got, _stacked(both, [X[max(0, t + 1 - size) : t + 1] for t in range(13)]))


def test_full_windows_alone_are_those_of_numpy():
    got = window(aggregators.Min(), 4, "t col -> t col", partial=False)(X)
    np.testing.assert_array_equal(got, np.lib.stride_tricks.sliding_window_view(X, 4, axis=0).min(-1))


def test_windows_keep_the_order_of_a_recurrence():
    got = in_numpy(window(RECURRENCE, 4))(X[:, 0])
    for t in range(13):
        state = 0.0
        for x in X[max(0, t - 3) : t + 1, 0]:
            state = x * state + x + 1
        np.testing.assert_allclose(got[t], state, rtol=1e-4)


def test_windows_of_integers_are_differences_and_exact():
    numbers = np.random.default_rng(3).integers(-(2**31), 2**31, 20).astype(np.int32)  # prefixes wrap around
    text = str(jax.make_jaxpr(lambda x: fold_windows(monoids.Sum, x, 7))(numbers))
    assert " neg" in text
    want = np.lib.stride_tricks.sliding_window_view(numbers, 7).sum(-1, dtype=np.int32)
    np.testing.assert_array_equal(in_numpy(lambda x: fold_windows(monoids.Sum, x, 7))(numbers), want)


def test_windows_of_floats_are_not_differences():
    """What a large element rounds away must not stay in windows that no longer hold it."""
    x = np.array([1.0, 1e8, 1.0, 1.0, 1.0, 1.0], np.float32)
    np.testing.assert_array_equal(window(aggregators.Sum(), 2)(x)[3:], [2.0, 2.0, 2.0])
    prefixes = np.cumsum(x, dtype=np.float32)
    assert prefixes[4] - prefixes[2] != 2.0


def test_window_presents_axes_of_its_own():
    signs = aggregators.Count().by_key(lambda x: (x > 0).astype(jnp.int32), 2)
    got = in_numpy(window(signs, 3, "t col -> t col"))(X)
    for t in range(13):
        last = X[max(0, t - 2) : t + 1]
        np.testing.assert_array_equal(got[t], np.stack([(last <= 0).sum(0), (last > 0).sum(0)], -1))


def test_gradient_of_windows_is_that_of_softmax():
    weights = jnp.cos(jnp.arange(13.0))

    def ours(x):
        return weights @ window(aggregators.LogSumExp(), 3)(x)

    x = X[:, 0].astype(np.float64)
    want = np.zeros(13)
    for t in range(13):
        last = slice(max(0, t - 2), t + 1)
        want[last] += weights[t] * np.exp(x[last]) / np.exp(x[last]).sum()
    np.testing.assert_allclose(in_numpy(jax.grad(ours))(X[:, 0]), want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: window(aggregators.Max(), 0), r"(?s)tp\.window cannot slide.*the size is 0"),
        (lambda: window(aggregators.Max(), 3, "t col -> t col", over="row"), "`row` is not on both sides"),
        (lambda: window(aggregators.Max(), 3, "t, @t -> t"), "a coordinate has no window"),
        (lambda: window(monoids.Max, 3), r"(?s)tp\.window takes an aggregator.*got Monoid"),
        (lambda: scan(aggregators.Max(), "t col -> t"), "tp.scan takes bare dimensions"),
        (lambda: scan(aggregators.Max(), "(a t) -> t"), "tp.scan takes bare dimensions"),
    ],
)
def test_what_cannot_slide_or_run_is_an_error(make, problem):
    with pytest.raises(SignatureError, match=problem):
        make()


@pytest.mark.parametrize("how", ["segmented", "by_run"])
def test_segments_before_the_last_are_not_merged_as_identities(how):
    # A product with the unit matrix would be NaN: inf * 0.
    matrices = np.ones((6, 2, 2), np.float32)
    matrices[3, 0], matrices[5, 0] = np.inf, np.inf
    selected = np.array([0, 0, 0, 1, 0, 0] if how == "segmented" else [4, 4, 4, 2, 2, 2])
    found = getattr(aggregators.MatrixProduct(), how)().run(matrices, selected)
    np.testing.assert_array_equal(found, np.full((2, 2), np.inf))
