"""Layers that the backward pass computes again: equal values and gradients, fewer bytes alive, sends predicted."""

from __future__ import annotations

import json
from collections import Counter

import jax
import jax.numpy as jnp
import pytest

import tapestry_jax as tp
from tapestry_jax.planning.scheduling.schedule import Region, Repeat, Run
from tests.contract import assert_contract, assert_holds
from tests.tapestry_jax.draw import named, normal

gelu = tp.Map(jax.nn.gelu)
matmul = tp.einsum("i k, k n -> i n")
TURNS = 4


@tp.program("b e, e f, f, f g -> b e")
def layer(x, w, bias, v):
    return x + matmul(gelu(matmul(x, w) + bias), v).rename(g="e")


def deep(x, ws, biases, vs):
    return tp.stack(layer, ws.shape[0], name="decoder")(x, ws, biases, vs)


def reference_deep(x, ws, biases, vs):
    for w, bias, v in zip(ws, biases, vs, strict=True):
        x = x + jax.nn.gelu(x @ w + bias) @ v
    return x


ARGS = (
    normal(8, 8, seed=2),
    normal(TURNS, 8, 16, scale=0.3),
    normal(TURNS, 16, seed=3),
    normal(TURNS, 16, 8, seed=1, scale=0.3),
)
GRAPH = tp.trace(deep, *named("b e, layer e f, layer f, layer f g", *ARGS))


def repeats(schedule):
    """Path and mark of every repetition."""
    for step in schedule.steps:
        if isinstance(step, Repeat):
            yield step.path, step.remat
        if isinstance(step, Repeat | Region):
            yield from repeats(step.body)


def backward(plan, kind):
    count = Counter()
    for each in plan.collectives(True):
        count[each.kind, each.backward] += each.times
    return count[kind, True]


@pytest.mark.parametrize(
    ("entries", "choice"),
    [
        pytest.param({"b": "data", "f": "model"}, True, marks=pytest.mark.thorough),
        # As the first, layers that stand one by one are in test_remat_scopes.py.
        pytest.param({"b": ("data", tp.chunks(2)), "f": "model"}, "dots", marks=pytest.mark.thorough),
        pytest.param({"f": ("model", tp.chunks(3))}, True, marks=pytest.mark.thorough),
        ({"layer": "data", "b": tp.chunks(3)}, "dots"),
        pytest.param({"b": tp.chunks(2)}, True, marks=pytest.mark.thorough),
    ],
    ids=str,
)
def test_value_gradient_and_bytes_are_those_of_the_program(mesh2x4, entries, choice):
    plan = tp.plan(GRAPH, mesh2x4, entries, remat={"decoder": choice})
    assert all(remat for _, remat in repeats(plan.schedule))
    assert_holds(plan, ARGS, reference=reference_deep)
    # What other devices sent is kept: nothing is sent again.
    assert plan.collectives(True) == tp.plan(GRAPH, mesh2x4, entries).collectives(True)


@pytest.mark.parametrize(
    ("entries", "choice"),
    [
        pytest.param({"b": "data", "f": "model"}, True, marks=pytest.mark.thorough),
        ({"b": ("data", tp.chunks(2))}, "dots"),
    ],
    ids=str,
)
def test_gathered_parameters_are_gathered_again(mesh2x4, entries, choice):
    plan = tp.fsdp(tp.plan(GRAPH, mesh2x4, entries, remat=choice), "data", smallest=1)
    assert_holds(plan, ARGS, reference=reference_deep)
    # Gelu is computed again, so the bias is gathered again too; chunks around the layers gather in their own.
    assert backward(plan, "all-gather") == 3 * TURNS * (1 if "f" in entries else 2 * 2)


def test_less_is_alive_and_the_compiler_says_so_too(mesh2x4):
    def measured(remat):
        plan = tp.plan(GRAPH, mesh2x4, {"b": "data", "f": "model"}, remat=remat)
        told = plan.explain(True).splitlines()[-1].removeprefix("values alive at once: ")
        return plan.compile_only(grad=True).memory.temporaries, told, plan.explain(True)

    (less, said_less, table), (more, said_more, other) = measured(True), measured(None)
    assert less < 0.7 * more
    assert said_less != said_more and said_less.endswith("kB") and said_more.endswith("kB")
    assert float(said_less.split()[0]) < float(said_more.split()[0])
    assert "4 turns, computed again backwards" in table and "computed again" not in other
    between = tp.plan(GRAPH, mesh2x4, {"b": "data", "f": "model"}, remat="dots")
    assert "4 turns, computed again backwards but for dots" in between.explain(True)
    found = [tp.plan(GRAPH, mesh2x4, {"b": "data", "f": "model"}, remat=r).memory(True) for r in (True, None)]
    # What products keep of these few numbers finds room in results that are not written yet.
    assert found[0].temporaries <= between.memory(True).temporaries < found[1].temporaries


