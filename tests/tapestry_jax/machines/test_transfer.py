"""What a collective takes: against what is known of rings, lines, switches and hierarchies."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest

import tapestry_jax as tp
from tapestry_jax.machines.laid import lay
from tapestry_jax.machines.transfer import KINDS, seconds

machines = tp.machines
BIG = 1e12
"""So many bytes that no hop counts."""


def rate(machine, kind: str, axes: tuple[str, ...], **mesh: int) -> float:
    """Bytes per second, in units of one link inside."""
    laid = lay(machine, tuple(mesh.items()))
    return BIG / seconds(laid, kind, axes, BIG) / machine.inside.bandwidth.value


def test_a_switch_takes_each_device_to_its_port():
    assert rate(machines.H100, "all-gather", ("model",), model=8) == pytest.approx(8 / 7, rel=1e-3)
    assert rate(machines.H100, "reduce-scatter", ("model",), model=8) == pytest.approx(8 / 7, rel=1e-3)
    assert rate(machines.H100, "all-reduce", ("model",), model=8) == pytest.approx(4 / 7, rel=1e-3)
    assert rate(machines.H100, "all-to-all", ("model",), model=8) == pytest.approx(8 / 7, rel=1e-3)
    assert rate(machines.H100, "collective-permute", ("model",), model=8) == pytest.approx(1, rel=1e-3)


def simulated_all_to_all(devices: int, *, closed: bool) -> float:
    """Bytes over the busiest link, of 1 byte a device, counted hop by hop; ties on a ring go half each way."""
    load = dict.fromkeys(itertools.product(range(devices), (1, -1)), 0.0)
    for start, end in itertools.permutations(range(devices), 2):
        forward = (end - start) % devices
        ways = {1: forward, -1: devices - forward} if closed else {1 if end > start else -1: abs(end - start)}
        shortest = min(ways.values())
        chosen = [way for way, hops in ways.items() if hops == shortest]
        for way in chosen:
            for hop in range(shortest):
                load[(start + way * hop) % devices, way] += 1 / devices / len(chosen)
    return max(load.values())


@pytest.mark.parametrize("devices", [4, 8, 12, 16])
def test_all_to_all_on_a_ring_is_what_its_busiest_link_carries(devices: int):
    crossing = 1 / rate(machines.V5P, "all-to-all", ("x",), x=devices, y=2, z=2)
    assert crossing == pytest.approx(simulated_all_to_all(devices, closed=True), rel=1e-3)


@pytest.mark.parametrize("devices", [2, 3, 5, 8])
def test_all_to_all_on_a_line_is_what_its_busiest_link_carries(devices: int):
    crossing = 1 / rate(machines.V5E, "all-to-all", ("x",), x=devices, y=4)
    assert crossing == pytest.approx(simulated_all_to_all(devices, closed=False), rel=1e-3)


def test_a_ring_gathers_both_ways_and_a_line_one_way():
    assert rate(machines.V5P, "all-gather", ("x",), x=8, y=2, z=2) == pytest.approx(2 * 8 / 7, rel=1e-3)
    assert rate(machines.V5E, "all-gather", ("x",), x=8, y=2) == pytest.approx(8 / 7, rel=1e-3)


def test_axes_of_a_torus_work_together():
    alone, both = (rate(machines.V5P, "all-gather", axes, x=8, y=8, z=4) for axes in (("x",), ("x", "y")))
    assert both == pytest.approx(2 * alone * (7 / 8) / (63 / 64), rel=1e-3)


def test_all_to_all_is_not_priced_as_all_gather():
    for machine in (machines.V5P, machines.V5E):
        laid = lay(machine, (("x", 16), ("y", 16)))
        assert seconds(laid, "all-to-all", ("x",), BIG) > 1.9 * seconds(laid, "all-gather", ("x",), BIG)


def test_more_devices_in_a_host_send_less_each_to_other_hosts():
    # The same axis of 8 hosts, alone and with the 8 devices of each host: the latter send an eighth each.
    laid = lay(machines.H100, (("data", 8), ("model", 8)))
    alone, together = (seconds(laid, "all-reduce", axes, BIG) for axes in (("data",), ("data", "model")))
    assert together < alone / 3


def test_an_axis_over_slow_links_costs_more():
    laid = lay(machines.H100, (("data", 8), ("model", 8)))
    for kind in KINDS:
        assert seconds(laid, kind, ("data",), BIG) > 8 * seconds(laid, kind, ("model",), BIG)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", machines.KNOWN)
def test_prices_grow_with_bytes_and_are_numbers(name: str, kind: str):
    for sizes in ((2,), (3, 5), (64, 8), (16, 16, 2), (300, 7)):
        mesh = tuple((f"axis{number}", size) for number, size in enumerate(sizes))
        laid, axes = lay(machines.find(name), mesh), tuple(axis for axis, _ in mesh)
        found = [seconds(laid, kind, chosen, size) for chosen in (axes, axes[:1]) for size in (4.0, 1e6, 1e9)]
        assert all(math.isfinite(each) and each > 0 for each in found)
        assert found[:3] == sorted(found[:3])


def test_nothing_is_sent_for_nothing():
    laid = lay(machines.H100, (("one", 1), ("model", 8)))
    assert seconds(laid, "all-reduce", ("one",), BIG) == 0
    assert seconds(laid, "all-reduce", ("model",), 0) == 0


def test_a_kind_without_a_price_is_refused():
    with pytest.raises(tp.MeshError, match="this collective has no price"):
        seconds(lay(machines.H100, (("model", 8),)), "all-gathers", ("model",), 8)


def test_tables_go_before_links():
    table = machines.Table("all-reduce", ("model",), ((1e3, 1.0), (1e6, 3.0)))
    laid = lay(replace(machines.H100, tables=(table,)), (("data", 2), ("model", 4)))
    times = [seconds(laid, "all-reduce", ("model",), size) for size in (10, 1e3, 500_500, 1e6, 1_999_000)]
    assert times == pytest.approx([1, 1, 2, 3, 5])
    # Of the other axis nothing is measured.
    assert seconds(laid, "all-reduce", ("data",), 1e6) < 1e-3
