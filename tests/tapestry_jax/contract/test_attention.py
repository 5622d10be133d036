"""The contract on attention: keys folded over mesh axes by a frame, queries and heads mapped, causal and masked."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tapestry_jax as tp
from tests.contract import assert_holds
from tests.tapestry_jax.draw import named, normal

BATCH, HEADS, WIDTH = 2, 4, 4
AXES = "batch seq heads d, batch keys heads d, batch keys heads d"


def operands(length):
    return tuple(normal(BATCH, length, HEADS, WIDTH, seed=seed) for seed in range(3))


def causal(q, k, v):
    return tp.attention(q, k, v, causal=True)


@jax.jit
def reference_causal(q, k, v):
    return jax.nn.dot_product_attention(q, k, v, is_causal=True)


@pytest.mark.parametrize(
    ("length", "entries"),
    [
        # Heads are cut beside projections below, and what divides evenly sends as what does not.
        pytest.param(8, {"batch": "data", "heads": "model"}, marks=pytest.mark.thorough),
        pytest.param(8, {"seq": "data", "keys": "model"}, marks=pytest.mark.thorough),
        pytest.param(6, {"seq": "model", "batch": "data"}, marks=pytest.mark.thorough),
        (6, {"seq": "data", "keys": "model"}),
        pytest.param(6, {"keys": ("model", "data")}, marks=pytest.mark.thorough),
    ],
    ids=str,
)
def test_contract_causal_attention(mesh2x4, length, entries):
    args = operands(length)
    plan = tp.plan(tp.trace(causal, *named(AXES, *args)), mesh2x4, entries)
    assert_holds(plan, args, reference=reference_causal)


def test_contract_masked_and_biased_attention(mesh2x4):
    # Seven keys on four devices; the last query sees no key at all.
    q, k, v = normal(BATCH, 5, HEADS, WIDTH), *operands(7)[1:]
    mask = jnp.asarray(np.random.default_rng(3).random((BATCH, 5, 7)) < 0.6).at[:, :, 0].set(True).at[:, 4].set(False)
    bias = normal(HEADS, 5, 7, seed=4)
    args = (q, k, v, mask, bias)

    def masked(q, k, v, mask, bias):
        return tp.attention(q, k, v, mask=mask, bias=bias)

    @jax.jit
    def reference(q, k, v, mask, bias):
        seen = jax.nn.dot_product_attention(q, k, v, bias=bias[None], mask=mask[:, None])
        return jnp.where(mask.any(-1)[:, :, None, None], seen, 0)

    graph = tp.trace(masked, *named(AXES + ", batch seq keys, heads seq keys", *args))
    assert_holds(tp.plan(graph, mesh2x4, {"heads": "data", "keys": "model"}), args, reference=reference)


def test_contract_self_attention_with_projections(mesh2x4):
    # Tensor parallel over the heads: one all-reduce forwards, whatever the number of projections.
    project, back = tp.einsum("b s e, e h d -> b s h d"), tp.einsum("b s h d, h d f -> b s f")

    @tp.program("batch seq embed, embed heads d, embed heads d, embed heads d, heads d out -> batch seq out")
    def block(x, wq, wk, wv, wo):
        q, k, v = (project(x, w) for w in (wq, wk, wv))
        return back(tp.attention(q, k.rename(seq="keys"), v.rename(seq="keys")), wo)

    @jax.jit
    def reference(x, wq, wk, wv, wo):
        q, k, v = (jnp.einsum("bse,ehd->bshd", x, w) for w in (wq, wk, wv))
        return jnp.einsum("bshd,hdf->bsf", jax.nn.dot_product_attention(q, k, v), wo)

    args = (normal(2, 5, 8), *(normal(8, 4, 4, seed=seed, scale=0.3) for seed in range(3)), normal(4, 4, 8, seed=4))
    plan = tp.plan(tp.trace(block, *args), mesh2x4, {"batch": "data", "heads": "model"})
    assert_holds(plan, args, reference=reference)
    assert [(each.kind, each.axes) for each in plan.collectives()] == [("all-reduce", ("model",))]
