"""What plans cost, against what can be said of them by hand: halves, bubbles, halos, rings, chunks, gradients."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AbstractMesh, AxisType

import tapestry_jax as tp
from tests.work import calls

machines = tp.machines
linear = tp.einsum("b k, k n -> b n")
gelu = tp.Map(jax.nn.gelu)


def mesh(**axes: int) -> AbstractMesh:
    return AbstractMesh(tuple(axes.values()), tuple(axes), axis_types=(AxisType.Auto,) * len(axes))


def traced(program: Any, *shapes: tuple[int, ...], dtype: Any = jnp.bfloat16) -> Any:
    return tp.trace(program, *(jax.ShapeDtypeStruct(shape, dtype) for shape in shapes))


@tp.program("batch embed, embed mlp, mlp embed -> batch embed")
def mlp(x, up, down):
    return linear(gelu(linear(x, up)), down)


@tp.program("batch embed, layer embed mlp, layer mlp embed -> batch embed")
def deep(x, up, down):
    return tp.stack(lambda x, u, d: x + linear(gelu(linear(x, u)), d), up.shape[0])(x, up, down)


@tp.program("batch embed, layer embed mlp, layer mlp embed -> ")
def deep_loss(x, up, down):
    y = tp.stack(lambda x, u, d: x + linear(gelu(linear(x, u)), d), up.shape[0])(x, up, down)
    return tp.Reduce(lambda y: y, "b e -> ", tp.monoids.Sum)(y)


@tp.program("heads queries d, heads keys d, heads keys e -> heads queries e")
def attention(q, k, v):
    return tp.attention(q, k, v)


@tp.program("batch embed -> embed, embed")
def column_means(x):
    y = tp.Map(jnp.sort, "... [c] -> ... [c]")(x)
    largest = tp.Reduce(lambda y: y.max(0), "b e -> e", tp.monoids.Max)
    return tp.Reduce(lambda y: y.sum(0), "b e -> e", tp.monoids.Sum)(y), largest(y)


def step(block):
    return block[1:-1] + 0.1 * (block[2:] - 2 * block[1:-1] + block[:-2])


@tp.program("y x -> y x")
def heat(u):
    return tp.iterate(tp.Map(step, "(y+[w]-1) x -> y x", sizes={"w": 3}, boundary="periodic"), 8)(u)


MLP = traced(mlp, (4096, 1024), (1024, 4096), (4096, 1024))
DEEP = traced(deep, (4096, 512), (8, 512, 2048), (8, 2048, 512))
ATTENTION = traced(attention, (8, 4096, 128), (8, 4096, 128), (8, 4096, 128))
LONG = traced(attention, (8, 65536, 128), (8, 65536, 128), (8, 65536, 128))


def test_eight_devices_compute_an_eighth():
    whole = tp.plan(MLP, mesh(data=8), {}).cost("v5p")
    cut = tp.plan(MLP, mesh(data=8), {"batch": "data"}).cost("v5p")
    assert sum(each.flops for each in whole.operations) == pytest.approx(8 * sum(e.flops for e in cut.operations))
    assert (whole.communication, cut.communication) == (0, 0)


def test_flops_are_those_of_products():
    cost = tp.plan(MLP, mesh(data=8), {"batch": "data"}).cost(machines.H100)
    products = 2 * 2 * 4096 * 1024 * 4096 / 8
    assert sum(each.flops for each in cost.operations) == pytest.approx(products, rel=0.02)
    assert cost.compute > products / 989.4e12


def test_a_gradient_of_products_is_two_products_for_each():
    forward, both = (tp.plan(MLP, mesh(data=8), {"batch": "data"}).cost("v5p", grad) for grad in (False, True))
    assert sum(e.flops for e in both.operations) == pytest.approx(
        3 * sum(e.flops for e in forward.operations), rel=0.02
    )
    by_one = tp.plan(MLP, mesh(data=8), {"batch": "data"}).cost("v5p", grad=2)
    # By the last weights alone: one product more.
    assert sum(e.flops for e in by_one.operations) == pytest.approx(
        1.5 * sum(e.flops for e in forward.operations), rel=0.02
    )


def test_column_then_row_sends_once():
    plan = tp.plan(MLP, mesh(data=2, model=4), {"batch": "data", "mlp": "model"})
    (sent,) = plan.cost("h100").transfers
    assert (sent.kind, sent.axes, sent.bytes) == ("all-reduce", ("model",), 2048 * 1024 * 2)
    assert sent.seconds > 2 * (3 / 4) * sent.bytes / 450e9


def test_layers_are_counted_with_their_turns():
    cost = tp.plan(DEEP, mesh(data=8), {"batch": "data"}).cost("v5p")
    products = 8 * 2 * 2 * 4096 * 512 * 2048 / 8
    assert sum(each.flops for each in cost.operations) == pytest.approx(products, rel=0.02)


def test_rematerialisation_computes_forward_work_again():
    plans = [tp.plan(DEEP, mesh(data=8), {"batch": "data"}, remat=remat) for remat in (None, True)]
    kept, again = (plan.cost("v5p", grad=True) for plan in plans)
    forward = plans[0].cost("v5p")
    assert sum(each.again for each in kept.operations) == 0
    assert sum(each.again for each in again.operations) == pytest.approx(forward.compute, rel=0.2)
    # What is computed again need not be stacked.
    assert kept.compute < again.compute < kept.compute + forward.compute


def test_a_pipeline_waits_at_both_ends():
    entries = {"layer": "stage", "batch": tp.chunks(8)}
    cost = tp.plan(DEEP, mesh(stage=4), entries).cost("v5p")
    # 8 microbatches through 4 stages take 11 turns, in 3 of which a stage waits.
    assert cost.bubble / cost.compute == pytest.approx(3 / 11, rel=0.05)


def test_a_ring_hides_what_it_sends_behind_what_it_computes():
    plan = tp.plan(LONG, mesh(data=8), {"queries": "data", "keys": tp.ring("data")})
    cost = plan.cost("v5p")
    assert {each.kind for each in cost.transfers} == {"collective-permute"}
    assert 0.8 * cost.communication < cost.hidden <= cost.communication
    assert cost.seconds == pytest.approx(cost.compute + cost.communication - cost.hidden)
    # Where links are a thousand times slower, no more is hidden than is computed meanwhile.
    slow = replace(machines.V5P, inside=replace(machines.V5P.inside, bandwidth=machines.Figure(9e7, "slow")))
    hidden = plan.cost(slow)
    assert hidden.hidden == pytest.approx(hidden.compute * 7 / 8)


def test_layers_gather_their_parameters_behind_one_another():
    plan = tp.fsdp(tp.plan(DEEP, mesh(data=8), {"batch": "data"}), "data")
    shares = {"H100": (0.94, 0.88), "v6e": (0.0, 0.0), "v5p": (0.0, 0.0), "v5e": (0.75, 0.0), "v4": (0.0, 0.0)}
    for name, known in shares.items():
        # Links without end: there is room for all that compilers send early or late.
        machine = getattr(machines, name.upper())
        fast = replace(machine, inside=replace(machine.inside, bandwidth=machines.Figure(1e15, "fast")))
        fast = replace(fast, inside=replace(fast.inside, latency=machines.Figure(1e-12, "fast")))
        sent = plan.cost(fast, grad=True).transfers
        for kind, share in zip(("all-gather", "reduce-scatter"), known, strict=True):
            alike = [each for each in sent if each.kind == kind]
            assert alike and sum(e.hidden for e in alike) == pytest.approx(share * sum(e.seconds for e in alike))
    slow = replace(machines.H100, inside=replace(machines.H100.inside, bandwidth=machines.Figure(1e7, "slow")))
    cost = plan.cost(slow, grad=True)
    # No longer than seven of eight layers compute, forwards and backwards.
    assert 0.7 * cost.compute < cost.hidden <= 7 / 8 * cost.compute


def test_sums_of_activations_wait():
    cost = tp.plan(DEEP, mesh(data=2, model=4), {"batch": "data", "mlp": "model"}).cost("h100", grad=True)
    assert {each.kind for each in cost.transfers} == {"all-reduce"} and cost.hidden == 0


def test_values_between_operations_stay_on_the_chip_of_a_tpu():
    graph = traced(column_means, (8192, 1024), dtype=jnp.float32)
    small = tp.plan(graph, mesh(data=8), {"batch": "data"})
    block = 1024 * 1024 * 4
    moved = {name: sum(each.bytes for each in small.cost(name).operations) for name in ("v5e", "h100")}
    # Sorted once and read twice, by two folds: 4 MB of the 128 on a v5e.
    assert moved["v5e"] < 2.1 * block < 3.9 * block < moved["h100"]


def test_a_deep_halo_computes_what_neighbours_compute_too():
    graph = traced(heat, (4096, 1024), dtype=jnp.float32)
    shallow = tp.plan(graph, mesh(data=8), {"y": "data"}).cost("v5e")
    deep = tp.plan(graph, mesh(data=8), {"y": ("data", tp.halo(depth=4))}).cost("v5e")
    assert sum(each.redundant for each in shallow.operations) == 0
    assert 0 < sum(each.redundant for each in deep.operations) < 0.05 * deep.compute
    assert sum(each.times for each in deep.transfers) < sum(each.times for each in shallow.transfers)


def test_scores_that_fit_on_the_chip_stay_there():
    # The scores of a head: 64 MB in one piece, 2 MB in one of 32 chunks.
    graph = traced(attention, *((8, 4096, 128) for _ in range(3)), dtype=jnp.float32)
    plans = [tp.plan(graph, mesh(data=8), {"heads": "data", "keys": tp.chunks(n)}) for n in (1, 32)]
    whole, chunks = (sum(each.bytes for each in plan.cost("h100").operations) for plan in plans)
    assert chunks < 0.55 * whole


def test_a_kernel_of_the_platform_keeps_what_it_makes():
    # Splash attention, on TPUs alone: it reads three operands and writes one.
    plan = tp.plan(ATTENTION, mesh(data=8), {"heads": "data"})
    (found,) = plan.cost("v5p").operations
    assert found.bytes == 4 * 4096 * 128 * 2
    (written,) = tp.plan(ATTENTION, mesh(data=8), {"heads": "data"}, platforms="rocm").cost("h100").operations
    assert written.bytes > 4096 * 4096 * 4


def test_neighbours_blocks_are_put_together():
    cost = tp.plan(traced(heat, (4096, 1024), dtype=jnp.float32), mesh(data=8), {"y": "data"}).cost("v5e")
    block = 4096 // 8 * 1024 * 4
    # Each of 8 steps copies block and rim, reads them, and writes its result.
    assert sum(each.bytes for each in cost.operations) == pytest.approx(8 * 4 * block, rel=0.02)


def test_chunks_read_again_what_they_do_not_cut():
    cost = tp.plan(ATTENTION, mesh(data=8), {"heads": "data", "keys": tp.chunks(4)}).cost("v5p")
    queries = 4096 * 128 * 2
    assert sum(each.reread for each in cost.operations) >= 3 * queries
    whole = tp.plan(ATTENTION, mesh(data=8), {"heads": "data"}).cost("v5p")
    assert sum(each.reread for each in whole.operations) == 0


def test_an_unlike_network_between_hosts_shows_by_axis():
    cost = tp.plan(MLP, mesh(data=8, model=8), {"batch": "data", "mlp": "model"}).cost("h100", grad=True)
    assert set(cost.communication_by_axis) == {("data",), ("model",)}
    assert "data: 8 groups; model: 8 on a switch" in str(cost)


def test_a_cost_prints_and_is_stored():
    cost = tp.plan(DEEP, mesh(data=2, model=4), {"batch": "data", "mlp": "model"}).cost("v5e:2x4", grad=True)
    text = str(cost)
    assert "mlp on v5e" not in text
    assert "deep on v5e, data=2 x model=4, with gradients" in text
    read = json.loads(cost.to_json())
    assert read["seconds"] == cost.seconds == pytest.approx(read["compute"] + read["communication"] - read["hidden"])
    assert [each["path"] for each in read["operations"]] == [each.path for each in cost.operations]


def test_an_unknown_machine_is_refused():
    with pytest.raises(tp.MeshError, match="no such machine is known"):
        tp.plan(MLP, mesh(data=8), {}).cost("h101")


def test_a_mesh_that_does_not_fill_the_machine_is_refused():
    with pytest.raises(tp.MeshError, match="does not fill"):
        tp.plan(MLP, mesh(data=8), {}).cost("v5e:4x4")


def test_a_cost_that_is_no_number_is_refused():
    from tapestry_jax.planning.pricing import priced

    cost = tp.plan(MLP, mesh(data=8), {}).cost("v5e")
    broken = replace(cost, operations=(replace(cost.operations[0], forward=math.nan),))
    with pytest.raises(tp.PlanError, match="is no number"):
        priced.check(broken)


@pytest.mark.parametrize("sizes", [{"data": 1}, {"data": 3}, {"data": 7, "model": 1}, {"data": 2, "model": 64}])
@pytest.mark.parametrize("machine", machines.KNOWN)
def test_every_machine_prices_every_mesh(machine: str, sizes: dict[str, int]):
    graph = traced(mlp, (5, 3), (3, 7), (7, 3))
    entries = {"batch": "data", **({"mlp": "model"} if "model" in sizes else {})}
    cost = tp.plan(graph, mesh(**sizes), entries).cost(machine, grad=True)
    assert 0 < cost.seconds < 1


def test_a_program_over_nothing_costs_nothing():
    cost = tp.plan(traced(mlp, (0, 3), (3, 7), (7, 3)), mesh(data=2), {"batch": "data"}).cost("v5e", grad=True)
    assert cost.compute < 1e-4


def test_pricing_again_takes_no_counting():
    plan = tp.plan(DEEP, mesh(data=64, model=8), {"batch": "data", "mlp": "model"})
    plan.cost("v5p", grad=True)
    assert calls(lambda: plan.cost("v5p", grad=True)) < 60_000


def test_stacked_layers_cost_as_much_time_to_price_as_one():
    plans = []
    for layers in (2, 96):
        graph = traced(deep, (4096, 512), (layers, 512, 2048), (layers, 2048, 512))
        plans.append(tp.plan(graph, mesh(data=8), {"batch": "data"}))
        plans[-1].cost("v5p", grad=True)
    few, many = (calls(lambda plan=plan: plan.cost("v5p", grad=True)) for plan in plans)
    assert many < 1.1 * few
