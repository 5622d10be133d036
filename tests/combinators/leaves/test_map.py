"""Maps: whole axes, windows, boundaries, coordinates, dense kernels."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import combinators as tp
from combinators import CompositionError, KernelError, SignatureError
from combinators.index_space.boundary import BOUNDARIES
from tests.boundaries import PADS

X = np.random.default_rng(0).normal(size=(4, 6)).astype(np.float32)


def test_an_elementwise_map_needs_no_signature() -> None:
    np.testing.assert_allclose(tp.Map(jax.nn.gelu)(X), jax.nn.gelu(X), rtol=1e-6)


def test_an_ellipsis_takes_any_leading_axes() -> None:
    softmax = tp.Map(jax.nn.softmax, "... [c] -> ... [c]")
    for x in (X[0], X, X.reshape(2, 2, 6)):
        np.testing.assert_allclose(softmax(x), jax.nn.softmax(x), rtol=1e-6)


def test_a_map_may_give_several_results_and_transpose() -> None:
    both = tp.Map(lambda x: (x.T, x.max(1)), "r [c] -> [c] r, r")
    transposed, largest = both(X)
    np.testing.assert_array_equal(transposed, X.T)
    np.testing.assert_array_equal(largest, X.max(1))


def test_a_map_sums_what_it_sees_whole() -> None:
    np.testing.assert_allclose(tp.Map(lambda a, b: a @ b, "i [k], [k] n -> i n")(X, X.T), X @ X.T, rtol=1e-5)


def test_coordinates_are_global_int32_vectors() -> None:
    add_index = tp.Map(lambda x, at: x + at[:, None].astype(x.dtype), "r c, @r -> r c")
    np.testing.assert_allclose(add_index(X), X + np.arange(4)[:, None], rtol=1e-6)


def test_generated_dimensions_take_their_given_size() -> None:
    one_hot = tp.Map(lambda x, at: (x[:, None] == at[None]).astype(jnp.int32), "b, @k -> b k", sizes={"k": 5})
    np.testing.assert_array_equal(one_hot(jnp.array([1, 4, 7])), np.eye(8, dtype=np.int32)[[1, 4, 7], :5])


def test_broadcast_axes_are_written_1() -> None:
    add = tp.Map(lambda a, b: a + b, "1 c, r c -> r c")
    np.testing.assert_array_equal(add(X[:1], X), X[:1] + X)
    np.testing.assert_array_equal(tp.Map(lambda a: a[:, None], "c -> c 1")(X[0]), X[0][:, None])


def test_anonymous_axes_of_size_one_bind_like_others() -> None:
    np.testing.assert_array_equal(
        tp.Map(lambda a, b: a - b, "r c, r c -> r c")(X[:1, :1], X[1:2, :1]), X[:1, :1] - X[1:2, :1]
    )


# What NumPy calls the boundaries; a new one needs its name here.


def windows(x: Any) -> Any:
    """Weighted sum over a window of five, weights 1 to 5."""
    return sum((k + 1) * x[k : x.shape[0] - 4 + k] for k in range(5))


def test_every_boundary_has_its_name_in_numpy() -> None:
    assert {"valid", *PADS} == {*BOUNDARIES}


@pytest.mark.parametrize("boundary", BOUNDARIES[1:])
@pytest.mark.parametrize("offset", [0, 1, 2, 4])
def test_boundaries_are_those_of_numpy_pad(boundary: str, offset: int) -> None:
    x = X[:, 0].repeat(2)
    result = tp.Map(windows, f"(y+[dy]-{offset}) -> y", sizes={"dy": 5}, boundary=boundary)(x)
    padded = np.pad(x, (offset, 4 - offset), mode=PADS[boundary])
    np.testing.assert_allclose(result, windows(padded), rtol=1e-5, atol=1e-5)


def test_a_valid_window_gives_what_it_can_read() -> None:
    result = tp.Map(windows, "(y+[dy]) -> y", sizes={"dy": 5})(X[0])
    np.testing.assert_allclose(result, windows(X[0]), rtol=1e-5, atol=1e-5)
    assert result.shape == (2,)


def test_each_window_axis_may_have_its_own_boundary() -> None:
    def box(x: Any) -> Any:
        return sum(x[i : x.shape[0] - 2 + i, j : x.shape[1] - 2 + j] for i in range(3) for j in range(3))

    blur = tp.Map(box, "(y+[dy]-1) (x+[dx]-1) -> y x", sizes={"dy": 3, "dx": 3}, boundary=("edge", "periodic"))
    padded = np.pad(np.pad(X, ((1, 1), (0, 0)), mode="edge"), ((0, 0), (1, 1)), mode="wrap")
    np.testing.assert_allclose(blur(X), box(padded), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("boundary", ["zero", "edge"])
def test_strided_windows_keep_the_ceiling_of_their_size(boundary: str) -> None:
    def pairs(x: Any) -> Any:
        return x[:-1:2] + x[1::2]

    halve = tp.Map(pairs, "(2*y+[dy]) -> y", sizes={"dy": 2}, boundary=boundary)
    x = np.arange(7.0, dtype=np.float32)
    np.testing.assert_array_equal(halve(x), [1, 5, 9, 6 + (6 if boundary == "edge" else 0)])


def test_reversed_and_dilated_windows_read_what_they_say() -> None:
    x = np.arange(10.0, dtype=np.float32)
    flip = tp.Map(lambda x: x[::-1], "(-y+9) -> y", sizes={"y": 10})
    np.testing.assert_array_equal(flip(x), x[::-1])
    dilated = tp.Map(lambda x: x[:-4] + x[4:], "(y+4*[dy]) -> y", sizes={"dy": 2})
    np.testing.assert_array_equal(dilated(x), x[:-4] + x[4:])


def test_an_iterated_window_applies_its_boundary_at_every_step() -> None:
    blur = tp.Map(lambda x: x[2:] + x[:-2], "(y+[dy]-1) -> y", sizes={"dy": 3}, boundary="periodic")
    x = X[0]
    expected = x
    for _ in range(4):
        expected = np.roll(expected, -1) + np.roll(expected, 1)
    np.testing.assert_allclose(tp.iterate(blur, 4)(x), expected, rtol=1e-5, atol=1e-5)


def test_a_dense_kernel_runs_where_nothing_is_cut() -> None:
    # They do not agree, so that the result tells which one ran.
    graph = tp.trace(tp.Map(jnp.exp, "r c -> r c", dense=lambda x: jnp.exp(x) + 1), X)
    np.testing.assert_allclose(graph(X), np.exp(X) + 1, rtol=1e-5)


def test_jit_grad_and_vmap_of_a_windowed_map_are_those_of_jax() -> None:
    blur = tp.Map(windows, "(y+[dy]-2) -> y", sizes={"dy": 5}, boundary="zero")

    def reference(x: Any) -> Any:
        return windows(jnp.pad(x, 2))

    np.testing.assert_allclose(jax.jit(blur)(X[0]), reference(X[0]), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(jax.jit(jax.vmap(blur))(X), jax.jit(jax.vmap(reference))(X), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(
        jax.jit(jax.grad(lambda x: (blur(x) ** 2).sum()))(X[0]),
        jax.jit(jax.grad(lambda x: (reference(x) ** 2).sum()))(X[0]),
        rtol=1e-4,
        atol=1e-4,
    )


def test_empty_tensors_are_mapped() -> None:
    assert tp.Map(jnp.sin)(jnp.ones((0, 3))).shape == (0, 3)
    assert tp.Map(jax.nn.softmax, "... [c] -> ... [c]")(jnp.ones((3, 0))).shape == (3, 0)


def fails(x: Any) -> Any:
    raise ValueError("three axes, please")


@pytest.mark.parametrize(
    ("build", "error", "text"),
    [
        (
            lambda: tp.Map(jax.nn.softmax),
            KernelError,
            "tp.Map(softmax) is not elementwise: it uses reduce_max along the last axis.\n"
            '  Give it a signature: tp.Map(jax.nn.softmax, "... [c] -> ... [c]")',
        ),
        (
            lambda: tp.Map(jnp.sum, "i k -> i"),
            SignatureError,
            "tp.Map(sum) folds `k` without a monoid\n"
            "  signature i k -> i\n"
            "  Use tp.Reduce with a monoid, or write [k] if the kernel needs all.",
        ),
        (
            lambda: tp.Map(jnp.sin, boundary="zero", sizes={"a": 1}),
            SignatureError,
            "tp.Map(sin) has no signature that `sizes`, `boundary` could refer to\n"
            "  Give it a signature, or leave them out.",
        ),
        (
            lambda: tp.Map(jnp.sin, "x -> x", boundary="wrap"),
            SignatureError,
            "tp.Map(sin) has the unknown boundary 'wrap'\n"
            f"  expected one of {', '.join(BOUNDARIES)}\n"
            "  Name one mode, or one for each window axis.",
        ),
        (
            lambda: tp.Map(jnp.sin, "x -> x", pad=(0, 0)),
            SignatureError,
            "tp.Map(sin) declares 2 neutral values for 1 operands\n  Give one value, or None, for each array operand.",
        ),
        (
            lambda: tp.Map(lambda x: x.sum(1), "r c -> r c")(X),
            SignatureError,
            "the kernel of `lambda` returns another shape than its signature says\n"
            "  signature r c -> r c\n"
            "  result (r c): expected (4, 6), got (4,)\n"
            "  Mend the kernel, or the signature's results.",
        ),
        (
            lambda: tp.Map(lambda x: (x, x), "r c -> r c, r c, r c")(X),
            SignatureError,
            "`lambda` returns 2 arrays\n"
            "  signature r c -> r c, r c, r c names 3 results\n"
            "  Return one array for each result of the signature.",
        ),
        (
            lambda: tp.Map(fails, "r c -> r c")(X),
            SignatureError,
            "the kernel of `fails` does not take its blocks\n"
            "  signature r c -> r c\n"
            "  blocks    float32[4, 6]\n"
            "  kernel    ValueError: three axes, please\n"
            "  Make the kernel and the signature agree: blocks come in the signature's axis order.",
        ),
        (
            lambda: tp.Map(jnp.add)(X, X.T),
            SignatureError,
            "operand 1 of `add` does not fit its signature.\n"
            "  d0 d1, d0 d1 -> d0 d1\n"
            "         ^^\n"
            "  its shape is (6, 4)\n"
            "  `d0` is 6 here, and 4 by operand 0 of shape (4, 6)\n"
            "  Make the two sizes of `d0` equal, or use two names.",
        ),
        (
            lambda: tp.trace(tp.Map(jnp.sin, "r c -> c r"), tp.TensorType({"a": 2})),
            SignatureError,
            "operand 0 of `sin` does not have the axes of its signature.\n"
            "  r c -> c r\n"
            "  ^^^\n"
            "  expected 2 axes, got 1\n"
            "  Pass an operand with 2 axes, or change the signature.",
        ),
        (
            lambda: tp.trace(
                tp.Map(lambda x: x.reshape(2, 2, 3), "r [c] -> r p q", sizes={"p": 2, "q": 3}),
                tp.TensorType({"p": 2, "c": 6}),
            ),
            CompositionError,
            "`lambda` meets `p` as two dimensions, `r` and `p`\n"
            "  signature r [c] -> r p q\n"
            '  Rename one operand first, as in k.rename(p="keys").',
        ),
    ],
)
def test_what_is_no_map_is_refused(build: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error) as caught:
        build()
    assert str(caught.value) == text


def test_a_kernel_that_closes_over_an_array_is_refused() -> None:
    weights = jnp.ones(3)
    with pytest.raises(KernelError) as caught:
        tp.Map(lambda x: x + weights)
    assert str(caught.value) == (
        "tp.Map(lambda) has a kernel that closes over arrays.\n"
        "  `weights` in the closure of `lambda` is an array, float32[3]\n"
        "  Pass it as an operand."
    )
