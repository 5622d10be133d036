"""Loops over states with frames: derivatives in the frame of the whole, of which no turn is kept."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxprs_in_params

import tapestry_jax as tp
from combinators.kernels.jaxprs import scan_parts
from combinators.merging.blocks import combine_blocks
from tapestry_jax.lowering.time import accumulate, region
from tests.contract import assert_same
from tests.simulated.sampled import computed

SIZES = {"h": 1, "q": 6, "k": 12, "d": 2}


def _type(*names: str) -> tp.TensorType:
    return tp.TensorType({name: SIZES[name] for name in names}, jnp.float32)


def _attention(causal: bool = False) -> tp.Graph:
    keys = _type("h", "k", "d")
    return tp.trace(lambda q, k, v: tp.attention(q, k, v, over="k", causal=causal), _type("h", "q", "d"), keys, keys)


def _logsumexp() -> tp.Graph:
    return tp.trace(tp.fold(tp.aggregators.LogSumExp(), "q k -> q"), _type("q", "k"))


def _two_folds() -> tp.Graph:
    """Leaves of two states with frames, integers among them."""
    most, spread = (tp.fold(each, "q k -> q") for each in (tp.aggregators.LogSumExp(), tp.aggregators.Moments()))
    return tp.trace(lambda x: (most(x), spread(x)["variance"]), _type("q", "k"))


def _arrays(graph: tp.Graph, scale: float = 1) -> list[Any]:
    rng = np.random.default_rng(0)
    return [jnp.asarray(scale * rng.standard_normal(node.results[0].shape), jnp.float32) for node in graph.inputs]


def _gradient(plan: tp.Plan) -> Any:
    run = plan.compile()
    return lambda *args: jax.grad(lambda *args: jnp.sum(jnp.sin(run(*args))), argnums=tuple(range(len(args))))(*args)


@pytest.mark.parametrize(
    ("graph", "entries"),
    [
        pytest.param(_attention, {"k": tp.chunks(4)}, marks=pytest.mark.thorough),
        # Chunks of which rows see nothing, in loops over both.
        (lambda: _attention(causal=True), {"q": tp.chunks(3), "k": tp.chunks(4)}),
        pytest.param(_attention, {"k": ("data", tp.chunks(3))}, marks=pytest.mark.thorough),
        (_logsumexp, {"q": "data", "k": tp.chunks(5)}),
        (_two_folds, {"k": tp.chunks(4)}),
    ],
    ids=[
        "attention",
        "causal, both in chunks",
        "over the mesh and in chunks",
        "log-sum-exp, chunks that do not divide",
        "two folds",
    ],
)
def test_values_and_gradients_are_those_of_the_program(graph: Any, entries: Any) -> None:
    made = graph()
    # Scores of hundreds: relative to a maximum of another turn they would be infinite.
    assert_same(tp.plan(made, tp.mesh(data=2), entries), _arrays(made, 20), atol=1e-4)


def test_an_infinity_in_one_turn_is_the_value_of_all() -> None:
    x = np.ones((6, 12), np.float32)
    x[0, 3] = np.inf
    x[:, 10] = 200
    run = tp.plan(_logsumexp(), tp.mesh(data=1), {"k": tp.chunks(4)}).compile()
    slope = computed(jax.grad(lambda x: run(x)[0]), x)
    np.testing.assert_array_equal(run(x), [np.inf, 200, 200, 200, 200, 200])
    np.testing.assert_array_equal(slope, np.zeros((6, 12)))


def test_derivatives_forwards_and_of_second_order_are_those_of_the_program() -> None:
    graph = _attention()
    args = _arrays(graph)
    run = tp.plan(graph, tp.mesh(data=1), {"k": tp.chunks(4)}).compile()

    def found(run: Any) -> Any:
        def slope(*args: Any) -> Any:
            return jax.jvp(run, args, args)[1]

        return computed(lambda *args: (slope(*args), jax.grad(lambda *args: jnp.sum(slope(*args)))(*args)), *args)

    for ours, theirs in zip(found(run), found(graph), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-4, atol=2e-5)


def _stacked(plan: tp.Plan, turns: int) -> list[tuple[int, ...]]:
    """What the loops of a gradient keep of every turn, or read of it: stacked floats in their types."""
    structs = [jax.ShapeDtypeStruct(node.results[0].shape, node.results[0].dtype) for node in plan.graph.inputs]
    found: list[tuple[int, ...]] = []

    def look(jaxpr: Any) -> None:
        for equation in jaxpr.eqns:
            for inner in jaxprs_in_params(equation.params):
                look(inner)
            if equation.primitive.name == "scan" and equation.params["length"] == turns:
                _, kept = scan_parts(equation)
                found.extend(
                    atom.aval.shape for atom in equation.outvars[kept:] if jnp.issubdtype(atom.aval.dtype, jnp.floating)
                )

    look(jax.make_jaxpr(_gradient(plan))(*structs).jaxpr)
    return found


def test_a_value_alone_computes_nothing_in_a_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    def flops() -> float:
        graph = _attention()
        run = tp.plan(graph, tp.mesh(data=1), {"k": tp.chunks(3)}).compile()
        return jax.jit(run).lower(*_arrays(graph)).compile().cost_analysis()["flops"]

    def combined(merge: Any, carrier: Any, left: Any, right: Any) -> Any:
        return combine_blocks(merge.monoid, merge.tree, carrier, left, right)

    framed = flops()
    monkeypatch.setattr(accumulate, "_in_frame", combined)
    assert framed == flops()


def test_the_loop_keeps_nothing_of_a_turn_and_without_a_frame_it_did(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = tp.plan(_attention(), tp.mesh(data=1), {"k": tp.chunks(4)})
    assert _stacked(plan, 4) == []
    monkeypatch.setattr(region, "has_frames", lambda *_: False)
    again = tp.plan(_attention(), tp.mesh(data=1), {"k": tp.chunks(4)})
    # The largest scores before each turn.
    assert _stacked(again, 4) == [(4, 1, 6)]
