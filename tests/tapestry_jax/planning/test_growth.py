"""Planning, and what plans tell, take time in proportion to the program: work is counted, not time."""

from __future__ import annotations

import functools
import operator
from typing import Any

import jax.numpy as jnp
import pytest
from jax.sharding import AbstractMesh

import tapestry_jax as tp
from tests.work import growth

sin = tp.Map(jnp.sin)
LINEAR = 1.6
ROW = tp.TensorType({"n": 4})


def operations(count: int) -> Any:
    def program(x: Any) -> Any:
        for number in range(count):
            x = tp.Map(jnp.sin, name=f"s{number % 5}")(x)
        return x

    return tp.trace(program, ROW)


def inputs(count: int) -> Any:
    return tp.trace(lambda *xs: functools.reduce(operator.add, xs), *[ROW] * count)


def loops(count: int) -> Any:
    return tp.trace(lambda *xs: tp.iterate(lambda c: tuple(map(sin, c)), 3)(tuple(xs)), *[ROW] * count)


GRAPHS = {"operations": operations, "inputs": inputs, "carries": loops}
ENTRIES = {"space": {"n": "data"}, "chunks": {"n": ("data", tp.chunks(2))}}


# Each program once, each cut once; both together are thorough.
@pytest.mark.parametrize(
    ("graph", "entries"),
    [
        pytest.param(
            GRAPHS[graph],
            ENTRIES[entries],
            id=f"{graph}-{entries}",
            marks=[pytest.mark.thorough] * ((graph == "inputs") == (entries == "chunks")),
        )
        for graph in GRAPHS
        for entries in ENTRIES
    ],
)
def test_planning_and_reports_are_linear(graph: Any, entries: Any, mesh2x4: Any) -> None:
    # Once for all uses: what a plan keeps for later is counted by the first that asks for it.
    @functools.cache
    def planned(count: int) -> Any:
        return tp.plan(graph(count), mesh2x4, entries)

    assert growth(graph, lambda each: tp.plan(each, mesh2x4, entries), 15) < LINEAR
    for use in (
        lambda plan: plan.verify(),
        lambda plan: plan.collectives(),
        lambda plan: plan.collectives(True),
        lambda plan: plan.explain(),
        lambda plan: plan.explain(True),
        lambda plan: plan.to_json(),
    ):
        assert growth(planned, use, 15) < LINEAR


def test_what_a_scan_sends_is_told_without_a_look_at_each_pair_of_devices():
    graph = tp.trace(tp.Scan(tp.monoids.Sum, "i -> i", "i"), tp.TensorType({"i": 2**40}))

    def planned(devices: int) -> Any:
        return tp.plan(graph, AbstractMesh((4, devices), ("a", "b")), {"i": ("a", "b")})

    # One exchange more where there are twice as many devices.
    assert growth(planned, lambda plan: plan.collectives(), size=2**6, factor=8) < LINEAR / 8
    assert {each.axes for each in planned(8).collectives()} == {("a",), ("a", "b")}
