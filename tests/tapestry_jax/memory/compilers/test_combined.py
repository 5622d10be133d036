"""Collectives that XLA for GPUs sends as one; `tests/aot/test_memory.py` asks the compiler."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from tapestry_jax.memory.compilers import combined as module
from tapestry_jax.memory.compilers.arrived import arrived
from tapestry_jax.memory.compilers.combined import combined
from tapestry_jax.memory.liveness import peak
from tapestry_jax.memory.program import FUSED, Node, Program
from tapestry_jax.memory.read import read_program

N, LAYERS = 64, 3
SQUARE = 4 * N * N


def gather(x: Any, axis: int = 0) -> Any:
    return jax.lax.all_gather(x, "data", axis=axis, tiled=True)


def read(function: Callable[..., Any], mesh: Any, *specs: Any, out: Any = None) -> Program:
    mapped = jax.shard_map(function, mesh=mesh, in_specs=specs, out_specs=specs[-1] if out is None else out)
    return read_program(jax.make_jaxpr(mapped)(*[jax.ShapeDtypeStruct((N, N), jnp.float32) for _ in specs]))


def sent(program: Program) -> Counter[tuple[str, int]]:
    """Collectives by kind, and how many arrays each sends: what is reduced lies side by side."""
    beside = {node.results[0]: len(node.operands) for node in program.nodes if node.kind == FUSED}
    return Counter(
        (node.name, beside.get(node.operands[0], len(node.operands))) for node in program.nodes if node.group
    )


CUT, WHOLE = jax.P("data"), jax.P()


def one_by_one(a: Any, b: Any, x: Any) -> Any:
    return jnp.sort(jnp.sort(x @ gather(a)) @ gather(b))


def in_turn(a: Any, b: Any, x: Any) -> Any:
    found = gather(jnp.sort(gather(a) * 2)[: N // 8])
    return jnp.sort(x @ found @ b.T @ b)


def of_two_kinds(a: Any, b: Any, x: Any) -> Any:
    return jax.lax.psum(a @ a.T, "data")[:8, :8] @ x + jax.lax.pmax(b @ b.T, "data")[:8, :8] @ x + gather(a)[:8]


def crossed(a: Any, b: Any, x: Any) -> Any:
    """Two pairs, each of which waits for the other: only one of them is sent as one."""
    first, second = gather(a), jax.lax.psum(b @ b.T, "data")
    after_first, after_second = jax.lax.psum(first[:8] @ b.T, "data"), gather(second[:8, :8] @ a)
    return x + (after_first @ first[:8]) + after_second[:8]


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (one_by_one, {("all_gather", 2): 1}),
        (in_turn, {("all_gather", 1): 2}),
        (of_two_kinds, {("psum_invariant", 1): 1, ("pmax", 1): 1, ("all_gather", 1): 1}),
        (crossed, {("all_gather", 1): 2, ("psum_invariant", 2): 1}),
    ],
)
def test_collectives_that_wait_for_none_of_each_other_are_sent_as_one(mesh8: Any, function: Any, expected: Any) -> None:
    assert sent(combined(read(function, mesh8, CUT, CUT, CUT))) == expected


def test_in_loops_too(mesh8: Any) -> None:
    def looped(a: Any, b: Any, x: Any) -> Any:
        return jax.lax.scan(lambda carry, _: (one_by_one(a, b, carry), None), x, None, length=3)[0]

    (loop,) = (node for node in combined(read(looped, mesh8, CUT, CUT, CUT)).nodes if node.bodies)
    assert sent(loop.bodies[0]) == {("all_gather", 2): 1}


@pytest.mark.parametrize(("axes", "expected"), [(("x", "x"), {2: 1}), (("x", "y"), {1: 2}), (("y", "y"), {2: 1})])
@pytest.mark.parametrize("is_sum", [False, True])
def test_what_goes_over_other_axes_goes_alone(axes: Any, expected: Any, is_sum: bool) -> None:
    def both(a: Any, b: Any) -> Any:
        if is_sum:
            return tuple(jax.lax.psum_scatter(each, axis, tiled=True) for each, axis in zip((a, b), axes, strict=True))
        return tuple(jax.lax.all_gather(each, axis, tiled=True) for each, axis in zip((a, b), axes, strict=True))

    mesh = jax.sharding.AbstractMesh((2, 2), ("x", "y"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    specs = jax.P(("x", "y"))
    mapped = jax.shard_map(both, mesh=mesh, in_specs=(specs, specs), out_specs=specs, check_vma=False)
    program = read_program(jax.make_jaxpr(mapped)(*[jax.ShapeDtypeStruct((N, N), jnp.float32)] * 2))
    found = Counter(len(node.results) for node in combined(program).nodes if node.group)
    assert found == expected if not is_sum or expected != {2: 1} else found.total() == 1


def test_as_many_are_sent_as_one_as_fit(mesh8: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST", 2 * SQUARE - 1)
    assert sent(combined(read(one_by_one, mesh8, CUT, CUT, CUT))) == {("all_gather", 1): 2}


def test_what_is_sent_as_one_is_there_at_once(mesh8: Any) -> None:
    program = read(one_by_one, mesh8, CUT, CUT, CUT)
    assert peak(program).bytes == SQUARE + SQUARE // 8
    assert peak(combined(program)).bytes == 2 * SQUARE


@pytest.mark.parametrize("function", [one_by_one, in_turn, of_two_kinds, crossed])
def test_everything_is_there_before_it_is_read(mesh8: Any, function: Any) -> None:
    program = read(function, mesh8, CUT, CUT, CUT)
    after = combined(program)
    there = set(after.inputs)
    for node in after.nodes:
        assert there.issuperset(node.operands)
        there.update(node.results)
    assert there.issuperset(each for each in after.outputs if each is not None)
    assert results(after) >= results(program)


def results(program: Program) -> set[int]:
    return {number for node in program.nodes for number in node.results}


def test_what_is_reduced_as_one_is_copied_side_by_side(mesh8: Any) -> None:
    def reduced(a: Any, b: Any) -> Any:
        return tuple(jnp.sort(jax.lax.psum(each, "data")) for each in (a @ a.T, b @ b.T))

    program = read(reduced, mesh8, CUT, CUT, out=(CUT, CUT))
    # Both products, or both sums, lie beside the array in which they are sent.
    assert peak(combined(program)).bytes == 4 * (SQUARE // 64)


def layers(axis: int) -> Callable[..., Any]:
    def run(weights: Any, x: Any) -> Any:
        return jax.lax.scan(lambda carry, w: (jnp.sort(carry @ gather(w, axis)), None), x, weights)[0]

    return run


def turns(program: Program) -> list[Node]:
    return [node for node in program.nodes if node.library == "turns"]


@pytest.mark.parametrize(("axis", "copies"), [(0, 0), (1, 1)])
def test_layers_that_are_gathered_inside_are_turned_before_the_loop(mesh8: Any, axis: int, copies: int) -> None:
    spec = [None, None, None]
    spec[1 + axis] = "data"
    mapped = jax.shard_map(layers(axis), mesh=mesh8, in_specs=(jax.P(*spec), CUT), out_specs=CUT)
    structs = (jax.ShapeDtypeStruct((LAYERS, N, N), jnp.float32), jax.ShapeDtypeStruct((N, N), jnp.float32))
    program = read_program(jax.make_jaxpr(mapped)(*structs))
    found = arrived(program)
    assert len(turns(found)) == copies
    assert all(found.values[node.results[0]].bytes == LAYERS * SQUARE // 8 for node in turns(found))
    assert peak(found).bytes == peak(program).bytes + copies * LAYERS * SQUARE // 8


def test_what_is_gathered_twice_is_turned_once(mesh8: Any) -> None:
    def twice(w: Any) -> Any:
        return jnp.sort(gather(w, 1)), jnp.sort(gather(w, 1) * 2)

    program = read(twice, mesh8, jax.P(None, "data"), out=jax.P(None, "data"))
    assert len(turns(arrived(program))) == 1


def test_what_a_loop_hands_on_is_not_turned_before_it(mesh8: Any) -> None:
    def looped(w: Any) -> Any:
        def turn(carry: Any, _: Any) -> Any:
            return jnp.sort(gather(carry, 1)[:, : N // 8]), None

        return jax.lax.scan(turn, w, None, length=3)[0]

    assert turns(arrived(read(looped, mesh8, jax.P(None, "data")))) == []


def test_branches_turn_what_they_gather(mesh8: Any) -> None:
    def either(w: Any) -> Any:
        return jax.lax.cond(jax.lax.axis_index("data") > 2, lambda w: gather(w, 1), lambda w: 2 * gather(w, 1), w)

    (branch,) = (n for n in arrived(read(either, mesh8, jax.P(None, "data"))).nodes if n.bodies)
    assert [len(turns(body)) for body in branch.bodies] == [1, 1]


@pytest.mark.parametrize(("made", "copies"), [(lambda w: w, 1), (jnp.exp, 0)])
def test_what_is_computed_is_written_as_the_gather_reads_it(mesh8: Any, made: Any, copies: int) -> None:
    program = read(lambda w: jnp.sort(gather(made(w), 1)), mesh8, jax.P(None, "data"), out=jax.P(None, "data"))
    assert len(turns(arrived(program))) == copies
