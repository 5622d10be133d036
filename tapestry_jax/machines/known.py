"""Machines by name: `H100`, `v5p`, `v5e:4x4`, `h100:8x8`."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from combinators.errors import MeshError, message, spelt
from tapestry_jax.machines.cpu import CPU
from tapestry_jax.machines.machine import Machine
from tapestry_jax.machines.nvidia import A100, B200, H100, H200
from tapestry_jax.machines.tpu import V4, V5E, V5P, V6E

KNOWN = {machine.name: machine for machine in (A100, B200, H100, H200, V4, V5E, V5P, V6E, CPU)}
"""The machines that come with the library, by name."""
_SHAPE = re.compile(r"[1-9]\d{0,3}(x[1-9]\d{0,3}){0,2}")


def find(machine: Any) -> Machine:
    """A machine, or the one of this name.

    Args:
      machine: a `Machine`; or a name, with a shape behind it if need be: devices along each axis of a torus,
        `"v5e:4x4"`, or hosts by devices of a host, `"h100:8x4"`.

    Raises:
      MeshError: when it is no machine, or the shape is not one of it.
    """
    if isinstance(machine, Machine):
        return machine
    name, colon, shape = machine.lower().partition(":") if isinstance(machine, str) else ("", "", "")
    found = next((each for each in KNOWN.values() if each.name.lower() == name), None)
    if found is not None and not colon:
        return found
    if found is not None and _SHAPE.fullmatch(shape):
        sizes = tuple(map(int, shape.split("x")))
        if found.torus == len(sizes):
            return replace(found, shape=sizes)
        if not found.torus and len(sizes) == 2:
            return replace(found, group=sizes[1], shape=sizes)
    raise MeshError(
        message(
            "no such machine is known",
            f"got {spelt(machine)}",
            f"known are {', '.join(KNOWN)}",
            remedy="Name one of these, with its shape if need be ('v5p:4x4x4', 'h100:8x8'), or give a tp.machines."
            "Machine, such as tp.machines.measure(mesh) makes.",
        )
    )
