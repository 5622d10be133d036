"""The meshes that a search may choose among: one, several, or all that a number of devices can be laid out as."""

from __future__ import annotations

from typing import Any, cast

import jax
from jax.sharding import AbstractMesh, AxisType, Mesh

from combinators.arguments import is_whole
from combinators.errors import MeshError, message, spelt
from tapestry_jax.mesh import mesh as make_mesh
from tapestry_jax.planning.geometry.mesh_shape import MeshShape

NAMES = ("data", "model")
MOST = 2**20
"""More devices than that are no mesh that anybody has."""


def read_meshes(mesh: Any) -> tuple[Any, ...]:
    """The meshes to search on.

    Args:
      mesh: a mesh, with devices or abstract; a list of meshes; or a number of devices, for all ways to lay them out
        along one axis, `data`, or two, `data` and `model`. With enough devices at hand those meshes are of them.

    Raises:
      MeshError: for anything else.
    """
    if is_whole(mesh):
        if not 1 <= mesh <= MOST:
            raise _no_mesh(mesh)
        return tuple(_made(sizes) for sizes in factorisations(int(mesh)))
    found: tuple[Any, ...] = tuple(cast("list[Any]", mesh)) if isinstance(mesh, list | tuple) else (mesh,)
    if not found:
        raise _no_mesh(mesh)
    for each in found:
        # A shape alone can be planned on, and so can a mesh without axes; JAX lowers no program for them to be weighed.
        if not isinstance(each, Mesh | AbstractMesh) or not each.axis_names:
            raise _no_mesh(each)
        MeshShape.of(each)
    return found


def factorisations(count: int) -> tuple[tuple[int, ...], ...]:
    """All devices along one axis, then along two of at least two devices each, the first axis the longer first."""
    pairs = ((count // second, second) for second in range(2, count // 2 + 1) if count % second == 0)
    return ((count,), *pairs)


def _made(sizes: tuple[int, ...]) -> Any:
    axes = dict(zip(NAMES, sizes, strict=False))
    needed = 1
    for size in sizes:
        needed *= size
    if needed <= jax.device_count():
        return make_mesh(None, **axes)
    return AbstractMesh(sizes, tuple(axes), axis_types=(AxisType.Auto,) * len(sizes))


def _no_mesh(mesh: Any) -> MeshError:
    return MeshError(
        message(
            "a search needs a mesh, or a number of devices",
            f"got {type(mesh).__name__}: {spelt(mesh)}",
            remedy=f"Give a mesh with at least one axis, a list of meshes, or a number of devices from 1 to {MOST:,}.",
        )
    )
