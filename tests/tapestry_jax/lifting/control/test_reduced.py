"""Reductions by a function of the user's: folds where it and its start are a known monoid, and left alone elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import tapestry_jax as tp
from tests.tapestry_jax.lifting.agree import agrees, dims

SOURCE = np.random.default_rng(0)
X = SOURCE.standard_normal((6, 8)).astype("f4")
NUMBERS = SOURCE.integers(-9, 9, (5, 7)).astype("i4")


def by(function: Callable[..., Any], start: Any, axes: tuple[int, ...] = (0,)) -> Callable[..., Any]:
    return lambda x: lax.reduce(x, np.asarray(start, x.dtype), function, axes)


# The function and its argument; every one is cut along both axes.
KNOWN: dict[str, Any] = {
    "sums": (by(lambda a, b: b + a, 0, (0, 1)), X),
    "products": (by(lambda a, b: a * b, 1), X),
    "maxima": (by(lambda a, b: jnp.maximum(b, a), -np.inf, (1,)), X),
    "minima of whole numbers": (by(jnp.minimum, np.iinfo(np.int32).max), NUMBERS),
    "bits of both": (by(lambda a, b: a & b, -1), NUMBERS),
    "bits of one": (by(lambda a, b: a ^ b, 0, (1,)), NUMBERS),
    "truths": (by(lambda a, b: b | a, False), X > 1),
    "two tensors": (
        lambda x: lax.reduce(
            (x, x * 2), (np.float32(0), np.float32(-np.inf)), lambda a, b: (a[0] + b[0], jnp.maximum(a[1], b[1])), (0,)
        ),
        X,
    ),
    "JAX's own of bits": (lambda x: jnp.bitwise_and.reduce(x, axis=0), NUMBERS.astype("u1")),
    "one truth of two": (lambda x: jnp.logical_xor.reduce(x, axis=1), X > 0),
    "prefixes of bits": (lambda x: lax.associative_scan(lambda a, b: a | b, x), NUMBERS),
}


@pytest.mark.parametrize("name", KNOWN)
def test_a_reduction_by_a_known_function_is_a_fold(name: str) -> None:
    function, x = KNOWN[name]
    graph = agrees(function, x, rtol=1e-4)
    assert graph.opaque() == () and len(dims(graph)) == 2


@pytest.mark.parametrize("shape", [(1, 1), (0, 4), (4, 0)])
def test_of_one_cell_or_none_it_gives_what_jax_gives(shape: tuple[int, int]) -> None:
    assert agrees(KNOWN["maxima"][0], np.ones(shape, "f4"), grads=False).opaque() == ()


# What JAX leaves open, or what is no monoid: on whole tensors, as JAX has it.
OPAQUE: dict[str, Any] = {
    "a start that is no identity": by(lambda a, b: a + b, 1.0),
    "a start that is computed": lambda x: lax.reduce(x, x[0, 0], lax.add, (0,)),
    "twice the first": by(lambda a, b: a + a + b, 0.0),
    "the second": by(lambda _, b: b, 0.0),
    "one reads the other": lambda x: lax.reduce(
        (x, x), (np.float32(0), np.float32(0)), lambda a, b: (a[0] + b[0], a[1] + b[0]), (0,)
    ),
}


@pytest.mark.parametrize("name", OPAQUE)
def test_what_jax_leaves_open_stays_what_jax_gives(name: str) -> None:
    function = OPAQUE[name]
    graph = tp.lift(function, X)
    assert [found.primitive for found in graph.opaque()] == ["reduce"]
    for got, want in zip(np.atleast_2d(graph(X)), np.atleast_2d(function(X)), strict=True):
        np.testing.assert_array_equal(got, want)


def test_without_axes_it_gives_its_operand() -> None:
    graph = tp.lift(by(lax.add, 1.0, ()), X)
    assert graph.opaque() == ()
    np.testing.assert_array_equal(graph(X), X)
