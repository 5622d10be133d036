"""Attention that is written out, and what looks like it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tapestry_jax as tp
from combinators.graphs.walk import operations
from tapestry_jax.lifting import lift
from tapestry_jax.lifting.finding.softmax import SURE
from tapestry_jax.lifting.kernels.attention import FilledAttention
from tests.tapestry_jax.lifting.agree import agrees
from tests.thoroughly import thoroughly

SOURCE = np.random.default_rng(0)
Q, K, V = (SOURCE.standard_normal((2, length, 2, 4)).astype(np.float32) for length in (8, 12, 12))
SEEN = SOURCE.random((2, 1, 8, 12)) < 0.5
SEEN[0, 0, 3], SEEN[1, 0, 5:7] = False, False  # rows that see nothing
BIAS = SOURCE.standard_normal((2, 8, 12)).astype(np.float32)
NAMES = "batch q heads _, batch keys heads _, batch keys heads value"
LOWEST = float(jnp.finfo(jnp.float32).min)
ROWS, KEYS = np.arange(8)[:, None], np.arange(12)[None]


def scores(q: Any, k: Any) -> Any:
    return jnp.einsum("bqhd,bkhd->bhqk", q, k)


def weighted(weights: Any, v: Any) -> Any:
    return jnp.einsum("bhqk,bkhe->bqhe", weights, v)


def causal(x: Any, hidden: float) -> Any:
    return jnp.where(jnp.arange(8)[:, None] >= jnp.arange(12), x, hidden)


def by_hand(x: Any) -> Any:
    top = jnp.exp(x - jnp.max(x, -1, keepdims=True))
    return top / jnp.sum(top, -1, keepdims=True)


def by_two_differences(x: Any) -> Any:
    return jnp.exp(x - jax.nn.logsumexp(x, -1, keepdims=True))


FORMS: dict[str, Callable[[Any, Any, Any, Any, Any], Any]] = {
    "plain": lambda q, k, v, s, b: weighted(jax.nn.softmax(scores(q, k) / 2), v),
    "of jax": lambda q, k, v, s, b: jax.nn.dot_product_attention(q, k, v, mask=s),
    "causal": lambda q, k, v, s, b: weighted(jax.nn.softmax(causal(scores(q / 2, k), LOWEST)), v),
    "causal, minus infinity": lambda q, k, v, s, b: weighted(by_hand(causal(scores(q, k) * 0.5, -jnp.inf)), v),
    "hidden by a large number": lambda q, k, v, s, b: weighted(by_hand(jnp.where(s, scores(q, k), -1e4)), v),
    "a bias": lambda q, k, v, s, b: weighted(by_hand((scores(q, k) - b[:, None]) * 0.25), v),
    "distances": lambda q, k, v, s, b: weighted(by_hand(scores(q, k) - 0.5 * jnp.abs(ROWS - KEYS)), v),
    "logarithms": lambda q, k, v, s, b: weighted(jnp.exp(jax.nn.log_softmax(scores(q, k))), v),
    "an array that is held": lambda q, k, v, s, b: weighted(by_hand(jnp.where(ROWS >= KEYS, scores(q, k), -1e30)), v),
    "features first": lambda q, k, v, s, b: jnp.moveaxis(
        jnp.moveaxis(v, 1, 3) @ jnp.swapaxes(by_hand(jnp.moveaxis(q, 1, 2) @ jnp.transpose(k, (0, 2, 3, 1))), 2, 3),
        3,
        1,
    ),
    "the one before is seen": lambda q, k, v, s, b: weighted(
        by_hand(jnp.where(ROWS + 1 < KEYS, LOWEST, scores(q, k))), v
    ),
    "all before are seen": lambda q, k, v, s, b: weighted(
        by_hand(jnp.where(jnp.arange(8)[:, None] > jnp.arange(12), scores(q, k), LOWEST)), v
    ),
    "as many as the square of the row are seen": lambda q, k, v, s, b: weighted(
        by_hand(jnp.where(jnp.square(jnp.arange(8))[:, None] >= jnp.arange(12), scores(q, k), LOWEST)), v
    ),
    "squares of keys": lambda q, k, v, s, b: weighted(
        by_hand(jnp.where(jnp.arange(8)[:, None] >= jnp.square(jnp.arange(12)), scores(q, k), LOWEST)), v
    ),
    "two masks": lambda q, k, v, s, b: weighted(by_hand(jnp.where(s & (ROWS >= KEYS), scores(q, k), LOWEST)), v),
}


def kernels(function: Any, *args: Any, names: Any = None) -> list[Any]:
    return [node.operation.kernel for _, node in operations(lift(function, *args, names=names))]


def attentions(function: Any, *args: Any) -> list[Any]:
    return [kernel for kernel in kernels(function, *args) if "Attention" in type(kernel).__name__]


@pytest.mark.parametrize("name", FORMS)
def test_softmax_of_products_times_values_is_one_fold_over_the_keys(name: str) -> None:
    found = kernels(FORMS[name], Q, K, V, SEEN, BIAS)
    (kernel,) = (kernel for kernel in found if "Attention" in type(kernel).__name__)
    assert kernel.causal == name.startswith(("causal", "an array"))
    assert not any(getattr(kernel, "primitive", "") in ("dot_general", "reduce_max") for kernel in found)


# Of which the kernels, or what is left of scores beside them, are not those of another form.
UNLIKE = ["of jax", "causal, minus infinity", "a bias", "two masks"]


def test_all_forms_are_what_they_were_where_keys_go_round_a_ring_and_come_in_chunks() -> None:
    def all_of_them(q: Any, k: Any, v: Any, s: Any, b: Any) -> Any:
        return [form(q, k, v, s, b) for name, form in FORMS.items() if name in UNLIKE or thoroughly()]

    plans = [{"q": "a", "keys": tp.ring("a"), "heads": "b"}, {"keys": ("a", tp.chunks(2)), "batch": "b"}]
    agrees(all_of_them, Q, K, V, SEEN, BIAS, names=NAMES, plans=plans[:1])


def test_rows_that_see_nothing_are_what_softmax_makes_of_them() -> None:
    def lowest(q: Any, k: Any, v: Any, s: Any) -> Any:
        return weighted(jax.nn.softmax(jnp.where(s, scores(q, k), -jnp.inf)), v)

    def added(q: Any, k: Any, v: Any, s: Any) -> Any:
        return weighted(jax.nn.softmax(scores(q, k) + jnp.where(s, 0, -jnp.inf)), v)

    for function in (lowest, added):
        graph = lift(function, Q, K, V, SEEN, names=NAMES)
        want = function(Q, K, V, SEEN)
        assert bool(jnp.isnan(want[0, 3]).all()) and int(jnp.isnan(want).sum()) == 3 * 8
        for run in (graph, tp.plan(graph, tp.mesh(a=2), {"keys": "a"}).compile()):
            np.testing.assert_allclose(run(Q, K, V, SEEN), want, rtol=2e-5, atol=2e-6)


def test_a_number_that_hides_is_the_one_that_its_type_makes_of_it() -> None:
    def function(q: Any, k: Any, v: Any, s: Any) -> Any:
        return weighted(jax.nn.softmax(jnp.where(s, scores(q, k), -1e9)), v)

    halves = [jnp.asarray(x, jnp.float16) for x in (Q, K, V)]
    (kernel,) = attentions(function, *halves, SEEN)
    assert kernel.fill == -np.inf
    got, want = lift(function, *halves, SEEN)(*halves, SEEN), function(*halves, SEEN)
    assert bool(jnp.isnan(want).any())
    np.testing.assert_allclose(got, want, rtol=4e-3, atol=4e-3)


def test_what_is_hidden_weighs_as_before_beside_what_a_bias_hides_as_much() -> None:
    padding = jnp.where(np.arange(12) < 3, -1e9, 0)  # the first three rows see padding alone

    def padded(q: Any, k: Any, v: Any, b: Any) -> Any:
        return weighted(jax.nn.softmax(causal(scores(q, k) + b, -1e9)), v)

    def lowest(q: Any, k: Any, v: Any, b: Any) -> Any:
        return weighted(jax.nn.softmax(causal(scores(q, k) + b, -jnp.inf)), v)

    (kernel,) = attentions(padded, Q, K, V, padding)
    assert not kernel.causal and kernel.fill == -1e9
    graph = lift(padded, Q, K, V, padding, names=f"{NAMES}, keys")
    planned = tp.plan(graph, tp.mesh(a=4), {"q": "a", "keys": tp.ring("a")}).compile()
    np.testing.assert_allclose(planned(Q, K, V, padding), padded(Q, K, V, padding), rtol=2e-5, atol=2e-6)
    (kernel,) = attentions(lowest, Q, K, V, padding)
    assert kernel.causal


def test_grouped_queries_share_keys() -> None:
    def grouped(q: Any, k: Any, v: Any) -> Any:
        return jax.nn.dot_product_attention(q, k[:, :, :1], v[:, :, :1], is_causal=True)

    (kernel,) = attentions(grouped, Q, K, V)
    assert kernel.causal and len(kernel.query) == 4 and len(kernel.key) == len(kernel.value) == 3


def test_half_precision_is_kept_in_floats_of_32_bits() -> None:
    halves = [jnp.asarray(x, jnp.bfloat16) for x in (Q, K, V)]
    graph = agrees(
        lambda q, k, v: jax.nn.dot_product_attention(q, k, v), *halves, names=NAMES, plans=[{"keys": "a"}], rtol=3e-2
    )
    assert sum("Attention" in type(node.operation.kernel).__name__ for _, node in operations(graph)) == 1


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_sums_in_float32_that_halves_ask_for_are_those_of_our_kernels(dtype: str) -> None:
    def function(q: Any, k: Any, v: Any, s: Any) -> Any:
        return jax.nn.dot_product_attention(q, k, v, mask=s)

    halves = [jnp.asarray(x, dtype) for x in (Q, K, V)]
    (kernel,) = attentions(function, *halves, SEEN)
    assert isinstance(kernel, FilledAttention)
    # JAX computes float16 with these sums on no CPU: the reference is float32, of the same numbers.
    want = function(*(x.astype(jnp.float32) for x in halves), SEEN)
    got = lift(function, *halves, SEEN)(*halves, SEEN)
    assert got.dtype == dtype
    eps = 2 * float(jnp.finfo(dtype).eps)
    np.testing.assert_allclose(got.astype(jnp.float32), want, rtol=eps, atol=eps)


OTHERS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "the queries are weighed": lambda q, k, v: weighted(jax.nn.softmax(scores(q, k), -2), v),
    "the weights are returned": lambda q, k, v: (lambda w: (w, weighted(w, v)))(jax.nn.softmax(scores(q, k))),
    "the scores are returned": lambda q, k, v: (lambda s: (s, weighted(jax.nn.softmax(s), v)))(scores(q, k)),
    "bounded scores": lambda q, k, v: weighted(jax.nn.softmax(jnp.tanh(scores(q, k))), v),
    "scores that may overflow": lambda q, k, v: weighted(
        jnp.exp(scores(q, k)) / jnp.exp(scores(q, k)).sum(-1, keepdims=True), v
    ),
    "the norm of others": lambda q, k, v: weighted(
        (lambda s: jnp.exp(s - s.max(-1, keepdims=True)) / jnp.exp(s / 2).sum(-1, keepdims=True))(scores(q, k)), v
    ),
    "reciprocals": lambda q, k, v: weighted(jax.nn.softmax(1 / (3 + scores(q, k))), v),
    "numbers over scores": lambda q, k, v: weighted(jax.nn.softmax(2 / scores(q, k)), v),
    "the maximum of others": lambda q, k, v: weighted(
        (lambda s: (lambda e: e / e.sum(-1, keepdims=True))(jnp.exp(s - (2 * s).max(-1, keepdims=True))))(scores(q, k)),
        v,
    ),
    "weights that are dropped": lambda q, k, v: weighted(jnp.where(ROWS > 3, jax.nn.softmax(scores(q, k)), 0), v),
    "more digits are asked for": lambda q, k, v: weighted(
        jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k, precision="highest")), v
    ),
    "fewer digits are asked for": lambda q, k, v: weighted(
        jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k, precision=jax.lax.DotAlgorithmPreset.BF16_BF16_F32)), v
    ),
    "a factor for every row": lambda q, k, v: weighted(jax.nn.softmax(scores(q, k) * jnp.float32(ROWS)), v),
    "hidden scores are moved": lambda q, k, v: weighted(jax.nn.softmax(causal(scores(q, k), -5.0) + KEYS), v),
    "another type comes out": lambda q, k, v: jnp.einsum(
        "bhqk,bkhe->bqhe", jax.nn.softmax(scores(q, k)), v.astype(jnp.bfloat16), preferred_element_type=jnp.float32
    ),
    "weights of three digits": lambda q, k, v: weighted(
        jax.nn.softmax(scores(q, k)).astype(jnp.float8_e4m3fn).astype(jnp.float32), v
    ),
    "scores of seven digits": lambda q, k, v: weighted(
        jax.nn.softmax(scores(q, k).astype(jnp.bfloat16).astype(jnp.float32)), v
    ),
    "the heads are added up": lambda q, k, v: jnp.einsum("bhqk,bkhe->bqe", jax.nn.softmax(scores(q, k)), v),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_only_looks_like_it_is_left_as_it_is(name: str) -> None:
    assert attentions(OTHERS[name], Q, K, V) == []
    graph = lift(OTHERS[name], Q, K, V)
    got, want = jax.tree.leaves(graph(Q, K, V)), jax.tree.leaves(OTHERS[name](Q, K, V))
    for left, right in zip(got, want, strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-2 if "type" in name else 2e-5, atol=2e-6)


def test_a_low_number_hides_and_one_that_is_not_low_enough_is_kept() -> None:
    for hidden, is_causal in ((SURE, True), (-100.0, False)):

        def function(q: Any, k: Any, v: Any, hidden: float = hidden) -> Any:
            return weighted(jax.nn.softmax(causal(scores(q, k), hidden)), v)

        (kernel,) = attentions(function, Q, K, V)
        assert kernel.causal == is_causal and getattr(kernel, "fill", None) == (None if is_causal else hidden)
        far = (-60 * np.abs(Q), 60 * np.abs(K), V)  # scores far below -100
        np.testing.assert_allclose(lift(function, *far)(*far), function(*far), rtol=2e-5, atol=2e-6)
