"""Chunks in time and rings: planned is unplanned, and what is sent is what was predicted.

Thorough: more plans of the same loops; folds round a ring, as keys of attention go in every run in test_remat.py; and
derivatives of attention in chunks, of which test_framed.py asks forwards and of second order.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tapestry_jax as tp
from combinators.kernels.jaxprs import is_program, scan_parts
from tapestry_jax.planning.scheduling.schedule import Finish, Region
from tests.contract import assert_contract, assert_holds, assert_same, inside
from tests.simulated.sampled import computed
from tests.tapestry_jax.draw import normal
from tests.thoroughly import but

matmul = tp.Reduce(jnp.matmul, "i k, k n -> i n", tp.monoids.Sum)
gelu = tp.Map(jax.nn.gelu)
largest = tp.Reduce(lambda x: x.max(1), "r c -> r", tp.monoids.Max)
total = tp.Reduce(lambda x: x.sum(1), "r c -> r", tp.monoids.Sum)


@tp.program("batch embed, embed mlp, mlp out -> batch out")
def mlp(x: Any, w1: Any, w2: Any) -> Any:
    return matmul(gelu(matmul(x, w1)), w2)


@tp.program("batch q heads d, batch keys heads d, batch keys heads e -> batch q heads e")
def attend(q: Any, k: Any, v: Any) -> Any:
    return tp.attention(q, k, v, over="keys", causal=True)


@tp.program("r c -> r c")
def softmax(x: Any) -> Any:
    raised = tp.Map(jnp.exp)(x - largest(x))
    return raised / total(raised)


@tp.program("b e, e f -> b e")
def layer(carry: Any, weight: Any) -> Any:
    return tp.Map(jnp.tanh)(tp.einsum("b e, e f -> b f")(carry, weight)).rename(f="e")


@tp.program("b e, layer e f -> b e")
def deep(x: Any, weights: Any) -> Any:
    return tp.stack(layer, 3)(x, weights)


@tp.program("b e, layer e f -> b e")
def deeper(x: Any, weights: Any) -> Any:
    return tp.stack(lambda x, weight: tp.iterate(layer, 2)(x, weight), 3)(x, weights)


@tp.program("t c, t c -> t c")
def recurrence(a: Any, b: Any) -> Any:
    def steps(a: Any, b: Any) -> Any:
        return a, b

    def hidden(state: Any) -> Any:
        return state[1]

    return tp.Scan(tp.monoids.AffineRecurrence, "t c, t c -> t c", over="t", kernel=steps, present=hidden)(a, b)


def draw(*shapes: tuple[int, ...]) -> list[Any]:
    return [normal(*shape, seed=i) for i, shape in enumerate(shapes)]


MLP = draw((12, 8), (8, 16), (16, 8))
QKV = draw((2, 8, 2, 4), (2, 8, 2, 4), (2, 8, 2, 4))
UNEVEN = draw((2, 7, 2, 4), (2, 11, 2, 4), (2, 11, 2, 4))


def regions(plan: Any) -> list[Region]:
    return [step for step in plan.schedule.steps if isinstance(step, Region)]


@pytest.mark.parametrize(
    ("program", "args", "entries"),
    [
        (mlp, MLP, {"batch": ("data", tp.chunks(3)), "mlp": "model"}),
        pytest.param(*(mlp, MLP, {"batch": tp.chunks(2), "mlp": ("model", tp.chunks(2))}), marks=pytest.mark.thorough),
        pytest.param(
            *(mlp, draw((13, 8), (8, 21), (21, 8))),
            {"batch": ("data", tp.chunks(3)), "mlp": ("model", tp.chunks(size=2))},
            marks=pytest.mark.thorough,
        ),
        pytest.param(
            *(attend, QKV, {"q": ("data", tp.chunks(2)), "keys": ("model", tp.chunks(2))}), marks=pytest.mark.thorough
        ),
        # Both in chunks, and chunks that do not divide, are in test_framed.py.
        pytest.param(
            *(attend, UNEVEN, {"batch": "data", "q": tp.chunks(2), "keys": tp.chunks(4)}), marks=pytest.mark.thorough
        ),
        pytest.param(
            attend,
            UNEVEN,
            {"q": "model", "keys": (tp.ring("model"), tp.chunks(2)), "batch": "data"},
            marks=pytest.mark.thorough,
        ),
        (softmax, draw((6, 20)), {"r": "data", "c": ("model", tp.chunks(3))}),
        (deep, draw((8, 4), (3, 4, 4)), {"b": ("data", tp.chunks(2))}),
        # The weights are cast before all loops, once.
        (deeper, draw((8, 4), (3, 4, 4)), {"b": ("data", tp.chunks(2))}),
    ],
    ids=[
        "maps",
        "nested",
        "uneven",
        "queries keys",
        "uneven keys",
        "ring of chunks",
        "levels",
        "repetition",
        "in another",
    ],
)
def test_chunks_hold(program: Any, args: list[Any], entries: dict[str, Any], mesh2x4: Any) -> None:
    assert_holds(tp.plan(tp.trace(program, *args), mesh2x4, entries), args)


COLUMNS, ROWS = {"i": "data", "n": tp.ring("data")}, {"i": "data", "k": tp.ring("data")}


@pytest.mark.parametrize("entry", but([COLUMNS, ROWS], ROWS))
def test_a_collective_matmul_is_a_ring(entry: dict[str, Any], mesh8: Any) -> None:
    args = draw((13, 9), (9, 11))
    program = tp.program("i k, k n -> i n")(lambda a, b: matmul(a, b))
    plan = tp.plan(tp.trace(program, *args), mesh8, entry)
    assert_contract(plan)
    assert_same(plan, args)
    kinds = {each.kind for each in inside(plan, grad=True)}
    assert "collective-permute" in kinds and "all-gather" not in kinds


# From the end alone is a part of from the end without oneself.
@pytest.mark.parametrize(
    "options", but([{}, {"reverse": True}, {"reverse": True, "exclusive": True}], {"reverse": True})
)
def test_scans_go_on_from_chunk_to_chunk(options: dict[str, Any], mesh8: Any) -> None:
    args = draw((7, 3))
    program = tp.program("t c -> t c")(lambda x: tp.Scan(tp.monoids.Sum, "t c -> t c", over="t", **options)(x))
    assert_same(tp.plan(tp.trace(program, *args), mesh8, {"t": tp.chunks(3)}), args)


def test_a_recurrence_in_chunks(mesh8: Any) -> None:
    args = draw((10, 3), (10, 3))
    assert_same(tp.plan(tp.trace(recurrence, *args), mesh8, {"t": tp.chunks(4)}), args)


def test_scans_that_run_against_each_other_cannot_share_a_loop(mesh8: Any) -> None:
    @tp.program("t c -> t c")
    def both(x: Any) -> Any:
        there, back = (tp.Scan(tp.monoids.Sum, "t c -> t c", over="t", reverse=way) for way in (False, True))
        return there(x) + back(x)

    with pytest.raises(tp.PlanError) as caught:
        tp.plan(tp.trace(both, *draw((8, 2))), mesh8, {"t": tp.chunks(2)})
    assert "scans forwards and backwards share the loop over 2 chunks of `t`" in str(caught.value)


def test_operations_that_share_a_dimension_share_a_loop(mesh8: Any) -> None:
    plan = tp.plan(tp.trace(mlp, *MLP), mesh8, {"mlp": tp.chunks(4)})
    (loop,) = regions(plan)
    assert len(loop.body.steps) == 5  # two slices and three operations: the hidden layer is never whole
    assert [type(step) for step in plan.schedule.steps] == [Region, Finish]


def test_a_finished_fold_begins_a_level(mesh8: Any) -> None:
    plan = tp.plan(tp.trace(softmax, *draw((6, 20))), mesh8, {"c": tp.chunks(4)})
    assert len(regions(plan)) == 3


def test_gradients_of_shared_weights_are_summed_over_the_mesh_once(mesh2x4: Any) -> None:
    args = draw((8, 4), (3, 4, 4))
    plan = tp.plan(tp.trace(deep, *args), mesh2x4, {"b": ("data", tp.chunks(2))})
    assert [(each.kind, each.times) for each in plan.collectives(grad=True)] == [("all-reduce", 1)]


@pytest.mark.thorough
def test_forward_derivatives_and_vmap(mesh8: Any) -> None:
    args = draw((2, 4, 1, 3), (2, 6, 1, 3), (2, 6, 1, 3))
    graph = tp.trace(attend, *args)
    run = tp.plan(graph, mesh8, {"keys": tp.chunks(3)}).compile()

    def derived(function: Any, k: Any, v: Any) -> Any:
        def loss(k: Any) -> Any:
            return jnp.sum(jnp.sin(function(args[0], k, v)))

        return jax.jvp(loss, (k,), (v,))[1], jax.vmap(jax.grad(loss))(jnp.stack([k, v]))

    found, expected = computed(lambda k, v: [derived(f, k, v) for f in (run, graph)], *args[1:])
    for actual, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=1e-5, atol=1e-5)


def test_what_is_carried_stays_small() -> None:
    """A framed state is carried without derivative of its frame: the loop saves no copy of it for every turn."""
    q, k, v = draw((1, 64, 1, 64), (1, 1024, 1, 64), (1, 1024, 1, 64))
    plan = tp.plan(tp.trace(attend, q, k, v), tp.mesh(None, one=1), {"keys": tp.chunks(64)})
    gradient = jax.grad(lambda *args: jnp.sum(plan.compile()(*args) ** 2), (0, 1, 2))
    analysis: Any = jax.jit(gradient).lower(q, k, v).compile().memory_analysis()
    temporaries = analysis.temp_size_in_bytes
    state = 64 * 64 * 4
    assert temporaries < 64 * state / 2 + 6 * k.nbytes


@tp.program("b e, e f, f e -> ()")
def loss(x: Any, w1: Any, w2: Any) -> Any:
    hidden = matmul(gelu(matmul(x, w1)), w2)
    return tp.fold(tp.aggregators.Mean(), "b e -> ()")(tp.Map(jnp.square)(hidden))


def test_the_gradients_of_a_sum_are_computed_in_the_forward_loop(mesh2x4: Any) -> None:
    args = draw((13, 4), (4, 8), (8, 4))
    graph = tp.trace(loss, *args)
    plan = tp.plan(graph, mesh2x4, {"b": ("data", tp.chunks(3)), "f": "model"})
    assert_holds(plan, args)
    run = plan.compile()
    even = tp.plan(tp.trace(loss, *draw((12, 4), (4, 8), (8, 4))), mesh2x4, {"b": ("data", tp.chunks(3))})
    assert [(each.kind, each.bytes) for each in even.collectives()] == [("all-reduce", 4)]  # the count is known

    def derived(function: Any, x: Any, up: Any, down: Any) -> Any:
        along = jax.jvp(function, (x, up, down), (x, up, down))[1]
        second = jax.grad(lambda up: jnp.sum(jax.grad(function, 1)(x, up, down) ** 2))(up)
        return along, second, jax.vmap(jax.grad(function, 1), (None, 0, None))(x, jnp.stack([up, up + 1]), down)

    found, expected = computed(lambda *args: [derived(f, *args) for f in (run, graph)], *args)
    for actual, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=1e-4, atol=1e-5)


def test_no_zeros_of_a_chunk_lie_beside_the_loop_of_a_sum(mesh8: Any) -> None:
    # A lookup's gradient is scattered into zeros: JAX moves them out of a loop in a program that is differentiated.
    @tp.program("row k, k n, row -> ()")
    def loss(x: Any, w: Any, at: Any) -> Any:
        return tp.nnx.cross_entropy(matmul(x, w), at)

    args = (*draw((32, 8), (8, 16)), np.zeros(32, np.int32))
    run = tp.plan(tp.trace(loss, *args), mesh8, {"row": tp.chunks(8)}).compile()
    (loop,) = _loops(jax.make_jaxpr(jax.value_and_grad(run, (0, 1)))(*args).jaxpr)
    shapes = [atom.aval.shape for atom in loop.invars[: scan_parts(loop)[0]]]
    assert (8, 16) in shapes
    assert (4, 16) not in shapes


def _loops(jaxpr: Any) -> list[Any]:
    """The scans of a program, however deep inside."""
    found = [equation for equation in jaxpr.eqns if equation.primitive.name == "scan"]
    for equation in jaxpr.eqns:
        for inner in jax.tree.leaves(list(equation.params.values()), is_leaf=is_program):
            found += _loops(getattr(inner, "jaxpr", inner)) if is_program(inner) else []
    return found


def test_a_sum_of_what_all_devices_compute_alike_has_its_gradient_once(mesh2x4: Any) -> None:
    """Rows are whole where they are normalised, and cut where they are added up."""

    @tp.program("b e -> ()")
    def total(x: Any) -> Any:
        rows = tp.Map(jax.nn.softmax, "b [e] -> b [e]")(x)
        return tp.fold(tp.aggregators.Mean(), "b e -> ()")(rows * rows)

    args = draw((4, 8))
    assert_holds(tp.plan(tp.trace(total, *args), mesh2x4, {"b": tp.chunks(2), "e": "data"}), args)


def test_a_repetition_that_folds_chunks_inside_keeps_the_loop_inside(mesh2x4: Any) -> None:
    """What stands beside it in chunks does not open the loop around both."""

    @tp.program("b e, layer e f -> b e")
    def rows(x: Any, weights: Any) -> Any:
        def one(x: Any, weight: Any) -> Any:
            whole = tp.Map(jax.nn.softmax, "b [e] -> b [e]")(tp.iterate(layer, 2)(x, weight))
            return tp.Map(jnp.sin)(whole)

        return tp.stack(one, 2)(x, weights)

    args = draw((4, 4), (2, 4, 4))
    plan = tp.plan(tp.trace(rows, *args), mesh2x4, {"b": "data", "e": tp.chunks(2)})
    assert not regions(plan)
    assert_same(plan, args)
    assert_contract(plan)


def test_what_is_read_in_chunks_and_whole_is_padded_in_chunks_alone(mesh2x4: Any) -> None:
    """Five queries in two chunks; keys and values are the same array, as it is."""

    @tp.program("seq d -> seq d")
    def own(x: Any) -> Any:
        keys = x.rename(seq="keys")
        return tp.attention(x, keys, keys, over="keys")

    args = draw((5, 4))
    assert_holds(tp.plan(tp.trace(own, *args), mesh2x4, {"seq": tp.chunks(2)}), args)


def test_explain_names_what_a_loop_gathers(mesh2x4: Any) -> None:
    @tp.program("b e -> b e")
    def rows(x: Any) -> Any:
        return tp.Map(jax.nn.softmax, "b [e] -> b [e]")(tp.Map(jnp.sin)(x))

    plan = tp.plan(tp.trace(rows, *draw((4, 8))), mesh2x4, {"b": tp.chunks(2), "e": "data"})
    assert "  sin for softmax" in plan.explain()


def test_activations_of_one_chunk_live_at_a_time() -> None:
    args = draw((1024, 32), (32, 512), (512, 32))
    graph, mesh = tp.trace(loss, *args), tp.mesh(None, one=1)

    def temporaries(entries: dict[str, Any]) -> int:
        gradient = jax.value_and_grad(tp.plan(graph, mesh, entries).compile(), (0, 1, 2))
        analysis: Any = jax.jit(gradient).lower(*args).compile().memory_analysis()
        return analysis.temp_size_in_bytes

    assert temporaries({"b": tp.chunks(8)}) < temporaries({}) / 8 + 4 * sum(arg.nbytes for arg in args)
