"""Meshes by name."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
from jax.sharding import AxisType, Mesh

from combinators.errors import MeshError, message


def mesh(devices: Sequence[Any] | None = None, **axes: int) -> Mesh:
    """Make a mesh of devices: `tp.mesh(data=2, model=4)`.

    Args:
      devices: which to use; by default the first ones that JAX has.
      axes: name and size of every axis, the outermost first.

    Returns:
      A `jax.sharding.Mesh` with `AxisType.Auto` axes.

    Raises:
      MeshError: when there are too few devices, or a size is not a positive integer.
    """
    for name, size in axes.items():
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise MeshError(
                message(
                    f"the mesh axis `{name}` has no size",
                    f"got {size!r}",
                    remedy="Give a positive number of devices for every axis.",
                )
            )
    if not axes:
        raise MeshError(message("a mesh needs axes", remedy="Name them: tp.mesh(data=2, model=4)."))
    available = list(jax.devices() if devices is None else devices)
    needed = math.prod(axes.values())
    if needed > len(available):
        shown = " x ".join(f"{name}={size}" for name, size in axes.items())
        raise MeshError(
            message(
                f"the mesh {shown} needs {needed} devices",
                f"got {len(available)}: {', '.join(map(str, available[:4]))}",
                remedy=f"Simulate them on the CPU, first thing in the program: "
                f'jax.config.update("jax_num_cpu_devices", {needed}).',
            )
        )
    kinds = (AxisType.Auto,) * len(axes)
    return jax.make_mesh(tuple(axes.values()), tuple(axes), axis_types=kinds, devices=available[:needed])
