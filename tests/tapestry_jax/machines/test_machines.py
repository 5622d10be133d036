"""Machines are data: printed, stored, found by name; each figure has a source, and what is no machine is refused."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest

import tapestry_jax as tp
from tapestry_jax.machines import Figure
from tapestry_jax.machines.laid import Line, lay

machines = tp.machines


@pytest.mark.parametrize("name", machines.KNOWN)
def test_a_machine_comes_back_from_its_text(name: str):
    machine = machines.KNOWN[name]
    assert machines.Machine.from_json(machine.to_json()) == machine
    assert machines.find(name.upper()) is machine


@pytest.mark.parametrize("name", machines.KNOWN)
def test_every_figure_has_a_source_and_prints(name: str):
    machine = machines.KNOWN[name]
    told = str(machine)
    for place, figure in machine.figures():
        assert figure.value > 0
        assert figure.source in told
        assert place in told


# Figures as the vendors print them: H100 SXM, A100 80 GB SXM, TPU v5p and v5e.
@pytest.mark.parametrize(
    ("name", "bfloat16", "bandwidth"),
    [("H100", 989.4e12, 3.35e12), ("A100", 312e12, 2.039e12), ("v5p", 459e12, 2.765e12), ("v5e", 197e12, 819e9)],
)
def test_figures_are_those_of_the_data_sheets(name: str, bfloat16: float, bandwidth: float):
    machine = machines.find(name)
    assert (machine.flops("bfloat16"), machine.bandwidth.value) == (bfloat16, bandwidth)


def test_a_name_may_carry_a_shape():
    assert machines.find("v5p:4x4x8").shape == (4, 4, 8)
    assert machines.find("h100:16x4").group == 4


@pytest.mark.parametrize("name", ["h1000", "", None, 3, "v5p:4x4", "h100:8", "v5e:0x4", "v5e:", "v5e:4x4x4"])
def test_an_unknown_machine_is_refused(name: object):
    with pytest.raises(tp.MeshError, match="no such machine is known") as caught:
        machines.find(name)
    assert "known are A100, B200, H100" in str(caught.value)


@pytest.mark.parametrize("value", [math.nan, math.inf, 0.0, -1.0])
def test_a_figure_that_is_no_positive_number_is_refused(value: float):
    bad = machines.Figure(value, "nowhere")
    with pytest.raises(tp.MeshError, match="memory, B/s: got"):
        replace(machines.H100, bandwidth=bad)


@pytest.mark.parametrize(
    ("other", "told"),
    [
        ({"hides": (("all-gather", Figure(1.5, "typed")),)}, "more than all\n  hides, all-gather: got 1.5\n"),
        ({"reached": Figure(90.0, "percent")}, "more than all\n  reached: got 90.0\n"),
        ({"matmul": (("int8", Figure(1e12, "a")),) * 2}, "says something twice\n  matmul of int8\n"),
        (
            {"tables": tuple(machines.Table("all-reduce", axes, ((1, 1),)) for axes in (("a", "b"), ("b", "a")))},
            "says something twice\n  the table of all-reduce over a\\+b\n",
        ),
        ({"tables": (machines.Table("all-reduce", ("a",), ((8, 1), (4, 2))),)}, "Give its points by ascending bytes."),
    ],
    ids=["hidden", "reached", "twice", "tables", "descending"],
)
def test_a_machine_that_would_be_priced_by_chance_is_refused(other: dict[str, Any], told: str):
    """Each was taken: a plan's price was not the span of its timeline, or one of two figures."""
    with pytest.raises(tp.MeshError, match=told):
        replace(machines.H100, **other)


def test_a_table_without_times_is_refused():
    with pytest.raises(tp.MeshError, match="holds no times"):
        replace(machines.H100, tables=(machines.Table("all-gather", ("data",), ((1.0, math.nan),)),))


def _edited(change):
    """A text whose machine was changed by hand, without a checksum."""

    def damage(text):
        stored = json.loads(text)
        del stored["sha256"]
        change(stored["machine"])
        return json.dumps(stored)

    return damage


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda text: text[:40], "truncated"),
        (lambda text: "[]", "an object of format, version, machine"),
        (lambda text: "null", "an object of format, version, machine"),
        (lambda text: 3, "no text"),
        (lambda text: "[" * 100_000, "nested too deeply"),
        (lambda text: text.replace('"version": 1', '"version": 2'), "no machine of this version"),
        (lambda text: text.replace('"group": 8', '"group": 16'), "its checksum differs"),
        (_edited(lambda machine: machine.update(group="8")), "group cannot be read"),
        (_edited(lambda machine: machine.update(name="\x1b[2J")), "machine, name holds line breaks"),
        (_edited(lambda machine: machine.update(group=True)), "group cannot be read"),
        (_edited(lambda machine: machine.update(group=0)), "`group` of the machine `H100` is 0"),
        (_edited(lambda machine: machine.update(closes=0)), "`closes` of the machine `H100` is 0"),
        (_edited(lambda machine: machine.update(shape=[0])), "`shape` of the machine `H100` is 0"),
        (_edited(lambda machine: machine.update(shape=[1.5])), "shape cannot be read"),
        (_edited(lambda machine: machine.pop("vector")), "the machine cannot be read"),
        (_edited(lambda machine: machine["inside"].update(kind="wire")), "expected torus or switch"),
        (_edited(lambda machine: machine["start"].update(value=math.nan)), "NaN is no JSON number"),
        (_edited(lambda machine: machine["start"].update(value="2e-6")), "start, value cannot be read"),
        (_edited(lambda machine: machine["start"].update(value=-1)), "no positive number"),
        (_edited(lambda machine: machine["start"].update(estimate=1)), "expected true or false"),
        (_edited(lambda machine: machine["matmul"].append(["int8"])), "pairs of a dtype and a figure"),
    ],
)
def test_a_damaged_text_is_refused(damage, told):
    with pytest.raises(tp.FormatError, match=told):
        machines.Machine.from_json(damage(machines.H100.to_json()))


