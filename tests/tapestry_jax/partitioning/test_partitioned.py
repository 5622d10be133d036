"""Arrows inside of jitted code: XLA says where operands lie, and the plan that follows is what runs there."""

from __future__ import annotations

import re
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from flax import nnx
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import tapestry_jax as tp
from tapestry_jax.hlo.collectives import compiled_collectives
from tests.simulated.sampled import computed

product = tp.einsum("i k, k n -> i n")


@tp.program("batch embed, embed mlp, mlp out -> batch out")
def mlp(x, up, down):
    return product(tp.Map(jnp.tanh)(product(x, up)), down)


@tp.program("batch embed, embed mid, mid embed -> batch embed")
def layer(x, up, down):
    return x + product(tp.Map(jnp.tanh)(product(x, up)), down)


def drawn(*shapes):
    random = np.random.default_rng(0)
    return [random.normal(size=shape).astype("float32") for shape in shapes]


def put(mesh, arrays, specs):
    return [jax.device_put(array, NamedSharding(mesh, spec)) for array, spec in zip(arrays, specs, strict=True)]


def sent(found):
    table = Counter()
    for each in found:
        table[each.kind, frozenset(each.axes)] += each.bytes * each.times
    return table


def compiled(function, args):
    return jax.jit(function).lower(*args).compile()


table = np.arange(24, dtype="float32").reshape(4, 6)
PROGRAMS = {
    "batch and model": (mlp, [(8, 16), (16, 32), (32, 16)], [P("data"), P(None, "model"), P("model")]),
    "stored over data": (mlp, [(8, 16), (16, 32), (32, 16)], [P("data"), P("data", "model"), P("model")]),
    "one mesh axis twice": (mlp, [(8, 16), (16, 32), (32, 16)], [P("data"), P("data"), P()]),
    "contracted": (mlp, [(8, 16), (16, 32), (32, 16)], [P(None, "data"), P("data"), P()]),
    "whole": (mlp, [(8, 16), (16, 32), (32, 16)], [P(), P(), P()]),
    "layers": (
        tp.stack(layer, 3),
        [(8, 4), (3, 4, 8), (3, 8, 4)],
        [P("data"), P(None, None, "model"), P(None, "model")],
    ),
    "queries and keys": (
        tp.program("h q e, h k e, h k e -> h q e")(lambda q, k, v: tp.attention(q, k, v, over="k")),
        [(4, 8, 4), (4, 8, 4), (4, 8, 4)],
        [P("data", None), P("data", "model"), P("data", "model")],
    ),
    "window": (
        tp.Map(lambda x: x[:-2] * x[2:], "(y+[dy]-1) -> y", boundary="zero", sizes={"dy": 3}, name="window"),
        [(16,)],
        [P("model")],
    ),
    "running sum": (tp.Scan(tp.monoids.Sum, "... t -> ... t", over="t"), [(4, 16)], [P("data", "model")]),
    "lifted, with an array of its own": (
        tp.lift(lambda x, w: jnp.maximum(x + table, 0.0) @ w, *drawn((4, 6), (6, 8))),
        [(4, 6), (6, 8)],
        [P("data"), P(None, "model")],
    ),
}


