"""Exchanges told by ranges of devices are refused where any device would not have what it reads."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tapestry_jax as tp
from tapestry_jax.planning.arrivals.ranges import range_fault
from tapestry_jax.planning.geometry.changes import Overlap
from tapestry_jax.planning.geometry.drift import Drift
from tapestry_jax.planning.geometry.drifting import drifting
from tapestry_jax.planning.geometry.layout import Cut, Window
from tapestry_jax.planning.geometry.mesh_shape import MeshShape
from tapestry_jax.planning.proof import changed
from tapestry_jax.planning.proof.site import Site
from tests.drifts import Problem, is_right, problems, received
from tests.thoroughly import some

DEVICES = 2**20
READ = "does not receive the cells that its indices read"
LACKS = "sends cells that its devices do not hold"


@settings(max_examples=some(150))
@given(problems())
def test_what_is_right_is_proved(problem: Problem) -> None:
    assert range_fault(drifting(*problem), *problem) is None


@settings(max_examples=some(150))
@given(problems(), st.randoms(use_true_random=False))
def test_a_number_changed_is_refused_or_changes_nothing(problem: Problem, rng: Random) -> None:
    drift = drifting(*problem)
    wrong = _changed(drift, rng)
    if range_fault(wrong, *problem) is None:
        assert is_right(received(wrong, problem), problem)


def _changed(drift: Drift, rng: Random) -> Drift:
    """One number of one table is another."""
    name = rng.choice(["distances", "lengths", "runs", "reads"])
    told: Any = getattr(drift, name)
    if not isinstance(told, np.ndarray):
        field = rng.choice(dataclasses.fields(told)).name
        return dataclasses.replace(
            drift, **{name: dataclasses.replace(told, **{field: _other(getattr(told, field), rng)})}
        )
    return dataclasses.replace(drift, **{name: _other(told, rng)})


def _other(table: Any, rng: Random) -> Any:
    found = table.copy()
    if len(found):
        found[rng.randrange(len(found))] += rng.choice([-2, -1, 1, 2])
    return found


def _in(part: str, field: str, change: Callable[[Any], Any]) -> Callable[[Drift], Drift]:
    def damage(drift: Drift) -> Drift:
        told: Any = getattr(drift, part)
        table = change(getattr(told, field).copy())
        return dataclasses.replace(drift, **{part: dataclasses.replace(told, **{field: table})})

    return damage


def _at(place: int, more: int) -> Callable[[Any], Any]:
    def change(table: Any) -> Any:
        table[len(table) * place // 8] += more
        return table

    return change


def _none(drift: Drift) -> Drift:
    own = drift.distances == 0
    return dataclasses.replace(drift, distances=drift.distances[own], lengths=drift.lengths[own])


def _twice(drift: Drift) -> Drift:
    """One device receives from two senders in one permutation."""
    at = np.flatnonzero(drift.runs.part[1:] == drift.runs.part[:-1])[0]
    stop = drift.runs.stop.copy()
    stop[at] += 1
    return dataclasses.replace(drift, runs=dataclasses.replace(drift.runs, stop=stop))


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (_in("runs", "start", _at(4, 1)), LACKS),
        (_in("runs", "step", _at(3, 1)), LACKS),
        (_in("runs", "low", _at(3, 1)), READ),
        (_in("runs", "stop", _at(2, -1)), READ),
        (_twice, "exchanges cells with two neighbours in one permutation"),
        (_in("reads", "place", _at(5, -1)), READ),
        (_in("reads", "step", _at(5, 1)), READ),
        (_in("reads", "stop", _at(6, -1)), READ),
        (_in("reads", "first", _at(7, 1)), READ),
        (_in("reads", "end", _at(1, -1)), READ),
        (lambda drift: dataclasses.replace(drift, lengths=drift.lengths - 1), "puts parts side by side"),
        (lambda drift: dataclasses.replace(drift, distances=drift.distances[::-1]), "puts parts side by side"),
        (lambda drift: dataclasses.replace(drift, outside=(0, 64, 64)), "puts zeros where no boundary says so"),
        (_none, READ),
    ],
)
def test_a_fault_on_one_of_many_devices_is_refused(monkeypatch: Any, damage: Any, told: str) -> None:
    # Blocks of 65 cells read in blocks of 64 on 2**20 devices.
    cut = Cut(("a",), 64, Window(0, 3, 1, 64 * DEVICES, "valid"))
    change = Overlap(0, Cut(("a",), 65), cut, 64 * DEVICES + 2)
    site = Site(MeshShape((("a", DEVICES),)))
    assert changed.check_exchange(change, change.size, site, "path")
    whole = Overlap.exchange
    monkeypatch.setattr(Overlap, "exchange", lambda self, mesh: damage(whole(self, mesh)))
    with pytest.raises(tp.PlanError) as caught:
        changed.check_exchange(change, change.size, site, "path")
    assert str(caught.value).splitlines()[0].startswith(f"`path` {told}")


def test_an_error_names_the_device_and_the_cell() -> None:
    problem = Cut(("a",), 5), Cut(("a",), 4, Window(0, 3, 1, 32, "valid")), 34, 8
    for part, field, place, more, told in (
        ("runs", "start", 0, -1, "device 6 of 8 reads [24:30]; the first of these cells is cell 23"),
        ("runs", "low", 3, 1, "device 6 of 8 reads [25:30]; the first of these cells is nothing of the axis"),
        ("reads", "place", 4, 1, "devices 1 to 5 of 8: the first reads other parts than the last"),
        ("reads", "end", 0, -1, "device 0 of 8 takes columns [0:5] from place 7 on, of 13, and reads [0:6]"),
    ):
        assert range_fault(_in(part, field, _at(place, more))(drifting(*problem)), *problem) == (READ, told)


@pytest.mark.parametrize("outside", [None, (-1, 4, 16), (0, 4, 17), (-1, 3, 17)])
def test_zeros_stand_where_the_boundary_says_so(outside: tuple[int, int, int] | None) -> None:
    problem = Cut(("a",), 3), Cut(("a",), 4, Window(-1, 4, 2, 9, "zero")), 17, 8
    drift = drifting(*problem)
    assert range_fault(drift, *problem) is None
    fault = range_fault(dataclasses.replace(drift, outside=outside), *problem)
    assert fault == ("does not put zeros where its boundary says so", "4 cells a device, of 17")


def test_the_first_device_that_reads_is_found_behind_those_that_read_nothing() -> None:
    # The window of device 0 lies in front of the axis.
    problem = Cut(("a",), 3), Cut(("a",), 4, Window(-9, 2, 2, 12, "zero")), 23, 8
    drift = drifting(*problem)
    reads = dataclasses.replace(
        drift.reads, **{each.name: getattr(drift.reads, each.name)[1:] for each in dataclasses.fields(drift.reads)}
    )
    assert drift.reads.low[0] > 0 and range_fault(drift, *problem) is None
    fault = range_fault(dataclasses.replace(drift, reads=reads), *problem)
    assert fault is not None and fault[0] == READ
