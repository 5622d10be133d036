"""Which values are written since several operations would compute them from more than one array."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from tapestry_jax.memory.compilers.kept import kept
from tapestry_jax.memory.program import COSTLY, Program
from tapestry_jax.memory.read import read_program

SQUARE = jax.ShapeDtypeStruct((64, 64), jnp.float32)


def read_by(count: int, made: Callable[[Any, Any], Any]) -> Program:
    def several(a: Any, b: Any) -> Any:
        value = made(jnp.sort(a), jnp.sort(b))
        return [jnp.sum(value + number) for number in range(count)]

    return read_program(jax.make_jaxpr(several)(SQUARE, SQUARE))


def costly(program: Program) -> list[str]:
    return [node.name for node in program.nodes if node.kind == COSTLY]


@pytest.mark.parametrize(("readers", "names"), [(1, []), (2, []), (3, ["add"]), (4, ["add"])])
def test_it_takes_so_many_readers(readers: int, names: list[str]) -> None:
    assert costly(kept(read_by(readers, jnp.add), 3)) == names


@pytest.mark.parametrize(
    ("made", "names"),
    [
        (lambda a, b: a * 2 + b.T, ["add"]),
        (lambda a, b: a + a * 2, []),
        (lambda a, b: a + b[:1] * 0 + jnp.max(b, 0), ["add"]),  # a row is read of the whole
        (lambda a, b: a + jnp.max(b, 0), []),
        (lambda a, b: a + 1, []),
        (jnp.multiply, ["mul"]),
    ],
)
def test_it_is_computed_from_two_arrays_as_large(made: Callable[[Any, Any], Any], names: list[str]) -> None:
    program = read_by(3, made)
    assert costly(kept(program, 3)) == names
    assert costly(kept(program, 3, {"add"})) == [name for name in names if name == "add"]


def test_what_is_kept_is_one_array_for_what_is_computed_from_it() -> None:
    # A residual stream: each sum is read three times, and is computed from the one before it.
    def stream(a: Any, b: Any) -> Any:
        first = jnp.sort(a) + jnp.sort(b)
        scaled = first * 2
        return [jnp.sum(first), jnp.max(first), *(jnp.sum(scaled + number) for number in range(3))]

    assert costly(kept(read_program(jax.make_jaxpr(stream)(SQUARE, SQUARE)), 3)) == ["add"]


def test_loops_and_branches_are_looked_into() -> None:
    def turns(a: Any, b: Any) -> Any:
        def turn(carry: Any, _: Any) -> Any:
            value = jnp.sort(carry) + jnp.sort(b)
            return value, (jnp.sum(value), jnp.max(value))

        def chosen(x: Any, y: Any) -> Any:
            value = jnp.sort(x) + jnp.sort(y)
            return jnp.sum(value) * jnp.max(value) * jnp.min(value)

        last = jax.lax.scan(turn, a, None, length=3)
        return last, jax.lax.cond(a[0, 0] > 0, chosen, lambda x, y: jnp.sum(x), a, b)

    program = kept(read_program(jax.make_jaxpr(turns)(SQUARE, SQUARE)), 2)
    inside = [costly(body) for node in program.nodes for body in node.bodies]
    assert [found for found in inside if found] == [["add"], ["add"]]
