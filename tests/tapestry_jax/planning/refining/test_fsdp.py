"""Fully sharded parameters: where they are stored, what is gathered and scattered, and what a device holds at once."""

from __future__ import annotations

from collections import Counter

import jax
import jax.numpy as jnp
import optax
import pytest
from flax import nnx
from jax.sharding import AbstractMesh

import tapestry_jax as tp
from tapestry_jax.lowering.pinned import lower_pinned
from tests.contract import assert_contract, assert_holds
from tests.tapestry_jax.draw import named, normal

gelu = tp.Map(jax.nn.gelu)
matmul = tp.einsum("i k, k n -> i n")
grid = AbstractMesh((2, 4), ("data", "model"))
TURNS = 3


@tp.program("b e, e f, f, f g -> b e")
def layer(x, w, bias, v):
    return x + matmul(gelu(matmul(x, w) + bias), v).rename(g="e")


def deep(x, ws, biases, vs):
    return tp.stack(layer, ws.shape[0])(x, ws, biases, vs)


def reference_deep(x, ws, biases, vs):
    for w, bias, v in zip(ws, biases, vs, strict=True):
        x = x + jax.nn.gelu(x @ w + bias) @ v
    return x


def deep_args(batch=8, width=8, hidden=16):
    ws, vs = normal(TURNS, width, hidden, scale=0.3), normal(TURNS, hidden, width, seed=1, scale=0.3)
    return normal(batch, width, seed=2), ws, normal(TURNS, hidden, seed=3), vs


def deep_graph(turns, batch, width, hidden):
    sizes = {"layer": turns, "e": width, "f": hidden, "g": width}
    operands = [("layer", "e", "f"), ("layer", "f"), ("layer", "f", "g")]
    stacked = [tp.TensorType({name: sizes[name] for name in names}) for names in operands]
    return tp.trace(deep, tp.TensorType({"b": batch, "e": width}), *stacked)


def parts(plan, grad=True):
    """How often each kind runs, forward and backward."""
    count = Counter()
    for each in plan.collectives(grad):
        count[each.kind, each.backward] += each.times
    return dict(count)


def test_stacked_layers_gather_again_in_the_backward_pass(mesh2x4):
    args = deep_args()
    base = tp.plan(
        tp.trace(deep, *named("b e, layer e f, layer f, layer f g", *args)), mesh2x4, {"b": "data", "f": "model"}
    )
    plan = tp.fsdp(base, "data", smallest=1)
    assert_holds(plan, args, reference=reference_deep)
    gathers = {("all-gather", False): 3 * TURNS, ("all-gather", True): 2 * TURNS, ("reduce-scatter", True): 3 * TURNS}
    # No derivative is computed from the bias, so that alone is not gathered again.
    assert {key: count for key, count in parts(plan).items() if key[0] != "all-reduce"} == gathers
    assert "all-gather e over data" in plan.explain()


def test_gradients_of_what_is_stored_over_one_axis_are_scattered_before_they_are_summed_over_the_other(mesh2x4):
    args = deep_args()
    base = tp.plan(
        tp.trace(deep, *named("b e, layer e f, layer f, layer f g", *args)), mesh2x4, {"b": ("data", "model")}
    )
    plan = tp.fsdp(base, "model", smallest=1)
    assert_holds(plan, args, reference=reference_deep)
    sent = Counter()
    for each in plan.collectives(True):
        sent[each.kind, each.axes] += each.bytes * each.times
    # What is summed over `data` are the quarters that a device stores.
    assert sent["all-reduce", ("data",)] * 4 == sent["reduce-scatter", ("model",)] == 4 * TURNS * (8 * 16 + 16 + 16 * 8)


def test_what_is_gathered_for_two_readers_and_cast_for_one_is_gathered_once(mesh2x4):
    def both(x, w):
        return matmul(x, w), tp.Map(jnp.sin, "k n -> k n")(w)

    shapes = named("b k, k n", normal(8, 8), normal(8, 4, seed=1))
    plan = tp.plan(tp.trace(both, *shapes), mesh2x4, {"b": "data"}, inputs={"w": {"k": "model"}})
    assert_contract(plan)
    assert parts(plan)["all-gather", False] == 1


def test_gradient_accumulation_around_stacked_layers_gathers_in_its_recomputation_too(mesh2x4):
    graph = tp.trace(deep, *named("b e, layer e f, layer f, layer f g", *deep_args()))
    base = tp.plan(graph, mesh2x4, {"b": ("data", tp.chunks(2)), "f": "model"})
    plan = tp.fsdp(base, "data", smallest=1)
    assert_contract(plan)
    # The first weight again for the recomputed chunk and for its own derivative, the second for the latter alone: the
    # sum over `model` that follows it is kept. The bias is recomputed with the chunk.
    assert parts(plan)["all-gather", True] == (2 + 1 + 1) * 2 * TURNS


