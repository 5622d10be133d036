"""The shipped aggregators against NumPy and SciPy, and what aggregators are made of.

Of every aggregator: its reference, what it makes of nothing, and pieces. Thorough for those beside the core ones:
`vmap`, and that `lift_many` is what the lifts of single elements come to, which the references of `run` imply.
"""

from __future__ import annotations

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import scipy.stats

from combinators import aggregators, monoids
from combinators.aggregation.aggregator import Aggregator
from combinators.errors import GraphError
from laws.shipped_pieces.aggregators import make
from tests.shipped import VECTORS, each, inputs
from tests.simulated.sampled import in_numpy

MATRICES = ("MatrixProduct",)  # elements with axes of their own; see test_products_and_decay
FACTORIES = [name for name in vars(aggregators) if name[0].isupper() and name not in MATRICES]
INF = np.inf


def _assert_close(got, want, rtol=1e-5):
    assert jax.tree.structure(got) == jax.tree.structure(want)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-6), got, want)


def _run(aggregator, *xs):
    """One compilation is less work than one for each operation."""
    return in_numpy(aggregator.run)(*xs)


# Of each aggregator: runs over inputs of these kinds, pieces of eleven elements merged, and what it makes of none.
KINDS = (("float", 0), ("float", 1), ("float", 31), ("int", 6), ("half", 6))
BOUNDS = (0, 0, 4, 11, 11)  # nothing before, and nothing behind


@functools.cache
def _computed(name):
    """All of them from one program: a compilation for each is most of what the tests take."""
    aggregator, eleven, none = make(name), inputs(name, 11, "float"), inputs(name, 0, "float")
    types = [jax.ShapeDtypeStruct(x.shape[1:], x.dtype) for x in none]

    def compute(runs, eleven, none):
        pieces = [aggregator.lift_many(*(x[a:b] for x in eleven)) for a, b in itertools.pairwise(BOUNDS)]
        merged = aggregator.present(aggregator.monoid.fold(pieces))
        nothing = aggregator.lift_many(*none), aggregator.identity(*types)
        return [aggregator.run(*xs) for xs in runs], (merged, aggregator.run(*eleven)), nothing

    runs, pieces, nothing = in_numpy(compute)([inputs(name, n, kind) for kind, n in KINDS], eleven, none)
    return dict(zip(KINDS, runs, strict=True)), pieces, nothing


@pytest.mark.parametrize(("kind", "n"), KINDS)
@pytest.mark.parametrize("name", FACTORIES)
def test_run_agrees_with_the_reference(name, kind, n):
    rtol = 3e-3 if kind == "half" and name in ("Sum", "Prod") else 1e-5
    _assert_close(_computed(name)[0][kind, n], make(name).reference(*inputs(name, n, kind)), rtol)


@pytest.mark.parametrize("name", each(FACTORIES))
def test_lift_many_is_the_fold_of_lifted_elements(name):
    aggregator = make(name)
    xs = inputs(name, 7, "int")
    slow = Aggregator(aggregator.lift, aggregator.monoid, aggregator.present)

    def both(*xs):
        got, want = aggregator.lift_many(*xs), slow.lift_many(*xs)
        return (got, want), (aggregator.present(got), slow.present(want))

    (got, want), presented = in_numpy(both)(*xs)
    assert jax.tree.map(lambda x: (x.shape, x.dtype), got) == jax.tree.map(lambda x: (x.shape, x.dtype), want)
    _assert_close(*presented)


@pytest.mark.parametrize("name", FACTORIES)
def test_lift_many_of_nothing_is_the_identity(name):
    nothing, identity = _computed(name)[2]
    jax.tree.map(np.testing.assert_array_equal, nothing, identity)
    shapes = jax.tree.map(lambda x: (x.shape, x.dtype), (nothing, identity))
    assert shapes[0] == shapes[1]


@pytest.mark.parametrize("name", FACTORIES)
def test_pieces_merge_to_the_whole(name):
    _assert_close(*_computed(name)[1])


