"""Seconds of kernels whose counts are given, worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tapestry_jax import machines
from tapestry_jax.planning.pricing.counting.counts import Counts
from tapestry_jax.planning.pricing.roofline import inner_bytes, passed, roofline, runs_as_one, stays

V5E, H100 = machines.V5E, machines.H100
MEGABYTE = 2.0**20


def test_idle_arrays_take_as_long_as_if_they_multiplied():
    flops = 1e12
    counts = Counts(products=(("bfloat16", flops),))
    busy, idle = (roofline(V5E, each, 0.0) for each in (counts, replace(counts, idle=2 * flops)))
    assert busy.limit == idle.limit == "products"
    assert busy.total == pytest.approx(flops / V5E.flops("bfloat16"))
    assert idle.total == pytest.approx(3 * busy.total)


@pytest.mark.parametrize(("largest", "kept"), [(64, True), (65, False)])
def test_on_the_chip_is_what_fits_into_half_of_it_at_twice_the_rate(largest: int, kept: bool):
    # 128 MB on a v5e.
    counts = Counts(inner=100 * MEGABYTE, largest=largest * MEGABYTE)
    moved = inner_bytes(V5E, counts)
    assert moved == (0 if kept else 100 * MEGABYTE)
    assert passed(V5E, counts, moved) == (50 if kept else 100) * MEGABYTE
    assert passed(V5E, counts, moved, near=20 * MEGABYTE) == (60 if kept else 110) * MEGABYTE


def test_only_tpus_keep_values_between_kernels():
    assert stays(V5E, 64 * MEGABYTE) and not stays(V5E, 65 * MEGABYTE) and not stays(H100, 1.0)


@pytest.mark.parametrize(
    ("platform", "head", "heads", "reads", "one"),
    [
        ("tpu", "fused", ("product",), (1.0, 1.0), True),
        ("cuda", "fused", ("product",), (1.0, 1.0), False),  # libraries read arrays
        ("cuda", "fused", ("reduced",), (1.0,), True),
        ("cuda", "product", ("fused",), (1.0, 1.0), True),
        ("cuda", "product", ("reduced",), (1.0,), False),
        ("cuda", "product", ("fused",), (2.0,), False),  # it is read again
        ("tpu", "apart", ("fused",), (1.0,), False),
    ],
)
def test_what_runs_as_one(platform: str, head: str, heads: tuple[str, ...], reads: tuple[float, ...], one: bool):
    assert runs_as_one(platform, head, heads, reads) is one


def test_what_tpus_do_beside_is_added_to_whatever_limits_them():
    # 819 GB/s, of which kernels reach 0.81; 1.2 us until the first bytes of each kernel arrive.
    counts = Counts(products=(("bfloat16", 197e6),), beside=0.81 * 819e3, kernels=2)
    found = roofline(V5E, counts, 0.0)
    assert (found.limit, found.total) == ("start", pytest.approx(1e-6 + 1e-6 + 2.4e-6))
    moved = roofline(V5E, counts, 10 * 0.81 * 819e3)
    assert (moved.limit, moved.total) == ("memory", pytest.approx(10e-6 + 1e-6 + 2.4e-6))
    # Elsewhere kernels begin while others run, and nothing is beside.
    assert roofline(H100, counts, 3.35e6).total == pytest.approx(max(1e-6, 2 * H100.start.value))


def test_slow_functions_are_arithmetic():
    counts = Counts(transcendental=1e9, slow=156e9)
    assert roofline(V5E, counts, 0.0).total == pytest.approx(160e9 / (4 * 1024 * 1.5e9))
