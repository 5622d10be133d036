"""Modules are Flax modules and arrows: names, composition, transformations, errors."""

from __future__ import annotations

import copy

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import tapestry_jax as tp
from tests.tapestry_jax.draw import normal

X = normal(3, 4)
gelu = tp.Map(jax.nn.gelu)


def linear(**options) -> tp.nnx.Linear:
    return tp.nnx.Linear(4, 8, rngs=nnx.Rngs(0), **options)


class Gated(tp.nnx.Module):
    """A user's module: bare parameters, a submodule, and no declared signature."""

    def __init__(self, rngs: nnx.Rngs):
        self.gate = nnx.Param(jax.random.normal(rngs.params(), (8,)), dims=("mlp",))
        self.up = tp.nnx.Linear(4, 8, rngs=rngs)

    def forward(self, x):
        return self.up(x) * self.gate[...]


def inputs(graph) -> dict[str, str]:
    return {node.name: str(node.results[0]) for node in graph.inputs}


def paths(graph) -> list[str]:
    return [node.path for node in graph.nodes[len(graph.inputs) :]]


def test_parameters_become_named_inputs_with_dimension_names():
    graph = tp.trace(linear(), X)
    assert inputs(graph) == {
        "params/bias": "float32(mlp=8)",
        "params/kernel": "float32(embed=4, mlp=8)",
        "x": "float32(batch=3, embed=4)",
    }


def test_dims_are_metadata_of_the_variable():
    assert linear(dims=("a", "b")).kernel.get_metadata()["dims"] == ("a", "b")


def test_own_module_makes_scopes_and_names():
    module = Gated(nnx.Rngs(0))
    graph = tp.trace(module, X)
    assert inputs(graph)["params/gate"] == "float32(mlp=8)"
    assert paths(graph) == ["up/einsum", "up/add", "multiply"]
    expected = (X @ module.up.kernel[...] + module.up.bias[...]) * module.gate[...]
    np.testing.assert_allclose(module(X), expected, rtol=1e-5)


def test_a_module_may_hold_its_rngs():
    class Keeps(Gated):
        def __init__(self, rngs: nnx.Rngs):
            super().__init__(rngs)
            self.rngs = rngs

    module = Keeps(nnx.Rngs(0))
    graph = tp.trace(module, X)
    assert {"params/rngs/default/key", "params/rngs/default/count"} < set(inputs(graph))
    run = tp.plan(graph, tp.mesh(model=2), {"mlp": "model"}).compile()
    np.testing.assert_allclose(run(nnx.state(module), X), module(X), rtol=1e-5)


def test_names_survive_an_update_from_flax():
    module, other = linear(), nnx.Linear(4, 8, rngs=nnx.Rngs(3))
    nnx.update(module, nnx.state(other))
    assert inputs(tp.trace(module, X))["params/kernel"] == "float32(embed=4, mlp=8)"
    np.testing.assert_allclose(module(X), other(X), rtol=1e-5, atol=1e-6)


