"""Equal parts of a program are lowered once, and only equal ones."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tapestry_jax as tp
from tapestry_jax.planning.refining.repeats import repeated_parts
from tests.tapestry_jax.draw import normal

matmul = tp.Reduce(jnp.matmul, "i k, k n -> i n", tp.monoids.Sum)
gelu = tp.Map(jax.nn.gelu)
X = tp.TensorType({"batch": 4, "embed": 8}, jnp.float32)
UP, DOWN = (tp.TensorType(names, jnp.float32) for names in ({"embed": 8, "mlp": 16}, {"mlp": 16, "embed": 8}))


@tp.program("batch embed, embed mlp, mlp embed -> batch embed")
def layer(x, up, down):
    return x + matmul(gelu(matmul(x, up)), down)


def model(x, ups, downs):
    for up, down in zip(ups, downs, strict=True):
        x = layer(x, up, down)
    return x


def arrays(*types):
    seeds = itertools.count()
    return jax.tree.map(lambda kind: normal(*kind.shape, seed=next(seeds), scale=0.3), types)


def planned(program, types, mesh, entries, **options):
    return tp.plan(tp.trace(program, *types), mesh, entries, **options)


def kinds(plan):
    return {part.scope: part.kind for part in repeated_parts(plan.schedule) if part.kind is not None}


@pytest.fixture
def plan(mesh2x4):
    return planned(model, (X, [UP] * 3, [DOWN] * 3), mesh2x4, {"batch": "data", "mlp": "model"})


def test_equal_layers_are_one_kind_and_one_function(plan):
    assert kinds(plan) == {"layer": 0, "layer_1": 0, "layer_2": 0}
    assert [step for part in repeated_parts(plan.schedule) for step in part.steps] == list(plan.schedule.steps)
    closed = jax.make_jaxpr(plan.compile().jitted)(*arrays(X, [UP] * 3, [DOWN] * 3))
    body = next(e for e in closed.eqns[0].params["jaxpr"].eqns if e.primitive.name == "shard_map").params["jaxpr"]
    calls = [e for e in body.eqns if e.params.get("name") == "repeated"]
    assert len(calls) == 3 and len({id(e.params["jaxpr"]) for e in calls}) == 1


def test_repeated_layers_give_values_and_gradients_of_numpy_and_the_graph(plan):
    x, ups, downs = arrays(X, [UP] * 3, [DOWN] * 3)
    run = plan.compile()
    expected = np.asarray(x, np.float64)
    for up, down in zip(ups, downs, strict=True):
        expected = expected + np.asarray(jax.nn.gelu(expected @ np.asarray(up))) @ np.asarray(down)
    np.testing.assert_allclose(run(x, ups, downs), expected, rtol=1e-4, atol=1e-4)
    ours, wanted = (
        jax.jit(jax.grad(lambda *a, f=f: jnp.sin(f(*a)).sum(), (0, 1, 2)))(x, ups, downs) for f in (run, plan.graph)
    )
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)


def test_compiled_operations_keep_the_scope_of_their_own_layer(plan):
    text = plan.compile().lower().compile().as_text()
    for scope in ("layer", "layer_1", "layer_2"):
        assert f"/{scope}/jit(repeated)/gelu/" in text
    assert "jit(repeated)/layer" not in text


def test_a_layer_with_an_exception_is_another_kind(mesh2x4):
    types = (X, [UP] * 3, [DOWN] * 3)
    exception = {"layer_1": {"mlp": None}}
    plan = planned(model, types, mesh2x4, {"batch": "data", "mlp": "model"}, ops=exception)
    assert kinds(plan) == {"layer": 0, "layer_2": 0}
    args = arrays(*types)
    np.testing.assert_allclose(plan.compile()(*args), plan.graph(*args), rtol=1e-4, atol=1e-4)


def test_swapped_operands_are_another_kind(mesh2x4):
    @tp.program("batch embed, batch embed -> batch embed")
    def forth(x, y):
        a, b = gelu(x), gelu(y)
        return gelu(a - b)

    @tp.program("batch embed, batch embed -> batch embed")
    def back(x, y):
        a, b = gelu(x), gelu(y)
        return gelu(b - a)

    def program(x, y, z, w):
        return forth(x, y) * 2.0 + back(z, w) * 3.0

    plan = planned(program, (X,) * 4, mesh2x4, {"batch": "data"})
    args = arrays(*(X,) * 4)
    np.testing.assert_allclose(plan.compile()(*args), plan.graph(*args), rtol=1e-4, atol=1e-5)
    assert kinds(plan) == {}


def test_other_kernels_of_one_name_are_another_kind(mesh2x4):
    def waves(kernel):
        act = tp.Map(kernel, "... -> ...", name="act")
        return tp.program("batch embed -> batch embed")(lambda x: act(act(act(x) * x) * x))

    sines, cosines = waves(jnp.sin), waves(jnp.cos)
    sines.name = cosines.name = "wave"
    plan = planned(lambda x, y, z: (sines(x), cosines(y), sines(z)), (X,) * 3, mesh2x4, {"batch": "data"})
    args = arrays(*(X,) * 3)
    assert kinds(plan) == {"wave": 0, "wave_2": 0}
    np.testing.assert_allclose(plan.compile()(*args)[1], plan.graph(*args)[1], rtol=1e-5, atol=1e-6)


def test_a_layer_whose_inside_is_an_output_is_another_kind(mesh2x4):
    @tp.program("batch embed, embed mlp, mlp embed -> batch embed")
    def seen(x, up, down):
        hidden = tp.named("hidden", gelu(matmul(x, up)))
        return x + matmul(hidden, down)

    def program(x, ups, downs):
        for number, (up, down) in enumerate(zip(ups, downs, strict=True)):
            x = (seen if number == 1 else layer)(x, up, down)
        return x

    types = (X, [UP] * 3, [DOWN] * 3)
    graph = tp.trace(program, *types).observe("y", "hidden")
    plan = tp.plan(graph, mesh2x4, {"batch": "data", "mlp": "model"})
    assert kinds(plan) == {"layer": 0, "layer_1": 0}
    args = arrays(*types)
    for got, wanted in zip(plan.compile()(*args), graph(*args), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)


def test_other_sizes_are_another_kind(mesh2x4):
    wide, narrow = (
        tp.TensorType({"embed": 8, "mlp": 32}, jnp.float32),
        tp.TensorType({"mlp": 32, "embed": 8}, "float32"),
    )
    plan = planned(model, (X, [UP, wide, UP], [DOWN, narrow, DOWN]), mesh2x4, {"batch": "data", "mlp": "model"})
    assert kinds(plan) == {"layer": 0, "layer_2": 0}


def count(jaxpr, name):
    """How often a primitive runs, with every call of a shared function."""
    inner = [getattr(each, "jaxpr", each) for eqn in jaxpr.eqns for each in jax.tree.leaves(list(eqn.params.values()))]
    return sum(eqn.primitive.name == name for eqn in jaxpr.eqns) + sum(
        count(each, name) for each in inner if hasattr(each, "eqns")
    )


@pytest.mark.parametrize(
    ("remat", "again"),
    [
        (None, 0),
        (True, 3),
        ({"layer_2": True}, 1),
        ({"layer": True}, 1),
        ({"layer*": True, "layer": False, "layer_1": False}, 1),
    ],
    ids=str,
)
def test_what_is_computed_again_shares_no_function_with_equal_layers_that_are_not(mesh2x4, remat, again):
    plan = planned(model, (X, [UP] * 3, [DOWN] * 3), mesh2x4, {"batch": "data", "mlp": "model"}, remat=remat)
    args, run = arrays(X, [UP] * 3, [DOWN] * 3), plan.compile()
    gradient = jax.make_jaxpr(jax.grad(lambda args: jnp.sum(run(*args))))(args)
    assert count(gradient.jaxpr, "tanh") == 3 + again


@pytest.mark.parametrize(
    "path", [*(pytest.param(path, marks=pytest.mark.thorough) for path in ("matmul", "gelu")), "*"]
)
def test_operations_of_programs_without_scopes_are_computed_again(mesh2x4, path):
    def flat(x, up, down):
        return gelu(matmul(gelu(matmul(x, up)), down))

    graph, args = tp.trace(flat, X, UP, DOWN), arrays(X, UP, DOWN)
    run = tp.plan(graph, mesh2x4, {"batch": "data", "mlp": "model"}, remat={path: True}).compile()
    found = jax.jit(jax.value_and_grad(lambda *args: jnp.sum(run(*args)), argnums=(0, 1, 2)))(*args)
    expected = jax.value_and_grad(lambda *args: jnp.sum(graph(*args)), argnums=(0, 1, 2))(*args)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), found, expected)
