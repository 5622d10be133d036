"""Attention of half precision: derivatives are products of half precision, and keep its digits."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tapestry_jax as tp
from tests.tapestry_jax.draw import normal

ENTRIES: dict[str, dict[str, Any]] = {"whole": {}, "chunks": {"keys": tp.chunks(3)}}


@tp.program("h q d, h keys d, h keys e -> h q e")
def attention(q, k, v):
    return tp.attention(q, k, v)


def slopes(run: Any) -> Any:
    def total(q: Any, k: Any, v: Any) -> Any:
        out = run(q, k, v)
        return jnp.sum(out * jnp.sin(jnp.arange(out.size, dtype=jnp.float32)).reshape(out.shape).astype(out.dtype))

    return jax.grad(total, (0, 1, 2))


def plain(q: Any, k: Any, v: Any) -> Any:
    weights = jax.nn.softmax(jnp.einsum("hqd,hkd->hqk", q, k) * q.shape[-1] ** -0.5)
    return jnp.einsum("hqk,hke->hqe", weights, v)


def operands_of_products(jaxpr: Any) -> list[set[str]]:
    found = [
        {str(v.aval.dtype) for v in equation.invars}
        for equation in jaxpr.eqns
        if equation.primitive.name == "dot_general"
    ]
    for equation in jaxpr.eqns:
        for value in jax.tree.leaves(tuple(equation.params.values()), is_leaf=lambda x: hasattr(x, "eqns")):
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                found += operands_of_products(inner)
    return found


@pytest.mark.parametrize(
    ("plan", "dtype"),
    [
        *(("whole", "bfloat16"), ("chunks", "float16")),
        *(pytest.param(*each, marks=pytest.mark.thorough) for each in (("whole", "float16"), ("chunks", "bfloat16"))),
    ],
)
def test_derivatives_of_halves_are_products_of_halves(plan: str, dtype: str) -> None:
    args = [normal(2, 12, 8, seed=seed).astype(dtype) for seed in range(3)]
    run = tp.plan(tp.trace(attention, *args), tp.mesh(data=1), ENTRIES[plan]).compile()
    products = operands_of_products(jax.make_jaxpr(slopes(run.jitted))(*args).jaxpr)
    assert len(products) >= 6 and all(kinds == {dtype} for kinds in products)
    found, expected = slopes(run)(*args), slopes(plain)(*(arg.astype(jnp.float32) for arg in args))
    for got, want in zip(found, expected, strict=True):
        assert got.dtype == dtype
        off = np.linalg.norm(np.asarray(got, np.float32) - want) / np.linalg.norm(want)
        assert off < {"bfloat16": 1e-2, "float16": 2e-3}[dtype]


def test_halves_have_derivatives_of_both_modes() -> None:
    args = [normal(2, 12, 8, seed=seed).astype(jnp.bfloat16) for seed in range(3)]
    run = tp.plan(tp.trace(attention, *args), tp.mesh(data=1), {"keys": tp.chunks(2)}).compile()
    moved = [jnp.ones_like(arg) for arg in args]
    _, found = jax.jvp(run, args, moved)
    _, expected = jax.jvp(plain, *([each.astype(jnp.float32) for each in some] for some in (args, moved)))
    np.testing.assert_allclose(np.asarray(found, np.float32), expected, atol=0.05)
