"""Paths of operations read like the model that they come from."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

import tapestry_jax as tp
from combinators.graphs.nodes import Apply, Loop
from tapestry_jax.lifting import lift
from tapestry_jax.lifting.callables.scopes import with_scopes

X = np.ones((4, 6, 8), np.float32)


def paths(graph: tp.Graph) -> list[str]:
    found: list[str] = []
    for node in graph.nodes:
        if isinstance(node, Apply):
            found.append(node.path)
        if isinstance(node, Loop):
            found += [f"{node.path}/{path}" for path in paths(node.body)]
    return found


class Block(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.up, self.down = nnx.Linear(8, 16, rngs=rngs), nnx.Linear(16, 8, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        with jax.named_scope("gated"):
            x = jnp.tanh(x)
        return jax.jit(self.down)(jax.nn.relu(self.up(x)))


class Model(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.blocks = nnx.List([Block(rngs) for _ in range(2)])
        self.recurrent = nnx.RNN(nnx.SimpleCell(8, 8, rngs=rngs))

    def __call__(self, x: Any) -> Any:
        for block in self.blocks:
            x = block(x)
        return self.recurrent(x)


def test_modules_of_nnx_tell_their_paths() -> None:
    found = paths(lift(Model(nnx.Rngs(0)), X))
    for at in "01":
        assert f"blocks/{at}/gated/tanh" in found
        assert f"blocks/{at}/up/dot_general" in found
        assert f"blocks/{at}/down/dot_general" in found
    assert any(path.startswith("recurrent/scan/cell/") for path in found)
    loss = lift(lambda model, x: model(x).sum(), Model(nnx.Rngs(0)), X)
    assert "blocks/1/up/dot_general" in paths(loss)


def test_modules_of_linen_tell_their_paths() -> None:
    class Small(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            return nn.remat(nn.Dense)(8, name="again")(nn.relu(nn.Dense(3, name="first")(x)))

    variables = jax.eval_shape(Small().init, jax.random.key(0), X)
    found = paths(lift(Small(), variables, X))
    assert "first/dot_general" in found and "again/dot_general" in found


def test_a_path_takes_an_exception_in_a_plan() -> None:
    graph = lift(Model(nnx.Rngs(0)), X, names={"x": "batch time embed"})
    plan = tp.plan(graph, tp.mesh(a=2), {"batch": "a"}, ops={"blocks/0/up": {"batch": None}})
    assert "blocks/0/up" in plan.explain()
    np.testing.assert_allclose(plan.compile()(nnx.state(Model(nnx.Rngs(0))), X), Model(nnx.Rngs(0))(X), rtol=1e-4)


def test_modules_stay_what_they_are() -> None:
    model = Model(nnx.Rngs(0))
    scoped = with_scopes(nnx.clone(model))
    assert isinstance(scoped.blocks[0].up, nnx.Linear)
    assert type(scoped.blocks[0].up).__name__ == "Linear"
    assert type(model.blocks[0].up) is nnx.Linear
    assert type(scoped) is Model  # the model itself is the whole program


def test_equal_layers_have_the_paths_of_one_below_the_loop_that_they_become() -> None:
    class Layers(nnx.Module):
        def __init__(self, rngs: nnx.Rngs) -> None:
            self.blocks = nnx.List([Block(rngs) for _ in range(3)])

        def __call__(self, x: Any) -> Any:
            for block in self.blocks:
                x = block(x)
            return x

    found = paths(lift(Layers(nnx.Rngs(0)), X, stack="layer"))
    assert all(path.startswith("blocks/layers/") for path in found)
    assert {"blocks/layers/up/dot_general", "blocks/layers/down/dot_general"} <= set(found)


def test_a_path_names_what_is_computed_again() -> None:
    model = Model(nnx.Rngs(0))
    graph = lift(lambda model, x: model(x).sum(), model, X, names={"x": "batch time embed"})

    def regions(remat: Any) -> int:
        run = tp.plan(graph, tp.mesh(a=2), {"batch": "a"}, remat=remat).compile()
        return str(jax.make_jaxpr(jax.grad(run, argnums=1))(nnx.state(model), X)).count("remat")

    assert regions({"blocks/*": True}) > regions(None)


def test_specifications_of_einsum_are_no_part_of_the_model() -> None:
    def model(x: Any, weight: Any) -> Any:
        with jax.named_scope("mixed"):
            return jnp.einsum("bsd,df->bsf", x, weight)

    assert paths(lift(model, X, np.ones((8, 8), np.float32))) == ["mixed/dot_general"]
