"""Attention against `jax.nn.dot_product_attention`, and its states merged over blocks of keys."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import combinators as tp
from combinators import CompositionError, SignatureError, TensorType
from combinators.graphs.nodes import Apply
from combinators.merging.blocks import combine_blocks, present_block

B, T, H, D = 2, 6, 3, 4
KEYS = jax.random.split(jax.random.key(0), 5)
Q, K, V = (jnp.asarray(np.float32(np.random.default_rng(seed).normal(size=(B, T, H, D)))) for seed in range(3))
MASK = jax.random.bernoulli(KEYS[3], 0.6, (B, H, T, T)).at[..., 0].set(True)
BIAS = jnp.asarray(np.float32(np.random.default_rng(4).normal(size=(B, H, T, T))))
REFERENCE = jax.jit(
    functools.partial(jax.nn.dot_product_attention, implementation="xla"), static_argnames=("is_causal", "scale")
)
OPTIONS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {}),
    ({"causal": True}, {"is_causal": True}),
    ({"mask": MASK}, {"mask": MASK}),
    ({"bias": BIAS}, {"bias": BIAS}),
    ({"mask": MASK, "bias": BIAS, "causal": True, "scale": 0.3},
     {"mask": MASK, "bias": BIAS, "is_causal": True, "scale": 0.3}),
]  # fmt: skip


@pytest.mark.parametrize(("ours", "theirs"), OPTIONS)
def test_attention_is_that_of_jax(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    np.testing.assert_allclose(tp.attention(Q, K, V, **ours), REFERENCE(Q, K, V, **theirs), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("ours", "theirs"), [OPTIONS[0], OPTIONS[-1]])
def test_gradients_are_those_of_jax(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    def loss(function: Any, options: Any) -> Any:
        return lambda *args: (function(*args, **options) ** 2).sum()

    left = jax.jit(jax.grad(loss(tp.attention, ours), argnums=(0, 1, 2)))(Q, K, V)
    right = jax.jit(jax.grad(loss(REFERENCE, theirs), argnums=(0, 1, 2)))(Q, K, V)
    for a, b in zip(left, right, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)


def test_half_precision_sums_in_float32() -> None:
    q, k, v = (x.astype(jnp.bfloat16) for x in (Q, K, V))
    ours, theirs = tp.attention(q, k, v, causal=True), REFERENCE(q, k, v, is_causal=True)
    assert ours.dtype == jnp.bfloat16
    np.testing.assert_allclose(ours.astype(np.float32), theirs.astype(np.float32), rtol=1e-2, atol=1e-2)


def test_masks_and_biases_of_size_one_broadcast() -> None:
    mask, bias = MASK[:1, :1], BIAS[:, :, :1]
    np.testing.assert_allclose(
        tp.attention(Q, K, V, mask=mask, bias=bias), REFERENCE(Q, K, V, mask=mask, bias=bias), rtol=1e-4, atol=1e-5
    )
    np.testing.assert_allclose(
        tp.attention(Q, K, V, mask=MASK[0, 0]), REFERENCE(Q, K, V, mask=MASK[:1, :1]), rtol=1e-4, atol=1e-5
    )


def test_rows_that_see_no_key_are_zero_with_zero_gradients() -> None:
    mask = MASK.at[0, :, 2].set(False)
    seen = np.ones((B, T), bool)
    seen[0, 2] = False
    result = np.asarray(tp.attention(Q, K, V, mask=mask))
    assert not result[0, 2].any()
    np.testing.assert_allclose(result[seen], np.asarray(REFERENCE(Q, K, V, mask=mask))[seen], rtol=1e-4, atol=1e-5)
    gradient = np.asarray(jax.jit(jax.grad(lambda q: tp.attention(q, K, V, mask=mask).sum()))(Q))
    assert np.isfinite(gradient).all() and not gradient[0, 2].any()


def test_no_keys_give_zeros() -> None:
    assert not np.any(tp.attention(Q, K[:, :0], V[:, :0]))


X = TensorType({"batch": B, "seq": T, "embed": 5})
W = TensorType({"embed": 5, "heads": H, "head": D})


def self_attention(x: Any, wq: Any, wk: Any, wv: Any) -> Any:
    project = tp.einsum("b s e, e h d -> b s h d")
    q = project(x, wq)
    y = x.rename(seq="keys")
    return tp.attention(q, project(y, wk), project(y, wv), causal=True)


def test_self_attention_is_that_of_jax_and_keeps_its_names() -> None:
    graph = tp.trace(self_attention, X, W, W, W)
    assert graph.type_of(graph.outputs[0][1]) == TensorType({"batch": B, "seq": T, "heads": H, "head": D})
    arrays = [jax.random.normal(key, kind.shape) for key, kind in zip(KEYS, (X, W, W, W), strict=False)]
    x, *weights = arrays
    expected = REFERENCE(*(jnp.einsum("bse,ehd->bshd", x, w) for w in weights), is_causal=True)
    np.testing.assert_allclose(graph(*arrays), expected, rtol=1e-3, atol=1e-4)


def test_axes_are_matched_by_name_in_any_order() -> None:
    q = TensorType({"heads": H, "seq": T, "d": D})
    k = TensorType({"keys": T, "heads": H, "d": D})
    graph = tp.trace(lambda q, k, v: tp.attention(q, k, v), q, k, k)
    result = graph(Q[0].swapaxes(0, 1), K[0], V[0])
    np.testing.assert_allclose(result, REFERENCE(Q[0], K[0], V[0]).swapaxes(0, 1), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("cuts", [(0, 2, 6), (0, 1, 1, 5, 6)])
@pytest.mark.parametrize("causal", [False, True])
def test_states_merged_over_blocks_of_keys_are_the_whole(cuts: tuple[int, ...], causal: bool) -> None:
    q, k, v = (TensorType.make(names, (B, T, H, D), jnp.float32) for names in (
        ("b", "q", "h", "d"), ("b", "keys", "h", "d"), ("b", "keys", "h", "d")))  # fmt: skip
    graph = tp.trace(lambda q, k, v: tp.attention(q, k, v, causal=causal), q, k, v)
    node = graph.nodes[-1]
    assert isinstance(node, Apply)
    shaped, operation = graph.shaped(len(graph.nodes) - 1), node.operation
    assert operation.monoid is not None
    kernel, positions = jax.jit(operation.kernel), jnp.arange(T, dtype=jnp.int32)
    states: list[list[Any]] = []
    for start, stop in itertools.pairwise(cuts):
        block = slice(start, stop)
        at = (positions, positions[block]) if causal else ()
        states.append(list(kernel(Q, K[:, block], V[:, block], *at)))
    merge = functools.partial(combine_blocks, operation.monoid, shaped.state_tree, shaped.carrier)
    total = functools.reduce(jax.jit(merge), states)
    (result,) = present_block(operation.present, shaped.state_tree, shaped.carrier, shaped.result_names, total)
    np.testing.assert_allclose(result, REFERENCE(Q, K, V, is_causal=causal), rtol=1e-4, atol=1e-5)
    at = (positions, positions) if causal else ()
    np.testing.assert_allclose(jax.jit(operation.dense[-1])(Q, K, V, *at), result, rtol=1e-4, atol=1e-5)


def test_calls_on_arrays_of_one_type_are_compiled_once() -> None:
    from combinators.leaves.attention import _graph  # pyright: ignore[reportPrivateUsage]

    tp.attention(Q, K, V, scale=0.7)
    misses = _graph.cache_info().misses
    tp.attention(2 * Q, K, V, scale=0.7)
    assert _graph.cache_info().misses == misses


NAMED = TensorType({"seq": T, "d": D})


@pytest.mark.parametrize(
    ("build", "error", "text"),
    [
        (
            lambda: tp.trace(lambda x: tp.attention(x, x, x), NAMED),
            CompositionError,
            "attention folds `keys`, which keys and values carry and queries do not\n"
            "  q (seq, d), k (seq, d), v (seq, d)\n"
            '  Rename the sequence of keys and values: k.rename(seq="keys"), or pass over=.',
        ),
        (
            lambda: tp.trace(lambda x: tp.attention(x, x, x), jnp.ones((2, 3))),
            SignatureError,
            "attention matches axes by name, and an axis of `q` has none\n"
            "  got Value(float32(an unnamed axis (axis 0 of `x`)=2, an unnamed axis (axis 1 of `x`)=3))\n"
            "  Name the axes by the program's signature or by a tp.TensorType.",
        ),
        (
            lambda: tp.trace(
                lambda q, k: tp.attention(q, k, k, causal=True),
                TensorType({"a": 2, "b": 2, "d": 3}),
                TensorType({"keys": 2, "d": 3}),
            ),
            SignatureError,
            "causal attention compares one query dimension with `keys`\n"
            "  the query dimensions are `a`, `b`, got causal=True\n"
            '  Name it: causal="a".',
        ),
        (
            lambda: tp.trace(
                lambda q, k, m: tp.attention(q, k, k, mask=m),
                NAMED,
                TensorType({"keys": T, "d": D}),
                TensorType({"seq": T, "time": T}, bool),
            ),
            CompositionError,
            "the mask of attention has the axis `time`, which the scores have not\n"
            "  scores (seq, keys), mask (seq, time)\n"
            '  Rename it, as in mask.rename(time="keys").',
        ),
        (
            lambda: tp.attention(Q, K, V, mask=BIAS),
            SignatureError,
            "the mask of attention is float32, not bool\n"
            "  Compare it (mask > 0), or pass what is added to the scores as bias=.",
        ),
        (
            lambda: tp.attention(Q, K, V, mask=MASK[..., :5]),
            SignatureError,
            "`mask` of attention does not broadcast to the scores\n"
            "  expected (b0=2, heads=3, queries=6, keys=6), got bool(2, 3, 6, 5)\n"
            "  Give it these axes from the right, or size 1 where it broadcasts.",
        ),
        (
            lambda: tp.attention(Q, K[0], V),
            SignatureError,
            "`k` of attention has 3 axes\n"
            "  expected (b0, keys, heads, d), got float32(6, 3, 4)\n"
            "  Give q, k and v the same leading axes, then sequence, heads and features.",
        ),
    ],
)
def test_what_does_not_attend_is_refused(build: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error) as caught:
        build()
    assert str(caught.value) == text
