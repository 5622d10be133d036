"""Graphs: observing and pruning, keys, sub-graphs, calls."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import combinators as tp
from combinators import GraphError, SignatureError, TensorType
from combinators.graphs.evaluate import evaluate
from combinators.graphs.nodes import Apply

MATMUL = tp.Reduce(jnp.matmul, "i k, k n -> i n", tp.monoids.Sum)
GELU = tp.Map(jax.nn.gelu)
X = TensorType({"batch": 4, "embed": 3})
W = TensorType({"embed": 3, "mlp": 3})

CALLS: dict[str, int] = {}


def counted(name: str, x: Any) -> Any:
    CALLS[name] = CALLS.get(name, 0) + 1
    return x * 2


def leaf(name: str) -> tp.Map:
    return tp.Map(functools.partial(counted, name), "b e -> b e", name=name)


def branches(a: Any, b: Any) -> Any:
    """`(A, B) -> (C, D)`."""
    c = tp.named("c", leaf("first")(a))
    return leaf("used")(c), leaf("unused")(b)


def test_unobserved_kernels_are_never_called() -> None:
    graph = tp.trace(branches, X, X).observe("y/0")
    CALLS.clear()
    x = jnp.ones((4, 3))
    np.testing.assert_array_equal(graph(x, x), 4 * x)
    assert CALLS == {"first": 1, "used": 1}


def test_observing_drops_nodes_and_keeps_inputs() -> None:
    graph = tp.trace(branches, X, X)
    assert [node.path for node in graph.nodes] == ["a", "b", "first", "used", "unused"]
    assert [node.path for node in graph.observe("c").nodes] == ["a", "b", "first"]


def test_a_named_value_that_no_output_needs_can_be_observed_and_is_not_run() -> None:
    def program(x: Any) -> Any:
        tp.named("side", leaf("side")(x))
        return leaf("main")(x)

    graph = tp.trace(program, X)
    CALLS.clear()
    x = jnp.ones((4, 3))
    graph(x)
    assert CALLS == {"main": 1}
    np.testing.assert_array_equal(graph.observe("side")(x), 2 * x)


def test_a_work_that_nobody_names_is_not_in_the_graph() -> None:
    def program(x: Any) -> Any:
        leaf("lost")(x)
        return leaf("main")(x)

    assert [node.path for node in tp.trace(program, X).nodes] == ["x", "main"]


def test_the_default_output_is_observed_as_y() -> None:
    graph = tp.trace(lambda x: GELU(x), X)
    assert graph.observe("y") == graph
    several = tp.trace(lambda x: (GELU(x), {"b": x + 1}), X)
    assert several.observe("y") == several
    assert [name for name, _ in several.observe("y/1").outputs] == ["y/1/b"]
    one, two = several.observe("y/1/b", "y/0")(jnp.ones((4, 3)))
    np.testing.assert_array_equal(one, 2 * np.ones((4, 3)))
    np.testing.assert_allclose(two, jax.nn.gelu(1.0), rtol=1e-6)


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (
            ("z", "c"),
            "cannot observe 'z'\n  the graph has c, y/0, y/1\n"
            "  Name a value in the program with tp.named(name, value).",
        ),
        (
            (),
            "cannot observe nothing\n  the graph has c, y/0, y/1\n"
            "  Name a value in the program with tp.named(name, value).",
        ),
    ],
)
def test_what_is_not_there_cannot_be_observed(names: tuple[str, ...], text: str) -> None:
    with pytest.raises(GraphError) as caught:
        tp.trace(branches, X, X).observe(*names)
    assert str(caught.value) == text


@tp.program
def block(x: Any, w: Any) -> Any:
    return x + GELU(MATMUL(x, w)).rename(mlp="embed")


@tp.program
def plain(x: Any, w: Any) -> Any:
    return GELU(MATMUL(x, w))


def deep(layer: Any, x: Any, *weights: Any) -> Any:
    for w in weights:
        x = layer(x, w)
    return x


def test_twelve_equal_layers_have_one_key() -> None:
    graph = tp.trace(lambda x, *ws: deep(block, x, *ws), X, *[W] * 12)
    paths = sorted({node.path.split("/")[0] for node in graph.nodes if isinstance(node, Apply)})
    assert len(paths) == 12
    assert len({graph.subgraph(path).key for path in paths}) == 1


def test_equal_layers_have_one_key_whatever_their_anonymous_axes_are_called() -> None:
    graph = tp.trace(lambda x, *ws: deep(plain, x, *ws), *[TensorType((3, 3))] * 5)
    names = {node.results[0].names for node in graph.nodes if isinstance(node, Apply)}
    assert len(names) == 4
    assert len({graph.subgraph(path).key for path in ("plain", "plain_1", "plain_2", "plain_3")}) == 1


def test_a_subgraph_computes_its_part() -> None:
    graph = tp.trace(lambda x, *ws: deep(block, x, *ws), X, W, W)
    part = graph.subgraph("block_1")
    x, w = (jnp.asarray(np.float32(np.random.default_rng(rows).normal(size=(rows, 3)))) for rows in (4, 3))
    np.testing.assert_allclose(part(x, w), x + jax.nn.gelu(x @ w), rtol=1e-5, atol=1e-6)


def test_a_subgraph_that_does_not_exist_is_refused() -> None:
    with pytest.raises(GraphError) as caught:
        tp.trace(block, X, W).subgraph("decoder/3")
    assert str(caught.value) == (
        "the graph has no operation below 'decoder/3'\n"
        "  top-level paths: add, gelu, matmul, rename, w, x\n"
        "  Give the path of an operation or of a scope, as graph.show() prints them."
    )


def test_the_key_ignores_paths_and_input_names_and_dead_work() -> None:
    def other(alpha: Any, beta: Any) -> Any:
        tp.named("dead", alpha + 3)
        return tp.Map(jax.nn.gelu, name="renamed")(MATMUL(alpha, beta))

    assert tp.trace(plain, X, W).key == tp.trace(other, X, W).key


@pytest.mark.parametrize(
    "other",
    [
        lambda x, w: tp.Map(jax.nn.silu)(MATMUL(x, w)),
        lambda x, w: tp.Map(functools.partial(jax.nn.gelu, approximate=False))(MATMUL(x, w)),
        lambda x, w: GELU(tp.Reduce(jnp.matmul, "i k, k n -> i n", tp.monoids.Max)(x, w)),
        lambda x, w: GELU(MATMUL(x, w)) * 1,
        lambda x, w: (GELU(MATMUL(x, w)), x),
    ],
)
def test_the_key_tells_different_programs_apart(other: Any) -> None:
    assert tp.trace(plain, X, W).key != tp.trace(other, X, W).key


@pytest.mark.parametrize(
    "x",
    [
        TensorType({"batch": 5, "embed": 3}),
        TensorType({"batch": 4, "embed": 3}, jnp.bfloat16),
        TensorType({"rows": 4, "embed": 3}),
    ],
)
def test_the_key_tells_different_types_apart(x: TensorType) -> None:
    assert tp.trace(plain, X, W).key != tp.trace(plain, x, W).key


def test_the_order_of_operands_is_in_the_key() -> None:
    assert tp.trace(lambda x, w: x - w, X, X).key != tp.trace(lambda x, w: w - x, X, X).key


def test_a_graph_runs_in_jit_grad_and_vmap() -> None:
    graph = tp.trace(plain, X, W)
    x, w = (jnp.asarray(np.float32(np.random.default_rng(rows).normal(size=(rows, 3)))) for rows in (4, 3))

    def reference(x: Any, w: Any) -> Any:
        return jax.nn.gelu(x @ w)

    np.testing.assert_allclose(jax.jit(graph)(x, w), reference(x, w), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        jax.jit(jax.grad(lambda w: graph(x, w).sum()))(w),
        jax.jit(jax.grad(lambda w: reference(x, w).sum()))(w),
        rtol=1e-4,
        atol=1e-5,
    )
    ws = jnp.stack([w, -w])
    np.testing.assert_allclose(
        jax.jit(jax.vmap(graph, (None, 0)))(x, ws), jax.jit(jax.vmap(reference, (None, 0)))(x, ws), rtol=1e-5, atol=1e-6
    )


def test_all_arguments_that_do_not_fit_are_named_at_once() -> None:
    graph = tp.trace(plain, X, W)
    with pytest.raises(SignatureError) as caught:
        graph(np.ones((5, 3), np.float32), np.ones((3, 3), np.int32))
    assert str(caught.value) == (
        "`plain` was traced for other arguments\n"
        "  x: expected float32(batch=4, embed=3), got float32(5, 3)\n"
        "  w: expected float32(embed=3, mlp=3), got int32(3, 3)\n"
        "  Pass arrays of these sizes and dtypes, or trace again for the new ones."
    )


def test_a_wrong_number_of_arguments_is_refused() -> None:
    with pytest.raises(GraphError) as caught:
        tp.trace(plain, X, W)(np.ones((4, 3), np.float32))
    assert str(caught.value) == (
        "`plain` takes 2 arrays, got 1\n"
        "  inputs: x float32(batch=4, embed=3), w float32(embed=3, mlp=3)\n"
        "  Pass the arguments that it was traced with."
    )


def test_a_wrong_number_of_arrays_is_told_by_argument() -> None:
    graph = tp.trace(lambda weights, x: plain(x, weights["w"]) + weights["b"], {"w": W, "b": np.float32(1)}, X)
    with pytest.raises(GraphError) as caught:
        graph(np.ones((4, 3), np.float32))
    assert "takes 3 arrays, got 1\n" in str(caught.value)
    assert "\n  arrays in each argument: expected 2 and 1, got 1\n" in str(caught.value)


def test_worked_case_10_add_of_products_is_one_dispatch() -> None:
    graph = tp.trace(lambda w, x, y, z: w * x + y * z, *[X] * 4)
    arrays = [jnp.full((4, 3), float(i)) for i in (2, 3, 5, 7)]
    np.testing.assert_array_equal(graph(*arrays), np.full((4, 3), 41.0))
    text = jax.jit(lambda *a: evaluate(graph, a)).lower(*arrays).compile().as_text()
    entry = text[text.index("ENTRY") :]
    assert entry.count("fusion(") == 1
    assert "multiply(" not in entry and "add(" not in entry


def test_worked_case_10_linear_then_relu_holds_nothing_between() -> None:
    relu = tp.Map(jax.nn.relu)
    graph = tp.trace(lambda x, w: relu(MATMUL(x, w)), X, W)
    assert [node.path for node in graph.observe("y").nodes] == ["x", "w", "matmul", "relu"]
    assert [name for name, _ in graph.named] == ["y"]
