"""Einsum against NumPy."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import combinators as tp
from combinators import SignatureError

RNG = np.random.default_rng(0)


def array(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.normal(size=shape).astype(np.float32)


@pytest.mark.parametrize(
    ("signature", "subscripts", "shapes"),
    [
        ("b s k, k h d -> b s h d", "bsk,khd->bshd", [(2, 3, 4), (4, 2, 5)]),
        ("i k, k n -> n i", "ik,kn->ni", [(2, 3), (3, 4)]),
        ("... k, k n -> ... n", "...k,kn->...n", [(2, 5, 3), (3, 4)]),
        ("i, j -> i j", "i,j->ij", [(3,), (4,)]),
        ("i j -> j i", "ij->ji", [(3, 4)]),
        ("i, i ->", "i,i->", [(3,), (3,)]),
        ("i [k], [k] n -> i n", "ik,kn->in", [(2, 3), (3, 4)]),
        ("a b, b c, c d -> a d", "ab,bc,cd->ad", [(2, 3), (3, 4), (4, 2)]),
        ("b s k, k n -> b s n", "bsk,kn->bsn", [(0, 3, 2), (2, 4)]),
    ],
)
def test_einsum_is_that_of_numpy(signature: str, subscripts: str, shapes: list[tuple[int, ...]]) -> None:
    operands = [array(*shape) for shape in shapes]
    result = tp.einsum(signature)(*operands)
    np.testing.assert_allclose(result, np.einsum(subscripts, *operands), rtol=1e-5, atol=1e-5)


def test_einsum_folds_with_sum_only_where_something_is_summed() -> None:
    assert tp.einsum("i k, k n -> i n").operation.monoid is tp.monoids.Sum
    assert tp.einsum("i, j -> i j").operation.kind == "map"


def test_gradients_are_those_of_jax() -> None:
    x, w = array(2, 3), array(3, 4)
    ours = jax.jit(jax.grad(lambda x: (tp.einsum("i k, k n -> i n")(x, w) ** 2).sum()))(x)
    np.testing.assert_allclose(ours, jax.jit(jax.grad(lambda x: ((x @ w) ** 2).sum()))(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("signature", "why"),
    [
        ("(2*y+k), k -> y", "the axis `(2*y+k)` is not a bare dimension"),
        ("a, @a -> a", "`@a` is a coordinate"),
        ("a -> a, a", "it needs operands and one result"),
        ("a -> a b", "`b` stands only on the right"),
    ],
)
def test_what_has_no_subscripts_is_refused(signature: str, why: str) -> None:
    with pytest.raises(SignatureError) as caught:
        tp.einsum(signature)
    assert str(caught.value) == (
        "tp.einsum cannot make a kernel for this signature\n"
        f"  signature {signature}\n"
        f"  {why}\n"
        "  Write the kernel: tp.Reduce(kernel, signature, monoid), or rearrange before."
    )
