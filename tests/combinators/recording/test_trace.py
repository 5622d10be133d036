"""Tracing: what a program may be made of, what its inputs are called, and what calls on arrays do."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import combinators as tp
from combinators import CompositionError, GraphError, TensorType
from combinators.graphs.nodes import Apply, Loop

MATMUL = tp.Reduce(jnp.matmul, "i k, k n -> i n", tp.monoids.Sum)
GELU = tp.Map(jax.nn.gelu)


@tp.program("batch embed, embed mlp, mlp out -> batch out")
def mlp(x: Any, w1: Any, w2: Any) -> Any:
    return MATMUL(GELU(MATMUL(x, w1)), w2)


def arrays(*shapes: tuple[int, ...]) -> list[jax.Array]:
    rngs = map(np.random.default_rng, range(len(shapes)))
    return [jnp.asarray(np.float32(rng.normal(size=shape))) for rng, shape in zip(rngs, shapes, strict=True)]


X, W1, W2 = arrays((4, 3), (3, 5), (5, 2))


def reference(x: Any, w1: Any, w2: Any) -> Any:
    return jax.nn.gelu(x @ w1) @ w2


def test_a_program_of_arrays_is_the_jax_function() -> None:
    np.testing.assert_allclose(mlp(X, W1, W2), reference(X, W1, W2), rtol=1e-5)


def test_gradients_of_a_program_are_those_of_the_jax_function() -> None:
    ours = jax.jit(jax.grad(lambda *args: jnp.sum(mlp(*args) ** 2), argnums=(0, 1, 2)))(X, W1, W2)
    theirs = jax.jit(jax.grad(lambda *args: jnp.sum(reference(*args) ** 2), argnums=(0, 1, 2)))(X, W1, W2)
    for left, right in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-4, atol=1e-5)


def test_vmap_and_jit_of_a_program_are_those_of_the_jax_function() -> None:
    batch = jnp.stack([X, 2 * X])
    ours = jax.jit(jax.vmap(mlp, in_axes=(0, None, None)))(batch, W1, W2)
    np.testing.assert_allclose(
        ours, jax.jit(jax.vmap(reference, in_axes=(0, None, None)))(batch, W1, W2), rtol=1e-5, atol=1e-6
    )


def test_a_program_is_traced_once_per_types() -> None:
    calls: list[int] = []

    @tp.program
    def counted(x: Any) -> Any:
        calls.append(1)
        return x + x

    counted(X)
    counted(2 * X)
    assert len(calls) == 1
    counted(X[:2])
    assert len(calls) == 2


@pytest.mark.parametrize("make", [jnp.asarray, np.asarray, lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype)])
def test_arguments_are_only_looked_at_for_their_types(make: Any) -> None:
    graph = tp.trace(mlp, *(make(a) for a in (X, W1, W2)))
    named = tp.trace(mlp, *map(TensorType, ({"batch": 4, "embed": 3}, {"embed": 3, "mlp": 5}, {"mlp": 5, "out": 2})))
    assert graph == named
    assert [node.name for node in graph.inputs] == ["x", "w1", "w2"]
    assert [str(node.results[0]) for node in graph.inputs] == [
        "float32(batch=4, embed=3)",
        "float32(embed=3, mlp=5)",
        "float32(mlp=5, out=2)",
    ]


def test_pytrees_go_in_and_out_by_their_paths() -> None:
    def program(params: Any, x: Any) -> Any:
        h = MATMUL(x, params["layers"][0]["w"])
        return {"hidden": h, "both": (GELU(h), h + params["b"])}

    graph = tp.trace(program, {"layers": [{"w": W1}], "b": jnp.zeros(5)}, X)
    assert [node.name for node in graph.inputs] == ["params/b", "params/layers/0/w", "x"]
    assert [name for name, _ in graph.outputs] == ["y/both/0", "y/both/1", "y/hidden"]
    result = graph({"layers": [{"w": W1}], "b": jnp.ones(5)}, X)
    np.testing.assert_allclose(result["both"][1], X @ W1 + 1, rtol=1e-5)


def test_bound_arrays_become_the_first_inputs() -> None:
    arrow = MATMUL.bind(W1) >> MATMUL.bind(W2)
    graph = tp.trace(arrow, X)
    assert [node.name for node in graph.inputs] == ["bound_0", "bound_1", "x"]
    np.testing.assert_allclose(arrow(X), X @ W1 @ W2, rtol=1e-5)
    np.testing.assert_allclose(graph(W1, W2, X), X @ W1 @ W2, rtol=1e-5)
    np.testing.assert_allclose(
        jax.jit(jax.grad(lambda x: arrow(x).sum()))(X), jnp.ones((4, 2)) @ (W1 @ W2).T, rtol=1e-5
    )


def test_equal_operations_on_equal_operands_are_one_node() -> None:
    def program(x: Any, w: Any) -> Any:
        halve = functools.partial(jax.nn.gelu, approximate=False)
        other = tp.Map(functools.partial(jax.nn.gelu, approximate=False))
        return tp.Map(halve)(MATMUL(x, w)) + other(MATMUL(x, w))

    graph = tp.trace(program, X, W1)
    assert [node.path for node in graph.nodes if isinstance(node, Apply)] == ["matmul", "gelu", "add"]


def test_different_operations_on_equal_operands_are_two_nodes() -> None:
    def program(x: Any) -> Any:
        approximate = tp.Map(functools.partial(jax.nn.gelu, approximate=True))
        return approximate(x) - tp.Map(functools.partial(jax.nn.gelu, approximate=False))(x)

    assert len(tp.trace(program, X).nodes) == 4


def test_scopes_of_one_name_are_numbered() -> None:
    @tp.program
    def layer(x: Any) -> Any:
        return GELU(x) + 1

    paths = [node.path for node in tp.trace(lambda x: layer(layer(x)), X).nodes]
    assert paths == ["x", "layer/gelu", "layer/add", "layer_1/gelu", "layer_1/add"]


def test_python_numbers_take_the_dtype_that_their_type_says() -> None:
    add = tp.Map(jnp.add)
    assert add(jnp.ones(3, jnp.bfloat16), 2.0).dtype == jnp.float32
    assert tp.program(lambda x: x * 2.0)(jnp.ones(3, jnp.bfloat16)).dtype == jnp.bfloat16


def test_numbers_of_numpy_stand_on_either_side_of_arithmetic() -> None:
    program = tp.program(lambda x: np.float32(2) * x + x / np.sqrt(4.0))
    np.testing.assert_allclose(program(X), 2.5 * X, rtol=1e-6)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: abs(-x) + x**2 - 1 / (x + 3),
        lambda x: 2**x - (1 - x) * x,
        lambda x: (x % 0.5) + x // 0.25,
        lambda x: ~((x > 0) & (x <= 1) | (x == 0.5)),
        lambda x: (x < 0) | (x >= 1) | (x != x),
    ],
)
def test_operators_are_those_of_jax(function: Any) -> None:
    np.testing.assert_allclose(tp.program(function)(X), function(X), rtol=1e-5)


@pytest.mark.parametrize(
    ("left", "right", "shape"),
    [
        ((1, 3), (5, 3), (5, 3)),
        ((5, 1), (1, 3), (5, 3)),
        ((1, 1), (1, 1), (1, 1)),
        ((1,), (5, 3), (5, 3)),
        ((), (5, 3), (5, 3)),
        ((2, 1, 3), (4, 1), (2, 4, 3)),
    ],
)
def test_anonymous_axes_broadcast_as_in_numpy(left: Any, right: Any, shape: Any) -> None:
    a, b = arrays(left, right)
    result = (tp.Map(jnp.subtract) >> tp.Map(jnp.tanh))(a, b)
    assert result.shape == shape
    np.testing.assert_allclose(result, np.tanh(np.subtract(a, b)), rtol=1e-5)


VALUE = "Value(float32(an unnamed axis (axis 0 of `x`)=4, an unnamed axis (axis 1 of `x`)=3))"
NOW = "a value of a program that is being traced"


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (
            lambda x: jnp.sin(x),
            f"a function of arrays was called on {NOW}\n  got {VALUE}\n"
            '  Make it a leaf: tp.Map(jnp.sin)(x), or with a signature: tp.Map(f, "a [b] -> a [b]")(x), where '
            "f needs all of `b`. A function of plain JAX or Flax is lifted outside of programs: tp.lift(f, *specs).",
        ),
        (
            lambda x: np.sin(x),
            f"NumPy was called on {NOW}\n  got {VALUE}\n  Make it a leaf of the program: tp.Map(kernel, signature)(x).",
        ),
        (
            lambda x: list(x),
            f"Python iterates over {NOW}\n  got {VALUE}\n  Use a Map over the dimension, tp.stack or tp.iterate.",
        ),
        (
            lambda x: x and x,
            f"a Python condition looks at {NOW}\n  got {VALUE}\n"
            "  Choose between values with tp.Map(jnp.where)(condition, a, b).",
        ),
        (
            lambda x: float(x),
            f"Python asks for the number of {NOW}\n  got {VALUE}\n"
            "  Return it from the program; it has numbers when the program runs.",
        ),
        (
            lambda x: x @ x,
            f"`@` multiplies {NOW}\n  got {VALUE}\n"
            '  Say which dimension is summed: tp.einsum("i k, k n -> i n")(x, w).',
        ),
        (
            lambda x: x + np.ones(3, np.int32),
            "operand 1 of `add` is not a value of the program\n"
            "  got ndarray: array([1, 1, 1], dtype=int32)\n"
            "  Pass arrays as arguments of the program; only numbers may stand in it.",
        ),
        (
            lambda x: 3,
            "`lambda` returns something that is not a value of the program, at `y`\n"
            "  got int: 3\n"
            "  Return values computed from the arguments; a constant comes in as an argument.",
        ),
        (lambda x: None, "`lambda` returns nothing\n  Return at least one value."),
        (
            lambda x: tp.named("h", x) + tp.named("h", x + 1),
            f"two values are named 'h'\n  the first is {VALUE}, the second {VALUE}\n  Give each its own name.",
        ),
        (
            lambda x: tp.named("y", x) + 1,
            "`lambda` names a value 'y', which is what its output is called\n"
            "  the outputs are y\n"
            "  Give the value another name with tp.named.",
        ),
        (
            lambda x: _leaked(x) + x,
            "operand 0 of `add` belongs to another program\n"
            f"  got {VALUE}\n"
            "  Pass it in as an argument of the program; let a loop's step return what it makes.",
        ),
        (
            lambda x: _leaked(x),
            "`lambda` returns a value of another program, at `y`\n"
            f"  got {VALUE}\n"
            "  Return what this call computes; let a loop's step return what it makes.",
        ),
        (
            lambda x: tp.iterate(lambda carry: 1.0, 2)(x),
            "operand 0 of `iterate/result` is not a value of the program\n"
            "  got float: 1.0\n"
            "  Pass arrays as arguments of the program; numbers may stand in arithmetic.",
        ),
        (
            lambda x: MATMUL.bind(W1)(x),
            "`matmul` holds arrays that this program does not know\n"
            "  Trace it as an arrow (f >> g), or pass it, or its arrays, as an argument of the program.",
        ),
    ],
)
def test_what_a_program_cannot_do_is_refused(function: Any, text: str) -> None:
    with pytest.raises(GraphError) as caught:
        tp.trace(function, X)
    assert str(caught.value) == text


def test_operands_by_keyword_are_refused() -> None:
    with pytest.raises(GraphError) as caught:
        mlp(X, w1=W1, w2=W2)
    assert str(caught.value) == (
        "`mlp` takes its operands by position\n"
        "  got the keywords w1, w2\n"
        "  Pass them in order; what is no array goes into the function with functools.partial."
    )


def test_only_programs_are_traced() -> None:
    with pytest.raises(GraphError) as caught:
        tp.trace(3, X)  # pyright: ignore[reportArgumentType]
    assert str(caught.value) == (
        "only programs can be traced\n"
        "  got int: 3\n"
        "  Pass an arrow, a tp.program, a module of tp.nnx, or a function of values."
    )


def test_a_program_without_inputs_returns_values_too() -> None:
    with pytest.raises(GraphError, match="returns something that is not a value of the program"):
        tp.trace(lambda: 1)


def test_a_wrong_number_of_operands_meets_the_signature() -> None:
    with pytest.raises(tp.SignatureError, match="`mlp` takes 3 operands, got 2"):
        mlp(X, W1)


def _leaked(x: Any) -> Any:
    kept: list[Any] = []
    tp.iterate(lambda carry: kept.append(carry + 1) or carry, 2)(x)
    return kept[0]


def test_loops_capture_the_values_around_them() -> None:
    def run(x: Any, scales: Any, y: Any) -> Any:
        shift = y * 2

        def layer(carry: Any, scale: Any) -> Any:
            # An outer value first, one from inside an inner loop, one that is used twice, and one returned as it is.
            inner = tp.iterate(lambda part: y * part + shift + scale, 2)(carry[0])
            return inner + shift, y

        return tp.stack(layer, 3)((x, x), scales)

    x, scales, y = np.float32([1.0, -2.0]), np.float32([[0.5, 1.0], [1.5, 2.0], [-1.0, 0.25]]), np.float32([0.5, 0.3])
    expected = x
    for scale in scales:
        for _ in range(2):
            expected = y * expected + 2 * y + scale
        expected = expected + 2 * y
    graph = tp.trace(run, x, scales, y)
    first, last = graph(x, scales, y)
    np.testing.assert_allclose(first, expected, rtol=1e-6)
    np.testing.assert_array_equal(last, y)
    (loop,) = (node for node in graph.nodes if isinstance(node, Loop))
    assert len(loop.operands) == 2 + 1 + 2  # carries, scales; then `y` and `shift`, each once
    assert tp.Graph.from_json(graph.to_json())(x, scales, y)[0].tolist() == first.tolist()


def test_values_of_two_programs_do_not_mix() -> None:
    kept: list[Any] = []
    tp.trace(lambda x: kept.append(x) or x + 1, X)
    with pytest.raises((GraphError, CompositionError), match="belongs to another program"):
        tp.trace(lambda x: x + kept[0], X)


def test_a_suggested_name_is_not_taken_beside_its_own_in_another_tensor() -> None:
    """A part of a sequence does not show that its second axis cannot be `seq`."""

    @tp.program("batch seq embed -> batch seq cell")
    def layer(x: Any) -> Any:
        return x.rename(embed="cell")

    x = TensorType.make((None, None, "seq", "embed"), (2, 4, 4, 3), jnp.float32)
    graph = tp.trace(lambda x: (layer(x[..., 0, :]), x), x)
    assert [graph.type_of(ref).names for _, ref in graph.outputs] == [
        ("batch", "seq_1", "cell"),
        ("batch", "seq_1", "seq", "embed"),
    ]


SQUARE = np.random.default_rng(0).normal(size=(3, 3)).astype("float32")


def swapped(x: Any) -> Any:
    y = x - 2 * x.transpose()
    return (y * x - y.transpose()).transpose() + y


def summed(x: Any) -> Any:
    y = x - 2 * tp.einsum("i j -> j i")(x)
    return tp.einsum("i j, j i -> ")(y, y)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (swapped, swapped(SQUARE)),
        (summed, np.einsum("ij, ji", *[SQUARE - 2 * SQUARE.T] * 2)),
        (
            lambda x: tp.iterate(lambda x: x.transpose() - 2 * x, 3)(x),
            -27 * (SQUARE - SQUARE.T) / 2 - (SQUARE + SQUARE.T) / 2,
        ),
    ],
)
def test_axes_without_names_meet_by_position_where_a_tensor_has_both(function: Any, expected: Any) -> None:
    np.testing.assert_allclose(tp.trace(function, SQUARE)(SQUARE), expected, rtol=1e-5)


def test_axes_without_names_that_cannot_be_told_apart_are_refused_where_they_meet() -> None:
    with pytest.raises(CompositionError) as caught:
        tp.trace(lambda x: tp.einsum("i k, k n -> i n")(x, x), SQUARE)
    assert "`k` is an unnamed axis (axis 1 of `x`) on operand 0" in str(caught.value)
    assert str(caught.value).endswith(
        'Name the axes, with a tp.TensorType or a signature of the program, then rename one: k.rename(seq="keys").'
    )


def test_values_that_outlive_their_program_are_refused_where_they_are_used() -> None:
    kept: list[Any] = []

    @tp.program("a b -> a b")
    def keeps(x: Any) -> Any:
        kept.append(GELU(x))
        return kept[-1]

    keeps(jnp.ones((2, 3)))
    (left,) = kept
    uses = {
        "add": lambda: left + 1,
        "rename": lambda: left.rename(a="z"),
        "transpose": lambda: left.T,
        "slice": lambda: left[0],
        "Sum": lambda: tp.fold(tp.aggregators.Sum(), "a b -> b")(left),
        "iterate": lambda: tp.iterate(GELU, 2)(left),
        "gelu": lambda: keeps(left),
    }
    for name, use in uses.items():
        with pytest.raises(GraphError, match=f"`{name}` is given a value of a program that was traced already"):
            use()
    with pytest.raises(GraphError, match=r"traced already|belongs to another program"):
        tp.trace(lambda x: x + left, jnp.ones((2, 3)))
