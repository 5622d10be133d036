"""Layers whose rings turn once more backwards: nothing of what came round is kept, and what is sent is predicted."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import pytest
from jax.sharding import AbstractMesh, AxisType

import tapestry_jax as tp
from tests.contract import assert_contract, assert_same
from tests.tapestry_jax.draw import named, normal

LAYERS, SEQ, SIZE = 3, 16, 4
ARGS = (normal(2, SEQ, SIZE), normal(LAYERS, SIZE, SIZE, seed=1), normal(LAYERS, SIZE, seed=2))
NAMES = "h t c, layer c d, layer c"
ENTRIES = {"t": "model", "h": "data", "keys": tp.ring("model")}


@tp.program("h t c, c d, c -> h t c")
def layer(x: Any, w: Any, bias: Any) -> Any:
    y = tp.Map(jnp.tanh)(tp.einsum("h t c, c d -> h t d")(x, w)).rename(d="c")
    keys, values = y.rename(t="keys"), (y * bias).rename(t="keys", c="e")
    return y + tp.attention(y + bias, keys, values, over="keys").rename(e="c")


def stacked(x: Any, ws: Any, biases: Any) -> Any:
    return tp.stack(layer, LAYERS, name="decoder")(x, ws, biases)


def one_by_one(x: Any, *layers: Any) -> Any:
    for own in layers:
        x = layer(x, *own)
    return x


GRAPH = tp.trace(stacked, *named(NAMES, *ARGS))


def passing(graph: Any, mesh: Any, entries: Any, remat: Any, grad: Any = True) -> tuple[int, int]:
    """The bytes that go round rings, forwards and with the gradient."""
    plan = tp.plan(graph, mesh, entries, remat=remat)
    sent = [
        (each.bytes * each.times, each.backward) for each in plan.collectives(grad) if each.kind == "collective-permute"
    ]
    return sum(size for size, backward in sent if not backward), sum(size for size, backward in sent if backward)


@pytest.mark.parametrize(
    ("entries", "grad"),
    [
        (ENTRIES, True),
        pytest.param({"t": "model", "keys": (tp.ring("model"), tp.chunks(2))}, True, marks=pytest.mark.thorough),
        pytest.param(ENTRIES, (0,), marks=pytest.mark.thorough),
        pytest.param({"t": "data", "h": "model", "keys": tp.ring("data")}, True, marks=pytest.mark.thorough),
    ],
    ids=str,
)
def test_keys_and_values_go_round_once_more(mesh2x4: Any, entries: Any, grad: Any) -> None:
    plan = tp.plan(GRAPH, mesh2x4, entries, remat={"decoder": "rings_again"})
    plan.verify()
    assert "rings sent round again" in plan.explain(grad=True)
    assert_contract(plan, grad)
    assert_same(plan, ARGS, grad=grad)
    once, back = passing(GRAPH, mesh2x4, entries, True, grad)
    assert passing(GRAPH, mesh2x4, entries, "rings_again", grad) == (once, back + once)


def test_memory_of_a_ring_does_not_grow_with_the_layers(mesh2x4: Any) -> None:
    def temporaries(layers: int, remat: str | bool) -> int:
        args = (ARGS[0], normal(layers, SIZE, SIZE), normal(layers, SIZE))
        graph = tp.trace(lambda x, ws, bs: tp.stack(layer, layers, name="decoder")(x, ws, bs), *named(NAMES, *args))
        return tp.plan(graph, mesh2x4, ENTRIES, remat=remat).memory(True).temporaries

    piece = SEQ // 4 * SIZE * 4
    kept, again = ((temporaries(9, how) - temporaries(3, how)) // 6 for how in (True, "rings_again"))
    # Keys and values of three others; a turn keeps what it starts from in any case.
    assert kept - again == 2 * 3 * piece
    assert piece <= again < 2 * piece


def test_where_no_ring_stands_in_what_is_computed_again_it_is_refused(mesh2x4: Any) -> None:
    own = [(normal(SIZE, SIZE, seed=n), normal(SIZE, seed=n)) for n in range(2)]
    types = [tuple(named("c d, c", *each)) for each in own]
    graph = tp.trace(one_by_one, *named("h t c", ARGS[0]), *types)
    for program, entries in ((graph, ENTRIES), (GRAPH, {"t": "model", "h": "data"})):
        with pytest.raises(tp.PlanError, match="no ring stands in layers") as error:
            tp.plan(program, mesh2x4, entries, remat="rings_again")
        assert "Stack the layers" in str(error.value)


@pytest.mark.parametrize("is_sum", [False, True], ids=["loops that keep it", "loops that end in a sum"])
@pytest.mark.parametrize("compiles", [False, pytest.param(True, marks=pytest.mark.thorough)], ids=["", "compiled"])
def test_a_loop_in_time_around_says_whether_they_turn_again(mesh2x4: Any, is_sum: bool, compiles: bool) -> None:
    total = tp.einsum("h t c -> ") if is_sum else tp.identity
    graph = tp.trace(lambda *args: total(stacked(*args)), *named(NAMES, *ARGS))
    entries = {"t": "model", "h": tp.chunks(2), "keys": tp.ring("model")}
    if compiles:
        assert_contract(tp.plan(graph, mesh2x4, entries, remat="rings_again"))
    same = passing(graph, mesh2x4, entries, True) == passing(graph, mesh2x4, entries, "rings_again")
    assert same == (not is_sum)


def test_what_is_sent_again_passes_behind_what_is_computed_again() -> None:
    mesh = AbstractMesh((8, 8), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
    types = [
        tp.TensorType({"h": 2, "t": 2**12, "c": 128}, "bfloat16"),
        tp.TensorType({"layer": LAYERS, "c": 128, "d": 128}, "bfloat16"),
        tp.TensorType({"layer": LAYERS, "c": 128}, "bfloat16"),
    ]
    long = tp.trace(stacked, *types)

    def hidden(remat: str | bool) -> tuple[float, float]:
        plan = tp.plan(long, mesh, {"t": "data", "keys": tp.ring("data")}, remat=remat)
        cost = plan.cost("h100:8x8", True)
        assert plan.timeline("h100:8x8", True).makespan == pytest.approx(cost.seconds)
        rings = [each for each in cost.transfers if each.kind == "collective-permute"]
        assert sum(each.hidden for each in rings) < sum(each.seconds for each in rings)
        forward, backward = (sum(each.hidden for each in rings if each.backward is back) for back in (False, True))
        return forward, backward

    (forward, kept), (same, again) = hidden(True), hidden("rings_again")
    assert forward == same and again == pytest.approx(kept + forward)


def test_files_hold_it_and_errors_name_it(mesh2x4: Any) -> None:
    plan = tp.plan(GRAPH, mesh2x4, ENTRIES, remat="rings_again")
    assert tp.Plan.from_json(plan.to_json(), GRAPH).schedule == plan.schedule
    with pytest.raises(tp.PlanError, match="'rings_again' keeps nothing either, and sends round rings again"):
        tp.plan(GRAPH, mesh2x4, ENTRIES, remat="rings")
