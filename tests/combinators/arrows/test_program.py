"""Programs: signatures that name, check and bind; nesting; what they refuse."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import combinators as tp
from combinators import CompositionError, GraphError, SignatureError, TensorType

MATMUL = tp.Reduce(jnp.matmul, "i k, k n -> i n", tp.monoids.Sum)
SOFTMAX = tp.Map(jax.nn.softmax, "... [c] -> ... [c]")
X, W = jnp.arange(6.0).reshape(2, 3), jnp.ones((3, 4))


@tp.program("b e, e m -> b m")
def linear(x: Any, w: Any) -> Any:
    """Multiply."""
    return MATMUL(x, w)


def test_a_program_looks_like_its_function() -> None:
    assert (linear.name, linear.__doc__, linear.arity) == ("linear", "Multiply.", 2)
    assert repr(linear) == "Program(linear: b e, e m -> b m)"


@pytest.mark.parametrize(
    "decorate",
    [tp.program, tp.program(), tp.program("b e -> b e"), tp.program("... -> ..."), tp.program("b [e] -> b [e]")],
)
def test_signatures_are_optional_and_may_be_loose(decorate: Any) -> None:
    np.testing.assert_allclose(decorate(lambda x: SOFTMAX(x))(X), jax.nn.softmax(X), rtol=1e-6)


def test_whole_dimensions_of_a_signature_name_axes_and_agree_in_size() -> None:
    program = tp.program("b [c], [c] d -> b [d]")(lambda x, w: MATMUL(x, w))
    graph = tp.trace(program, X, W)
    assert [node.results[0].names for node in graph.inputs] == [("b", "c"), ("c", "d")]
    assert graph.type_of(graph.outputs[0][1]).names == ("b", "d")
    with pytest.raises(SignatureError, match=r"`c` is 4 here, and 3 by operand 0 of shape \(2, 3\)"):
        program(X, W.T)


def test_a_whole_result_names_an_axis_that_nothing_else_names() -> None:
    program = tp.program("b h d -> b [model]")(tp.rearrange("b h d -> b (h d)"))
    graph = tp.trace(program, jnp.ones((2, 3, 4)))
    assert graph.type_of(graph.outputs[0][1]) == TensorType({"b": 2, "model": 12})


def test_a_result_names_what_is_anonymous() -> None:
    program = tp.program("b h d -> b model")(tp.rearrange("b h d -> b (h d)"))
    graph = tp.trace(lambda x: program(x), TensorType({"batch": 2, "heads": 3, "head": 4}))
    names = graph.type_of(graph.outputs[0][1]).names
    assert names[0] == "batch"


def test_composite_axes_of_a_signature_check_sizes() -> None:
    run = tp.program("(b s) e, b s -> (b s) e")(lambda x, ids: x)
    np.testing.assert_array_equal(run(jnp.ones((6, 2)), jnp.ones((2, 3))), np.ones((6, 2)))
    with pytest.raises(SignatureError, match="`\\(b s\\)` is 2 \\* 3, which is not 5"):
        run(jnp.ones((5, 2)), jnp.ones((2, 3)))


def test_programs_nest_in_scopes() -> None:
    outer = tp.program("b e, e m -> b m")(lambda x, w: SOFTMAX(linear(x, w)))
    graph = tp.trace(tp.program(lambda x, w: outer(x, w)), X, W)
    assert [node.path for node in graph.nodes[2:]] == ["lambda/linear/matmul", "lambda/softmax"]


def test_programs_compose_with_arrows() -> None:
    arrow = linear.bind(W) >> SOFTMAX
    np.testing.assert_allclose(arrow(X), jax.nn.softmax(X @ W), rtol=1e-6)
    with pytest.raises(CompositionError, match="they differ in rank, 3 and 2"):
        tp.rearrange("b (h d) -> b h d", h=3) >> linear.bind(W)


def test_pytrees_are_operands_of_programs_without_a_signature() -> None:
    program = tp.program(lambda params, x: MATMUL(x, params["w"]) + params["b"])
    np.testing.assert_allclose(program({"w": W, "b": jnp.ones(4)}, X), X @ W + 1, rtol=1e-6)


def test_jit_grad_and_vmap_work() -> None:
    np.testing.assert_allclose(jax.jit(linear)(X, W), X @ W, rtol=1e-6)
    np.testing.assert_allclose(
        jax.jit(jax.grad(lambda w: linear(X, w).sum()))(W), jnp.tile(X.sum(0)[:, None], 4), rtol=1e-6
    )
    np.testing.assert_allclose(
        jax.jit(jax.vmap(linear, (None, 0)))(X, jnp.stack([W, 2 * W])), [X @ W, 2 * X @ W], rtol=1e-6
    )


@pytest.mark.parametrize(
    ("build", "error", "text"),
    [
        (
            lambda: tp.program("b, @b -> b"),
            SignatureError,
            "a program takes no coordinates, and its signature has `@b`\n"
            "  signature b, @b -> b\n"
            '  Take them inside, by tp.index("b", like=x) or by a leaf with `@b`.',
        ),
        (
            lambda: linear(X),
            SignatureError,
            "`linear` takes 2 operands, got 1\n"
            "  signature b e, e m -> b m\n"
            "  Pass one value for each operand of the signature.",
        ),
        (
            lambda: linear(X, w=W),
            GraphError,
            "`linear` takes its operands by position\n"
            "  got the keyword w\n"
            "  Pass them in order; what is no array goes into the function with functools.partial.",
        ),
        (
            lambda: linear(X, W[0]),
            SignatureError,
            "operand 1 of `linear` does not have the axes of its signature.\n"
            "  b e, e m -> b m\n"
            "       ^^^\n"
            "  expected 2 axes, got 1\n"
            "  Pass an operand with 2 axes, or change the signature.",
        ),
        (
            lambda: linear(X, W.T),
            SignatureError,
            "operand 1 of `linear` does not fit its signature.\n"
            "  b e, e m -> b m\n"
            "       ^\n"
            "  its shape is (4, 3)\n"
            "  `e` is 4 here, and 3 by operand 0 of shape (2, 3)\n"
            "  Make the two sizes of `e` equal, or use two names.",
        ),
        (
            lambda: tp.trace(linear, TensorType({"a": 2, "b": 3}), TensorType({"c": 3, "d": 4})),
            CompositionError,
            "`linear` takes one `e`: operand 1 has `c`, an earlier one `b`\n"
            "  signature b e, e m -> b m\n"
            "  Rename one of the operands' axes.",
        ),
        (
            lambda: tp.program("b e -> b e, b e")(lambda x: x)(X),
            SignatureError,
            "`lambda` returns 1 values, its signature names 2\n"
            "  signature b e -> b e, b e\n"
            "  Return one value for each result of the signature.",
        ),
        (
            lambda: tp.program("b e -> b")(lambda x: x)(X),
            SignatureError,
            "`lambda` does not return what its signature says\n"
            "  b e -> b\n"
            "         ^\n"
            "  expected (b), got Value(float32(b=2, e=3))\n"
            "  Mend the signature, or what the function returns.",
        ),
        (
            lambda: tp.trace(tp.program(" -> b")(lambda: np.zeros(3))),
            SignatureError,
            "`lambda` does not return what its signature says\n"
            "   -> b\n"
            "      ^\n"
            "  got ndarray, which is no value of the program\n"
            "  Return values computed from the arguments; a constant comes in as an argument.",
        ),
        (
            lambda: tp.trace(tp.program("b e -> e b")(lambda x: x), TensorType({"batch": 2, "embed": 3})),
            SignatureError,
            "`lambda` does not return what its signature says\n"
            "  b e -> e b\n"
            "         ^\n"
            "  got Value(float32(batch=2, embed=3))\n"
            "  this axis is `b` of operand 0, and not `e`\n"
            "  Mend the signature, or what the function returns.",
        ),
        (
            lambda: linear([1.0, 2.0], W),
            GraphError,
            "operand 0 of `linear` is not a value of the program\n"
            "  got list: [Value(float32()), Value(float32())]\n"
            "  Pass arrays as arguments of the program; numbers may stand in arithmetic.",
        ),
        (
            lambda: linear("x", W),
            GraphError,
            "an argument of `linear` is not an array\n"
            "  expected a jax or numpy array, a number, a jax.ShapeDtypeStruct or a tp.TensorType\n"
            "  got str: 'x'\n"
            "  Convert it with jnp.asarray, or keep what is not an array outside the program.",
        ),
    ],
)
def test_what_is_no_program_is_refused(build: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error) as caught:
        build()
    assert str(caught.value) == text
