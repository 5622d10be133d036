"""Meshes of machines that are not here."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from jax.sharding import AxisType, Mesh

from combinators.arguments import read_count
from combinators.errors import MeshError, message
from tapestry_jax.aot.known import Machine, read_machine


def topology(name: str, **axes: int) -> Mesh:
    """Make a mesh of compile-only devices: `tp.topology("v5p:4x4x4", data=16, model=4)`.

    XLA compiles for them as it does on the machine itself. They hold no arrays and run nothing:
    `plan.compile_only()` tells what the compiler says. Needs `pip install 'tapestry-jax[aot]'`.

    Args:
      name: a machine and its shape. For TPUs the chips along each axis of the torus, `"v5e:2x4"`; for GPUs hosts by
        devices of a host, `"h100:8x8"`.
      axes: name and size of every axis, the outermost first; they multiply to the devices of the machine.

    Returns:
      A `jax.sharding.Mesh` with `AxisType.Auto` axes; neighbours on the mesh are neighbours in the machine, as far as
      that is possible.

    Raises:
      MeshError: for an unknown machine, sizes that do not multiply to its devices, or a compiler that is not installed
        or does not fit.
    """
    machine = read_machine(name)
    sizes = {axis: read_count(size, f"the size of `{axis}`", 1, MeshError) for axis, size in axes.items()}
    devices = _devices(machine)
    _check_sizes(machine, sizes, len(devices))
    kinds = (AxisType.Auto,) * len(sizes)
    return Mesh(_arranged(tuple(sizes.values()), devices), tuple(sizes), axis_types=kinds)


def _devices(machine: Machine) -> list[Any]:
    # What loads compilers is itself loaded when one is asked for: most programs have devices.
    from tapestry_jax.aot.cuda import cuda_devices
    from tapestry_jax.aot.tpu import tpu_devices

    if machine.is_tpu:
        return tpu_devices(machine)
    return cuda_devices(machine)


def _check_sizes(machine: Machine, sizes: dict[str, int], devices: int) -> None:
    if not sizes or math.prod(sizes.values()) != devices:
        shown = " x ".join(f"{axis}={size}" for axis, size in sizes.items()) or "nothing"
        raise MeshError(
            message(
                f"the mesh does not fit {machine}, which has {devices} devices",
                f"got {shown}" + (f" = {math.prod(sizes.values())}" if sizes else ""),
                remedy=f"Give axes that multiply to {devices}: tp.topology({str(machine)!r}, data={devices}).",
            )
        )


def _arranged(sizes: tuple[int, ...], devices: list[Any]) -> Any:
    # Knows the tori of TPUs; needed here alone.
    from jax.experimental import mesh_utils

    try:
        return mesh_utils.create_device_mesh(sizes, devices, allow_split_physical_axes=True)
    except (AssertionError, NotImplementedError):
        # JAX lays no mesh over chips of two devices each, such as those of v4: as they are numbered, then.
        return np.array(devices).reshape(sizes)