@pytest.mark.parametrize("name", each([name for name in FACTORIES if name not in VECTORS]))
def test_run_is_mapped_by_vmap(name):
    aggregator = make(name)
    xs = inputs(name, 6, "float")
    run = jax.vmap(aggregator.run, in_axes=tuple(1 if x.ndim > 1 else None for x in xs), out_axes=-1)
    mapped, whole = in_numpy(lambda *xs: (run(*xs), aggregator.run(*xs)))(*xs)
    _assert_close(mapped, jax.tree.map(lambda m, w: np.broadcast_to(w, m.shape), mapped, whole))


@pytest.mark.parametrize(
    "name", ["Sum", "Prod", "Min", "Max", "Mean", "Moments", "LogSumExp", "ArgMax", "ArgMin", "TopK"]
)
@pytest.mark.parametrize("n", [0, 4])
def test_gradients_of_run_are_finite_on_constant_data(name, n):
    aggregator = make(name)

    def total(x):
        leaves = jax.tree.leaves(aggregator.run(x, *inputs(name, n, "float")[1:]))
        return sum(jnp.sum(leaf) for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.floating))

    gradient = in_numpy(jax.grad(total))
    for value in (0.0, 2.0) + ((-INF,) if name in ("Max", "ArgMax", "LogSumExp") else ()):
        assert np.all(np.isfinite(gradient(np.full((n, 3), value, np.float32))))


@pytest.mark.parametrize("name", ["CompensatedSum", "Mean", "Moments"])
def test_gradient_of_merged_nothing_is_zero(name):
    aggregator = make(name)

    def total(x):
        empty = aggregator.lift_many(x[:0])
        result = aggregator.present(aggregator.monoid.merge(empty, aggregator.monoid.merge(empty, empty)))
        return sum(jnp.sum(leaf) for leaf in jax.tree.leaves(result))

    np.testing.assert_array_equal(jax.jit(jax.grad(total))(np.ones(3, np.float32)), np.zeros(3))


def test_moments_have_the_gradient_of_the_variance():
    x = np.float32([1, 4, -2, 0.5])
    mean, variance = (
        jax.jit(jax.grad(lambda x, name=name: aggregators.Moments().run(x)[name]))(x) for name in ("mean", "variance")
    )
    np.testing.assert_allclose(variance, 2 * (x - x.mean()) / 4, rtol=1e-6)
    np.testing.assert_allclose(mean, np.full(4, 0.25), rtol=1e-6)


def test_moments_have_the_second_derivative_of_the_variance():
    hessian = jax.jit(jax.hessian(lambda x: aggregators.Moments().run(x)["variance"]))(np.float32([1, 4, -2, 0.5]))
    np.testing.assert_allclose(hessian, 2 * (np.eye(4) - 0.25) / 4, rtol=1e-6)


def test_logsumexp_agrees_with_scipy_at_the_edges():
    x = np.array([[1e4, -INF, INF, np.nan], [1e4 - 1, -INF, 0, 1], [-1e4, -INF, INF, 2]], np.float32)
    with np.errstate(invalid="ignore"):
        want = scipy.special.logsumexp(x.astype(np.float64), axis=0)
    np.testing.assert_allclose(_run(aggregators.LogSumExp(), x), want, rtol=1e-6)


def test_logsumexp_of_minus_infinity_has_gradient_zero():
    value, gradient = jax.jit(jax.value_and_grad(aggregators.LogSumExp().run))(np.full(3, -INF, np.float32))
    assert value == -INF
    np.testing.assert_array_equal(gradient, np.zeros(3))


def test_logsumexp_has_the_gradient_of_softmax():
    x = np.array([3.0, -INF, 3.0, -1.0], np.float32)
    gradient = jax.jit(jax.grad(aggregators.LogSumExp().run))(x)
    np.testing.assert_allclose(gradient, scipy.special.softmax(x), rtol=1e-6)


@pytest.mark.parametrize(("offset", "spread"), [(1e8, 1e-8), (1e8, 10.0), (1e4, 1e-2), (0.0, 1.0), (1e-30, 1e-15)])
@pytest.mark.parametrize("n", [1000, 200_000])
def test_moments_are_as_accurate_as_numpy_float32(offset, spread, n):
    x = (offset + spread * np.random.default_rng(0).standard_normal(n)).astype(np.float32)
    exact = {"mean": x.mean(dtype=np.float64), "variance": x.var(dtype=np.float64)}
    numpy = {"mean": x.mean(), "variance": x.var()}
    ours = jax.jit(aggregators.Moments().run)(x)
    scale = {"mean": np.abs(x).mean(dtype=np.float64), "variance": exact["variance"]}
    for name, want in exact.items():
        rounding = 4 * np.finfo(np.float32).eps * scale[name]
        assert abs(float(ours[name]) - want) <= max(abs(float(numpy[name]) - want), rounding)


