"""Random compositions of calls of `jax.numpy`, made without a look at how lifting works."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tapestry_jax as tp
from tests.tapestry_jax.lifting.agree import agrees
from tests.thoroughly import thoroughly

Source = np.random.Generator
SIZES = (1, 2, 3, 4, 5, 6)


def unary(x: Any, draw: Source) -> Any:
    return [jnp.tanh, jnp.sin, jax.nn.gelu, jax.nn.relu, jnp.abs, jax.nn.sigmoid][draw.integers(6)](x)


def transposed(x: Any, draw: Source) -> Any:
    return jnp.transpose(x, draw.permutation(x.ndim).tolist())


def weighed(x: Any, draw: Source) -> Any:
    w = jnp.sin(jnp.arange(x.shape[-1] * (n := int(draw.choice(SIZES)))).reshape(x.shape[-1], n) + 1.0)
    return x @ w / x.shape[-1]


def squared(x: Any, draw: Source) -> Any:
    return jnp.einsum("...ik,...jk->...ij", x, jnp.cos(x)) if x.ndim > 1 else x * x.sum()


def normalised(x: Any, draw: Source) -> Any:
    axis = int(draw.integers(x.ndim))
    return jax.nn.softmax(x, axis) + (x - x.mean(axis, keepdims=True))


def reduced(x: Any, draw: Source) -> Any:
    axis = int(draw.integers(x.ndim))
    kept = x.ndim < 2 or bool(draw.integers(2))
    return [jnp.sum, jnp.max, jnp.min, jnp.mean][draw.integers(4)](x, axis, keepdims=kept)


def spread(x: Any, draw: Source) -> Any:
    axis = int(draw.integers(x.ndim))
    return x + jnp.expand_dims(x.sum(axis), axis) * jnp.arange(x.shape[axis]).reshape(
        [-1 if a == axis else 1 for a in range(x.ndim)]
    )


def reshaped(x: Any, draw: Source) -> Any:
    divisors = [d for d in range(1, x.size + 1) if x.size % d == 0]
    first = int(draw.choice(divisors))
    return x.reshape((first, x.size // first)) if draw.integers(2) else x.reshape((*x.shape[:-1], 1, x.shape[-1]))


def running(x: Any, draw: Source) -> Any:
    return jnp.cumsum(x, int(draw.integers(x.ndim))) / 3


def cut(x: Any, draw: Source) -> Any:
    axis = int(draw.integers(x.ndim))
    start = int(draw.integers(max(x.shape[axis] // 2, 1)))
    step = int(draw.integers(1, 3))
    return x[tuple(slice(start, None, step) if a == axis else slice(None) for a in range(x.ndim))]


def joined(x: Any, draw: Source) -> Any:
    return jnp.concatenate([x, jnp.flip(x, -1) * 2], int(draw.integers(x.ndim)))


def padded(x: Any, draw: Source) -> Any:
    return jnp.pad(x, [tuple(draw.integers(0, 2, 2)) for _ in x.shape])


def chosen(x: Any, draw: Source) -> Any:
    return jnp.where(jnp.arange(x.shape[-1]) % 2 == 0, x, -x)


def looked_up(x: Any, draw: Source) -> Any:
    return jnp.take(x, jnp.asarray(draw.integers(0, x.shape[0], 3)), axis=0)


def rolled(x: Any, draw: Source) -> Any:
    return jnp.roll(x, int(draw.integers(-2, 3)), int(draw.integers(x.ndim)))


def scanned(x: Any, draw: Source) -> Any:
    return jax.lax.scan(lambda carry, row: (jnp.tanh(carry + row), carry), jnp.zeros(x.shape[1:]), x)[1]


CALLS: list[Callable[[Any, Source], Any]] = [
    unary, transposed, weighed, squared, normalised, reduced, spread, reshaped, running, cut, joined, padded, chosen,
    looked_up, rolled, scanned,
]  # fmt: skip


def composition(seed: int) -> tuple[Callable[[Any], Any], Any]:
    draw = np.random.default_rng(seed)
    x = draw.standard_normal(draw.choice(SIZES, draw.integers(1, 4))).astype(np.float32)
    calls = [CALLS[at] for at in draw.integers(len(CALLS), size=draw.integers(3, 8))]
    seeds = draw.integers(1 << 30, size=len(calls))

    def composed(x: Any) -> Any:
        y = x
        for call, inner in zip(calls, seeds, strict=True):
            if 0 < y.size < 500 and 0 < y.ndim < 5:
                y = call(y, np.random.default_rng(inner))
        return y, jnp.tanh(x)

    composed.__name__ = "_".join(call.__name__ for call in calls)
    return composed, x


@pytest.mark.parametrize("seed", range(200 if thoroughly() else 1))
def test_a_random_composition_is_what_it_was_under_every_plan(seed: int) -> None:
    function, x = composition(seed)
    assert agrees(function, x, rtol=2e-4).opaque() == ()


def test_the_generator_reaches_every_call() -> None:
    names = {name for seed in range(60) for name in CALLS if name.__name__ in composition(seed)[0].__name__}
    assert names == set(CALLS)
    assert tp.lift(*composition(0)).opaque() == ()