def test_peak_memory_grows_by_the_shard_and_not_by_the_parameter(mesh8):
    width, hidden, batch = 64, 512, 8

    def temporary(turns, stored):
        plan = tp.plan(deep_graph(turns, batch, width, hidden), mesh8, {"b": "data"})
        plan = tp.fsdp(plan, "data") if stored else plan
        return lower_pinned(plan.schedule, plan.mesh, True).compile().memory_analysis().temp_size_in_bytes

    parameter = 2 * width * hidden * 4
    saved = (width + 3 * hidden) * batch // 8 * 4
    growth = (temporary(8, True) - temporary(4, True)) / 4
    assert growth <= parameter / 8 + 2 * saved
    assert growth < parameter / 4


def weighted_squares(x, w):
    return jnp.sum(jnp.square(x[:, :, None] * w), 1)


def test_folds_that_present_a_plain_sum_gather_again_and_others_do_not():
    def gathered(fold):
        step = tp.program("b e, e f -> b e")(lambda x, w: fold(x, w).rename(f="e"))
        x, ws = tp.TensorType({"b": 8, "e": 8}), tp.TensorType({"layer": TURNS, "e": 8, "f": 8})
        graph = tp.trace(lambda x, ws: tp.stack(step, TURNS)(x, ws), x, ws)
        stored = {"ws": {"e": "model", "f": "data"}}
        plan = tp.plan(graph, grid, {"b": "data", "e": "model"}, inputs=stored)
        found = [each for each in plan.collectives(True) if (each.kind, each.axes) == ("all-gather", ("data",))]
        return [(each.backward, each.times) for each in found]

    root = tp.Reduce(weighted_squares, "i k, k n -> i n", tp.monoids.Sum, present=jnp.sqrt)
    half = tp.Reduce(weighted_squares, "i k, k n -> i n", tp.monoids.Sum, present=lambda total: total / 2)
    assert gathered(matmul) == gathered(half) == [(False, TURNS), (True, TURNS)]
    # Here the derivative needs the sum over all devices: running the operation again would add it up again.
    assert gathered(root) == [(False, TURNS)]


def test_slices_used_twice_are_gathered_once_and_scattered_once(mesh8):
    @tp.program("b e, e f -> b e")
    def twice(x, w):
        return x + matmul(matmul(x, w), w.rename(e="f", f="g")).rename(g="e")

    args = normal(8, 8), normal(TURNS, 8, 8, seed=1, scale=0.3)
    graph = tp.trace(lambda x, ws: tp.stack(twice, TURNS)(x, ws), *named("b e, layer e f", *args))
    plan = tp.fsdp(tp.plan(graph, mesh8, {"b": "data"}), "data", smallest=1)
    assert_contract(plan)
    assert parts(plan)["all-gather", False] == parts(plan)["reduce-scatter", True] == TURNS


def tanh_layer(x, w, bias):
    return jnp.tanh(x @ w + bias)


def test_a_kernel_whose_derivative_needs_its_inside_gathers_everything_again(mesh8):
    args = normal(8, 8), normal(TURNS, 8, 8, seed=1), normal(TURNS, 8, seed=2)
    kernel = tp.Map(tanh_layer, "b [e], [e] [f], [f] -> b [f]")
    graph = tp.trace(
        lambda x, ws, vs: tp.stack(lambda x, w, v: kernel(x, w, v).rename(f="e"), TURNS)(x, ws, vs),
        *named("b e, layer e f, layer f", *args),
    )
    plan = tp.fsdp(tp.plan(graph, mesh8, {"b": "data"}), "data", smallest=1)
    assert_holds(plan, args)
    assert parts(plan)["all-gather", True] == 2 * TURNS


def test_the_largest_axis_that_divides_is_stored_cut():
    take = {"x": {"n": 8, "k": 12}, "w": {"k": 12, "m": 64}}
    graph = tp.trace(tp.einsum("n k, k m -> n m"), *(tp.TensorType(sizes) for sizes in take.values()))
    (weight,) = (node.name for node in graph.inputs if "m" in node.results[0].names)
    stored = dict(tp.fsdp(tp.plan(graph, grid, {"n": "data"}), "data", smallest=1).inputs)
    assert stored == {weight: (("m", ("data",)),)}
    # Where the plan cuts the largest axis, another one is taken; where no other divides, the same one is cut further.
    stored = dict(tp.fsdp(tp.plan(graph, grid, {"n": "data", "m": "model"}), "data", smallest=1).inputs)
    assert stored == {weight: (("k", ("data",)), ("m", ("model",)))}
    stored = dict(tp.fsdp(tp.plan(graph, grid, {"n": "model", "m": "data"}), "model", smallest=1).inputs)
    assert stored == {weight: (("k", ("model",)), ("m", ("data",)))}


