"""Splash attention, interpreted: values and gradients of states and outputs are those of NumPy in double precision."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tapestry_jax as tp
from combinators.numerics import splash_attention
from combinators.numerics.attention_kernel import DenseAttention
from combinators.numerics.splash_attention import FitsSplash, SplashAttention, SplashState

QUERY, KEY, VALUE = ("b", "q", "h", "g", "d"), ("b", "k", "h", "d"), ("b", "k", "h", "e")
FIELDS: Any = {"query": QUERY, "key": KEY, "value": VALUE, "keys": "k", "queries": None}
CAUSAL: Any = FIELDS | {"queries": "q", "causal": True}


def _operands(queries: int, keys: int, d: int = 8, e: int = 16, dtype: Any = jnp.float32) -> list[Any]:
    rng = np.random.default_rng(0)
    shapes = (1, queries, 1, 2, d), (1, keys, 1, d), (1, keys, 1, e)
    return [jnp.asarray(rng.standard_normal(shape), dtype) for shape in shapes]


def _reference(operands: Any, cotangent: Any, scale: float, seen: Any) -> list[Any]:
    """Value and gradients of attention in double precision."""
    q, k, v = (np.asarray(array, np.float64) for array in operands)
    scores = np.where(seen, np.einsum("bqhgd,bkhd->bhgqk", q, k) * scale, -np.inf)
    top = scores.max(-1, keepdims=True)
    weights = np.exp(scores - np.where(np.isfinite(top), top, 0))
    total = weights.sum(-1, keepdims=True)
    weights /= np.where(total > 0, total, 1)
    of_weights = np.einsum("bqhge,bkhe->bhgqk", cotangent, v)
    of_scores = weights * (of_weights - (of_weights * weights).sum(-1, keepdims=True)) * scale
    return [
        np.einsum("bhgqk,bkhe->bqhge", weights, v),
        np.einsum("bhgqk,bkhd->bqhgd", of_scores, k),
        np.einsum("bhgqk,bqhgd->bkhd", of_scores, q),
        np.einsum("bhgqk,bqhge->bkhe", weights, cotangent),
    ]


def _values_and_gradients(function: Any, operands: Any, cotangent: Any) -> list[Any]:
    @jax.jit
    def both(*operands: Any) -> Any:
        out, pull = jax.vjp(function, *operands)
        return [out, *pull(jnp.asarray(cotangent, out.dtype))]

    return both(*operands)


def _errors(found: Any, wanted: Any) -> list[float]:
    return [
        float(np.abs(np.asarray(a, np.float64) - b).max() / np.abs(b).max()) for a, b in zip(found, wanted, strict=True)
    ]


def _merged(state: Any, at: Any, of: Any) -> Any:
    """Attention by the states of two halves of the keys."""

    def run(q: Any, k: Any, v: Any) -> Any:
        half = k.shape[1] // 2
        states = [state(q, k[:, s], v[:, s], at, of[s]) for s in (slice(0, half), slice(half, None))]
        out = tp.monoids.attention_output(tp.monoids.AttentionState.merge(*states))
        return jnp.transpose(out, (0, 2, 1, 3, 4))

    return run


# Cut by plans in planning/rewrites/test_splash_attention.py.
@pytest.mark.thorough
def test_states_of_cut_keys_merge_to_attention_and_to_its_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    # Several blocks of rows and of keys, some of which are skipped; keys in steps, as stripes deal them, and with a gap
    # in the first half; the first row sees nothing at all, and many rows nothing of the second half.
    monkeypatch.setattr(splash_attention, "BLOCK_SIZES", (128,))
    operands = _operands(256, 512)
    at, of = np.arange(256, dtype=np.int32) * 3, np.arange(512, dtype=np.int32) * 2 + 1
    of[100:] += 7
    cotangent = np.random.default_rng(1).standard_normal((1, 256, 1, 2, 16))
    state = SplashState(**CAUSAL, scale=0.3, interpret=True)
    found = _values_and_gradients(_merged(state, jnp.asarray(at), jnp.asarray(of)), operands, cotangent)
    assert max(_errors(found, _reference(operands, cotangent, 0.3, at[:, None] >= of[None, :]))) < 2e-6
    assert not np.asarray(found[0])[:, 0].any()
    assert not np.asarray(found[1])[:, 0].any()


def test_outputs_in_half_precision_are_as_exact_as_products_written_out() -> None:
    # It scales the queries: what is no power of two costs them a rounding, and their gradient another.
    scale = 0.25
    operands = _operands(128, 256, dtype=jnp.bfloat16)
    at, of = np.arange(128, dtype=np.int32), np.arange(256, dtype=np.int32)
    cotangent = np.random.default_rng(1).standard_normal((1, 128, 1, 2, 16))
    wanted = _reference(operands, cotangent, scale, at[:, None] >= of[None, :])
    kernels = SplashAttention(**CAUSAL, scale=scale, interpret=True), DenseAttention(**CAUSAL, scale=scale)
    found, plain = (
        max(_errors(_values_and_gradients(lambda *a, k=kernel: k(*a, at, of), operands, cotangent), wanted))
        for kernel in kernels
    )
    assert found < 1.5 * plain < 0.015


def test_outputs_that_see_all_keys_are_attention() -> None:
    operands = _operands(64, 128)  # both groups of a head make up its rows
    cotangent = np.random.default_rng(1).standard_normal((1, 64, 1, 2, 16))
    found = _values_and_gradients(SplashAttention(**FIELDS, interpret=True), operands, cotangent)
    assert max(_errors(found, _reference(operands, cotangent, 8**-0.5, True))) < 2e-6


@pytest.mark.parametrize(
    ("change", "shapes", "why"),
    [
        ({}, {}, ""),
        ({"mask": ("b", "k")}, {}, "it takes no mask"),
        ({"bias": ("q", "k")}, {}, "it takes no bias"),
        ({"value": ("b", "k", "e")}, {2: (1, 256, 16)}, "its values have the axes of the queries' heads and batches"),
        ({}, {1: (1, 200, 1, 8), 2: (1, 200, 1, 16)}, "200 keys in a block are no multiple of 128"),
        ({}, {1: (1, 0, 1, 8), 2: (1, 0, 1, 16)}, "0 keys in a block are no multiple of 128"),
        ({"queries": "q", "causal": True}, {0: (1, 64, 1, 2, 8)}, "64 queries in a block are no multiple of 128"),
        ({}, {0: (1, 64, 1, 2, 8)}, ""),  # both groups of a head make up its rows
        ({}, {0: (0, 128, 1, 2, 8), 1: (0, 256, 1, 8), 2: (0, 256, 1, 16)}, "a block is empty"),
        ({}, {0: (1, 128, 1, 2, 12), 1: (1, 256, 1, 12)}, "12 features of a head are no multiple of 8 up to 512"),
    ],
)
def test_what_it_does_not_take_it_says(monkeypatch: pytest.MonkeyPatch, change: Any, shapes: Any, why: str) -> None:
    monkeypatch.setattr(splash_attention, "FAST_AGAIN", 0)
    kernel = SplashState(**FIELDS | change)
    blocks = [jax.ShapeDtypeStruct(shapes.get(i, a.shape), a.dtype) for i, a in enumerate(_operands(128, 256))]
    told = FitsSplash(kernel).why_not(*blocks)
    assert told.startswith(why) and bool(told) is bool(why)
    assert FitsSplash(kernel)(*blocks) is not bool(why)


def test_blocks_whose_scores_stay_in_fast_memory_are_left_to_the_others() -> None:
    blocks = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in _operands(1024, 1024)]
    told = "8 MiB of scores in a block stay in fast memory"  # of two heads
    assert SplashAttention(**FIELDS).why_not(*blocks) == SplashState(**FIELDS).why_not(*blocks) == told
    blocks[0] = jax.ShapeDtypeStruct((1, 1152, 1, 2, 8), jnp.float32)
    assert SplashAttention(**FIELDS).why_not(*blocks) == ""
    assert "9 MiB" in SplashState(**FIELDS).why_not(*blocks)


def test_operands_of_several_dtypes_are_left_to_the_others() -> None:
    q, k, v = _operands(128, 128)
    assert "one dtype" in SplashAttention(**FIELDS).why_not(q, k.astype(jnp.bfloat16), v)


def test_a_jax_that_keeps_it_otherwise_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    class Other:
        """A module whose backward pass takes something else."""

        @staticmethod
        def other(q: Any, k: Any) -> Any:
            return q, k

        _splash_attention_bwd_dkv = _splash_attention_bwd_dq = other

    monkeypatch.setattr(splash_attention, "_kernels", lambda: Other)
    assert splash_attention.missing.__wrapped__() == "this JAX has it in another form"
    monkeypatch.setattr(splash_attention, "_kernels", lambda: None)
    assert splash_attention.missing.__wrapped__() == "this JAX does not have it"


def test_tpus_are_asked_first_for_it_whole_and_cut() -> None:
    types = [tp.TensorType({"b": 1, name: 128, "h": 1, "d": 8}) for name in ("q", "k", "k")]
    graph = tp.trace(lambda q, k, v: tp.attention(q, k, v, over="k"), *types)
    entries = [entry for entry in graph.shaped(3).operation.dense if isinstance(entry, tp.Dense)]
    kernels = [(type(entry.kernel), entry.gives) for entry in entries if entry.platforms == ("tpu",)]
    assert kernels == [(SplashAttention, "result"), (SplashState, "state")]
