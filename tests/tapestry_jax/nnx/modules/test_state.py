"""Modules that hold state: what the forward pass writes, names of stacked parameters, random streams."""

from __future__ import annotations

import warnings
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import tapestry_jax as tp

X = jnp.arange(12.0).reshape(4, 3)


class Norm(tp.nnx.Module):
    """A batch norm as people write one; `write` is what it does with the mean."""

    def __init__(self, write: Callable[[Any, Any], None], inside: Any = None) -> None:
        self.mean = nnx.BatchStat(jnp.zeros(3), dims=("c",))
        self.scale = nnx.Param(jnp.ones(3), dims=("c",))
        self.write, self.inside = write, inside

    def forward(self, x: Any) -> Any:
        mean = tp.fold(tp.aggregators.Mean(), "b c -> c")(x)
        self.write(self, mean)
        return (x - mean) * self.scale[...]


def set_value(module: Any, mean: Any) -> None:
    module.mean.value = mean


def set_item(module: Any, mean: Any) -> None:
    module.mean[...] = 0.9 * module.mean[...] + 0.1 * mean


def set_raw(module: Any, mean: Any) -> None:
    module.mean.set_raw_value(mean)


def set_variable(module: Any, mean: Any) -> None:
    module.mean = nnx.BatchStat(mean)


def set_attribute(module: Any, mean: Any) -> None:
    module.seen = True


def sow(module: Any, mean: Any) -> None:
    module.sow(nnx.Intermediate, "seen", mean)


