"""The peers: the same models in plain `jax.numpy`, written as a careful JAX user would, on the same parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jax import lax

Params = dict[Any, Any]
Mix = Callable[[Any, Any, Any], Any]


def mlp(state: Any, x: Any) -> Any:
    """`tp.nnx.MLP`: `(batch, seq, embed)` to the same."""
    return _mlp(nnx.to_pure_dict(state), x)


def block(state: Any, x: Any, mix: Mix | None = None) -> Any:
    """`tp.nnx.Block`: `(batch, seq, embed)` to the same; `mix` attends."""
    return _block(nnx.to_pure_dict(state), x, mix or written_mix)


def logits(state: Any, tokens: Any) -> Any:
    """`tp.nnx.Transformer`: tokens `(batch, seq)` to `(batch, seq, vocab)`."""
    p = nnx.to_pure_dict(state)
    x = jnp.take(p["embed"]["embedding"], tokens, axis=0) + p["positions"]["embedding"][: tokens.shape[1]]
    for layer in sorted(p["decoder"]):
        x = _block(p["decoder"][layer], x, written_mix)
    return _norm(p["norm"], x) @ p["head"]["kernel"]


def loss(state: Any, tokens: Any, targets: Any) -> Any:
    """The mean cross-entropy of the next tokens."""
    return optax.softmax_cross_entropy_with_integer_labels(logits(state, tokens), targets).mean()


def stacked_loss(state: Any, tokens: Any, targets: Any, mix: Mix | None = None) -> Any:
    """The same of stacked layers in bfloat16, with norms, softmax and loss in float32; `mix` attends."""
    attend = mix or written_mix
    p = nnx.to_pure_dict(state)
    x = jnp.take(p["embed"]["embedding"], tokens, axis=0) + p["positions"]["embedding"][: tokens.shape[1]]
    x = lax.scan(lambda x, layer: (_block(layer, x, attend), None), x, p["decoder"]["layer"])[0]
    scores = jnp.einsum("bse,ev->bsv", _norm(p["norm"], x), p["head"]["kernel"]).astype(jnp.float32)
    return optax.softmax_cross_entropy_with_integer_labels(scores, targets).mean()


def _block(p: Params, x: Any, mix: Mix) -> Any:
    x = x + _attention(p["attention"], _norm(p["attention_norm"], x), mix)
    return x + _mlp(p["mlp"], _norm(p["mlp_norm"], x))


def _mlp(p: Params, x: Any) -> Any:
    hidden = jax.nn.gelu(x @ p["up"]["kernel"] + p["up"]["bias"])
    return hidden @ p["down"]["kernel"] + p["down"]["bias"]


def _norm(p: Params, x: Any) -> Any:
    wide = x.astype(jnp.float32)
    mean = jnp.mean(wide, -1, keepdims=True)
    variance = jnp.maximum(0.0, jnp.mean(jnp.square(wide), -1, keepdims=True) - jnp.square(mean))
    return ((wide - mean) * (lax.rsqrt(variance + 1e-6) * p["scale"]) + p["bias"]).astype(x.dtype)


def written_mix(q: Any, k: Any, v: Any) -> Any:
    """Causal attention as it is written: `(batch, seq, heads, d)` each."""
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k, preferred_element_type=jnp.float32) * q.shape[-1] ** -0.5
    at = jnp.arange(q.shape[1])
    # Fewer bytes on a CPU than `jax.nn.dot_product_attention`, which copies the scores once more.
    weights = jax.nn.softmax(jnp.where(at[:, None] >= at, scores, -jnp.inf))
    return jnp.einsum("bhqk,bkhd->bqhd", weights.astype(v.dtype), v)


def fused_mix(q: Any, k: Any, v: Any) -> Any:
    """The same by cuDNN's kernel, on a GPU."""
    implementation: Any = "cudnn" if jax.default_backend() == "gpu" else None
    return jax.nn.dot_product_attention(q, k, v, is_causal=True, implementation=implementation)


def _attention(p: Params, x: Any, mix: Mix) -> Any:
    q, k, v = (jnp.einsum("bse,ehd->bshd", x, p[n]["kernel"]) + p[n]["bias"] for n in ("query", "key", "value"))
    return jnp.einsum("bshd,hde->bse", mix(q, k, v), p["out"]["kernel"]) + p["out"]["bias"]
