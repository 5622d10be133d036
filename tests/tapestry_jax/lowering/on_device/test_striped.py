"""Stripes: cells dealt to devices in turn, beside the unplanned program, and what they balance."""

from __future__ import annotations

from collections import Counter

import jax.numpy as jnp
import numpy as np
import pytest

import tapestry_jax as tp
from tapestry_jax.planning.scheduling.schedule import Region, Run
from tests.contract import assert_contract, assert_holds, assert_same
from tests.tapestry_jax.draw import named, normal

STRIPED = {"queries": tp.striped("data"), "keys": tp.ring("data")}
TILED = {"keys": (tp.ring("data"), tp.chunks(4)), "queries": (tp.striped("data"), tp.chunks(4))}
BLOCKS = {"keys": (tp.ring("data"), tp.chunks(4)), "queries": ("data", tp.chunks(4))}


@tp.program("queries heads d, keys heads d, keys heads e -> queries heads e")
def attend(q, k, v):
    return tp.attention(q, k, v, causal=True)


def arguments(size):
    return [normal(size, 1, 4, seed=seed) for seed in range(3)]


def kinds(plan):
    return Counter(each.kind for each in plan.collectives())


def test_striped_attention_sends_what_is_dealt_and_what_goes_round(mesh8):
    args = arguments(64)
    plan = tp.plan(tp.trace(attend, *args), mesh8, STRIPED)
    plan.verify()
    # Queries, keys and values into stripes, the output back into blocks; keys and values go round.
    assert kinds(plan) == {"all-to-all": 4, "collective-permute": 2}


@pytest.mark.parametrize("entries", [STRIPED, pytest.param(TILED, marks=pytest.mark.thorough)], ids=["ring", "tiles"])
def test_striped_attention_of_uneven_lengths(entries, mesh2x4):
    # Eleven cells on four devices: three rounds, of which the last device misses one; the last tiles are padding.
    args = arguments(11)
    plan = tp.plan(tp.trace(attend, *args), tp.mesh(list(mesh2x4.devices[0]), data=4), _smaller(entries))
    assert_contract(plan)
    assert_same(plan, args)


def _smaller(entries):
    return {
        dim: tuple(tp.chunks(2) if item == tp.chunks(4) else item for item in items)
        if isinstance(items, tuple)
        else items
        for dim, items in entries.items()
    }


def test_an_order_is_kept_where_one_is_needed(mesh8):
    # The map takes stripes; the scan, the window and the fold that does not commute take blocks.
    def program(x):
        raised = tp.Map(jnp.exp)(x) + tp.index("t", like=x)
        return tp.Scan(tp.monoids.Sum, "t -> t", over="t")(raised), tp.fold(tp.aggregators.Last(), "t -> ")(raised)[
            "value"
        ]

    args = (normal(64),)
    plan = tp.plan(tp.trace(program, *named("t", *args)), mesh8, {"t": tp.striped("data")})
    cuts = {step.path: dict(step.cuts) for step in plan.schedule.steps if isinstance(step, Run)}
    striped = {path for path, found in cuts.items() if any(cut.striped for cut in found.values())}
    assert "exp" in striped and striped < set(cuts) - {"scan", "fold"}
    assert_contract(plan)
    assert_same(plan, args, reference=lambda x: (np.cumsum(np.exp(x) + np.arange(64)), np.exp(x[-1]) + 63))


@pytest.mark.thorough
def test_what_goes_round_beside_a_placed_dimension_is_sliced_in_stripes(mesh8):
    # The values lie on the axis with another dimension, so that every device holds all of `k` and slices it.
    args = (normal(16, 16), normal(16, 16, seed=1))
    program = tp.program("i k, k i -> i")(lambda a, b: tp.einsum("i k, k i -> i")(a, b))
    plan = tp.plan(tp.trace(program, *args), mesh8, {"i": tp.striped("data"), "k": tp.ring("data")})
    assert_contract(plan)
    assert_same(plan, args, reference=lambda a, b: np.einsum("ik,ki->i", a, b))


