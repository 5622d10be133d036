"""Timelines against what can be counted by hand: every kernel takes a second, every collective what a table says."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import pytest
from jax.sharding import AbstractMesh, AxisType

import tapestry_jax as tp
from tapestry_jax.machines.figures import Table
from tapestry_jax.planning.timeline.event import COMPUTE, Event
from tapestry_jax.planning.timeline.track import Track, in_turns
from tests.pairs.pair import draw_pair
from tests.pairs.plans import repaired
from tests.tapestry_jax.planning.timeline.lawful import broken_laws

machines = tp.machines
linear = tp.einsum("b k, k n -> b n")


def machine(**sent: float) -> Any:
    """A machine on which the smallest kernel takes a second and all others are as small; `sent` by kind."""
    fast = machines.Figure(1e30, "for tests")
    products = tuple((dtype, fast) for dtype, _ in machines.H100.matmul)
    axes = [("data",), ("stage",), ("data", "stage")]
    tables = tuple(Table(kind.replace("_", "-"), axis, ((0.0, took),)) for kind, took in sent.items() for axis in axes)
    start = machines.Figure(1.0, "for tests")
    return replace(machines.H100, matmul=products, vector=fast, bandwidth=fast, cache=fast, start=start, tables=tables)


def mesh(**axes: int) -> AbstractMesh:
    return AbstractMesh(tuple(axes.values()), tuple(axes), axis_types=(AxisType.Auto,) * len(axes))


def scores(q, k):
    return tp.einsum("q d, k d -> q k")(q, k)


def layers(x, w):
    return tp.stack(lambda x, w: linear(x, w).rename(f="e"), w.shape[0])(x, w)


def stacked(count: int) -> Any:
    return tp.trace(layers, tp.TensorType({"batch": 16, "e": 4}), tp.TensorType({"layer": count, "e": 4, "f": 4}))


PRODUCT = tp.trace(linear, tp.TensorType({"b": 8, "k": 8}), tp.TensorType({"k": 8, "n": 8}))
SCORES = tp.trace(scores, tp.TensorType({"q": 8, "d": 4}), tp.TensorType({"k": 8, "d": 4}))


def test_a_fold_is_sent_when_it_is_computed():
    plan = tp.plan(PRODUCT, mesh(data=4), {"k": "data"})
    found = plan.timeline(machine(all_reduce=0.5))
    assert [(event.what, event.start, event.seconds) for event in found.events] == [
        ("compute", 0.0, 1.0),
        ("all-reduce", 1.0, 0.5),
    ]
    assert (found.makespan, found.idle) == (1.5, {"compute": 0.5, "link data": 1.0})


@pytest.mark.parametrize(("send", "makespan", "hidden"), [(0.25, 4.0, 0.75), (1.5, 5.5, 3.0)])
def test_a_ring_of_four_sends_while_it_computes(send: float, makespan: float, hidden: float):
    plan = tp.plan(SCORES, mesh(data=4), {"q": "data", "k": tp.ring("data")})
    found, cost = (ask(machine(collective_permute=send)) for ask in (plan.timeline, plan.cost))
    # Four turns of a second; three times something is sent, and the next turn waits for it.
    assert (found.makespan, found.hidden) == (makespan, hidden) == (cost.seconds, cost.hidden)
    (computed,), (sent,) = ([e for e in found.events if bool(e.axes) == links] for links in (False, True))
    every = max(1.0, send)
    assert [start for start, _ in computed.unfolded()] == [0, every, 2 * every, 3 * every]
    assert [start for start, _ in sent.unfolded()] == [0, every, 2 * every]


def test_what_one_ring_has_room_for_does_not_hide_another():
    def rings(q, k, p):
        return scores(q, k), tp.Map(jnp.sin)(tp.Map(jnp.cos)(scores(q, p)))

    sizes = ({"q": 8, "d": 4}, {"k": 8, "d": 4}, {"l": 8, "d": 4})
    graph = tp.trace(rings, *(tp.TensorType(each) for each in sizes))
    ring = tp.ring("data")
    plan = tp.plan(graph, mesh(data=4), {"q": "data", "k": ring, "l": ring})
    found, cost = (ask(machine(collective_permute=2.0)) for ask in (plan.timeline, plan.cost))
    # Turns of 1 s and of 3 s that send for 2 s: the first ring waits, whatever time the second one has.
    assert (found.makespan, cost.seconds) == (3 * 2.0 + 1.0 + 4 * 3.0, found.makespan)


def test_the_time_of_the_backward_pass_does_not_hide_what_the_forward_pass_sends():
    plan = tp.plan(SCORES, mesh(data=4), {"q": "data", "k": tp.ring("data")})
    found, cost = (ask(machine(collective_permute=2.0), grad=True) for ask in (plan.timeline, plan.cost))
    # Forwards turns of 1 s that send for 2 s; backwards turns of 1 s again and 2 s of gradients, which send for 2 s.
    assert (found.forward, found.makespan) == (3 * 2.0 + 1.0, 7.0 + 4 * 3.0)
    assert (cost.seconds, cost.hidden) == (found.makespan, found.hidden) == (19.0, 3 * 1.0 + 3 * 2.0)


def test_what_layers_compute_again_hides_nothing_that_goes_round():
    def block(q, k):
        return tp.einsum("q k, k d -> q d")(scores(q, k), k)

    sizes = {"q": 8, "d": 4}, {"layer": 3, "k": 8, "d": 4}
    graph = tp.trace(lambda q, k: tp.stack(block, 3)(q, k), *(tp.TensorType(each) for each in sizes))
    plan = tp.plan(graph, mesh(data=4), {"q": "data", "k": tp.ring("data")}, remat=True)
    found, cost = (ask(machine(collective_permute=7.0), grad=True) for ask in (plan.timeline, plan.cost))
    # Three layers of a ring of 2 s a turn. Backwards a layer is computed once more, which sends nothing, and then each
    # turn, whose gradient sends for 7 s: both together 6 s.
    assert found.forward == 3 * (3 * 7.0 + 2.0)
    assert (found.makespan, cost.seconds) == (found.forward + 3 * (4 * 2.0 + 3 * 7.0 + 6.0), found.makespan)


def test_the_backward_pass_goes_the_opposite_way():
    two = tp.trace(
        lambda x, w: tp.stack(lambda x, w: tp.Map(jnp.sin)(linear(x, w)).rename(f="e"), 4)(x, w),
        tp.TensorType({"b": 16, "e": 4}),
        tp.TensorType({"layer": 4, "e": 4, "f": 4}),
    )
    found = tp.plan(two, mesh(data=2), {"b": "data"}).timeline(machine(all_reduce=0.5), grad=True)
    parts = {
        part: [e.path for e in found.events if e.part == part and e.what == COMPUTE and e.seconds >= 1]
        for part in ("forward", "backward")
    }
    assert parts == {"forward": ["stack/einsum", "stack/sin"], "backward": ["stack/sin", "stack/einsum"]}


def test_a_pipeline_of_four_stages_and_eight_chunks_waits_three_of_eleven_turns():
    plan = tp.plan(stacked(4), mesh(stage=4), {"layer": "stage", "batch": tp.chunks(8)})
    found = plan.timeline(machine(collective_permute=0.5, all_reduce=0.25))
    assert found.makespan == 11 * 1.5 + 0.25
    assert (found.compute, found.bubble) == (8.0, pytest.approx(3.0))
    assert found.bubble / (found.compute + found.bubble) == pytest.approx(3 / (8 + 3))
    computing = [lane for lane in found.lanes if lane.name == COMPUTE]
    # A stage begins one turn after the stage before it, and works eight turns.
    assert [(lane.label, lane.first, lane.busy) for lane in computing] == [
        (f"compute stage={stage}", 1.5 * stage, 8.0) for stage in range(4)
    ]
    assert [lane.last for lane in computing] == [1.5 * (stage + 7) + 1 for stage in range(4)]


def test_the_backward_pass_of_a_pipeline_begins_at_its_last_stage():
    plan = tp.plan(stacked(4), mesh(stage=4), {"layer": "stage", "batch": tp.chunks(8)})
    found = plan.timeline(machine(collective_permute=0.5, all_reduce=0.25), grad=True)
    back = [event for event in found.events if event.part == "backward" and event.what == COMPUTE]
    starts = {lane.label: min(start for start, e in found.on(lane) if e in back) for lane in found.lanes if lane.where}
    assert sorted(starts, key=lambda name: starts[name]) == [f"compute stage={stage}" for stage in (3, 2, 1, 0)]
    assert all(event.start >= found.forward for event in back)


def test_layers_that_are_computed_again_are_so_before_their_gradient():
    plan = tp.plan(stacked(4), mesh(data=2), {"batch": "data"}, remat=True)
    found = plan.timeline(machine(all_reduce=0.5, reduce_scatter=0.5), grad=True)
    told = [(e.part, e.seconds, e.times) for e in found.events if e.what == COMPUTE and e.seconds > 0.5]
    # The gradient of a product is two products.
    assert told == [("forward", 1.0, 4), ("again", 1.0, 4), ("backward", 2.0, 4)]
    assert found.forward == pytest.approx(4.0, rel=1e-6)


def test_turns_are_folded():
    few, many = (tp.plan(stacked(n), mesh(data=2), {"batch": ("data", tp.chunks(4))}) for n in (2, 96))
    one, other = (plan.timeline("h100", grad=True) for plan in (few, many))
    assert len(one.events) == len(other.events)
    assert max(event.times for event in other.events) == 4 * 96


def test_what_a_turn_sends_goes_before_what_goes_round():
    turn = Track()
    for axes, seconds in (((), 2.0), (("data",), 1.0), ((), 2.0)):
        turn.add(Event("f", "all-reduce" if axes else COMPUTE, "forward", axes, 0.0, seconds))
    round_ = Event("ring", "collective-permute", "forward", ("data",), 0.0, 3.5)
    found = in_turns(turn, 4, [round_])
    pieces = [(event.start, event.seconds, event.turns) for event in found.events if event.path == "ring"]
    # 2 s before the turn's own, 1.5 s after it; four turns of 5 s.
    assert pieces == [(0.0, 2.0, ((3, 5.0),)), (3.0, 1.5, ((3, 5.0),))]
    assert found.end == 20.0
    # What is longer than its turn makes the next one wait.
    assert in_turns(turn, 4, [replace(round_, seconds=6.0)]).end == 3 * 7.0 + 5.0


def test_memory_over_time_is_what_the_steps_hold():
    plan = tp.plan(PRODUCT, mesh(data=4), {"k": "data"})
    # Two arguments of 64 B, then their product of 256 B besides.
    assert plan.timeline(machine(all_reduce=0.5)).memory == ((0.0, 384), (1.5, 384))
    # Arguments of 64 B and 256 B, the second one once more as it varies, and a product of 64 B; backwards it comes down
    # again: the product when its gradient is taken, the copy when its gradient is added up.
    both = tp.plan(PRODUCT, mesh(data=4), {"b": "data"}).timeline(machine(all_reduce=0.5), grad=True)
    assert both.memory == ((0, 576), (0, 640), (1, 640), (3, 640), (3, 576), (3.5, 576), (3.5, 320))
    kept, again = (tp.plan(stacked(8), mesh(data=2), {}, remat=remat) for remat in (None, True))
    for each in (kept, again):
        for grad in (False, True):
            told = each.explain(grad).splitlines()[-1]
            peak = each.timeline("h100", grad).peak
            assert told == f"values alive at once: {peak / 1e3:.3g} kB"


def test_a_timeline_prints_and_is_stored():
    plan = tp.plan(stacked(4), mesh(stage=4, data=2), {"layer": "stage", "batch": ("data", tp.chunks(4))})
    found = plan.timeline("v5e:2x4", grad=True)
    lines = str(found).splitlines()
    assert lines[0] == "layers on v5e, stage=4 x data=2, with gradients"
    assert sum(line.startswith("compute stage=") for line in lines) == 4
    assert all(len(line) <= 132 for line in lines)
    read = json.loads(found.to_json())
    assert read["makespan"] == found.makespan
    assert len(read["events"]) == len(found.events)
    assert {lane["name"] for lane in read["lanes"]} == {"compute", "stage", "data"}


def test_a_program_over_nothing_takes_no_time():
    empty = tp.trace(linear, tp.TensorType({"b": 0, "k": 8}), tp.TensorType({"k": 8, "n": 8}))
    found = tp.plan(empty, mesh(data=4), {"b": "data"}).timeline("h100")
    assert "idle" in str(found)
    assert found.makespan == sum(event.busy for event in found.events)


def test_an_unknown_machine_is_refused():
    with pytest.raises(tp.MeshError, match="no such machine is known"):
        tp.plan(PRODUCT, mesh(data=4), {}).timeline("h101")


@pytest.mark.parametrize("seed", ["timeline/1", "timeline/3", "timeline/4"])
def test_laws_hold_for_random_plans(seed: str):
    for program, placing in draw_pair(seed, 2):
        _, plan, _ = repaired(placing, program.graph, seed)
        if plan is not None:
            for grad in (False, True):
                assert broken_laws(plan, "v5p", grad) == []


def test_laws_hold_for_rings_pipelines_and_layers():
    ring = tp.plan(SCORES, mesh(data=4), {"q": "data", "k": tp.ring("data")})
    pipeline = tp.plan(stacked(8), mesh(stage=4), {"layer": "stage", "batch": tp.chunks(8)}, remat=True)
    chunked = tp.plan(stacked(8), mesh(data=4), {"batch": ("data", tp.chunks(2))}, remat=True)
    kept = tp.plan(stacked(8), mesh(data=4), {"batch": "data"}, remat={"": "dots"})
    for plan in (ring, pipeline, chunked, kept):
        for grad in (False, True):
            assert broken_laws(plan, "v5p", grad) == []


@pytest.mark.parametrize("name", ["h100", "b200", "v5e"])
def test_layers_gather_beside_one_another(name: str):
    plan = tp.fsdp(tp.plan(stacked(8), mesh(data=2), {"batch": "data"}), "data", smallest=1)
    for grad in (False, True):
        cost, found = plan.cost(name, grad=grad), plan.timeline(name, grad)
        assert broken_laws(plan, name, grad) == []
        assert 0 < cost.hidden == pytest.approx(found.hidden, rel=1e-6)
