"""`tp.lift`: what comes in, how axes are called, and what is refused."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import tapestry_jax as tp
from tapestry_jax.lifting import lift

F = np.float32


def mlp(params: Any, x: Any) -> Any:
    return jax.nn.relu(x @ params["up"]["kernel"]) @ params["down"]["kernel"]


PARAMS = {"up": {"kernel": np.ones((4, 6), F)}, "down": {"kernel": np.ones((6, 4), F)}}
X = np.ones((8, 4), F)


def test_axes_that_must_agree_are_one_dimension() -> None:
    graph = lift(mlp, PARAMS, X, names={"x": "batch embed"})
    types = {node.name: node.results[0].names for node in graph.inputs}
    assert types["x"] == ("batch", "embed")
    assert types["params/up/kernel"] == ("embed", types["params/down/kernel"][0])
    np.testing.assert_array_equal(graph(PARAMS, X), mlp(PARAMS, X))


def test_names_stick_wherever_they_are_given() -> None:
    graph = lift(mlp, PARAMS, X, names={"params/*/kernel": "_ mlp", "x": "batch ..."})
    types = {node.name: node.results[0].names for node in graph.inputs}
    assert types["params/up/kernel"][1] == types["params/down/kernel"][1] == "mlp"
    typed = lift(lambda x: x + 1, tp.TensorType({"batch": 2, "embed": 3}))
    assert typed.inputs[0].results[0].names == ("batch", "embed")
    named = lift(lambda x, w: x @ w, X, np.ones((4, 3), F), names="batch embed, _ _ -> batch out")
    assert named.type_of(named.outputs[0][1]).names == ("batch", "out")


def test_the_keys_of_a_sequence_are_another_dimension_in_every_layer_the_same() -> None:
    def layers(x: Any) -> Any:
        for _ in range(3):
            x = jax.nn.softmax(x @ x.T) @ x
        return x

    graph = lift(layers, X, names="seq embed")
    dims = {name for node in graph.nodes for _, name in getattr(node, "names", ()) if hasattr(node, "operation")}
    assert dims == {"seq", "seq_1", "embed"}


def test_what_no_rule_knows_is_listed_with_the_line_it_was_written_in() -> None:
    def odd(x: Any) -> Any:
        return jax.lax.reduce(x, np.float32(0), lambda a, b: a + b + a * b, (0,))

    graph = lift(odd, X)
    (found,) = graph.opaque()
    assert found.primitive == "reduce" and "odd" in found.source and __file__ in found.source
    np.testing.assert_array_equal(graph(X), odd(X))


def test_static_parts_of_arguments_stay_as_they_are() -> None:
    def chosen(options: Any, x: Any) -> Any:
        return options["act"](x) * options["scale"]

    graph = lift(chosen, {"act": jnp.tanh, "scale": X}, X)
    assert [node.name for node in graph.inputs] == ["options/scale", "x"]


def test_arrays_that_a_function_holds_are_constants_and_large_ones_are_refused() -> None:
    small, large = np.arange(4, dtype=F), jnp.ones((600, 600))
    graph = lift(lambda x: x + small, X)
    np.testing.assert_array_equal(graph(X), X + small)
    with pytest.raises(tp.KernelError, match=r"holds an array, float32\[600,600\]\n.*\n.*test_lift.py:\d+"):
        lift(lambda x: x @ large, np.ones((2, 600), F))


def test_random_keys_that_a_function_holds_are_constants() -> None:
    key, keys = jax.random.key(7), jax.random.split(jax.random.key(8), 4)

    def noisy(x: Any) -> Any:
        return x + jax.random.normal(key, (4,)) * jax.vmap(jax.random.uniform)(keys)

    np.testing.assert_allclose(lift(noisy, X)(X), noisy(X), rtol=1e-6)


def test_values_that_jax_is_tracing_are_no_constants() -> None:
    def scaled(w: Any) -> Any:
        return lift(lambda x: x * w, X)(X).sum()

    for transformed in (jax.jit(scaled), jax.grad(scaled)):
        with pytest.raises(tp.GraphError) as caught:
            transformed(jnp.ones(4))
        first, place, remedy = str(caught.value).split("\n")
        assert first == "the function that is lifted holds a value that JAX is tracing, float32[4]"
        assert re.fullmatch(r"  used at .*test_lift.py:\d+ .*", place)
        assert remedy == "  Pass it as an argument: tp.lift(lambda x, w: ..., x, w)."


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ({"y": "a b"}, "names= of tp.lift names 'y', which is no input"),
        ({"x": "a"}, "gives 1 name to input `x`\n  it has 2 axes"),
        ({"x": "a a"}, "cannot be read\n  `a` stands twice"),
        ({"x": "1 b"}, "cannot be read\n  '1' is no identifier"),
        ("a b, c d", "names 2 arguments, and there are 1"),
        (3, "names= of tp.lift is no names"),
    ],
)
def test_names_that_do_not_fit_are_refused(names: Any, text: str) -> None:
    with pytest.raises(tp.GraphError) as caught:
        lift(lambda x: x + 1, X, names=names)
    assert text in str(caught.value)


def test_what_cannot_be_lifted_is_refused() -> None:
    with pytest.raises(tp.GraphError, match=r"tp\.lift takes a function or a module"):
        lift(3, X)
    with pytest.raises(tp.GraphError, match="returns nothing"):
        lift(lambda x: None, X)
    with pytest.raises(tp.GraphError, match="returns something that is not an array, at `y`"):
        lift(lambda x: "text", X)
    with pytest.raises(tp.GraphError, match=r"cannot take `debug_\w+`, which has side effects\n  .*test_lift.py"):
        lift(lambda x: jax.debug.print("{}", x) or x, X)


@pytest.mark.parametrize(
    ("function", "asked", "needed", "remedy"),
    [
        (lambda x, n: x if x.sum() > 0 else -x, "whether it is true", "x", "jnp.where or jax.lax.cond"),
        (lambda x, n: np.sin(x), "as an array of NumPy", "x", "jax.numpy in the place of NumPy"),
        (lambda x, n: sum(x for _ in range(n)), "as a whole number of Python", "n", "jax.lax.fori_loop"),
        (lambda x, n: x[: int(n)], "while it is traced", "n", "pass size="),
        (lambda x, n: x[x > 0], "how many cells a mask leaves", "", "jnp.where(mask, x, 0)"),
    ],
)
def test_what_asks_for_numbers_is_told_by_its_line(function: Any, asked: str, needed: str, remedy: str) -> None:
    with pytest.raises(tp.GraphError) as caught:
        lift(function, X, jnp.int32(2))
    headline, place, *depends, told = str(caught.value).split("\n")
    assert headline.startswith("`lambda` cannot be traced: it asks for the numbers of an array")
    assert headline.endswith(asked)
    assert re.fullmatch(rf"  written at .*test_lift\.py:{function.__code__.co_firstlineno} \(.*\)", place)
    assert depends == ([f"  they depend on `{needed}`"] if needed else [])
    assert remedy in told


def test_a_plain_layer_that_asks_for_numbers_is_told_by_its_line() -> None:
    class Asking(nnx.Module):
        def __call__(self, x: Any) -> Any:
            return x if x.sum() > 0 else -x

    class Around(tp.nnx.Module):
        def __init__(self) -> None:
            self.layer = Asking()

        def forward(self, x: Any) -> Any:
            return self.layer(x)

    with pytest.raises(tp.GraphError, match=r"`layer` cannot be traced(.*\n)+  written at .*Asking.__call__"):
        tp.trace(Around(), X)


def test_what_runs_on_blocks_of_its_own_mesh_is_refused() -> None:
    mesh = tp.mesh(data=2)
    summed = jax.shard_map(lambda x: jax.lax.psum(x, "data"), mesh=mesh, in_specs=jax.P("data"), out_specs=jax.P())
    with pytest.raises(tp.GraphError, match=r"cannot take a `shard_map`(.*\n)+  written at .*test_lift\.py:\d+"):
        lift(lambda x: summed(x), X)


def test_names_for_an_argument_that_holds_inputs_say_what_it_holds() -> None:
    with pytest.raises(tp.GraphError) as caught:
        lift(lambda params, x: x * params["scale"], {"scale": X}, X, names="a b, a b")
    assert str(caught.value) == (
        "names= of tp.lift names 'params', which holds inputs and is none\n"
        "  the inputs are x, params/scale\n"
        "  Name what it holds, as listed; in a signature write `_` in its place."
    )


class Holding(nnx.Module):
    """It holds a layer and cannot be called."""

    def __init__(self) -> None:
        self.layer = nnx.Linear(4, 4, rngs=nnx.Rngs(0))


@pytest.mark.parametrize(
    ("lifted", "text"),
    [
        (Holding(), "tp.lift takes a function or a module\n  got Holding, which cannot be called: Holding("),
        (
            nnx.Linear,
            "tp.lift takes a function or a module, and this is the class of one\n"
            "  got the class Linear\n  Make one first: tp.lift(Linear(...), x).",
        ),
        (nn.Dense, "got the class Dense\n  Make one first"),
        (
            nn.Dense(3),
            "`Dense` holds no arrays: its variables are the first argument\n  got an array in their place\n"
            "  Write tp.lift(model, model.init(key, x), x)",
        ),
    ],
    ids=["module that cannot be called", "nnx class", "linen class", "linen without variables"],
)
def test_modules_that_are_not_ready_to_be_called_are_refused(lifted: Any, text: str) -> None:
    with pytest.raises(tp.GraphError) as caught:
        lift(lifted, X)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ("p q -> q r s", "gives 3 names to result 0\n  it has 2 axes"),
        ("p q -> p q, r", "names 2 results, and there are 1"),
        ("p q -> r q", "calls axis 0 of result 0 `r`\n  it is the dimension `p`\n  Call it `p`"),
        ("p _ -> p p", "`p` stands twice"),
        ({"x": None}, "cannot be read\n  expected the names of axes, got NoneType"),
        ({"x": 3}, "cannot be read\n  expected the names of axes, got int: 3"),
    ],
)
def test_names_of_results_that_do_not_fit_are_refused(names: Any, text: str) -> None:
    with pytest.raises(tp.GraphError) as caught:
        lift(lambda x: x + 1, X, names=names)
    assert text in str(caught.value)


def test_a_name_that_another_dimension_has_is_refused_for_a_result() -> None:
    with pytest.raises(tp.GraphError, match="calls axis 1 of result 0 `q`\n  `q` is another dimension"):
        lift(lambda x, w: x @ w, X, np.ones((4, 3), F), names="p q, q _ -> p q")
    split = lift(lambda x: (x.sum(), x @ x.T), X, names="p q -> _, p keys")
    assert split.type_of(split.outputs[1][1]).names == ("p", "keys")


def test_the_derivative_of_a_function_may_not_hold_what_the_lifted_function_computes() -> None:
    def scaled(x: Any) -> Any:
        by = x.sum()

        @jax.custom_jvp
        def times(x: Any) -> Any:
            return x * 2

        times.defjvp(lambda primals, tangents: (times(primals[0]), tangents[0] * by))
        return times(x)

    with pytest.raises(tp.GraphError, match=r"the derivative of `times` holds a value that .*\n.*test_lift.py:\d+"):
        lift(scaled, X)


def test_an_argument_that_is_no_array_has_none_in_its_place() -> None:
    graph = lift(lambda x, how: x * 2 if how == "twice" else x, X, "twice")
    np.testing.assert_array_equal(graph(X, None), X * 2)


def test_a_number_is_refused_where_it_would_be_rounded() -> None:
    graph = lift(lambda count: count * 2, 3)
    assert graph(4) == 8
    planned = tp.plan(graph, tp.mesh(a=2), {}).compile()
    assert planned(4) == 8
    for run in (graph, planned):
        with pytest.raises(tp.SignatureError, match=r"count: expected int32\(\), got float32\(\)"):
            run(4.5)
    assert lift(lambda x: x * 2, 3.5)(4) == 8


def test_what_is_written_to_a_module_among_the_arguments_is_refused_unless_it_is_returned() -> None:
    counter, x = nnx.BatchNorm(4, rngs=nnx.Rngs(0)), jnp.asarray(X)
    for arguments in ((counter, x), ({"norm": counter}, x)):
        with pytest.raises(tp.GraphError, match="the call writes `mean` of a module, which a graph would lose"):
            lift(lambda held, x: (held["norm"] if isinstance(held, dict) else held)(x), *arguments)
    graph = lift(lambda norm, x: (norm(x), nnx.state(norm)), counter, x)
    assert {"y/1/mean", "y/1/var"} <= {name for name, _ in graph.outputs}


def test_another_number_of_arguments_than_the_function_takes_is_refused() -> None:
    def scaled(x: Any, *, by: Any) -> Any:
        return x * by

    with pytest.raises(tp.GraphError) as caught:
        lift(scaled, X, 2.0)
    assert str(caught.value) == (
        "`scaled` cannot be called with what tp.lift was given\n"
        "  it takes (x: 'Any', *, by: 'Any') -> 'Any', got 2 arguments: too many positional arguments\n"
        "  Pass one for each; say by keyword before: functools.partial(function, training=False)."
    )
    with pytest.raises(tp.GraphError, match=r"got 1 argument: missing a required .*'by'"):
        lift(scaled, X)
    assert [node.name for node in lift(partial(scaled, by=2.0), X).inputs] == ["x"]


def test_two_arguments_of_one_name_are_refused() -> None:
    with pytest.raises(
        tp.GraphError, match=r"two arguments of `<?lambda>?` are called `p/a/b`\n  keys are joined by `/`"
    ):
        lift(lambda p: p["a/b"] + p["a"]["b"], {"a/b": X, "a": {"b": X}})
    with pytest.raises(tp.GraphError, match=r"two arguments of `<?lambda>?` are called `p/a/b`"):
        tp.trace(lambda p: p["a/b"] + p["a"]["b"], {"a/b": X, "a": {"b": X}})


def test_random_keys_are_no_results() -> None:
    with pytest.raises(tp.GraphError, match=r"returns random keys, at `y`\n.*\n  Return jax.random.key_data\(key\)"):
        lift(jax.random.split, jax.random.key(0))


@pytest.mark.parametrize("function", [jnp.tanh, lambda x: x @ x.T, lambda x: jax.lax.while_loop(jnp.any, jnp.sin, x)])
def test_a_lifted_graph_is_stored_in_no_file_and_its_plan_is(function: Any) -> None:
    graph = lift(function, X, names="p q")
    with pytest.raises(tp.KernelError) as caught:
        graph.to_json()
    assert re.search(
        r"^`kernel` of the operation `\w+` cannot be stored: no file may name `tapestry_jax\.lifting\..*`\.\n"
        r"  got .*\n  Store how it is made: lift the function again\.$",
        str(caught.value),
    )
    plan = tp.plan(graph, tp.mesh(a=2), {})
    text = plan.to_json()
    assert tp.Plan.from_json(text, lift(function, X, names="p q"), plan.mesh).to_json() == text