@pytest.mark.thorough
def test_maps_around_a_ring_come_back_in_order(mesh8):
    args = (normal(16, 3), normal(3, 16, seed=1))
    program = tp.program("i k, k n -> i n")(lambda a, b: tp.einsum("i k, k n -> i n")(a, b))
    plan = tp.plan(tp.trace(program, *args), mesh8, {"i": tp.striped("data"), "n": tp.ring("data")})
    assert_contract(plan)
    assert_same(plan, args, reference=lambda a, b: a @ b)


def _tiles(plan):
    """For every device, and every turn of the ring, how many tiles of queries and keys hold anything to compute."""
    step, stack = None, list(plan.schedule.steps)
    while stack:
        each = stack.pop()
        stack += each.body.steps if isinstance(each, Region) else []
        step = each if isinstance(each, Run) else step
    cuts = dict(step.cuts)
    queries, keys = (cut for cut in cuts.values() if len(cut.axes) == 2)
    devices, chunks = 8, 4

    def cells(cut, device, chunk):
        places = device * cut.piece + chunk * cut.block + np.arange(cut.block)
        return places % cut.piece * devices + places // cut.piece if cut.striped else places

    counted = np.zeros((devices, devices), int)
    for device in range(devices):
        for turn in range(devices):
            holder = (device - turn) % devices
            counted[device, turn] = sum(
                cells(queries, device, a)[-1] >= cells(keys, holder, b)[0] for a in range(chunks) for b in range(chunks)
            )
    return counted


def test_stripes_leave_every_device_the_same_to_do(mesh8):
    graph = tp.trace(attend, *arguments(256))
    striped, blocks = (_tiles(tp.plan(graph, mesh8, entries)) for entries in (TILED, BLOCKS))
    assert (striped == 10).all()  # four by four tiles, of which six lie behind the queries
    # All wait for the slowest in every turn: with blocks that is the last device, which always has all to do.
    assert blocks.max(axis=0).sum() == 10 + 7 * 16


def test_hidden_keys_are_skipped():
    # What is computed from values that are not a number is not a number, hidden or not: they are never read.
    q, k, v = arguments(64)
    args = (q, k, v.at[32:].set(jnp.nan))
    plan = tp.plan(
        tp.trace(attend, *args), tp.mesh(None, one=1), {"keys": tp.chunks(4), "queries": tp.chunks(4)}
    ).compile()
    assert not jnp.isnan(plan(*args)[:32]).any()


ONE = {"one": 1, "data": 2}


@pytest.mark.parametrize(
    "items",
    [(tp.striped("one"), tp.chunks(4)), (tp.striped("one"),), (tp.striped("one", "data"), tp.chunks(2))],
    ids=["chunks", "alone", "beside another"],
)
@pytest.mark.parametrize("reads_coordinates", [False, True], ids=["values", "coordinates"])
def test_stripes_on_an_axis_of_one_device(items, reads_coordinates, mesh8):
    # Dealt to one device, cells lie in their own order; what is dealt nowhere is no stripe.
    weighted = tp.Reduce(lambda x, p: (x * (1 + p)).sum(), "p, @p -> ", tp.monoids.Sum)
    fold = weighted if reads_coordinates else tp.fold(tp.aggregators.Sum(), "p -> ")
    plan = tp.plan(tp.trace(fold, *named("p", jnp.arange(8.0))), tp.mesh(list(mesh8.devices[:2]), **ONE), {"p": items})
    assert plan.compile()(jnp.arange(8.0)) == (168 if reads_coordinates else 28)


def test_striped_attention_on_an_axis_of_one_device(mesh8):
    args = arguments(16)
    tiles = {"keys": (tp.ring("one"), tp.chunks(2)), "queries": (tp.striped("one"), tp.chunks(2))}
    plan = tp.plan(tp.trace(attend, *args), tp.mesh(list(mesh8.devices[:2]), **ONE), tiles)
    assert_same(plan, args)


