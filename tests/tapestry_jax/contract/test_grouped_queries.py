"""Causal attention of grouped queries: several queries of one place share a head of keys."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tapestry_jax as tp
from combinators.numerics.fused_attention import FusedAttention
from tests.contract import assert_contract, assert_same
from tests.tapestry_jax.draw import normal
from tests.thoroughly import but

GROUPED = "heads seq per d, heads keys d, heads keys e -> heads seq per e"
HEADS, PER, WIDTH = 2, 3, 4


@tp.program(GROUPED)
def attend(q: Any, k: Any, v: Any) -> Any:
    return tp.attention(q, k, v, causal="seq")


@jax.jit
def reference(q: Any, k: Any, v: Any) -> Any:
    scores = jnp.einsum("hspd,hkd->hspk", q, k) / np.sqrt(q.shape[-1])
    seen = jnp.arange(q.shape[1])[:, None, None] >= jnp.arange(k.shape[1])
    return jnp.einsum("hspk,hke->hspe", jax.nn.softmax(jnp.where(seen, scores, -jnp.inf)), v)


def operands(length: int) -> tuple[Any, ...]:
    return normal(HEADS, length, PER, WIDTH), normal(HEADS, length, WIDTH, seed=1), normal(HEADS, length, 5, seed=2)


def test_grouped_queries_unplanned() -> None:
    np.testing.assert_allclose(attend(*operands(7)), reference(*operands(7)), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("length", "entries"),
    [
        (6, {"seq": "model", "per": "data", "keys": tp.chunks(2)}),
        # Rings of groups are in chunks below.
        pytest.param(8, {"seq": "model", "keys": tp.ring("model"), "heads": "data"}, marks=pytest.mark.thorough),
        # Stripes without groups are in test_striped.py.
        pytest.param(
            *(8, {"seq": (tp.striped("model"), tp.chunks(2)), "keys": (tp.ring("model"), tp.chunks(2))}),
            marks=pytest.mark.thorough,
        ),
    ],
    ids=["uneven", "ring", "stripes"],
)
def test_grouped_queries_planned(mesh2x4: Any, length: int, entries: Any) -> None:
    plan = tp.plan(tp.trace(attend, *operands(length)), mesh2x4, entries)
    plan.verify()
    # What goes round in every chunk may be taken out of the loop by JAX.
    assert_contract(plan, at_most="striped" in plan.explain())
    assert_same(plan, operands(length), reference=reference)


# What a ring without stripes skips is asked in lowering/on_device/test_skipping.py.
@pytest.mark.parametrize("striped", but([False, True], False), ids=["ring", "stripes"])
def test_grouped_queries_skip_what_they_cannot_see(mesh2x4: Any, striped: bool) -> None:
    # What is computed from values that are not a number is not a number: hidden blocks of keys are never looked at.
    q, k, v = operands(32)
    args = (q, k, v.at[:, 16:].set(jnp.nan))
    placed = tp.striped("model") if striped else "model"
    entries = {"seq": (placed, tp.chunks(4)), "keys": (tp.ring("model"), tp.chunks(4))}
    plan = tp.plan(tp.trace(attend, *args), mesh2x4, entries)
    # Dealt out, a chunk of keys reaches over four times as many places.
    seen = 16 - 8 * striped
    assert not jnp.isnan(plan.compile()(*args)[:, :seen]).any()


def test_the_dimension_is_the_one_that_the_keys_were_renamed_from(mesh2x4: Any) -> None:
    @tp.program("seq embed, embed per d, embed d, embed e -> seq per e")
    def layer(x: Any, to_q: Any, to_k: Any, to_v: Any) -> Any:
        q = tp.einsum("s m, m p d -> s p d")(x, to_q)
        k, v = tp.einsum("s m, m d -> s d")(x, to_k), tp.einsum("s m, m e -> s e")(x, to_v)
        return tp.attention(q, k.rename(seq="keys"), v.rename(seq="keys"), causal=True)

    @jax.jit
    def expected(x: Any, to_q: Any, to_k: Any, to_v: Any) -> Any:
        return reference(jnp.einsum("sm,mpd->spd", x, to_q)[None], (x @ to_k)[None], (x @ to_v)[None])[0]

    args = normal(8, 6), normal(6, 8, 4, seed=1), normal(6, 4, seed=2), normal(6, 3, seed=3)
    plan = tp.plan(tp.trace(layer, *args), mesh2x4, {"seq": "model", "keys": tp.ring("model")})
    np.testing.assert_allclose(plan.compile()(*plan.put(*args)), expected(*args), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("causal", [True, "no", "keys"], ids=repr)
def test_nothing_is_guessed(causal: Any) -> None:
    with pytest.raises(tp.SignatureError) as caught:
        tp.program(GROUPED)(lambda q, k, v: tp.attention(q, k, v, causal=causal))(*operands(4))
    assert str(caught.value) == (
        "causal attention compares one query dimension with `keys`\n"
        f"  the query dimensions are `seq`, `per`, got causal={causal!r}\n"
        '  Name it: causal="seq".'
    )


def test_the_fused_kernel_takes_the_group_for_heads() -> None:
    axes = (("h", "s", "p", "d"), ("h", "k", "d"), ("h", "k", "e"))
    kernel = FusedAttention(*axes, keys="k", queries="s", causal=True, implementation="xla")
    q, k, v = normal(HEADS, 6, PER, WIDTH), normal(HEADS, 6, WIDTH, seed=1), normal(HEADS, 6, WIDTH, seed=2)
    coordinates = jnp.arange(6)
    np.testing.assert_allclose(kernel(q, k, v, coordinates, coordinates), reference(q, k, v), rtol=1e-4, atol=1e-5)


def test_the_fused_kernel_takes_masks_of_a_group() -> None:
    axes: dict[str, Any] = {"query": ("h", "s", "p", "d"), "key": ("h", "k", "d"), "value": ("h", "k", "e")}
    kernel = functools.partial(FusedAttention, **axes, keys="k", queries="s", causal=True, implementation="xla")
    q, k, v = normal(HEADS, 6, PER, WIDTH), normal(HEADS, 6, WIDTH, seed=1), normal(HEADS, 6, WIDTH, seed=2)
    mask = jnp.asarray(np.random.default_rng(0).random((6, PER)) < 0.5)
    bias = normal(PER, 6, 6, seed=4)
    scores = jnp.einsum("hspd,hkd->hspk", q, k) / np.sqrt(WIDTH) + jnp.moveaxis(bias, 0, 1)
    seen = (jnp.arange(6)[:, None, None] >= jnp.arange(6)) & mask[:, :, None]
    weights = jnp.where(seen, jax.nn.softmax(jnp.where(seen, scores, -1e30)), 0)
    got = kernel(mask=("s", "p"), bias=("p", "s", "k"))(q, k, v, mask, bias, jnp.arange(6), jnp.arange(6))
    np.testing.assert_allclose(got, jnp.einsum("hspk,hke->hspe", weights, v), rtol=1e-4, atol=1e-5)