def test_a_machine_may_be_written_by_hand():
    mine = _edited(lambda machine: machine.update(name="mine", group=4))(machines.H100.to_json())
    assert machines.Machine.from_json(mine) == replace(machines.H100, name="mine", group=4)


def test_hosts_hold_the_last_axes():
    laid = lay(machines.H100, (("data", 16), ("model", 4)))
    assert (laid.place("model").inside, laid.place("model").outside) == (4, 1)
    assert (laid.place("data").inside, laid.place("data").outside) == (2, 8)


def test_axes_that_do_not_divide_a_host_still_lie_in_it():
    laid = lay(machines.H100, (("data", 2), ("model", 3)))
    assert [(place.inside, place.outside) for _, place in laid.places] == [(2, 1), (3, 1)]


def test_axes_of_a_torus_get_lines_of_their_own():
    laid = lay(machines.find("v5p:4x4x4"), (("data", 16), ("model", 4)))
    assert laid.place("data").lines == (Line(4, 1, closed=True), Line(4, 1, closed=True))
    assert laid.place("model").lines == (Line(4, 1, closed=True),)


def test_short_lines_of_small_pods_are_open():
    assert lay(machines.V5E, (("data", 8), ("model", 4))).place("data").lines == (Line(8, 1, closed=False),)
    assert lay(machines.V5E, (("data", 16), ("model", 16))).place("data").lines == (Line(16, 1, closed=True),)


def test_more_axes_than_a_torus_has_share_a_line():
    laid = lay(machines.V5E, (("a", 4), ("b", 4), ("c", 4)))
    assert max(line.stride for _, place in laid.places for line in place.lines) == 4


@pytest.mark.parametrize("sizes", [(), (1,), (1, 1), (3,), (7, 5), (2, 3, 5, 7), (64, 8), (1024, 8), (600,), (17, 31)])
@pytest.mark.parametrize("name", machines.KNOWN)
def test_every_mesh_is_laid_whole(name: str, sizes: tuple[int, ...]):
    mesh = tuple((f"axis{number}", size) for number, size in enumerate(sizes))
    laid = lay(machines.find(name), mesh)
    assert [place.inside * place.outside for _, place in laid.places] == list(sizes)
    for _, place in laid.places:
        if laid.machine.torus:
            assert math.prod(line.length for line in place.lines) == place.inside
    assert str(laid).count(":") == len(sizes)


def test_a_mesh_with_fewer_devices_than_the_hosts_have_is_refused():
    with pytest.raises(tp.MeshError, match="the mesh does not fill H100 of 3x8 devices"):
        lay(machines.find("h100:3x8"), (("data", 2), ("model", 8)))
    assert lay(machines.find("h100:2x8"), (("data", 2), ("model", 8)))


def test_a_mesh_that_does_not_fill_the_machine_is_refused():
    with pytest.raises(tp.MeshError, match="the mesh does not fill v5e of 4x4 devices"):
        lay(machines.find("v5e:4x4"), (("data", 8),))


# Looked for, and said by no vendor: whoever finds one takes it out of here.
@pytest.mark.parametrize(
    ("name", "guessed"),
    [
        ("H100", {"inside a group, s a hop", "between groups, s a hop", "smallest kernel, s"}),
        (
            "B200",
            {
                "inside a group, s a hop",
                "between groups, s a hop",
                "smallest kernel, s",
                "memory on the chip, B",
                "all-gather of layers, share behind computing",
                "reduce-scatter of layers, share behind computing",
            },
        ),
        (
            "v4",
            {
                "matrix products of float16, FLOP/s",
                "share of it that kernels reach",
                "other arithmetic, FLOP/s",
                "memory on the chip, B",
                "between groups, B/s a device",
                "between groups, s a hop",
                "smallest kernel, s",
            },
        ),
    ],
)
def test_what_no_vendor_says_is_marked_as_an_estimate(name: str, guessed: set[str]):
    assert {place for place, figure in machines.KNOWN[name].figures() if figure.estimate} == guessed


def test_a_file_written_before_machines_said_what_they_hide_is_read():
    older = replace(machines.V6E, hides=())
    written = json.loads(older.to_json())
    del written["machine"]["hides"], written["sha256"]
    assert machines.Machine.from_json(json.dumps(written)) == older
    assert machines.Machine.from_json(machines.V6E.to_json()) == machines.V6E


@pytest.mark.parametrize("value", [None, "x", True, float("nan"), -1, 0, 1e-320, 10**400])
def test_figures_that_are_no_positive_numbers_are_told(value: Any) -> None:
    with pytest.raises(tp.MeshError, match="is no positive number"):
        replace(tp.machines.H100, vector=Figure(value, "me"))
    with pytest.raises(tp.MeshError, match="is no positive number"):
        replace(tp.machines.H100, memory=value)
