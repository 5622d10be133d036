"""Rearrange against reshape and transpose of NumPy."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import combinators as tp
from combinators import SignatureError

X = np.arange(2 * 6 * 12, dtype=np.float32).reshape(2, 6, 12)


@pytest.mark.parametrize(
    ("signature", "sizes", "expected"),
    [
        ("b s e -> b e s", {}, X.transpose(0, 2, 1)),
        ("b s (h d) -> b s h d", {"h": 4}, X.reshape(2, 6, 4, 3)),
        ("b s (h d) -> b h s d", {"d": 4}, X.reshape(2, 6, 3, 4).transpose(0, 2, 1, 3)),
        ("b s e -> (b s) e", {}, X.reshape(12, 12)),
        ("b s e -> (s b) e", {}, X.transpose(1, 0, 2).reshape(12, 12)),
        ("b (s t) (h d) -> (b t) h (s d)", {"t": 3, "h": 4},
         X.reshape(2, 2, 3, 4, 3).transpose(0, 2, 3, 1, 4).reshape(6, 4, 6)),
        ("... (h d) -> ... d h", {"h": 4}, X.reshape(2, 6, 4, 3).swapaxes(-1, -2)),
        ("b [s] e -> e b [s]", {}, X.transpose(2, 0, 1)),
        ("b s e -> b 1 s e", {}, X[:, None]),
        ("b s (h w c) -> b s c w h", {"h": 2, "w": 3}, X.reshape(2, 6, 2, 3, 2).transpose(0, 1, 4, 3, 2)),
    ],
)  # fmt: skip
def test_rearrange_is_reshape_and_transpose(signature: str, sizes: dict[str, int], expected: Any) -> None:
    np.testing.assert_array_equal(tp.rearrange(signature, **sizes)(X), expected)


@pytest.mark.parametrize("signature", ["b s (h d) -> h b s d", "b s e -> e (b s)", "(a b) s e -> s (e a) b"])
def test_the_mirrored_signature_undoes_a_rearrangement(signature: str) -> None:
    sizes = {"h": 3} if "h" in signature else {"a": 2, "e": 12} if "a" in signature else {"b": 2}
    left, right = signature.split(" -> ")
    there, back = tp.rearrange(signature, **sizes), tp.rearrange(f"{right} -> {left}", **sizes)
    np.testing.assert_array_equal((there >> back)(X), X)


def test_a_block_of_the_outermost_part_is_rearranged_by_the_same_kernel() -> None:
    graph = tp.trace(tp.rearrange("b s (h d) -> b h s d", h=4), X)
    kernel = graph.nodes[1].operation.kernel  # pyright: ignore[reportAttributeAccessIssue]
    np.testing.assert_array_equal(kernel(X[..., 3:9]), X.reshape(2, 6, 4, 3)[:, :, 1:3].transpose(0, 2, 1, 3))


def test_gradients_and_empty_tensors_pass_through() -> None:
    split = tp.rearrange("b s (h d) -> h b s d", h=4)
    gradient = jax.jit(jax.grad(lambda x: (split(x) * 2).sum()))(X)
    np.testing.assert_array_equal(gradient, np.full_like(X, 2))
    assert split(X[:0]).shape == (4, 0, 6, 3)


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (
            lambda: tp.rearrange("b s e -> b s"),
            "tp.rearrange moves the dimensions of one operand, and keeps all of them\n"
            "  signature b s e -> b s\n"
            "  Fold with tp.fold or tp.Reduce, read windows with tp.Map.",
        ),
        (
            lambda: tp.rearrange("b s e -> b s e f")(X),
            "the operands of `rearrange` do not give the size of `f`.\n"
            "  b s e -> b s e f\n"
            "                 ^\n"
            "  the operands are (2, 6, 12)\n"
            "  Give it by sizes=dict(f=...).",
        ),
        (
            lambda: tp.rearrange("(2*b+s) -> b s"),
            "tp.rearrange moves the dimensions of one operand, and keeps all of them\n"
            "  signature (2*b+s) -> b s\n"
            "  Fold with tp.fold or tp.Reduce, read windows with tp.Map.",
        ),
        (
            lambda: tp.rearrange("b s (h d) -> b s h d", h=5)(X),
            "operand 0 of `rearrange` does not fit its signature.\n"
            "  b s (h d) -> b s h d\n"
            "      ^^^^^\n"
            "  its shape is (2, 6, 12)\n"
            "  12 is no multiple of 5 * d for any `d`\n"
            "  Make the axis divisible, or change the given sizes.",
        ),
        (
            lambda: tp.rearrange("b s (h d) -> b s h d")(X),
            "the operands of `rearrange` do not give the size of `h`, `d`.\n"
            "  b s (h d) -> b s h d\n"
            "      ^^^^^        ^ ^\n"
            "  the operands are (2, 6, 12)\n"
            "  Give it by sizes=dict(h=..., d=...).",
        ),
    ],
)
def test_what_is_no_rearrangement_is_refused(build: Any, text: str) -> None:
    with pytest.raises(SignatureError) as caught:
        build()
    assert str(caught.value) == text
