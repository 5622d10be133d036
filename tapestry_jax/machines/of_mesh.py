"""The machine that a mesh lies on, as far as its devices say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from jax.sharding import Mesh

from combinators.errors import MeshError, message
from tapestry_jax.machines.known import KNOWN
from tapestry_jax.machines.machine import Machine

_NAMES = {
    "TPU v4": "v4",
    "TPU v5": "v5p", "TPU v5p": "v5p",
    "TPU v5 lite": "v5e", "TPU v5e": "v5e",
    "TPU v6 lite": "v6e", "TPU v6e": "v6e",
    "NVIDIA A100-SXM4-80GB": "A100",
    "NVIDIA B200": "B200",
    "NVIDIA H100 80GB HBM3": "H100",
    "NVIDIA H200": "H200",
}  # fmt: skip
"""As compilers and drivers call those whose figures are known; cards on PCIe, or with less memory, are others."""


def machine_of(mesh: Any) -> Machine:
    """The machine of a mesh, here or compile-only, or of an abstract mesh that was made of such a one.

    Args:
      mesh: `jax.sharding.Mesh` or `AbstractMesh`.

    Returns:
      The machine, with the torus that the devices fill, or with as many devices a host as each process has.

    Raises:
      MeshError: where the mesh does not say it, or no figures of it are known.
    """
    devices: list[Any] = list(mesh.devices.flat) if isinstance(mesh, Mesh) else []
    kind = kind_of(mesh)
    machine = machine_of_devices(kind, devices)
    if machine is None:
        raise MeshError(
            message(
                "the mesh does not say on which machine this is",
                f"its devices are {kind!r}" if kind else "it is abstract and has no devices",
                f"known are {', '.join(KNOWN)}",
                remedy="Name the machine, such as 'v5p', or give what tp.machines.measure(mesh) makes of the one here.",
            )
        )
    return machine


def kind_of(mesh: Any) -> str:
    """What the devices of a mesh call themselves; empty where an abstract mesh does not say it."""
    described: Any = mesh.devices.flat[0] if isinstance(mesh, Mesh) else getattr(mesh, "abstract_device", None)
    return str(getattr(described, "device_kind", ""))


def machine_of_devices(kind: str, devices: Sequence[Any]) -> Machine | None:
    """The machine of devices that call themselves so; None where no figures of it are known.

    Args:
      kind: as drivers and compilers name it.
      devices: all of them, or none where they are not known.
    """
    name = _NAMES.get(kind)
    if name is None:
        return None
    machine = KNOWN[name]
    if machine.torus:
        return replace(machine, shape=_torus(devices, machine.torus))
    host = _host(devices)
    return machine if host is None else replace(machine, group=host, shape=(len(devices) // host, host))


def _torus(devices: Sequence[Any], axes: int) -> tuple[int, ...]:
    """Devices along each axis of the torus, where there is one at each place of a box; else empty."""
    places = {tuple(getattr(device, "coords", ())) for device in devices}
    if not devices or len(places) != len(devices) or any(len(place) < axes for place in places):
        return ()
    spans = np.ptp(np.array(sorted(places)), axis=0) + 1
    return tuple(map(int, spans[:axes])) if np.prod(spans[:axes]) == len(devices) else ()


def _host(devices: Sequence[Any]) -> int | None:
    """Devices of a host: of a process, where it has several; a process of one device does not say it."""
    found = {*Counter(device.process_index for device in devices).values()}
    return found.pop() if len(found) == 1 and found != {1} else None