def test_moments_of_pieces_at_an_offset_stay_as_accurate_as_numpy():
    x = (1e4 + 1e-2 * np.random.default_rng(1).standard_normal(4096)).astype(np.float32)
    aggregator = aggregators.Moments()

    def merged(x):
        return aggregator.present(aggregator.monoid.fold([aggregator.lift_many(piece) for piece in jnp.split(x, 4)]))

    got = float(jax.jit(merged)(x)["variance"])
    assert got == pytest.approx(x.var(dtype=np.float64), rel=1e-2)  # x itself is known to 1e-3 of its spread
    assert abs(got - x.var(dtype=np.float64)) <= 2 * abs(float(x.var()) - x.var(dtype=np.float64)) + 1e-6


def test_moments_of_infinite_data_have_the_mean_of_numpy():
    for data in ([1, INF, 2], [INF, INF], [-INF, 3], [1, np.nan]):
        result = _run(aggregators.Moments(), np.asarray(data, np.float32))
        np.testing.assert_array_equal(result["mean"], np.mean(data))
        assert np.isnan(result["variance"])


def test_moments_agree_with_scipy_describe():
    x = np.random.default_rng(2).gamma(2.0, size=500).astype(np.float32)
    described = scipy.stats.describe(x.astype(np.float64), ddof=0)
    result = _run(aggregators.Moments(), x)
    assert result["count"] == described.nobs
    np.testing.assert_allclose(result["mean"], described.mean, rtol=1e-6)
    np.testing.assert_allclose(result["variance"], described.variance, rtol=1e-6)


@pytest.mark.parametrize("name", ["Moments", "LogSumExp"])
def test_what_has_no_meaning_for_complex_numbers_is_an_error(name):
    with pytest.raises(GraphError, match=rf"(?s){name}: the input is complex.*got       complex64"):
        getattr(aggregators, name)().run(np.ones(3, np.complex64))


def test_mean_of_integers_is_exact():
    x = np.full(3, 2**25 + 1, np.int32)
    (total, _), count = aggregators.Mean().lift_many(x)
    assert (total, count) == (3 * (2**25 + 1), 3)  # 3 * (2**25 + 1) is no float32


@pytest.mark.parametrize(("name", "find"), [("ArgMax", np.argmax), ("ArgMin", np.argmin)])
def test_arg_extrema_take_coordinates_in_any_order(name, find):
    x = np.array([3, 9, 1, 9, 1, np.nan], np.float32)[:5]
    order = np.array([4, 2, 0, 3, 1])
    result = _run(make(name), x[order], order.astype(np.int32))
    assert result["index"] == find(x)
    assert result["value"] == x[find(x)]
    with_nan = np.array([3, np.nan, 9, np.nan], np.float32)
    assert _run(make(name), with_nan, np.arange(4, dtype=np.int32))["index"] == find(with_nan) == 1


def test_top_k_takes_the_lower_coordinate_in_any_order():
    x = np.array([3, 9, 0, 9, -0.0, np.nan, 3, -np.nan, -INF], np.float32)
    at = np.array([8, 5, 7, 2, 1, 6, 3, 0, 4], np.int32)
    for k in (1, 4, 9, 12):
        best, order = aggregators.TopK(k), np.argsort(at)
        run = jax.jit(best.run)
        _assert_close(run(x, at), run(x[order], at[order]), rtol=0)
        _assert_close(run(x, at), best.reference(x, at), rtol=0)
    # Real elements of value -inf come before what stands for none.
    assert run(x, at)["index"].tolist() == [0, 6, 2, 5, 3, 8, 1, 7, 4, -1, -1, -1]


