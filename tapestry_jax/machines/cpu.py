"""CPU devices: those that JAX simulates on one host, which share its cores, its memory and its bandwidth."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import jax
from jax.sharding import Mesh

from tapestry_jax.machines.figures import Figure, Link
from tapestry_jax.machines.machine import Machine

_MEASURED = (
    "tp.machines.measure of eight devices that jax 0.10.2 simulates on two busy cores of a Xeon; a device's share"
)
_GUESSED = "a guess: it is not timed, or is nothing where loops are compiled as one"
_LINK = Link("switch", Figure(0.6e9, _MEASURED, estimate=True), Figure(0.13e-3, _MEASURED, estimate=True))

CPU = Machine(
    name="CPU",
    platform="cpu",
    matmul=(
        ("float32", Figure(4.8e9, _MEASURED, estimate=True)),
        ("bfloat16", Figure(4.8e9, _MEASURED, estimate=True)),
    ),
    vector=Figure(0.9e9, _MEASURED, estimate=True),
    memory=Figure(3.2e9, _MEASURED, estimate=True),
    bandwidth=Figure(0.8e9, _MEASURED, estimate=True),
    cache=Figure(4e6, _GUESSED, estimate=True),
    inside=_LINK,
    group=4096,
    between=_LINK,
    start=Figure(1e-6, _GUESSED, estimate=True),
)
"""One of eight devices that a host of two cores simulates: what it does is a guess for any other host."""


def cpu_of(mesh: Any) -> Machine | None:
    """The machine of a mesh of CPU devices that are here, with their share of the memory; None of other meshes."""
    if not isinstance(mesh, Mesh) or any(device.platform != "cpu" for device in mesh.devices.flat):
        return None
    return replace(CPU, memory=Figure(shared_memory(), "the memory of this host, shared by the devices of it"))


def shared_memory() -> float:
    """Bytes of a CPU device: simulated devices share the memory of their host."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return float(total) / jax.local_device_count("cpu")
