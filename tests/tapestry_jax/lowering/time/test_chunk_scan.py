"""A state-space layer in chunks, as Mamba-2 computes it: a chunk kernel scanned over cut time, held against a loop.

`h[t] = exp(a[t]) h[t - 1] + b[t] x[t]^T` and `y[t] = c[t] h[t]` for every head. Within a chunk this is matrix products;
between chunks it is a scan of the chunks' decays and states. Source: Dao and Gu 2024, "Transformers are SSMs".
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import tapestry_jax as tp
from tests.contract import assert_holds
from tests.simulated.sampled import computed
from tests.tapestry_jax.draw import named, normal

HEADS, CHUNK, STATE, WIDTH = 2, 4, 3, 2
NAMES = "chunk step head, chunk step state, chunk step state, chunk step head width, head state width"


def chunk_state(a, b, x, *, back):
    """A chunk as one step: how much of a state it leaves, and what it adds."""
    if back:
        a, b, x = (jnp.flip(leaf, 1) for leaf in (a, b, x))
    total = jnp.cumsum(a, 1)
    left = jnp.exp(total[:, -1:] - total)
    return jnp.exp(total[:, -1]), jnp.einsum("clh,cln,clhp->chnp", left, b, x)


def chunk_output(a, b, c, x, before, *, back):
    """What a chunk gives, from the state before it."""
    if back:
        a, b, c, x = (jnp.flip(leaf, 1) for leaf in (a, b, c, x))
    total = jnp.cumsum(a, 1)
    gap = total[:, :, None] - total[:, None]
    later = jnp.arange(a.shape[1])[:, None] >= jnp.arange(a.shape[1])
    decay = jnp.exp(jnp.where(later[:, :, None], gap, -jnp.inf))
    within = jnp.einsum("cin,cjn,cijh,cjhp->cihp", c, b, decay, x)
    y = within + jnp.einsum("cin,cih,chnp->cihp", c, jnp.exp(total), before)
    return jnp.flip(y, 1) if back else y


def second(state):
    return state[1]


def layer(a, b, c, x, start, *, back=False):
    scan = tp.Scan(
        # Backwards in time the later chunk acts first.
        tp.monoids.dual(tp.monoids.AffineRecurrence) if back else tp.monoids.AffineRecurrence,
        "c [l] h, c [l] [n], c [l] h [p] -> c h [n] [p]",
        over="c",
        kernel=partial(chunk_state, back=back),
        carrier="c h, c h n p",
        present=second,
        init=(1.0, start),
        final=True,
        reverse=back,
        exclusive=True,
    )
    before, last = scan(a, b, x)
    output = tp.Map(
        partial(chunk_output, back=back),
        "c [l] h, c [l] [n], c [l] [n], c [l] h [p], c h [n] [p] -> c [l] h [p]",
    )
    return output(a, b, c, x, before), last


def sequential(a, b, c, x, start, *, back=False):
    """One step after the other."""

    def turn(h, step):
        a, b, c, x = step
        h = jnp.exp(a)[:, None, None] * h + b[None, :, None] * x[:, None, :]
        return h, jnp.einsum("n,hnp->hp", c, h)

    steps = [leaf.reshape(-1, *leaf.shape[2:]) for leaf in (a, b, c, x)]
    last, y = lax.scan(turn, start, steps, reverse=back)
    return y.reshape(x.shape), last


def arguments(chunks):
    shapes = [(CHUNK, HEADS), (CHUNK, STATE), (CHUNK, STATE), (CHUNK, HEADS, WIDTH)]
    a, b, c, x = (normal(chunks, *shape, seed=seed) for seed, shape in enumerate(shapes))
    return -jax.nn.softplus(a), b, c, x, normal(HEADS, STATE, WIDTH, seed=9)


def test_contract_chunked_state_space_layer_backwards(mesh2x4):
    # Eleven chunks on eight devices: two hold none.
    args = arguments(11)
    graph = tp.trace(partial(layer, back=True), *named(NAMES, *args))
    plan = tp.plan(graph, mesh2x4, {"chunk": ("data", "model")})
    assert_holds(plan, args, rtol=1e-3, atol=1e-4, reference=partial(sequential, back=True))


# Backwards the contract above holds them.
@pytest.mark.parametrize("back", [False, pytest.param(True, marks=pytest.mark.thorough)])
def test_chunked_state_space_layer_has_the_gradients_of_the_loop(back):
    args = arguments(5)
    graph = tp.trace(partial(layer, back=back), *named(NAMES, *args))

    def loss(run, *args):
        y, last = run(*args)
        return jnp.sum(jnp.sin(y)) + jnp.sum(jnp.cos(last))

    ours, theirs = (
        computed(jax.grad(partial(loss, run), argnums=range(5)), *args)
        for run in (graph, partial(sequential, back=back))
    )
    for left, right in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-3, atol=1e-4)


def test_decoding_goes_on_from_the_last_state(mesh8):
    a, b, c, x, start = arguments(11)
    wanted, last = computed(sequential, a, b, c, x, start)

    def planned(first, stop, start):
        args = (a[first:stop], b[first:stop], c[first:stop], x[first:stop], start)
        plan = tp.plan(tp.trace(layer, *named(NAMES, *args)), mesh8, {"chunk": "data"})
        return computed(plan.compile(), *args)

    y, state = planned(0, 9, start)
    np.testing.assert_allclose(y, wanted[:9], rtol=1e-3, atol=1e-4)
    # One chunk after the prompt, then token by token.
    y, state = planned(9, 10, state)
    np.testing.assert_allclose(y, wanted[9:10], rtol=1e-3, atol=1e-4)
    for token in range(CHUNK):
        state = jnp.exp(a[10, token])[:, None, None] * state + b[10, token][None, :, None] * x[10, token][:, None]
        np.testing.assert_allclose(
            jnp.einsum("n,hnp->hp", c[10, token], state), wanted[10, token], rtol=1e-3, atol=1e-4
        )
    np.testing.assert_allclose(state, last, rtol=1e-3, atol=1e-4)
