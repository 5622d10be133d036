"""cuDNN's attention, where a plan takes it: values and gradients beside doubles."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tapestry_jax as tp
from tests.gpu.held import assert_alike, both, normal

pytestmark = pytest.mark.gpu

BATCH, QUERIES, HEADS, GROUPS, D = 2, 256, 4, 2, 64
FORMS = ("plain", "causal", "mask", "bias", "grouped")
ERRORS = {"float16": 4e-3, "bfloat16": 3e-2}


def types(form: str, dtype: Any) -> list[tp.TensorType]:
    shared = {"groups": GROUPS} if form == "grouped" else {}
    inner = {"batch": BATCH, "heads": HEADS}
    found = [
        tp.TensorType({**inner, **shared, "seq": QUERIES, "d": D}, dtype),
        tp.TensorType({**inner, "keys": QUERIES, "d": D}, dtype),
        tp.TensorType({**inner, "keys": QUERIES, "e": D}, dtype),
    ]
    if form == "mask":
        found.append(tp.TensorType({"seq": QUERIES, "keys": QUERIES}, bool))
    if form == "bias":
        found.append(tp.TensorType({"heads": HEADS, "seq": QUERIES, "keys": QUERIES}, dtype))
    return found


def program(form: str) -> Any:
    def run(q, k, v, *rest):
        named = dict(zip([form], rest, strict=False))
        return tp.attention(q, k, v, causal="seq" if form == "causal" else False, **named)

    return run


def arguments(form: str, dtype: Any) -> list[Any]:
    args = [normal(*kind.shape, seed=at, dtype=dtype) for at, kind in enumerate(types(form, dtype)[:3])]
    if form == "mask":
        seen = np.random.default_rng(0).random((QUERIES, QUERIES)) > 0.3
        seen[7] = False  # a row that sees nothing gives zeros
        args.append(seen)
    if form == "bias":
        args.append(normal(HEADS, QUERIES, QUERIES, dtype=dtype))
    return args


def doubles(form: str, args: list[Any]) -> Any:
    """Values and gradients in float64 on the CPU, of the values as they were rounded."""

    def run(q: Any, k: Any, v: Any, *bias: Any) -> Any:
        heads = "bhgqd,bhkd->bhgqk" if form == "grouped" else "bhqd,bhkd->bhqk"
        scores = jnp.einsum(heads, q, k) / np.sqrt(D)
        if bias:
            scores = scores + bias[0]
        seen = args[3] if form == "mask" else np.tri(QUERIES, dtype=bool) if form == "causal" else True
        weights = jnp.where(seen, jnp.exp(scores - scores.max(-1, keepdims=True)), 0)
        weights = weights / jnp.maximum(weights.sum(-1, keepdims=True), 1e-300)
        return jnp.einsum("bhgqk,bhke->bhgqe" if form == "grouped" else "bhqk,bhke->bhqe", weights, v)

    with jax.enable_x64(True):
        wide = [arg.astype(np.float64) for arg in args if arg.dtype != bool]
        return jax.tree.map(np.asarray, both(run, *wide))


@pytest.mark.parametrize("dtype", ERRORS)
@pytest.mark.parametrize("form", FORMS)
def test_attention_beside_doubles(form: str, dtype: str, mesh: Any) -> None:
    args = arguments(form, dtype)
    graph = tp.trace(program(form), *types(form, jnp.dtype(dtype)))
    expected = doubles(form, args)
    for platforms, entries in ((None, {}), ("cpu", {}), (None, {"batch": "data", "keys": tp.chunks(4)})):
        plan = tp.plan(graph, mesh, entries, platforms=platforms)
        plan.verify()
        found = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), both(plan.compile(), *plan.put(*args)))
        assert_alike(found, expected, ERRORS[dtype], f"{form}, {platforms}, {entries}")
        taken = "dense fused_attention" in plan.explain()
        assert taken == (platforms is None and not entries), plan.explain()


@pytest.mark.parametrize("causal", [False, True], ids=["plain", "causal"])
@pytest.mark.parametrize(
    ("queries", "keys", "d", "e"),
    [
        (1, 1, 8, 8),
        (1, 256, 64, 64),
        (3, 5, 16, 16),
        (127, 127, 64, 64),
        (100, 260, 128, 128),
        (260, 100, 64, 64),
        (64, 64, 256, 256),
        (64, 64, 12, 12),
        (64, 64, 64, 32),
        (64, 64, 512, 512),
    ],
)
def test_attention_of_any_size_runs(queries: int, keys: int, d: int, e: int, causal: bool, mesh: Any) -> None:
    # What a library refuses is known when it is asked, and not when the program is compiled.
    types = [
        tp.TensorType({"seq": queries, "h": 2, "d": d}, jnp.bfloat16),
        tp.TensorType({"keys": keys, "h": 2, "d": d}, jnp.bfloat16),
        tp.TensorType({"keys": keys, "h": 2, "e": e}, jnp.bfloat16),
    ]
    graph = tp.trace(lambda q, k, v: tp.attention(q, k, v, causal="seq" if causal else False), *types)
    args = [normal(*kind.shape, seed=at, dtype="bfloat16") for at, kind in enumerate(types)]
    found, own = (
        both(plan.compile(), *plan.put(*args))
        for plan in (tp.plan(graph, mesh, {}), tp.plan(graph, mesh, {}, platforms="cpu"))
    )
    wide = [jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), each) for each in (found, own)]
    assert_alike(wide[0], wide[1], 3e-2, "beside our own kernel")
