"""Derivatives that somebody wrote, held against the transposed signature; and none that is true is refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from combinators.declared.backward import has_written
from combinators.declared.check import Claim
from combinators.declared.derivative import false_derivative
from combinators.index_space.signature import Signature

_SIZES = {"rows": 7, "cols": 3}


def _times(pull: Callable[[Any, Any, Any], tuple[Any, Any]]) -> Callable[..., Any]:
    @jax.custom_vjp
    def times(x: Any, w: Any) -> Any:
        return x * w

    times.defvjp(lambda x, w: (x * w, (x, w)), lambda kept, g: pull(kept[0], kept[1], g))
    return times


def _asked(kernel: Callable[..., Any], signature: str, dtype: Any = jnp.float32) -> dict[str, str]:
    read = Signature.parse(signature)
    combine = jnp.add if read.fold_dims else None

    def kinds(sizes: Mapping[str, int]) -> list[Any]:
        names = [[str(axis.name) for axis in operand.axes] for operand in read.operands]
        return [jax.ShapeDtypeStruct(tuple(sizes[name] for name in each), dtype) for each in names]

    results = [[axis.name for axis in result.axes] for result in read.results]
    return false_derivative(Claim("times", read, _SIZES, None, combine), kernel, kinds, results)


_FALSE: dict[str, tuple[Callable[..., Any], str]] = {
    "clipped": (lambda x, w, g: (g * w, jnp.clip((g * x).sum(0), -1, 1)), "it takes max of the sum"),
    "product clipped": (lambda x, w, g: (g * w, jnp.clip(jnp.einsum("re,re->e", x, g), -1, 1)), "it takes max"),
    "mean": (lambda x, w, g: (g * w, (g * x).mean(0)), "it reads how many cells of `rows`"),
    "divided": (lambda x, w, g: (g * w, (g * x).sum(0) / x.shape[0]), "it reads how many cells of `rows`"),
    "centred": (lambda x, w, g: ((g - g.mean(0)) * w, (g * x).sum(0)), "it uses reduce_sum along `rows`"),
    "centred before": (lambda x, w, g: (g * w, ((g - g.mean(0)) * x).sum(0)), "it sums what reduce_sum has mixed"),
    "extremum": (lambda x, w, g: (g * w, (g * x).max(0)), "it takes reduce_max along `rows`"),
    "constant": (lambda x, w, g: (g * w, jnp.ones(3)), "depends on no cell"),
    "decayed": (lambda x, w, g: (g * w, (g * x).sum(0) + 0.1 * w), "it adds something to the sum"),
    "some zeros": (
        lambda x, w, g: (g * w, (g * x).sum(0) + np.array([0, 1, 0], np.float32)),
        "it adds something to the sum",
    ),
    "sign": (lambda x, w, g: (g * w, jnp.sign((g * x).sum(0))), "it takes sign of the sum"),
    "norm of all": (lambda x, w, g: (g / jnp.linalg.norm(g) * w, (g * x).sum(0)), "it uses reduce_sum along `rows`"),
    "squared": (lambda x, w, g: (g * w, (g * x).sum(0) * (g * x).sum(0)), "it multiplies sums"),
    "relative": (lambda x, w, g: (g * w, (g * x).sum(0) / (x * x).sum(0)), "it divides by a sum"),
    "chosen by": (lambda x, w, g: (g * w, jnp.where((g * x).sum(0) > 0, 1.0, 0.0)), "it takes gt of the sum"),
}

_TRUE: dict[str, Callable[..., Any]] = {
    "own": lambda x, w, g: (g * w, (g * x).sum(0)),
    "cells clipped": lambda x, w, g: (jnp.clip(g, -1, 1) * w, (jnp.sign(g) * x).sum(0)),
    "product": lambda x, w, g: (g * w, jnp.einsum("re,re->e", x, g) * jnp.tanh(w)),
    "none": lambda x, w, g: (g * w, None),
    "zeros": lambda x, w, g: (g * w, jnp.zeros_like(w)),
    "zeros added": lambda x, w, g: (g * w, (g * x).sum(0) + np.zeros(3, np.float32)),
    "scaled": lambda x, w, g: (g * w, -0.5 * (g * x).sum(0) / jnp.abs(w)),
    "chosen": lambda x, w, g: (g * w, jnp.where(w > 0, (g * x).sum(0), 0.0)),
    "narrow": lambda x, w, g: (g * w, (g * x).astype(jnp.bfloat16).sum(0).astype(w.dtype)),
}


@pytest.mark.parametrize("name", _FALSE)
def test_false_ones_are_told_of_maps_and_of_sums(name: str) -> None:
    pull, text = _FALSE[name]
    times = _times(pull)
    assert text in _asked(times, "rows cols, cols -> rows cols")["rows"]
    assert "rows" in _asked(lambda x, w: jnp.tanh(times(x, w)).sum(0), "rows cols, cols -> cols")


@pytest.mark.parametrize("name", _TRUE)
def test_true_ones_are_taken(name: str) -> None:
    times = _times(_TRUE[name])
    assert _asked(times, "rows cols, cols -> rows cols") == {}
    assert _asked(lambda x, w: jnp.tanh(times(x, w)).sum(0), "rows cols, cols -> cols") == {}


def test_what_is_clipped_over_one_dimension_is_true_of_the_others() -> None:
    found = _asked(_times(_FALSE["clipped"][0]), "rows cols, cols -> rows cols")
    assert list(found) == ["rows"]


@pytest.mark.parametrize(
    "function", [jax.nn.relu, jax.nn.silu, jax.nn.softplus, jax.nn.log_sigmoid, jax.nn.relu6, jnp.sinc, jnp.logaddexp]
)
def test_those_of_jax_are_true(function: Callable[..., Any]) -> None:
    def kernel(x: Any, w: Any) -> Any:
        return function(x, w) if function is jnp.logaddexp else function(x * function(w))

    assert _asked(kernel, "rows cols, cols -> rows cols") == {}
    assert _asked(lambda x, w: kernel(x, w).sum(0), "rows cols, cols -> cols") == {}
    shape = jax.ShapeDtypeStruct((7, 3), jnp.float32)
    assert not has_written(jax.make_jaxpr(lambda x: kernel(x, x))(shape))


def test_tangents_that_somebody_wrote_are_looked_at() -> None:
    @jax.custom_jvp
    def centred(x: Any, w: Any) -> Any:
        return x * w

    @centred.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        (x, w), (dx, dw) = primals, tangents
        return x * w, (dx - dx.mean(0)) * w + x * dw

    assert "reduce_sum" in _asked(centred, "rows cols, cols -> rows cols")["rows"]
    assert has_written(jax.make_jaxpr(lambda x: centred(x, x))(jnp.ones(3)))
