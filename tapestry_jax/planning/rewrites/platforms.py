"""The platforms that a plan is for: they choose among the dense kernels of its operations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax.sharding import Mesh

from combinators.arguments import read_list
from combinators.errors import PlanError, message, spelt
from combinators.graphs.graph import Graph
from combinators.graphs.nodes import Apply
from combinators.operations.dense import PLATFORMS, for_platforms
from combinators.operations.operation import Operation
from tapestry_jax.planning.rewrites.operations import with_operations

Platforms = tuple[str, ...]


def read_platforms(platforms: Any) -> Platforms:
    """Normalise `name | (name, ...) | None`; empty where it is left to the mesh.

    Raises:
      PlanError: for what is no name of a platform as lowering knows it.
    """
    given: Any = (platforms,) if isinstance(platforms, str) else platforms
    names = '"cpu", "cuda", "rocm", "tpu"'
    listed = () if given is None else read_list(given, "platforms= of tp.plan", PlanError, or_one=names)
    for name in listed:
        if not isinstance(name, str) or name not in PLATFORMS:
            raise PlanError(
                message(
                    "platforms names no platform that programs are lowered for",
                    f"got {spelt(name, 40)}",
                    remedy=f"Give some of {names}.",
                )
            )
    return tuple(map(str, listed))


def platforms_of(mesh: Any) -> Platforms:
    """The platform of a mesh's devices; empty for an abstract mesh, which may be of any."""
    if not isinstance(mesh, Mesh):
        return ()
    device: Any = mesh.devices.flat[0]
    if device.platform != "gpu":
        return (str(device.platform),)
    return ("rocm" if "rocm" in str(device.client.platform_version).lower() else "cuda",)


def chosen(graph: Graph, platforms: Sequence[str]) -> Graph:
    """The graph whose operations keep the dense kernels of some of these platforms; all of them where there is none."""
    if not platforms:
        return graph

    def change(inner: Graph, node: Apply, path: str) -> Operation:
        del inner, path
        return for_platforms(node.operation, platforms)

    return with_operations(graph, change)
