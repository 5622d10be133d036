"""What is called several times is read once, and belongs to whoever calls it."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh, AxisType, PartitionSpec

from tapestry_jax.memory import read as subject
from tapestry_jax.memory.read import read_program

X = jax.ShapeDtypeStruct((64, 64), jnp.float32)
PATHS = ("first", "second", "third")


def _layer(x: Any) -> Any:
    return jnp.tanh(x @ x) * 2


def _deep(layer: Any) -> Any:
    def run(x: Any) -> Any:
        for path in PATHS:
            with jax.named_scope(path):
                x = layer(x)
        return x

    return jax.make_jaxpr(run)(X)


def test_equations_of_layers_that_share_a_program_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    plain = subject._said
    monkeypatch.setattr(
        subject, "_said", lambda equation, platforms: seen.append(equation) or plain(equation, platforms)
    )
    shared = read_program(_deep(jax.jit(_layer)), PATHS)
    apart = read_program(_deep(_layer), PATHS)
    assert len(shared.nodes) == len(apart.nodes) == 3 * 3
    # Three calls and what they call; written out, each for itself.
    assert len(seen) == (3 + 3) + 3 * 3


def test_what_is_shared_reads_what_each_call_gives_it_and_belongs_to_it() -> None:
    shared, apart = (read_program(_deep(layer), PATHS) for layer in (jax.jit(_layer), _layer))
    assert shared == apart
    assert [node.path for node in shared.nodes] == [path for path in PATHS for _ in range(3)]


def _ways(layer: Any) -> Any:
    """Calls with arrays, constants, what is the same everywhere and one array twice, in any order, also in a call."""

    def pair(x: Any, other: Any) -> Any:
        x, kept = layer(x, other)
        return layer(kept, x)

    def run(x: Any, y: Any) -> Any:
        ones, twos = jnp.ones((64, 64)), np.full((64, 64), 2, np.float32)
        given = [(x, y), (y, x), (x, x), (x, twos), (ones, x), (x, ones), (twos, x), (ones, ones), (x, twos), (ones, y)]
        for path, (one, other) in zip(PATHS * 4, given, strict=False):
            with jax.named_scope(path):
                one, other = layer(one, other)
                x, y = pair(other, x + one)
        return x, y

    return jax.make_jaxpr(run)(X, X)


def _every_kind(x: Any, y: Any) -> tuple[Any, Any]:
    """What a constant chooses, a loop with scopes of its own, a branch, a loop of one turn, an input handed on."""
    bare = jax.lax.abs(x)
    chosen = jax.lax.select(jax.lax.gt(x, bare), y, x)

    def turn(total: Any, row: Any) -> Any:
        with jax.named_scope("turn"):
            return total + row @ x, jnp.tanh(total)

    total, rows = jax.lax.scan(turn, chosen[0], chosen)
    once, _ = jax.lax.scan(lambda total, _: (total @ y, None), rows, None, length=1)
    picked = jax.lax.cond(total[0] > 0, lambda each: each @ each, lambda each: each * 2, once)
    return jax.lax.select(jax.lax.gt(bare, x), picked + total, bare), bare


def test_calls_of_one_program_are_each_as_if_it_stood_there() -> None:
    shared, apart = (read_program(_ways(layer), PATHS) for layer in (jax.jit(_every_kind), _every_kind))
    assert shared == apart
    assert {node.path.split("/")[0] for node in shared.nodes} >= {*PATHS}


def test_what_cuts_arrays_into_pieces_is_read_where_it_stands() -> None:
    mesh = AbstractMesh((2,), ("data",), axis_types=(AxisType.Auto,))
    row = PartitionSpec("data")

    def layer(x: Any) -> Any:
        return jax.shard_map(lambda x: jnp.tanh(x @ x.T), mesh=mesh, in_specs=row, out_specs=row)(x) * 2

    def read(layer: Any) -> Any:
        return read_program(jax.make_jaxpr(lambda *xs: [layer(x) for x in xs])(X, X, X))

    assert read(jax.jit(layer)) == read(layer)


@pytest.mark.parametrize(
    ("orders", "turns"),
    [
        ([(1, 0, 2), (1, 0, 2)], 0),
        ([(2, 0, 1), (1, 2, 0)], 0),
        ([(2, 0, 1), (2, 0, 1)], 1),
        ([(2, 0, 1), (2, 0, 1), (2, 0, 1)], 0),
        ([(1, 0, 2), (0, 2, 1)], 1),
    ],
)
def test_transpositions_one_after_the_other_are_one_or_none(
    orders: list[tuple[int, ...]], turns: int, mesh8: Any
) -> None:
    def turned(x: Any) -> Any:
        x = jax.lax.pcast(jnp.transpose(x, orders[0]), "data", to="varying")
        for order in orders[1:]:
            x = jnp.transpose(x, order)
        return jnp.sort(x)

    cut = PartitionSpec("data")
    mapped = jax.shard_map(turned, mesh=mesh8, in_specs=PartitionSpec(), out_specs=cut)
    found = read_program(jax.make_jaxpr(mapped)(jax.ShapeDtypeStruct((2, 3, 5), jnp.float32)))
    assert [node.library for node in found.nodes].count("turns") == turns


@pytest.mark.parametrize(("shape", "turns"), [((4, 1, 3), 0), ((4, 3, 1), 1), ((1, 4, 3), 0), ((2, 1, 1), 0)])
def test_dimensions_of_one_cell_are_turned_by_nothing(shape: tuple[int, ...], turns: int) -> None:
    def turned(x: Any) -> Any:
        return jnp.sort(jnp.transpose(jnp.transpose(x, (1, 2, 0)), (0, 2, 1)))  # in all, the first two change places

    found = read_program(jax.make_jaxpr(turned)(jax.ShapeDtypeStruct(shape, jnp.float32)))
    assert [node.library for node in found.nodes].count("turns") == turns


@pytest.mark.parametrize(("platforms", "primitive"), [(("tpu",), "sin"), (("cuda",), "cos")])
def test_one_platform_has_its_own_program_alone(platforms: tuple[str, ...], primitive: str) -> None:
    def run(x: Any) -> Any:
        return jax.lax.platform_dependent(x, tpu=jnp.sin, default=jnp.cos) * 2

    jaxpr = jax.make_jaxpr(run)(X)
    (node,) = (node for node in read_program(jaxpr, (), platforms).nodes if node.name in ("sin", "cos", "cond"))
    assert node.name == primitive
    assert "cond" in [node.name for node in read_program(jaxpr, (), ("tpu", "cuda")).nodes]