def test_top_k_is_that_of_lax_and_has_its_gradient():
    x = np.random.default_rng(3).standard_normal(40).astype(np.float32)
    want = jax.lax.top_k(x, 5)
    got = _run(aggregators.TopK(5), x, np.arange(40))
    np.testing.assert_array_equal(got["value"], want[0])
    np.testing.assert_array_equal(got["index"], want[1])
    weights = np.arange(1.0, 6, dtype=np.float32)
    ours, theirs = (
        jax.jit(jax.grad(lambda x, top=top: top(x) @ weights))(x)
        for top in (lambda x: aggregators.TopK(5).run(x, np.arange(40))["value"], lambda x: jax.lax.top_k(x, 5)[0])
    )
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("k", [0, -1, 2.0, True])
def test_top_k_of_no_number_is_an_error(k):
    with pytest.raises(GraphError, match=rf"k is {k!r}, expected an integer of 1 or more"):
        aggregators.TopK(k)


def test_pairing_gives_both_results_over_the_sameinputs():
    both = aggregators.Sum() & aggregators.Moments()
    x = inputs("Sum", 9, "float")[0]
    total, moments = _run(both, x)
    _assert_close((total, moments), both.reference(x))
    assert both.monoid.parts == (monoids.Sum, monoids.Moments)
    np.testing.assert_allclose(total, x.sum(0), rtol=1e-5)
    np.testing.assert_allclose(moments["variance"], x.var(0), rtol=1e-5)


def test_pairing_merges_pieces():
    both = aggregators.Max() & (aggregators.Count() & aggregators.LogSumExp())
    x = inputs("Max", 8, "float")[0]

    def merged(x):
        return both.present(both.monoid.merge(both.lift_many(x[:3]), both.lift_many(x[3:])))

    _assert_close(jax.jit(merged)(x), (x.max(0), (np.asarray(8), scipy.special.logsumexp(x, axis=0))))


def test_contramap_transforms_every_element():
    squares = aggregators.Mean().contramap(jnp.square)
    x = inputs("Mean", 5, "float")[0]
    np.testing.assert_allclose(_run(squares, x), (x**2).mean(0), rtol=1e-6)
    np.testing.assert_allclose(squares.reference(x), (x**2).mean(0), rtol=1e-6)
    one = squares.lift(jnp.asarray(3.0))
    assert one == (9.0, 1)


def test_contramap_to_several_inputs_passes_a_tuple_on():
    nearest = aggregators.ArgMin().contramap(lambda x, y, index: (jnp.hypot(x, y), index))
    x, y = np.array([3.0, 1.0, -2.0]), np.array([4.0, 1.0, 0.0])
    result = _run(nearest, x, y, np.arange(3, dtype=np.int32))
    assert result["index"] == np.argmin(np.hypot(x, y))


def test_map_transforms_the_result():
    deviation = aggregators.Moments().map(lambda r: r["variance"] ** 0.5)
    x = inputs("Moments", 12, "float")[0]
    np.testing.assert_allclose(_run(deviation, x), x.std(0), rtol=1e-6)
    np.testing.assert_allclose(deviation.reference(x), x.std(0), rtol=1e-6)


def test_default_lift_many_keeps_the_order_of_a_recurrence():
    recurrence = Aggregator(lambda a, b: (a, b), monoids.AffineRecurrence, lambda state: state[1])
    a, b = (np.random.default_rng(s).integers(-2, 3, 7).astype(np.int32) for s in (1, 2))
    state = 0
    for i in range(7):
        state = a[i] * state + b[i]
    assert _run(recurrence, a, b) == state
    assert _run(recurrence, a[:0], b[:0]) == 0


@pytest.mark.parametrize("name", FACTORIES)
def test_aggregators_are_equal_by_what_they_hold(name):
    first, second = make(name), make(name)
    assert first == second
    assert hash(first) == hash(second)
    assert first & second == second & first
    assert first.name == name


def test_aggregator_of_wrong_parts_is_an_error_that_names_them_all():
    with pytest.raises(GraphError) as caught:
        Aggregator(1, jnp.add, abs, reference=2)  # pyright: ignore[reportArgumentType]
    for part in ("lift is 1, expected a function", "reference is 2", "expected a Monoid"):
        assert part in str(caught.value)
