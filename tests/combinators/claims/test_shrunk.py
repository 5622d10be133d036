"""A program on operands of fewer cells: the same primitives, or nothing where they may be others."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from combinators.claims.shrunk import shrunk
from combinators.kernels.jaxprs import as_function

MANY, FEW = 96_000, 8


def struct(*shape: int) -> Any:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def by_fours(x: Any) -> Any:
    return x.reshape(-1, 4, x.shape[1])[:, ::-1].reshape(x.shape)


def a_loop(x: Any) -> Any:
    return jax.lax.scan(lambda c, row: (c * 0.5 + row, c), x[0], x, reverse=True)


SAME = {
    "shapes inside of a call and out of it": lambda x: (
        jax.nn.relu(x + jnp.ones(x.shape)).sum(0),
        jax.jit(lambda y: jnp.cumsum(y.reshape(len(y), 3, 1), 0))(x),
        x.T @ x,
    ),
    "all but a row": lambda x: jnp.roll(x, 1, 0),
    "groups": by_fours,
    "twice": lambda x: jnp.concatenate([x, x])[::-1],
    "halves": lambda x: x[: len(x) // 2] - x[len(x) // 2 :],
    "places": lambda x: jnp.arange(len(x)) * x[:, 0] / 7,
    "the last place": lambda x: (jnp.arange(len(x)) < len(x) - 1) * x[:, 0],
    "a count": lambda x: jnp.full(3, len(x)),
    "a mean": lambda x: x.mean(0),
    "a variance": lambda x: jnp.var(jnp.asarray(x), 0, ddof=1),
    "a mean in two steps": lambda x: x.mean(0) + (x - x.mean(0)).mean(0),
    "every other": lambda x: jnp.asarray(x).at[::2].multiply(2.0),
    "what places say": lambda x: jnp.asarray(x)[jnp.argsort(x[:, 0])],
    "a loop": a_loop,
    "a sort": lambda x: jnp.sort(x, 0)[-1],
}


@pytest.mark.parametrize("name", SAME)
def test_the_code_of_many_cells_is_run_on_few(name: str) -> None:
    """Of these the code is the same, however many there are; so their own on few is what is wanted."""
    x = np.arange(3.0 * FEW, dtype=np.float32).reshape(FEW, 3) % 7
    program = shrunk(jax.make_jaxpr(SAME[name])(struct(MANY, 3)), [struct(FEW, 3)])
    wanted = jax.tree.leaves(SAME[name](x))
    for found, want in zip(as_function(program)(x), wanted, strict=True):
        np.testing.assert_allclose(found, want, rtol=1e-6)


def test_it_is_the_code_of_many() -> None:
    program = jax.make_jaxpr(lambda x: by_fours(x) if len(x) > FEW else x)(struct(MANY, 3))
    x = np.arange(3.0 * FEW, dtype=np.float32).reshape(FEW, 3)
    (found,) = as_function(shrunk(program, [struct(FEW, 3)]))(x)
    np.testing.assert_array_equal(found, by_fours(x))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x[:50_001].sum(0),
        lambda x: x[:, 0] + jnp.arange(len(x)) * 200_000,
        lambda x: x.at[np.full(2000, 70_000)].set(0),
        lambda x: x.reshape(32, -1, 3).sum(1),
        lambda x: jax.lax.associative_scan(jnp.add, x),
        lambda x: x.sum(0) / math.sqrt(len(x)),
        lambda x: x.sum() * (1 / x.size),
        lambda x: jax.lax.while_loop(lambda c: c.sum() < 9, lambda c: c + 1, x),
    ],
    ids=[
        "some rows",
        "a number beyond all rows",
        "many places",
        "more groups than rows",
        "halves of halves",
        "a root",
        "an inverse",
        "a loop",
    ],
)
def test_of_other_programs_nothing_is_known(function: Any) -> None:
    assert shrunk(jax.make_jaxpr(function)(struct(MANY, 3)), [struct(FEW, 3)]) is None


PLACES = {
    "a place": (lambda x: x.at[70_000].set(0), lambda x: x.at[5].set(0)),
    "some places": (lambda x: x.at[np.array([3, 70_000])].add(1), lambda x: x.at[np.array([3, 5])].add(1)),
    "one row": (lambda x: jax.lax.dynamic_index_in_dim(x, 70_000), lambda x: x[5:6]),
    "before one": (
        lambda x: jnp.where(jnp.arange(len(x)) < 70_000, x[:, 0], 0),
        lambda x: jnp.where(jnp.arange(len(x)) < 5, x[:, 0], 0),
    ),
    "a row of a box": (lambda x: x.at[90_000].set(0), lambda x: x.at[7].set(0)),
    "the last of what stays": (lambda x: x.at[:, 2].set(0), lambda x: x.at[:, 2].set(0)),
}


@pytest.mark.parametrize("name", PLACES)
def test_places_are_as_far_along_few_cells(name: str) -> None:
    function, expected = PLACES[name]
    x = np.random.default_rng(0).normal(size=(FEW, 3)).astype(np.float32)
    (found,) = as_function(shrunk(jax.make_jaxpr(function)(struct(MANY, 3)), [struct(FEW, 3)]))(x)
    np.testing.assert_array_equal(found, expected(jnp.asarray(x)))


def test_places_of_a_box_are_those_of_the_whole() -> None:
    program = jax.make_jaxpr(lambda x: x.at[70_000].set(0, mode="drop"))(struct(MANY // 2, 3))
    x = np.ones((FEW // 2, 3), np.float32)
    assert shrunk(program, [struct(FEW // 2, 3)]) is None  # of that alone it is no place
    (found,) = as_function(shrunk(program, [struct(FEW // 2, 3)], {MANY: FEW, 3: 3}))(x)
    np.testing.assert_array_equal(found, x)


def test_a_place_along_what_stays_stays() -> None:
    long = 5000
    program = jax.make_jaxpr(lambda x: x.at[:, long - 1].set(0))(struct(MANY, long))
    (found,) = as_function(shrunk(program, [struct(FEW, long)]))(np.ones((FEW, long), np.float32))
    np.testing.assert_array_equal(np.flatnonzero(found[0] == 0), [long - 1])


def test_few_cells_are_no_more_than_other_numbers_of_a_program() -> None:
    program = jax.make_jaxpr(lambda x: x.sum(0) + 512)(struct(512, 3))
    assert shrunk(program, [struct(FEW, 3)]) is None


def test_two_dimensions_of_one_size_are_not_told_apart() -> None:
    program = jax.make_jaxpr(lambda x: x.sum(0))(struct(MANY, MANY))
    assert shrunk(program, [struct(4, MANY)]) is None
    assert shrunk(program, [struct(4, 4)]) is not None
