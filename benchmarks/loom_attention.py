"""Ring attention: queries over a mesh axis, keys rotating on the same one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import P, lax

import tapestry_jax as tp
from benchmarks.loom import Case, Targets
from benchmarks.loom import rows as rows_of
from benchmarks.row import Row

AXIS = "data"
TARGETS = Targets(automatic=1 / 2, temporaries=1 / 5, collectives={"all-gather": 0})


@tp.program("heads queries d, heads keys d, heads keys e -> heads queries e")
def attention(q, k, v):
    return tp.attention(q, k, v)


@tp.program("heads queries d, heads keys d, heads keys e -> heads queries e")
def causal_attention(q, k, v):
    return tp.attention(q, k, v, causal=True)


def automatic(causal: bool) -> Callable[..., Any]:
    """Plain attention."""

    def run(q: Any, k: Any, v: Any) -> Any:
        scores = jnp.einsum("hqd,hkd->hqk", q, k) * q.shape[-1] ** -0.5
        if causal:
            scores = jnp.where(jnp.tri(q.shape[1], dtype=bool), scores, -jnp.inf)
        weights = jax.nn.softmax(scores.astype(jnp.float32)).astype(v.dtype)
        return jnp.einsum("hqk,hke->hqe", weights, v)

    return run


def by_hand(mesh: Any, causal: bool) -> Callable[..., Any]:
    """Each device keeps its queries and passes keys and values on, one device further each turn."""

    def local(q: Any, k: Any, v: Any) -> Any:
        devices, here = lax.axis_size(AXIS), lax.axis_index(AXIS)
        around = [(source, (source + 1) % devices) for source in range(devices)]
        q = q * q.shape[-1] ** -0.5
        at = here * q.shape[1] + jnp.arange(q.shape[1])

        @jax.checkpoint
        def attend(state: Any, k: Any, v: Any, owner: Any) -> Any:
            top, total, output = state
            scores = jnp.einsum("hqd,hkd->hqk", q, k, preferred_element_type=jnp.float32)
            if causal:
                of = owner * k.shape[1] + jnp.arange(k.shape[1])
                scores = jnp.where(at[:, None] >= of, scores, -jnp.inf)
            # The first block holds each query's own key, so that no maximum is infinite.
            highest = lax.stop_gradient(jnp.maximum(top, scores.max(-1)))
            weights, scale = jnp.exp(scores - highest[..., None]), jnp.exp(top - highest)
            attended = jnp.einsum("hqk,hke->hqe", weights.astype(v.dtype), v, preferred_element_type=jnp.float32)
            output = output * scale[..., None] + attended
            return highest, total * scale + weights.sum(-1), output

        def turn(carry: Any, number: Any) -> Any:
            state, k, v = carry
            # Sent before they are used, so that both can happen at once.
            following = lax.ppermute((k, v), AXIS, around)
            return (attend(state, k, v, (here - number) % devices), *following), None

        # A loop holds the scores of one block at a time; unrolled turns hold those of several.
        (state, k, v), _ = lax.scan(turn, (_empty(q, v), k, v), jnp.arange(devices - 1))
        _, total, output = attend(state, k, v, (here + 1) % devices)
        return (output / total[..., None]).astype(v.dtype)

    places = P(None, AXIS)
    return jax.shard_map(local, mesh=mesh, in_specs=(places,) * 3, out_specs=places)


def case(
    causal: bool = False,
    heads: int = 4,
    seq: int = 4096,
    d: int = 64,
    gradients: bool = False,
    dtype: Any = jnp.float32,
    written_out: bool = False,
) -> Case:
    """Attention of a sequence that lies on eight devices; `written_out`: without the kernels of the machine."""
    name = f"{'causal ' if causal else ''}ring attention {heads} x {seq} x {d}"
    name += ", bfloat16" * (dtype == jnp.bfloat16) + ", with gradients" * gradients + ", written out" * written_out
    return Case(
        name,
        causal_attention if causal else attention,
        tuple(jax.random.normal(key, (heads, seq, d), dtype) for key in jax.random.split(jax.random.key(0), 3)),
        {"queries": AXIS, "keys": tp.ring(AXIS)},
        automatic(causal),
        lambda mesh: by_hand(mesh, causal),
        {AXIS: 8},
        (P(None, AXIS),) * 3,
        P(None, AXIS),
        gradients=3 if gradients else 0,
        # The kernels of a CPU are those that are made of products.
        options={"platforms": "cpu"} if written_out else {},
    )


def rows(rounds: int = 10) -> list[Row]:
    """Plain and causal, forward; plain with gradients."""
    cases = (case(), case(causal=True), case(gradients=True))
    return [row for each in cases for row in rows_of(each, TARGETS, rounds)]


def _empty(q: Any, v: Any) -> Any:
    """The state of no keys, varying as the queries do; it adds up in float32."""
    none = jnp.zeros_like(q[..., 0], jnp.float32)
    return none - jnp.inf, none, jnp.zeros_like(q, jnp.float32, shape=(*q.shape[:-1], v.shape[-1]))
