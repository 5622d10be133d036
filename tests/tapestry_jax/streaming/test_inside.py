"""What turns know of where they are: coordinates, random numbers, other names, values that are handed on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tapestry_jax as tp

agg = tp.aggregators
X = tp.TensorType({"row": 13, "c": 3}, jnp.float32)
N = tp.TensorType({"n": 7, "c": 3}, jnp.float32)
KEY = tp.TensorType.make((None,), (2,), jnp.uint32)
x = np.random.default_rng(0).normal(size=(13, 3)).astype(np.float32)
FOUR = {"row": tp.chunks(size=4)}
MESH = {"row": ("data", tp.chunks(size=2))}


def numbered(x: Any) -> Any:
    return tp.Map(lambda a, i: a * i[:, None], "row c, row -> row c")(x, tp.index("row", like=x))


def noisy(x: Any, key: Any) -> Any:
    return tp.Map(jnp.add, "row c, row c -> row c")(x, tp.random.normal(key, like=x))


def two_names(x: Any, y: Any) -> Any:
    return tp.fold(agg.Sum(), "row c -> c")(x) + tp.fold(agg.Sum(), "n c -> c")(y)


def handed_on(x: Any) -> Any:
    y = tp.Map(jnp.sin)(x)
    return x, y, y


def near(x: Any) -> Any:
    wide = tp.Map(lambda w: w[:-4] + 2 * w[4:], "(row+[k]-2) c -> row c", boundary="periodic", sizes={"k": 5})
    return wide(x)


BOTH = {**FOUR, "n": tp.chunks(size=3)}
CASES: dict[str, tuple[Callable[..., Any], list[Any], Any, list[Any], dict[str, int]]] = {
    "coordinates": (numbered, [X], FOUR, [x], {}),
    "coordinates on a mesh": (numbered, [X], MESH, [x], {"data": 3}),
    "random": (noisy, [X, KEY], FOUR, [x, np.arange(2, dtype=np.uint32)], {}),
    "two names": (two_names, [X, N], BOTH, [x, x[:7]], {}),
    "handed on": (handed_on, [X], FOUR, [x], {}),
    "windows on a mesh": (near, [X], MESH, [x], {"data": 3}),
}


@pytest.mark.parametrize("name", CASES)
def test_stream_knows_where_it_is(name: str) -> None:
    program, specs, over, sources, mesh = CASES[name]
    graph = tp.trace(program, *specs)
    devices = tp.mesh(None, **mesh) if mesh else None
    got = tp.stream(graph, over, sources, mesh=devices).run()
    for mine, other in zip(jax.tree.leaves(got), jax.tree.leaves(graph(*sources)), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-5)