def test_module_composes_as_an_arrow():
    f, g = linear(), tp.nnx.Linear(8, 2, dims=("mlp", "out"), rngs=nnx.Rngs(1))
    arrow = f >> gelu >> g
    graph = tp.trace(arrow, X)
    expected = jax.nn.gelu(X @ f.kernel[...] + f.bias[...]) @ g.kernel[...] + g.bias[...]
    np.testing.assert_allclose(arrow(X), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(graph(nnx.state(f), nnx.state(g), X), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose((gelu >> f)(X), jax.nn.gelu(X) @ f.kernel[...] + f.bias[...], rtol=1e-4, atol=1e-5)


def test_module_applied_twice_holds_its_parameters_once():
    f = linear()
    graph = tp.trace(f * f, X, X + 1)
    assert [name for name in inputs(graph) if "params" in name] == ["params/bias", "params/kernel"]
    left, right = (f * f)(X, X + 1)
    np.testing.assert_allclose(right - left, jnp.broadcast_to(f.kernel[...].sum(0), (3, 8)), rtol=1e-4, atol=1e-4)


def test_other_operators_delegate():
    f = linear()
    y = f(X)
    np.testing.assert_array_equal((f & gelu)(X)[0], y)
    np.testing.assert_array_equal(f.first()(X, X)[1], X)
    np.testing.assert_array_equal(f.second()(X, X)[1], y)
    chosen = tp.Either(jnp.array(True), X, X)
    np.testing.assert_allclose((f | linear())(chosen), y, rtol=1e-6)


class Shifted(tp.nnx.Module):
    def __init__(self):
        self.scale = nnx.Param(jnp.full((4,), 3.0), dims=("embed",))

    def forward(self, x, shift):
        return x * self.scale[...] + shift


def test_a_module_without_a_forward_pass_is_told():
    class Called(tp.nnx.Module):
        def __call__(self, x):
            return tp.Map(jnp.tanh)(x)

    for run in (lambda: tp.trace(Called(), X), lambda: tp.nnx.Module()(X)):
        with pytest.raises(tp.GraphError, match=r"(?s)does not define forward.*leave `__call__` to tp.nnx.Module"):
            run()


def test_bind_fixes_the_last_operands():
    arrow = Shifted().bind(jnp.arange(4.0))
    np.testing.assert_allclose(arrow(X), 3 * X + jnp.arange(4.0), rtol=1e-6)
    assert list(inputs(tp.trace(arrow, X))) == ["bound", "params/scale", "x"]


def test_composition_checks_sizes_before_any_array():
    with pytest.raises(tp.CompositionError, match="differ at `mlp`"):
        linear() >> tp.nnx.Linear(4, 4, dims=("mlp", "out"), rngs=nnx.Rngs(0))


def test_changed_parameters_and_structure_are_seen():
    module = tp.nnx.RMSNorm(4, rngs=nnx.Rngs(0))
    before = module(X)
    module.scale[...] = 2 * module.scale[...]
    np.testing.assert_allclose(module(X), 2 * before, rtol=1e-6)
    module.epsilon = 100.0
    np.testing.assert_allclose(module(X), 2 * X / np.sqrt(np.mean(np.square(X), -1, keepdims=True) + 100), rtol=1e-5)


def test_flax_transformations_work():
    module = linear()
    expected = X @ module.kernel[...] + module.bias[...]
    np.testing.assert_allclose(nnx.jit(lambda m, x: m(x))(module, X), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(jax.vmap(module)(X[None])[0], expected, rtol=1e-5, atol=1e-6)
    grads = nnx.grad(lambda m, x: m(x).sum())(module, X)
    np.testing.assert_allclose(grads.kernel[...], jnp.broadcast_to(X.sum(0)[:, None], (4, 8)), rtol=1e-5)
    graphdef, state = nnx.split(module)
    np.testing.assert_array_equal(nnx.merge(graphdef, jax.tree.map(jnp.zeros_like, state))(X), jnp.zeros((3, 8)))
    np.testing.assert_array_equal(copy.deepcopy(module)(X), module(X))


def test_abstract_module_can_be_traced():
    abstract = nnx.eval_shape(linear)
    assert tp.trace(abstract, X).key == tp.trace(linear(), X).key


def test_function_takes_modules_as_arguments():
    def loss(model, x):
        return model(x)

    module = linear()
    graph = tp.trace(loss, module, X)
    assert list(inputs(graph)) == ["model/bias", "model/kernel", "x"]
    np.testing.assert_array_equal(graph(nnx.state(module), X), module(X))
    np.testing.assert_array_equal(tp.program(loss)(module, X), module(X))


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: linear()(jnp.ones((3, 5))), tp.SignatureError, "ends in .embed=5"),
        (lambda: (linear() >> linear())(X), tp.CompositionError, "differ|dims="),
        (lambda: tp.trace(tp.program(lambda x: linear()(x)), X), tp.GraphError, "holds arrays"),
        (lambda: tp.trace(lambda m, x: m(jnp.ones((3, 4))), linear(), X), tp.GraphError, "not a value of the program"),
        (lambda: linear(dims=("a", "a")), tp.GraphError, "twice"),
        (lambda: tp.nnx.Embed(4, 4, rngs=nnx.Rngs(0))(X), tp.SignatureError, "integer tokens"),
        (lambda: tp.nnx.MultiHeadAttention(3, 4, rngs=nnx.Rngs(0)), tp.GraphError, "3 heads"),
    ],
)
def test_misuse_is_a_typed_error(call, error, text):
    with pytest.raises(error, match=text):
        call()


def test_array_function_in_a_forward_pass_is_refused():
    class Wrong(tp.nnx.Module):
        def forward(self, x):
            return jnp.sin(x)

    with pytest.raises(tp.GraphError, match=r"tp\.Map\(jnp\.sin\)"):
        Wrong()(X)
