"""Meshes by name."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast, overload

import jax
import numpy as np
from jax.sharding import AxisType, Mesh

from combinators.arguments import is_whole
from combinators.errors import MeshError, message, spelt


@overload
def mesh(*, devices: Sequence[Any] | None = None, **axes: int) -> Mesh: ...
@overload
def mesh(devices: Sequence[Any] | None, /, **axes: int) -> Mesh: ...
def mesh(*devices: Any, **axes: Any) -> Mesh:
    """Make a mesh of devices: `tp.mesh(data=2, model=4)`.

    Args:
      devices: which to use, of which the mesh takes the first that it needs; by default those that JAX has.
      axes: name and size of every axis, the outermost first.

    Returns:
      A `jax.sharding.Mesh` with `AxisType.Auto` axes.

    Raises:
      MeshError: when there are too few devices, or a size is not a positive integer.
    """
    given = _one_of(devices, axes)
    for name, size in axes.items():
        if not is_whole(size) or size < 1:
            raise MeshError(
                message(
                    f"the mesh axis `{name}` has no size",
                    f"got {size!r}",
                    remedy="Give a positive number of devices for every axis.",
                )
            )
    if not axes:
        raise MeshError(message("a mesh needs axes", remedy="Name them: tp.mesh(data=2, model=4)."))
    axes = {name: int(size) for name, size in axes.items()}
    available = _read_devices(given)
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


def _one_of(devices: tuple[Any, ...], axes: dict[str, Any]) -> Any:
    """What says which devices to use, by place or by name; taken out of what names axes.

    Raises:
      MeshError: for a number, as of an axis, and for both.
    """
    # Of a parameter that has this name Python itself would say that it is given twice.
    listed = [each for each in (*devices, axes.pop("devices", None)) if each is not None]
    count = next((each for each in listed if is_whole(each)), None)
    if count is not None:
        raise MeshError(
            message(
                "a mesh axis cannot be called `devices`, which says which devices to use",
                f"got devices={count!r}",
                remedy="Call the axis something else, such as `data`.",
            )
        )
    if len(listed) > 1:
        raise MeshError(
            message(
                "the devices of a mesh are given twice",
                f"got {spelt(listed[0], 60)}, and {spelt(listed[1], 60)}",
                remedy="Give them once: tp.mesh(devices, data=2).",
            )
        )
    return listed[0] if listed else None


def _read_devices(devices: Any) -> list[Any]:
    """A list of devices, each once; all that JAX has for None."""
    if devices is None:
        return list(jax.devices())
    known: Any = devices.ravel().tolist() if isinstance(devices, np.ndarray) else devices
    listed: list[Any] = list(cast("Sequence[Any]", known)) if isinstance(known, tuple | list) else [known]
    wrong = [each for each in listed if not isinstance(each, jax.Device)]
    twice = [each for number, each in enumerate(listed) if not wrong and each in listed[:number]]
    if wrong or twice:
        raise MeshError(
            message(
                "a mesh is made of devices, each once",
                f"got {type(wrong[0]).__name__}: {spelt(wrong[0])}" if wrong else f"{twice[0]} stands twice",
                remedy="Pass some of jax.devices().",
            )
        )
    return listed