@pytest.mark.parametrize("write", [set_variable, set_attribute, sow], ids=lambda write: write.__name__)
def test_what_is_no_variable_of_the_module_is_refused(write: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # flax deprecates `sow`
        for run in (lambda: Norm(write)(X), lambda: tp.trace(Norm(write), X)):
            with pytest.raises(tp.GraphError, match=r"the forward pass writes `(mean|seen)` of its module"):
                run()


KEPT: dict[str, tuple[Callable[[], Any], Callable[[Any, Any], Any]]] = {
    "a list": (list, lambda held, mean: held.append(mean)),
    "a dict": (dict, lambda held, mean: held.update(mean=mean)),
    "a set": (set, lambda held, mean: held.add(mean)),
    "a deque": (deque, lambda held, mean: held.append(mean)),
    "lists by name": (lambda: defaultdict(list), lambda held, mean: held["means"].append(mean)),
    "a list inside": (lambda: [1, ([],)], lambda held, mean: held[1][0].append({"mean": mean})),
}


@pytest.mark.parametrize("name", KEPT)
def test_values_left_in_what_a_module_holds_are_refused(name: str) -> None:
    make, put = KEPT[name]
    model = Norm(lambda module, mean: put(module.seen, 7))
    model.seen = make()
    tp.trace(model, X)
    model = Norm(lambda module, mean: put(module.seen, mean))
    model.seen = make()
    with pytest.raises(tp.GraphError, match=r"the forward pass writes `seen` of its module"):
        tp.trace(model, X)
    outer = Norm(lambda module, mean: module.inside(mean[None]), inside=model)
    with pytest.raises(tp.GraphError, match=r"the forward pass writes `inside.seen` of its module"):
        tp.trace(outer, X)


def test_a_variable_that_is_deleted_is_told() -> None:
    def delete(module: Any, mean: Any) -> None:
        del module.mean

    with pytest.raises(tp.GraphError, match="the forward pass deletes a variable of its module"):
        tp.trace(Norm(delete), X)


@pytest.mark.parametrize("write", [set_value, set_item, set_raw], ids=lambda write: write.__name__)
def test_what_forward_writes_is_stored_and_comes_out_of_plans(write: Any) -> None:
    share = 0.1 if write is set_item else 1.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # flax deprecates `.value`
        model = Norm(write)
        plan = tp.plan(tp.trace(model, tp.TensorType({"b": 4, "c": 3})), tp.mesh(data=2), {"b": "data"})
        y, written = plan.compile()(nnx.state(model), X)
        assert list(written) == ["mean"] and jax.tree.structure(written) == jax.tree.structure(
            nnx.state(model, nnx.BatchStat)
        )
        np.testing.assert_allclose(y, model(X), rtol=1e-6)
    for mean in (written["mean"], model.mean):
        np.testing.assert_allclose(mean[...], share * X.mean(0), rtol=1e-6)


class Outer(tp.nnx.Module):
    def __init__(self, inner: Any, run: Any = None) -> None:
        self.inner, self.run = inner, run

    def forward(self, x: Any) -> Any:
        return self.inner(x) if self.run is None else self.run(self.inner, x)


class Counting(nnx.Module):
    """A module of plain flax inside of ours."""

    def __init__(self) -> None:
        self.count = nnx.BatchStat(jnp.zeros(()))

    def __call__(self, x: Any) -> Any:
        self.count[...] += 1
        return x * 1


@pytest.mark.parametrize("inner", [Norm(set_item), Counting()], ids=["ours", "flax"])
def test_what_modules_inside_of_others_write_is_stored(inner: Any) -> None:
    """Called twice, the second call reads what the first one wrote."""
    Outer(inner, lambda inner, x: inner(inner(x)))(X)
    if isinstance(inner, Counting):
        assert inner.count[...].item() == 2
    else:
        np.testing.assert_allclose(inner.mean[...], 0.09 * X.mean(0), rtol=1e-6)


def test_layers_of_a_stack_write_their_own() -> None:
    layers = [Norm(set_item) for _ in range(3)]
    stack = tp.nnx.Stack([Norm(set_item) for _ in range(3)])
    stack.layer.mean[...] = stack.layer.mean[...] + jnp.arange(3.0)[:, None]
    x = X
    for at, layer in enumerate(layers):
        layer.mean[...] = layer.mean[...] + at
        x = layer(x + 0)
    plan = tp.plan(tp.trace(stack, tp.TensorType({"b": 4, "c": 3})), tp.mesh(data=2), {"b": "data"})
    y, written = plan.compile()(nnx.state(stack), X)
    np.testing.assert_allclose(y, x, atol=1e-5)
    stack(X)
    for mean in (written["layer"]["mean"], stack.layer.mean):
        np.testing.assert_allclose(mean[...], jnp.stack([layer.mean[...] for layer in layers]), atol=1e-5)


def test_a_function_of_modules_hands_on_what_they_write() -> None:
    def loss(module: Any, x: Any) -> Any:
        return tp.fold(tp.aggregators.Mean(), "b c -> ()")(module(x))

    model = Norm(set_item)
    value, written = tp.trace(loss, model, X)(nnx.state(model), X)
    assert value.shape == () and list(written) == ["module"]
    np.testing.assert_allclose(written["module"]["mean"][...], 0.1 * X.mean(0), rtol=1e-6)
    chained = model >> tp.Map(jnp.tanh)
    (_, found), y = tp.trace(chained, X)(nnx.state(model), X), chained(X)
    assert y.shape == X.shape and list(found) == ["params"]
    np.testing.assert_allclose(model.mean[...], 0.1 * X.mean(0), rtol=1e-6)
    assert not np.any(nnx.jit(lambda model, x: model.mean[...] * 0 + model(x).sum())(model, X) == 1)
    np.testing.assert_allclose(model.mean[...], 0.19 * X.mean(0), rtol=1e-6)


WRONG: dict[str, tuple[Any, str]] = {
    "a number": (lambda m, x: set_value(m, 0.0), "writes into `mean` of its module what is no value of the program"),
    "a part": (lambda m, x: m.mean.__setitem__(0, x[0, 0]), "writes into `mean` of its module a part of it alone"),
    "a shape": (lambda m, x: set_value(m, x), "writes into `mean` of its module something of another type"),
    "a dtype": (lambda m, x: set_value(m, x[0].astype(jnp.bfloat16)), "something of another type"),
    "a loop": (lambda m, x: tp.iterate(lambda h: (set_value(m, h[0]), h)[1], 2)(x), "inside of a loop that does not"),
    "a held one": (lambda m, x: tp.iterate(lambda h: HELD(h), 2)(x), "does not know|inside of a loop"),
}
HELD = Norm(set_item)


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_written_is_told(name: str) -> None:
    wrong, told = WRONG[name]

    class Wrong(Norm):
        def forward(self, x: Any) -> Any:
            wrong(self, x)
            return x * 1

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        with pytest.raises(tp.GraphError, match=told):
            Wrong(set_item)(X)


def test_a_held_module_does_not_write_inside_of_a_loop() -> None:
    with pytest.raises(tp.GraphError, match=r"`norm` writes what it holds inside of a loop"):
        tp.iterate(HELD, 2)(X)


def test_the_remedy_works() -> None:
    class Running(Norm):
        def forward(self, x: Any) -> Any:
            mean = tp.fold(tp.aggregators.Mean(), "b c -> c")(x)
            return x - mean, 0.9 * self.mean[...] + 0.1 * mean

    model = Running(set_value)
    y, mean = model(X)
    model.mean[...] = mean
    np.testing.assert_allclose(model.mean[...], 0.1 * X.mean(0), rtol=1e-6)
    np.testing.assert_allclose(y, X - X.mean(0), rtol=1e-6)


class Dense(tp.nnx.Module):
    def __init__(self, rngs: nnx.Rngs, dims: Any = ("i", "o")) -> None:
        self.w = nnx.Param(jax.random.normal(rngs.params(), (3, 5)), dims=dims)

    def forward(self, x: Any) -> Any:
        return tp.einsum("b i, i o -> b o")(x, self.w[...])


@pytest.mark.parametrize("dims", [("i",), ("i", "o", "p"), (), "io", 5, {"i": 3, "o": 5}], ids=repr)
def test_dims_of_another_rank_are_told(dims: Any) -> None:
    with pytest.raises(tp.GraphError, match=r"`w` has 2 axes, and dims=.* names another number of them"):
        tp.trace(Dense(nnx.Rngs(0), dims), X)


def test_the_axis_of_a_stack_is_named_by_the_transformation() -> None:
    def stacked(**options: Any) -> Any:
        return nnx.split_rngs(splits=7)(nnx.vmap(Dense, **options))(nnx.Rngs(0))

    with pytest.raises(tp.GraphError, match=r"has 3 axes.*\n.*\n.*transform_metadata"):
        tp.trace(stacked(), X)
    named = stacked(transform_metadata={nnx.PARTITION_NAME: "layer", "dims": "layer"})
    graph = tp.trace(lambda layers, x: layers.w[...] * 1, named, X)
    assert str(graph.inputs[0].results[0]) == "float32(layer=7, i=3, o=5)"


class Noisy(tp.nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.scale, self.rngs = nnx.Param(jnp.ones(3), dims=("c",)), rngs

    def forward(self, x: Any) -> Any:
        return tp.random.normal(tp.random.fold_in(self.rngs.noise.key[...], 1), like=x) * self.scale[...]


def test_modules_may_hold_random_streams() -> None:
    model = Noisy(nnx.Rngs(noise=3))
    graph = tp.trace(model, tp.TensorType({"b": 4, "c": 3}))
    expected = tp.random.normal(jax.random.fold_in(model.rngs.noise.key[...], 1), like=X)
    plan = tp.plan(graph, tp.mesh(data=2), {"b": "data"})
    np.testing.assert_array_equal(plan.compile()(nnx.state(model), X), expected)
    state, x = plan.put(nnx.state(model), X)
    kinds = [leaf.dtype for leaf in jax.tree.leaves(state)]
    assert kinds == [leaf.dtype for leaf in jax.tree.leaves(nnx.state(model))]
    nnx.update(model, plan.crop(plan.pad(state)))  # keys are still keys
    np.testing.assert_array_equal(plan.compile()(nnx.state(model), x), expected)
    made = jax.jit(lambda: nnx.state(Noisy(nnx.Rngs(noise=3))), out_shardings=plan.in_shardings[0])()
    np.testing.assert_array_equal(plan.compile()(made, x), expected)
    assert tp.trace(nnx.eval_shape(lambda: Noisy(nnx.Rngs(noise=3))), graph.inputs[-1].results[0]).key == graph.key


def test_streams_are_not_drawn_from_in_a_program() -> None:
    class Drawing(Noisy):
        def forward(self, x: Any) -> Any:
            return tp.random.normal(self.rngs.noise(), like=x)

    with pytest.raises(tp.GraphError, match=r"draws a key from `rngs\.noise`(.*\n)*.*fold_in\(self\.rngs\.noise\.key"):
        Drawing(nnx.Rngs(noise=3))(X)
