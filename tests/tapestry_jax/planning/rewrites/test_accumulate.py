"""A carrier dtype for folds: `tp.plan(..., accumulate=)`."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tapestry_jax as tp
from combinators.operations.widening import Rounded
from tests.contract import assert_contract, assert_exports, assert_holds

BF16 = jnp.bfloat16
RNG = np.random.default_rng(0)
total = tp.Reduce(partial(jnp.sum, axis=0), "n c -> c", tp.monoids.Sum, name="total")
matmul = tp.Reduce(jnp.matmul, "i k, k n -> i n", tp.monoids.Sum)


def _half(*shape: int) -> jax.Array:
    return jnp.asarray(RNG.standard_normal(shape), BF16)


def _exact(y: np.ndarray) -> np.ndarray:
    """The float64 value, rounded once."""
    return np.asarray(jnp.asarray(y, jnp.float32).astype(BF16), np.float64)


def _two(x, w):
    return matmul(tp.named("h", tp.Map(jnp.tanh)(x)), w)


def test_a_wide_sum_over_the_mesh_is_rounded_once(mesh8) -> None:
    x = _half(4096, 32)
    graph = tp.trace(total, tp.TensorType({"n": 4096, "c": 32}, BF16))
    exact = np.asarray(x, np.float64).sum(0)
    narrow, wide = (tp.plan(graph, mesh8, {"n": "data"}, accumulate=dtype) for dtype in (None, jnp.float32))
    results = [np.asarray(plan.compile()(x), np.float64) for plan in (narrow, wide)]
    np.testing.assert_array_equal(results[1], _exact(exact))
    # Eight partial sums are rounded to bfloat16 each, which shows in sums that cancel.
    assert (results[0] != results[1]).mean() > 0.25
    assert wide.collectives()[0].bytes == 2 * narrow.collectives()[0].bytes == 128
    assert wide.compile()(x).dtype == BF16


def test_a_wide_matrix_product_holds_the_contract_with_narrow_operands(mesh8) -> None:
    a, b = _half(8, 4096), _half(4096, 16)
    types = tp.TensorType({"i": 8, "k": 4096}, BF16), tp.TensorType({"k": 4096, "n": 16}, BF16)
    plan = tp.plan(tp.trace(matmul, *types), mesh8, {"k": "data"}, accumulate=jnp.float32)
    exact = np.asarray(a, np.float64) @ np.asarray(b, np.float64)
    np.testing.assert_allclose(np.asarray(plan.compile()(a, b), np.float64), exact, rtol=2**-8, atol=1e-4)
    # Unlike bfloat16, which XLA's CPU backend widens by itself, float32 is sent as predicted.
    assert_contract(plan)
    assert_exports(plan)
    assert "f32[8,16]" in plan.compile().lower().compile().as_text()
    lowered = str(jax.make_jaxpr(plan.compile().jitted)(a, b))
    assert "preferred_element_type=float32" in lowered
    # A cast alone lets the TPU's compiler send the sum in bfloat16; tests/aot asks it.
    assert "reduce_precision" in lowered
    assert "f32[8,512]" not in lowered


def test_what_is_rounded_is_what_a_cast_gives() -> None:
    special = np.array(
        [0, 1, 0x7FFFFF, 0x800000, 0x3F808000, 0x3F818000, 0x7F7FFFFF, 0x7F800000, 0x7FC00000], np.uint32
    )
    bits = np.concatenate([special, RNG.integers(0, 2**32, 4096, np.uint32)])
    x = jnp.asarray(np.concatenate([bits, bits ^ np.uint32(2**31)]).view(np.float32))
    rounded = Rounded(None, ("bfloat16",))(x)
    np.testing.assert_array_equal(np.asarray(rounded).view(np.uint16), np.asarray(x.astype(BF16)).view(np.uint16))


def test_gradients_of_a_wide_fold_are_those_of_the_program(mesh2x4) -> None:
    x, w = _half(4, 64), _half(64, 8)
    types = tp.TensorType({"i": 4, "k": 64}, BF16), tp.TensorType({"k": 64, "n": 8}, BF16)
    plan = tp.plan(tp.trace(_two, *types), mesh2x4, {"i": "data", "k": "model"}, accumulate=jnp.float32)
    grads = jax.jit(jax.grad(lambda x, w: plan.compile()(x, w).astype(jnp.float32).sum(), (0, 1)))(x, w)
    exact = jax.jit(jax.grad(lambda x, w: (jnp.tanh(x) @ w).sum(), (0, 1)))(
        x.astype(jnp.float32), w.astype(jnp.float32)
    )
    for actual, expected in zip(grads, exact, strict=True):
        assert actual.dtype == BF16
        np.testing.assert_allclose(np.asarray(actual, float), expected, rtol=0.03, atol=0.03)


def test_a_wide_sum_is_scattered_where_it_is_wanted_cut(mesh8) -> None:
    types = tp.TensorType({"i": 8, "k": 64}, BF16), tp.TensorType({"k": 64, "n": 16}, BF16)
    plan = tp.plan(
        tp.trace(matmul, *types), mesh8, {"k": "data"}, outputs={"y": {"n": "data"}}, accumulate={"": "float32"}
    )
    assert [each.kind for each in plan.collectives()] == ["reduce-scatter"]
    assert plan.collectives()[0].bytes == 8 * 16 * 4
    assert_contract(plan)
    a, b = _half(8, 64), _half(64, 16)
    exact = np.asarray(a, np.float64) @ np.asarray(b, np.float64)
    np.testing.assert_array_equal(np.asarray(plan.compile()(a, b), np.float64), _exact(exact))


def test_states_of_chunks_are_added_up_wide(mesh8) -> None:
    x = _half(4096, 32)
    graph = tp.trace(total, tp.TensorType({"n": 4096, "c": 32}, BF16))
    exact = _exact(np.asarray(x, np.float64).sum(0))
    narrow, wide = (
        tp.plan(graph, mesh8, {"n": ("data", tp.chunks(16))}, accumulate=dtype) for dtype in (None, jnp.float32)
    )
    np.testing.assert_array_equal(np.asarray(wide.compile()(x), np.float64), exact)
    assert (np.asarray(narrow.compile()(x), np.float64) != exact).mean() > 0.4
    assert wide.collectives()[0].bytes == 2 * narrow.collectives()[0].bytes


def test_a_wide_scan_is_carried_in_float32(mesh8) -> None:
    x = jnp.full((1024,), 0.01, BF16)
    cumsum = tp.Scan(tp.monoids.Sum, "t -> t", over="t")
    graph = tp.trace(cumsum, tp.TensorType({"t": 1024}, BF16))
    exact = np.cumsum(np.asarray(x, np.float64))
    errors = []
    for dtype in (None, jnp.float32):
        y = tp.plan(graph, mesh8, {"t": "data"}, accumulate=dtype).compile()(x)
        assert y.dtype == BF16
        errors.append(np.abs(np.asarray(y, np.float64) / exact - 1).max())
    assert errors[1] <= 2**-8 < errors[0]


def _scaled(x):
    top = jax.lax.stop_gradient(x.max(0))
    return top, jnp.exp(x - top).sum(0)


def test_a_framed_state_over_uneven_blocks_is_carried_wide(mesh8) -> None:
    kernels = {"present": tp.monoids.logsumexp_value, "dense": [partial(jax.nn.logsumexp, axis=0)]}
    fold = tp.Reduce(_scaled, "n c -> c", tp.monoids.LogSumExp, **kernels)
    x = _half(30, 3) + 4
    graph = tp.trace(fold, tp.TensorType({"n": 30, "c": 3}, BF16))
    exact = np.asarray(x, np.float64)
    for entries in ({"n": "data"}, {"c": "data"}):  # folded over the mesh; dense
        plan = tp.plan(graph, mesh8, entries, accumulate=jnp.float32)
        found = plan.compile()(x)
        assert found.dtype == graph(x).dtype == BF16
        np.testing.assert_array_equal(np.asarray(found, np.float64), _exact(np.log(np.exp(exact).sum(0))))
    # Gradients of what is stored whole are gathered in bfloat16, which XLA's CPU backend widens.
    assert_contract(tp.store_padded(tp.plan(graph, mesh8, {"n": "data"}, accumulate=jnp.float32)))


def _cast_inside(x, w):
    return jnp.matmul(x, w.astype(x.dtype))


def test_a_gradient_is_summed_in_the_dtype_of_the_operand(mesh8) -> None:
    x = tp.TensorType({"i": 8, "k": 16}, BF16)
    for kernel, kind, size in ((jnp.matmul, BF16, 2), (_cast_inside, jnp.float32, 4)):
        leaf = tp.Reduce(kernel, "i k, k n -> i n", tp.monoids.Sum)
        plan = tp.plan(
            tp.trace(leaf, x, tp.TensorType({"k": 16, "n": 4}, kind)), mesh8, {"i": "data"}, accumulate=jnp.float32
        )
        (found,) = plan.collectives(grad=True)
        assert (found.kind, found.bytes, found.backward) == ("all-reduce", 16 * 4 * size, True)


def test_the_longest_path_wins_and_folds_in_loops_have_paths(mesh8) -> None:
    def layer(h, w):
        return matmul(h, w).rename(n="k")

    specs = tp.TensorType({"i": 2, "k": 16}, BF16), tp.TensorType({"layer": 3, "k": 16, "n": 16}, BF16)
    graph = tp.trace(lambda h, w: tp.stack(layer, 3)(h, w), *specs)
    path = next(row.path for row in tp.plan(graph, mesh8, {"k": "data"}).collectives() if "matmul" in row.path)
    scope = path.rpartition("/")[0]
    assert scope

    def moved(accumulate):
        found = tp.plan(graph, mesh8, {"k": "data"}, accumulate=accumulate).collectives()
        return [each.bytes for each in found if each.kind in ("all-reduce", "reduce-scatter")]

    assert moved({scope: jnp.float32}) == moved({"": None, path: "float32"}) == moved(jnp.float32)
    assert moved({"": jnp.float32, path: None}) == moved(None)
    assert moved(jnp.float32) == [2 * size for size in moved(None)]


def test_what_merging_selects_is_left_alone(mesh8) -> None:
    largest = tp.Reduce(partial(jnp.max, axis=0), "n -> ", tp.monoids.Max)
    both = tp.trace(lambda x: (largest(x), tp.fold(tp.aggregators.Mean(), "n ->")(x)), tp.TensorType({"n": 64}, BF16))
    plan = tp.plan(both, mesh8, {"n": "data"}, accumulate=jnp.float32)
    assert {each.path: each.bytes for each in plan.collectives()}["max"] == 2


def test_a_fold_that_is_wide_already_is_left_alone(mesh8) -> None:
    x = tp.TensorType({"n": 64, "c": 2})
    graph = tp.trace(total, x)
    plan = tp.plan(graph, mesh8, {"n": "data"}, accumulate=jnp.float32)
    assert plan.schedule.graph.key == graph.key
    assert_holds(plan, (RNG.standard_normal((64, 2)).astype(np.float32),))


def test_json_and_explain_say_the_carrier(mesh8) -> None:
    graph = tp.trace(total, tp.TensorType({"n": 64, "c": 2}, BF16))
    plan = tp.plan(graph, mesh8, {"n": "data"}, accumulate=jnp.float32)
    assert "carried in float32; all-reduce data 8 B" in plan.explain()
    again = tp.Plan.from_json(plan.to_json(), graph, mesh8)
    assert again.accumulate == plan.accumulate == (("", "float32"),)
    assert again.collectives() == plan.collectives()
    assert "carried" not in tp.plan(graph, mesh8, {"n": "data"}).explain()


def _merge_bfloat16(a, b):
    return (a + b).astype(BF16)


@pytest.mark.parametrize(
    ("accumulate", "text"),
    [
        (jnp.int32, "accumulate is no float dtype\n  got <class 'jax.numpy.int32'>"),
        ({"total": "wide"}, "accumulate['total'] is no float dtype\n  got 'wide'"),
        (jnp.float64, "accumulate is float64, in which JAX does not compute here"),
        ({"sum": jnp.float32}, "accumulate['sum'] names no fold or scan that is carried in floats\n  such are: total"),
        (
            jnp.float16,
            "accumulate is float16, which is narrower than what is carried there\n  total: bfloat16\n"
            "  Give a dtype that holds all values of these, or leave it out.",
        ),
    ],
)
def test_errors_say_what_is_wrong_with_a_carrier(mesh8, accumulate, text) -> None:
    graph = tp.trace(total, tp.TensorType({"n": 64, "c": 2}, BF16))
    with pytest.raises(tp.PlanError) as caught:
        tp.plan(graph, mesh8, {"n": "data"}, accumulate=accumulate)
    assert str(caught.value).startswith(text)


def test_a_monoid_that_does_not_merge_wide_states_is_refused(mesh8) -> None:
    narrow = tp.Reduce(partial(jnp.sum, axis=0), "n ->", tp.Monoid(0.0, _merge_bfloat16, commutative=True), name="own")
    graph = tp.trace(narrow, tp.TensorType({"n": 64}, BF16))
    with pytest.raises(tp.PlanError, match=r"`own` cannot be carried in float32(.|\n)*accumulate=\{..., 'own': None\}"):
        tp.plan(graph, mesh8, {"n": "data"}, accumulate=jnp.float32)
