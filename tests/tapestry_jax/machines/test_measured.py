"""The machine that is here, timed: figures that are numbers, and tables that price what was measured."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AbstractMesh, AxisType

import tapestry_jax as tp
from tapestry_jax.machines import measured
from tapestry_jax.machines.laid import lay
from tapestry_jax.machines.transfer import KINDS, seconds


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every size is a program to compile, and how well figures are measured is not asked here."""
    monkeypatch.setattr(measured, "_SIZES", (1 << 12, 1 << 14))
    monkeypatch.setattr(measured, "_REPEATS", 2)
    monkeypatch.setattr(measured, "_LONG", 1)
    rows = measured._Work._over_rows
    monkeypatch.setattr(measured._Work, "_over_rows", lambda work, size, function: rows(work, size >> 8, function))


def test_the_present_machine_is_measured_and_prices_plans():
    machine = tp.machines.measure(tp.mesh(model=2))
    assert {(table.kind, table.axes) for table in machine.tables} == {(kind, ("model",)) for kind in KINDS}
    assert all(figure.source.startswith("measured on 2 x") for _, figure in machine.figures() if not figure.estimate)
    assert tp.machines.Machine.from_json(machine.to_json()) == machine
    laid = lay(machine, (("data", 1), ("model", 2)))
    for table in machine.tables:
        size, took = table.points[1]
        assert seconds(laid, table.kind, ("model",), size) == pytest.approx(took)

    @tp.program("b k, k n -> b n")
    def product(x, w):
        return tp.einsum("b k, k n -> b n")(x, w)

    graph = tp.trace(product, *(jax.ShapeDtypeStruct((64, 64), jnp.float32) for _ in range(2)))
    assert tp.plan(graph, tp.mesh(model=2), {"k": "model"}).cost(machine).communication > 0


@pytest.mark.thorough
def test_links_of_one_device_are_said_to_be_guesses():
    machine = tp.machines.measure(tp.mesh(model=1))
    assert not machine.tables and machine.inside.bandwidth.estimate and machine.between.latency.estimate
    assert not any(figure.estimate for figure in (machine.bandwidth, machine.start, machine.vector))


@pytest.mark.parametrize("mesh", [None, AbstractMesh((8,), ("data",), axis_types=(AxisType.Auto,))])
def test_what_runs_nothing_is_not_measured(mesh: object):
    with pytest.raises(tp.MeshError, match="only a mesh of devices can be measured"):
        tp.machines.measure(mesh)
