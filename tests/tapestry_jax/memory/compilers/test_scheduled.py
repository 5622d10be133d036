"""The order in which XLA for GPUs runs a program; `tests/aot/test_memory.py` asks the compiler."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from tapestry_jax.memory.compilers import scheduled as module
from tapestry_jax.memory.compilers.scheduled import scheduled
from tapestry_jax.memory.program import Program
from tapestry_jax.memory.read import read_program

N = 64


def read(function: Callable[..., Any], mesh: Any) -> Program:
    mapped = jax.shard_map(function, mesh=mesh, in_specs=(jax.P("data"),) * 2, out_specs=jax.P("data"))
    return read_program(jax.make_jaxpr(mapped)(*[jax.ShapeDtypeStruct((N, N), jnp.float32)] * 2))


def names(program: Program) -> list[str]:
    return [node.name.removesuffix("_invariant") for node in program.nodes if node.name in KERNELS]


KERNELS = ("sort", "psum_invariant", "top_k", "cumsum", "cumprod", "cummax")


def first_alone(a: Any, b: Any) -> Any:
    """What an output alone reads comes first in the program."""
    alone = jnp.sort(a)
    return alone, jax.lax.cumsum(jax.lax.psum(jax.lax.cumprod(b), "data"))


def in_a_row(a: Any, b: Any) -> Any:
    return jax.lax.cumsum(jnp.sort(a)), jax.lax.cumprod(b)


def behind_more(a: Any, b: Any) -> Any:
    """The first result is behind two collectives, and the second behind one."""
    first = jax.lax.psum(jnp.sort(a), "data")
    return jax.lax.cummax(jax.lax.psum(first * first, "data")), jax.lax.cumsum(jax.lax.psum(jax.lax.cumprod(b), "data"))


def in_a_loop(a: Any, b: Any) -> Any:
    def turn(carry: Any, _: Any) -> Any:
        alone, after = first_alone(*carry)
        return (alone, jax.lax.pcast(after, "data", to="varying")), None

    return jax.lax.scan(turn, (a, b), None, length=3)[0]


def behind_a_loop(a: Any, b: Any, sends: bool = True) -> Any:
    """What is gathered is read behind a loop."""

    def turn(carry: Any, _: Any) -> Any:
        carry = jnp.sort(carry)
        return (jax.lax.ppermute(carry, "data", [(0, 1)]) if sends else carry), None

    return jax.lax.scan(turn, a, None, length=3)[0] @ jax.lax.all_gather(b, "data", axis=0, tiled=True)


def test_what_only_an_output_reads_runs_while_a_collective_is_on_its_way(mesh8: Any) -> None:
    program = read(first_alone, mesh8)
    assert names(program) == ["sort", "cumprod", "psum", "cumsum"]
    assert names(scheduled(program)) == ["cumprod", "psum", "sort", "cumsum"]


def test_without_collectives_the_order_is_that_of_the_program(mesh8: Any) -> None:
    program = read(in_a_row, mesh8)
    assert names(scheduled(program)) == names(program) == ["sort", "cumsum", "cumprod"]


def test_what_is_behind_the_most_collectives_runs_last(mesh8: Any) -> None:
    program = read(behind_more, mesh8)
    assert names(program).index("cummax") < names(program).index("cumsum")
    found = names(scheduled(program))
    assert found.index("cumsum") < found.index("cummax")


def test_loops_are_ordered_inside(mesh8: Any) -> None:
    (loop,) = (node for node in scheduled(read(in_a_loop, mesh8)).nodes if node.bodies)
    assert names(loop.bodies[0]) == ["cumprod", "psum", "sort", "cumsum"]


@pytest.mark.parametrize(("hidden", "early"), [(1, 4), (3, 2), (9, 0)])
def test_so_many_kernels_hide_a_collective(
    mesh8: Any, monkeypatch: pytest.MonkeyPatch, hidden: int, early: int
) -> None:
    def many(a: Any, b: Any) -> Any:
        sent = jax.lax.psum(jax.lax.cumprod(b), "data")
        return *(jnp.sort(a) for _ in range(5)), jax.lax.cumsum(sent)

    monkeypatch.setattr(module, "_HIDDEN", hidden)
    found = names(scheduled(read(many, mesh8)))
    assert found.index("psum") - 1 == early
    assert found[-1] == "cumsum"


@pytest.mark.parametrize("function", [first_alone, behind_more, in_a_row, in_a_loop, behind_a_loop])
def test_every_operation_runs_once_behind_what_it_reads(mesh8: Any, function: Any) -> None:
    program = read(function, mesh8)
    after = scheduled(program)
    there = set(after.inputs)
    for node in after.nodes:
        assert there.issuperset(node.operands)
        assert there.isdisjoint(node.results)
        there.update(node.results)
    assert len(after.nodes) == len(program.nodes)


@pytest.mark.parametrize(("sends", "first"), [(True, "scan"), (False, "all_gather")])
def test_a_gather_begins_behind_a_loop_that_sends_as_well(mesh8: Any, sends: bool, first: str) -> None:
    found = [node.name for node in scheduled(read(partial(behind_a_loop, sends=sends), mesh8)).nodes]
    order = [name for name in found if name in ("scan", "all_gather")]
    assert order[0] == first and len(order) == 2
