"""The machine of a mesh, read off its devices; what does not say it is refused, with the names that are known."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import AbstractDevice, AbstractMesh, AxisType

import tapestry_jax as tp
from tapestry_jax.machines import of_mesh

machines = tp.machines


def chips(*shape: int, cores: int = 1) -> list[Any]:
    return [SimpleNamespace(coords=tuple(place), process_index=0) for place in np.ndindex(*shape) for _ in range(cores)]


def gpus(*processes: int) -> list[Any]:
    return [SimpleNamespace(coords=(0, 0, 0), process_index=each) for each in processes]


@pytest.mark.parametrize(
    ("kind", "devices", "name"),
    [
        ("TPU v5 lite", chips(2, 4, 1), "v5e:2x4"),
        ("TPU v6 lite", chips(4, 4, 1), "v6e:4x4"),
        ("TPU v5", chips(2, 2, 1), "v5p:2x2x1"),
        ("TPU v4", chips(2, 2, 2, cores=2), "v4"),  # two devices a chip fill no torus of chips
        ("TPU v5 lite", chips(2, 2, 1)[:3], "v5e"),
        ("TPU v5 lite", [], "v5e"),
        ("NVIDIA H100 80GB HBM3", gpus(0, 0, 0, 0, 1, 1, 1, 1), "h100:2x4"),
        ("NVIDIA H200", gpus(0, 1, 2, 3), "h200"),  # a process for each
        ("NVIDIA A100-SXM4-80GB", gpus(0, 0, 1), "a100"),
        ("NVIDIA B200", gpus(0), "b200"),
    ],
)
def test_devices_say_what_they_are(kind: str, devices: list[Any], name: str):
    assert of_mesh.machine_of_devices(kind, devices) == machines.find(name)


@pytest.mark.parametrize("kind", ["NVIDIA A100-PCIE-40GB", "NVIDIA H100 PCIe", "TPU v3", "cpu", ""])
def test_what_has_other_figures_is_not_taken_for_another(kind: str):
    assert of_mesh.machine_of_devices(kind, []) is None


def product() -> Any:
    product = tp.einsum("b k, k n -> b n")
    return tp.trace(product, *(jax.ShapeDtypeStruct((64, 64), np.float32) for _ in range(2)))


@pytest.mark.parametrize(("kind", "name"), [("TPU v5", "v5p"), ("NVIDIA H200", "h200")])
def test_a_plan_costs_what_it_does_on_its_mesh(kind: str, name: str):
    device = AbstractDevice(device_kind=kind, num_cores=None, platform=None)
    mesh = AbstractMesh((2,), ("model",), axis_types=(AxisType.Auto,), abstract_device=device)
    plan = tp.plan(product(), mesh, {"k": "model"})
    assert plan.cost(grad=True) == plan.cost(name, grad=True)


@pytest.mark.parametrize("here", [True, False])
def test_a_mesh_that_says_nothing_is_told_what_is_known(here: bool):
    mesh = tp.mesh(model=2) if here else AbstractMesh((2,), ("model",), axis_types=(AxisType.Auto,))
    with pytest.raises(tp.MeshError, match="does not say on which machine") as caught:
        tp.plan(product(), mesh, {"k": "model"}).cost()
    assert "known are A100, B200, H100, H200, v4" in str(caught.value)
    remedy = "Name the machine, such as 'v5p', or give what tp.machines.measure(mesh) makes of the one here."
    assert str(caught.value).splitlines()[-1].strip() == remedy