def kept(schedule):
    """The names of operations whose results are kept of turns that are computed again, in loops too."""
    for step in schedule.steps:
        if isinstance(step, Repeat | Region):
            yield from kept(step.body)
        elif isinstance(step, Run) and step.kept:
            yield step.path.rpartition("/")[2]


def of_products(x, ws):
    """A layer of products: alone, with a batch dimension, behind and before other work, beside it, and for chunks."""

    def whole(kernel, name):
        return tp.Map(kernel, "b i [k], [k] [n] -> b i [n]", name=name)

    def turn(x, w):
        other = x.rename(i="k", k="n")
        for part in (
            tp.einsum("b i k, k n -> b i n", name="plain")(x, w),
            tp.einsum("b i k, b k n -> b i n", name="batched")(x, other),
            whole(lambda x, w: jnp.tanh(x) @ w, "behind")(x, w),
            whole(lambda x, w: jnp.tanh(x @ w), "before")(x, w),
            whole(lambda x, w: x + x @ w, "beside")(x, w),
            whole(lambda x, w: x + w[0], "none")(x, w),
            tp.einsum("b i k, k n -> b i n", name="chunked")(x, w),
        ):
            x = x + 0.1 * part.rename(n="k")
        return x

    return tp.stack(turn, 3, name="decoder")(x, ws)


def test_kept_are_results_of_operations_that_read_their_operands_through_products_alone():
    x, ws = normal(2, 4, 4), normal(3, 4, 4, seed=1)
    graph = tp.trace(of_products, *named("b i k, layer k n", x, ws))
    mesh = tp.mesh(data=2)

    def found(remat, **chunked):
        ops = {"decoder/chunked": chunked} if chunked else None
        return sorted(kept(tp.plan(graph, mesh, {"b": "data"}, ops=ops, remat=remat).schedule))

    assert found(True) == found("nothing") == found(None) == []
    assert found("dots") == ["batched", "before", "behind", "chunked", "plain"]
    assert found({"decoder": "dots_with_no_batch_dims"}) == ["before", "behind", "chunked", "plain"]
    # What a loop in time makes is not kept, and what other devices sent is kept anyway.
    assert "chunked" not in found("dots", k=tp.chunks(2))
    assert "chunked" not in found("dots", b=None, k="data")


def test_what_a_kept_product_is_computed_from_is_not_gathered_again(mesh2x4):
    def program(x, still, ws):
        def turn(x, w):
            return x * gelu(matmul(still, w)).rename(n="k")

        return tp.stack(turn, 3, name="decoder")(x, ws)

    args = normal(4, 8), normal(4, 8, seed=1), normal(3, 8, 8, seed=2)
    graph = tp.trace(program, *named("i k, i k, layer k n", *args))

    def planned(remat):
        return tp.fsdp(tp.plan(graph, mesh2x4, {"i": "data"}, remat=remat), "data", smallest=1)

    # No gradient goes to the other operand, so that the weights are needed for the value of the product alone.
    assert_contract(planned("dots"), (0, 2))
    gathered = [
        sum(each.times for each in planned(remat).collectives((0, 2)) if each.kind == "all-gather")
        for remat in (True, "dots")
    ]
    assert gathered == [6, 3]


def test_the_outermost_repetition_of_a_scope_is_the_unit():
    def inner(x, w):
        return tp.iterate(lambda y: matmul(y, w).rename(n="k"), 2, name="inner")(x)

    def program(x, ws):
        return tp.iterate(lambda y: tp.stack(inner, 3, name="outer")(y, ws), 2, name="around")(x)

    x, ws = normal(2, 4), normal(3, 4, 4, seed=1)
    graph = tp.trace(program, *named("i k, layer k n", x, ws))
    mesh = tp.mesh(data=2)

    def marked(remat):
        return [
            path.rpartition("/")[2] for path, chosen in repeats(tp.plan(graph, mesh, remat=remat).schedule) if chosen
        ]

    assert marked(None) == marked(False) == marked({"around": False}) == []
    assert marked(True) == marked({"around": True}) == ["around"]
    assert marked({"around/outer": True}) == ["outer"]
    assert marked({"": True, "around/outer/inner": True}) == ["around", "inner"]
    assert marked({"around": False, "around/outer/inner": True}) == ["inner"]
    assert marked({"around": True, "around/outer": False}) == ["around"]
    assert_holds(tp.plan(graph, mesh, {"i": "data"}, remat={"": True, "around/outer/inner": True}), (x, ws))


