"""The contract on folds: every aggregator, native, framed and ordered, and monoids of our own that do not commute."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import tapestry_jax as tp
from tests.contract import assert_holds, assert_same
from tests.tapestry_jax.draw import named, normal

agg = tp.aggregators
SMOOTH = {name: getattr(agg, name)() for name in ("Sum", "Mean", "Max", "Min", "Prod", "LogSumExp", "Count")}


# Each its own input: of one input, XLA would see that the sum of `Mean` is that of `Sum`, and reduce it once.
def fold_all(x):
    return {name: tp.fold(each, "row col -> col")(x + 0.1 * i) for i, (name, each) in enumerate(SMOOTH.items())}


def reference_all(x):
    return {name: each.reference(np.asarray(x) + 0.1 * i) for i, (name, each) in enumerate(SMOOTH.items())}


@pytest.mark.parametrize(
    ("rows", "entries"),
    [
        pytest.param(16, {"row": "model", "col": "data"}, marks=pytest.mark.thorough),
        pytest.param(13, {"row": ("data", "model")}, marks=pytest.mark.thorough),
        # Three rows on eight devices: most of them hold nothing but padding.
        (3, {"row": ("model", "data")}),
    ],
    ids=str,
)
def test_contract_aggregators(mesh2x4, rows, entries):
    args = (normal(rows, 5),)
    # Where a count, the same on all devices, leaves whole, XLA sees that it need not be gathered.
    stored = {"y/Count": {"col": tp.padded("data")}} if "col" in entries else None
    plan = tp.plan(tp.trace(fold_all, *named("row col", *args)), mesh2x4, entries, outputs=stored)
    assert_holds(plan, args, reference=reference_all)


@pytest.mark.thorough
def test_contract_moments_and_pairs(mesh2x4):
    pair = agg.Moments() & agg.Max()
    args = (normal(11, 3) + 2,)
    graph = tp.trace(tp.fold(pair, "row col -> col"), *named("row col", *args))
    plan = tp.plan(graph, mesh2x4, {"row": ("data", "model")})
    assert_holds(plan, args, rtol=1e-3, atol=1e-4, reference=lambda x: pair.reference(np.asarray(x)))


def test_contract_synchronised_batch_norm(mesh2x4):
    # A fold whose results go back into a map over the same rows.
    def normalised(x, scale):
        moments = tp.fold(agg.Moments(), "row col -> col")(x)
        return (x - moments["mean"]) * tp.Map(jax.lax.rsqrt)(moments["variance"] + 1e-5) * scale

    def reference(x, scale):
        x = np.asarray(x, np.float64)
        return (x - x.mean(0)) / np.sqrt(x.var(0) + 1e-5) * scale

    args = (normal(13, 4) + 1, normal(4, seed=1))
    plan = tp.plan(tp.trace(normalised, *named("row col, col", *args)), mesh2x4, {"row": ("data", "model")})
    assert_holds(plan, args, rtol=1e-3, atol=1e-4, reference=reference)


def test_contract_cross_entropy_over_a_cut_vocabulary(mesh2x4):
    # Neither the logits nor a one-hot matrix is ever whole.
    def picked(logits, labels, at):
        return jnp.sum(jnp.where(labels[:, None] == at, logits, 0), 1)

    pick = tp.Reduce(picked, "n v, n, @v -> n", tp.monoids.Sum)
    matmul = tp.einsum("n e, e v -> n v")

    def loss(x, w, labels):
        logits = matmul(x, w)
        return tp.fold(agg.Mean(), "n -> ")(tp.fold(agg.LogSumExp(), "n v -> n")(logits) - pick(logits, labels))

    def reference(x, w, labels):
        return optax.softmax_cross_entropy_with_integer_labels(x @ w, labels).mean()

    args = (normal(6, 5), normal(5, 11, seed=1), jnp.asarray([0, 3, 10, 4, 5, 7], jnp.int32))
    plan = tp.plan(tp.trace(loss, *named("n e, e v, n", *args)), mesh2x4, {"v": "model", "n": "data"})
    assert_holds(plan, args, reference=reference)
    assert {each.kind for each in plan.collectives()} == {"all-reduce"}


def test_contract_indices_and_truth(mesh2x4):
    # Equal values on several devices: the lowest row wins, wherever it lies.
    x = jnp.round(normal(13, 4))
    args = (x,)

    def program(x):
        positive = tp.Map(jnp.sign)(x) > 0
        return {
            "argmax": tp.fold(agg.ArgMax(), "row col, @row -> col")(x)["index"],
            "argmin": tp.fold(agg.ArgMin(), "row col, @row -> col")(x)["index"],
            "any": tp.fold(agg.Any(), "row col -> col")(positive),
            "all": tp.fold(agg.All(), "row col -> col")(positive),
        }

    def reference(x):
        x = np.asarray(x)
        return {"argmax": x.argmax(0), "argmin": x.argmin(0), "any": (x > 0).any(0), "all": (x > 0).all(0)}

    plan = tp.plan(tp.trace(program, *named("row col", *args)), mesh2x4, {"row": ("data", "model")})
    assert_holds(plan, args, grad=False, rtol=0, atol=0, reference=reference)


def test_contract_arg_max_value_has_a_gradient(mesh8):
    args = (normal(5, 3),)
    graph = tp.trace(lambda x: tp.fold(agg.ArgMax(), "row col, @row -> col")(x), *named("row col", *args))
    plan = tp.plan(graph, mesh8, {"row": "data"})
    assert_holds(plan, args, reference=lambda x: {"value": np.max(x, 0), "index": np.argmax(x, 0)})


def test_ties_of_an_extremum_share_the_gradient(mesh8):
    # jnp.max gives each of the equal maxima an equal part; on eight devices it has to be the same.
    x = jnp.asarray([[1.0, 2.0], [3.0, 2.0], [3.0, 0.0], [0.0, 2.0], [3.0, 1.0]])
    graph = tp.trace(tp.fold(agg.Max(), "row col -> col"), *named("row col", x))
    planned = tp.plan(graph, mesh8, {"row": "data"}).compile()
    expected = jax.jit(jax.grad(lambda x: jnp.sum(jnp.max(x, 0))))(x)
    np.testing.assert_allclose(jax.jit(jax.grad(lambda x: jnp.sum(planned(x))))(x), expected, rtol=1e-6)


# Monoids of our own


def multiply(left, right):
    return left @ right


def eye(cell):
    return jnp.eye(cell.shape[-1], dtype=cell.dtype)


chain = tp.Monoid(eye, multiply, name="MatrixProduct")


def product_of(blocks):
    """The product of the matrices along both leading axes, the first the outermost."""
    return functools.reduce(multiply, blocks.reshape(-1, *blocks.shape[-2:]), jnp.eye(blocks.shape[-1]))


def reference_product(matrices):
    return np.linalg.multi_dot(list(np.asarray(matrices).reshape(-1, *matrices.shape[-2:])))


@pytest.mark.parametrize(
    ("outer", "axes"), [pytest.param(8, ("data", "model"), marks=pytest.mark.thorough), (7, ("model", "data"))], ids=str
)
def test_contract_matrix_product_keeps_its_order(mesh2x4, outer, axes):
    args = (normal(outer, 2, 3, 3, scale=0.7),)
    product = tp.Reduce(product_of, "time inner [i] [j] ->", chain)
    graph = tp.trace(product, *named("time inner i j", *args))
    plan = tp.plan(graph, mesh2x4, {"time": axes})
    assert_holds(plan, args, reference=reference_product)
    assert {each.kind for each in plan.collectives()} == {"all-gather"}


def longest_run(left, right):
    """Runs of true: total length, leading run, trailing run, longest."""
    (n, a, b, c), (m, d, e, f) = left, right
    return n + m, jnp.where(a == n, n + d, a), jnp.where(e == m, m + b, e), jnp.maximum(jnp.maximum(c, f), b + d)


runs = tp.Monoid((0, 0, 0, 0), longest_run, name="LongestRun")


def test_contract_longest_run(mesh2x4):
    # Integers, four leaves in one state, not commutative, uneven.
    signal = jnp.asarray(np.random.default_rng(1).random(21) < 0.8)

    def lift(x):
        bit = x.astype(jnp.int32)
        return jnp.int32(1), bit, bit, bit

    longest = tp.Aggregator(lift, runs, lambda state: state[3])

    def reference(x):
        ends = np.flatnonzero(~np.concatenate(([False], np.asarray(x), [False])))
        return np.max(np.diff(ends)) - 1

    plan = tp.plan(tp.trace(tp.fold(longest, "t -> "), *named("t", signal)), mesh2x4, {"t": ("data", "model")})
    assert_holds(plan, (signal,), grad=False, rtol=0, atol=0, reference=reference)


def test_contract_commutative_monoid_without_a_native_collective(mesh2x4):
    def hypotenuse(left, right):
        return jnp.sqrt(left * left + right * right)

    norm = tp.Monoid(0, hypotenuse, commutative=True, name="Norm")
    reduce = tp.Reduce(lambda x: jnp.sqrt(jnp.sum(x * x, 0)), "row col -> col", norm)
    args = (normal(8, 4),)
    plan = tp.plan(tp.trace(reduce, *named("row col", *args)), mesh2x4, {"row": "model", "col": "data"})
    assert_holds(plan, args, reference=lambda x: np.linalg.norm(x, axis=0))


def test_idempotent_monoid_uneven(mesh8):
    # The bitwise union may count a row twice and is still itself.
    union = tp.Monoid(0, jnp.bitwise_or, commutative=True, idempotent=True, name="Union")
    reduce = tp.Reduce(lambda x: jnp.bitwise_or.reduce(x, axis=0), "row col -> col", union)
    args = (jnp.asarray(np.int32(np.random.default_rng(2).integers(0, 1 << 12, (11, 3)))),)
    plan = tp.plan(tp.trace(reduce, *named("row col", *args)), mesh8, {"row": "data"})
    assert_same(plan, args, grad=False, rtol=0, atol=0, reference=lambda x: np.bitwise_or.reduce(x, axis=0))


def test_idempotent_monoid_gives_padding_no_gradient(mesh8):
    # `Max` of a kernel: were padding merged, the copies of the last row would share its gradient.
    top = tp.Reduce(lambda x, w: jnp.max(x * w, axis=0), "row col, col -> col", tp.monoids.Max)
    x = jnp.arange(11 * 2, dtype=jnp.float32).reshape(11, 2)
    args = (x, jnp.ones(2))
    plan = tp.plan(tp.trace(top, *named("row col, col", *args)), mesh8, {"row": "data"})
    assert_holds(plan, args, reference=lambda x, w: np.max(x * w, 0))


def test_declared_neutral_values_spare_the_case_distinction(mesh8):
    def squares(x):
        return jnp.sum(x * x, 0)

    args = (normal(11, 3),)
    texts = []
    for pad in (None, (0.0,)):
        reduce = tp.Reduce(squares, "row col -> col", tp.monoids.Sum, pad=pad)
        plan = tp.plan(tp.trace(reduce, *named("row col", *args)), mesh8, {"row": "data"})
        assert_holds(plan, args, reference=lambda x: np.sum(np.square(x), 0))
        texts.append(plan.compile().lower().as_text())
    assert "stablehlo.case" in texts[0]
    assert "stablehlo.case" not in texts[1]


def test_declared_values_are_held_to_what_plans_do_with_them(mesh8):
    """What is not neutral is refused, and where padding alone gives no identity, kernels run on the rows there are."""
    args = (normal(11, 3),)

    def planned(kernel, monoid, pad, **options):
        fold = tp.Reduce(kernel, "row col -> col", monoid, pad=pad, **options)
        return tp.plan(tp.trace(fold, *named("row col", *args)), mesh8, {"row": "data"})

    with pytest.raises(tp.KernelError, match="declares pad=\\(0\\), which is not neutral"):
        planned(lambda x: x.max(0), tp.monoids.Max, (0,)).compile()(*args)

    def exponentials(x):
        return x.max(0), jnp.exp(x - x.max(0)).sum(0)

    value = tp.monoids.logsumexp_value
    plan = planned(exponentials, tp.monoids.LogSumExp, (-np.inf,), present=value)
    assert_holds(plan, args, reference=lambda x: np.log(np.exp(x).sum(0)))
