"""The GPU that is here: which machine it is, and figures that are measured within what it can do."""

from __future__ import annotations

from typing import Any

import pytest

import tapestry_jax as tp
from tapestry_jax.machines.of_mesh import machine_of

pytestmark = pytest.mark.gpu


def test_a_gpu_is_measured(mesh: Any) -> None:
    machine = tp.machines.measure(mesh)
    assert machine.platform == "cuda" and machine.name == mesh.devices.flat[0].device_kind
    # Far above what calls alone would give, unless others keep the GPU busy.
    assert machine.flops("bfloat16") > machine.flops("float32") > machine.vector.value > 1e11
    assert machine.bandwidth.value > 1e11 and 1e-7 < machine.start.value < 1e-4
    assert tp.machines.Machine.from_json(machine.to_json()) == machine


def test_nothing_is_measured_to_be_faster_than_its_data_sheet_says(mesh: Any) -> None:
    try:
        known = machine_of(mesh)
    except tp.MeshError:
        pytest.skip("no figures of this GPU are known")
    found = tp.machines.measure(mesh)
    for dtype in ("bfloat16", "float32"):
        assert found.flops(dtype) < known.flops(dtype)
    assert found.bandwidth.value < known.bandwidth.value and found.vector.value < known.vector.value
    assert found.cache == known.cache and found.inside == known.inside
