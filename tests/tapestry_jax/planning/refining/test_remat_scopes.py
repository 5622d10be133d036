"""Layers that stand one by one and are computed again backwards: equal gradients, fewer bytes, sends predicted."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tapestry_jax as tp
from tapestry_jax.lowering.on_device.recomputed import later
from tapestry_jax.planning.scheduling.schedule import Region
from tests.contract import assert_contract, assert_holds
from tests.simulated.sampled import computed
from tests.tapestry_jax.draw import named, normal

gelu = tp.Map(jax.nn.gelu)
matmul = tp.einsum("i k, k n -> i n")
LAYERS = 3


@tp.program("b e, e f, f, f g -> b e")
def layer(x, w, bias, v):
    return x + matmul(gelu(matmul(x, w) + bias), v).rename(g="e")


def deep(x, *layers):
    for own in layers:
        x = layer(x, *own)
    return gelu(x)


def reference_deep(x, *layers):
    for w, bias, v in layers:
        x = x + jax.nn.gelu(x @ w + bias) @ v
    return jax.nn.gelu(x)


def arrays(layers, rows, embed, wide):
    own = [
        (normal(embed, wide, seed=n, scale=0.3), normal(wide, seed=n), normal(wide, embed, seed=n, scale=0.3))
        for n in range(layers)
    ]
    return (normal(rows, embed, seed=2), *own)


def traced(args):
    kinds = [tuple(named("e f, f, f g", *own)) for own in args[1:]]
    return tp.trace(deep, *named("b e", args[0]), *kinds)


ARGS = arrays(LAYERS, 8, 8, 16)
GRAPH = traced(ARGS)
AGAIN = ("add", "gelu", "einsum_1", "add_1")
PATHS = ["layer", "layer_1", "layer_2"]
ENTRIES = {"b": "data", "f": "model"}


def units(schedule):
    """Path and what is kept of everything that is computed again outside of repetitions."""
    yield from ((unit.path, unit.keeps) for unit in schedule.again)
    for step in schedule.steps:
        if isinstance(step, Region):
            yield from units(step.body)


def marked(remat, graph=GRAPH, mesh=None):
    return [path for path, _ in units(tp.plan(graph, mesh or tp.mesh(data=2), {"b": "data"}, remat=remat).schedule)]


@pytest.mark.parametrize(
    ("entries", "choice"),
    [
        pytest.param(ENTRIES, True, marks=pytest.mark.thorough),
        ({"b": ("data", tp.chunks(2)), "f": "model"}, "dots"),
        pytest.param({"f": ("model", tp.chunks(2))}, True, marks=pytest.mark.thorough),
    ],
    ids=str,
)
def test_value_gradient_and_bytes_are_those_of_the_program(mesh2x4, entries, choice):
    plan = tp.plan(GRAPH, mesh2x4, entries, remat=choice)
    assert [*dict(units(plan.schedule))] == PATHS
    assert_holds(plan, ARGS, reference=reference_deep)
    # What other devices sent is kept: nothing is sent again.
    assert plan.collectives(True) == tp.plan(GRAPH, mesh2x4, entries).collectives(True)


def test_stored_parameters_are_gathered_again_where_derivatives_need_them(mesh2x4):
    plan = tp.fsdp(tp.plan(GRAPH, mesh2x4, ENTRIES, remat={"layer_*": True}), "data", smallest=1)
    assert [*units(plan.schedule)] == [("layer_1", ""), ("layer_2", "")]
    assert_contract(plan)
    again = [each.path for each in plan.collectives(True) if each.kind == "all-gather" and each.backward]
    # Both weights and the bias, which stands before the nonlinearity; the first layer keeps what it gathered.
    assert len(again) == 3 * 2 and not any(path.startswith("layer/") for path in again)


def test_what_others_read_is_kept_and_not_gathered_again(mesh2x4):
    def tied(x, w, bias, v):
        return layer(layer(x, w, bias, v), w, bias, v)

    graph = tp.trace(tied, *named("b e, e f, f, f g", ARGS[0], *ARGS[1]))
    plan = tp.fsdp(tp.plan(graph, mesh2x4, {"b": "data"}, remat=True), "data", smallest=1)
    assert [*dict(units(plan.schedule))] == PATHS[:2]
    assert_contract(plan)
    assert not any(each.backward and each.kind == "all-gather" for each in plan.collectives(True))
    own = plan.schedule.made_for_itself()
    assert own[1].isdisjoint(plan.schedule.outputs) and own[0].isdisjoint(plan.schedule.steps[-1].operands)


def products(graph, remat):
    """The products of the program that a CPU runs, with its gradients."""
    run = tp.plan(graph, tp.mesh(data=2), {"b": "data"}, remat=remat).compile()
    structs = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(ARGS)]
    args = jax.tree.unflatten(jax.tree.structure(ARGS), structs)
    return jax.jit(jax.grad(lambda args: run(*args).sum())).lower(args).compile().as_text().count(" dot(")


def test_compilers_run_a_layer_twice_and_do_not_merge_both_passes():
    # Of a layer's two products the first is computed again: of the second only the result of the layer is made.
    assert products(GRAPH, True) == products(GRAPH, None) + LAYERS == products(GRAPH, "dots") + LAYERS


def test_layers_that_keep_different_results_are_not_run_as_equal():
    assert products(GRAPH, {"": True, "layer_1": "dots"}) == products(GRAPH, None) + LAYERS - 1


def test_what_is_made_again_is_alive_with_what_was_kept():
    alone = arrays(1, 512, 32, 128)
    graph = traced(alone)
    plans = [tp.plan(graph, tp.mesh(data=2), {"b": "data"}, remat=remat) for remat in (None, {"layer": True})]
    # When its gradient begins all of the layer is there once more.
    kept, again = (plan.timeline("H100", grad=True).peak for plan in plans)
    assert 0.9 * kept < again <= kept


def test_less_is_alive_at_once_as_the_compiler_says(mesh2x4):
    args = jax.tree.map(lambda each: jax.ShapeDtypeStruct(each.shape, each.dtype), arrays(10, 512, 32, 128))
    graph = traced(args)

    def weighed(remat):
        plan = tp.plan(graph, mesh2x4, ENTRIES, remat=remat)
        found = plan.memory(True).temporaries
        assert found == pytest.approx(plan.compile_only(grad=True).memory.temporaries, rel=0.1)
        return found, plan.timeline("H100", grad=True).peak

    (less, few), (more, many) = weighed(True), weighed(None)
    assert less < 0.5 * more and few < 0.5 * many


def test_a_unit_is_a_numbered_scope_or_what_was_named():
    assert marked(None) == marked(False) == marked({"layer": False}) == []
    assert marked(True) == marked({"": "nothing"}) == marked({"layer*": True}) == PATHS
    assert marked({"layer": True}) == marked({"layer*": False, "layer": True}) == ["layer"]
    assert marked({"": True, "layer_1": False}) == ["layer", "layer_2"]
    assert marked({"layer_[12]": "dots"}) == ["layer_1", "layer_2"]
    # What a longer path speaks of is a unit of its own; what is left of the layer is computed again in two.
    assert marked({"layer_1": True, "layer_1/gelu": False}) == ["layer_1", "layer_1"]


def test_a_scope_of_equal_scopes_means_each_of_them_and_others_are_one():
    @tp.program("b e -> b e")
    def head(x):
        return gelu(gelu(x))

    @tp.program(f"b e, {', '.join(['e f, f, f g'] * LAYERS)} -> b e")
    def decoder(x, *flat):
        for at in range(0, len(flat), 3):
            x = layer(x, *flat[at : at + 3])
        return x

    def program(x, *layers):
        return head(decoder(x, *(each for own in layers for each in own)))

    kinds = [tuple(named("e f, f, f g", *own)) for own in ARGS[1:]]
    graph = tp.trace(program, *named("b e", ARGS[0]), *kinds)
    inside = [f"decoder/{path}" for path in PATHS]
    assert marked({"decoder": True}, graph) == marked({"decoder/*": True}, graph) == inside
    assert marked({"head": True}, graph) == ["head"]
    assert marked({"decoder/layer_2": True, "head": True}, graph) == ["decoder/layer_2", "head"]


def test_a_scope_around_a_loop_is_no_unit():
    @tp.program("b k, layer k n -> b k")
    def around(x, ws):
        return gelu(
            tp.stack(lambda y, w: gelu(matmul(y, w)).rename(n="k"), 2, name="loop")(x.rename(b="i"), ws)
        ).rename(i="b")

    args = named("b k, layer k n", normal(4, 8), normal(2, 8, 8))
    graph = tp.trace(lambda x, ws: around(x, ws), *args)
    plan = tp.plan(graph, tp.mesh(data=2), remat={"around": True})
    assert not plan.schedule.again and "2 turns, computed again backwards" in plan.explain(True)


def test_loops_are_computed_again_turn_by_turn_and_layers_beside_them_one_by_one(mesh2x4):
    def program(x, ws, *layers):
        for own in layers:
            x = layer(x, *own)
        return tp.stack(lambda y, w: gelu(matmul(y, w)).rename(n="k"), 2, name="loop")(x.rename(b="i", e="k"), ws)

    ws = normal(2, 8, 8)
    kinds = [tuple(named("e f, f, f g", *own)) for own in ARGS[1:]]
    graph = tp.trace(program, *named("b e, layer k n", ARGS[0], ws), *kinds)
    assert marked(True, graph) == PATHS and marked({"loop": True}, graph) == []
    assert marked({"layer*": True, "loo*": True, "loop": False}, graph) == PATHS
    plan = tp.plan(graph, mesh2x4, {"b": "data"}, remat=True)
    assert "2 turns, computed again backwards" in plan.explain(True)


def test_the_plan_says_it_in_its_file_its_table_and_its_price(mesh2x4):
    plan, without = (tp.plan(GRAPH, mesh2x4, ENTRIES, remat=remat) for remat in ({"layer_*": "dots"}, None))
    assert tp.Plan.from_json(plan.to_json(), GRAPH, mesh2x4).schedule == plan.schedule != without.schedule
    lines = plan.explain(True).splitlines()
    assert [line.split()[0] for line in lines if "computed again backwards but for dots" in line] == PATHS[1:]
    prices = {each.path: each for each in plan.cost("H100", grad=True).operations}
    assert [path for path, each in prices.items() if each.again] == [
        f"{path}/{own}" for path in PATHS[1:] for own in AGAIN
    ]
    assert all(each.again in (0.0, each.forward) for each in prices.values())
    timeline = plan.timeline("H100", grad=True)
    assert timeline.makespan == pytest.approx(plan.cost("H100", grad=True).seconds)
    again = [event.path for event in timeline.events if event.part == "again"]
    before = max(event.end for event in timeline.events if event.part == "again" and event.path in again[:4])
    assert all(
        event.start >= 0.999999 * before
        for event in timeline.events
        if event.part == "backward" and event.path.startswith("layer_2/")
    )
    # The last layer first, and each before its gradient.
    assert again == [f"{path}/{own}" for path in PATHS[:0:-1] for own in AGAIN]
    assert str(plan.diff(without)).count("remat['layer_*']") == 1


@pytest.mark.parametrize(
    ("remat", "told"),
    [
        (
            {"encoder": True},
            ["remat['encoder'] names nothing that is repeated, and no scope", "layer, layer_1, layer_2"],
        ),
        ({"layer_7": False}, ["remat['layer_7'] names nothing"]),
        ({"*/nothing": True}, ["remat['*/nothing'] names nothing", "repeated are: none"]),
    ],
    ids=str,
)
def test_what_means_nothing_is_refused(mesh2x4, remat, told):
    with pytest.raises(tp.PlanError) as error:
        tp.plan(GRAPH, mesh2x4, {"b": "data"}, remat=remat)
    assert all(part in str(error.value) for part in told), str(error.value)


@pytest.mark.parametrize("event", [0.0, -0.0, np.nan, np.inf, -1.0])
def test_what_comes_later_is_what_it_was_whatever_it_waits_for(event):
    values = [jnp.arange(3.0), jnp.array([True, False]), jnp.array([np.nan, 2.0])]
    events = [jnp.full((2, 1), event, jnp.bfloat16), jnp.zeros((0,))]
    made, given = jax.jit(later)(values, events)
    for left, right in zip([*made, *given], [*values, *events], strict=True):
        np.testing.assert_array_equal(np.asarray(left, np.float32), np.asarray(right, np.float32))
    batched = jax.vmap(lambda x: later([x], events)[0][0])(jnp.arange(3.0))
    np.testing.assert_array_equal(batched, jnp.arange(3.0))
    assert jax.jvp(lambda x: later([x], events)[0][0], (1.0,), (2.0,)) == (1.0, 2.0)
    assert later([], events)[0] == []


def test_second_derivatives_are_those_of_the_program(mesh2x4):
    run = tp.plan(GRAPH, mesh2x4, ENTRIES, remat=True).compile()

    def curvature(function):
        def slope(x):
            return jax.grad(lambda y: (function(y, *ARGS[1:]) ** 2).sum())(x).sum()

        return computed(jax.grad(slope), ARGS[0])

    with pytest.raises(TypeError, match="forward-mode"):
        jax.jvp(run, ARGS, ARGS)
    np.testing.assert_allclose(curvature(run), curvature(reference_deep), rtol=2e-3, atol=2e-3)


def _read_twice(x, p):
    """Reads its parameter beside keys that lie over a mesh axis, and beside none: one of both gradients is summed."""
    keyed = tp.Reduce(lambda q, k: jnp.tanh(q @ k.T) @ k, "i [e], j [e] -> i [e]", tp.monoids.Sum)
    return keyed(p, x.rename(b="keys")) + tp.Map(lambda x, p: jnp.tanh(x * p))(x, p)


@pytest.mark.parametrize("looped", [False, True])
def test_equal_gathers_of_a_unit_or_a_turn_are_made_again_once(looped):
    def program(x, *parameters):
        if looped:
            return tp.stack(_read_twice, 2, name="loop")(x, *parameters)
        for p in parameters:
            x = tp.program("b e, b e -> b e")(_read_twice)(x, p)
        return x

    parameters = named("layer b e", normal(2, 4, 8)) if looped else named("b e, b e", normal(4, 8), normal(4, 8))
    graph = tp.trace(program, *named("b e", normal(4, 8)), *parameters)
    plan = tp.fsdp(tp.plan(graph, tp.mesh(data=2), {"keys": "data"}, remat=True), "data", smallest=1)
    assert_contract(plan)
