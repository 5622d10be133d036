"""What random pairs found, written out: small programs and plans that were wrong, or refused in the wrong place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import tapestry_jax as tp
from tests.pairs import kernels
from tests.pairs.pair import check, draw_pair
from tests.pairs.plans import Placing
from tests.pairs.programs import Program
from tests.thoroughly import but


@pytest.fixture(autouse=True)
def _doubles():
    with jax.enable_x64(True):
        yield


@dataclass(frozen=True)
class Written(Program):
    """A program that was not drawn."""

    run: Callable[..., Any] = tuple
    sizes_of: tuple[tuple[tuple[str, int], ...], ...] = ()

    @property
    def types(self) -> dict[str, tp.TensorType]:
        return {f"x{number}": tp.TensorType(list(dims), jnp.float64) for number, dims in enumerate(self.sizes_of)}

    @property
    def graph(self) -> tp.Graph:
        return tp.trace(self.run, *self.types.values())


def assert_equal(run: Callable[..., Any], mesh: dict[str, int], entries: dict[str, Any], *dims: dict[str, int]) -> None:
    """Planned is unplanned; the plan is accepted as it stands."""
    program = Written("written", (), run=run, sizes_of=tuple(tuple(own.items()) for own in dims))
    _, outcome = check(program, Placing(mesh, entries), repair=False)
    assert outcome.verdict in ("equal", "trivial"), f"{outcome.verdict}\n{outcome.text}\n{outcome.refusals}"


def smoothed(x: Any, over: str, boundary: str = "periodic") -> Any:
    operand = " ".join(f"({name}+[k]-1)" if name == over else name for name in x.names)
    kernel = kernels.Smooth(x.names.index(over), 1, 1)
    return tp.Map(kernel, f"{operand} -> {' '.join(x.names)}", sizes={"k": 3}, boundary=boundary)(x)


@pytest.mark.parametrize("boundary", ["periodic", "reflect"])
@pytest.mark.parametrize("devices", but([2, 3], 2))
def test_chunks_of_what_goes_round_stay_inside_the_ring(devices, boundary):
    # The window keeps the ring inside of the repetition; the chunks are parts of what it brings.
    def run(x):
        return tp.iterate(lambda value: tp.Map(jnp.tanh)(smoothed(value, "b", boundary)) + x * 0.5, 2)(x)

    entries = {"b": ("data",), "c": (tp.ring("data"), tp.chunks(2))}
    assert_equal(run, {"data": devices, "model": 2}, entries, {"c": 7, "b": 4})


@pytest.mark.parametrize("entry", [(tp.chunks(2),), (tp.chunks(size=1),), ("data", tp.chunks(size=2)), ("data",)])
def test_a_window_of_an_empty_dimension_reads_no_chunks(entry):
    # Five taps on two cells: no result, whatever is done with the taps.
    correlate = tp.Reduce(kernels.correlate, "(a+e) c, e -> a c", tp.monoids.Sum)
    assert_equal(correlate, {"data": 3}, {"e": entry}, {"a": 2, "c": 3}, {"e": 5})


@pytest.mark.parametrize("entry", [(tp.chunks(2),), (tp.ring("model"), tp.chunks(2)), ("data", tp.chunks(2))])
def test_a_window_without_taps_reads_no_chunks(entry):
    def nothing(x, taps, a):
        return jnp.zeros((a.size, x.shape[1])) + x.sum() + taps.sum()

    untapped = tp.Reduce(nothing, "(a+e) c, e, @a -> a c", tp.monoids.Sum, sizes={"a": 4})
    assert_equal(untapped, {"data": 2, "model": 2}, {"c": ("model",), "a": entry}, {"a": 5, "c": 3}, {"e": 0})


def planned(run: Callable[..., Any], mesh: dict[str, int], entries: dict[str, Any], *dims: dict[str, int]) -> tp.Plan:
    graph = tp.trace(run, *(tp.TensorType(own, jnp.float64) for own in dims))
    return tp.plan(graph, tp.mesh(**mesh), entries)


def test_a_value_lies_along_a_mesh_axis_once():
    # In chunks and over `data`, where a loop reads it, it was left over `data` along the ring's dimension as well.
    def run(x):
        twice = tp.Map(lambda value: value * 2, name="double")(x)
        return tp.iterate(lambda value: tp.Map(jnp.tanh)(smoothed(value, "a")) + twice, 3)(x), twice

    graph = tp.trace(run, tp.TensorType({"a": 6, "b": 5}, jnp.float64))
    entries = {"b": ("data", tp.chunks(2)), "a": (tp.ring("data"),)}
    plan = tp.plan(graph, tp.mesh(data=3), entries, ops={"double": {"b": None}}, outputs={"y/1": {"a": "data"}})
    plan.verify()
    plan.shards().verify(graph)


def test_passes_for_totals_leave_out_scans_that_only_others_need():
    # The first pass went on with the second scan, from prefixes that still lacked what other devices add.
    recurrence = "a c, a c -> a c"
    first = tp.Scan(tp.monoids.AffineRecurrence, recurrence, over="c", present=lambda state: state[1], name="first")
    second = tp.Scan(tp.monoids.AffineRecurrence, recurrence, over="a", present=lambda state: state[1], name="second")

    def run(x, y):
        return second(first(x, y), y)

    plan = planned(run, {"data": 3}, {"c": ("data", tp.chunks(2)), "a": tp.chunks(4)}, *[{"a": 5, "c": 11}] * 2)
    plan.verify()


def test_a_ring_that_cannot_go_round_in_a_repetition_is_refused_when_it_is_planned():
    # It was planned, and refused when it was compiled: what is left of the plan that was drawn.
    program, _ = draw_pair("rvz/67", 4)[1]
    around = {"b": "model", "a": (tp.ring("data"), tp.chunks(1)), "c": (tp.striped("data"), tp.ring("model"))}
    with pytest.raises(tp.PlanError, match="cannot go round in its repetition"):
        tp.plan(program.graph, tp.mesh(data=2, model=2), around, remat="dots_with_no_batch_dims")