@pytest.mark.parametrize("turns", [0, 1])
def test_no_turn_and_one_turn_are_left_as_they_are(turns):
    args = [ARGS[0], *(array[:turns] for array in ARGS[1:])]
    graph = tp.trace(deep, *named("b e, layer e f, layer f, layer f g", *args))
    plan = tp.plan(graph, tp.mesh(data=3), {"b": "data"}, remat=True)
    assert not any(remat for _, remat in repeats(plan.schedule))
    assert_holds(plan, args)


def test_a_file_of_the_plan_says_it_and_one_without_it_says_nothing(mesh2x4):
    entries = {"b": "data", "f": "model"}
    plan = tp.fsdp(tp.plan(GRAPH, mesh2x4, entries, remat={"decoder": "dots", "": False}), "data", smallest=1)
    again = tp.Plan.from_json(plan.to_json(), GRAPH, mesh2x4)
    assert again.remat == plan.remat == (("decoder", "dots"), ("", False)) and again.schedule == plan.schedule
    assert "remat" not in json.loads(tp.plan(GRAPH, mesh2x4, entries).to_json())["content"]


@pytest.mark.parametrize(
    ("remat", "told"),
    [
        (
            {"encoder": True},
            ["remat['encoder'] names nothing that is", "are: decoder", "tp.nnx.Stack"],
        ),
        ({"decoder/einsum": False}, ["names nothing that is repeated"]),
        ({"decoder": "dot"}, ["remat['decoder'] does not say", "got str: 'dot'", "'nothing', 'dots', 'dots_with_no"]),
        ({"decoder": 1}, ["got int: 1"]),
        ("decoder", ["remat does not say", "got str: 'decoder'"]),
        ({3: True}, ["a path in remat="]),
    ],
    ids=str,
)
def test_what_means_nothing_is_refused(mesh2x4, remat, told):
    with pytest.raises(tp.PlanError) as error:
        tp.plan(GRAPH, mesh2x4, {"b": "data"}, remat=remat)
    assert all(part in str(error.value) for part in told), str(error.value)


def test_a_program_without_repetitions_is_refused(mesh2x4):
    graph = tp.trace(lambda x: x + 1.0, jnp.zeros(4))
    with pytest.raises(tp.PlanError, match="nothing is repeated"):
        tp.plan(graph, mesh2x4, remat=True)
    assert tp.plan(graph, mesh2x4, remat={}).remat == ()


def exchanging(x, ws):
    """Layers that scan over the mesh and attend."""
    running = tp.Scan(tp.monoids.Sum, "t c -> t c", over="t")

    def turn(y, w):
        y = running(y * w) * 0.1
        return y + attend(y, y.rename(t="keys"), y.rename(t="keys"))

    return tp.stack(turn, 3, name="decoder")(x, ws)


@tp.program("t c, keys c, keys e -> t e")
def attend(q, k, v):
    return tp.attention(q, k, v, over="keys")


@pytest.mark.parametrize("keys", [pytest.param(None, marks=pytest.mark.thorough), tp.ring("data")], ids=str)
def test_scans_and_attention_over_the_mesh_send_nothing_again(mesh8, keys):
    args = (normal(16, 4), normal(3, 4, seed=1))
    graph = tp.trace(exchanging, *named("t c, layer c", *args))
    plan = tp.plan(graph, mesh8, {"t": "data", "keys": keys}, remat=True)
    assert_holds(plan, args)


def test_a_layer_runs_twice_and_not_three_times(mesh2x4):
    """Two products forwards, one of them again unless it is kept, and four for their gradients."""

    def products(remat):
        run = tp.plan(GRAPH, mesh2x4, {"b": "data"}, remat=remat).compile()
        lowered = jax.jit(jax.grad(lambda args: run(*args).sum())).lower(ARGS)
        return lowered.compile().as_text().count(" dot(")

    assert products(True) == products("dots") + 1 == products(None) + 1


def test_what_loops_in_time_alone_have_added_up_was_not_received():
    # A chunk of rows runs the turn again, and the turn the loop over `k`, for which weights are gathered once more.
    def turn(x, w):
        return tp.Map(jnp.tanh)(matmul(x, w)).rename(n="k")

    x, ws = named("i k, layer k n", normal(6, 8), normal(3, 8, 8))
    graph = tp.trace(lambda x, ws: tp.stack(turn, 3, name="loop")(x, ws), x, ws)
    entries = {"i": tp.chunks(2), "k": tp.chunks(2), "n": tp.chunks(2)}
    plan = tp.fsdp(tp.plan(graph, tp.mesh(data=2), entries, remat=True), "data", smallest=1)
    assert_contract(plan)