# Where one operand lies otherwise the others show the same.
THOROUGH = ["batch and model", "one mesh axis twice", "whole"]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.thorough] * (name in THOROUGH)) for name in PROGRAMS]
)
def test_partitioned_is_the_program_and_sends_what_its_plan_sends(name):
    program, shapes, specs = PROGRAMS[name]
    mesh, f, arrays = tp.mesh(data=2, model=4), tp.partitioned(program), drawn(*shapes)
    args, positions = put(mesh, arrays, specs), tuple(range(len(shapes)))
    plan = f.plan(*args)
    forwards = compiled(f, args)
    assert sent(compiled_collectives(forwards.as_text(), mesh)) == sent(plan.collectives())

    def loss(call):
        return lambda *args: jnp.sum(jnp.sin(call(*args)), axis=None)

    found = jax.jit(jax.grad(loss(f), positions))(*args)
    value, expected = computed(lambda *args: (program(*args), jax.grad(loss(program), positions)(*args)), *arrays)
    np.testing.assert_allclose(forwards(*args), value, rtol=1e-4, atol=1e-5)
    for got, want in zip(found, expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_partitioned_gradient_sends_what_its_plan_sends_and_no_more_than_the_forward_pass_again():
    program, shapes, specs = PROGRAMS["stored over data"]
    mesh, f = tp.mesh(data=2, model=4), tp.partitioned(program)
    args = put(mesh, drawn(*shapes), specs)
    plan = f.plan(*args)

    def pulled(cotangent, *args):
        results, pull = jax.vjp(f, *args)
        return results, pull(cotangent)

    text = compiled(pulled, [*put(mesh, drawn((8, 16)), [P("data")]), *args]).as_text()
    once, found = sent(plan.collectives(True)), sent(compiled_collectives(text, mesh))
    assert once <= found <= once + sent(plan.collectives())


def test_partitioned_gradients_have_gradients():
    mesh, f = tp.mesh(data=2, model=4), tp.partitioned(mlp)
    arrays = drawn((4, 4), (4, 8), (8, 4))
    args = put(mesh, arrays, [P("data"), P(None, "model"), P("model")])

    def twice(call):
        def steep(*args):
            return sum(jnp.sum(each**2) for each in jax.grad(lambda *a: jnp.sum(jnp.sin(call(*a))), (0, 1, 2))(*args))

        return jax.jit(jax.grad(steep, (0, 1, 2)))

    for got, want in zip(twice(f)(*args), computed(twice(mlp), *arrays), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3)


def test_partitioned_follows_what_comes_before_and_after_it():
    mesh, f = tp.mesh(data=2, model=4), tp.partitioned(mlp)
    arrays = drawn((8, 16), (16, 32), (32, 16))
    args = put(mesh, arrays, [P("data"), P(None, "model"), P("model")])
    whole = compiled(lambda x, up, down: jnp.cos(f(jnp.sin(x), up, down)), args)
    assert sent(compiled_collectives(whole.as_text(), mesh)) == {("all-reduce", frozenset({"model"})): 4 * 16 * 4}
    assert whole.output_shardings.is_equivalent_to(NamedSharding(mesh, P("data")), 2)
    scattered = jax.jit(f, out_shardings=NamedSharding(mesh, P("data", "model"))).lower(*args).compile()
    assert {kind for kind, _ in sent(compiled_collectives(scattered.as_text(), mesh))} == {"reduce-scatter"}
    np.testing.assert_allclose(scattered(*args), mlp(*arrays), rtol=1e-4, atol=1e-4)


def test_partitioned_gradients_follow_what_comes_after():
    mesh, f = tp.mesh(data=2, model=4), tp.partitioned(mlp)
    arrays = drawn((8, 16), (16, 32), (32, 16), (8, 16))
    args = put(mesh, arrays, [P(), P(), P(), P("data")])

    def loss(call):
        return lambda x, up, down, weights: jnp.sum(call(x, up, down) * weights)

    gradient = compiled(jax.grad(loss(f), (1, 2)), args)
    found = sent(compiled_collectives(gradient.as_text(), mesh))
    assert found == {("all-reduce", frozenset({"data"})): 2 * 16 * 32 * 4}, "each device its rows, and no more"
    for got, want in zip(gradient(*args), computed(jax.grad(loss(mlp), (1, 2)), *arrays), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3)


def test_partitioned_gradients_through_a_result_that_is_the_same_everywhere():
    graph = tp.lift(lambda x: (x * 2.0, jnp.full(8, 3.0)), *drawn((8,)))
    mesh, f, arrays = tp.mesh(data=2, model=4), tp.partitioned(graph), drawn((8,), (8,))

    def loss(x, weights):
        doubled, threes = f(x)
        return jnp.sum(doubled * threes * weights)

    found = jax.jit(jax.grad(loss))(*put(mesh, arrays, [P("data"), P("data")]))
    np.testing.assert_allclose(found, 6.0 * arrays[1], rtol=1e-6)


def test_partitioned_takes_numbers_that_have_no_gradient():
    rows = tp.partitioned(tp.lift(lambda table, at: table[at] * 2.0, *drawn((8, 4)), np.zeros(6, "int32")))
    mesh, at = tp.mesh(data=2, model=4), np.array([1, 7, 3, 3, 0, 2], "int32")
    args = put(mesh, [*drawn((8, 4)), at], [P("model"), P("data")])
    found = jax.jit(jax.grad(lambda table, at: jnp.sum(rows(table, at))))(*args)
    expected = np.zeros((8, 4), "float32")
    np.add.at(expected, at, 2.0)
    np.testing.assert_allclose(found, expected)


def test_partitioned_modules_have_their_parameters():
    model = tp.nnx.Linear(16, 32, rngs=nnx.Rngs(0))
    x = drawn((8, 16))[0]
    gradients = nnx.jit(nnx.grad(lambda model, x: jnp.sum(tp.partitioned(model)(x) ** 2)))(model, x)
    expected = nnx.jit(nnx.grad(lambda model, x: jnp.sum(model(x) ** 2)))(model, x)
    for got, want in zip(jax.tree.leaves(gradients), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_partitioned_is_the_arrow_where_there_is_no_mesh():
    arrays = drawn((8, 16), (16, 32), (32, 16))
    np.testing.assert_allclose(tp.partitioned(mlp)(*arrays), mlp(*arrays), rtol=1e-6)


def test_partitioned_is_the_arrow_inside_of_a_shard_map():
    mesh, (x,) = tp.mesh(data=2, model=4), drawn((4, 8))
    cell = tp.partitioned(tp.Map(jnp.tanh, "a b -> a b"))
    blocks = jax.shard_map(cell, mesh=mesh, in_specs=P("data", "model"), out_specs=P("data", "model"))
    found = jax.jit(jax.grad(lambda x: jnp.sum(blocks(x))))(x)
    np.testing.assert_allclose(found, 1 - np.tanh(x) ** 2, rtol=1e-5, atol=1e-6)


def test_partitioned_programs_of_equal_types_differ_in_their_texts():
    # The cache of compiled programs reads the text, and a number that another process may give to another program.
    def text(kernel):
        found = jax.jit(tp.partitioned(tp.Map(kernel, name="cell"))).lower(np.ones(4, "float32")).as_text()
        (name,) = set(re.findall(r"call @(\w+_[0-9a-f]{16})", found))
        return name

    assert text(jnp.tanh) == text(jnp.tanh) != text(jnp.sin)


def test_partitioned_refuses_a_batch_around_it():
    x, up, down = drawn((2, 8, 16), (16, 32), (32, 16))
    with pytest.raises(tp.GraphError) as error:
        jax.vmap(tp.partitioned(mlp), (0, None, None))(x, up, down)
    assert str(error.value) == (
        "`mlp` is partitioned by XLA, and jax.vmap cannot add an axis to it\n"
        "  got a batch of 2\n"
        "  Make the batch a dimension of the program, or call it without tp.partitioned."
    )


def test_partitioned_refuses_meshes_whose_axes_are_explicit():
    mesh = jax.make_mesh((2, 4), ("data", "model"), axis_types=(AxisType.Explicit,) * 2)
    args = put(mesh, drawn((8, 16), (16, 32), (32, 16)), [P("data"), P(), P()])
    with pytest.raises(tp.MeshError) as error:
        jax.jit(tp.partitioned(mlp))(*args)
    assert "`mlp` cannot follow shardings that are part of types, at `x`" in str(error.value)


def test_partitioned_refuses_what_is_no_program():
    with pytest.raises(tp.GraphError) as error:
        tp.partitioned(jnp.tanh)
    assert "tp.partitioned takes an arrow or a graph" in str(error.value)


@pytest.mark.parametrize(
    ("module", "remedy"),
    [
        (
            nnx.Linear(4, 6, rngs=nnx.Rngs(0)),
            "Lift it, and call it on its state: tp.partitioned(tp.lift(model, x))(nnx.state(model), x).",
        ),
        (
            nn.Dense(6),
            "Lift it, and call it on what it is applied to: "
            "tp.partitioned(tp.lift(model, variables, x))(variables, x).",
        ),
    ],
)
def test_partitioned_says_how_plain_modules_come_in(module, remedy):
    with pytest.raises(tp.GraphError) as error:
        tp.partitioned(module)
    first, got, last = str(error.value).split("\n")
    assert (first, last) == ("tp.partitioned takes an arrow or a graph", f"  {remedy}")
    assert got.startswith(f"  got {type(module).__name__}: ")


def test_partitioned_runs_plain_modules_as_it_says():
    (x,) = drawn((8, 4))
    dense, linear = nn.Dense(6), nnx.Linear(4, 6, rngs=nnx.Rngs(0))
    variables = dense.init(jax.random.key(0), x)
    of_linen = tp.partitioned(tp.lift(dense, variables, x))(variables, x)
    np.testing.assert_allclose(of_linen, dense.apply(variables, x), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        tp.partitioned(tp.lift(linear, x))(nnx.state(linear), x), linear(x), rtol=1e-5, atol=1e-6
    )


def test_partitioned_plans_for_arrays_on_a_mesh_alone():
    with pytest.raises(tp.MeshError) as error:
        tp.partitioned(mlp).plan(*drawn((8, 16), (16, 32), (32, 16)))
    assert str(error.value) == (
        "no operand of `mlp` says on which mesh it lies\n"
        "  got NoneType, NoneType, NoneType\n"
        "  Pass arrays, or jax.ShapeDtypeStructs, with a NamedSharding."
    )
