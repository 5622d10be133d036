"""Drawn kernels under two signatures: what is refused breaks the split law in numbers, whatever it is made of."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import combinators as tp
from combinators.errors import SignatureError

ROWS, COLS = 6, 4
Kernel = Callable[[Any, Any], Any]
# What one of their steps mixes another takes out again, exactly: the largest of all after numbers were added to all.
_TAKEN_OUT_AGAIN = frozenset({122, 125})

# Steps of `a`, and of `b` which stays as it is; `i` is an axis.
_STEPS: list[Callable[[Any, Any, int], Any]] = [
    lambda a, b, i: jnp.sin(a),
    lambda a, b, i: a / 6.0,
    lambda a, b, i: a + b,
    lambda a, b, i: jnp.where(b > 0, a, -a),
    lambda a, b, i: a - a.mean(i, keepdims=True),
    lambda a, b, i: a * b.mean(i, keepdims=True),
    lambda a, b, i: jnp.cumsum(a, i),
    lambda a, b, i: jnp.flip(a, i),
    lambda a, b, i: jnp.roll(a, 1, i),
    lambda a, b, i: jnp.roll(jnp.roll(a, 1, i), -1, i),
    lambda a, b, i: jnp.flip(jnp.flip(a, i), i),
    lambda a, b, i: jnp.flip(a, i) + b,
    lambda a, b, i: jnp.sort(a, i),
    lambda a, b, i: jax.nn.softmax(a, i),
    lambda a, b, i: a + jnp.expand_dims(jnp.arange(a.shape[i], dtype=a.dtype), 1 - i),
    lambda a, b, i: a / a.shape[i],
    lambda a, b, i: a / a.size,
    lambda a, b, i: a * np.expand_dims(np.linspace(0, 1, a.shape[i], dtype=np.float32), 1 - i),
    lambda a, b, i: a.reshape(-1).reshape(a.shape),
    lambda a, b, i: (a.T * 2).T,
    lambda a, b, i: a[::-1, ::-1].T.T,
    lambda a, b, i: jnp.tril(a),
    lambda a, b, i: a * (a > a.max(i, keepdims=True) - 1),
    lambda a, b, i: jnp.where(jnp.isnan(a).any(), 0.0, a),
    lambda a, b, i: lax.map(lambda row: row * 2, a),
    lambda a, b, i: jax.vmap(lambda row: row - row.sum(), i, i)(a),
    lambda a, b, i: jnp.ones((a.shape[0], a.shape[0])) @ a,
    lambda a, b, i: a @ (b.T @ b),
    lambda a, b, i: (a @ b.T) @ b,
    lambda a, b, i: jnp.einsum("ij,ij->j", a, b) + a,
    lambda a, b, i: jnp.einsum("ij,ij->i", a, b)[:, None] * a,
    lambda a, b, i: jnp.take_along_axis(a, jnp.argsort(a, i), i),
    lambda a, b, i: a[jnp.arange(a.shape[0]), jnp.argmax(a, 1)][:, None] + a,
    lambda a, b, i: a.at[0].set(0.0),
    lambda a, b, i: jnp.fft.fft(a, axis=i).real,
    lambda a, b, i: jax.jit(lambda x: x * x.mean(i, keepdims=True))(a),
    lambda a, b, i: jax.checkpoint(lambda x: x - x.max(i, keepdims=True))(a),
    lambda a, b, i: jnp.stack([a, b], i).sum(i),
    lambda a, b, i: jnp.broadcast_to(lax.slice_in_dim(a, 0, 1, axis=i), a.shape),
    lambda a, b, i: lax.slice_in_dim(a, 0, 1, axis=i) * a,
    lambda a, b, i: jnp.concatenate([lax.slice_in_dim(a, 0, 1, axis=i), lax.slice_in_dim(a, 1, None, axis=i)], i),
    lambda a, b, i: jnp.concatenate([lax.slice_in_dim(a, 1, None, axis=i), lax.slice_in_dim(a, 0, 1, axis=i)], i),
    lambda a, b, i: lax.cond(a.sum() > 0, lambda x: x, lambda x: x * 1.0, a),
    lambda a, b, i: lax.cond(a.sum() > 0, lambda x: x, lambda x: -x, a),
    lambda a, b, i: lax.fori_loop(0, 2, lambda _, x: x + 1, a),
    lambda a, b, i: lax.associative_scan(jnp.add, a, axis=i),
    lambda a, b, i: jnp.diff(a, axis=i, prepend=0),
    lambda a, b, i: a + jax.random.normal(jax.random.key(0), a.shape),
    lambda a, b, i: jnp.stack([lax.index_in_dim(a, j, i, False) * 2 for j in range(a.shape[i])], i),
    lambda a, b, i: jnp.stack([lax.index_in_dim(a, 0, i, False) for _ in range(a.shape[i])], i),
    lambda a, b, i: lax.optimization_barrier((a, a.sum()))[0],
    lambda a, b, i: (a, a.mean())[0],
]


def _kernel(seed: int) -> Kernel:
    draw = random.Random(seed)
    steps = [(draw.choice(_STEPS), draw.randrange(2)) for _ in range(draw.randint(1, 4))]

    def kernel(a: Any, b: Any) -> Any:
        for step, axis in steps:
            a = step(a, b, axis)
        return a

    return kernel


def _splits(kernel: Kernel, axis: int, operands: list[Any]) -> bool:
    """Whether two parts of a block give what the block gives."""
    whole = np.asarray(kernel(*operands))
    ends = ((0, 2), (2, operands[0].shape[axis]))
    try:
        parts = [np.asarray(kernel(*(lax.slice_in_dim(x, *end, axis=axis) for x in operands))) for end in ends]
    except (TypeError, ValueError):  # it takes blocks of one size alone
        return False
    joined = np.concatenate(parts, axis)
    return joined.shape == whole.shape and np.allclose(joined, whole, rtol=1e-3, atol=1e-3, equal_nan=True)


def verdicts(seed: int) -> list[tuple[bool, bool]]:
    """For each of two signatures of a drawn kernel whether it is true of three blocks, and whether it is taken."""
    kernel, draw = _kernel(seed), np.random.default_rng(seed)
    found: list[tuple[bool, bool]] = []
    blocks = [[jnp.asarray(draw.normal(size=(ROWS, COLS)), jnp.float32) for _ in range(2)] for _ in range(3)]
    blocks[1] = [block * 30 - 10 for block in blocks[1]]
    blocks[2] = [block.at[4, 3].set(jnp.nan) for block in blocks[2]]
    for axis, signature in enumerate(("r [c], r [c] -> r [c]", "[r] c, [r] c -> [r] c")):
        true = all(_splits(kernel, axis, operands) for operands in blocks)
        try:
            tp.trace(tp.Map(kernel, signature), *blocks[0])
        except SignatureError:
            found.append((true, False))
        else:
            found.append((true, True))
    return found


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=[pytest.mark.thorough] * (seed >= 6)) for seed in range(200)]
)
def test_what_is_refused_breaks_the_law(seed: int) -> None:
    assert (True, False) not in verdicts(seed) or seed in _TAKEN_OUT_AGAIN
