"""Layouts of tensors on a mesh: read from what users write, and as JAX takes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax import dtypes
from jax.sharding import NamedSharding, SingleDeviceSharding

from combinators.arguments import read_list, read_mapping, read_name
from combinators.errors import message, spelt
from combinators.index_space.tensor_type import TensorType
from tapestry_jax.fabric.errors import FabricError
from tapestry_jax.fabric.tensors.records import Kind, Layout
from tapestry_jax.lowering.boundary import sharding
from tapestry_jax.planning.entries.layouts import read_layouts
from tapestry_jax.planning.entries.read import mesh_axes
from tapestry_jax.planning.geometry.layout import Layout as Cuts
from tapestry_jax.planning.geometry.layout import even_cut, true_layout
from tapestry_jax.planning.geometry.mesh_shape import MeshShape


def read_layout(asked: Any, kind: TensorType, mesh: Any, where: str) -> Layout:
    """A layout, of what a user wrote: `{"batch": "data"}`.

    Raises:
      PlanError: when it is no mapping from dimensions to axes of the mesh.
      FabricError: for a dimension that the tensor does not have, a mesh axis that stands twice, or without a mesh.
    """
    if asked is None or (isinstance(asked, Mapping) and not asked):
        return ()
    if mesh is None:
        remedy = "Open the fabric with a mesh: tp.Fabric(path, mesh=mesh)."
        raise FabricError(message(f"{where}: a layout needs a mesh", f"got {spelt(asked)}", remedy=remedy))
    shape = MeshShape.of(mesh)
    read = mesh_axes(read_layouts({where: asked}, shape, "layout")[0][1], where)
    used = [axis for _, axes, _ in read for axis in axes]
    missing = [name for name, _, _ in read if name not in kind.names]
    if missing or len(used) != len(set(used)):
        why = f"it has no axis `{missing[0]}`" if missing else "a mesh axis cuts two of its axes"
        remedy = "Name axes of the tensor, each with mesh axes of its own."
        raise FabricError(message(f"{where}: {why}", f"its type is {kind}, got {spelt(asked)}", remedy=remedy))
    return tuple((name, axes) for name, axes, _ in read if axes)


def read_places(asked: Any, where: str) -> Layout:
    """A layout of a tensor whose type is not known yet; what it names is looked at when it is made.

    Raises:
      FabricError: when it is no mapping from names of dimensions to names of mesh axes.
    """
    places = read_mapping(asked, f"layout= of {where}", FabricError).items()
    names = {
        dim: (axes,) if isinstance(axes, str) else read_list(axes, f"the mesh axes of {spelt(dim, 40)}", FabricError)
        for dim, axes in places
    }
    return tuple(
        (
            read_name(dim, "a dimension of a layout", FabricError),
            tuple(read_name(axis, "a mesh axis", FabricError) for axis in axes),
        )
        for dim, axes in names.items()
    )


def sharding_of(kind: Kind, mesh: Any) -> Any:
    """How a tensor lies on a mesh: each axis over the longest prefix of its mesh axes that divides it.

    What a layout names that the mesh does not have, since another one wrote it, cuts nothing.
    """
    if mesh is None:
        return SingleDeviceSharding(jax.local_devices()[0])
    shape, cuts = MeshShape.of(mesh), Cuts.whole(kind.type.ndim)
    for name, axes in kind.layout:
        if name in kind.type.names:
            axis = kind.type.names.index(name)
            known = tuple(each for each in axes if each in shape.names)
            cuts = cuts.with_cut(axis, even_cut(kind.type.shape[axis], known, shape))
    return sharding(true_layout(cuts, kind.type.shape, shape), mesh)


def layout_of(names: Sequence[str | None], placement: Any) -> Layout:
    """The layout of an array on a mesh, as a fabric keeps it."""
    if not isinstance(placement, NamedSharding):
        return ()
    found: list[tuple[str, tuple[str, ...]]] = []
    for name, axes in zip(names, placement.spec, strict=False):
        if name is not None and axes:
            found.append((name, (axes,) if isinstance(axes, str) else tuple(map(str, axes))))
    return tuple(found)


def placed(array: Any, dtype: np.dtype[Any], target: Any) -> Any:
    """An array on devices.

    Raises:
      FabricError: for 64 bits where JAX has them off, which would be lost silently.
    """
    check_bits(dtype, "an array")
    return jax.device_put(array if isinstance(array, jax.Array) else np.asarray(array, dtype), target)


def check_bits(dtype: np.dtype[Any], where: str) -> None:
    """That devices hold this dtype as it is.

    Raises:
      FabricError: for 64 bits where JAX has them off.
    """
    if dtypes.canonicalize_dtype(dtype) != dtype:
        told = f"expected {dtypes.canonicalize_dtype(dtype)}, got {dtype}"
        remedy = 'Call jax.config.update("jax_enable_x64", True), or copy it with cast=True into a tensor of 32 bits.'
        raise FabricError(message(f"{where}: JAX computes in 32 bits here", told, remedy=remedy))