def test_what_is_dealt_to_devices_and_goes_round_others_lies_in_blocks(mesh2x4):
    # A mask lies on the ring's axis with its queries: its keys are sliced, while those of the keys go round.
    def masked(q, k, v, mask):
        return tp.attention(q, k, v, over="keys", mask=mask)

    names = "queries heads d, keys heads d, keys heads e, queries keys"
    args = (*arguments(16), jnp.asarray(np.random.default_rng(0).random((16, 16)) < 0.6))
    entries = {"queries": tp.striped("model"), "keys": ("data", tp.ring("model"))}
    plan = tp.plan(tp.trace(masked, *named(names, *args)), mesh2x4, entries)
    plan.verify()
    assert_same(plan, args)


def test_coordinates_follow_what_is_dealt_and_goes_round(mesh2x4):
    program = tp.program("a c -> a c")(lambda x: tp.Map(lambda x, c: x * (1.0 + c), "a c, @c -> a c")(x))
    args = (normal(4, 8),)
    plan = tp.plan(tp.trace(program, *args), mesh2x4, {"a": "data", "c": (tp.striped("model"), tp.ring("data"))})
    plan.verify()
    assert_same(plan, args, reference=lambda x: x * np.arange(1.0, 9.0))


def test_stripes_and_blocks_do_not_mix(mesh2x4):
    with pytest.raises(tp.PlanError) as caught:
        tp.plan(tp.trace(attend, *arguments(8)), mesh2x4, {"queries": ("data", tp.striped("model"))})
    assert str(caught.value) == (
        "the plan places `queries` in blocks and in stripes at once\n"
        "  got (data, striped('model'))\n"
        "  Write tp.striped('data', 'model') alone."
    )
    with pytest.raises(tp.PlanError, match=r"tp\.striped takes names of mesh axes"):
        tp.striped()


def test_plans_with_stripes_are_stored_and_explained(mesh8):
    graph = tp.trace(attend, *arguments(64))
    plan = tp.plan(graph, mesh8, TILED)
    assert tp.Plan.from_json(plan.to_json(), graph, mesh8).schedule == plan.schedule
    text = plan.explain()
    assert "queries:striped data+4 chunks" in text and "keys:striped ring data+4 chunks" in text
    assert "all-to-all queries into stripes over data" in text


project = tp.einsum("s d, d e -> s e")


@tp.program("seq d, d e, d f, d g -> seq d")
def layer(x, to_query, to_key, to_value):
    q, k, v = project(x, to_query).rename(e="h"), project(x, to_key).rename(f="h"), project(x, to_value)
    y = tp.attention(q, k.rename(seq="keys"), v.rename(seq="keys"), causal=True)
    return x + y.rename(g="d")


def layers(x, *weights):
    return tp.stack(layer, 2)(x, *weights)


def _deep_plan(args, mesh):
    graph = tp.trace(layers, *named("seq d, layer d e, layer d f, layer d g", *args))
    return tp.plan(graph, mesh, {"seq": tp.striped("data"), "keys": tp.ring("data")})


DEEP = (normal(64, 4), *(normal(2, 4, 4, seed=seed, scale=0.5) for seed in range(3)))


def test_all_layers_stay_in_stripes(mesh8):
    found = [(each.kind, each.times) for each in _deep_plan(DEEP, mesh8).collectives()]
    # In at the first layer, out behind the last; in each of them keys and values go round.
    assert sorted(found) == [
        ("all-to-all", 1),
        ("all-to-all", 1),
        ("collective-permute", 14),
        ("collective-permute", 14),
    ]


@pytest.mark.thorough
def test_layers_in_stripes_hold(mesh8):
    assert_holds(_deep_plan(DEEP, mesh8), DEEP)
