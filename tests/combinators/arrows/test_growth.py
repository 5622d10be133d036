"""Composing, tracing and storing take time in proportion to the program: work is counted, not time."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tapestry_jax as tp
from tests.thoroughly import but
from tests.work import growth

sin = tp.Map(jnp.sin)
LINEAR = 1.6
ROW = tp.TensorType({"n": 4})
ANONYMOUS = tp.TensorType((4,))


def chain(join: Callable[[Any, Any], Any], count: int, *, right: bool = False) -> Any:
    return functools.reduce(lambda a, b: join(b, a) if right else join(a, b), [sin] * count)


def bound(count: int) -> Any:
    scale = tp.einsum("n, n -> n")
    return functools.reduce(lambda a, _: (a.first() >> scale).bind(np.ones(4, np.float32)), range(count), sin)


JOINS = {">>": operator.rshift, "*": operator.mul, "&": operator.and_, "|": operator.or_}


@pytest.mark.parametrize("right", [False, True], ids=["left", "right"])
@pytest.mark.parametrize("join", JOINS.values(), ids=JOINS)
def test_composing_is_linear(join: Any, right: bool) -> None:
    assert growth(lambda n: n, lambda n: chain(join, n, right=right)) < LINEAR


@pytest.mark.parametrize("around", ["first", "second", "left", "right"])
def test_wrapping_is_linear(around: str) -> None:
    assert growth(lambda n: n, lambda n: functools.reduce(lambda a, _: getattr(a, around)(), range(n), sin)) < LINEAR


@pytest.mark.parametrize("join", but([">>", "*", "&"], ">>", "&"))
def test_compositions_of_thousands_are_traced(join: str) -> None:
    for right in (False, True):
        arrow = chain(JOINS[join], 1200, right=right)
        graph = tp.trace(arrow, *[ROW] * arrow.arity)
        assert sum(node.path.startswith("sin") for node in graph.nodes) == (1 if join == "&" else 1200)
        assert len(arrow.name) < 130


def test_a_chain_of_a_thousand_runs() -> None:
    halve = tp.Map(functools.partial(jnp.multiply, 0.5), name="halve")
    arrow = functools.reduce(operator.rshift, [halve] * 20 + [tp.identity] * 3000)
    assert arrow(jnp.ones(3)).tolist() == [0.5**20] * 3


def test_deep_compositions_of_every_kind_are_applied_without_recursion() -> None:
    spread, together = tp.Map(lambda a: (a, a, a), "n -> n, n, n"), tp.Map(lambda a, b, c: a + b + c, "n, n, n -> n")
    deep: Any = sin
    for _ in range(300):
        deep = spread >> deep.first().second() >> together
    assert len(tp.trace(deep, ROW).nodes) == 602
    either: Any = functools.reduce(lambda a, _: a.left(), range(3000), sin)
    assert either.arity == 1


def test_bound_arrows_inside_bound_arrows() -> None:
    arrow = bound(1200)
    assert arrow.arity == 1 and len(arrow.holders()) == 1200
    assert len(tp.trace(bound(300), ROW).inputs) == 301
    assert growth(bound, lambda arrow: tp.trace(arrow, ROW)) < LINEAR


def shared(depth: int) -> Any:
    return functools.reduce(lambda a, _: a >> a, range(depth), tp.identity)


def test_shared_parts_are_looked_at_once() -> None:
    assert growth(shared, lambda arrow: arrow.holders(), size=8, factor=2) < LINEAR


def operations(count: int) -> Any:
    def program(x: Any) -> Any:
        for number in range(count):
            x = tp.Map(jnp.sin, name=f"s{number % 5}")(x)
        return x

    return tp.trace(program, ROW)


def added(count: int, kind: Any = ROW) -> Any:
    return tp.trace(lambda *xs: functools.reduce(operator.add, xs), *[kind] * count)


def results(count: int) -> Any:
    return tp.trace(lambda xs: [sin(x) for x in xs], [ROW] * count)


def renamed(count: int) -> Any:
    def program(x: Any) -> Any:
        for number in range(count):
            x = sin(x).rename(**{f"m{number}" if number else "n": f"m{number + 1}"})
        return x

    return tp.trace(program, ROW)


def captured(count: int) -> Any:
    return tp.trace(
        lambda x, *ws: tp.iterate(lambda c: functools.reduce(operator.mul, ws, c), 2)(x), *[ANONYMOUS] * count
    )


PROGRAMS = {
    "operations": operations,
    "inputs": added,
    "anonymous inputs": functools.partial(added, kind=ANONYMOUS),
    "results": results,
    "renames": renamed,
    "captured": captured,
}


@pytest.mark.parametrize("name", but(PROGRAMS, "inputs", "results", "renames"))
def test_tracing_and_what_graphs_do_is_linear(name: str) -> None:
    program = PROGRAMS[name]
    assert growth(lambda n: n, program) < LINEAR
    for use in (lambda g: g.key, lambda g: g.to_json(), lambda g: g.show(), lambda g: g.show("mermaid"), repr):
        assert growth(program, use) < LINEAR
    assert growth(program, lambda graph: graph.observe(graph.outputs[0][0])) < LINEAR
    assert growth(lambda n: program(n).to_json(), tp.Graph.from_json) < LINEAR


def by_key(count: int) -> str:
    affine = tp.Monoid((1.0, 0.0), lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1]))
    keyed = tp.Aggregator(lambda x: (0.5 + x, x), affine, lambda state: state[1]).by_key(None, 4)
    return str(jax.make_jaxpr(keyed.run)(jnp.zeros(count), jnp.zeros(count, jnp.int32)))


def test_what_is_compiled_for_a_monoid_by_key_does_not_grow_with_the_elements() -> None:
    # A tree of all steps has two levels of slices for every halving.
    assert by_key(1000).count("\n") < 1.1 * by_key(300).count("\n")
