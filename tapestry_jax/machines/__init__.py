"""Machines as data: what they compute, hold and send, each figure with its source, and how a mesh lies on them.

Read `figures` and `machine`, its text in `json`; then `nvidia`, `tpu` and `cpu` (the machines), `known` (names),
`of_mesh` (the machine of a mesh), `laid` (a mesh on a machine), `transfer` (how long a collective takes there) and
`measured` (the machine that is here).
"""

from __future__ import annotations

from tapestry_jax.machines.cpu import CPU as CPU
from tapestry_jax.machines.figures import Figure as Figure
from tapestry_jax.machines.figures import Link as Link
from tapestry_jax.machines.figures import Table as Table
from tapestry_jax.machines.known import KNOWN as KNOWN
from tapestry_jax.machines.known import find as find
from tapestry_jax.machines.machine import Machine as Machine
from tapestry_jax.machines.measured import measure as measure
from tapestry_jax.machines.nvidia import A100 as A100
from tapestry_jax.machines.nvidia import B200 as B200
from tapestry_jax.machines.nvidia import H100 as H100
from tapestry_jax.machines.nvidia import H200 as H200
from tapestry_jax.machines.tpu import V4 as V4
from tapestry_jax.machines.tpu import V5E as V5E
from tapestry_jax.machines.tpu import V5P as V5P
from tapestry_jax.machines.tpu import V6E as V6E

__all__ = [
    "A100", "B200", "H100", "H200", "V4", "V5E", "V5P", "V6E", "CPU", "KNOWN",
    "Figure", "Link", "Machine", "Table", "find", "measure",
]  # fmt: skip
