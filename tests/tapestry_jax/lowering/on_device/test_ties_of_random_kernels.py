"""Kernels drawn at random around an extremum: gradients at ties are those of the whole, or subgradients where told.

A kernel whose program is read (ties.py) shares as the unplanned one does. Of others a device's box counts as one,
and what comes of it is a subgradient: shares go to elements that alone give the result, and their sum lies between the
slopes that these have alone. `seed/number` of a failure draws it again.
"""

from __future__ import annotations

import random

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tapestry_jax as tp
from tests.simulated.evaluate import simulated

BEFORE = {
    "nothing": lambda x, c: x,
    "double": lambda x, c: 2 * x,
    "mask": lambda x, c: jnp.where(x < 4, x, -1.0),
    "narrow": lambda x, c: x.astype(jnp.bfloat16),
    "floor": lambda x, c: jnp.maximum(x, c),
    "relu": lambda x, c: jax.nn.relu(x),
}
READ = {
    "floor": lambda top, c: jnp.maximum(c, top),
    "clip": lambda top, c: jnp.clip(top, min=c),
    "called": lambda top, c: jax.jit(lambda top: jnp.maximum(top, c))(top),
    "wide": lambda top, c: top.astype(jnp.float32),
}
OPAQUE = {
    "ceiling": lambda top, c: jnp.minimum(top, c),
    "relu": lambda top, c: jax.nn.relu(top),
    "relu6": lambda top, c: jax.nn.relu6(top),
    "shift": lambda top, c: top + 1,
    "double": lambda top, c: 2 * top,
    "choice": lambda top, c: jnp.where(top > c, top, c),
}
REDUCED = {
    "plain": lambda x: jnp.max(x, axis=0),
    "initial": lambda x: jnp.max(x, axis=0, initial=-jnp.inf),
    "where": lambda x: jnp.max(x, axis=0, where=x < 4, initial=-jnp.inf),
}
PLANS = (
    (2, {"x": "m"}),
    (3, {"x": tp.chunks(3)}),
    (2, {"x": ("m", tp.chunks(2))}),
    (3, {"x": (tp.striped("m"), tp.chunks(size=1))}),
    (3, {"c": "m", "x": tp.ring("m")}),
    (5, {"x": tp.striped("m")}),
)

# By number and whether something opaque is in them. Of some no numbers choose otherwise: what is below 4, or the larger
# of it and 5, is compared with 5. Others drop a NaN, for which is asked where an infinity is said: of `where(top > c,
# top, c)` boxes and the whole come to other numbers then. They are refused, the first though they are right.
REFUSED = {
    *((number, False) for number in (9, 15, 44, 47, 57, 78, 79, 89, 95)),
    *((number, True) for number in (5, 15, 19, 26, 28, 39, 47, 50, 58, 64, 72, 75, 77, 80, 82, 84, 94, 98)),
}


def drawn(draws, opaque):
    before, reduced = draws.choice(sorted(BEFORE)), draws.choice(sorted(REDUCED))
    steps = [(draws.choice(sorted(READ)), draws.choice((0.0, 1.0, 2.0, 5.0))) for _ in range(draws.choice((0, 1, 2)))]
    if opaque:
        steps.insert(draws.randrange(len(steps) + 1), (draws.choice(sorted(OPAQUE)), draws.choice((2.0, 5.0))))

    def kernel(x):
        top = REDUCED[reduced](BEFORE[before](x, 1.0))
        for name, constant in steps:
            top = (READ | OPAQUE)[name](top, constant)
        return top.astype(jnp.float32)

    rows = np.float32([[draws.choice((0, 1, 2, 2, 5, 5)) for _ in range(3)] for _ in range(draws.choice((5, 6, 7)))])
    return kernel, rows


@pytest.mark.parametrize("opaque", [False, True])
@pytest.mark.parametrize("number", [0, *(pytest.param(n, marks=pytest.mark.thorough) for n in range(1, 100))])
def test_gradients_at_ties_of_kernels_around_an_extremum(number, opaque):
    draws = random.Random(f"ties/{number}/{opaque}")
    kernel, rows = drawn(draws, opaque)
    arrow = tp.Reduce(kernel, "x c -> c", tp.monoids.Max)
    devices, entries = draws.choice(PLANS)
    graph = tp.trace(arrow, tp.TensorType({"x": len(rows), "c": 3}))
    run = tp.plan(graph, tp.mesh(m=devices), entries).compile().jitted
    if (number, opaque) in REFUSED:
        with pytest.raises(tp.KernelError, match="is not right for a box of any size"):
            jax.eval_shape(run, rows)
        return
    weights = jnp.arange(1.0, 4.0)
    planned, unplanned = (simulated(jax.grad(lambda x, f=f: f(x) @ weights), rows) for f in (run, arrow))
    if opaque:
        is_subgradient(kernel, rows, planned / np.arange(1.0, 4.0))
    else:
        np.testing.assert_allclose(planned, unplanned, rtol=1e-5, atol=1e-6)


def is_subgradient(kernel, rows, shares):
    alone = jax.vmap(jax.vmap(jax.value_and_grad(lambda cell: kernel(cell[None, None])[0])))
    values, slopes = map(np.asarray, alone(rows))
    attain = values == np.asarray(kernel(rows))
    assert np.all(attain[shares != 0])
    totals = shares.sum(0)
    # bfloat16 rounds shares to three digits.
    assert np.all(totals <= np.where(attain, slopes, -np.inf).max(0) + 1e-2)
    assert np.all(totals >= np.where(attain, slopes, np.inf).min(0) - 1e-2)