def test_an_axis_that_is_cut_already_is_cut_further_where_no_other_divides(mesh2x4):
    args = normal(4, 3), normal(3, 16, seed=1), normal(16, seed=2)
    graph = tp.trace(lambda x, w, b: matmul(x, w) + b, *named("n k, k m, m", *args))
    plan = tp.fsdp(tp.plan(graph, mesh2x4, {"n": "data", "m": "model"}), "data", smallest=1)
    assert dict(plan.inputs) == dict.fromkeys(("w", "b"), (("m", ("model", "data")),))
    assert_holds(plan, args)


def test_layers_are_never_cut_along_their_loop():
    graph = deep_graph(64, 8, 8, 16)
    plan = tp.fsdp(tp.plan(graph, grid, {"b": "data"}), "data", smallest=1)
    assert [axis for _, layout in plan.inputs for axis, _ in layout] == ["f", "f", "f"]


def test_small_parameters_and_what_is_not_chosen_stay_whole():
    plan = tp.plan(deep_graph(4, 8, 8, 16), grid, {"b": "data"})
    assert [name for name, _ in tp.fsdp(plan, "data", smallest=4 * 8 * 16).inputs] == ["ws", "vs"]
    assert [name for name, _ in tp.fsdp(plan, "data", only=["vs"], smallest=1).inputs] == ["vs"]


def test_one_device_stores_everything():
    plan = tp.plan(deep_graph(4, 8, 8, 16), AbstractMesh((1, 8), ("data", "model")), {"f": "model"})
    assert tp.fsdp(plan, "data") is plan


def test_everything_else_of_the_plan_stays():
    options = {"ops": {"stack/layer/gelu": {"f": None}}, "outputs": {"y": {}}, "accumulate": jnp.float32}
    base = tp.plan(deep_graph(4, 8, 8, 16), grid, {"b": "data", "f": "model"}, **options)
    plan = tp.fsdp(base, "data", smallest=1)
    assert plan.inputs != base.inputs
    for name in ("graph", "mesh", "entries", "ops", "outputs", "accumulate", "platforms"):
        assert getattr(plan, name) == getattr(base, name)


def test_stored_plans_are_read_back():
    plan = tp.fsdp(tp.plan(deep_graph(4, 8, 8, 16), grid, {"b": "data"}), "data", smallest=1)
    again = tp.Plan.from_json(plan.to_json(), plan.graph, grid)
    assert again.inputs == plan.inputs and again.collectives(True) == plan.collectives(True)


def test_optimiser_state_has_the_layout_of_the_parameters(mesh2x4):
    module = tp.nnx.MLP(16, 32, rngs=nnx.Rngs(0))
    state, x = nnx.state(module), normal(8, 16)

    def loss(model, x):
        y = model(x)
        return tp.fold(tp.aggregators.Mean(), "b e -> ")(y * y)

    graph = tp.trace(loss, module, tp.TensorType({"batch": 8, "embed": 16}))
    plan = tp.fsdp(tp.plan(graph, mesh2x4, {"batch": "data", "mlp": "model"}), "data", smallest=64)
    run, adamw = plan.compile(), optax.adamw(1e-3)
    layout = plan.in_shardings[0]

    @jax.jit
    def step(params, moments, x):
        grads = jax.grad(run)(params, x)
        updates, moments = adamw.update(grads, moments, params)
        return optax.apply_updates(params, updates), moments

    params, x = plan.put(state, x)
    moments = jax.jit(adamw.init, out_shardings=None)(params)
    params, moments = step(params, moments, x)
    for tree in (params, moments[0].mu, moments[0].nu):
        for leaf, expected in zip(jax.tree.leaves(tree), jax.tree.leaves(layout), strict=True):
            assert leaf.sharding.is_equivalent_to(expected, leaf.ndim)
    kernel = moments[0].mu["up"]["kernel"][...]
    assert kernel.addressable_shards[0].data.size == kernel.size // 8


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        (lambda plan: tp.fsdp(plan, "pipe"), tp.MeshError, "`pipe`, which the mesh does not have"),
        (
            lambda plan: tp.fsdp(plan, "data", only=["us"]),
            tp.PlanError,
            "fsdp names 'us', which the graph does not have",
        ),
        (lambda plan: tp.fsdp(plan, "data", smallest=10**6), tp.PlanError, "no parameter can be stored over `data`"),
        (lambda plan: tp.fsdp(plan.graph, "data"), tp.PlanError, "only plans have parameters to store"),
        (lambda plan: tp.fsdp(plan, ("data", "data")), tp.PlanError, "twice"),
    ],
    ids=["mesh axis", "name", "nothing", "no plan", "twice"],
)
def test_fsdp_refuses(change, error, text):
    plan = tp.plan(deep_graph(4, 8, 8, 16), grid, {"b": "data"})
    with pytest.raises(error) as caught:
        change(plan)
    assert text in str(caught.value)
