"""Repeated arrows against Python loops."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import combinators as tp
from combinators import CompositionError, GraphError, TensorType
from combinators.graphs.nodes import Loop

RNG = np.random.default_rng(0)
X = RNG.normal(size=(4, 3)).astype(np.float32)
WS = RNG.normal(size=(5, 3, 3)).astype(np.float32) * 0.5
BS = RNG.normal(size=(5, 3)).astype(np.float32)
MATMUL = tp.Reduce(jnp.matmul, "i k, k n -> i n", tp.monoids.Sum)
TANH = tp.Map(jnp.tanh)


@tp.program("b e, e f -> b e")
def layer(x: Any, w: Any) -> Any:
    return x + TANH(MATMUL(x, w)).rename(f="e")


def python_layers(x: Any, ws: Any) -> Any:
    for w in ws:
        x = x + jnp.tanh(x @ w)
    return x


def deep(x: Any, ws: Any) -> Any:
    return tp.program("b e, layer e f -> b e")(lambda x, ws: tp.stack(layer, 5)(x, ws))(x, ws)


def test_a_stack_is_the_python_loop() -> None:
    np.testing.assert_allclose(deep(X, WS), python_layers(X, WS), rtol=1e-5, atol=1e-6)


def test_gradients_of_a_stack_are_those_of_the_python_loop() -> None:
    ours = jax.jit(jax.grad(lambda x, ws: (deep(x, ws) ** 2).sum(), argnums=(0, 1)))(X, WS)
    theirs = jax.jit(jax.grad(lambda x, ws: (python_layers(x, ws) ** 2).sum(), argnums=(0, 1)))(X, WS)
    for left, right in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-3, atol=1e-4)


def test_a_stack_is_one_loop_over_its_dimension() -> None:
    graph = tp.trace(tp.stack(layer, 5), *(TensorType(d) for d in ({"b": 4, "e": 3}, {"layer": 5, "e": 3, "f": 3})))
    node = graph.nodes[-1]
    assert isinstance(node, Loop)
    assert (node.length, node.over, node.carries, node.axes) == (5, "layer", 1, (0,))
    assert node.body.inputs[1].results[0] == TensorType({"e": 3, "f": 3})


def test_the_stacked_dimension_is_found_by_name() -> None:
    graph = tp.trace(tp.stack(layer, 5), TensorType({"b": 4, "e": 3}), TensorType({"e": 3, "layer": 5, "f": 3}))
    np.testing.assert_allclose(graph(X, WS.swapaxes(0, 1)), python_layers(X, WS), rtol=1e-5, atol=1e-6)


def test_stacked_pytrees_are_sliced_leaf_by_leaf() -> None:
    def dense(x: Any, params: Any) -> Any:
        return TANH(MATMUL(x, params["w"]).rename(f="e") + params["b"])

    program = tp.program(lambda x, params: tp.stack(dense, 5)(x, params))
    x = TensorType({"n": 4, "e": 3})
    params = {"w": TensorType({"layer": 5, "e": 3, "f": 3}), "b": TensorType({"layer": 5, "e": 3})}
    expected = X
    for w, b in zip(WS, BS, strict=True):
        expected = np.tanh(expected @ w + b)
    np.testing.assert_allclose(tp.trace(program, x, params)(X, {"w": WS, "b": BS}), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("n", [0, 1, 4])
def test_an_iteration_is_the_python_loop(n: int) -> None:
    step = tp.program(lambda carry, w: TANH(MATMUL(carry, w)).rename(f="e"))
    program = tp.program("b e, e f -> b e")(lambda x, w: tp.iterate(step, n)(x, w))
    expected = X
    for _ in range(n):
        expected = np.tanh(expected @ WS[0])
    np.testing.assert_allclose(program(X, WS[0]), expected, rtol=1e-5, atol=1e-6)


def test_gradients_of_an_iteration_are_those_of_the_python_loop() -> None:
    ours = jax.jit(jax.grad(lambda c, w: tp.iterate(lambda c, w: c * w + 1, 3)(c, w).sum(), argnums=(0, 1)))(X, X)
    theirs = jax.jit(jax.grad(lambda c, w: (((c * w + 1) * w + 1) * w + 1).sum(), argnums=(0, 1)))(X, X)
    for left, right in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-4, atol=1e-5)


def test_the_carry_may_be_a_pytree() -> None:
    step = tp.program(lambda carry: {"a": carry["b"], "b": carry["a"] + carry["b"]})
    result = tp.iterate(step, 10)({"a": jnp.int32(0), "b": jnp.int32(1)})
    assert (int(result["a"]), int(result["b"])) == (55, 89)


def test_iterations_nest() -> None:
    inner = tp.iterate(lambda c: c + 1, 3)
    assert int(tp.iterate(inner, 4)(jnp.int32(0))) == 12


def test_vmap_of_a_stack_is_that_of_the_python_loop() -> None:
    batch = np.stack([X, -X])
    ours = jax.jit(jax.vmap(deep, in_axes=(0, None)))(batch, WS)
    np.testing.assert_allclose(ours, [python_layers(x, WS) for x in batch], rtol=1e-4, atol=1e-5)


def test_bound_arrays_go_into_the_loop_as_constants() -> None:
    step = tp.program(lambda x, w: MATMUL(x, w).rename(f="e")).bind(TensorType({"e": 3, "f": 3}))
    graph = tp.trace(tp.iterate(step, 2), TensorType({"b": 4, "e": 3}))
    assert [node.name for node in graph.inputs] == ["bound", "x"]
    np.testing.assert_allclose(graph(WS[0], X), X @ WS[0] @ WS[0], rtol=1e-5, atol=1e-6)


def test_feedback_is_the_python_loop() -> None:
    step = tp.program(lambda x, h: (h, h * x))
    outputs, final = step.feedback("t")(jnp.asarray(X), jnp.ones(3))
    np.testing.assert_allclose(final, np.prod(X, 0), rtol=1e-5)
    np.testing.assert_allclose(outputs[1:], np.cumprod(X, 0)[:-1], rtol=1e-5)


@pytest.mark.parametrize(
    ("build", "error", "text"),
    [
        (
            lambda: tp.iterate(lambda c: c, -1),
            GraphError,
            "tp.iterate repeats a whole number of times\n  got -1\n  Give a non-negative integer.",
        ),
        (
            lambda: tp.iterate(lambda c: c, 2**31),
            GraphError,
            "tp.iterate repeats more often than JAX counts\n"
            "  got 2147483648, at most 2**31 - 1\n"
            "  Give fewer, or nest two whose counts multiply to it: tp.iterate(tp.iterate(step, 2**16), n // 2**16).",
        ),
        (
            lambda: tp.stack(lambda c, w: c, 2.0),  # pyright: ignore[reportArgumentType]
            GraphError,
            "tp.stack repeats a whole number of times\n  got 2.0\n  Give a non-negative integer.",
        ),
        (
            lambda: tp.iterate(3, 2),  # pyright: ignore[reportArgumentType]
            GraphError,
            "tp.iterate repeats an arrow or a function of values\n"
            "  got int: 3\n"
            "  Pass a tp.program or a composition of arrows.",
        ),
        (
            lambda: tp.iterate(lambda c: c * 0.5, 2)(jnp.int32(1)),
            CompositionError,
            "`iterate` cannot repeat its step: carry 0 comes out as another type\n"
            "  goes in as   Value(int32())\n"
            "  comes out as Value(float32())\n"
            "  Make the step return what it takes: the same names, sizes and dtype.",
        ),
        (
            lambda: tp.trace(tp.iterate(MATMUL, 2), *(TensorType(d) for d in ({"b": 4, "e": 3}, {"e": 3, "f": 3}))),
            CompositionError,
            "`iterate` cannot repeat its step: carry 0 comes out as another type\n"
            "  goes in as   Value(float32(b=4, e=3))\n"
            "  comes out as Value(float32(b=4, f=3))\n"
            "  Make the step return what it takes: the same names, sizes and dtype.",
        ),
        (
            lambda: tp.iterate(lambda c: (c, c), 2)(X),
            CompositionError,
            "`iterate` cannot repeat its step: the carry comes out with another structure\n"
            "  goes in as   PyTreeDef(*)\n"
            "  comes out as PyTreeDef((*, *))\n"
            "  Return the carry with the structure that it came with.",
        ),
        (
            lambda: tp.trace(
                tp.stack(layer, 4), TensorType({"b": 4, "e": 3}), TensorType({"layer": 5, "e": 3, "f": 3})
            ),
            CompositionError,
            "`stack` takes 4 slices along `layer`\n"
            "  got Value(float32(layer=5, e=3, f=3))\n"
            "  Stack the operands along a first axis named `layer` of size 4.",
        ),
        (
            lambda: tp.stack(lambda c: c, 4)(X),
            CompositionError,
            "`stack` takes a carry and what is stacked along `layer`, got 1 operand\n  Pass them.",
        ),
        (
            lambda: tp.program(lambda x, s: (x, s)).feedback("t")(X, X, X),
            CompositionError,
            "`lambda.feedback` takes a sequence and a state, got 3 operands\n"
            "  Put several sequences, or several states, into one pytree.",
        ),
        (
            lambda: tp.program(lambda x, s: (x, s)).feedback("t")(jnp.float32(1), X),
            GraphError,
            "`lambda.feedback` has no sequence along `t`\n  Pass one, or name its axis.",
        ),
    ],
)
def test_what_cannot_repeat_is_refused(build: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error) as caught:
        build()
    assert str(caught.value) == text


def test_the_most_turns_and_nested_ones_are_lowered() -> None:
    n = 2**32
    for arrow in (tp.iterate(TANH, 2**31 - 1), tp.iterate(tp.iterate(TANH, 2**16), n // 2**16)):
        graph = tp.Graph.from_json(tp.trace(arrow, TensorType({"x": 4})).to_json())
        assert "while" in jax.jit(graph).lower(jnp.ones(4)).as_text()
